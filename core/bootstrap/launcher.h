/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank and world size as launchers tell them. */
#ifndef SYMMEM_CORE_LAUNCHER_H
#define SYMMEM_CORE_LAUNCHER_H

#include "base/base.h"

/* What the environment says of what the options leave open. local: -1 if nothing does. */
typedef struct sm_launch {
    bool wants_rank, wants_size, wants_local;
    int32_t rank, size, local;
} sm_launch;
symmem_status sm_launch_read(sm_launch *launch);

#endif
