/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of symmem_all_reduce from the environment, as symmem-bench --tune prints it. */
#ifndef SYMMEM_CORE_OPS_ALL_REDUCE_ENV_H
#define SYMMEM_CORE_OPS_ALL_REDUCE_ENV_H

#include "backend/context.h"

/* The table that the environment names, if it does; called by init. */
symmem_status sm_all_reduce_env(symmem_context *context);

#endif
