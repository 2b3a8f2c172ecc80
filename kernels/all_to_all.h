/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of all_to_all (SYMMEM_CALL_ALL_TO_ALL).
 *
 * What        Rank r's `in`, in its buffer, consists of a part for each rank 0, 1, ... of
 *             in_splits[0], in_splits[1], ... elements. Rank p's `out` consists of a part from each
 *             rank, of out_splits[0], out_splits[1], ... elements. Part p of rank r is copied to
 *             part r of rank p, byte for byte.
 * Fields      dtype (its size only), in (NULL without elements), out, in_splits, out_splits. count
 *             and offset are 0, because inputs may differ in length and position.
 * Checked     by the core, before anything is written: channel, same dtype, that the splits add up
 *             to the tensors' sizes, and that the input lies in the handle's block. By the
 *             operation, while checking: in_splits[p] of rank r equals out_splits[r] of rank p for
 *             all pairs. Otherwise every rank returns MISMATCH, nothing is written, and the channel
 *             stays usable. Without checking, out is undefined then and the call may time out.
 * Before      Barrier: every rank has its input ready and has published its splits. While checking,
 *             a second barrier follows, by which ranks agree on the splits.
 * After       Barrier: a rank that returns may overwrite its input.
 * Aliasing    out overlaps no rank's input.
 * Failure     out is undefined, except after MISMATCH.
 * Source      torch.distributed.all_to_all_single, which counts rows. all_to_all_v.h has the splits
 *             in memory.
 */
#ifndef SYMMEM_KERNELS_ALL_TO_ALL_H
#define SYMMEM_KERNELS_ALL_TO_ALL_H

#include <symmem/backend.h>

#endif
