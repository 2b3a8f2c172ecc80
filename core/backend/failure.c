/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a context keeps of its rank's own lack (of memory, descriptors, space or rights), until the
 * rank goes on with other ranks. It is told to the peers as the cause when the rank ends. A process
 * that ends without a word tells nothing any more, so the lack also stands in the store meanwhile.
 */
#include "backend/failure.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "bootstrap/exit_record.h"

#include <string.h>

#define SAME_NS 1000000000u /* the same lack is not written again so soon */

static void hold(void *arg) {
    sm_context_retain(arg);
}

/* Whether the store does not have that lack yet, or has had it for some time. */
static bool is_news(const symmem_context *context, const symmem_error_record *error) {
    return context->lack.status != error->status ||
           strcmp(context->lack.operation, error->operation) != 0 ||
           sm_since_boot_ns() - context->lack_written_ns > SAME_NS;
}

/* failures_lock held. */
static void keep(symmem_context *context, const symmem_error_record *error) {
    if (context->identity_published && is_news(context, error)) {
        const sm_world world = sm_context_world(context);
        sm_exit_record_note(&world, error);
        context->lack_written_ns = sm_since_boot_ns();
    }
    context->lack = *error;
    for (size_t i = 0; i < sizeof(context->told) / sizeof(context->told[0]); i++)
        __atomic_store_n(&context->told[i], 0, __ATOMIC_RELAXED); /* no rank knows this one */
    /* Relaxed: a lack that is kept at this moment may be missed by another thread's look. */
    atomic_store_explicit(&context->has_lack, true, memory_order_relaxed);
}

static void end(void *arg, const symmem_error_record *error) {
    symmem_context *context = arg;
    if (error != NULL && context->world_size > 1 && sm_exit_record_is_lack(error)) {
        (void)pthread_mutex_lock(&context->failures_lock);
        /* Acquire pairs with: release in symmem_finalize, after which the store may be closed. */
        if (!atomic_load_explicit(&context->finalized, memory_order_acquire))
            keep(context, error);
        (void)pthread_mutex_unlock(&context->failures_lock);
    }
    sm_context_release(context);
}

const sm_failure_ops sm_context_failure_ops = {.hold = hold, .end = end};

void sm_context_forget_lack(symmem_context *context, bool ends) {
    if (!atomic_load_explicit(&context->has_lack, memory_order_relaxed))
        return;
    SM_ATTEMPT(forgetting);
    (void)pthread_mutex_lock(&context->failures_lock);
    /* Acquire pairs with: release in symmem_finalize, after which the store may be closed. */
    if (ends || !atomic_load_explicit(&context->finalized, memory_order_acquire)) {
        const sm_world world = sm_context_world(context);
        if (context->identity_published)
            sm_exit_record_clear(&world);
        context->lack.status = SYMMEM_OK;
        atomic_store_explicit(&context->has_lack, false, memory_order_relaxed);
    }
    (void)pthread_mutex_unlock(&context->failures_lock);
}

/* Whether the failure is one that can be a cause: a lack, or one of other ranks. */
static bool is_cause(const symmem_error_record *error) {
    return sm_exit_record_is_lack(error) || error->missing_count != 0 ||
           (error->failed_rank >= 0 && error->failed_rank != error->rank) ||
           error->status == SYMMEM_POISONED;
}

bool sm_context_last_failure(symmem_context *context, symmem_error_record *record,
                             bool *differs_p) {
    symmem_last_error(record);
    const bool is_own = sm_failed_in(context->number);
    const bool differs = is_own && record->status == SYMMEM_MISMATCH;
    *differs_p = false;
    if (is_own && is_cause(record) && !differs)
        return true;
    (void)pthread_mutex_lock(&context->failures_lock);
    const bool has_lack = context->lack.status != SYMMEM_OK;
    if (has_lack)
        *record = context->lack;
    *differs_p = differs && has_lack;
    (void)pthread_mutex_unlock(&context->failures_lock);
    return is_own || has_lack;
}
