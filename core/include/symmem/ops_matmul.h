/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matrix products fused with communication. [SM-FUSED]
 *
 * Pipelines of barriers, copies and products, so that the transfer of one chunk runs while another
 * is multiplied. They need SYMMEM_CAP_MATMUL beside SYMMEM_CAP_COLLECTIVES and, like all
 * collectives, direct access; symmem/matmul.h has the dtypes, scales and bounds of the products.
 *
 * workspace  Symmetric memory that the call may overwrite from the handle's pointer on: at least as
 *            many bytes as the ..._workspace function of the operation says. Calls that share one
 *            are made in the same order on all ranks, on the same channel. A gather's a_shard may
 *            be its first bytes, in the layout of gather_dim: it saves a copy, and stays as it is.
 * channel    Has all barriers of the operation, and is its own as by one call: another thread's
 *            comes before it or behind it.
 * streams    `stream` as for symmem_barrier. Barriers and copies are on it, and the last products;
 *            those that can go on beside them are on `second`, which joins it and a capture of its.
 *            second NULL: one that the context makes for each
 *            stream at first use; if that takes part in another capture meanwhile, or second is
 *            `stream`, all runs on `stream`. Operations that share a second stream wait for each
 *            other, so they are called in the same order on all ranks. With stream NULL second must
 *            be NULL and all runs in the calling thread. A product whose shape is new to the
 *            device's library may make the call wait, without a limit, for all that runs on the
 *            device, while code is loaded: let it run once before a stream is held that a later
 *            call is to release.
 * layout     Tensors have up to 8 dimensions. The layout "of a dimension d" is the one in which the
 *            tensor is contiguous once d is moved to the front; symmem_fused_strides gives it. An
 *            input in another layout is copied into it first, in the workspace.
 * failure    All arguments are checked, and the channel taken, before the first barrier; one that
 *            stays busy is TIMEOUT with stage "channel" (handle.h). A failure after that poisons
 *            the handle on all ranks, so that none waits for long; outputs and this rank's
 *            workspace are then undefined. Another rank's memory is never written. Calls that
 *            differ are MISMATCH: then nothing is written or poisoned. A failure of the second
 *            stream's work is that stream's; `stream` reports POISONED, and symmem_handle_status
 *            the failure.
 *
 * Errors: those of ops.h, INVALID_ARGUMENT also for a layout of an output that is not as the
 * operation wants it, OUT_OF_RANGE also for a workspace that is too small.
 */
#ifndef SYMMEM_OPS_MATMUL_H
#define SYMMEM_OPS_MATMUL_H

#include <symmem/matmul.h>
#include <symmem/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Local. Products of this context's calls from now on are the user's own; NULL: the backend's. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_set_matmul(symmem_context *context,
                                                          symmem_matmul_fn fn, void *arg);

/* --- layout --------------------------------------------------------------------------------- */

/* Local. strides[0..ndim): in elements, so that a tensor of that shape is contiguous once
 * dimension `dim` is moved to the front. OUT_OF_RANGE: dim; OVERFLOW. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_fused_strides(int32_t ndim, const int64_t *shape,
                                                             int32_t dim, int64_t *strides);
/*
 * Local, a stream operation. Copies a tensor into another of its shape and dtype, whatever their
 * strides; dst's elements must not overlap. Into the layout of the gather dimension of
 * symmem_fused_all_gather_matmul, or of the scatter dimension of
 * symmem_fused_matmul_reduce_scatter, it is PyTorch's restride_A_shard_for_fused_all_gather_matmul
 * and restride_A_for_fused_matmul_reduce_scatter: those operations then need no copy. Symmetric
 * memory must be of the stream's device, or without one all of the same: else INVALID_ARGUMENT.
 * [SM-STREAM-25]
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_restride(symmem_context *context,
                                                        const DLTensor *src, const DLTensor *dst,
                                                        symmem_stream *stream);

/* --- gather, then multiply ------------------------------------------------------------------ */

