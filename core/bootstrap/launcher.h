/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank and world size as the launcher's environment gives them. */
#ifndef SYMMEM_CORE_LAUNCHER_H
#define SYMMEM_CORE_LAUNCHER_H

#include "base/base.h"

/* What the environment says about the values that the options leave open. `local` is -1 if
 * unknown. */
typedef struct sm_launch {
    bool wants_rank, wants_size, wants_local;
    int32_t rank, size, local;
} sm_launch;
symmem_status sm_launch_read(sm_launch *launch);

#endif
