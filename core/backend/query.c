/* SPDX-License-Identifier: BSD-3-Clause */
/* Small questions to a context, and the helpers that name its errors. */
#include "backend/query.h"

symmem_status sm_context_fail(const symmem_context *context, symmem_status status,
                              const char *operation, const char *stage, const char *format, ...) {
    va_list args;
    va_start(args, format);
    sm_vfail(status, operation, stage, format, args);
    va_end(args);
    if (context)
        (void)sm_error_caller(context->rank, context->world_size);
    return status;
}

sm_world sm_context_world(const symmem_context *context) {
    return (sm_world){.store = context->store,
                      .prefix = context->world_prefix,
                      .identity = &context->identity,
                      .liveness = context->liveness,
                      .met = context->met,
                      .told = context->told,
                      .rank = context->rank,
                      .size = context->world_size,
                      .timeout_ms = context->default_timeout_ms};
}

symmem_status sm_context_check(const symmem_context *context, const char *operation) {
    if (!context)
        return sm_fail(SYMMEM_NOT_INITIALIZED, operation, "", "context is NULL");
    if (sm_fork_is_parents(context->made_in))
        return sm_fork_refuse(operation);
    sm_clock_use(context->clock);
    sm_call_is_in(context->number, context->rank, context->world_size, context->failure_ops,
                  (symmem_context *)context);
    /* Acquire pairs with: release in symmem_finalize */
    if (atomic_load_explicit(&context->finalized, memory_order_acquire))
        return sm_context_fail(context, SYMMEM_NOT_INITIALIZED, operation, "",
                               "the context was finalized");
    return SYMMEM_OK;
}

uint32_t sm_context_timeout(const symmem_context *context, uint32_t timeout_ms) {
    return timeout_ms == SYMMEM_TIMEOUT_DEFAULT ? context->default_timeout_ms : timeout_ms;
}

symmem_status sm_context_call_point(const symmem_context *context, const char *operation,
                                    const char *name) {
    symmem_status status = sm_point_call(context->point, context->point_arg, name);
    if (status == SYMMEM_OK)
        return status;
    return sm_context_fail(context, status, operation, name, "the failpoint %s failed: %s", name,
                           symmem_status_text(status));
}

static symmem_status query_int(const symmem_context *context, const char *operation,
                               const int32_t *value, int32_t *value_p) {
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!value_p)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                               "the output pointer is NULL");
    *value_p = *value;
    return SYMMEM_OK;
}

symmem_status symmem_context_rank(const symmem_context *context, int32_t *rank_p) {
    SM_PUBLIC_CALL;
    return query_int(context, "context_rank", context ? &context->rank : NULL, rank_p);
}

symmem_status symmem_context_world_size(const symmem_context *context, int32_t *world_size_p) {
    SM_PUBLIC_CALL;
    return query_int(context, "context_world_size", context ? &context->world_size : NULL,
                     world_size_p);
}

symmem_status symmem_context_local_rank(const symmem_context *context, int32_t *local_rank_p) {
    SM_PUBLIC_CALL;
    return query_int(context, "context_local_rank", context ? &context->local_rank : NULL,
                     local_rank_p);
}
