/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuBLASLt, if the machine has one. It is loaded when the first product is enqueued. A product
 * takes three steps, because its caller allocates memory between them: plan, enqueue, and, if the
 * sums went elsewhere, the kernel that finishes them.
 */
#ifndef SYMMEM_CUDA_BLAS_H
#define SYMMEM_CUDA_BLAS_H

#include "cuda_internal.h"

/* Once for the instance. Loads nothing. */
symmem_status cuda_blas_open(cuda_instance *instance);
void cuda_blas_close(cuda_instance *instance);

/* One product for the library. */
typedef struct cuda_blas_job {
    const symmem_matmul *product;
    /* If not NULL, a x b goes there and not to out: (m, n) contiguous in out's order, in float32
     * (float64 for float64), neither scaled nor added to anything. */
    void *sums;
    size_t workspace_bytes; /* from the plan */
    bool fresh;      /* from the plan: it was not enqueued yet, so its kernel is to be loaded */
    void *workspace; /* aligned to 256 bytes */
} cuda_blas_job;

/* Returns whether the library supports it, with addresses aligned like these. It asks the library
 * once for each shape. The device's context is current. Addresses that are not known yet may be any
 * multiple of 256. */
bool cuda_blas_plan(cuda_instance *instance, int32_t device, cuda_blas_job *job);
/* The job was planned with the same values. Returns 0, or the library's error; then nothing that
 * matters was enqueued. */
int cuda_blas_enqueue(cuda_instance *instance, int32_t device, const cuda_blas_job *job,
                      CUstream native);

#endif
