/* SPDX-License-Identifier: BSD-3-Clause */
/* Pools: blocks in symmetric segments. */
#ifndef SYMMEM_CORE_MEMORY_POOL_H
#define SYMMEM_CORE_MEMORY_POOL_H

#include "memory/alloc.h"

void sm_pool_destroy_all(symmem_context *context); /* by finalize */
void sm_pool_free_shells(symmem_context *context); /* with the context's memory */

#endif
