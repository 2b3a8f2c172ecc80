/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products and strided copies on the CPU, in the calling thread. */
#ifndef SYMMEM_KERNELS_CPU_MATMUL_H
#define SYMMEM_KERNELS_CPU_MATMUL_H

#include <symmem/backend.h>

/* cblas_sgemm and cblas_dgemm with 32-bit integers, the enumerations of cblas.h being ints. */
typedef struct symmem_cpu_blas {
    void (*sgemm)(int order, int a_transposed, int b_transposed, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*dgemm)(int order, int a_transposed, int b_transposed, int m, int n, int k, double alpha,
                  const double *a, int lda, const double *b, int ldb, double beta, double *c,
                  int ldc);
} symmem_cpu_blas;

/* What *product says, its hook and signals left aside. blas NULL: plain loops; otherwise for the
 * products that it can do, which are those of float32 and float64 without scales. */
void symmem_cpu_matmul(const symmem_matmul *product, const symmem_cpu_blas *blas);

/* The part of a product that belongs to `rows` rows of a from `first` on. */
symmem_matmul symmem_cpu_matmul_rows(const symmem_matmul *product, int64_t first, int64_t rows);

void symmem_cpu_copy_strided(const symmem_strided_copy *copy);

#endif
