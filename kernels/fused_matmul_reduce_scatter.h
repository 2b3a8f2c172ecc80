/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of fused_matmul_reduce_scatter and fused_scaled_matmul_reduce_scatter
 * (SYMMEM_CALL_FUSED_MATMUL_REDUCE_SCATTER). The core composes them of a backend's entries barrier,
 * copy, copy_strided, matmul and reduce_local (core/ops/matmul_scatter.c), so a backend implements
 * nothing.
 *
 * What        P_p = a x b of rank p, in out's dtype. out of rank r = part r along scatter_dim of
 *             P_0 op P_1 op ..., where op is sum or avg.
 * Steps       n ranks, r this rank, cur the caller's stream, bk the auxiliary stream. All barriers
 *             run on cur and channel 0.
 *             1. If calls are compared: a barrier, which compares them. a and its scales are
 *                reordered if needed.
 *             2. For step 1 to n - 1: the chunk for rank (r + step) mod n is computed in one of two
 *                buffers of the workspace. The first step computes on cur, later ones on bk during
 *                the transfer of the step before. After a barrier all ranks have computed theirs.
 *                The chunk that rank (r - step) mod n computed for this rank is copied, on cur.
 *             3. During the last step's barrier and copy, this rank's own chunk is computed on bk.
 *                cur waits for bk.
 *             4. The n chunks are reduced into out. After a barrier no rank reads the workspace any
 *                more.
 *             No rank writes to a peer.
 * Along N     If scatter_dim is the last one, b is cut into n blocks of columns instead of a into
 *             blocks of rows.
 * Layout      out is contiguous once scatter_dim is moved to the front, or contiguous if that is
 *             the last one. a is copied only if its rows, scatter_dim first, have no single stride.
 * Scales      Row-wise: row i of a uses scale i of the same rank. Both are cut alike.
 * Failure     Unless calls are compared, the steps after a failure may still run, because copies by
 *             engines and products of a library cannot be canceled. So outputs and this rank's
 *             workspace are undefined then.
 * Checked     by the core, before the first barrier: everything in symmem/ops_matmul.h. All ranks
 *             compare out's shape and dtype, op, scatter_dim and workspace in step 1. K may differ
 *             between ranks.
 * After       The workspace and all inputs may be written again.
 * Aliasing    out overlaps nothing. No argument lies in the used part of any rank's workspace.
 * Determined  in rank order, reference/reduce.h, from products each rounded to out's dtype.
 * Bound       symmem/matmul.h for each product, plus the reduction's roundings: n * eps of the sum
 *             of magnitudes, and one to out's dtype.
 * Source      PyTorch symm_mem::fused_matmul_reduce_scatter and fused_scaled_matmul_reduce_scatter,
 *             which check after the first barrier and reduce after the last one.
 */
#ifndef SYMMEM_KERNELS_FUSED_MATMUL_REDUCE_SCATTER_H
#define SYMMEM_KERNELS_FUSED_MATMUL_REDUCE_SCATTER_H
#endif
