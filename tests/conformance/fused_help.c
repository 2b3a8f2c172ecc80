/* SPDX-License-Identifier: BSD-3-Clause */
#include "fused_pair.h"

#include <math.h>

static void make(struct tk *t, struct fused_tensor *tensor, symmem_dtype dtype, int32_t ndim,
                 const int64_t *shape) {
    struct ops_tensor dl;
    memset(tensor, 0, sizeof *tensor);
    (void)ops_shaped(&dl, NULL, dtype, ndim, shape);
    tensor->dl = dl.dl;
    tensor->dl.shape = tensor->shape;
    tensor->dl.strides = tensor->strides;
    tensor->dtype = dtype;
    tensor->count = 1;
    for (int32_t d = 0; d < ndim; d++) {
        tensor->shape[d] = shape[d];
        tensor->count *= (size_t)shape[d];
    }
    tensor->bytes = tensor->count * symmem_dtype_size(dtype);
    tensor->memory = tk_alloc(t, tensor->bytes > 0 ? tensor->bytes : 1);
    tensor->dl.data = tensor->memory;
    tensor->values = tk_scratch(t, tensor->count * sizeof(double));
}

void fused_make(struct tk *t, struct fused_tensor *tensor, symmem_dtype dtype, int32_t ndim,
                const int64_t *shape, int32_t dim) {
    int64_t stride = 1;
    make(t, tensor, dtype, ndim, shape);
    /* By hand rather than by symmem_fused_strides, which is under test. */
    for (int32_t d = ndim - 1; d >= 0; d--)
        if (d != dim) {
            tensor->strides[d] = stride;
            stride *= shape[d];
        }
    tensor->strides[dim] = stride;
}

void fused_make_columns(struct tk *t, struct fused_tensor *tensor, symmem_dtype dtype, int64_t rows,
                        int64_t columns) {
    const int64_t shape[2] = {rows, columns};
    fused_make(t, tensor, dtype, 2, shape, 1);
}

void fused_fill(struct fused_tensor *tensor, int32_t rank, uint32_t generation, bool whole) {
    bool small = tensor->dtype == SYMMEM_INT8 || tensor->dtype == SYMMEM_UINT8;
    for (size_t i = 0; i < tensor->count; i++) {
        uint32_t word = word_of(rank, generation, i) * 0x9e3779b1u;
        double value = (double)(word >> 27 & 7) - (tensor->dtype == SYMMEM_UINT8 ? 0 : 3);
        if (!whole && !small)
            value = ((double)(word >> 8) - 0x1p23) * 0x1p-22;
        uint64_t bits;
        symmem_reference_store(tensor->dtype, &bits, 0, value);
        tensor->values[i] = symmem_reference_load(tensor->dtype, &bits, 0);
    }
}

/* Where element `index` in logical order lies, in elements. */
static int64_t place(const struct fused_tensor *tensor, size_t index) {
    int64_t at = 0;
    for (int32_t d = tensor->dl.ndim - 1; d >= 0; d--) {
        at += (int64_t)(index % (size_t)tensor->shape[d]) * tensor->strides[d];
        index /= (size_t)tensor->shape[d];
    }
    return at;
}

void fused_upload(struct tk *t, struct fused_tensor *tensor) {
    char *host = tk_scratch(t, tensor->bytes);
    for (size_t i = 0; i < tensor->count; i++)
        symmem_reference_store(tensor->dtype, host, place(tensor, i), tensor->values[i]);
    ops_upload(t, tensor->memory, host, tensor->bytes);
}

double *fused_download(struct tk *t, const struct fused_tensor *tensor) {
    char *host = tk_scratch(t, tensor->bytes);
    double *values = tk_scratch(t, tensor->count * sizeof *values);
    ops_download(t, host, tensor->memory, tensor->bytes);
    for (size_t i = 0; i < tensor->count; i++)
        values[i] = symmem_reference_load(tensor->dtype, host, place(tensor, i));
    return values;
}

void fused_set_bytes(struct tk *t, const struct fused_tensor *tensor, uint8_t byte) {
    char *host = tk_scratch(t, tensor->bytes);
    memset(host, byte, tensor->bytes);
    ops_upload(t, tensor->memory, host, tensor->bytes);
}

