/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products and strided copies on the CPU, in the calling thread. */
#ifndef SYMMEM_KERNELS_CPU_MATMUL_H
#define SYMMEM_KERNELS_CPU_MATMUL_H

#include <symmem/backend.h>

/* cblas_sgemm and cblas_dgemm with 32-bit integers. The enumerations of cblas.h are ints. */
typedef struct symmem_cpu_blas {
    void (*sgemm)(int order, int a_transposed, int b_transposed, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*dgemm)(int order, int a_transposed, int b_transposed, int m, int n, int k, double alpha,
                  const double *a, int lda, const double *b, int ldb, double beta, double *c,
                  int ldc);
} symmem_cpu_blas;

/* Computes *product without its hook and signals. With blas NULL it uses portable loops. Otherwise
 * BLAS computes the products that it supports, which are float32 and float64 without scales. */
void symmem_cpu_matmul(const symmem_matmul *product, const symmem_cpu_blas *blas);

/* Returns the part of a product for `rows` rows of a, starting at `first`. */
symmem_matmul symmem_cpu_matmul_rows(const symmem_matmul *product, int64_t first, int64_t rows);

void symmem_cpu_copy_strided(const symmem_strided_copy *copy);

#endif
