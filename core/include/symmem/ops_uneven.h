/* SPDX-License-Identifier: BSD-3-Clause */
/* Collective operations in which each rank has its own number of elements. See ops.h for what holds
 * for all. [SM-GATHERV, SM-SCATTERV]
 *
 * counts is an array of world_size numbers of elements in host memory, the same on all ranks. Where
 * a rank's part begins follows from the counts of the ranks before it. Counts may be 0. The array
 * is read during the call only. Shapes play no part.
 *
 * Errors: those of ops.h; INVALID_ARGUMENT also for counts that are NULL, that do not add up to the
 * elements of the whole tensor, or that do not fit this rank's part; OVERFLOW where their sum
 * overflows. With check_collectives MISMATCH on every rank, with nothing written, where the ranks'
 * counts differ. If a step fails, the handle is poisoned on every rank.
 */
#ifndef SYMMEM_OPS_UNEVEN_H
#define SYMMEM_OPS_UNEVEN_H

#include <symmem/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Collective. out gets the first counts[0] elements of rank 0's input, then the first counts[1]
 * elements of rank 1's and so on. It has as many elements as the counts add up to. The input has at
 * least counts[rank]. Needs no SYMMEM_CAP_COLLECTIVES. Either
 *   pull  out is not in the handle's block. The input is symmetric: each rank reads all inputs. It
 *         begins at the same place on every rank, also where the count is 0, and every block has
 *         room there for the largest count. out overlaps nothing of that room on any rank.
 *   push  out is symmetric: each rank writes its elements to every rank's out. They are this rank's
 *         part of out already, or lie anywhere and overlap no rank's out.
 * All ranks do the same. NOT_SYMMETRIC if neither lies in the block. Contract:
 * kernels/all_gather_v.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_all_gather_v(
    symmem_handle *handle, const DLTensor *input, const size_t *counts, const DLTensor *out,
    int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

/*
 * Collective. out gets this rank's part of the reduction of all inputs, counts[rank] elements,
 * behind the parts of the ranks before: the bits of an all-reduce. The input is symmetric and has
 * as many elements as the counts add up to, out exactly counts[rank]; out overlaps no rank's input.
 * The inputs stay as they are. Needs SYMMEM_CAP_TILES, or is UNSUPPORTED. Contract:
 * kernels/reduce_scatter_v.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_reduce_scatter_v(
    symmem_handle *handle, const DLTensor *input, symmem_reduce_op op, const size_t *counts,
    const DLTensor *out, int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
