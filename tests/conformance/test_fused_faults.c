/* SPDX-License-Identifier: BSD-3-Clause */
/* Fused operations: refusals, a user's own product, failures, reuse, disagreement. */
#include "fused_help.h"

#define ROWS 2
#define K 3
#define N 4

/* A small gather of rows, float32, and a scatter of rows with the same workspace. */
struct set_up {
    symmem_handle *workspace;
    struct fused_tensor shard, b, out, a_out; /* gather */
    struct fused_tensor a, scatter_b, part;   /* scatter */
    const DLTensor *bs[1], *outs[1];
    size_t bytes; /* needed by either */
};

static void begin(struct tk *t, struct set_up *x, size_t more) {
    const int64_t shard[2] = {ROWS, K}, b[2] = {K, N}, part[2] = {ROWS, N};
    const int64_t full[2] = {ROWS * t->world_size, K}, out[2] = {ROWS * t->world_size, N};
    size_t other = 0;
    memset(x, 0, sizeof *x);
    fused_make(t, &x->shard, SYMMEM_FLOAT32, 2, shard, 0);
    fused_make(t, &x->b, SYMMEM_FLOAT32, 2, b, 0);
    fused_make(t, &x->out, SYMMEM_FLOAT32, 2, out, 0);
    fused_make(t, &x->a_out, SYMMEM_FLOAT32, 2, full, 0);
    fused_make(t, &x->a, SYMMEM_FLOAT32, 2, full, 0);
    fused_make(t, &x->scatter_b, SYMMEM_FLOAT32, 2, b, 0);
    fused_make(t, &x->part, SYMMEM_FLOAT32, 2, part, 0);
    x->bs[0] = &x->b.dl;
    x->outs[0] = &x->out.dl;
    TK_REQUIRE_OK(t, symmem_fused_all_gather_matmul_workspace(&x->shard.dl, NULL, 0, true,
                                                              t->world_size, &x->bytes));
    TK_REQUIRE_OK(t, symmem_fused_matmul_reduce_scatter_workspace(
                         &x->a.dl, &x->scatter_b.dl, NULL, 0, &x->part.dl, t->world_size, &other));
    if (other > x->bytes)
        x->bytes = other;
    x->workspace = tk_handle(t, x->bytes + more, tk_world_group(t));
    fused_fill(&x->shard, t->rank, 1, true);
    fused_fill(&x->b, 9, 1, true);
    fused_fill(&x->a, t->rank, 2, true);
    fused_fill(&x->scatter_b, 8, 1, true);
    fused_upload(t, &x->shard);
    fused_upload(t, &x->b);
    fused_upload(t, &x->a);
    fused_upload(t, &x->scatter_b);
    fused_set_bytes(t, &x->out, 0x55);
    fused_set_bytes(t, &x->a_out, 0x55);
    fused_set_bytes(t, &x->part, 0x55);
}

static void end(struct set_up *x) {
    struct fused_tensor *const all[] = {&x->shard, &x->b,         &x->out, &x->a_out,
                                        &x->a,     &x->scatter_b, &x->part};
    for (int i = 0; i < 7; i++)
        fused_free(all[i]);
}

static symmem_status gather(struct set_up *x, uint32_t timeout_ms, symmem_stream *stream) {
    return symmem_fused_all_gather_matmul(x->workspace, &x->shard.dl, 0, 1, x->bs, &x->a_out.dl,
                                          x->outs, 0, timeout_ms, stream, NULL);
}

static symmem_status scatter(struct set_up *x, uint32_t timeout_ms, symmem_stream *stream) {
    return symmem_fused_matmul_reduce_scatter(x->workspace, &x->a.dl, &x->scatter_b.dl, SYMMEM_SUM,
                                              0, &x->part.dl, 0, timeout_ms, stream, NULL);
}

