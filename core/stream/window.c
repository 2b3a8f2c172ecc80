/* SPDX-License-Identifier: BSD-3-Clause */
/* Counted signals: giving them, and waiting for them. */
#include "stream/channel.h"
#include "backend/host.h"
#include "backend/query.h"
#include "backend/table.h"
#include "rendezvous/handle.h"
#include "rendezvous/link_poison.h"

/* What op->plan points to. */
typedef struct window_plan {
    uint32_t count; /* given */
    const symmem_window_wait *waits;
    int32_t wait_count;
} window_plan;

/* An operation that ran and failed has poisoned the handle and said so. */
static symmem_status window_done(const sm_channel_op *op, symmem_status status, const char *entry) {
    if (status == SYMMEM_OK || sm_link_is_poisoned(&op->link->peers))
        return status;
    return sm_backend_failed(op->link->context, status, op->name, entry);
}

static symmem_status give(const sm_channel_op *op, const symmem_exec *exec, bool capturing) {
    const window_plan *plan = op->plan;
    const sm_link *link = op->link;
    symmem_exec named = *exec;
    (void)capturing;
    named.operation = op->name;
    return window_done(op,
                       link->context->backend->signal_count(link->context->instance, &link->peers,
                                                            op->peer, op->channel, plan->count,
                                                            &named),
                       "signal_count");
}

static symmem_status take(const sm_channel_op *op, const symmem_exec *exec, bool capturing) {
    const window_plan *plan = op->plan;
    const sm_link *link = op->link;
    symmem_exec named = *exec;
    (void)capturing;
    named.operation = op->name;
    return window_done(op,
                       link->context->backend->wait_counts(link->context->instance, &link->peers,
                                                           op->channel, plan->waits,
                                                           plan->wait_count, &named),
                       "wait_counts");
}

/* --- checks ------------------------------------------------------------------------- */

static symmem_status count_out_of_range(const char *operation, const char *what, int64_t found,
                                        int64_t most) {
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, operation, "", "%s %lld is not in [1, %lld]", what,
                  (long long)found, (long long)most);
    return sm_error_sizes((uint64_t)most, (uint64_t)found);
}

static symmem_status check_count(const char *operation, uint32_t count) {
    return count >= 1 && count <= INT32_MAX
               ? SYMMEM_OK
               : count_out_of_range(operation, "count", count, INT32_MAX);
}

static symmem_status check_waits(const symmem_handle *handle, const char *operation,
                                 const window_plan *plan) {
    if (plan->wait_count < 1 || plan->wait_count > SYMMEM_WINDOW_PEERS)
        return count_out_of_range(operation, "wait_count", plan->wait_count, SYMMEM_WINDOW_PEERS);
    if (plan->waits == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "waits is NULL");
    for (int32_t i = 0; i < plan->wait_count; i++) {
        symmem_status status = sm_handle_rank_check(handle, operation, plan->waits[i].rank);
        if (status == SYMMEM_OK)
            status = check_count(operation, plan->waits[i].count);
        for (int32_t j = 0; status == SYMMEM_OK && j < i; j++)
            if (plan->waits[j].rank == plan->waits[i].rank)
                status = sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "rank %d is named twice",
                                 plan->waits[i].rank);
        if (status != SYMMEM_OK)
            return status;
    }
    return SYMMEM_OK;
}

/* Checks what both have in common. */
static symmem_status check_window(symmem_handle *handle, const sm_channel_op *op,
                                  const symmem_stream *stream) {
    symmem_status status = sm_handle_check(handle, op->name);
    if (status != SYMMEM_OK)
        return status;
    const sm_link *link = handle->link;
    status = sm_need_capability(link->context, SYMMEM_CAP_WINDOW, op->name, "counted signals");
    if (status == SYMMEM_OK)
        status = sm_signal_check_channel(link, op->channel, op->name);
    return status == SYMMEM_OK ? sm_stream_fits(link->context, stream, link->device, op->name)
                               : status;
}

static symmem_status submit_window(symmem_handle *handle, sm_channel_op *op,
                                   const symmem_stream *stream) {
    sm_link *link = handle->link;
    symmem_ref ref;
    symmem_status status = sm_link_refuse_poisoned(link, op->name);
    if (status != SYMMEM_OK)
        return status;
    sm_link_ref(link, &ref);
    op->kind = SM_COMPOSED;
    op->link = link;
    op->timeout_ms = sm_context_timeout(link->context, op->timeout_ms);
    op->refs = &ref;
    op->ref_count = 1;
    return sm_channel_submit(op, stream);
}

symmem_status symmem_window_signal(symmem_handle *handle, int32_t dst_rank, int32_t index,
                                   uint32_t count, uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    const window_plan plan = {.count = count};
    sm_channel_op op = {.name = "window_signal",
                        .begin_point = "put_signal.begin",
                        .done_point = "put_signal.done",
                        .peer = dst_rank,
                        .channel = index,
                        .timeout_ms = timeout_ms,
                        .compose = give,
                        .plan = &plan};
    symmem_status status = check_window(handle, &op, stream);
    if (status == SYMMEM_OK)
        status = sm_handle_rank_check(handle, op.name, dst_rank);
    if (status == SYMMEM_OK)
        status = check_count(op.name, count);
    return status == SYMMEM_OK ? submit_window(handle, &op, stream) : status;
}

symmem_status symmem_window_wait_signal(symmem_handle *handle, int32_t wait_count,
                                        const symmem_window_wait *waits, int32_t index,
                                        uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    const window_plan plan = {.waits = waits, .wait_count = wait_count};
    sm_channel_op op = {.name = "window_wait_signal",
                        .begin_point = "wait_signal.begin",
                        .done_point = "wait_signal.done",
                        .peer = -1,
                        .channel = index,
                        .timeout_ms = timeout_ms,
                        .compose = take,
                        .plan = &plan};
    symmem_status status = check_window(handle, &op, stream);
    if (status == SYMMEM_OK)
        status = check_waits(handle, op.name, &plan);
    return status == SYMMEM_OK ? submit_window(handle, &op, stream) : status;
}
