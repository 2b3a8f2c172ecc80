/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective operations on symmetric memory. [SM-COLL]
 *
 * All calls are collective over the handle's group: every rank makes the same calls on a channel in
 * the same order, with the same operation, count, dtype, root and offset. A context made with
 * check_collectives answers MISMATCH on every rank, before anything is written, where they differ;
 * otherwise the result is undefined, though never a wait without end.
 *
 * Tensors are DLPack's, borrowed during the call: contiguous, aligned to their element size, of a
 * symmem_dtype, of 64 dimensions at most. `device` is one of the backend's, or of the host's memory
 * as devices reach it (kDLCUDAHost and so on), or {0, 0}, which says nothing. An argument called
 * symmetric has to lie in the handle's block, at the same offset on every rank; others may be
 * anywhere the rank's device can reach. They must stay valid until the operation has run, in a
 * graph as long as that lives, and after a call that failed until its stream has been synchronized:
 * a part may be under way. A tensor without elements is allowed and still synchronizes.
 *
 * Results: elements are combined in rank order, 16-bit floats in float32 with one rounding at the
 * end, so that all ranks get the same bits; kernels/reference/reduce.h has the rules for each
 * dtype.
 *
 * The headers under kernels/ that these comments name are installed as symmem/kernels/.
 *
 * channel, timeout_ms and stream are as for symmem_barrier: one channel's operations run in the
 * order of the calls; NULL as stream runs to completion; capturable and replayable. An operation
 * orders what it carries (SM-COLL-01): it takes each rank's input as that rank left it, and when it
 * is over on one rank, that rank has its outputs and may write its inputs and outputs again. What
 * ranks write into each other's memory beside it is ordered by barriers and signals.
 *
 * Errors of all: INVALID_ARGUMENT (tensor NULL, malformed, not contiguous, of another dtype or
 * shape than needed; overlapping arguments; this context's memory of another device than the
 * handle's, SM-STREAM-25), NOT_SYMMETRIC (a symmetric argument outside the handle's block),
 * OUT_OF_RANGE (channel, root, device, end beyond the block), MISALIGNED, OVERFLOW,
 * UNSUPPORTED (pair of dtype and op; backend without SYMMEM_CAP_COLLECTIVES), UNREACHABLE (a rank
 * without direct access, where the backend has no way of its own there, see SM-COLL-16), STALE
 * (that way ended with a failure: the group's next rendezvous opens it again), and those of
 * symmem_barrier. Nothing is written then.
 */
#ifndef SYMMEM_OPS_H
#define SYMMEM_OPS_H

#include <dlpack/dlpack.h>
#include <symmem/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Local. Whether the collectives can reduce elements of `dtype` with `op`. Any thread. */
SYMMEM_API bool symmem_reduce_supported(symmem_dtype dtype, symmem_reduce_op op);

#ifdef __cplusplus
}
#endif

#include <symmem/ops_matmul.h>
#include <symmem/ops_move.h>
#include <symmem/ops_move_v.h>
#include <symmem/ops_multimem.h>
#include <symmem/ops_reduce.h>
#include <symmem/ops_tile.h>
#include <symmem/ops_uneven.h>

#endif
