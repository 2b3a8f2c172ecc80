/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of low_contention_all_gather. There is nothing to implement here: the core composes it
 * of a backend's barrier and copy entries (core/ops/low_contention.c), so that copy engines do
 * the work on a device that has them, and a backend without collectives can do it.
 *
 * Small       A symmetric input of up to 64 KiB is gathered by the backend's all_gather, if it has
 *             one and calls are not compared: that takes less than starting copies.
 * What        Chunk r of `out` is rank r's input, byte for byte.
 *             symmetric  the input lies in the handle's block
 *             staged     it is anywhere and is first copied to the handle's place in the block,
 *                        which is the workspace
 * Steps       staged: copy the input to the own workspace; barrier; for step 0 to n-1: copy from
 *             rank p = (rank - step) mod n to chunk p, so that no two ranks read from one at the
 *             same time; barrier. Staged, with checking: a barrier comes first, so that nothing is
 *             written where the ranks' calls differ.
 * Before      first barrier: every rank's input is there. That no peer reads the workspace any more
 *             when it is overwritten is owed to the last barrier of whatever used it.
 * After       last barrier: inputs and workspace may be written again.
 * Limits      without a stream the time limit is that of all barriers together; on a stream it is
 *             that of each, from the moment it begins.
 * Aliasing    out overlaps no rank's input or workspace, nor the input that is staged.
 * Failure     out and the workspace are undefined, but for MISMATCH. On a stream the backend leaves
 *             out what follows a step that failed, see symmem_exec.
 * Source      PyTorch symm_mem::_low_contention_all_gather, which always uses channel 0.
 */
#ifndef SYMMEM_KERNELS_LOW_CONTENTION_ALL_GATHER_H
#define SYMMEM_KERNELS_LOW_CONTENTION_ALL_GATHER_H
#endif
