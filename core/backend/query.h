/* SPDX-License-Identifier: BSD-3-Clause */
/* Small questions to a context, and the helpers that name its errors. */
#ifndef SYMMEM_CORE_BACKEND_QUERY_H
#define SYMMEM_CORE_BACKEND_QUERY_H

#include "backend/context.h"

/* It refers to the context. */
sm_world sm_context_world(const symmem_context *context);
/* NOT_INITIALIZED with a record for NULL and finalized contexts. */
symmem_status sm_context_check(const symmem_context *context, const char *operation);
/* sm_fail with the context's rank and world size added. context may be NULL. */
symmem_status sm_context_fail(const symmem_context *context, symmem_status status,
                              const char *operation, const char *stage, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* SYMMEM_TIMEOUT_DEFAULT -> the context's. */
uint32_t sm_context_timeout(const symmem_context *context, uint32_t timeout_ms);

#endif
