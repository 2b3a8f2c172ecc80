/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of fused_all_gather_matmul and fused_all_gather_scaled_matmul
 * (SYMMEM_CALL_FUSED_ALL_GATHER_MATMUL). The core composes them of a backend's entries barrier,
 * copy, copy_strided and matmul (core/ops/matmul_gather.c), so a backend implements nothing.
 *
 * What        A is the ranks' shards concatenated along gather_dim. out_i = A x b_i.
 * Steps       n ranks, r this rank, cur the caller's stream, bk the auxiliary stream. All barriers
 *             run on cur and channel 0.
 *             1. If calls are compared: a barrier, which compares them.
 *             2. If the shard or its scales do not have the layout of gather_dim: they are copied
 *                into this rank's workspace in that layout, on cur. bk waits for cur.
 *             3. A shard in order, and its scales if sharded, are copied to this rank's workspace
 *                on cur, unless the shard already lies there. A barrier follows, after which all
 *                shards are ready. The products of this rank's shard run on bk at the same time.
 *             4. For step 1 to n - 1: the shard of rank (r + step) mod n is copied on cur, into
 *                a_out or into one of two alternating buffers. Its products run on bk, together
 *                with the next step's copy. The last step's products run on cur, unless they are
 *                accumulated.
 *             5. If A is wanted, this rank's shard is copied, on cur.
 *             6. cur waits for bk. After a final barrier no rank reads the workspace any more.
 *             No two ranks read from one peer in the same step, and no rank writes to a peer.
 * Along K     If gather_dim is the last one, b is cut into n blocks of rows and the products are
 *             accumulated, this rank's first, then in the order of the steps. Each waits for the
 *             one before. An out of 16 bits is rounded n times. The order, and so perhaps the last
 *             bits, differ between ranks.
 * Layout      a_out, and out unless gather_dim is the last, are contiguous once gather_dim is moved
 *             to the front, so that each rank's part is one block. Otherwise out is contiguous.
 * Scales      Sharded: row i of rank p's shard uses rank p's scale i, which travels with the shard.
 *             Replicated and tensor-wise: each rank uses its own values. All ranks should pass the
 *             same.
 * Failure     Unless calls are compared, the steps after a failure may still run, because copies by
 *             engines and products of a library cannot be canceled. So outputs and this rank's
 *             workspace are undefined then.
 * Checked     by the core, before the first barrier: everything in symmem/ops_matmul.h. All ranks
 *             compare shape, dtype, gather_dim, kind of scales and workspace in step 1. The
 *             right-hand matrices may differ between ranks.
 * After       The workspace and all inputs may be written again.
 * Aliasing    Outputs overlap nothing. No argument lies in the used part of any rank's workspace,
 *             except a shard at the address to which step 3 would copy it.
 * Bound       symmem/matmul.h for each product. The gathered A is exact.
 * Source      PyTorch symm_mem::fused_all_gather_matmul and fused_all_gather_scaled_matmul, which
 *             check after the first barrier, take no scales along K, and use channels 0 and 1 and
 *             one auxiliary stream per process.
 */
#ifndef SYMMEM_KERNELS_FUSED_ALL_GATHER_MATMUL_H
#define SYMMEM_KERNELS_FUSED_ALL_GATHER_MATMUL_H
#endif
