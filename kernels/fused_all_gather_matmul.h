/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of fused_all_gather_matmul and fused_all_gather_scaled_matmul
 * (SYMMEM_CALL_FUSED_ALL_GATHER_MATMUL). The core makes them of a backend's entries barrier, copy,
 * copy_strided and matmul, so there is nothing to implement: core/ops/matmul_gather.c.
 *
 * What        A = the ranks' shards one after the other along gather_dim; out_i = A x b_i.
 * Steps       n ranks, r the own one; cur and bk the two streams. All barriers are on cur and
 *             channel ch 0.
 *             1. where calls are compared: a barrier, which compares them.
 *             2. shard and scales that are not in the layout of gather_dim: into the own workspace
 *                in that, on cur. bk waits for cur.
 *             3. shard, and scales if sharded, that are in order: into the own workspace, on cur,
 *                unless the shard lies there; barrier: all shards are there. Beside that and the
 *                next steps' transfers the own shard's products on bk.
 *             4. for step 1 to n - 1: the shard of rank (r + step) mod n is copied on cur, into its
 *                place in a_out, or into one of two that take turns; then its products, on bk, and
 *                beside them the next step's copy. The last step's products are on cur, unless
 *                they are added up.
 *             5. if A is wanted, the own shard's copy, on cur.
 *             6. cur waits for bk; barrier: nobody reads the workspace any more.
 *             No two ranks read one peer in the same step, and no rank writes another one's memory.
 * Along K     gather_dim is the last one: b is cut into n blocks of rows and the products are added
 *             up, the own one first, then in the order of the steps: each waits for the one before.
 *             An out of 16 bits is rounded n times. The order differs from rank to rank, and so may
 *             the last bits.
 * Layout      a_out, and out unless gather_dim is the last: contiguous once gather_dim is moved to
 *             the front, so that each rank's part is one block. Else out is contiguous.
 * Scales      sharded: row i of rank p's shard by rank p's scale i, which travels with the shard.
 *             Replicated and tensor-wise: as on this rank; all ranks should have the same.
 * Failure     Unless calls are compared the steps behind a failure may run all the same: copies by
 *             engines and products of a library cannot be left out. So outputs and the own
 *             workspace are undefined then.
 * Checked     by the core, before the first barrier: everything in symmem/ops_matmul.h. All ranks
 *             compare shape, dtype, gather_dim, kind of scales and workspace in step 1; what is
 *             multiplied with is each rank's own affair.
 * After       the workspace and all inputs may be written again.
 * Aliasing    outputs overlap nothing; no argument lies in the part of any rank's workspace that is
 *             used, but a shard may be where step 3 would copy it to.
 * Bound       symmem/matmul.h for each product; the gathered A is bit for bit.
 * Source      PyTorch symm_mem::fused_all_gather_matmul and fused_all_gather_scaled_matmul, which
 *             check after the first barrier, take no scales along K, and use channels 0 and 1 and
 *             one second stream of the process.
 */
#ifndef SYMMEM_KERNELS_FUSED_ALL_GATHER_MATMUL_H
#define SYMMEM_KERNELS_FUSED_ALL_GATHER_MATMUL_H
#endif
