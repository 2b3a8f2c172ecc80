/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of reduce_scatter_v. The core composes it of a backend's barrier and reduce_tile entries
 * (core/ops/composed/uneven.c), so a backend with these implements nothing more.
 *
 * Even        Where all counts are equal and calls are not compared, the backend's reduce_scatter
 *             does it.
 * What        Rank r gets part r of the ranks' inputs, reduced: counts[r] elements behind the parts
 *             of the ranks before.
 * Steps       Barrier. Each rank reduces its part of all buffers, unless its count is 0. Barrier.
 * Checked     by the core, before anything is written: channel, dtype and op supported, input in
 *             the handle's block, sums, the size of out, both aligned to whole elements. By the
 *             first barrier: counts and place.
 * Before      First barrier: every rank's input is ready.
 * After       Last barrier: inputs may be written again.
 * Limits      as those of all_gather_v.h.
 * Aliasing    out overlaps no rank's input. The inputs stay as they are.
 * Determined  rank order, reference/reduce.h: the bits of an all-reduce.
 * Failure     out is undefined, except after MISMATCH. On a stream the backend skips the steps
 *             after a failed one, see symmem_exec.
 * Source      MPI_Reduce_scatter. PyTorch and NCCL have no such call; their users pad, or reduce
 *             once for each rank.
 */
#ifndef SYMMEM_KERNELS_REDUCE_SCATTER_V_H
#define SYMMEM_KERNELS_REDUCE_SCATTER_V_H
#endif
