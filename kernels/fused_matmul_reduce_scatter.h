/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of fused_matmul_reduce_scatter and fused_scaled_matmul_reduce_scatter
 * (SYMMEM_CALL_FUSED_MATMUL_REDUCE_SCATTER). The core makes them of a backend's entries barrier,
 * copy, copy_strided, matmul and reduce_local, so there is nothing to implement:
 * core/ops/matmul_scatter.c.
 *
 * What        P_p = a x b of rank p, in out's dtype; out of rank r = part r along scatter_dim of
 *             P_0 op P_1 op ..., op being sum or avg.
 * Steps       n ranks, r the own one; cur and bk the two streams. All barriers are on cur and
 *             channel ch 0.
 *             1. where calls are compared: a barrier, which compares them. a and its scales are put
 *                into order, if need be.
 *             2. for step 1 to n - 1: the chunk for rank (r + step) mod n is made in one of two
 *                places of the workspace, on cur in the first step, in later ones on bk beside the
 *                transfer of the step before; barrier: all have made theirs; the chunk that rank
 *                (r - step) mod n has made for this rank is copied, on cur.
 *             3. beside the last step's barrier and copy the own chunk, on bk; cur waits for bk.
 *             4. the n chunks are reduced into out; barrier: nobody reads the workspace any more.
 *             No rank writes another one's memory.
 * Along N     scatter_dim is the last one: b is cut into n blocks of columns instead of a into
 *             blocks of rows.
 * Layout      out is contiguous once scatter_dim is moved to the front, or contiguous if that is
 *             the last one. a is copied only if its rows, scatter_dim first, do not lie at one
 *             distance.
 * Scales      row-wise: row i of a by scale i of the same rank; both are cut alike.
 * Failure     Unless calls are compared the steps behind a failure may run all the same: copies by
 *             engines and products of a library cannot be left out. So outputs and the own
 *             workspace are undefined then.
 * Checked     by the core, before the first barrier: everything in symmem/ops_matmul.h. All ranks
 *             compare out's shape and dtype, op, scatter_dim and workspace in step 1; K is each
 *             rank's own affair.
 * After       the workspace and all inputs may be written again.
 * Aliasing    out overlaps nothing; no argument lies in the part of any rank's workspace that is
 *             used.
 * Determined  in rank order, reference/reduce.h, from products each rounded to out's dtype.
 * Bound       symmem/matmul.h for each product, plus the reduction's roundings: n * eps of the sum
 *             of magnitudes, and one to out's dtype.
 * Source      PyTorch symm_mem::fused_matmul_reduce_scatter and fused_scaled_matmul_reduce_scatter,
 *             which check after the first barrier, and reduce behind the last.
 */
#ifndef SYMMEM_KERNELS_FUSED_MATMUL_REDUCE_SCATTER_H
#define SYMMEM_KERNELS_FUSED_MATMUL_REDUCE_SCATTER_H
#endif
