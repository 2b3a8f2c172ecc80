/* SPDX-License-Identifier: BSD-3-Clause */
/* The public all-gather and broadcast: checks of their arguments. */
#include "ops/collective.h"
#include "rendezvous/handle.h"

/* What distinguishes the forms of an all-gather in a call id. */
enum { PULL = 1, PUSH = 2 };

static symmem_status prepare_pull(sm_collective_op *call, const sm_tensor *in,
                                  const sm_tensor *out) {
    call->detail = PULL;
    call->call.out = out->data;
    symmem_status status = sm_collective_symmetric(call, in, &call->call.offset);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(call, out, call->call.offset, in->bytes);
    return status;
}

static symmem_status prepare_push(sm_collective_op *call, const sm_tensor *in,
                                  const sm_tensor *out) {
    call->detail = PUSH;
    call->call.in = in->data;
    symmem_status status = sm_collective_symmetric(call, out, &call->call.offset);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint_or_chunk(call, in, call->call.offset, out->bytes);
    return status;
}

/* True if the input is this rank's chunk of out, in the block. Only such an input in the block is
 * pushed. */
static bool is_own_chunk(const sm_collective_op *call, const sm_tensor *in, const sm_tensor *out) {
    return in->data == out->data + (size_t)call->link->group->rank * in->bytes &&
           sm_collective_inside(call, out);
}

symmem_status symmem_all_gather_out(symmem_handle *handle, const DLTensor *input,
                                    const DLTensor *out, int32_t channel, uint32_t timeout_ms,
                                    symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char name[] = "all_gather_out";
    sm_collective_op call;
    sm_tensor in, result;
    symmem_status status = sm_collective_begin(&call, name, handle, SYMMEM_CALL_ALL_GATHER, channel,
                                               timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, input, name, "input", &in);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, out, name, "out", &result);
    if (status == SYMMEM_OK)
        status = sm_tensor_gathers(&in, &result, call.link->group->world_size, name);
    if (status != SYMMEM_OK)
        return status;
    call.call.dtype = in.dtype;
    call.call.count = in.count;
    bool push = in.count > 0 &&
                (is_own_chunk(&call, &in, &result) ||
                 (!sm_collective_inside(&call, &in) && sm_collective_inside(&call, &result)));
    status = push ? prepare_push(&call, &in, &result) : prepare_pull(&call, &in, &result);
    return status == SYMMEM_OK ? sm_collective_run(&call, &in, &result) : status;
}

symmem_status symmem_broadcast(symmem_handle *handle, const DLTensor *tensor, int32_t root,
                               int32_t channel, uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char name[] = "broadcast";
    sm_collective_op call;
    sm_tensor data;
    symmem_status status = sm_collective_begin(&call, name, handle, SYMMEM_CALL_BROADCAST, channel,
                                               timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, tensor, name, "tensor", &data);
    if (status == SYMMEM_OK)
        status = sm_handle_rank_check(handle, name, root);
    if (status == SYMMEM_OK)
        status = sm_collective_symmetric(&call, &data, &call.call.offset);
    if (status != SYMMEM_OK)
        return status;
    call.call.dtype = data.dtype;
    call.call.count = data.count;
    call.call.root = root;
    return sm_collective_run(&call, NULL, NULL);
}
