/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of all_gather (SYMMEM_CALL_ALL_GATHER).
 *
 * What        Chunk r of the result, `count` elements, is rank r's input, byte for byte.
 *             pull  in is NULL: the input is symmetric at `offset`, each rank reads all of them
 *                   into `out`.
 *             push  out is NULL: the result is symmetric at `offset`, each rank writes its `in`
 *                   into chunk `rank` of all of them.
 * Fields      dtype (its size only), count, offset, and in or out. No elements: pull.
 * Checked     by the core, before anything is written: channel, same dtype, out as long as all
 *             inputs together, alignment, bounds, that all ranks pull or all push.
 * Before      each rank's input is there as that rank left it (SM-COLL-01). Where ranks read or
 * write each other's buffers they meet for that, in a push so that nobody reads the result any
 *             more.
 * After       in a pull a rank that returns may write its input again, in a push all chunks are
 *             there. Where ranks read or write each other's buffers they meet for that; where they
 *             hand their elements to each other in memory of the implementation's own there need be
 *             no meeting.
 * Aliasing    pull: out overlaps no rank's input. push: `in` is the own chunk `rank` of the result,
 *             or overlaps no rank's result.
 * Failure     out, or in a push every rank's result, is undefined.
 * Source      PyTorch has no such operation of its own; its symm_mem low-contention all-gather and
 *             NCCL's ncclAllGather (in place too) say the same in the result.
 */
#ifndef SYMMEM_KERNELS_ALL_GATHER_H
#define SYMMEM_KERNELS_ALL_GATHER_H

#include "cpu/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

symmem_status symmem_cpu_all_gather(const symmem_collective *call, symmem_cpu_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
