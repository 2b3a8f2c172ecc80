/* SPDX-License-Identifier: BSD-3-Clause */
/* The public moves through multicast: checks of their arguments, and what is composed of stores. */
#include "ops/multimem.h"
#include "ops/compose.h"
#include "ops/multicast.h"
#include "rendezvous/handle.h"

/* Both all-gathers. */
static symmem_status check_gather(sm_collective_op *call, const DLTensor *input,
                                  const DLTensor *out, sm_tensor *in_p, sm_tensor *result_p) {
    symmem_status status = sm_tensor_read(call->link->context, input, call->name, "input", in_p);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call->link->context, out, call->name, "out", result_p);
    if (status == SYMMEM_OK)
        status = sm_tensor_gathers(in_p, result_p, call->link->group->world_size, call->name);
    if (status == SYMMEM_OK)
        status = sm_multimem_symmetric(call, result_p);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint_or_chunk(call, in_p, call->call.offset, result_p->bytes);
    if (status != SYMMEM_OK)
        return status;
    call->call.count = in_p->count;
    call->call.in = in_p->data;
    return SYMMEM_OK;
}

symmem_status symmem_multimem_all_gather_out(symmem_handle *handle, const DLTensor *input,
                                             const DLTensor *out, int32_t channel,
                                             uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_collective_op call;
    sm_tensor in, result;
    symmem_status status =
        sm_multimem_begin(&call, "multimem_all_gather_out", handle, SYMMEM_CALL_MULTIMEM_ALL_GATHER,
                          channel, timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = check_gather(&call, input, out, &in, &result);
    return status == SYMMEM_OK ? sm_collective_run(&call, &in, NULL) : status;
}

symmem_status symmem_memcpy_to_multicast(symmem_handle *handle, size_t byte_offset,
                                         const DLTensor *src, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char name[] = "memcpy_to_multicast";
    sm_tensor data;
    symmem_status status = sm_handle_check(handle, name);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(handle->link->context, src, name, "src", &data);
    return status == SYMMEM_OK
               ? sm_multimem_store(handle, name, byte_offset, data.data, data.bytes, stream)
               : status;
}

/* --- composed ----------------------------------------------------------------------- */

/* One rank's chunk. */
typedef struct store_plan {
    char *address;
    const void *in;
    size_t bytes;
} store_plan;

static symmem_status gather_in_steps(const sm_channel_op *op, const symmem_exec *exec,
                                     bool capturing) {
    const store_plan *plan = op->plan;
    sm_parts parts;
    sm_parts_begin(&parts, op, exec, capturing);
    symmem_status status = sm_parts_barrier(&parts);
    if (status == SYMMEM_OK)
        status = sm_parts_store(&parts, plan->address, plan->in, plan->bytes);
    return status == SYMMEM_OK ? sm_parts_barrier(&parts) : status;
}

symmem_status
symmem_low_contention_all_gather_ce_multicast_out(symmem_handle *handle, const DLTensor *input,
                                                  const DLTensor *out, int32_t channel,
                                                  uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_collective_op call;
    sm_tensor in, result;
    symmem_status status = sm_multimem_begin(
        &call, "low_contention_all_gather_ce_multicast_out", handle,
        SYMMEM_CALL_LOW_CONTENTION_ALL_GATHER_CE_MULTICAST, channel, timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = check_gather(&call, input, out, &in, &result);
    if (status != SYMMEM_OK)
        return status;
    size_t chunk = (size_t)call.link->group->rank * in.bytes;
    const store_plan plan = {
        .address = (char *)call.call.multicast + chunk, .in = in.data, .bytes = in.bytes};
    call.compose = gather_in_steps;
    call.plan = &plan;
    return sm_collective_run(&call, &in, NULL);
}