/* The results of the two, times `factor`. */
static void expect_gather(struct tk *t, struct set_up *x, double factor) {
    struct fused_sum sum;
    fused_sum_make(t, &sum, x->out.count);
    for (int32_t r = 0; r < t->world_size; r++) {
        struct fused_tensor theirs = x->a_out;
        struct fused_sum rows = {.values = sum.values + r * ROWS * N,
                                 .magnitudes = sum.magnitudes + r * ROWS * N};
        theirs.count = ROWS * K;
        theirs.values = x->a_out.values + r * ROWS * K;
        fused_fill(&theirs, r, 1, true);
        fused_sum_add(&rows, theirs.values, ROWS, K, x->b.values, N, N, NULL, NULL);
    }
    for (size_t i = 0; i < sum.count; i++)
        sum.values[i] *= factor;
    fused_expect(t, &x->a_out, NULL, "a_out");
    fused_sum_expect(t, &sum, &x->out, true, K, 1, "out");
    fused_sum_free(&sum);
}

static void expect_scatter(struct tk *t, struct set_up *x, double factor) {
    struct fused_sum sum;
    fused_sum_make(t, &sum, x->part.count);
    for (int32_t r = 0; r < t->world_size; r++) {
        struct fused_tensor theirs = x->a;
        fused_fill(&theirs, r, 2, true);
        fused_sum_add(&sum, theirs.values + t->rank * ROWS * K, ROWS, K, x->scatter_b.values, N, N,
                      NULL, NULL);
    }
    for (size_t i = 0; i < sum.count; i++)
        sum.values[i] *= factor;
    fused_sum_expect(t, &sum, &x->part, true, K, 1, "part");
    fused_sum_free(&sum);
}

static void expect_untouched(struct tk *t, const struct set_up *x) {
    fused_expect_bytes(t, &x->out, 0x55, "out");
    fused_expect_bytes(t, &x->a_out, 0x55, "a_out");
    fused_expect_bytes(t, &x->part, 0x55, "part");
}

/* --- refusals --------------------------------------------------------------------------------- */

struct gather_args {
    const DLTensor *shard, *b, *a_out, *out;
    int32_t dim, b_count, channel;
};

static struct gather_args good(const struct set_up *x) {
    return (struct gather_args){&x->shard.dl, &x->b.dl, &x->a_out.dl, &x->out.dl, 0, 1, 0};
}

static symmem_status gather_with(const struct set_up *x, struct gather_args args) {
    return symmem_fused_all_gather_matmul(x->workspace, args.shard, args.dim, args.b_count, &args.b,
                                          args.a_out, &args.out, args.channel, 2000, NULL, NULL);
}

/* Each rank is refused at once: a rank that waited would end with TIMEOUT. */
static void gather_refusals(struct tk *t) {
    struct set_up x;
    struct fused_tensor half, columns, wide;
    TK_REQ(t, "SM-FUSED-10");
    begin(t, &x, 0);
    fused_make(t, &half, SYMMEM_BFLOAT16, 2, x.b.shape, 0);
    fused_make_columns(t, &columns, SYMMEM_FLOAT32, x.out.shape[0], N);
    const int64_t wide_shape[2] = {K + 4, N};
    fused_make(t, &wide, SYMMEM_FLOAT32, 2, wide_shape, 0);
    DLTensor misplaced = x.shard.dl, crooked = x.out.dl, outside = x.out.dl;
    misplaced.data = ops_own(t, x.workspace);
    crooked.byte_offset = 2;
    outside.byte_offset = x.out.bytes / 2;
    symmem_handle_info info = info_of(t, x.workspace);
#define REFUSED(expected, ...)                                                                     \
    do {                                                                                           \
        struct gather_args args = good(&x);                                                        \
        __VA_ARGS__;                                                                               \
        TK_STATUS(t, expected, gather_with(&x, args));                                             \
    } while (0)
    REFUSED(SYMMEM_OUT_OF_RANGE, args.dim = 2);
    REFUSED(SYMMEM_OUT_OF_RANGE, args.dim = -1);
    REFUSED(SYMMEM_OUT_OF_RANGE, args.channel = -1);
    REFUSED(SYMMEM_OUT_OF_RANGE, args.channel = info.channel_count - 1);
    REFUSED(SYMMEM_INVALID_ARGUMENT, args.b_count = 0);
    REFUSED(SYMMEM_INVALID_ARGUMENT, args.shard = NULL);
    REFUSED(SYMMEM_INVALID_ARGUMENT, args.b = NULL);
    REFUSED(SYMMEM_INVALID_ARGUMENT, args.out = NULL);
    REFUSED(SYMMEM_INVALID_ARGUMENT, args.b = &half.dl);
    REFUSED(SYMMEM_INVALID_ARGUMENT, args.b = &wide.dl);
    REFUSED(SYMMEM_INVALID_ARGUMENT, args.out = &wide.dl);
    REFUSED(SYMMEM_INVALID_ARGUMENT, args.out = &columns.dl);
    REFUSED(SYMMEM_INVALID_ARGUMENT, args.out = &x.a_out.dl; args.a_out = NULL);
    REFUSED(SYMMEM_INVALID_ARGUMENT, args.a_out = &x.out.dl);
    REFUSED(SYMMEM_INVALID_ARGUMENT, args.shard = &misplaced);
    REFUSED(SYMMEM_MISALIGNED, args.out = &crooked);
    REFUSED(SYMMEM_OUT_OF_RANGE, args.out = &outside);
#undef REFUSED
    expect_untouched(t, &x);
    TK_OK(t, gather(&x, tk_scaled_ms(LONG_MS), NULL));
    expect_gather(t, &x, 1);
    fused_free(&half);
    fused_free(&columns);
    fused_free(&wide);
    end(&x);
}

