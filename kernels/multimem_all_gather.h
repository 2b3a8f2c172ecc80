/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of multimem_all_gather (SYMMEM_CALL_MULTIMEM_ALL_GATHER).
 *
 * What        Chunk r, `count` elements, of the symmetric result at `offset` is rank r's `in`, byte
 *             for byte, on every rank. Each rank stores its own chunk at the multicast address.
 * Fields      dtype (its size only), count, offset, in, multicast (of chunk 0).
 * Checked     by the core, before anything is written: channel, a multicast address, same dtype,
 *             out as long as all inputs together and in the handle's block, both aligned.
 * Before      Barrier: no rank reads the result any more.
 * After       Barrier: all chunks have arrived.
 * Aliasing    `in` is this rank's own chunk of the result, or overlaps no rank's result.
 * Failure     Every rank's result is undefined.
 * Source      PyTorch symm_mem::multimem_all_gather_out, which checks neither the input's alignment
 *             nor its dtype.
 */
#ifndef SYMMEM_KERNELS_MULTIMEM_ALL_GATHER_H
#define SYMMEM_KERNELS_MULTIMEM_ALL_GATHER_H

#include <symmem/backend.h>

#endif
