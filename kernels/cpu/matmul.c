/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The portable product works in blocks that fit into the first-level cache. Each block widens the
 * elements of a and b to double once. So one loop serves all dtypes and rounds once.
 */
#include "cpu/matmul.h"

#include <limits.h>

#include "reference/matmul.h"
#include "reference/reduce.h"

/* All is on the caller's stack, so the blocks are not deep. The sums are the largest table. */
enum { ROWS = 16, COLUMNS = 32, DEPTH = 8 };

/* --- portable ---------------------------------------------------------------------- */

/* A block of the product: rows of a, columns of b, and the shared dimension. */
typedef struct block {
    int64_t row, column, depth;
    int rows, columns, depths;
} block;

static int part(int64_t size, int64_t at, int most) {
    return size - at < most ? (int)(size - at) : most;
}

#define LOAD_LINE(type)                                                                            \
    for (int i = 0; i < count; i++)                                                                \
        line[i] = (double)((const type *)base)[at + i * step];                                     \
    return

/* Widens `count` elements that are `step` apart, by one look at the dtype. */
static void load_line(symmem_dtype dtype, const void *base, int64_t at, int64_t step, int count,
                      double *line) {
    switch (dtype) {
    case SYMMEM_FLOAT64:
        LOAD_LINE(double);
    case SYMMEM_FLOAT32:
        LOAD_LINE(float);
    case SYMMEM_INT8:
        LOAD_LINE(int8_t);
    default:
        for (int i = 0; i < count; i++)
            line[i] = symmem_reference_load(dtype, base, at + i * step);
    }
}

static void load_a(const symmem_matmul *p, const block *at, double a[ROWS][DEPTH]) {
    for (int i = 0; i < at->rows; i++)
        load_line(p->dtype, p->a, (at->row + i) * p->a_row + at->depth * p->a_column, p->a_column,
                  at->depths, a[i]);
}

/* Pads with zeros after the last column, so that the loop over columns has a fixed length. */
static void load_b(const symmem_matmul *p, const block *at, double b[DEPTH][COLUMNS]) {
    for (int l = 0; l < at->depths; l++) {
        load_line(p->dtype, p->b, (at->depth + l) * p->b_row + at->column * p->b_column,
                  p->b_column, at->columns, b[l]);
        for (int j = at->columns; j < COLUMNS; j++)
            b[l][j] = 0;
    }
}

static void add_block(const block *at, double a[ROWS][DEPTH], double b[DEPTH][COLUMNS],
                      double sums[ROWS][COLUMNS]) {
    for (int i = 0; i < at->rows; i++)
        for (int l = 0; l < at->depths; l++)
            for (int j = 0; j < COLUMNS; j++)
                sums[i][j] += a[i][l] * b[l][j];
}

static void store_sums(const symmem_matmul *p, const block *at, double sums[ROWS][COLUMNS]) {
    for (int i = 0; i < at->rows; i++)
        for (int j = 0; j < at->columns; j++) {
            int64_t row = at->row + i, column = at->column + j;
            int64_t place = row * p->out_row + column * p->out_column;
            double sum = sums[i][j];
            if (p->a_scale != NULL)
                sum *= (double)p->a_scale[p->a_scale_by_row ? row : 0] *
                       (double)p->b_scale[p->b_scale_by_column ? column : 0];
            if (p->accumulate)
                sum += symmem_reference_load(p->out_dtype, p->out, place);
            symmem_reference_store(p->out_dtype, p->out, place, sum);
        }
}

static void plain(const symmem_matmul *p) {
    double a[ROWS][DEPTH], b[DEPTH][COLUMNS], sums[ROWS][COLUMNS];
    block at = {0};
    for (at.row = 0; at.row < p->m; at.row += ROWS) {
        at.rows = part(p->m, at.row, ROWS);
        for (at.column = 0; at.column < p->n; at.column += COLUMNS) {
            at.columns = part(p->n, at.column, COLUMNS);
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < COLUMNS; j++)
                    sums[i][j] = 0;
            for (at.depth = 0; at.depth < p->k; at.depth += DEPTH) {
                at.depths = part(p->k, at.depth, DEPTH);
                load_a(p, &at, a);
                load_b(p, &at, b);
                add_block(&at, a, b, sums);
            }
            store_sums(p, &at, sums);
        }
    }
}

/* --- CBLAS ---------------------------------------------------------------------------------- */

enum { ROW_MAJOR = 101, COLUMN_MAJOR = 102, AS_IS = 111, TRANSPOSED = 112 }; /* values of cblas.h */

/* One matrix, described for one storage order by whether it is transposed and its leading
 * dimension. */
typedef struct side {
    int transposed;
    int64_t stride;
} side;

/* The stride of a dimension of one element means nothing, but BLAS wants a leading dimension that
 * is at least as long as a row. */
static side side_of(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                    bool row_major) {
    int64_t inner = row_major ? columns : rows, outer = row_major ? rows : columns;
    int64_t small = row_major ? column_stride : row_stride;
    int64_t large = row_major ? row_stride : column_stride;
    if (small == 1 || inner == 1)
        return (side){AS_IS, large > inner ? large : inner};
    return (side){TRANSPOSED, small > outer ? small : outer};
}

static bool fits(int64_t value) {
    return value <= INT_MAX;
}

/* Returns false if BLAS cannot compute this product. */
static bool by_blas(const symmem_matmul *p, const symmem_cpu_blas *blas) {
    side out = side_of(p->m, p->n, p->out_row, p->out_column, true);
    bool row_major = out.transposed == AS_IS;
    side a = side_of(p->m, p->k, p->a_row, p->a_column, row_major);
    side b = side_of(p->k, p->n, p->b_row, p->b_column, row_major);
    if (p->a_scale != NULL || p->dtype != p->out_dtype || p->k == 0 || !fits(p->m) || !fits(p->n) ||
        !fits(p->k) || !fits(a.stride) || !fits(b.stride) || !fits(out.stride))
        return false;
    int order = row_major ? ROW_MAJOR : COLUMN_MAJOR;
    int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    if (p->dtype == SYMMEM_FLOAT32)
        blas->sgemm(order, a.transposed, b.transposed, m, n, k, 1, p->a, (int)a.stride, p->b,
                    (int)b.stride, p->accumulate ? 1 : 0, p->out, (int)out.stride);
    else if (p->dtype == SYMMEM_FLOAT64)
        blas->dgemm(order, a.transposed, b.transposed, m, n, k, 1, p->a, (int)a.stride, p->b,
                    (int)b.stride, p->accumulate ? 1 : 0, p->out, (int)out.stride);
    else
        return false;
    return true;
}

/* --- entry points ------------------------------------------------------------------ */

void symmem_cpu_matmul(const symmem_matmul *product, const symmem_cpu_blas *blas) {
    if (product->m == 0 || product->n == 0)
        return;
    if (blas == NULL || !by_blas(product, blas))
        plain(product);
}

/* Not the library's function, because kernels do not depend on the library. */
static int64_t element_bytes(symmem_dtype dtype) {
    return (int64_t)symmem_reference_element_bytes(dtype, SYMMEM_SUM);
}

symmem_matmul symmem_cpu_matmul_rows(const symmem_matmul *product, int64_t first, int64_t rows) {
    symmem_matmul some = *product;
    some.m = rows;
    some.a = (const char *)product->a + first * product->a_row * element_bytes(product->dtype);
    some.out = (char *)product->out + first * product->out_row * element_bytes(product->out_dtype);
    if (product->a_scale_by_row)
        some.a_scale = product->a_scale + first;
    some.signals = NULL;
    return some;
}