static void scatter_refusals(struct tk *t) {
    struct set_up x;
    struct fused_tensor odd;
    TK_REQ(t, "SM-FUSED-10");
    begin(t, &x, 0);
    const int64_t odd_shape[2] = {ROWS * t->world_size + 1, K};
    fused_make(t, &odd, SYMMEM_FLOAT32, 2, odd_shape, 0);
    symmem_handle_info info = info_of(t, x.workspace);
    DLTensor inside = x.part.dl;
    inside.data = ops_own(t, x.workspace);
#define REFUSED(expected, a_, b_, op_, dim_, out_, channel_)                                       \
    TK_STATUS(t, expected,                                                                         \
              symmem_fused_matmul_reduce_scatter(x.workspace, a_, b_, op_, dim_, out_, channel_,   \
                                                 2000, NULL, NULL))
    const DLTensor *a = &x.a.dl, *b = &x.scatter_b.dl, *part = &x.part.dl;
    REFUSED(SYMMEM_OUT_OF_RANGE, a, b, SYMMEM_SUM, 2, part, 0);
    REFUSED(SYMMEM_OUT_OF_RANGE, a, b, SYMMEM_SUM, -1, part, 0);
    REFUSED(SYMMEM_OUT_OF_RANGE, a, b, SYMMEM_SUM, 0, part, info.channel_count - 1);
    REFUSED(SYMMEM_UNSUPPORTED, a, b, SYMMEM_MAX, 0, part, 0);
    REFUSED(SYMMEM_UNSUPPORTED, a, b, SYMMEM_MIN, 0, part, 0);
    REFUSED(SYMMEM_INVALID_ARGUMENT, a, b, (symmem_reduce_op)99, 0, part, 0);
    REFUSED(SYMMEM_INVALID_ARGUMENT, NULL, b, SYMMEM_SUM, 0, part, 0);
    REFUSED(SYMMEM_INVALID_ARGUMENT, a, b, SYMMEM_SUM, 0, NULL, 0);
    REFUSED(SYMMEM_INVALID_ARGUMENT, a, b, SYMMEM_SUM, 0, &inside, 0);
    if (t->world_size > 1) {
        REFUSED(SYMMEM_INVALID_ARGUMENT, &odd.dl, b, SYMMEM_SUM, 0, part, 0);
        REFUSED(SYMMEM_INVALID_ARGUMENT, a, b, SYMMEM_SUM, 0, &x.out.dl, 0);
    }
#undef REFUSED
    expect_untouched(t, &x);
    TK_OK(t, scatter(&x, tk_scaled_ms(LONG_MS), NULL));
    expect_scatter(t, &x, 1);
    fused_free(&odd);
    end(&x);
}