bool fused_expect_bytes(struct tk *t, const struct fused_tensor *tensor, uint8_t byte,
                        const char *what) {
    uint8_t *host = tk_scratch(t, tensor->bytes);
    ops_download(t, host, tensor->memory, tensor->bytes);
    size_t wrong = 0;
    while (wrong < tensor->bytes && host[wrong] == byte)
        wrong++;
    return TK_CHECK_MSG(t, wrong == tensor->bytes, "%s: byte %zu was written", what, wrong);
}

bool fused_expect(struct tk *t, const struct fused_tensor *tensor, const double *bounds,
                  const char *what) {
    double *values = fused_download(t, tensor);
    size_t wrong = 0;
    while (wrong < tensor->count &&
           fabs(values[wrong] - tensor->values[wrong]) <= (bounds != NULL ? bounds[wrong] : 0))
        wrong++;
    double got = wrong < tensor->count ? values[wrong] : 0;
    if (wrong == tensor->count)
        return TK_CHECK(t, true);
    return TK_CHECK_MSG(t, false, "%s: element %zu of %zu %s is %.9g, not %.9g within %.3g", what,
                        wrong, tensor->count, symmem_dtype_name(tensor->dtype), got,
                        tensor->values[wrong], bounds != NULL ? bounds[wrong] : 0);
}

bool fused_wanted(const struct tk_shape *shape, int i) {
    return tk_suite_is_long() || strcmp(shape->name, "world") == 0 ||
           i % 4 == (shape->name[0] + shape->count) % 4;
}

void fused_sum_make(struct tk *t, struct fused_sum *sum, size_t count) {
    sum->count = count;
    sum->values = tk_scratch(t, count * sizeof(double));
    sum->magnitudes = tk_scratch(t, count * sizeof(double));
}

void fused_sum_add(struct fused_sum *sum, const double *a, int64_t rows, int64_t k, const double *b,
                   int64_t n, int64_t b_row, const double *a_scale, const double *b_scale) {
    const symmem_matmul product = {.k = k,
                                   .a = a,
                                   .a_row = k,
                                   .a_column = 1,
                                   .b = b,
                                   .b_row = b_row,
                                   .b_column = 1,
                                   .dtype = SYMMEM_FLOAT64};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            double magnitude, scale = a_scale != NULL ? a_scale[i] * b_scale[j] : 1;
            double value = symmem_reference_matmul(&product, i, j, &magnitude);
            sum->values[i * n + j] += value * scale;
            sum->magnitudes[i * n + j] += magnitude * fabs(scale);
        }
}

bool fused_sum_expect(struct tk *t, const struct fused_sum *sum, struct fused_tensor *tensor,
                      bool exact, int64_t terms, int roundings, const char *what) {
    double eps = symmem_reference_matmul_eps(tensor->dtype);
    double *bounds = tk_scratch(t, sum->count * sizeof *bounds);
    TK_REQUIRE(t, sum->count == tensor->count);
    for (size_t i = 0; i < sum->count; i++) {
        double magnitude = sum->magnitudes[i];
        if (!exact)
            bounds[i] = (double)(terms + 4) * eps * magnitude +
                        roundings * symmem_reference_rounding(tensor->dtype, magnitude);
        tensor->values[i] = sum->values[i];
    }
    return fused_expect(t, tensor, bounds, what);
}

double *fused_gather(struct tk *t, const double *const *shards, int32_t count, int32_t ndim,
                     const int64_t *shape, int32_t dim) {
    size_t outer = 1, inner = 1;
    for (int32_t d = 0; d < ndim; d++)
        if (d < dim)
            outer *= (size_t)shape[d];
        else
            inner *= (size_t)shape[d];
    double *all = tk_scratch(t, outer * inner * (size_t)count * sizeof *all);
    for (size_t o = 0; o < outer; o++)
        for (int32_t r = 0; r < count; r++)
            memcpy(all + (o * (size_t)count + (size_t)r) * inner, shards[r] + o * inner,
                   inner * sizeof *all);
    return all;
}

struct some_cases {
    const struct fused_family *family;
    int first, count;
    bool on_stream;
};

static void run_once(struct tk *t, const struct fused_family *family, void *run,
                     const struct fused_place *place, uint32_t generation) {
    family->put_in(t, run, generation);
    TK_OK(t, family->call(run));
    tk_synchronize(t, place->stream);
    family->check(t, run, generation);
}

