/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of all_gather (SYMMEM_CALL_ALL_GATHER).
 *
 * What        Chunk r of the result, `count` elements, is rank r's input, byte for byte.
 *             pull  in is NULL. The input is symmetric at `offset`. Each rank reads all inputs into
 *                   `out`.
 *             push  out is NULL. The result is symmetric at `offset`. Each rank writes its `in`
 *                   into chunk `rank` of every rank's result.
 * Fields      dtype (its size only), count, offset, and in or out. Without elements it is a pull.
 * Checked     by the core, before anything is written: channel, same dtype, the size of out,
 *             alignment, bounds, and that all ranks pull or all push.
 * Before      Each rank's input is ready when that rank calls (SM-COLL-01). If ranks access each
 *             other's buffers, a barrier comes first. In a push that barrier also ensures that no
 *             rank still reads the old result.
 * After       A rank that returns from a pull may overwrite its input. A rank that returns from a
 *             push has all chunks. If ranks access each other's buffers, a barrier ensures this. No
 *             barrier is needed if the elements travel through memory of the implementation.
 * Aliasing    pull: out overlaps no rank's input. push: `in` is chunk `rank` of this rank's own
 *             result, or overlaps no rank's result.
 * Failure     out is undefined. In a push every rank's result is undefined.
 * Source      PyTorch has no such operation. Its symm_mem low-contention all-gather and NCCL's
 *             ncclAllGather (also in place) define the same result.
 */
#ifndef SYMMEM_KERNELS_ALL_GATHER_H
#define SYMMEM_KERNELS_ALL_GATHER_H

#include <symmem/backend.h>

#endif
