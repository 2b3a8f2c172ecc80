/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of all_to_all (SYMMEM_CALL_ALL_TO_ALL).
 *
 * What        Rank r's `in`, in its buffer, consists of parts for ranks 0, 1, ... of in_splits[0],
 *             in_splits[1], ... elements; rank p's `out` of one part from each rank, of
 *             out_splits[0], out_splits[1], ... elements. Part p of rank r goes to part r of rank
 *             p, byte for byte.
 * Fields      dtype (its size only), in (NULL: no elements), out, in_splits, out_splits. count and
 *             offset are 0: ranks may have inputs of different lengths, at different places.
 * Checked     by the core, before anything is written: channel, same dtype, the splits add up to
 *             what the tensors hold, input in the handle's block. By the operation, while checking:
 *             in_splits[p] of rank r is out_splits[r] of rank p, for all pairs; else MISMATCH on
 *             every rank, with nothing written and the channel usable at once. Without checking
 *             out is undefined then, and the call may end by its limit.
 * Before      all ranks meet: every rank's input is there, and where its parts begin.
 *             While checking they meet once more, to agree on the splits.
 * After       all ranks meet: a rank that returns may write its input again.
 * Aliasing    out overlaps no rank's input.
 * Failure     out is undefined, but for MISMATCH.
 * Source      PyTorch symm_mem::all_to_all_vdev (there the splits lie on the device and the
 *             receiver's are an output) and torch.distributed.all_to_all_single (there in rows).
 */
#ifndef SYMMEM_KERNELS_ALL_TO_ALL_H
#define SYMMEM_KERNELS_ALL_TO_ALL_H

#include "cpu/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

symmem_status symmem_cpu_all_to_all(const symmem_collective *call, symmem_cpu_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
