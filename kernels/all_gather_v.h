/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of all_gather_v. The core composes it of a backend's barrier and copy entries
 * (core/ops/composed/uneven.c), so a backend implements nothing, and one without collectives
 * supports it.
 *
 * Even        Where all counts are equal and calls are not compared, the backend's all_gather does
 *             it, if there is one.
 * What        Part r of the result, counts[r] elements behind the parts of the ranks before, is the
 *             beginning of rank r's input, byte for byte.
 *             pull  The inputs are symmetric. Each rank copies all of them to its `out`.
 *             push  The result is symmetric. Each rank copies its elements to every rank's result.
 * Steps       Barrier. For step 0 to n-1: a copy from or to rank p = (rank + step) mod n, so that
 *             no two ranks access one at the same time; none for a count of 0. Barrier.
 * Checked     by the core, before anything is written: channel, same dtype, sums, bounds of the
 *             largest count, overlaps. By the first barrier: counts, place and form.
 * Before      First barrier: every rank's input is ready, and in a push no rank still reads the old
 *             result.
 * After       Last barrier: inputs may be written again, and in a push all parts are there.
 * Limits      Without a stream one time limit covers both barriers. On a stream each barrier has
 *             the limit for itself, counted from its start.
 * Aliasing    pull: out overlaps no rank's input, as long as the largest count. push: the elements
 *             are part `rank` of this rank's own result, or overlap no rank's result.
 * Failure     out is undefined, in a push every rank's result, except after MISMATCH. On a stream
 *             the backend skips the steps after a failed one, see symmem_exec.
 * Source      MPI_Allgatherv with displacements that follow from the counts. PyTorch and NCCL have
 *             no such call; their users pad, or broadcast once for each rank.
 */
#ifndef SYMMEM_KERNELS_ALL_GATHER_V_H
#define SYMMEM_KERNELS_ALL_GATHER_V_H
#endif