/* A byte too few, behind the handle's pointer. */
static void small_workspace(struct tk *t) {
    struct set_up x;
    TK_REQ(t, "SM-FUSED-10");
    begin(t, &x, 0);
    symmem_handle *whole = x.workspace;
    x.workspace = tk_rendezvous(t, tk_alloc(t, x.bytes - 1), tk_world_group(t));
    size_t gather_bytes = 0;
    TK_OK(t, symmem_fused_all_gather_matmul_workspace(&x.shard.dl, NULL, 0, true, t->world_size,
                                                      &gather_bytes));
    TK_STATUS(t, gather_bytes == x.bytes ? SYMMEM_OUT_OF_RANGE : SYMMEM_OUT_OF_RANGE,
              scatter(&x, 2000, NULL));
    TK_EQ_SIZE(t, x.bytes, last_record().expected);
    expect_untouched(t, &x);
    tk_release(t, x.workspace);
    x.workspace = whole;
    TK_OK(t, scatter(&x, tk_scaled_ms(LONG_MS), NULL));
    expect_scatter(t, &x, 1);
    end(&x);
}

/* Sides of no elements: the ranks meet all the same, and K = 0 gives zeros. */
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
    TK_OK(t, symmem_fused_all_gather_matmul(workspace, &shard.dl, 0, 1, bs, NULL, outs, 0,
                                            tk_scaled_ms(LONG_MS), NULL, NULL));
    TK_OK(t, symmem_fused_matmul_reduce_scatter(workspace, &a.dl, &b.dl, SYMMEM_SUM, 0, &part.dl, 0,
                                                tk_scaled_ms(LONG_MS), NULL, NULL));
    fused_expect(t, &out, NULL, "out");
    fused_expect(t, &part, NULL, "part");
    struct fused_tensor *const all[] = {&shard, &b, &out, &a, &part};
    for (int i = 0; i < 5; i++)
        fused_free(all[i]);
}

static void empty(struct tk *t) {
    TK_REQ(t, "SM-FUSED-01");
    check_empty(t, 0, 3, 4);
    check_empty(t, 2, 0, 4);
    check_empty(t, 2, 3, 0);
}

/* --- a user's own product --------------------------------------------------------------------- */

struct own_product {
    atomic_int calls;
    symmem_status status; /* of each call */
    uint32_t delay_ms;
};

/* Twice the product, or a failure. */
static symmem_status twice(void *arg, const symmem_matmul *p, void *native_stream) {
    struct own_product *own = arg;
    (void)native_stream;
    atomic_fetch_add_explicit(&own->calls, 1, memory_order_relaxed);
    if (own->delay_ms > 0)
        tk_sleep_ms(own->delay_ms);
    if (own->status != SYMMEM_OK)
        return own->status;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double magnitude, value = 2 * symmem_reference_matmul(p, i, j, &magnitude);
            symmem_reference_store(p->out_dtype, p->out, i * p->out_row + j * p->out_column, value);
        }
    return SYMMEM_OK;
}

static void own_product_of(struct tk *t, symmem_stream *stream) {
    struct set_up x;
    struct own_product own = {.status = SYMMEM_OK};
    begin(t, &x, 0);
    TK_OK(t, symmem_set_matmul(t->context, twice, &own));
    TK_OK(t, gather(&x, tk_scaled_ms(LONG_MS), stream));
    TK_OK(t, scatter(&x, tk_scaled_ms(LONG_MS), stream));
    TK_OK(t, symmem_set_matmul(t->context, NULL, NULL));
    if (stream != NULL)
        tk_synchronize(t, stream);
    TK_EQ_INT(t, 2 * t->world_size, atomic_load_explicit(&own.calls, memory_order_relaxed));
    expect_gather(t, &x, 2);
    expect_scatter(t, &x, 2);
    TK_OK(t, gather(&x, tk_scaled_ms(LONG_MS), stream));
    if (stream != NULL)
        tk_synchronize(t, stream);
    expect_gather(t, &x, 1);
    end(&x);
}

