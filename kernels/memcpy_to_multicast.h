/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contracts of memcpy_to_multicast and low_contention_all_gather_ce_multicast. The core composes
 * them of a backend's barrier and multimem_store entries (the second in
 * core/ops/multimem_gather.c), so a backend implements nothing. A device should implement
 * multimem_store by a copy engine.
 *
 * memcpy_to_multicast
 *   What      `src`, contiguous, is copied to `byte_offset` from the handle's pointer in every
 *             rank's buffer, including this rank's. It synchronizes nothing.
 *   Source    PyTorch symm_mem::memcpy_to_multicast_, whose offset counts from the multicast base.
 *
 * low_contention_all_gather_ce_multicast
 *   What      Chunk r of the symmetric `out` is rank r's input, byte for byte.
 *   Steps     Barrier. Store the input at chunk `rank` of the multicast address. Barrier.
 *   Before    No rank reads the result any more.
 *   After     All chunks have arrived.
 *   Limits    Without a stream one time limit covers both barriers. On a stream each barrier has
 *             the limit for itself, counted from its start.
 *   Aliasing  The input is this rank's own chunk of out, or overlaps no rank's out.
 *   Failure   out is undefined, except after MISMATCH. On a stream the backend skips the steps
 *             after a failed one, see symmem_exec.
 *   Source    PyTorch symm_mem::_low_contention_all_gather_ce_multicast and its _out form, which
 *             always use channel 3.
 */
#ifndef SYMMEM_KERNELS_MEMCPY_TO_MULTICAST_H
#define SYMMEM_KERNELS_MEMCPY_TO_MULTICAST_H
#endif
