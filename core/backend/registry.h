/* SPDX-License-Identifier: BSD-3-Clause */
/* A context's backends: registering, choosing, opening. */
#ifndef SYMMEM_CORE_BACKEND_REGISTRY_H
#define SYMMEM_CORE_BACKEND_REGISTRY_H

#include "backend/context.h"

/* Opens the active backend on first use and marks it in use. NOT_FOUND without one. context->lock
 * NOT held. */
symmem_status sm_context_use_backend(symmem_context *context, const char *operation);
/* The same and sm_instance_retain in one step, so that a finalize between them cannot close it. */
symmem_status sm_instance_enter(symmem_context *context, const char *operation);
/* Whether the active backend has these SYMMEM_CAP_ bits. */
static inline bool sm_backend_has(const symmem_context *context, uint64_t capability) {
    return context->backend != NULL && (context->backend->capabilities & capability) == capability;
}

#endif
