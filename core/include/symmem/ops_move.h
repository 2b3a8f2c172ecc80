/* SPDX-License-Identifier: BSD-3-Clause */
/* Collective operations that move elements of any dtype. See ops.h for what holds for all.
 * [SM-MOVE] */
#ifndef SYMMEM_OPS_MOVE_H
#define SYMMEM_OPS_MOVE_H

#include <symmem/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Rank r's input becomes chunk r of out on every rank. out has the input's dtype and shape, but its
 * first dimension is world_size times as long; a scalar's out has the shape (world_size). Either
 *   pull  input is symmetric and overlaps no rank's out: each rank reads all inputs, or
 *   push  input is not in the handle's block, or is this rank's chunk of out, which is symmetric:
 *         each rank writes its input to all. out overlaps no rank's input otherwise.
 * All ranks do the same. NOT_SYMMETRIC if neither lies in the block. Contract:
 * kernels/all_gather.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_all_gather_out(symmem_handle *handle,
                                                              const DLTensor *input,
                                                              const DLTensor *out, int32_t channel,
                                                              uint32_t timeout_ms,
                                                              symmem_stream *stream);

/* The symmetric tensor becomes as the root's is. OUT_OF_RANGE for a root outside the group.
 * Contract: kernels/broadcast.h. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_broadcast(symmem_handle *handle,
                                                         const DLTensor *tensor, int32_t root,
                                                         int32_t channel, uint32_t timeout_ms,
                                                         symmem_stream *stream);

/*
 * Each rank has a part for each. The first in_splits[0] elements of the input go to rank 0, the
 * next in_splits[1] to rank 1 and so on; out holds what came from rank 0, out_splits[0] elements,
 * then what came from rank 1 and so on. The input lies in the handle's block, on each rank where it
 * likes; out overlaps neither this rank's input nor a peer's block. Shapes play no part. The splits
 * are arrays of world_size numbers of elements in host memory, read during the call only; NULL:
 * equal parts. They may be 0, and differ from rank to rank, but in_splits[p] of rank r has to be
 * out_splits[r] of rank p: with check_collectives MISMATCH on every rank where it is not, with
 * nothing written. INVALID_ARGUMENT if splits do not add up to what the tensor holds, or world_size
 * does not divide that. Contract: kernels/all_to_all.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_all_to_all_out(
    symmem_handle *handle, const DLTensor *input, const size_t *in_splits, const DLTensor *out,
    const size_t *out_splits, int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

/*
 * An all-gather of barriers and copies only, so that a device with copy engines leaves its
 * processors to other work; a symmetric input of up to 64 KiB may be gathered as by
 * symmem_all_gather_out. Needs no SYMMEM_CAP_COLLECTIVES. input and out as above, but
 * the input is either symmetric, or anywhere: then it goes through the handle's block, at the
 * handle's place, which has to have room for it (OUT_OF_RANGE) and is overwritten as soon as the
 * first rank calls. out overlaps no rank's input, nor what is used of its block. All ranks do the
 * same. If a step fails, the handle is poisoned on every rank. Contract:
 * kernels/low_contention_all_gather.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_low_contention_all_gather_out(
    symmem_handle *handle, const DLTensor *input, const DLTensor *out, int32_t channel,
    uint32_t timeout_ms, symmem_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
