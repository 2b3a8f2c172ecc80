/* SPDX-License-Identifier: BSD-3-Clause */
/* Gather, then multiply: every dimension, layout, dtype and scale against the scalar reference. */
#include "fused_help.h"

#define B_COUNT 3
#define MAX_RANKS 8
#define NDIM 3

struct gather_case {
    symmem_dtype dtype, out_dtype;
    int32_t dim;
    enum { PLAIN, BY_TENSOR, REPLICATED, SHARDED } scaling;
    bool want_a;
    bool restrided; /* the shard and its scales have the layout of dim already */
    bool whole;     /* values, and so results, are whole numbers */
};

/* The plain ones, then the scaled ones. */
enum { PLAIN_CASES = 8, SCALED_CASES = 8 };
static const struct gather_case cases[PLAIN_CASES + SCALED_CASES] = {
    {SYMMEM_FLOAT32, SYMMEM_FLOAT32, 0, PLAIN, true, false, true},
    {SYMMEM_FLOAT32, SYMMEM_FLOAT32, 1, PLAIN, true, true, true},
    {SYMMEM_FLOAT32, SYMMEM_FLOAT32, 2, PLAIN, true, false, true},
    {SYMMEM_FLOAT32, SYMMEM_FLOAT32, 1, PLAIN, false, false, false},
    {SYMMEM_FLOAT64, SYMMEM_FLOAT64, 2, PLAIN, false, true, false},
    {SYMMEM_BFLOAT16, SYMMEM_FLOAT32, 0, PLAIN, false, true, true},
    {SYMMEM_BFLOAT16, SYMMEM_BFLOAT16, 2, PLAIN, true, true, false},
    {SYMMEM_FLOAT16, SYMMEM_FLOAT16, 1, PLAIN, true, false, false},
    {SYMMEM_INT8, SYMMEM_FLOAT32, 0, BY_TENSOR, true, false, true},
    {SYMMEM_INT8, SYMMEM_BFLOAT16, 1, REPLICATED, true, false, true},
    {SYMMEM_UINT8, SYMMEM_FLOAT32, 1, SHARDED, false, false, true},
    {SYMMEM_BFLOAT16, SYMMEM_FLOAT32, 0, SHARDED, true, true, false},
    {SYMMEM_FLOAT16, SYMMEM_BFLOAT16, 1, SHARDED, true, true, false},
    {SYMMEM_FLOAT32, SYMMEM_FLOAT32, 2, SHARDED, true, true, true},
    {SYMMEM_BFLOAT16, SYMMEM_FLOAT32, 1, REPLICATED, false, true, true},
    {SYMMEM_INT8, SYMMEM_FLOAT32, 2, BY_TENSOR, true, true, true},
};

struct gather_run {
    const struct gather_case *c;
    struct fused_place place;
    struct fused_tensor shard, a_scale, a_out, b[B_COUNT], b_scale[B_COUNT], out[B_COUNT];
    const DLTensor *bs[B_COUNT], *b_scales[B_COUNT], *outs[B_COUNT];
};

static bool is_scaled(const struct gather_case *c) {
    return c->scaling != PLAIN;
}

/* Small powers of two, so that scaled whole numbers stay exact. */
static void fill_scale(struct fused_tensor *scale, int32_t rank) {
    for (size_t i = 0; i < scale->count; i++)
        scale->values[i] = 0.25 * (double)(1u << (word_of(rank, 77, i) * 0x9e3779b1u >> 30));
}

static void make_scales(struct tk *t, struct gather_run *run, const int64_t *shape) {
    const struct gather_case *c = run->c;
    int64_t rows[NDIM] = {shape[0], shape[1], 1};
    const int64_t one[1] = {1};
    if (c->scaling == REPLICATED && c->dim < NDIM - 1)
        rows[c->dim] *= run->place.shape->count;
    if (c->scaling == BY_TENSOR)
        fused_make(t, &run->a_scale, SYMMEM_FLOAT32, 1, one, 0);
    else
        fused_make(t, &run->a_scale, SYMMEM_FLOAT32, NDIM, rows,
                   c->restrided && c->dim < NDIM - 1 ? c->dim : 0);
    fill_scale(&run->a_scale, c->scaling == SHARDED ? run->place.shape->rank : 5);
    fused_upload(t, &run->a_scale);
    for (int i = 0; i < B_COUNT; i++) {
        const int64_t columns[2] = {1, c->scaling == BY_TENSOR ? 1 : run->b[i].shape[1]};
        fused_make(t, &run->b_scale[i], SYMMEM_FLOAT32, 2, columns, 0);
        fill_scale(&run->b_scale[i], 20 + i);
        fused_upload(t, &run->b_scale[i]);
        run->b_scales[i] = &run->b_scale[i].dl;
    }
}

