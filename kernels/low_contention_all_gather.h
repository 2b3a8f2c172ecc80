/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of low_contention_all_gather. The core composes it of a backend's barrier and copy
 * entries (core/ops/composed/low_contention.c), so a backend implements nothing. Copy engines do
 * the work on a device that has them, and a backend without collectives supports it.
 *
 * Small       The backend's all_gather handles a symmetric input of up to 64 KiB, if it has one and
 *             calls are not compared. That takes less time than starting copies.
 * What        Chunk r of `out` is rank r's input, byte for byte.
 *             symmetric  The input lies in the handle's block.
 *             staged     The input lies anywhere and is first copied to the handle's offset in the
 *                        block, which is the workspace.
 * Steps       staged: copy the input to this rank's workspace. Barrier. For step 0 to n-1: copy
 *             from rank p = (rank - step) mod n to chunk p, so that no two ranks read from one at
 *             the same time. Barrier. With checking, a staged call begins with another barrier, so
 *             that nothing is written where the ranks' calls differ.
 * Before      First barrier: every rank's input is ready. The last barrier of the workspace's
 *             previous user ensures that no peer still reads the workspace when it is overwritten.
 * After       Last barrier: inputs and workspace may be written again.
 * Limits      Without a stream one time limit covers all barriers. On a stream each barrier has the
 *             limit for itself, counted from its start.
 * Aliasing    out overlaps no rank's input or workspace, nor the input that is staged.
 * Failure     out and the workspace are undefined, except after MISMATCH. On a stream the backend
 *             skips the steps after a failed one, see symmem_exec.
 * Source      PyTorch symm_mem::_low_contention_all_gather, which always uses channel 0.
 */
#ifndef SYMMEM_KERNELS_LOW_CONTENTION_ALL_GATHER_H
#define SYMMEM_KERNELS_LOW_CONTENTION_ALL_GATHER_H
#endif
