/* SPDX-License-Identifier: BSD-3-Clause */
#include "fused_help.h"

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