/* Local. *bytes_p: of the workspace of the two calls below, on each rank. want_a: a_out is given;
 * a_scale NULL: not scaled. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_fused_all_gather_matmul_workspace(
    const DLTensor *a_shard, const DLTensor *a_scale, int32_t gather_dim, bool want_a,
    int32_t world_size, size_t *bytes_p);

#define SYMMEM_FUSED_MAX_PRODUCTS 1024

/*
 * A = the ranks' shards gathered along gather_dim; outs[i] = A x bs[i]. All shards are of one
 * shape, (..., K) with at least 2 dimensions; bs[i] is (K, N_i), row- or column-major, with K that
 * of the gathered A; outs[i] has A's shape with N_i for K. a_out receives the gathered A, in the
 * layout of gather_dim; NULL if it is not wanted. outs[i] has the layout of gather_dim, too, unless
 * that is the last dimension (K). Then the ranks' products are added up, in out's dtype, and
 * outs[i] is contiguous. b_count is in [1, SYMMEM_FUSED_MAX_PRODUCTS]: OUT_OF_RANGE above that.
 * Contract: kernels/fused_all_gather_matmul.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_fused_all_gather_matmul(
    symmem_handle *workspace, const DLTensor *a_shard, int32_t gather_dim, int32_t b_count,
    const DLTensor *const *bs, const DLTensor *a_out, const DLTensor *const *outs, int32_t channel,
    uint32_t timeout_ms, symmem_stream *stream, symmem_stream *second);

/*
 * The same with scaled products. The shape of a_scale tells what it is; the first that fits counts.
 * The shard's shape with 1 for K is a row-wise, sharded scale, which travels with the shard. One
 * element is a tensor-wise scale of all shards. The gathered A's shape with 1 for K is a row-wise,
 * replicated scale. The latter two are the same on all ranks. b_scales[i] has one element, or N_i
 * in shape (N_i) or (1, N_i).
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_fused_all_gather_scaled_matmul(
    symmem_handle *workspace, const DLTensor *a_shard, const DLTensor *a_scale, int32_t gather_dim,
    int32_t b_count, const DLTensor *const *bs, const DLTensor *const *b_scales,
    const DLTensor *a_out, const DLTensor *const *outs, int32_t channel, uint32_t timeout_ms,
    symmem_stream *stream, symmem_stream *second);

/* --- multiply, then reduce and scatter ------------------------------------------------------ */

/* Local. *bytes_p: of the workspace of the two calls below, on each rank. out gives the dtype;
 * a_scale NULL: not scaled. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_fused_matmul_reduce_scatter_workspace(
    const DLTensor *a, const DLTensor *b, const DLTensor *a_scale, int32_t scatter_dim,
    const DLTensor *out, int32_t world_size, size_t *bytes_p);

/*
 * out = this rank's part, along scatter_dim of the product, of the ranks' products a x b combined
 * with `op`, sum or avg, in rank order, each rank's rounded to out's dtype first. a is (..., K)
 * with at least 2 dimensions, b (K, N), row- or column-major; out has a's shape with N for K and
 * the size of scatter_dim, which has to be a multiple of world_size, divided by it. out has the
 * layout of scatter_dim, or is contiguous if that is the last one (N). Contract:
 * kernels/fused_matmul_reduce_scatter.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_fused_matmul_reduce_scatter(
    symmem_handle *workspace, const DLTensor *a, const DLTensor *b, symmem_reduce_op op,
    int32_t scatter_dim, const DLTensor *out, int32_t channel, uint32_t timeout_ms,
    symmem_stream *stream, symmem_stream *second);

/*
 * The same with scaled products. a_scale has one element (tensor-wise) or a's shape with 1 for K
 * (row-wise); b_scale one element, or N in shape (N) or (1, N).
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_fused_scaled_matmul_reduce_scatter(
    symmem_handle *workspace, const DLTensor *a, const DLTensor *b, const DLTensor *a_scale,
    const DLTensor *b_scale, symmem_reduce_op op, int32_t scatter_dim, const DLTensor *out,
    int32_t channel, uint32_t timeout_ms, symmem_stream *stream, symmem_stream *second);

/* --- multiply as the input arrives ---------------------------------------------------------- */

/*
 * Local, a stream operation. out = a x b, where a arrives in as many chunks of rows as
 * a_chunk_signals, a flat tensor of uint32, has words: chunk i is read once word i is not 0
 * (acquire; pairs with symmem_stream_write_value32). Chunks are taken from a_chunk_pivot on,
 * wrapping around; the words are not reset. a is (M, K), b (K, N), out (M, N), all of two
 * dimensions and row- or column-major; M is a multiple of the number of chunks. timeout_ms is for
 * all of it, from the moment it begins to run: TIMEOUT names the chunk in the record's message and
 * leaves the rows of that chunk and later ones alone. Symmetric memory must be of the stream's
 * device, or without one all of the same: else INVALID_ARGUMENT. [SM-STREAM-25]
 * Contract: kernels/async_input_mm.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_async_input_mm(
    symmem_context *context, const DLTensor *a, const DLTensor *b, const DLTensor *a_chunk_signals,
    int64_t a_chunk_pivot, const DLTensor *out, uint32_t timeout_ms, symmem_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
