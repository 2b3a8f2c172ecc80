/* SPDX-License-Identifier: BSD-3-Clause */
/* The public low-contention all-gather, composed of barriers and copies. */
#include "ops/collective.h"
#include "backend/registry.h"
#include "ops/compose.h"

/* Up to here an all-gather is over, on an H200, before two copy engines have started. */
#define SMALL_BYTES ((size_t)64 << 10)

/* Where the inputs are in each rank's buffer, and where they go. */
typedef struct gather_plan {
    size_t offset;
    const void *staged; /* NULL: they are there already */
    char *out;
    size_t bytes;
} gather_plan;

static symmem_status stage(sm_parts *parts, const gather_plan *plan) {
    const sm_link *link = parts->op->link;
    symmem_status status = SYMMEM_OK;
    if (link->context->check_collectives)
        status = sm_parts_barrier(parts);
    char *own = (char *)link->mapping->buffers[link->group->rank] + plan->offset;
    return status == SYMMEM_OK ? sm_parts_copy(parts, own, plan->staged, plan->bytes) : status;
}

static symmem_status all_gather_in_steps(const sm_channel_op *op, const symmem_exec *exec,
                                         bool capturing) {
    const gather_plan *plan = op->plan;
    int32_t world_size = op->link->group->world_size;
    sm_parts parts;
    sm_parts_begin(&parts, op, exec, capturing);
    symmem_status status = plan->staged != NULL ? stage(&parts, plan) : SYMMEM_OK;
    if (status == SYMMEM_OK)
        status = sm_parts_barrier(&parts);
    /* Without elements out may be NULL. */
    for (int32_t step = 0; step < world_size && plan->bytes > 0 && status == SYMMEM_OK; step++) {
        int32_t rank = (op->link->group->rank - step + world_size) % world_size;
        status =
            sm_parts_copy(&parts, plan->out + (size_t)rank * plan->bytes,
                          (char *)op->link->mapping->buffers[rank] + plan->offset, plan->bytes);
    }
    return status == SYMMEM_OK ? sm_parts_barrier(&parts) : status;
}

/* Where calls are compared this one is of a kind of its own, which a backend does not know. */
static bool is_small(const sm_collective_op *call, const sm_tensor *in, bool staged) {
    symmem_context *context = call->link->context;
    return in->bytes <= SMALL_BYTES && !staged && !context->check_collectives &&
           sm_backend_has(context, SYMMEM_CAP_COLLECTIVES);
}

/* The place in the block of an input that is staged. */
static symmem_status find_workspace(const sm_collective_op *call, const sm_tensor *in,
                                    size_t *offset_p) {
    symmem_status status = sm_handle_bounds(call->handle, call->name, 0, in->bytes);
    *offset_p = call->handle->offset;
    return status;
}

symmem_status symmem_low_contention_all_gather_out(symmem_handle *handle, const DLTensor *input,
                                                   const DLTensor *out, int32_t channel,
                                                   uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char name[] = "low_contention_all_gather_out";
    sm_collective_op call;
    sm_tensor in, result;
    symmem_status status = sm_collective_begin(
        &call, name, handle, SYMMEM_CALL_LOW_CONTENTION_ALL_GATHER, channel, timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, input, name, "input", &in);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, out, name, "out", &result);
    if (status == SYMMEM_OK)
        status = sm_tensor_gathers(&in, &result, call.link->group->world_size, name);
    if (status != SYMMEM_OK)
        return status;
    bool staged = in.count > 0 && !sm_collective_inside(&call, &in);
    status = staged ? find_workspace(&call, &in, &call.call.offset)
                    : sm_collective_symmetric(&call, &in, &call.call.offset);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(&call, &result, call.call.offset, in.bytes);
    if (status == SYMMEM_OK && staged)
        status = sm_tensor_disjoint(&result, &in, name);
    if (status != SYMMEM_OK)
        return status;
    const gather_plan plan = {.offset = call.call.offset,
                              .staged = staged ? in.data : NULL,
                              .out = result.data,
                              .bytes = in.bytes};
    call.call.dtype = in.dtype;
    call.call.count = in.count;
    if (is_small(&call, &in, staged)) {
        call.call.kind = SYMMEM_CALL_ALL_GATHER;
        call.call.out = result.data;
        return sm_collective_run(&call, &in, &result);
    }
    call.detail = staged;
    call.compose = all_gather_in_steps;
    call.plan = &plan;
    return sm_collective_run(&call, &in, &result);
}