static void own_product(struct tk *t) {
    TK_REQ(t, "SM-FUSED-11");
    own_product_of(t, NULL);
}

static void own_product_on_stream(struct tk *t) {
    TK_REQ(t, "SM-FUSED-11");
    own_product_of(t, tk_stream(t));
}

/* --- failures --------------------------------------------------------------------------------- */

static symmem_status both_ends(symmem_status status, symmem_stream *stream) {
    if (stream == NULL)
        return status;
    symmem_status late = symmem_stream_synchronize(stream, tk_scaled_ms(LONG_MS));
    return status != SYMMEM_OK ? status : late;
}

/* The last rank's product fails, in one operation and then in the other. */
static void failing(struct tk *t, symmem_stream *stream) {
    struct set_up x;
    struct own_product own = {.status = SYMMEM_LIMIT};
    bool fails = t->rank == t->world_size - 1;
    TK_REQ(t, "SM-FUSED-12");
    begin(t, &x, 0);
    for (int i = 0; i < 2; i++) {
        uint64_t begin_ms = tk_now_ms();
        if (fails)
            TK_OK(t, symmem_set_matmul(t->context, twice, &own));
        symmem_status status = i == 0 ? gather(&x, tk_scaled_ms(LONG_MS), stream)
                                      : scatter(&x, tk_scaled_ms(LONG_MS), stream);
        status = both_ends(status, stream);
        if (fails && stream != NULL) /* it may have been the second stream's */
            TK_STATUS_EITHER(t, SYMMEM_LIMIT, SYMMEM_POISONED, status);
        else
            TK_STATUS(t, fails ? SYMMEM_LIMIT : SYMMEM_POISONED, status);
        if (fails)
            TK_STATUS(t, SYMMEM_LIMIT, symmem_handle_status(x.workspace, NULL));
        TK_CHECK_MSG(t, tk_now_ms() - begin_ms < tk_scaled_ms(LONG_MS) / 2, "it took too long");
        TK_OK(t, symmem_set_matmul(t->context, NULL, NULL));
        TK_STATUS(t, SYMMEM_POISONED, gather(&x, 1000, stream));
        TK_OK(t, symmem_handle_reset(x.workspace, tk_scaled_ms(LONG_MS)));
        TK_OK(t, both_ends(gather(&x, tk_scaled_ms(LONG_MS), stream), stream));
        expect_gather(t, &x, 1);
    }
    end(&x);
}

static void product_fails(struct tk *t) {
    failing(t, NULL);
}

static void product_fails_on_stream(struct tk *t) {
    failing(t, tk_stream(t));
}

/* Rank 0 does not call. */
static void rank_missing(struct tk *t) {
    struct set_up x;
    TK_REQ(t, "SM-FUSED-12");
    begin(t, &x, 0);
    for (int i = 0; i < 2; i++) {
        uint64_t begin_ms = tk_now_ms();
        if (t->rank != 0) {
            TK_STATUS_EITHER(t, SYMMEM_TIMEOUT, SYMMEM_POISONED,
                             i == 0 ? gather(&x, 30, NULL) : scatter(&x, 30, NULL));
            TK_CHECK(t, tk_now_ms() - begin_ms < tk_scaled_ms(5000));
            expect_untouched(t, &x);
        }
        TK_OK(t, symmem_handle_reset(x.workspace, tk_scaled_ms(LONG_MS)));
    }
    TK_OK(t, gather(&x, tk_scaled_ms(LONG_MS), NULL));
    expect_gather(t, &x, 1);
    end(&x);
}