static void make_products(struct tk *t, struct gather_run *run, const int64_t *full) {
    const struct gather_case *c = run->c;
    for (int i = 0; i < B_COUNT; i++) {
        const int64_t b_shape[2] = {full[NDIM - 1], 3 + 2 * i};
        if (i == 1)
            fused_make_columns(t, &run->b[i], c->dtype, b_shape[0], b_shape[1]);
        else
            fused_make(t, &run->b[i], c->dtype, 2, b_shape, 0);
        fused_fill(&run->b[i], 10 + i, 1, c->whole);
        fused_upload(t, &run->b[i]);
        const int64_t out_shape[NDIM] = {full[0], full[1], b_shape[1]};
        fused_make(t, &run->out[i], c->out_dtype, NDIM, out_shape, c->dim == NDIM - 1 ? 0 : c->dim);
        run->bs[i] = &run->b[i].dl;
        run->outs[i] = &run->out[i].dl;
    }
}

static void *begin_run(struct tk *t, symmem_group *group, const struct fused_place *place,
                       int number) {
    struct gather_run *run = tk_scratch(t, sizeof *run);
    const struct gather_case *c = &cases[number];
    run->c = c;
    run->place = *place;
    const int64_t shape[NDIM] = {2, 3, 4};
    int64_t full[NDIM] = {2, 3, 4};
    size_t bytes = 0;
    full[c->dim] *= run->place.shape->count;
    fused_make(t, &run->shard, c->dtype, NDIM, shape, c->restrided ? c->dim : 0);
    fused_make(t, &run->a_out, c->dtype, NDIM, full, c->dim);
    make_products(t, run, full);
    if (is_scaled(c))
        make_scales(t, run, shape);
    TK_REQUIRE_OK(t, symmem_fused_all_gather_matmul_workspace(
                         &run->shard.dl, is_scaled(c) ? &run->a_scale.dl : NULL, c->dim, c->want_a,
                         run->place.shape->count, &bytes));
    if (run->place.workspace == NULL)
        run->place.workspace = tk_handle(t, bytes, group);
    else
        TK_REQUIRE(t, bytes <= FUSED_WORKSPACE_BYTES);
    return run;
}

static void end_run(struct tk *t, void *arg) {
    struct gather_run *run = arg;
    struct fused_tensor *const all[] = {&run->shard, &run->a_scale, &run->a_out};
    for (int i = 0; i < 3 + 3 * B_COUNT; i++) {
        struct fused_tensor *tensor = i < 3                 ? all[i]
                                      : i < 3 + B_COUNT     ? &run->b[i - 3]
                                      : i < 3 + 2 * B_COUNT ? &run->out[i - 3 - B_COUNT]
                                                            : &run->b_scale[i - 3 - 2 * B_COUNT];
        if (tensor->memory != NULL)
            tk_free(t, tensor->memory);
    }
}

static symmem_status call(void *arg) {
    struct gather_run *run = arg;
    const struct gather_case *c = run->c;
    const DLTensor *a_out = c->want_a ? &run->a_out.dl : NULL;
    if (is_scaled(c))
        return symmem_fused_all_gather_scaled_matmul(
            run->place.workspace, &run->shard.dl, &run->a_scale.dl, c->dim, B_COUNT, run->bs,
            run->b_scales, a_out, run->outs, 0, LONG_MS, run->place.stream, run->place.second);
    return symmem_fused_all_gather_matmul(run->place.workspace, &run->shard.dl, c->dim, B_COUNT,
                                          run->bs, a_out, run->outs, 0, LONG_MS, run->place.stream,
                                          run->place.second);
}

static void put_shard(struct tk *t, void *arg, uint32_t generation) {
    struct gather_run *run = arg;
    fused_fill(&run->shard, run->place.shape->rank, generation, run->c->whole);
    fused_upload(t, &run->shard);
    fused_set_bytes(t, &run->a_out, 0x55);
    for (int i = 0; i < B_COUNT; i++)
        fused_set_bytes(t, &run->out[i], 0x55);
}

/* Rank r's shard, or scales, as it makes them. */
static double *peers_values(struct tk *t, const struct fused_tensor *own, int32_t rank,
                            uint32_t generation, bool scale, bool whole) {
    struct fused_tensor theirs = *own;
    theirs.values = tk_scratch(t, own->count * sizeof(double));
    if (scale)
        fill_scale(&theirs, rank);
    else
        fused_fill(&theirs, rank, generation, whole);
    return theirs.values;
}

