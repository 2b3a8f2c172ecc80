/* SPDX-License-Identifier: BSD-3-Clause */
/* The first invalid value of each argument of the fused operations and their helpers. */
#include "fused_pair.h"

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
    TK_FAILS(t, NOT_INITIALIZED, symmem_restride(NULL, &from.dl, &to.dl, NULL));
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
    TK_FAILS(t, NOT_INITIALIZED, symmem_set_matmul(NULL, NULL, NULL));
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

enum {
    GATHERS = PAIR_GATHER | PAIR_SCALED_GATHER,
    SCATTERS = PAIR_SCATTER | PAIR_SCALED_SCATTER,
    SCALED = PAIR_SCALED_GATHER | PAIR_SCALED_SCATTER,
    ALL = GATHERS | SCATTERS
};

/* Each rank is refused at once: a rank that waited would end with TIMEOUT. */
static void refuse(struct tk *t, const struct pair_call *call, int forms, symmem_status expected,
                   const char *change) {
    for (int form = 1; form <= PAIR_SCALED_SCATTER; form *= 2)
        if ((forms & form) != 0) {
            tk_checkpoint(t, "form %d with %s", form, change);
            TK_STATUS(t, expected, pair_run(call, form));
        }
}

/* `right` with those changes. */
#define REFUSED(forms, expected, ...)                                                              \
    do {                                                                                           \
        struct pair_call call = right;                                                             \
        __VA_ARGS__;                                                                               \
        refuse(t, &call, forms, SYMMEM_##expected, #__VA_ARGS__);                                  \
    } while (0)

static void refuse_scales(struct tk *t, struct pair_call right) {
    struct fused_tensor two, half;
    const int64_t one_shape[1] = {1}, two_shape[1] = {2};
    fused_make(t, &two, SYMMEM_FLOAT32, 1, two_shape, 0);
    fused_make(t, &half, SYMMEM_BFLOAT16, 1, one_shape, 0);
    REFUSED(SCALED, INVALID_ARGUMENT, call.a_scale = NULL);
    REFUSED(SCALED, INVALID_ARGUMENT, call.a_scale = &two.dl);
    REFUSED(SCALED, INVALID_ARGUMENT, call.a_scale = &half.dl);
    REFUSED(SCALED, INVALID_ARGUMENT, call.b_scale = NULL);
    REFUSED(SCALED, INVALID_ARGUMENT, call.b_scale = &two.dl);
    REFUSED(SCALED, INVALID_ARGUMENT, call.b_scale = &half.dl);
    REFUSED(SCALED, INVALID_ARGUMENT, call.no_scales = true; call.b_scale = NULL);
}

static void refuse_gathers(struct tk *t, const struct fused_pair *x, struct pair_call right) {
    struct fused_tensor half, columns, wide;
    const int64_t wide_shape[2] = {PAIR_K + 4, PAIR_N};
    fused_make(t, &half, SYMMEM_BFLOAT16, 2, x->b.shape, 0);
    fused_make_columns(t, &columns, SYMMEM_FLOAT32, x->out.shape[0], PAIR_N);
    fused_make(t, &wide, SYMMEM_FLOAT32, 2, wide_shape, 0);
    DLTensor misplaced = x->shard.dl, crooked = x->out.dl, outside = x->out.dl;
    misplaced.data = ops_own(t, x->workspace);
    misplaced.byte_offset = sizeof(float);
    crooked.byte_offset = 2;
    outside.byte_offset = x->out.bytes / 2;
    REFUSED(GATHERS, INVALID_ARGUMENT, call.shard = NULL);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.shard = &misplaced);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.b_count = 0);
    REFUSED(GATHERS, OUT_OF_RANGE, call.b_count = SYMMEM_FUSED_MAX_PRODUCTS + 1);
    REFUSED(GATHERS, OUT_OF_RANGE, call.b_count = INT32_MAX);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.b = NULL);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.b = &half.dl);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.b = &wide.dl);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.no_bs = true);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.a_out = &x->out.dl);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.out = NULL);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.out = &wide.dl);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.out = &columns.dl);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.out = &x->a_out.dl; call.a_out = NULL);
    REFUSED(GATHERS, INVALID_ARGUMENT, call.no_outs = true);
    REFUSED(GATHERS, MISALIGNED, call.out = &crooked);
    REFUSED(GATHERS, OUT_OF_RANGE, call.out = &outside);
}