static void run_on_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                         void *arg) {
    const struct some_cases *cases = arg;
    const struct fused_place place = {.shape = shape,
                                      .workspace = tk_handle(t, FUSED_WORKSPACE_BYTES, group),
                                      .stream = cases->on_stream ? tk_stream(t) : NULL};
    for (int i = 0; i < cases->count; i++) {
        if (!fused_wanted(shape, i))
            continue;
        tk_checkpoint(t, "%s, case %d", shape->name, cases->first + i);
        void *run = cases->family->begin(t, group, &place, cases->first + i);
        run_once(t, cases->family, run, &place, 1);
        cases->family->end(t, run);
    }
}

void fused_run_cases(struct tk *t, const struct fused_family *family, int first, int count,
                     bool on_stream) {
    struct some_cases cases = {family, first, count, on_stream};
    tk_for_each_group_shape(t, run_on_shape, &cases);
}

void fused_replay(struct tk *t, const struct fused_family *family, int number, bool has_second) {
    const struct tk_shape world = {.name = "world", .count = t->world_size, .rank = t->rank};
    const struct fused_place place = {
        .shape = &world, .stream = tk_stream(t), .second = has_second ? tk_stream(t) : NULL};
    void *run = family->begin(t, tk_world_group(t), &place, number);
    family->put_in(t, run, 1);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(place.stream));
    TK_OK(t, family->call(run));
    symmem_graph *graph = tk_end_capture(t, place.stream);
    for (uint32_t generation = 2; generation < 5; generation++) {
        family->put_in(t, run, generation);
        run_graph(t, graph, place.stream);
        family->check(t, run, generation);
    }
    run_once(t, family, run, &place, 6);
    family->end(t, run);
}

/* --- a small gather and a small scatter ------------------------------------------------------- */

struct fused_pair *pair_begin(struct tk *t) {
    struct fused_pair *x = tk_scratch(t, sizeof *x);
    const int64_t ranks = t->world_size;
    const struct {
        struct fused_tensor *tensor;
        int64_t shape[2];
        int32_t rank; /* whose values; -1: marked */
        uint32_t generation;
    } all[] = {{&x->shard, {PAIR_ROWS, PAIR_K}, t->rank, 1},
               {&x->b, {PAIR_K, PAIR_N}, 9, 1},
               {&x->out, {PAIR_ROWS * ranks, PAIR_N}, -1, 0},
               {&x->a_out, {PAIR_ROWS * ranks, PAIR_K}, -1, 0},
               {&x->a, {PAIR_ROWS * ranks, PAIR_K}, t->rank, 2},
               {&x->scatter_b, {PAIR_K, PAIR_N}, 8, 1},
               {&x->part, {PAIR_ROWS, PAIR_N}, -1, 0}};
    size_t other = 0;
    for (size_t i = 0; i < TK_COUNT(all); i++) {
        fused_make(t, all[i].tensor, SYMMEM_FLOAT32, 2, all[i].shape, 0);
        if (all[i].rank < 0) {
            fused_set_bytes(t, all[i].tensor, 0x55);
            continue;
        }
        fused_fill(all[i].tensor, all[i].rank, all[i].generation, true);
        fused_upload(t, all[i].tensor);
    }
    x->bs[0] = &x->b.dl;
    x->outs[0] = &x->out.dl;
    TK_REQUIRE_OK(t, symmem_fused_all_gather_matmul_workspace(&x->shard.dl, NULL, 0, true,
                                                              t->world_size, &x->bytes));
    TK_REQUIRE_OK(t, symmem_fused_matmul_reduce_scatter_workspace(
                         &x->a.dl, &x->scatter_b.dl, NULL, 0, &x->part.dl, t->world_size, &other));
    if (other > x->bytes)
        x->bytes = other;
    x->workspace = tk_handle(t, x->bytes, tk_world_group(t));
    return x;
}

struct pair_call pair_call(const struct fused_pair *x) {
    return (struct pair_call){.handle = x->workspace,
                              .shard = &x->shard.dl,
                              .b = &x->b.dl,
                              .a_out = &x->a_out.dl,
                              .out = &x->out.dl,
                              .a = &x->a.dl,
                              .scatter_b = &x->scatter_b.dl,
                              .part = &x->part.dl,
                              .op = SYMMEM_SUM,
                              .b_count = 1,
                              .limit_ms = 2000};
}

