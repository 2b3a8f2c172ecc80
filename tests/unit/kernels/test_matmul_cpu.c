/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU's matrix product against the scalar reference: plain loops and CBLAS, every order of
 * storage, sizes around the blocks'. The CBLAS is one of our own, which does what cblas.h's does
 * and checks what that asks for.
 */
#include <limits.h>

#include "cpu/matmul.h"

#define MOST 80
#include "products.h"

static int blas_calls;

/* Strides of a matrix of `rows` x `columns` as cblas.h describes it; checks its leading one. */
static void blas_strides(int order, int transposed, int rows, int columns, int leading,
                         int64_t *row_p, int64_t *column_p) {
    bool row_major = (order == 101) == (transposed == 111);
    CU_ASSERT(transposed == 111 || transposed == 112);
    CU_ASSERT(leading >= (row_major ? columns : rows) && leading >= 1);
    *row_p = row_major ? leading : 1;
    *column_p = row_major ? 1 : leading;
}

static void gemm(symmem_dtype dtype, int order, int ta, int tb, int m, int n, int k, const void *a,
                 int lda, const void *b, int ldb, bool accumulate, void *c, int ldc) {
    symmem_matmul product = {.k = k, .a = a, .b = b, .dtype = dtype};
    int64_t row, column;
    CU_ASSERT(order == 101 || order == 102);
    blas_strides(order, ta, m, k, lda, &product.a_row, &product.a_column);
    blas_strides(order, tb, k, n, ldb, &product.b_row, &product.b_column);
    blas_strides(order, 111, m, n, ldc, &row, &column);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double magnitude, sum = symmem_reference_matmul(&product, i, j, &magnitude);
            if (accumulate)
                sum += symmem_reference_load(dtype, c, i * row + j * column);
            symmem_reference_store(dtype, c, i * row + j * column, sum);
        }
    blas_calls++;
}

static void fake_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                       int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    CU_ASSERT(alpha == 1 && (beta == 0 || beta == 1));
    gemm(SYMMEM_FLOAT32, order, ta, tb, m, n, k, a, lda, b, ldb, beta == 1, c, ldc);
}

static void fake_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha,
                       const double *a, int lda, const double *b, int ldb, double beta, double *c,
                       int ldc) {
    CU_ASSERT(alpha == 1 && (beta == 0 || beta == 1));
    gemm(SYMMEM_FLOAT64, order, ta, tb, m, n, k, a, lda, b, ldb, beta == 1, c, ldc);
}

static const symmem_cpu_blas fake_blas = {.sgemm = fake_sgemm, .dgemm = fake_dgemm};

static void check_sizes(symmem_dtype dtype, symmem_dtype out, const symmem_cpu_blas *blas) {
    static const int64_t sides[][3] = {{1, 1, 1},    {16, 32, 64}, {17, 33, 65}, {15, 31, 63},
                                       {40, 70, 70}, {1, 40, 3},   {40, 1, 3},   {5, 7, 0},
                                       {0, 4, 4},    {4, 0, 4}};
    for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++)
        for (unsigned layout = 0; layout < 16; layout++) {
            symmem_matmul product = make(dtype, out, sides[i][0], sides[i][1], sides[i][2], layout);
            symmem_cpu_matmul(&product, blas);
            check(&product);
        }
}

TEST("plain") {
    check_sizes(SYMMEM_FLOAT32, SYMMEM_FLOAT32, NULL);
    check_sizes(SYMMEM_FLOAT64, SYMMEM_FLOAT64, NULL);
    check_sizes(SYMMEM_FLOAT16, SYMMEM_FLOAT16, NULL);
    check_sizes(SYMMEM_BFLOAT16, SYMMEM_FLOAT32, NULL);
    check_sizes(SYMMEM_BFLOAT16, SYMMEM_BFLOAT16, NULL);
}

TEST("by CBLAS") {
    blas_calls = 0;
    check_sizes(SYMMEM_FLOAT32, SYMMEM_FLOAT32, &fake_blas);
    check_sizes(SYMMEM_FLOAT64, SYMMEM_FLOAT64, &fake_blas);
    /* All but those with a side of 0. */
    CU_ASSERT_EQUAL(blas_calls, 2 * 16 * 7);
    blas_calls = 0;
    check_sizes(SYMMEM_BFLOAT16, SYMMEM_BFLOAT16, &fake_blas);
    CU_ASSERT_EQUAL(blas_calls, 0);
}

