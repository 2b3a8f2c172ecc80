/* SPDX-License-Identifier: BSD-3-Clause */
/* Symmem_alloc, ordinary and persistent. */
#ifndef SYMMEM_CORE_MEMORY_PERSISTENT_H
#define SYMMEM_CORE_MEMORY_PERSISTENT_H

#include "memory/alloc.h"

/* Returns the persistent allocation of that id, active or not, or NULL. context->lock held. */
sm_allocation *sm_persistent_find(symmem_context *context, uint64_t alloc_id);

#endif
