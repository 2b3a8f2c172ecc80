/* SPDX-License-Identifier: BSD-3-Clause */
/* Small questions to a context, and the helpers that name its errors. */
#include "backend/context.h"

#include <string.h>

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
                      .socket_dir = context->socket_dir,
                      .identity = &context->identity,
                      .liveness = context->liveness,
                      .met = context->met,
                      .rank = context->rank,
                      .size = context->world_size,
                      .timeout_ms = context->default_timeout_ms};
}

/* --- what a failure leads to ------------------------------------------------------------------ */

#define SAME_NS 1000000000u /* the same failure is not noted again so soon */

static void hold(void *arg) {
    sm_context_retain(arg);
}

/* Relaxed: a failure that is noted at this moment is noted after the caller's look. */
static bool is_noted(const symmem_context *context) {
    return atomic_load_explicit(&context->failure_noted, memory_order_relaxed);
}

/* Whether another failure than the last one, or that one some time ago. failures_lock held. */
static bool is_news(symmem_context *context, const symmem_error_record *error) {
    const uint64_t now_ns = sm_since_boot_ns();
    const uint64_t hash = sm_hash(error->operation, strlen(error->operation),
                                  SM_HASH_SEED + (uint64_t)(uint32_t)error->status);
    if (is_noted(context) && hash == context->failure_hash && now_ns - context->failure_ns < SAME_NS)
        return false;
    context->failure_hash = hash;
    context->failure_ns = now_ns;
    return true;
}

static void note(symmem_context *context, const symmem_error_record *error) {
    const sm_world world = sm_context_world(context);
    if (sm_exit_record_note(&world, error))
        atomic_store_explicit(&context->failure_noted, true, memory_order_relaxed);
}

/* Notes why this rank may end, because a process that has ended tells nothing any more. */
static void end(void *arg, const symmem_error_record *error) {
    symmem_context *context = arg;
    if (error != NULL && context->identity_published && sm_exit_record_is_lack(error)) {
        (void)pthread_mutex_lock(&context->failures_lock);
        /* Acquire pairs with: release in symmem_finalize, after which the store may be closed. */
        if (!atomic_load_explicit(&context->finalized, memory_order_acquire) &&
            is_news(context, error))
            note(context, error);
        (void)pthread_mutex_unlock(&context->failures_lock);
    }
    sm_context_release(context);
}

static const sm_failure_ops failure_ops = {.hold = hold, .end = end};

void sm_context_forget_failures(symmem_context *context, bool ends) {
    if (!is_noted(context))
        return;
    SM_ATTEMPT(forgetting);
    (void)pthread_mutex_lock(&context->failures_lock);
    /* Acquire pairs with: release in symmem_finalize, after which the store may be closed. */
    if (is_noted(context) &&
        (ends || !atomic_load_explicit(&context->finalized, memory_order_acquire))) {
        const sm_world world = sm_context_world(context);
        sm_exit_record_clear(&world);
        atomic_store_explicit(&context->failure_noted, false, memory_order_relaxed);
    }
    (void)pthread_mutex_unlock(&context->failures_lock);
}

/* --- checks and questions --------------------------------------------------------------------- */

symmem_status sm_context_check(const symmem_context *context, const char *operation) {
    if (!context)
        return sm_fail(SYMMEM_NOT_INITIALIZED, operation, "", "context is NULL");
    if (sm_fork_is_parents(context->made_in))
        return sm_fork_refuse(operation);
    sm_clock_use(context->clock);
    sm_call_is_of(context->rank, context->world_size, NULL);
    sm_call_is_in(context->number, &failure_ops, (symmem_context *)context);
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
