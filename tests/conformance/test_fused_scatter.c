/* SPDX-License-Identifier: BSD-3-Clause */
/* Multiply, then reduce and scatter, against the scalar reference. */
#include "fused_help.h"

#define NDIM 3
#define MAX_RANKS 8

struct scatter_case {
    symmem_dtype dtype, out_dtype;
    int32_t dim;
    enum { PLAIN, BY_TENSOR, BY_ROW } scaling;
    symmem_reduce_op op;
    bool restrided; /* a has the layout of dim already */
    bool whole;
};

/* The plain ones, then the scaled ones. */
enum { PLAIN_CASES = 7, SCALED_CASES = 5 };
static const struct scatter_case cases[PLAIN_CASES + SCALED_CASES] = {
    {SYMMEM_FLOAT32, SYMMEM_FLOAT32, 0, PLAIN, SYMMEM_SUM, false, true},
    {SYMMEM_FLOAT32, SYMMEM_FLOAT32, 1, PLAIN, SYMMEM_SUM, false, true},
    {SYMMEM_FLOAT32, SYMMEM_FLOAT32, 2, PLAIN, SYMMEM_SUM, false, true},
    {SYMMEM_FLOAT32, SYMMEM_FLOAT32, 1, PLAIN, SYMMEM_AVG, true, false},
    {SYMMEM_FLOAT64, SYMMEM_FLOAT64, 2, PLAIN, SYMMEM_AVG, true, false},
    {SYMMEM_BFLOAT16, SYMMEM_BFLOAT16, 0, PLAIN, SYMMEM_AVG, true, false},
    {SYMMEM_FLOAT16, SYMMEM_FLOAT32, 1, PLAIN, SYMMEM_SUM, true, true},
    {SYMMEM_INT8, SYMMEM_FLOAT32, 0, BY_TENSOR, SYMMEM_SUM, true, true},
    {SYMMEM_INT8, SYMMEM_FLOAT32, 1, BY_ROW, SYMMEM_SUM, false, true},
    {SYMMEM_UINT8, SYMMEM_BFLOAT16, 0, BY_ROW, SYMMEM_AVG, true, true},
    {SYMMEM_BFLOAT16, SYMMEM_FLOAT32, 2, BY_ROW, SYMMEM_SUM, false, false},
    {SYMMEM_FLOAT16, SYMMEM_FLOAT16, 1, BY_TENSOR, SYMMEM_AVG, true, false},
};

struct scatter_run {
    const struct scatter_case *c;
    struct fused_place place;
    struct fused_tensor a, b, a_scale, b_scale, out;
};

static void fill_scale(struct fused_tensor *scale, int32_t rank) {
    for (size_t i = 0; i < scale->count; i++)
        scale->values[i] = 0.25 * (double)(1u << (word_of(rank, 78, i) * 0x9e3779b1u >> 30));
}

static const DLTensor *scale_of(const struct scatter_run *run, const struct fused_tensor *scale) {
    return run->c->scaling != PLAIN ? &scale->dl : NULL;
}

static void *begin_run(struct tk *t, symmem_group *group, const struct fused_place *place,
                       int number) {
    struct scatter_run *run = tk_scratch(t, sizeof *run);
    const struct scatter_case *c = &cases[number];
    run->c = c;
    run->place = *place;
    int32_t ranks = run->place.shape->count;
    int64_t a_shape[NDIM] = {2, 3, 5}, b_shape[2] = {5, 3}, one[1] = {1};
    size_t bytes = 0;
    if (c->dim == NDIM - 1)
        b_shape[1] *= ranks;
    else
        a_shape[c->dim] *= ranks;
    const int64_t out_shape[NDIM] = {c->dim == 0 ? 2 : a_shape[0], c->dim == 1 ? 3 : a_shape[1], 3};
    const int64_t rows[NDIM] = {a_shape[0], a_shape[1], 1};
    const int64_t columns[2] = {1, b_shape[1]};
    fused_make(t, &run->a, c->dtype, NDIM, a_shape, c->restrided ? c->dim : 0);
    fused_make(t, &run->out, c->out_dtype, NDIM, out_shape, c->dim == NDIM - 1 ? 0 : c->dim);
    if (c->restrided)
        fused_make(t, &run->b, c->dtype, 2, b_shape, 0);
    else
        fused_make_columns(t, &run->b, c->dtype, b_shape[0], b_shape[1]);
    bool by_row = c->scaling == BY_ROW;
    fused_make(t, &run->a_scale, SYMMEM_FLOAT32, by_row ? NDIM : 1, by_row ? rows : one, 0);
    fused_make(t, &run->b_scale, SYMMEM_FLOAT32, by_row ? 2 : 1, by_row ? columns : one, 0);
    TK_REQUIRE_OK(t, symmem_fused_matmul_reduce_scatter_workspace(
                         &run->a.dl, &run->b.dl, scale_of(run, &run->a_scale), c->dim, &run->out.dl,
                         ranks, &bytes));
    if (run->place.workspace == NULL)
        run->place.workspace = tk_handle(t, bytes, group);
    else
        TK_REQUIRE(t, bytes <= FUSED_WORKSPACE_BYTES);
    return run;
}

static void end_run(struct tk *t, void *arg) {
    struct scatter_run *run = arg;
    struct fused_tensor *const all[] = {&run->a, &run->b, &run->a_scale, &run->b_scale, &run->out};
    for (int i = 0; i < 5; i++)
        tk_free(t, all[i]->memory);
}

