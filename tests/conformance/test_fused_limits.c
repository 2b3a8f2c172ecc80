/* SPDX-License-Identifier: BSD-3-Clause */
/* The first invalid value of each argument of the fused operations and their helpers. */
#include "backend_table.h"
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

/* --- Fused operations: arguments that are refused, or are just not ---------------------------- */

/* Two products: nothing written lies in any input of either, nor a scale in the workspace. */
TK_TEST(fused_refusals, overlaps, "SM-FUSED-10", .needs = PRODUCTS,
        .min_ranks = 2, /* or b would not find room in out */
        .max_ranks = 3) {
    struct fused_tensor more;
    const int64_t one_shape[1] = {1};
    struct fused_pair *x = pair_begin(t);
    fused_make(t, &more, SYMMEM_FLOAT32, 2, x->out.shape, 0);
    int64_t shape[1] = {one_shape[0]};
    DLTensor in_out = x->out.dl, in_a = x->a_out.dl, in_workspace = x->b.dl, one = x->b.dl;
    DLTensor b_in_out = x->b.dl, b_in_a = x->b.dl;
    b_in_out.data = x->out.dl.data;
    b_in_a.data = x->a_out.dl.data;
    in_workspace.data = ops_own(t, x->workspace);
    DLTensor *const scales_of_one[] = {&in_out, &in_a, &in_workspace, &one};
    for (int i = 0; i < 4; i++) {
        scales_of_one[i]->ndim = 1;
        scales_of_one[i]->shape = shape;
        scales_of_one[i]->strides = NULL;
    }
#define REFUSED_TWO(b0, b1, scale0, scale1)                                                        \
    do {                                                                                           \
        const DLTensor *bs[2] = {b0, b1}, *outs[2] = {&x->out.dl, &more.dl};                       \
        const DLTensor *scales[2] = {scale0, scale1};                                              \
        TK_FAILS(t, INVALID_ARGUMENT,                                                              \
                 symmem_fused_all_gather_scaled_matmul(x->workspace, &x->shard.dl, &one, 0, 2, bs, \
                                                       scales, &x->a_out.dl, outs, 0, 2000, NULL,  \
                                                       NULL));                                     \
    } while (0)
    const DLTensor *b = &x->b.dl;
    REFUSED_TWO(b, &b_in_out, &one, &one);
    REFUSED_TWO(&b_in_a, b, &one, &one);
    REFUSED_TWO(b, b, &in_out, &one);
    REFUSED_TWO(b, b, &one, &in_out);
    REFUSED_TWO(b, b, &one, &in_a);
    REFUSED_TWO(b, b, &in_workspace, &one);
#undef REFUSED_TWO
    in_out.data = x->part.dl.data;
    const DLTensor *const scales[] = {&in_out, &in_workspace};
    for (int i = 0; i < 2; i++)
        TK_FAILS(t, INVALID_ARGUMENT,
                 symmem_fused_scaled_matmul_reduce_scatter(x->workspace, &x->a.dl, &x->scatter_b.dl,
                                                           &one, scales[i], SYMMEM_SUM, 0,
                                                           &x->part.dl, 0, 2000, NULL, NULL));
    pair_expect_untouched(t, x);
}

/* A shard in this rank's workspace is there already, if it lies where the peers read it. */
TEST_WITH_AND_WITHOUT_STREAM(fused_refusals, shard_in_the_workspace, "SM-FUSED-17", PRODUCTS,
                             .max_ranks = 3) {
    struct fused_pair *x = pair_begin(t);
    struct fused_tensor there = x->shard;
    struct pair_call call = pair_call(x);
    there.memory = ops_own(t, x->workspace);
    there.dl.data = there.memory;
    there.dl.shape = there.shape;
    there.dl.strides = there.strides;
    call.shard = &there.dl;
    call.stream = stream;
    TK_OK(t, symmem_copy(t->context, there.memory, x->shard.memory, there.bytes, NULL));
    there.dl.byte_offset = sizeof(float);
    TK_FAILS(t, INVALID_ARGUMENT, pair_run(&call, PAIR_GATHER));
    there.dl.byte_offset = 0;
    there.strides[0] = 1;
    there.strides[1] = PAIR_ROWS;
    TK_FAILS(t, INVALID_ARGUMENT, pair_run(&call, PAIR_GATHER));
    pair_expect_untouched(t, x);
    memcpy(there.strides, x->shard.strides, sizeof there.strides);
    call.limit_ms = LONG_MS;
    for (int i = 0; i < 3; i++) { /* the same again: it stays */
        TK_OK(t, pair_run(&call, PAIR_GATHER));
        tk_synchronize(t, stream);
        pair_expect_gather(t, x, 1);
        fused_expect(t, &there, NULL, "the shard in the workspace");
    }
}