static void refuse_scatters(struct tk *t, const struct fused_pair *x, struct pair_call right) {
    struct fused_tensor odd;
    const int64_t odd_shape[2] = {PAIR_ROWS * t->world_size + 1, PAIR_K};
    fused_make(t, &odd, SYMMEM_FLOAT32, 2, odd_shape, 0);
    DLTensor inside = x->part.dl;
    inside.data = ops_own(t, x->workspace);
    REFUSED(SCATTERS, UNSUPPORTED, call.op = SYMMEM_MAX);
    REFUSED(SCATTERS, UNSUPPORTED, call.op = SYMMEM_MIN);
    REFUSED(SCATTERS, INVALID_ARGUMENT, call.op = (symmem_reduce_op)99);
    REFUSED(SCATTERS, INVALID_ARGUMENT, call.a = NULL);
    REFUSED(SCATTERS, INVALID_ARGUMENT, call.scatter_b = NULL);
    REFUSED(SCATTERS, INVALID_ARGUMENT, call.part = NULL);
    REFUSED(SCATTERS, INVALID_ARGUMENT, call.part = &inside);
    if (t->world_size > 1) {
        REFUSED(PAIR_SCATTER, INVALID_ARGUMENT, call.a = &odd.dl);
        REFUSED(PAIR_SCATTER, INVALID_ARGUMENT, call.part = &x->out.dl);
    }
}

TK_TEST(fused_limits, arguments, "SM-FUSED-10", .needs = PRODUCTS, .max_ranks = 3) {
    struct fused_tensor one;
    const int64_t one_shape[1] = {1};
    struct fused_pair *x = pair_begin(t);
    fused_make(t, &one, SYMMEM_FLOAT32, 1, one_shape, 0);
    struct pair_call right = pair_call(x);
    right.a_scale = right.b_scale = &one.dl;
    int32_t channels = info_of(t, x->workspace).channel_count;
    REFUSED(ALL, INVALID_ARGUMENT, call.handle = NULL);
    REFUSED(ALL, OUT_OF_RANGE, call.channel = -1);
    REFUSED(ALL, OUT_OF_RANGE, call.channel = channels);
    REFUSED(ALL, OUT_OF_RANGE, call.channel = INT32_MAX);
    REFUSED(ALL, OUT_OF_RANGE, call.dim = -1);
    REFUSED(ALL, OUT_OF_RANGE, call.dim = 2);
    refuse_scales(t, right);
    refuse_gathers(t, x, right);
    refuse_scatters(t, x, right);
    pair_expect_untouched(t, x);
    TK_OK(t, pair_gather(x, LONG_MS, NULL));
    pair_expect_gather(t, x, 1);
    TK_OK(t, pair_scatter(x, LONG_MS, NULL));
    pair_expect_scatter(t, x, 1);
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
    struct pair_call right = pair_call(x);
    right.a_scale = right.b_scale = &one.dl;
    REFUSED(ALL, INVALID_ARGUMENT, call.stream = theirs);
    REFUSED(ALL, INVALID_ARGUMENT, call.stream = own; call.second = theirs);
    REFUSED(ALL, INVALID_ARGUMENT, call.second = own);
    TK_FAILS(t, INVALID_ARGUMENT, symmem_restride(t->context, &x->a.dl, &x->a_out.dl, theirs));
    const DLTensor *word = FLAT(signal, SYMMEM_UINT32, 1);
    TK_FAILS(
        t, INVALID_ARGUMENT,
        symmem_async_input_mm(t->context, &x->a.dl, &x->b.dl, word, 0, &x->out.dl, 2000, theirs));
    TK_FAILS(t, NOT_INITIALIZED,
             symmem_async_input_mm(NULL, &x->a.dl, &x->b.dl, word, 0, &x->out.dl, 2000, NULL));
    pair_expect_untouched(t, x);
    TK_OK(t, symmem_stream_destroy(theirs));
    symmem_context_free(alone);
}
