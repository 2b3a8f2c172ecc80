/* SPDX-License-Identifier: BSD-3-Clause */
/* The public reductions through multicast: checks of their arguments. */
#include "ops/multimem.h"
#include "ops/multicast.h"
#include "rendezvous/handle.h"

symmem_status sm_multimem_begin(sm_collective_op *op, const char *name, symmem_handle *handle,
                                symmem_call_kind kind, int32_t channel, uint32_t timeout_ms,
                                const symmem_stream *stream) {
    symmem_status status = sm_collective_begin(op, name, handle, kind, channel, timeout_ms, stream);
    if (status != SYMMEM_OK || op->link->multicast_address != NULL)
        return status;
    return sm_link_no_multicast(op->link, name);
}

symmem_status sm_multimem_symmetric(sm_collective_op *op, const sm_tensor *tensor) {
    symmem_status status = sm_collective_symmetric(op, tensor, &op->call.offset);
    op->call.multicast = (char *)op->link->multicast_address + op->call.offset;
    op->call.dtype = tensor->dtype;
    return status;
}

symmem_status symmem_multimem_all_reduce(symmem_handle *handle, const DLTensor *tensor,
                                         symmem_reduce_op op, int32_t channel, uint32_t timeout_ms,
                                         symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char name[] = "multimem_all_reduce";
    sm_collective_op call;
    sm_tensor data;
    symmem_status status = sm_multimem_begin(&call, name, handle, SYMMEM_CALL_MULTIMEM_ALL_REDUCE,
                                             channel, timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, tensor, name, "tensor", &data);
    if (status == SYMMEM_OK)
        status = sm_collective_reduction(&call, data.dtype, op);
    if (status == SYMMEM_OK)
        status = sm_multimem_symmetric(&call, &data);
    if (status != SYMMEM_OK)
        return status;
    call.call.count = data.count;
    return sm_collective_run(&call, NULL, NULL);
}

/* out of the ranks that have one. */
static symmem_status read_out(const sm_collective_op *call, const DLTensor *out,
                              const sm_tensor *in, sm_tensor *result_p) {
    symmem_status status = sm_tensor_read(call->link->context, out, call->name, "out", result_p);
    if (status == SYMMEM_OK)
        status = sm_tensor_alike(in, result_p, call->name);
    return status == SYMMEM_OK
               ? sm_collective_disjoint(call, result_p, call->call.offset, in->bytes)
               : status;
}

symmem_status sm_multimem_one_shot(sm_collective_op *call, const DLTensor *input,
                                   symmem_reduce_op op, const DLTensor *out, bool writes) {
    sm_tensor in, result;
    symmem_status status = sm_tensor_read(call->link->context, input, call->name, "input", &in);
    if (status == SYMMEM_OK)
        status = sm_collective_reduction(call, in.dtype, op);
    if (status == SYMMEM_OK)
        status = sm_multimem_symmetric(call, &in);
    if (status == SYMMEM_OK && writes)
        status = read_out(call, out, &in, &result);
    if (status != SYMMEM_OK)
        return status;
    call->call.count = in.count;
    call->call.out = writes ? result.data : NULL;
    return sm_collective_run(call, NULL, writes ? &result : NULL);
}

symmem_status symmem_multimem_one_shot_all_reduce_out(symmem_handle *handle, const DLTensor *input,
                                                      symmem_reduce_op op, const DLTensor *out,
                                                      int32_t channel, uint32_t timeout_ms,
                                                      symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_collective_op call;
    symmem_status status =
        sm_multimem_begin(&call, "multimem_one_shot_all_reduce_out", handle,
                          SYMMEM_CALL_MULTIMEM_ONE_SHOT_ALL_REDUCE, channel, timeout_ms, stream);
    return status == SYMMEM_OK ? sm_multimem_one_shot(&call, input, op, out, true) : status;
}

symmem_status symmem_multimem_one_shot_reduce_out(symmem_handle *handle, const DLTensor *input,
                                                  symmem_reduce_op op, int32_t root,
                                                  const DLTensor *out, int32_t channel,
                                                  uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char name[] = "multimem_one_shot_reduce_out";
    sm_collective_op call;
    symmem_status status = sm_multimem_begin(
        &call, name, handle, SYMMEM_CALL_MULTIMEM_ONE_SHOT_REDUCE, channel, timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = sm_handle_rank_check(handle, name, root);
    if (status != SYMMEM_OK)
        return status;
    call.call.root = root;
    return sm_multimem_one_shot(&call, input, op, out, call.link->group->rank == root);
}