/* One scale a row (of `rows`), whatever they were given as; NULL without. */
static double *spread(struct tk *t, const struct fused_tensor *scale, const double *values,
                      int64_t rows) {
    double *all = tk_scratch(t, (size_t)rows * sizeof *all);
    for (int64_t i = 0; i < rows; i++)
        all[i] = values[scale->count == 1 ? 0 : i];
    return all;
}

/* The product of one b with all shards, of which `sums` gets what it should be. */
static void add_up(struct tk *t, const struct gather_run *run, double *const *shards,
                   double *const *scales, int i, struct fused_sum *sum) {
    const struct gather_case *c = run->c;
    int32_t ranks = run->place.shape->count;
    int64_t n = run->b[i].shape[1], k = run->shard.shape[NDIM - 1];
    int64_t rows = run->shard.shape[0] * run->shard.shape[1];
    bool along_k = c->dim == NDIM - 1;
    const double *b = run->b[i].values;
    double *b_scale = is_scaled(c) ? spread(t, &run->b_scale[i], run->b_scale[i].values, n) : NULL;
    if (along_k) {
        for (int32_t r = 0; r < ranks; r++) {
            double *a_scale = is_scaled(c) ? spread(t, &run->a_scale, scales[r], rows) : NULL;
            fused_sum_add(sum, shards[r], rows, k, b + r * k * n, n, n, a_scale, b_scale);
        }
    } else {
        const int64_t scale_shape[NDIM] = {run->shard.shape[0], run->shard.shape[1], 1};
        double *all =
            fused_gather(t, (const double *const *)shards, ranks, NDIM, run->shard.shape, c->dim);
        double *a_scale = NULL;
        if (c->scaling == SHARDED)
            a_scale =
                fused_gather(t, (const double *const *)scales, ranks, NDIM, scale_shape, c->dim);
        else if (is_scaled(c))
            a_scale = spread(t, &run->a_scale, run->a_scale.values, rows * ranks);
        fused_sum_add(sum, all, rows * ranks, k, b, n, n, a_scale, b_scale);
    }
}

static void check_results(struct tk *t, void *arg, uint32_t generation) {
    struct gather_run *run = arg;
    const struct gather_case *c = run->c;
    int32_t ranks = run->place.shape->count;
    int64_t k = run->a_out.shape[NDIM - 1];
    double *shards[MAX_RANKS], *scales[MAX_RANKS];
    bool narrow = c->out_dtype == SYMMEM_FLOAT16 || c->out_dtype == SYMMEM_BFLOAT16;
    for (int32_t r = 0; r < ranks; r++) {
        shards[r] = peers_values(t, &run->shard, r, generation, false, c->whole);
        scales[r] = is_scaled(c) ? peers_values(t, &run->a_scale, c->scaling == SHARDED ? r : 5, 0,
                                                true, false)
                                 : NULL;
    }
    if (c->want_a) {
        run->a_out.values =
            fused_gather(t, (const double *const *)shards, ranks, NDIM, run->shard.shape, c->dim);
        fused_expect(t, &run->a_out, NULL, "a_out");
    } else {
        fused_expect_bytes(t, &run->a_out, 0x55, "a_out, which was not given");
    }
    for (int i = 0; i < B_COUNT; i++) {
        struct fused_sum sum;
        fused_sum_make(t, &sum, run->out[i].count);
        add_up(t, run, shards, scales, i, &sum);
        fused_sum_expect(t, &sum, &run->out[i], c->whole && !narrow, k,
                         c->dim == NDIM - 1 ? ranks : 1, "out");
    }
}

static const struct fused_family family = {begin_run, put_shard, call, check_results, end_run};

TK_PORTED(test_fused_all_gather_matmul, "SM-FUSED-01,SM-FUSED-03", .needs = PRODUCTS,
          .max_ranks = MAX_RANKS) {
    TK_REQ(t, "SM-FUSED-01");
    fused_run_cases(t, &family, 0, PLAIN_CASES, false);
}

TK_PORTED(test_fused_all_gather_scaled_matmul, "SM-FUSED-02,SM-FUSED-03", .needs = PRODUCTS,
          .max_ranks = MAX_RANKS) {
    TK_REQ(t, "SM-FUSED-02");
    fused_run_cases(t, &family, PLAIN_CASES, SCALED_CASES, false);
}

TK_TEST(fused, on_streams, "SM-FUSED-01,SM-FUSED-02", .needs = PRODUCTS | SYMMEM_CAP_STREAMS,
        .max_ranks = MAX_RANKS) {
    fused_run_cases(t, &family, 0, 3, true);
    fused_run_cases(t, &family, PLAIN_CASES + 1, 2, true);
}