/* What a tensor with strides may be. Local, and nothing of it is read. */
TK_TEST(fused_refusals, descriptors, "SM-FUSED-10", .max_ranks = 1) {
    enum { NO_SHAPE = 1, NO_DATA = 2, ODD = 4, NO_DTYPE = 8 };
    const int64_t most = INT64_MAX, far = INT64_C(1) << 40;
    const struct {
        int32_t ndim, dim;
        int64_t shape[3], strides[3]; /* [0] 0: none */
        unsigned flags;
        symmem_status status;
        size_t bytes; /* for two ranks */
    } rows[] = {
        {2, 0, {3, 4}, {0}, 0, SYMMEM_OK, 768},
        {2, 0, {3, 4}, {4, 1}, 0, SYMMEM_OK, 768},
        {2, 0, {1, 4}, {-1, 1}, 0, SYMMEM_OK, 768},
        {2, 0, {3, 0}, {0}, NO_DATA, SYMMEM_OK, 0},
        {2, 0, {0, far}, {most, most}, NO_DATA, SYMMEM_OK, 0},
        {-1, 0, {3, 4}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {0, 0, {3, 4}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {0, 0, {3, 4}, {0}, NO_SHAPE, SYMMEM_INVALID_ARGUMENT, 0},
        {1, 0, {3, 4}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {3, 4}, {0}, NO_SHAPE, SYMMEM_INVALID_ARGUMENT, 0},
        {9, 0, {3, 4}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {-3, 4}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {3, -1}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {2, 4}, {-4, 1}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {3, 4}, {0}, NO_DATA, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {3, 4}, {0}, NO_DTYPE, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {3, 4}, {0}, ODD, SYMMEM_MISALIGNED, 0},
        {2, 2, {3, 4}, {0}, 0, SYMMEM_OUT_OF_RANGE, 0},
        {2, -1, {3, 4}, {0}, 0, SYMMEM_OUT_OF_RANGE, 0},
        {2, 0, {most, 2}, {0}, 0, SYMMEM_OVERFLOW, 0},
        {3, 0, {far, far, 2}, {0}, 0, SYMMEM_OVERFLOW, 0},
        {2, 0, {most / 4, 1}, {0}, 0, SYMMEM_OVERFLOW, 0},
        {2, 0, {3, 2}, {most, 1}, 0, SYMMEM_OVERFLOW, 0},
        {2, 0, {2, 2}, {most, 1}, 0, SYMMEM_OVERFLOW, 0},
        {2, 0, {2, 2}, {most / 4, 1}, 0, SYMMEM_OVERFLOW, 0},
    };
    float data[4] = {0};
    for (size_t i = 0; i < TK_COUNT(rows); i++) {
        int64_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, strides[9] = {0};
        const unsigned flags = rows[i].flags;
        size_t bytes = 77;
        memcpy(shape, rows[i].shape, sizeof rows[i].shape);
        memcpy(strides, rows[i].strides, sizeof rows[i].strides);
        const DLTensor tensor = {
            .data = (flags & NO_DATA) != 0 ? NULL : (char *)data + ((flags & ODD) != 0),
            .device = {.device_type = kDLCPU},
            .ndim = rows[i].ndim,
            .dtype = {.code = kDLFloat, .bits = (flags & NO_DTYPE) != 0 ? 12 : 32, .lanes = 1},
            .shape = (flags & NO_SHAPE) != 0 ? NULL : shape,
            .strides = rows[i].strides[0] == 0 ? NULL : strides};
        tk_checkpoint(t, "row %zu", i);
        symmem_clear_error();
        TK_STATUS(
            t, rows[i].status,
            symmem_fused_all_gather_matmul_workspace(&tensor, NULL, rows[i].dim, false, 2, &bytes));
        TK_EQ_INT(t, rows[i].status, last_record().status);
        TK_EQ_SIZE(t, rows[i].status == SYMMEM_OK ? rows[i].bytes : 77, bytes);
        if (rows[i].ndim == 0 || rows[i].ndim == 1) {
            TK_EQ_SIZE(t, 2, last_record().expected);
            TK_EQ_SIZE(t, (uint64_t)rows[i].ndim, last_record().actual);
        }
    }
}

/* Sides whose product no address reaches, of tensors without elements. */
TK_TEST(fused_refusals, endless, "SM-FUSED-10", .needs = PRODUCTS, .max_ranks = 2) {
    const int64_t far = INT64_C(1) << 40;
    int64_t shape[3] = {far, far, 0}, b_shape[2] = {0, 0}, wide[2] = {0, INT64_MAX};
    size_t bytes = 7;
    struct fused_pair *x = pair_begin(t);
    DLTensor a = x->shard.dl, b = x->b.dl, out = x->out.dl, row = x->shard.dl;
    DLTensor *const all[] = {&a, &b, &out, &row};
    for (int i = 0; i < 4; i++)
        all[i]->strides = NULL;
    a.ndim = out.ndim = 3;
    a.shape = out.shape = shape;
    b.shape = b_shape;
    row.shape = wide;
    TK_FAILS(t, OVERFLOW, symmem_fused_all_gather_matmul_workspace(&a, NULL, 2, false, 1, &bytes));
    TK_FAILS(t, OVERFLOW,
             symmem_fused_all_gather_matmul_workspace(&row, NULL, 1, false, 2, &bytes));
    TK_FAILS(t, OVERFLOW,
             symmem_fused_matmul_reduce_scatter_workspace(&a, &b, NULL, 2, &out, 1, &bytes));
    TK_EQ_SIZE(t, 7, bytes);
}

/* A byte too few, behind the handle's pointer. */
TK_TEST(fused_refusals, small_workspace, "SM-FUSED-10", .needs = PRODUCTS, .max_ranks = 3,
        .flags = TK_PLAIN_MEMORY) {
    struct fused_pair *x = pair_begin(t);
    symmem_handle *whole = x->workspace;
    x->workspace = tk_rendezvous(t, tk_alloc(t, x->bytes - 1), tk_world_group(t));
    TK_FAILS(t, OUT_OF_RANGE, pair_scatter(x, 2000, NULL));
    TK_EQ_SIZE(t, x->bytes, last_record().expected);
    pair_expect_untouched(t, x);
    tk_release(t, x->workspace);
    x->workspace = whole;
    TK_OK(t, pair_scatter(x, LONG_MS, NULL));
    pair_expect_scatter(t, x, 1);
}

/* Sides of no elements: the ranks wait for each other all the same, and PAIR_K = 0 gives zeros. */
static void check_empty(struct tk *t, int64_t rows, int64_t k, int64_t n) {
    struct fused_tensor shard, b, out, a, part;
    const int64_t shapes[5][2] = {
        {rows, k}, {k, n}, {rows * t->world_size, n}, {rows * t->world_size, k}, {rows, n}};
    size_t bytes = 0, other = 0;
    fused_make(t, &shard, SYMMEM_FLOAT32, 2, shapes[0], 0);
    fused_make(t, &b, SYMMEM_FLOAT32, 2, shapes[1], 0);
    fused_make(t, &out, SYMMEM_FLOAT32, 2, shapes[2], 0);
    fused_make(t, &a, SYMMEM_FLOAT32, 2, shapes[3], 0);
    fused_make(t, &part, SYMMEM_FLOAT32, 2, shapes[4], 0);
    fused_set_bytes(t, &out, 0x55);
    fused_set_bytes(t, &part, 0x55);
    TK_OK(t, symmem_fused_all_gather_matmul_workspace(&shard.dl, NULL, 0, false, t->world_size,
                                                      &bytes));
    TK_OK(t, symmem_fused_matmul_reduce_scatter_workspace(&a.dl, &b.dl, NULL, 0, &part.dl,
                                                          t->world_size, &other));
    symmem_handle *workspace = tk_handle(t, bytes + other + 1, tk_world_group(t));
    const DLTensor *bs[1] = {&b.dl}, *outs[1] = {&out.dl};
    TK_OK(t, symmem_fused_all_gather_matmul(workspace, &shard.dl, 0, 1, bs, NULL, outs, 0, LONG_MS,
                                            NULL, NULL));
    TK_OK(t, symmem_fused_matmul_reduce_scatter(workspace, &a.dl, &b.dl, SYMMEM_SUM, 0, &part.dl, 0,
                                                LONG_MS, NULL, NULL));
    fused_expect(t, &out, NULL, "out");
    fused_expect(t, &part, NULL, "part");
}

TK_TEST(fused_refusals, empty, "SM-FUSED-01,SM-FUSED-04", .needs = PRODUCTS, .max_ranks = 3) {
    TK_REQ(t, "SM-FUSED-01");
    check_empty(t, 0, 3, 4);
    check_empty(t, 2, 0, 4);
    check_empty(t, 2, 3, 0);
}

/* Without the capability nothing is done. */
TK_TEST(fused_refusals, refused_without_products, "SM-BACKEND-09", .max_ranks = 2) {
    struct fused_tensor a, b;
    const int64_t shape[2] = {4, 4};
    backend_without(t, SYMMEM_CAP_MATMUL);
    uint32_t *signal = tk_alloc(t, sizeof *signal);
    fused_make(t, &a, SYMMEM_FLOAT32, 2, shape, 0);
    fused_make(t, &b, SYMMEM_FLOAT32, 2, shape, 0);
    fused_set_bytes(t, &b, 0x55);
    TK_FAILS(t, UNSUPPORTED, symmem_restride(t->context, &a.dl, &b.dl, NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_async_input_mm(t->context, &a.dl, &a.dl, FLAT(signal, SYMMEM_UINT32, 1), 0,
                                   &b.dl, 30, NULL));
    symmem_handle *workspace = tk_handle(t, 4096, tk_world_group(t));
    const DLTensor *bs[1] = {&a.dl}, *outs[1] = {&b.dl};
    TK_FAILS(
        t, UNSUPPORTED,
        symmem_fused_all_gather_matmul(workspace, &a.dl, 0, 1, bs, NULL, outs, 0, 30, NULL, NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_fused_matmul_reduce_scatter(workspace, &a.dl, &a.dl, SYMMEM_SUM, 0, &b.dl, 0,
                                                30, NULL, NULL));
    fused_expect_bytes(t, &b, 0x55, "out");
}