/* What `rank` puts in. */
static void fill(struct scatter_run *run, int32_t rank, uint32_t generation) {
    fused_fill(&run->a, rank, generation, run->c->whole);
    fused_fill(&run->b, rank + 40, generation, run->c->whole);
    fill_scale(&run->a_scale, rank);
    fill_scale(&run->b_scale, rank + 40);
}

static void put_in(struct tk *t, void *arg, uint32_t generation) {
    struct scatter_run *run = arg;
    fill(run, run->place.shape->rank, generation);
    fused_upload(t, &run->a);
    fused_upload(t, &run->b);
    fused_upload(t, &run->a_scale);
    fused_upload(t, &run->b_scale);
    fused_set_bytes(t, &run->out, 0x55);
}

static symmem_status call(void *arg) {
    struct scatter_run *run = arg;
    const struct scatter_case *c = run->c;
    if (c->scaling != PLAIN)
        return symmem_fused_scaled_matmul_reduce_scatter(
            run->place.workspace, &run->a.dl, &run->b.dl, &run->a_scale.dl, &run->b_scale.dl, c->op,
            c->dim, &run->out.dl, 0, LONG_MS, run->place.stream, run->place.second);
    return symmem_fused_matmul_reduce_scatter(run->place.workspace, &run->a.dl, &run->b.dl, c->op,
                                              c->dim, &run->out.dl, 0, LONG_MS, run->place.stream,
                                              run->place.second);
}

/* The product of one rank, all of it. */
static void add_rank(struct tk *t, struct scatter_run *run, int32_t rank, uint32_t generation,
                     struct fused_sum *sum) {
    int64_t rows = run->a.shape[0] * run->a.shape[1], n = run->b.shape[1];
    double *a_scale = NULL, *b_scale = NULL;
    fill(run, rank, generation);
    if (run->c->scaling != PLAIN) {
        a_scale = tk_scratch(t, (size_t)(rows + n) * sizeof *a_scale);
        b_scale = a_scale + rows;
        for (int64_t i = 0; i < rows; i++)
            a_scale[i] = run->a_scale.values[run->c->scaling == BY_ROW ? i : 0];
        for (int64_t j = 0; j < n; j++)
            b_scale[j] = run->b_scale.values[run->c->scaling == BY_ROW ? j : 0];
    }
    fused_sum_add(sum, run->a.values, rows, run->a.shape[2], run->b.values, n, n, a_scale, b_scale);
}

/* This rank's part of the whole sum. */
static void cut(const struct scatter_run *run, const struct fused_sum *all, struct fused_sum *own) {
    const int64_t *part = run->out.shape;
    int64_t whole[NDIM] = {part[0], part[1], part[2]}, at[NDIM] = {0};
    double over = run->c->op == SYMMEM_AVG ? run->place.shape->count : 1;
    whole[run->c->dim] *= run->place.shape->count;
    at[run->c->dim] = part[run->c->dim] * run->place.shape->rank;
    for (int64_t i = 0; i < part[0] * part[1] * part[2]; i++) {
        int64_t x = i / (part[1] * part[2]) + at[0], y = i / part[2] % part[1] + at[1],
                z = i % part[2] + at[2];
        own->values[i] = all->values[(x * whole[1] + y) * whole[2] + z] / over;
        own->magnitudes[i] = all->magnitudes[(x * whole[1] + y) * whole[2] + z] / over;
    }
}

static void check_results(struct tk *t, void *arg, uint32_t generation) {
    struct scatter_run *run = arg;
    const struct scatter_case *c = run->c;
    struct fused_sum all, own;
    bool exact = c->whole && c->op == SYMMEM_SUM && symmem_dtype_size(c->out_dtype) > 2;
    fused_sum_make(t, &all, run->out.count * (size_t)run->place.shape->count);
    fused_sum_make(t, &own, run->out.count);
    for (int32_t r = 0; r < run->place.shape->count; r++)
        add_rank(t, run, r, generation, &all);
    cut(run, &all, &own);
    fused_sum_expect(t, &own, &run->out, exact, run->a.shape[2] + run->place.shape->count, 3,
                     "out");
}

static const struct fused_family family = {begin_run, put_in, call, check_results, end_run};

TK_PORTED(test_fused_matmul_reduce_scatter, "SM-FUSED-04,SM-FUSED-03", .needs = PRODUCTS,
          .max_ranks = MAX_RANKS) {
    TK_REQ(t, "SM-FUSED-04");
    fused_run_cases(t, &family, 0, PLAIN_CASES, false);
}

TK_PORTED(test_fused_scaled_matmul_reduce_scatter, "SM-FUSED-05,SM-FUSED-03", .needs = PRODUCTS,
          .max_ranks = MAX_RANKS) {
    TK_REQ(t, "SM-FUSED-05");
    fused_run_cases(t, &family, PLAIN_CASES, SCALED_CASES, false);
}

TK_TEST(fused_scatter, on_streams, "SM-FUSED-04,SM-FUSED-05",
        .needs = PRODUCTS | SYMMEM_CAP_STREAMS, .max_ranks = MAX_RANKS) {
    fused_run_cases(t, &family, 0, 3, true);
    fused_run_cases(t, &family, PLAIN_CASES, 2, true);
}

TK_TEST(fused_scatter, replayed, "SM-FUSED-09",
        .needs = PRODUCTS | SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, .max_ranks = 4) {
    fused_replay(t, &family, 1, false);
    fused_replay(t, &family, 5, true);
}
