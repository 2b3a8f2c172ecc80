/* SPDX-License-Identifier: BSD-3-Clause */
/* Data with a signal, counted or not: a copy, then the signal, as one operation of the channel. */
#include "stream/channel.h"
#include "backend/host.h"
#include "backend/query.h"
#include "backend/table.h"
#include "rendezvous/handle.h"
#include "rendezvous/link_poison.h"

/* What op->plan points to. */
typedef struct put_plan {
    sm_remote dst;
    const void *src;
    size_t bytes;
    uint32_t count; /* of counted signals; 0: the channel's signal */
} put_plan;

/* The signal comes behind the copy on its stream. If the copy fails there, that poisons the handle,
 * as a part of a composite operation does, and the signal is refused when it begins. So no rank
 * gets a signal without the bytes. */
static symmem_status copy_part(const sm_channel_op *op, const put_plan *plan,
                               const symmem_exec *exec) {
    symmem_exec part = *exec;
    part.operation = op->name;
    if (exec->stream != NULL)
        part.composite = sm_link_composite(op->link, op->channel);
    return sm_remote_put(op->link, op->name, &plan->dst, plan->src, plan->bytes, &part);
}

/* A signal that ran and failed has poisoned the handle and said so. */
static symmem_status signal_done(const sm_channel_op *op, symmem_status status, const char *entry) {
    if (status == SYMMEM_OK || sm_link_is_poisoned(&op->link->peers))
        return status;
    return sm_backend_failed(op->link->context, status, op->name, entry);
}

static symmem_status put_then_signal(const sm_channel_op *op, const symmem_exec *exec,
                                     bool capturing) {
    const put_plan *plan = op->plan;
    const sm_backend *backend = op->link->context->backend;
    void *instance = op->link->context->instance;
    const symmem_peers *peers = &op->link->peers;
    symmem_exec part = *exec;
    (void)capturing;
    part.operation = op->name;
    if (plan->count == 0 && backend->put_with_signal != NULL && plan->dst.address != NULL &&
        plan->bytes > 0)
        return signal_done(op,
                           backend->put_with_signal(instance, peers, op->peer, op->channel,
                                                    plan->dst.address, plan->src, plan->bytes,
                                                    &part),
                           "put_with_signal");
    symmem_status status = plan->bytes > 0 ? copy_part(op, plan, exec) : SYMMEM_OK;
    if (status != SYMMEM_OK)
        return status;
    if (plan->count != 0)
        return signal_done(
            op, backend->signal_count(instance, peers, op->peer, op->channel, plan->count, &part),
            "signal_count");
    return signal_done(op, backend->put_signal(instance, peers, op->peer, op->channel, &part),
                       "put_signal");
}

/* Checks what concerns the signal, then what concerns the bytes. */
static symmem_status check_put(symmem_handle *handle, const sm_channel_op *op, size_t offset,
                               const symmem_stream *stream, put_plan *plan) {
    symmem_status status = sm_handle_check(handle, op->name);
    if (status == SYMMEM_OK && plan->count != 0)
        status = sm_need_capability(handle->link->context, SYMMEM_CAP_WINDOW, op->name,
                                    "counted signals");
    if (status == SYMMEM_OK)
        status = sm_signal_check_channel(handle->link, op->channel, op->name);
    if (status == SYMMEM_OK)
        status = sm_remote_check(handle, op->name, op->peer, offset, plan->src, plan->bytes, stream,
                                 &plan->dst);
    return status == SYMMEM_OK ? sm_link_refuse_poisoned(handle->link, op->name) : status;
}

static symmem_status run_put(symmem_handle *handle, sm_channel_op *op, const put_plan *plan,
                             const symmem_stream *stream) {
    sm_link *link = handle->link;
    sm_refs refs;
    sm_refs_init(&refs, link);
    symmem_status status = sm_context_point(link->context, op->name, "copy.before");
    if (status == SYMMEM_OK)
        status = sm_refs_cover(&refs, link->context, op->name, plan->src, plan->bytes);
    if (status == SYMMEM_OK) {
        op->link = link;
        op->timeout_ms = sm_context_timeout(link->context, op->timeout_ms);
        op->refs = refs.refs;
        op->ref_count = refs.count;
        op->plan = plan;
        status = sm_channel_submit(op, stream);
    }
    sm_refs_finish(&refs);
    return status;
}

static symmem_status put_call(symmem_handle *handle, sm_channel_op *op, size_t offset,
                              put_plan *plan, const symmem_stream *stream) {
    op->kind = SM_COMPOSED;
    op->begin_point = "put_signal.begin";
    op->done_point = "put_signal.done";
    op->compose = put_then_signal;
    symmem_status status = check_put(handle, op, offset, stream, plan);
    return status == SYMMEM_OK ? run_put(handle, op, plan, stream) : status;
}

symmem_status symmem_put_with_signal(symmem_handle *handle, int32_t dst_rank, size_t dst_offset,
                                     const void *src, size_t bytes, int32_t channel,
                                     uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    put_plan plan = {.src = src, .bytes = bytes};
    sm_channel_op op = {
        .name = "put_with_signal", .peer = dst_rank, .channel = channel, .timeout_ms = timeout_ms};
    return put_call(handle, &op, dst_offset, &plan, stream);
}

symmem_status symmem_window_put_signal(symmem_handle *handle, int32_t dst_rank, size_t dst_offset,
                                       const void *src, size_t bytes, int32_t index,
                                       uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    put_plan plan = {.src = src, .bytes = bytes, .count = 1};
    sm_channel_op op = {
        .name = "window_put_signal", .peer = dst_rank, .channel = index, .timeout_ms = timeout_ms};
    return put_call(handle, &op, dst_offset, &plan, stream);
}
