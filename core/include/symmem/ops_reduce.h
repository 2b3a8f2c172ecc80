/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions. See ops.h for what holds for all of them. [SM-REDUCE] */
#ifndef SYMMEM_OPS_REDUCE_H
#define SYMMEM_OPS_REDUCE_H

#include <symmem/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Every rank reads all inputs and reduces them itself: least latency for small sizes. input is
 * symmetric; out has its shape and dtype and must overlap no rank's input. Contract:
 * kernels/one_shot_all_reduce.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_one_shot_all_reduce_out(
    symmem_handle *handle, const DLTensor *input, symmem_reduce_op op, const DLTensor *out,
    int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