/* Without the capability nothing is done. */
static void refused_without(struct tk *t) {
    struct fused_tensor a, b;
    struct ops_tensor words;
    const int64_t shape[2] = {4, 4};
    uint32_t *signal = tk_alloc(t, sizeof *signal);
    TK_REQ(t, "SM-BACKEND-09");
    fused_make(t, &a, SYMMEM_FLOAT32, 2, shape, 0);
    fused_make(t, &b, SYMMEM_FLOAT32, 2, shape, 0);
    fused_set_bytes(t, &b, 0x55);
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_restride(t->context, &a.dl, &b.dl, NULL));
    TK_STATUS(t, SYMMEM_UNSUPPORTED,
              symmem_async_input_mm(t->context, &a.dl, &a.dl,
                                    ops_flat(&words, signal, SYMMEM_UINT32, 1), 0, &b.dl, 30,
                                    NULL));
    symmem_handle *workspace = tk_handle(t, 4096, tk_world_group(t));
    const DLTensor *bs[1] = {&a.dl}, *outs[1] = {&b.dl};
    TK_STATUS(
        t, SYMMEM_UNSUPPORTED,
        symmem_fused_all_gather_matmul(workspace, &a.dl, 0, 1, bs, NULL, outs, 0, 30, NULL, NULL));
    TK_STATUS(t, SYMMEM_UNSUPPORTED,
              symmem_fused_matmul_reduce_scatter(workspace, &a.dl, &a.dl, SYMMEM_SUM, 0, &b.dl, 0,
                                                 30, NULL, NULL));
    fused_expect_bytes(t, &b, 0x55, "out");
    fused_free(&a);
    fused_free(&b);
}

/* --- reuse ------------------------------------------------------------------------------------ */

/* Rank 0's products take their time; the others spoil their workspace and inputs once they are
 * through. */
static void reused_at_once(struct tk *t) {
    struct set_up x;
    struct own_product own = {.status = SYMMEM_OK, .delay_ms = 15};
    TK_REQ(t, "SM-FUSED-13");
    begin(t, &x, 0);
    TK_OK(t, symmem_set_matmul(t->context, twice, &own));
    own.delay_ms = t->rank == 0 ? 15 : 0;
    for (int i = 0; i < 2; i++) {
        TK_OK(t, i == 0 ? gather(&x, tk_scaled_ms(LONG_MS), NULL)
                        : scatter(&x, tk_scaled_ms(LONG_MS), NULL));
        tk_fill(t, x.workspace, t->rank, 0, x.bytes, 0xff);
        fused_set_bytes(t, i == 0 ? &x.shard : &x.a, 0xff);
    }
    expect_gather(t, &x, 2);
    expect_scatter(t, &x, 2);
    TK_OK(t, symmem_set_matmul(t->context, NULL, NULL));
    end(&x);
}

/* --- disagreement ----------------------------------------------------------------------------- */

static void check_apart(struct tk *t, struct set_up *x, int kind, symmem_stream *stream) {
    const int64_t other_shape[2] = {ROWS / 2, K * 2};
    bool odd = t->rank == t->world_size - 1;
    DLTensor other = x->shard.dl;
    int64_t strides[2] = {K * 2, 1}, shape[2] = {other_shape[0], other_shape[1]};
    struct fused_tensor wide_b, few_out;
    const int64_t b_shape[2] = {K * 2, N}, out_shape[2] = {ROWS / 2 * t->world_size, N};
    fused_make(t, &wide_b, SYMMEM_FLOAT32, 2, b_shape, 0);
    fused_make(t, &few_out, SYMMEM_FLOAT32, 2, out_shape, 0);
    const DLTensor *bs[1] = {&wide_b.dl}, *outs[1] = {&few_out.dl};
    other.shape = shape;
    other.strides = strides;
    symmem_status status;
    uint32_t limit_ms = tk_scaled_ms(LONG_MS);
    if (!odd)
        status = gather(x, limit_ms, stream);
    else if (kind == 0)
        status = symmem_fused_all_gather_matmul(x->workspace, &other, 0, 1, bs, NULL, outs, 0,
                                                limit_ms, stream, NULL);
    else if (kind == 1)
        status = scatter(x, limit_ms, stream);
    else
        status = symmem_barrier(x->workspace, 0, limit_ms, stream);
    TK_STATUS(t, SYMMEM_MISMATCH, both_ends(status, stream));
    TK_EQ_INT(t, odd ? 0 : t->world_size - 1, last_record().failed_rank);
    fused_free(&wide_b);
    fused_free(&few_out);
    expect_untouched(t, x);
    TK_OK(t, symmem_handle_reset(x->workspace, limit_ms));
}