/* Shards of one row, gathered along each dimension: what has one element has no stride to go by. */
static void gather_one_row(struct tk *t, int32_t dim, int64_t n) {
    enum { K = 4 };
    const int64_t ranks = t->world_size, rows = dim == 0 ? ranks : 1, k = dim == 0 ? K : K * ranks;
    const int64_t shard_shape[2] = {1, K}, b_shape[2] = {k, n}, out_shape[2] = {rows, n};
    struct fused_tensor shard, b, out;
    struct fused_sum sum;
    size_t bytes = 0;
    fused_make(t, &shard, SYMMEM_FLOAT32, 2, shard_shape, 0);
    fused_make(t, &b, SYMMEM_FLOAT32, 2, b_shape, 0);
    fused_make(t, &out, SYMMEM_FLOAT32, 2, out_shape, 0);
    fused_fill(&b, 9, 1, true);
    fused_upload(t, &b);
    fused_sum_make(t, &sum, out.count);
    for (int32_t r = 0; r < ranks; r++) {
        struct fused_sum row = {sum.values + (dim == 0 ? r * n : 0),
                                sum.magnitudes + (dim == 0 ? r * n : 0), (size_t)n};
        fused_fill(&shard, r, 1, true);
        fused_sum_add(&row, shard.values, 1, K, b.values + (dim == 0 ? 0 : r * K * n), n, n, NULL,
                      NULL);
    }
    fused_fill(&shard, t->rank, 1, true);
    fused_upload(t, &shard);
    TK_REQUIRE_OK(t, symmem_fused_all_gather_matmul_workspace(&shard.dl, NULL, dim, false,
                                                              t->world_size, &bytes));
    symmem_handle *workspace = tk_handle(t, bytes, tk_world_group(t));
    const DLTensor *const bs[1] = {&b.dl}, *const outs[1] = {&out.dl};
    TK_OK(t, symmem_fused_all_gather_matmul(workspace, &shard.dl, dim, 1, bs, NULL, outs, 0,
                                            LONG_MS, NULL, NULL));
    fused_sum_expect(t, &sum, &out, true, k, 1, "out");
}

TK_TEST(fused, one_row, "SM-FUSED-01", .needs = PRODUCTS, .max_ranks = MAX_RANKS) {
    for (int32_t dim = 0; dim < 2; dim++)
        for (int64_t n = 1; n < 4; n += 2)
            gather_one_row(t, dim, n);
}

TK_TEST(fused, replayed, "SM-FUSED-09", .needs = PRODUCTS | SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE,
        .max_ranks = 4) {
    fused_replay(t, &family, 0, false);
    fused_replay(t, &family, 2, true);
}

/* The layout helpers, each dimension of four. */
TK_PORTED(test_optimal_layout, "SM-FUSED-06", .needs = SYMMEM_CAP_MATMUL, .max_ranks = 1) {
    const int64_t shape[4] = {3, 4, 2, 5};
    for (int32_t dim = 0; dim < 4; dim++) {
        struct fused_tensor from, to;
        int64_t strides[4] = {0};
        fused_make(t, &from, SYMMEM_FLOAT32, 4, shape, (dim + 1) % 4);
        fused_make(t, &to, SYMMEM_FLOAT32, 4, shape, dim);
        fused_fill(&from, t->rank, (uint32_t)dim, false);
        fused_upload(t, &from);
        fused_set_bytes(t, &to, 0x55);
        TK_OK(t, symmem_fused_strides(4, shape, dim, strides));
        TK_CHECK(t, memcmp(strides, to.strides, sizeof strides) == 0);
        TK_OK(t, symmem_restride(t->context, &from.dl, &to.dl, NULL));
        memcpy(to.values, from.values, from.count * sizeof(double));
        fused_expect(t, &to, NULL, "dst");
        tk_free(t, from.memory);
        tk_free(t, to.memory);
    }
    int64_t strides[3] = {-7, -7, -7};
    TK_FAILS(t, OUT_OF_RANGE, symmem_fused_strides(2, shape, 2, strides));
    TK_FAILS(t, OUT_OF_RANGE, symmem_fused_strides(2, shape, -1, strides));
    const int64_t huge[3] = {(int64_t)1 << 40, (int64_t)1 << 40, 4};
    TK_FAILS(t, OVERFLOW, symmem_fused_strides(3, huge, 0, strides));
    for (int d = 0; d < 3; d++)
        TK_EQ_INT(t, -7, strides[d]);
}
