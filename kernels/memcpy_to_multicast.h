/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contracts of memcpy_to_multicast and low_contention_all_gather_ce_multicast. There is nothing to
 * implement here: the core makes them of a backend's barrier and multimem_store entries, the second
 * in core/ops/multimem_gather.c. A device's multimem_store is best a copy by a copy engine.
 *
 * memcpy_to_multicast
 *   What      `src`, contiguous, is at `byte_offset` from the handle's pointer in every rank's
 *             buffer, the own one included. Synchronizes nothing.
 *   Source    PyTorch symm_mem::memcpy_to_multicast_, whose offset counts from the multicast base.
 *
 * low_contention_all_gather_ce_multicast
 *   What      Chunk r of the symmetric `out` is rank r's input, byte for byte.
 *   Steps     barrier; store the input at chunk `rank` of the multicast address; barrier.
 *   Before    nobody reads the result any more.
 *   After     all chunks are there.
 *   Limits    without a stream the time limit is that of both barriers together; on a stream it is
 *             that of each, from the moment it begins.
 *   Aliasing  the input is the own chunk of out, or overlaps no rank's out.
 *   Failure   out is undefined, but for MISMATCH. On a stream the backend leaves out what follows a
 *             step that failed, see symmem_exec.
 *   Source    PyTorch symm_mem::_low_contention_all_gather_ce_multicast and its _out form, which
 *             always use channel 3.
 */
#ifndef SYMMEM_KERNELS_MEMCPY_TO_MULTICAST_H
#define SYMMEM_KERNELS_MEMCPY_TO_MULTICAST_H
#endif
