/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies and reductions within a device. They are kernels, so that steps can be skipped. */
#include <assert.h>
#include <string.h>

#include "cuda/product.h"
#include "collective/local.h"
#include "collective/work.h"
#include "driver/error.h"

static_assert(SYMMEM_CUDA_MAX_NDIM == SYMMEM_COPY_MAX_NDIM, "as many dimensions");

static const char *operation_of(const symmem_exec *exec, const char *own) {
    return exec->operation != NULL ? exec->operation : own;
}

/* --- strided copies ----------------------------------------------------------------- */

typedef struct strided_work {
    cuda_work work; /* first, because enqueue gets it */
    symmem_cuda_strided args;
} strided_work;

static symmem_status enqueue_strided(cuda_instance *instance, cuda_work *work, CUstream native) {
    strided_work *strided = (strided_work *)work;
    strided->args.failed = work->failed;
    return cuda_work_launch(instance, work,
                            instance->devices[work->device].kernels.local.copy_strided,
                            strided->args.count, &strided->args, native);
}

symmem_status cuda_copy_strided(void *instance, int32_t device, const symmem_strided_copy *copy,
                                const symmem_exec *exec) {
    strided_work strided = {
        .work = {.operation = operation_of(exec, "copy_strided"),
                 .enqueue = enqueue_strided,
                 .device = device},
        .args = {.count = 1,
                 .element = (int32_t)copy->element,
                 .ndim = copy->ndim,
                 .src = copy->src,
                 .dst = copy->dst},
    };
    for (int32_t d = 0; d < copy->ndim; d++) {
        strided.args.shape[d] = copy->shape[d];
        strided.args.src_strides[d] = copy->src_strides[d];
        strided.args.dst_strides[d] = copy->dst_strides[d];
        strided.args.count *= (uint64_t)copy->shape[d];
    }
    symmem_status status = cuda_failpoint(instance, "cuda.copy_strided");
    return status == SYMMEM_OK ? cuda_work_run(instance, &strided.work, exec) : status;
}

/* --- local reductions --------------------------------------------------------------- */

typedef struct reduce_work {
    cuda_work work; /* first, because enqueue gets it */
    symmem_cuda_local_reduce args;
    symmem_dtype dtype;
} reduce_work;

static symmem_status enqueue_reduce(cuda_instance *instance, cuda_work *work, CUstream native) {
    reduce_work *reduce = (reduce_work *)work;
    reduce->args.failed = work->failed;
    return cuda_work_launch(instance, work,
                            instance->devices[work->device].kernels.local.reduce[reduce->dtype],
                            reduce->args.count, &reduce->args, native);
}

symmem_status cuda_reduce_local(void *instance, int32_t device, const symmem_local_reduce *reduce,
                                const symmem_exec *exec) {
    reduce_work local = {
        .work = {.operation = operation_of(exec, "reduce_local"),
                 .enqueue = enqueue_reduce,
                 .device = device},
        .args = {.count = reduce->count,
                 .src = reduce->src,
                 .src_stride = reduce->src_stride,
                 .dst = reduce->dst,
                 .src_count = reduce->src_count,
                 .op = (int32_t)reduce->op},
        .dtype = reduce->dtype,
    };
    symmem_status status = cuda_failpoint(instance, "cuda.reduce_local");
    return status == SYMMEM_OK ? cuda_work_run(instance, &local.work, exec) : status;
}
