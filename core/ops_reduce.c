/* SPDX-License-Identifier: BSD-3-Clause */
/* The public reductions: checks of their arguments. */
#include "collective.h"

symmem_status symmem_one_shot_all_reduce_out(symmem_handle *handle, const DLTensor *input,
                                             symmem_reduce_op op, const DLTensor *out,
                                             int32_t channel, uint32_t timeout_ms,
                                             symmem_stream *stream) {
    static const char name[] = "one_shot_all_reduce_out";
    sm_collective_op call;
    sm_tensor in, result;
    symmem_status status = sm_collective_begin(&call, name, handle, SYMMEM_CALL_ONE_SHOT_ALL_REDUCE,
                                               channel, timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(input, name, "input", &in);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(out, name, "out", &result);
    if (status == SYMMEM_OK)
        status = sm_tensor_alike(&in, &result, name);
    if (status == SYMMEM_OK)
        status = sm_collective_reduction(&call, in.dtype, op);
    if (status == SYMMEM_OK)
        status = sm_collective_symmetric(&call, &in, &call.call.offset);
    if (status == SYMMEM_OK)
        status = sm_collective_apart(&call, &result, call.call.offset, in.bytes);
    if (status != SYMMEM_OK)
        return status;
    call.call.count = in.count;
    call.call.out = result.data;
    return sm_collective_run(&call, NULL, &result);
}