/* A side of one element may have any stride, whatever the matrix's order. */
static void check_single(int64_t m, int64_t n, int64_t k, unsigned layout, int64_t stride) {
    symmem_matmul product = make(SYMMEM_FLOAT32, SYMMEM_FLOAT32, m, n, k, layout);
    struct {
        int64_t size, *stride;
    } sides[] = {{m, &product.a_row},    {k, &product.a_column}, {k, &product.b_row},
                 {n, &product.b_column}, {m, &product.out_row},  {n, &product.out_column}};
    for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++)
        if (sides[i].size == 1)
            *sides[i].stride = stride;
    symmem_cpu_matmul(&product, &fake_blas);
    check(&product);
}

TEST("sides of one element") {
    static const int64_t strides[] = {1, 2, 5, 9, 100};
    blas_calls = 0;
    for (unsigned sizes = 0; sizes < 8; sizes++)
        for (unsigned layout = 0; layout < 16; layout++)
            for (size_t i = 0; i < 5; i++)
                check_single(sizes & 1 ? 1 : 4, sizes & 2 ? 1 : 5, sizes & 4 ? 1 : 6, layout,
                             strides[i]);
    CU_ASSERT_EQUAL(blas_calls, 8 * 16 * 5);
}

/* BLAS counts in int: it gets the longest stride that there is, and no longer one. */
TEST("the longest strides") {
    blas_calls = 0;
    check_single(1, 5, 6, 0, INT_MAX);
    CU_ASSERT_EQUAL(blas_calls, 1);
    check_single(1, 5, 6, 0, (int64_t)INT_MAX + 1);
    CU_ASSERT_EQUAL(blas_calls, 1);
}

/* Scales of powers of two, one for all or one each. */
TEST("scaled") {
    static const symmem_dtype dtypes[] = {SYMMEM_INT8, SYMMEM_UINT8, SYMMEM_BFLOAT16,
                                          SYMMEM_FLOAT32};
    for (size_t d = 0; d < 4; d++)
        for (unsigned way = 0; way < 64; way++) {
            const unsigned layout = way % 16 | 16 | (way & 48) << 1;
            symmem_matmul product = make(dtypes[d], SYMMEM_FLOAT32, 17, 34, 20, layout);
            symmem_cpu_matmul(&product, &fake_blas);
            check(&product);
        }
}

/* Cut into rows it is the same. */
TEST("in rows") {
    for (unsigned layout = 0; layout < 16; layout++) {
        symmem_matmul product = make(SYMMEM_INT8, SYMMEM_FLOAT32, 20, 9, 11, layout);
        product.a_scale = scales[0];
        product.b_scale = scales[1];
        product.a_scale_by_row = true;
        for (int64_t first = 0; first < 20; first += 5) {
            const symmem_matmul some = symmem_cpu_matmul_rows(&product, first, 5);
            symmem_cpu_matmul(&some, NULL);
        }
        check(&product);
    }
}

TEST("strided copies") {
    static const size_t elements[] = {1, 2, 4, 8};
    unsigned char src[2 * 3 * 4 * 8], dst[2 * 3 * 4 * 8];
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (unsigned char)i;
    for (size_t e = 0; e < 4; e++) {
        symmem_strided_copy copy = {.size = sizeof copy,
                                    .element = elements[e],
                                    .ndim = 3,
                                    .shape = {2, 3, 4},
                                    .src = src,
                                    .src_strides = {12, 4, 1},
                                    .dst = dst,
                                    .dst_strides = {1, 8, 2}};
        int wrong = 0;
        memset(dst, 0xff, sizeof dst);
        symmem_cpu_copy_strided(&copy);
        for (size_t x = 0; x < 2; x++)
            for (size_t y = 0; y < 3; y++)
                for (size_t z = 0; z < 4; z++)
                    wrong += memcmp(dst + (x + y * 8 + z * 2) * elements[e],
                                    src + (x * 12 + y * 4 + z) * elements[e], elements[e]) != 0;
        CU_ASSERT_EQUAL(wrong, 0);
        /* One element again and again is a line that has no bytes of its own to be copied whole. */
        copy.src_strides[2] = 0;
        copy.dst_strides[0] = 12;
        copy.dst_strides[1] = 4;
        copy.dst_strides[2] = 1;
        symmem_cpu_copy_strided(&copy);
        for (size_t i = 0; i < (size_t)2 * 3 * 4; i++)
            wrong += memcmp(dst + i * elements[e], src + i / 4 * 4 * elements[e], elements[e]) != 0;
        CU_ASSERT_EQUAL(wrong, 0);
        copy.shape[1] = 0; /* nothing */
        memset(dst, 0xff, sizeof dst);
        symmem_cpu_copy_strided(&copy);
        copy.ndim = 0; /* one element */
        symmem_cpu_copy_strided(&copy);
        CU_ASSERT_EQUAL(memcmp(dst, src, elements[e]), 0);
        CU_ASSERT_EQUAL(dst[elements[e]], 0xff);
    }
}
