/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-to-alls whose splits lie in memory. A kernel may compute the splits, and each launch of a
 * graph takes those of that moment. See ops.h for what holds for all. [SM-SPLIT]
 *
 * These need SYMMEM_CAP_SPLITS beside SYMMEM_CAP_COLLECTIVES. A row is an element of the first
 * dimension: input and out have rows of the same dtype and number of elements, and any number of
 * rows. Splits and offsets count rows. They are int64, contiguous, and anywhere that the rank's
 * device can reach, as are out and out_splits_offsets. The input lies in the handle's block, on
 * each rank where it likes. out and out_splits_offsets overlap no other argument of this rank and
 * no block of a peer's.
 *
 * out_splits_offsets has the shape (2, number of splits). It gets how many rows came in each part,
 * and at which row of out each part begins. Rows of out that no part covers stay as they are.
 *
 * Splits are checked when the operation runs, before anything is written. If those of any rank are
 * wrong, the operation fails on every rank, by the call without a stream and by the stream's next
 * synchronization with one. The record names the first rank that is wrong (failed_rank), its
 * argument (stage), the number allowed (expected) and the number found (actual). The handle is not
 * poisoned, and the channel is usable at once.
 *   INVALID_ARGUMENT  stage in_splits: a split is negative. stage in_offsets: an offset is
 *                     negative, or a part begins before the end of an earlier one.
 *   OUT_OF_RANGE      stage in_splits, in_offsets: a part ends beyond the input. stage out: the
 *                     rows that came to the rank do not fit in its out.
 *
 * Errors of the call: those of ops.h; INVALID_ARGUMENT also for splits that are not int64, of
 * another shape, or of a number that world_size does not divide; for a scalar input or out; for
 * rows that differ. With check_collectives MISMATCH where ranks have another operation, number of
 * splits, alignment, dtype or size of a row. Contract: kernels/all_to_all_v.h.
 */
#ifndef SYMMEM_OPS_MOVE_V_H
#define SYMMEM_OPS_MOVE_V_H

#include <symmem/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first in_splits[0] rows of the input go to rank 0, the next in_splits[1] to rank 1 and so on.
 * out has what came from rank 0, then what came from rank 1 and so on. in_splits has the shape
 * (world_size). PyTorch: all_to_all_vdev. */
SYMMEM_API SYMMEM_CHECKED symmem_status
symmem_all_to_all_v(symmem_handle *handle, const DLTensor *input, const DLTensor *in_splits,
                    const DLTensor *out, const DLTensor *out_splits_offsets, int32_t channel,
                    uint32_t timeout_ms, symmem_stream *stream);

/*
 * Each rank has some experts, the same number on all ranks. The input has the rows for rank 0's
 * first expert, for its second one and so on, then those for rank 1's experts. out has the rows for
 * this rank's first expert, from rank 0, from rank 1 and so on, then those for its second expert.
 * The rows of an expert begin at a multiple of major_align, which is at least 1. An expert without
 * rows takes major_align rows. in_splits has the shape (world_size * experts). PyTorch:
 * all_to_all_vdev_2d.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status
symmem_all_to_all_v_2d(symmem_handle *handle, const DLTensor *input, const DLTensor *in_splits,
                       int64_t major_align, const DLTensor *out, const DLTensor *out_splits_offsets,
                       int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

/*
 * The way back. The input has its parts in the order that symmem_all_to_all_v_2d gives to out, and
 * out gets them in the order of its input, one behind the other. in_splits_offsets has the shape
 * (2, world_size * experts): how many rows each part has, and at which row it begins. Parts come in
 * order, with gaps between them that are not moved. The offset of a part without rows does not
 * matter. PyTorch: all_to_all_vdev_2d_offset.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_all_to_all_v_2d_offset(
    symmem_handle *handle, const DLTensor *input, const DLTensor *in_splits_offsets,
    const DLTensor *out, const DLTensor *out_splits_offsets, int32_t channel, uint32_t timeout_ms,
    symmem_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
