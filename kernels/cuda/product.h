/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the host and the kernels of product.cu share: matrix products, strided copies and local
 * reductions, which know no peers. It compiles as C and as CUDA C++.
 *
 * `failed` is a word of the composite operation to which the work belongs. If it is not 0, the
 * kernel does nothing. NULL: the work belongs to no composite operation.
 */
#ifndef SYMMEM_KERNELS_CUDA_PRODUCT_H
#define SYMMEM_KERNELS_CUDA_PRODUCT_H

#include <stdbool.h>

#include "cuda/signal.h"

#define SYMMEM_CUDA_PRODUCT_THREADS 256
#define SYMMEM_CUDA_MAX_NDIM 8 /* SYMMEM_COPY_MAX_NDIM */

/* The element type of out. */
typedef enum symmem_cuda_real {
    SYMMEM_CUDA_REAL_F32 = 0,
    SYMMEM_CUDA_REAL_F64,
    SYMMEM_CUDA_REAL_F16,
    SYMMEM_CUDA_REAL_BF16,
} symmem_cuda_real;

/* symmem/matmul.h defines the product. The dtype of a and b is the kernel's own. */
typedef struct symmem_cuda_product {
    const uint64_t *failed;
    int64_t m, n, k;
    const void *a;
    int64_t a_row, a_column;
    const void *b;
    int64_t b_row, b_column;
    void *out;
    int64_t out_row, out_column;
    int32_t out_real; /* symmem_cuda_real */
    bool accumulate;
    bool a_scale_by_row;
    bool b_scale_by_column;
    const float *a_scale; /* NULL: not scaled */
    const float *b_scale;
    /* For the kernels that finish a product: a x b, (m, n) contiguous in out's order, in float32
     * (float64 for float64). */
    const void *sums;
} symmem_cuda_product;

/* Waits for the word of one chunk. fault->actual is the missing chunk. The host writes
 * fault->missing[0] to cancel all waits. */
typedef struct symmem_cuda_await {
    const uint32_t *word;
    symmem_cuda_state *state; /* of all chunks together */
    symmem_cuda_fault *fault;
    uint32_t timeout_ms;
    int32_t chunk;
    bool first; /* the first chunk of the operation */
} symmem_cuda_await;

typedef struct symmem_cuda_strided {
    const uint64_t *failed;
    uint64_t count;
    int32_t element, ndim; /* bytes; 1 to SYMMEM_CUDA_MAX_NDIM */
    int64_t shape[SYMMEM_CUDA_MAX_NDIM];
    const void *src;
    int64_t src_strides[SYMMEM_CUDA_MAX_NDIM]; /* elements */
    void *dst;
    int64_t dst_strides[SYMMEM_CUDA_MAX_NDIM];
} symmem_cuda_strided;

typedef struct symmem_cuda_local_reduce {
    const uint64_t *failed;
    uint64_t count;
    const void *src;
    uint64_t src_stride; /* bytes */
    void *dst;
    int32_t src_count;
    int32_t op;
} symmem_cuda_local_reduce;

#endif
