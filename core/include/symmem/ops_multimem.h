/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective operations through the handle's multicast pointer; UNSUPPORTED where it has none, and
 * for a pair of dtype and op that the hardware cannot reduce. See ops.h for what holds for all.
 * Results of sums and averages of floats may differ from the other reductions' by what
 * kernels/multimem_error.h allows. [SM-MMEM]
 */
#ifndef SYMMEM_OPS_MULTIMEM_H
#define SYMMEM_OPS_MULTIMEM_H

#include <symmem/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The symmetric tensor becomes the reduction of all ranks', in place; the same bits on every rank.
 * Contract: kernels/multimem_all_reduce.h. */
SYMMEM_API SYMMEM_CHECKED symmem_status
symmem_multimem_all_reduce(symmem_handle *handle, const DLTensor *tensor, symmem_reduce_op op,
                           int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

/* Every rank loads the reduction of the symmetric inputs into its out, which has the input's shape
 * and dtype and overlaps no rank's input. Contract: kernels/multimem_one_shot_all_reduce.h. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_multimem_one_shot_all_reduce_out(
    symmem_handle *handle, const DLTensor *input, symmem_reduce_op op, const DLTensor *out,
    int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

/* Once more with an out of its own, as symmem_one_shot_all_reduce makes one. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_multimem_one_shot_all_reduce(
    symmem_handle *handle, const DLTensor *input, symmem_reduce_op op, int32_t channel,
    uint32_t timeout_ms, symmem_stream *stream, DLManagedTensor **out_p);

/* The same on rank `root` only; the others' out may be NULL and is not looked at. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_multimem_one_shot_reduce_out(
    symmem_handle *handle, const DLTensor *input, symmem_reduce_op op, int32_t root,
    const DLTensor *out, int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

/* Rank r's input becomes chunk r of the symmetric out on every rank; shapes as for
 * symmem_all_gather_out. The input may be anywhere, also this rank's chunk of out, but overlaps no
 * rank's out otherwise. Contract: kernels/multimem_all_gather.h. */
SYMMEM_API SYMMEM_CHECKED symmem_status
symmem_multimem_all_gather_out(symmem_handle *handle, const DLTensor *input, const DLTensor *out,
                               int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

/* One-sided, needs no SYMMEM_CAP_COLLECTIVES. Copies the contiguous src to byte_offset from the
 * handle's offset in every rank's buffer, this rank's included. OUT_OF_RANGE beyond the block.
 * Contract: kernels/memcpy_to_multicast.h. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_memcpy_to_multicast(symmem_handle *handle,
                                                                   size_t byte_offset,
                                                                   const DLTensor *src,
                                                                   symmem_stream *stream);

/* As symmem_multimem_all_gather_out, made of two barriers with such a copy between them, so that a
 * device with copy engines leaves its processors to other work; needs no SYMMEM_CAP_COLLECTIVES. If
 * a step fails, the handle is poisoned on every rank. Contract: kernels/memcpy_to_multicast.h. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_low_contention_all_gather_ce_multicast_out(
    symmem_handle *handle, const DLTensor *input, const DLTensor *out, int32_t channel,
    uint32_t timeout_ms, symmem_stream *stream);
/* The same with an out of its own: new symmetric memory on the handle's device. The ranks make its
 * rendezvous first, on the handle's group and in the calling thread. Further errors are those of
 * symmem_alloc (CAPTURE while a stream of the context captures, and its own limit) and
 * symmem_rendezvous. The tensor's deleter gives the memory back, once, on any thread. *out_p is
 * written on success only. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_low_contention_all_gather_ce_multicast(
    symmem_handle *handle, const DLTensor *input, int32_t channel, uint32_t timeout_ms,
    symmem_stream *stream, DLManagedTensor **out_p);

#ifdef __cplusplus
}
#endif
#endif