static void ranks_disagree(struct tk *t) {
    struct set_up x;
    TK_REQ(t, "SM-FUSED-14");
    begin(t, &x, 0);
    for (int kind = 0; kind < 3; kind++)
        check_apart(t, &x, kind, NULL);
    TK_OK(t, gather(&x, tk_scaled_ms(LONG_MS), NULL));
    expect_gather(t, &x, 1);
    end(&x);
}

static void ranks_disagree_on_streams(struct tk *t) {
    struct set_up x;
    symmem_stream *stream = tk_stream(t);
    TK_REQ(t, "SM-FUSED-14");
    begin(t, &x, 0);
    for (int kind = 0; kind < 2; kind++)
        check_apart(t, &x, kind, stream);
    TK_OK(t, both_ends(gather(&x, tk_scaled_ms(LONG_MS), stream), stream));
    expect_gather(t, &x, 1);
    end(&x);
}

static const struct tk_case cases[] = {
    {.name = "fused_faults.gather_refusals",
     .requirements = "SM-FUSED-10",
     .needs = PRODUCTS,
     .max_ranks = 3,
     .body = gather_refusals},
    {.name = "fused_faults.scatter_refusals",
     .requirements = "SM-FUSED-10",
     .needs = PRODUCTS,
     .max_ranks = 3,
     .body = scatter_refusals},
    {.name = "fused_faults.small_workspace",
     .requirements = "SM-FUSED-10",
     .needs = PRODUCTS,
     .max_ranks = 3,
     .flags = TK_PLAIN_MEMORY,
     .body = small_workspace},
    {.name = "fused_faults.own_product",
     .requirements = "SM-FUSED-11",
     .needs = PRODUCTS | SYMMEM_CAP_HOST_ACCESS,
     .max_ranks = 3,
     .body = own_product},
    {.name = "fused_faults.own_product_on_stream",
     .requirements = "SM-FUSED-11",
     .needs = PRODUCTS | SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_STREAMS,
     .max_ranks = 3,
     .body = own_product_on_stream},
    {.name = "fused_faults.product_fails",
     .requirements = "SM-FUSED-12",
     .needs = PRODUCTS,
     .min_ranks = 2,
     .max_ranks = 3,
     .body = product_fails},
    {.name = "fused_faults.product_fails_on_stream",
     .requirements = "SM-FUSED-12",
     .needs = PRODUCTS | SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_ACCESS,
     .min_ranks = 2,
     .max_ranks = 3,
     .body = product_fails_on_stream},
    {.name = "fused_faults.rank_missing",
     .requirements = "SM-FUSED-12",
     .needs = PRODUCTS,
     .min_ranks = 2,
     .max_ranks = 3,
     .body = rank_missing},
    {.name = "fused_faults.refused_without_products",
     .requirements = "SM-BACKEND-09",
     .needs_absent = SYMMEM_CAP_MATMUL,
     .max_ranks = 2,
     .body = refused_without},
    {.name = "fused_faults.empty",
     .requirements = "SM-FUSED-01,SM-FUSED-04",
     .needs = PRODUCTS,
     .max_ranks = 3,
     .body = empty},
    {.name = "fused_faults.reused_at_once",
     .requirements = "SM-FUSED-13",
     .needs = PRODUCTS | SYMMEM_CAP_HOST_ACCESS,
     .min_ranks = 2,
     .max_ranks = 3,
     .body = reused_at_once},
    {.name = "fused_faults.ranks_disagree",
     .requirements = "SM-FUSED-14",
     .needs = PRODUCTS,
     .min_ranks = 2,
     .max_ranks = 3,
     .body = ranks_disagree},
    {.name = "fused_faults.ranks_disagree_on_streams",
     .requirements = "SM-FUSED-14",
     .needs = PRODUCTS | SYMMEM_CAP_STREAMS,
     .min_ranks = 2,
     .max_ranks = 3,
     .body = ranks_disagree_on_streams},
};
TK_SUITE(fused_faults, cases);
