/* SPDX-License-Identifier: BSD-3-Clause */
/* The public operations with a count for each rank, composed of barriers and other entries. */
#include "ops/reduce.h"
#include "ops/composed/uneven.h"
#include "backend/registry.h"
#include "ops/compose.h"

/* --- counts --------------------------------------------------------------------------------- */

static symmem_status check_sum(const sm_collective_op *op, const sm_counts *counts,
                               const sm_tensor *whole) {
    if (counts->sum == whole->count)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, op->name, "",
                  "the counts add up to %zu elements, %s has %zu", counts->sum, whole->what,
                  whole->count);
    return sm_error_sizes(whole->count, counts->sum);
}

symmem_status sm_counts_read(const sm_collective_op *op, const size_t *counts,
                             const sm_tensor *whole, sm_counts *counts_p) {
    const int32_t own = op->link->group->rank, ranks = op->link->group->world_size;
    sm_counts found = {.all = counts, .even = true};
    if (counts == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, op->name, "", "counts is NULL");
    for (int32_t rank = 0; rank < ranks; rank++) {
        found.before = rank == own ? found.sum : found.before;
        found.most = counts[rank] > found.most ? counts[rank] : found.most;
        found.even = found.even && counts[rank] == counts[0];
        found.hash = sm_collective_mix(found.hash, counts[rank]);
        if (!sm_add(found.sum, counts[rank], &found.sum))
            return sm_fail(SYMMEM_OVERFLOW, op->name, "", "the sum of the counts overflows");
    }
    found.own = counts[own];
    *counts_p = found;
    return check_sum(op, &found, whole);
}

bool sm_counts_are_even(const sm_collective_op *op, const sm_counts *counts) {
    symmem_context *context = op->link->context;
    return counts->even && !context->check_collectives &&
           sm_backend_has(context, SYMMEM_CAP_COLLECTIVES);
}

/* --- all_gather_v --------------------------------------------------------------------------- */

/* What distinguishes the forms in a call id. */
enum { PULL = 1, PUSH = 2 };

typedef struct gather_plan {
    const sm_counts *counts;
    size_t element;
    bool push;
    size_t offset; /* of the inputs, or of this rank's part of the result, in each buffer */
    const char *in;
    char *out;
} gather_plan;

/* The ranks' parts from this rank's on, and then from the first one's. */
static symmem_status gather_parts(sm_parts *parts, const gather_plan *plan) {
    const sm_link *link = parts->op->link;
    const int32_t ranks = link->group->world_size;
    const size_t own_bytes = plan->counts->own * plan->element;
    size_t at = plan->counts->before * plan->element;
    symmem_status status = SYMMEM_OK;
    for (int32_t step = 0; step < ranks && status == SYMMEM_OK; step++) {
        const int32_t rank = (link->group->rank + step) % ranks;
        const size_t bytes = plan->counts->all[rank] * plan->element;
        char *theirs = (char *)link->mapping->buffers[rank] + plan->offset;
        at = rank == 0 ? 0 : at;
        if (!plan->push && bytes > 0) /* without elements out may be NULL */
            status = sm_parts_copy(parts, plan->out + at, theirs, bytes);
        else if (plan->push && plan->in != theirs)
            status = sm_parts_copy(parts, theirs, plan->in, own_bytes);
        at += bytes;
    }
    return status;
}

static symmem_status gather_in_steps(const sm_channel_op *op, const symmem_exec *exec,
                                     bool capturing) {
    sm_parts parts;
    sm_parts_begin(&parts, op, exec, capturing);
    symmem_status status = sm_parts_barrier(&parts);
    if (status == SYMMEM_OK)
        status = gather_parts(&parts, op->plan);
    return status == SYMMEM_OK ? sm_parts_barrier(&parts) : status;
}

/* The others' inputs begin where this rank's does, and any of them may be the largest. */
static symmem_status prepare_pull(sm_collective_op *call, const sm_counts *counts,
                                  const sm_tensor *in, const sm_tensor *out) {
    const size_t element = symmem_dtype_size(in->dtype);
    sm_tensor room = *in;
    call->detail = PULL;
    call->call.out = out->data;
    room.count = counts->most;
    room.bytes = counts->most * element; /* out has as many */
    symmem_status status = sm_collective_symmetric(call, &room, &call->call.offset);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(call, out, call->call.offset, room.bytes);
    return status;
}

static symmem_status prepare_push(sm_collective_op *call, const sm_counts *counts,
                                  const sm_tensor *used, const sm_tensor *out) {
    const char *own = out->data + counts->before * symmem_dtype_size(out->dtype);
    call->detail = PUSH;
    call->call.in = used->data;
    symmem_status status = sm_collective_symmetric(call, out, &call->call.offset);
    if (status == SYMMEM_OK && used->count > 0 && used->data != own)
        status = sm_collective_disjoint(call, used, call->call.offset, out->bytes);
    return status;
}

