/* SPDX-License-Identifier: BSD-3-Clause */
/* The first invalid value of each argument of the fused operations and their helpers. */
#include "fused_pair.h"

#define LIMIT_MS 2000u

TK_TEST(fused_limits, helpers, "SM-FUSED-10", .needs = SYMMEM_CAP_MATMUL, .max_ranks = 1) {
    struct fused_tensor from, to, other, half;
    const int64_t shape[2] = {2, 3}, turned[2] = {3, 2}, negative[2] = {2, -1};
    int64_t strides[2] = {7, 7};
    fused_make(t, &from, SYMMEM_FLOAT32, 2, shape, 0);
    fused_make(t, &to, SYMMEM_FLOAT32, 2, shape, 1);
    fused_make(t, &other, SYMMEM_FLOAT32, 2, turned, 0);
    fused_make(t, &half, SYMMEM_BFLOAT16, 2, shape, 0);
    fused_set_bytes(t, &to, 0x55);
    TK_FAILS(t, INVALID_ARGUMENT, symmem_fused_strides(-1, shape, 0, strides));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_fused_strides(2, NULL, 0, strides));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_fused_strides(2, negative, 0, strides));
    TK_FAILS(t, OUT_OF_RANGE, symmem_fused_strides(2, shape, -1, strides));
    TK_FAILS(t, OUT_OF_RANGE, symmem_fused_strides(2, shape, 2, strides));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_fused_strides(2, shape, 0, NULL));
    TK_CHECK(t, strides[0] == 7 && strides[1] == 7);
    TK_FAILS(t, NOT_INITIALISED, symmem_restride(NULL, &from.dl, &to.dl, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_restride(t->context, NULL, &to.dl, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_restride(t->context, &from.dl, NULL, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_restride(t->context, &other.dl, &to.dl, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_restride(t->context, &half.dl, &to.dl, NULL));
    OPS_WRONG_MEMBERS(t, from.dl, true, symmem_restride(t->context, &from.dl, &to.dl, NULL));
    OPS_WRONG_MEMBERS(t, to.dl, true, symmem_restride(t->context, &from.dl, &to.dl, NULL));
    DLTensor folded = to.dl, empty = from.dl;
    int64_t zero[2] = {0, 1}, none[2] = {6, 0}, far[2] = {INT64_MAX, 1};
    folded.shape = empty.shape = none;
    folded.strides = far; /* of no element */
    TK_OK(t, symmem_restride(t->context, &empty, &folded, NULL));
    folded = to.dl;
    folded.strides = zero;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_restride(t->context, &from.dl, &folded, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_restride(t->context, &to.dl, &to.dl, NULL));
    fused_expect_bytes(t, &to, 0x55, "dst");
    TK_FAILS(t, NOT_INITIALISED, symmem_set_matmul(NULL, NULL, NULL));
}

TK_TEST(fused_limits, workspaces, "SM-FUSED-10", .needs = PRODUCTS, .max_ranks = 2) {
    size_t bytes = 7;
    struct fused_pair *x = pair_begin(t);
    const DLTensor *shard = &x->shard.dl, *a = &x->a.dl, *b = &x->scatter_b.dl, *out = &x->part.dl;
    int32_t n = t->world_size, most = SYMMEM_MAX_WORLD_SIZE;
#define GATHER(shard_, scale_, dim_, n_, bytes_)                                                   \
    symmem_fused_all_gather_matmul_workspace(shard_, scale_, dim_, true, n_, bytes_)
#define SCATTER(a_, b_, scale_, dim_, out_, n_, bytes_)                                            \
    symmem_fused_matmul_reduce_scatter_workspace(a_, b_, scale_, dim_, out_, n_, bytes_)
    TK_FAILS(t, INVALID_ARGUMENT, GATHER(NULL, NULL, 0, n, &bytes));
    TK_FAILS(t, INVALID_ARGUMENT, GATHER(shard, &x->shard.dl, 0, n, &bytes));
    TK_FAILS(t, OUT_OF_RANGE, GATHER(shard, NULL, -1, n, &bytes));
    TK_FAILS(t, OUT_OF_RANGE, GATHER(shard, NULL, 2, n, &bytes));
    TK_FAILS(t, OUT_OF_RANGE, GATHER(shard, NULL, 0, 0, &bytes));
    TK_FAILS(t, OUT_OF_RANGE, GATHER(shard, NULL, 0, most + 1, &bytes));
    TK_FAILS(t, INVALID_ARGUMENT, GATHER(shard, NULL, 0, n, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, SCATTER(NULL, b, NULL, 0, out, n, &bytes));
    TK_FAILS(t, INVALID_ARGUMENT, SCATTER(a, NULL, NULL, 0, out, n, &bytes));
    TK_FAILS(t, INVALID_ARGUMENT, SCATTER(a, a, NULL, 0, out, n, &bytes));
    TK_FAILS(t, INVALID_ARGUMENT, SCATTER(a, b, b, 0, out, n, &bytes));
    TK_FAILS(t, OUT_OF_RANGE, SCATTER(a, b, NULL, -1, out, n, &bytes));
    TK_FAILS(t, OUT_OF_RANGE, SCATTER(a, b, NULL, 2, out, n, &bytes));
    TK_FAILS(t, INVALID_ARGUMENT, SCATTER(a, b, NULL, 0, NULL, n, &bytes));
    TK_FAILS(t, INVALID_ARGUMENT, SCATTER(a, b, NULL, 0, a, n, &bytes));
    TK_FAILS(t, OUT_OF_RANGE, SCATTER(a, b, NULL, 0, out, 0, &bytes));
    TK_FAILS(t, OUT_OF_RANGE, SCATTER(a, b, NULL, 0, out, most + 1, &bytes));
    TK_FAILS(t, INVALID_ARGUMENT, SCATTER(a, b, NULL, 0, out, n, NULL));
#undef GATHER
#undef SCATTER
    TK_EQ_SIZE(t, 7, bytes);
}

/* Both operations and their scaled forms, with everything right but what is given here. */
struct odd {
    symmem_handle *handle;
    const DLTensor *a_scale, *b_scale;
    int32_t channel, dim;
    symmem_stream *stream, *second;
};

static void check_all(struct tk *t, struct fused_pair *x, symmem_status plain, symmem_status scaled,
                      const struct odd *odd) {
    const DLTensor *b_scales[1] = {odd->b_scale};
    if (plain != SYMMEM_OK) {
        TK_STATUS(t, plain,
                  symmem_fused_all_gather_matmul(odd->handle, &x->shard.dl, odd->dim, 1, x->bs,
                                                 NULL, x->outs, odd->channel, LIMIT_MS, odd->stream,
                                                 odd->second));
        TK_STATUS(t, plain,
                  symmem_fused_matmul_reduce_scatter(
                      odd->handle, &x->a.dl, &x->scatter_b.dl, SYMMEM_SUM, odd->dim, &x->part.dl,
                      odd->channel, LIMIT_MS, odd->stream, odd->second));
    }
    TK_STATUS(t, scaled,
              symmem_fused_all_gather_scaled_matmul(
                  odd->handle, &x->shard.dl, odd->a_scale, odd->dim, 1, x->bs, b_scales, NULL,
                  x->outs, odd->channel, LIMIT_MS, odd->stream, odd->second));
    TK_STATUS(t, scaled,
              symmem_fused_scaled_matmul_reduce_scatter(
                  odd->handle, &x->a.dl, &x->scatter_b.dl, odd->a_scale, odd->b_scale, SYMMEM_SUM,
                  odd->dim, &x->part.dl, odd->channel, LIMIT_MS, odd->stream, odd->second));
}

static void scaled_missing(struct tk *t, struct fused_pair *x, const DLTensor *one) {
    const DLTensor *const scales[1] = {one};
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_fused_all_gather_scaled_matmul(x->workspace, NULL, one, 0, 1, x->bs, scales,
                                                   NULL, x->outs, 0, LIMIT_MS, NULL, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_fused_all_gather_scaled_matmul(x->workspace, &x->shard.dl, one, 0, 0, x->bs,
                                                   scales, NULL, x->outs, 0, LIMIT_MS, NULL, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_fused_all_gather_scaled_matmul(x->workspace, &x->shard.dl, one, 0, 1, NULL,
                                                   scales, NULL, x->outs, 0, LIMIT_MS, NULL, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_fused_all_gather_scaled_matmul(x->workspace, &x->shard.dl, one, 0, 1, x->bs,
                                                   NULL, NULL, x->outs, 0, LIMIT_MS, NULL, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_fused_all_gather_scaled_matmul(x->workspace, &x->shard.dl, one, 0, 1, x->bs,
                                                   scales, &x->out.dl, x->outs, 0, LIMIT_MS, NULL,
                                                   NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_fused_all_gather_scaled_matmul(x->workspace, &x->shard.dl, one, 0, 1, x->bs,
                                                   scales, NULL, NULL, 0, LIMIT_MS, NULL, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_fused_scaled_matmul_reduce_scatter(x->workspace, NULL, &x->scatter_b.dl, one,
                                                       one, SYMMEM_SUM, 0, &x->part.dl, 0, LIMIT_MS,
                                                       NULL, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_fused_scaled_matmul_reduce_scatter(x->workspace, &x->a.dl, NULL, one, one,
                                                       SYMMEM_SUM, 0, &x->part.dl, 0, LIMIT_MS,
                                                       NULL, NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_fused_scaled_matmul_reduce_scatter(x->workspace, &x->a.dl, &x->scatter_b.dl,
                                                       one, one, SYMMEM_MAX, 0, &x->part.dl, 0,
                                                       LIMIT_MS, NULL, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_fused_scaled_matmul_reduce_scatter(x->workspace, &x->a.dl, &x->scatter_b.dl,
                                                       one, one, SYMMEM_SUM, 0, NULL, 0, LIMIT_MS,
                                                       NULL, NULL));
}

TK_TEST(fused_limits, arguments, "SM-FUSED-10", .needs = PRODUCTS, .max_ranks = 3) {
    struct fused_tensor one, two, half;
    const int64_t one_shape[1] = {1}, two_shape[1] = {2};
    struct fused_pair *x = pair_begin(t);
    fused_make(t, &one, SYMMEM_FLOAT32, 1, one_shape, 0);
    fused_make(t, &two, SYMMEM_FLOAT32, 1, two_shape, 0);
    fused_make(t, &half, SYMMEM_BFLOAT16, 1, one_shape, 0);
    const struct odd right = {.handle = x->workspace, .a_scale = &one.dl, .b_scale = &one.dl};
    int32_t channels = info_of(t, x->workspace).channel_count;
#define ODD(plain, scaled, ...)                                                                    \
    do {                                                                                           \
        struct odd odd = right;                                                                    \
        __VA_ARGS__;                                                                               \
        check_all(t, x, plain, scaled, &odd);                                                      \
    } while (0)
    ODD(SYMMEM_INVALID_ARGUMENT, SYMMEM_INVALID_ARGUMENT, odd.handle = NULL);
    ODD(SYMMEM_OUT_OF_RANGE, SYMMEM_OUT_OF_RANGE, odd.channel = -1);
    ODD(SYMMEM_OUT_OF_RANGE, SYMMEM_OUT_OF_RANGE, odd.channel = channels);
    ODD(SYMMEM_OUT_OF_RANGE, SYMMEM_OUT_OF_RANGE, odd.dim = -1);
    ODD(SYMMEM_OUT_OF_RANGE, SYMMEM_OUT_OF_RANGE, odd.dim = 2);
    ODD(SYMMEM_OK, SYMMEM_INVALID_ARGUMENT, odd.a_scale = NULL);
    ODD(SYMMEM_OK, SYMMEM_INVALID_ARGUMENT, odd.a_scale = &two.dl);
    ODD(SYMMEM_OK, SYMMEM_INVALID_ARGUMENT, odd.a_scale = &half.dl);
    ODD(SYMMEM_OK, SYMMEM_INVALID_ARGUMENT, odd.b_scale = NULL);
    ODD(SYMMEM_OK, SYMMEM_INVALID_ARGUMENT, odd.b_scale = &two.dl);
    ODD(SYMMEM_OK, SYMMEM_INVALID_ARGUMENT, odd.b_scale = &half.dl);
    scaled_missing(t, x, &one.dl);
    pair_expect_untouched(t, x);
}

TK_TEST(fused_limits, foreign_streams, "SM-STREAM-16", .needs = PRODUCTS | SYMMEM_CAP_STREAMS,
        .max_ranks = 2) {
    struct fused_tensor one;
    const int64_t one_shape[1] = {1};
    symmem_context *alone = context_alone(t);
    symmem_stream *theirs = NULL, *own = tk_stream(t);
    uint32_t *signal = tk_alloc(t, sizeof *signal);
    TK_REQUIRE(t, alone != NULL);
    TK_REQUIRE_OK(t, symmem_stream_create(alone, 0, &theirs));
    struct fused_pair *x = pair_begin(t);
    fused_make(t, &one, SYMMEM_FLOAT32, 1, one_shape, 0);
    const struct odd right = {.handle = x->workspace, .a_scale = &one.dl, .b_scale = &one.dl};
    ODD(SYMMEM_INVALID_ARGUMENT, SYMMEM_INVALID_ARGUMENT, odd.stream = theirs);
    ODD(SYMMEM_INVALID_ARGUMENT, SYMMEM_INVALID_ARGUMENT, odd.stream = own; odd.second = theirs);
    ODD(SYMMEM_INVALID_ARGUMENT, SYMMEM_INVALID_ARGUMENT, odd.second = own);
#undef ODD
    TK_FAILS(t, INVALID_ARGUMENT, symmem_restride(t->context, &x->a.dl, &x->a_out.dl, theirs));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_async_input_mm(t->context, &x->a.dl, &x->b.dl, FLAT(signal, SYMMEM_UINT32, 1),
                                   0, &x->out.dl, LIMIT_MS, theirs));
    TK_FAILS(t, NOT_INITIALISED,
             symmem_async_input_mm(NULL, &x->a.dl, &x->b.dl, FLAT(signal, SYMMEM_UINT32, 1), 0,
                                   &x->out.dl, LIMIT_MS, NULL));
    pair_expect_untouched(t, x);
    TK_OK(t, symmem_stream_destroy(theirs));
    symmem_context_free(alone);
}