symmem_status pair_run(const struct pair_call *c, int form) {
    const DLTensor *const *bs = c->no_bs ? NULL : &c->b;
    const DLTensor *const *scales = c->no_scales ? NULL : &c->b_scale;
    const DLTensor *const *outs = c->no_outs ? NULL : &c->out;
    switch (form) {
    case PAIR_GATHER:
        return symmem_fused_all_gather_matmul(c->handle, c->shard, c->dim, c->b_count, bs, c->a_out,
                                              outs, c->channel, c->limit_ms, c->stream, c->second);
    case PAIR_SCATTER:
        return symmem_fused_matmul_reduce_scatter(c->handle, c->a, c->scatter_b, c->op, c->dim,
                                                  c->part, c->channel, c->limit_ms, c->stream,
                                                  c->second);
    case PAIR_SCALED_GATHER:
        return symmem_fused_all_gather_scaled_matmul(c->handle, c->shard, c->a_scale, c->dim,
                                                     c->b_count, bs, scales, c->a_out, outs,
                                                     c->channel, c->limit_ms, c->stream, c->second);
    default:
        return symmem_fused_scaled_matmul_reduce_scatter(
            c->handle, c->a, c->scatter_b, c->a_scale, c->b_scale, c->op, c->dim, c->part,
            c->channel, c->limit_ms, c->stream, c->second);
    }
}

symmem_status pair_gather(struct fused_pair *x, uint32_t timeout_ms, symmem_stream *stream) {
    struct pair_call call = pair_call(x);
    call.limit_ms = timeout_ms;
    call.stream = stream;
    return pair_run(&call, PAIR_GATHER);
}

symmem_status pair_scatter(struct fused_pair *x, uint32_t timeout_ms, symmem_stream *stream) {
    struct pair_call call = pair_call(x);
    call.limit_ms = timeout_ms;
    call.stream = stream;
    return pair_run(&call, PAIR_SCATTER);
}

/* The results of the two, times `factor`. */
void pair_expect_gather(struct tk *t, struct fused_pair *x, double factor) {
    struct fused_sum sum;
    fused_sum_make(t, &sum, x->out.count);
    for (int32_t r = 0; r < t->world_size; r++) {
        struct fused_tensor theirs = x->a_out;
        struct fused_sum rows = {.values = sum.values + r * PAIR_ROWS * PAIR_N,
                                 .magnitudes = sum.magnitudes + r * PAIR_ROWS * PAIR_N};
        theirs.count = PAIR_ROWS * PAIR_K;
        theirs.values = x->a_out.values + r * PAIR_ROWS * PAIR_K;
        fused_fill(&theirs, r, 1, true);
        fused_sum_add(&rows, theirs.values, PAIR_ROWS, PAIR_K, x->b.values, PAIR_N, PAIR_N, NULL,
                      NULL);
    }
    for (size_t i = 0; i < sum.count; i++)
        sum.values[i] *= factor;
    fused_expect(t, &x->a_out, NULL, "a_out");
    fused_sum_expect(t, &sum, &x->out, true, PAIR_K, 1, "out");
}

void pair_expect_scatter(struct tk *t, struct fused_pair *x, double factor) {
    struct fused_sum sum;
    fused_sum_make(t, &sum, x->part.count);
    for (int32_t r = 0; r < t->world_size; r++) {
        struct fused_tensor theirs = x->a;
        fused_fill(&theirs, r, 2, true);
        fused_sum_add(&sum, theirs.values + t->rank * PAIR_ROWS * PAIR_K, PAIR_ROWS, PAIR_K,
                      x->scatter_b.values, PAIR_N, PAIR_N, NULL, NULL);
    }
    for (size_t i = 0; i < sum.count; i++)
        sum.values[i] *= factor;
    fused_sum_expect(t, &sum, &x->part, true, PAIR_K, 1, "part");
}

void pair_expect_untouched(struct tk *t, const struct fused_pair *x) {
    fused_expect_bytes(t, &x->out, 0x55, "out");
    fused_expect_bytes(t, &x->a_out, 0x55, "a_out");
    fused_expect_bytes(t, &x->part, 0x55, "part");
}