/* The part of the input that counts. */
static symmem_status use_own(const sm_collective_op *call, const sm_counts *counts,
                             const sm_tensor *in, sm_tensor *used_p) {
    *used_p = *in;
    used_p->count = counts->own;
    used_p->bytes = counts->own * symmem_dtype_size(in->dtype);
    if (counts->own <= in->count)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, call->name, "",
                  "this rank's count is %zu, its input has %zu elements", counts->own, in->count);
    return sm_error_sizes(counts->own, in->count);
}

static symmem_status run_gather(sm_collective_op *call, const sm_counts *counts,
                                const sm_tensor *used, const sm_tensor *out) {
    const bool push = call->detail == PUSH;
    const size_t element = symmem_dtype_size(used->dtype);
    const gather_plan plan = {
        .counts = counts,
        .element = element,
        .push = push,
        .offset = call->call.offset + (push ? counts->before * element : 0),
        .in = used->data,
        .out = out->data,
    };
    call->call.dtype = used->dtype;
    if (sm_counts_are_even(call, counts)) {
        call->call.kind = SYMMEM_CALL_ALL_GATHER;
        call->call.count = counts->most;
        return sm_collective_run(call, used, out);
    }
    call->call.count = counts->sum;
    call->detail = sm_collective_mix(call->detail, counts->hash);
    call->compose = gather_in_steps;
    call->plan = &plan;
    return sm_collective_run(call, used, out);
}

symmem_status symmem_all_gather_v(symmem_handle *handle, const DLTensor *input,
                                  const size_t *counts, const DLTensor *out, int32_t channel,
                                  uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char name[] = "all_gather_v";
    sm_collective_op call;
    sm_tensor in, used, result;
    sm_counts read;
    symmem_status status = sm_collective_begin(&call, name, handle, SYMMEM_CALL_ALL_GATHER_V,
                                               channel, timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, input, name, "input", &in);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, out, name, "out", &result);
    if (status == SYMMEM_OK)
        status = sm_tensor_same_dtype(&in, &result, name);
    if (status == SYMMEM_OK)
        status = sm_counts_read(&call, counts, &result, &read);
    if (status == SYMMEM_OK)
        status = use_own(&call, &read, &in, &used);
    if (status != SYMMEM_OK)
        return status;
    status = result.count > 0 && sm_collective_inside(&call, &result)
                 ? prepare_push(&call, &read, &used, &result)
                 : prepare_pull(&call, &read, &in, &result);
    return status == SYMMEM_OK ? run_gather(&call, &read, &used, &result) : status;
}

/* --- reduce_scatter_v ----------------------------------------------------------------------- */

static symmem_status scatter_in_steps(const sm_channel_op *op, const symmem_exec *exec,
                                      bool capturing) {
    sm_parts parts;
    sm_parts_begin(&parts, op, exec, capturing);
    symmem_status status = sm_parts_barrier(&parts);
    if (status == SYMMEM_OK)
        status = sm_parts_reduce(&parts, op->plan);
    return status == SYMMEM_OK ? sm_parts_barrier(&parts) : status;
}

static symmem_status run_scatter(sm_reduction_call *call, const sm_counts *counts) {
    sm_collective_op *op = &call->op;
    const symmem_tile_reduction part = {
        .size = sizeof part,
        .dtype = op->call.dtype,
        .op = op->call.op,
        .offset = op->call.offset + counts->before * symmem_dtype_size(op->call.dtype),
        .rows = 1,
        .row = counts->own,
        .src_row = counts->own,
        .dst_row = counts->own,
        .dst = call->out.data,
    };
    op->call.out = call->out.data;
    if (sm_counts_are_even(op, counts)) {
        op->call.kind = SYMMEM_CALL_REDUCE_SCATTER;
        op->call.count = op->call.out_row = counts->most;
        op->call.in_row = counts->sum;
        return sm_collective_run(op, NULL, &call->out);
    }
    op->detail = counts->hash;
    op->compose = scatter_in_steps;
    op->plan = &part;
    return sm_collective_run(op, NULL, &call->out);
}

symmem_status symmem_reduce_scatter_v(symmem_handle *handle, const DLTensor *input,
                                      symmem_reduce_op op, const size_t *counts,
                                      const DLTensor *out, int32_t channel, uint32_t timeout_ms,
                                      symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_reduction_call call;
    sm_counts read;
    sm_reduction reduction = sm_reduction_of("reduce_scatter_v", SYMMEM_CALL_REDUCE_SCATTER_V,
                                             handle, input, op, channel, timeout_ms, stream);
    sm_reduction_to(&reduction, out);
    symmem_status status = sm_reduction_begin(&reduction, &call);
    if (status == SYMMEM_OK)
        status = sm_counts_read(&call.op, counts, &call.input, &read);
    if (status == SYMMEM_OK && call.out.count != read.own)
        status = sm_reduction_unequal(&call.op, "elements of out", read.own, call.out.count);
    if (status == SYMMEM_OK)
        status = sm_collective_symmetric(&call.op, &call.input, &call.op.call.offset);
    if (status == SYMMEM_OK && call.out.count > 0)
        status = sm_collective_disjoint(&call.op, &call.out, call.op.call.offset, call.input.bytes);
    return status == SYMMEM_OK ? run_scatter(&call, &read) : status;
}
