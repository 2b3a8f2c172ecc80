/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matrix products whose every element is known, for what computes them on the CPU, on a device or
 * by a library. Define MOST, the longest side, and include it in one file of a program.
 */
#ifndef UNIT_PRODUCTS_H
#define UNIT_PRODUCTS_H

#include <math.h>

#include "unit_main.h"

#ifdef __cplusplus
extern "C" {
#endif
#include "reference/matmul.h"
#include "reference/reduce.h"
#ifdef __cplusplus
}
#endif

#define MARK 77.0

/* a, b, out: of any dtype. */
__attribute__((aligned(256))) static double memory[3][MOST * (MOST + 4)];
static float scales[2][MOST + 4]; /* powers of two */

/* Small whole numbers, so that nothing is rounded but 16-bit results. */
static void fill_numbers(symmem_dtype dtype, void *base, uint32_t seed) {
    for (int64_t i = 0; i < MOST * (MOST + 3); i++) {
        seed = seed * 1664525u + 1013904223u;
        symmem_reference_store(dtype, base, i, (double)(seed >> 29));
    }
}

/* Strides with a gap between the long sides. */
static void lay(bool columns_first, int64_t rows, int64_t columns, int64_t *row_p,
                int64_t *column_p) {
    *row_p = columns_first ? 1 : columns + 3;
    *column_p = columns_first ? rows + 3 : 1;
}

/* The bits of `layout` select a, b and out by columns, accumulation, scaling, and scales of a by
 * row and of b by column. All operands begin `shift` elements after an aligned address. */
static symmem_matmul make_shifted(symmem_dtype dtype, symmem_dtype out, int64_t m, int64_t n,
                                  int64_t k, unsigned layout, size_t shift) {
    const size_t bytes = shift * symmem_reference_element_bytes(dtype, SYMMEM_SUM);
    char *const a = (char *)memory[0] + bytes, *const b = (char *)memory[1] + bytes;
    symmem_matmul p;
    memset(&p, 0, sizeof p);
    p.size = sizeof p;
    p.m = m;
    p.n = n;
    p.k = k;
    p.a = a;
    p.b = b;
    p.out = (char *)memory[2] + shift * symmem_reference_element_bytes(out, SYMMEM_SUM);
    p.dtype = dtype;
    p.out_dtype = out;
    p.accumulate = (layout & 8) != 0;
    lay((layout & 1) != 0, m, k, &p.a_row, &p.a_column);
    lay((layout & 2) != 0, k, n, &p.b_row, &p.b_column);
    lay((layout & 4) != 0, m, n, &p.out_row, &p.out_column);
    if ((layout & 16) != 0) {
        p.a_scale = scales[0] + 1;
        p.b_scale = scales[1] + 3;
        p.a_scale_by_row = (layout & 32) != 0;
        p.b_scale_by_column = (layout & 64) != 0;
    }
    fill_numbers(dtype, a, 1);
    fill_numbers(dtype, b, 2);
    for (int i = 0; i < MOST + 4; i++) {
        scales[0][i] = (float)(1 << i % 3);
        scales[1][i] = (float)(1 << i % 4) / 4;
    }
    for (int64_t i = 0; i < MOST * (MOST + 3); i++)
        symmem_reference_store(out, p.out, i, MARK);
    return p;
}

static inline symmem_matmul make(symmem_dtype dtype, symmem_dtype out, int64_t m, int64_t n,
                                 int64_t k, unsigned layout) {
    return make_shifted(dtype, out, m, n, k, layout, 0);
}

/* All elements are as they should be, and nothing between them was touched. */
static void check(const symmem_matmul *p) {
    static bool written[MOST * (MOST + 3)];
    const symmem_dtype dtype = p->out_dtype;
    const bool is_exact = dtype == SYMMEM_FLOAT32 || dtype == SYMMEM_FLOAT64;
    int64_t wrong = 0;
    memset(written, 0, sizeof written);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const int64_t at = i * p->out_row + j * p->out_column;
            double magnitude, expected = symmem_reference_matmul(p, i, j, &magnitude);
            expected += p->accumulate ? MARK : 0;
            const double bound = is_exact ? 0 : symmem_reference_rounding(dtype, expected);
            wrong += !(fabs(symmem_reference_load(dtype, p->out, at) - expected) <= bound);
            written[at] = true;
        }
    for (int64_t at = 0; at < MOST * (MOST + 3); at++)
        wrong += !written[at] && symmem_reference_load(dtype, p->out, at) != MARK;
    CU_ASSERT_EQUAL(wrong, 0);
}

#endif
