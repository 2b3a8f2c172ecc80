/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matrix products: the user's entry, by cuBLASLt or by a portable kernel.
 *
 * The library's product cannot be skipped in a stream, nor does it scale rows and columns. So a
 * product that is a step of a composite operation, waits for chunks or is scaled is summed into
 * memory of the stream. From there a kernel of this library stores it to out, or does not.
 */
#include <string.h>

#include "product/blas.h"
#include "cuda/product.h"
#include "product/product.h"
#include "collective/work.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "driver/pinned.h"
#include "memory/scratch.h"
#include "signal/signal.h"

#define PLACE 256
#define AWAIT_THREADS 32

/* The library's errors that come before anything is enqueued. -1 is this backend's own. */
enum { INVALID_VALUE = 7, ARCH_MISMATCH = 8, NOT_SUPPORTED = 15 };

typedef struct product_work {
    cuda_work work; /* first, because enqueue gets it */
    const symmem_matmul *product;
    uint32_t timeout_ms;
} product_work;

static size_t element_bytes(symmem_dtype dtype) {
    switch (dtype) {
    case SYMMEM_FLOAT64:
        return 8;
    case SYMMEM_FLOAT32:
        return 4;
    case SYMMEM_FLOAT16:
    case SYMMEM_BFLOAT16:
        return 2;
    default:
        return 1;
    }
}

static int32_t real_of(symmem_dtype dtype) {
    switch (dtype) {
    case SYMMEM_FLOAT64:
        return SYMMEM_CUDA_REAL_F64;
    case SYMMEM_FLOAT16:
        return SYMMEM_CUDA_REAL_F16;
    case SYMMEM_BFLOAT16:
        return SYMMEM_CUDA_REAL_BF16;
    default:
        return SYMMEM_CUDA_REAL_F32;
    }
}

/* --- the portable kernel ----------------------------------------------------------- */

static symmem_cuda_product args_of(const symmem_matmul *p, const uint64_t *failed,
                                   const void *sums) {
    return (symmem_cuda_product){.failed = failed,
                                 .m = p->m,
                                 .n = p->n,
                                 .k = p->k,
                                 .a = p->a,
                                 .a_row = p->a_row,
                                 .a_column = p->a_column,
                                 .b = p->b,
                                 .b_row = p->b_row,
                                 .b_column = p->b_column,
                                 .out = p->out,
                                 .out_row = p->out_row,
                                 .out_column = p->out_column,
                                 .out_real = real_of(p->out_dtype),
                                 .accumulate = p->accumulate,
                                 .a_scale_by_row = p->a_scale_by_row,
                                 .b_scale_by_column = p->b_scale_by_column,
                                 .a_scale = p->a_scale,
                                 .b_scale = p->b_scale,
                                 .sums = sums};
}

/* sums NULL: the whole product; else the rest of it. */
static symmem_status enqueue_kernel(cuda_instance *instance, const cuda_work *work,
                                    const symmem_matmul *p, const uint64_t *failed,
                                    const void *sums, CUstream native) {
    const cuda_local_kernels *local = &instance->devices[work->device].kernels.local;
    symmem_cuda_product args = args_of(p, failed, sums);
    CUfunction kernel = sums == NULL                 ? local->product[p->dtype]
                        : p->dtype == SYMMEM_FLOAT64 ? local->finish_double
                                                     : local->finish;
    return cuda_work_launch(instance, work, kernel, (uint64_t)p->m * (uint64_t)p->n, &args, native);
}

/* --- the library -------------------------------------------------------------------- */

static size_t places(size_t bytes) {
    return (bytes + PLACE - 1) / PLACE * PLACE;
}

/* Returns false if nothing was enqueued, and the portable kernel is to compute it. */
static bool enqueue_blas(cuda_instance *instance, const cuda_work *work, const cuda_blas_job *job,
                         const uint64_t *failed, CUstream native, symmem_status *status_p) {
    int error = cuda_blas_enqueue(instance, work->device, job, native);
    if (error == -1 || error == INVALID_VALUE || error == ARCH_MISMATCH || error == NOT_SUPPORTED) {
        instance->host->notice(instance->host,
                               "cuBLASLt refuses a product that it had planned: a plain kernel");
        return false;
    }
    if (error != 0)
        *status_p = instance->host->fail(instance->host, SYMMEM_BACKEND, 0, work->operation,
                                         "cuBLASLt: error %d", error);
    else if (job->sums != NULL)
        *status_p = enqueue_kernel(instance, work, job->product, failed, job->sums, native);
    return true;
}

/* Sums into memory of the stream, which a graph allocates and frees in each launch. Also returns
 * false if there is none. */
static bool enqueue_library(cuda_instance *instance, const cuda_work *work, const symmem_matmul *p,
                            const uint64_t *failed, CUstream native, symmem_status *status_p) {
    const size_t sum = p->dtype == SYMMEM_FLOAT64 ? sizeof(double) : sizeof(float);
    const bool apart = failed != NULL || p->a_scale != NULL;
    const size_t sums = apart ? places((size_t)p->m * (size_t)p->n * sum) : 0;
    CUdeviceptr memory = 0;
    cuda_blas_job job = {.product = p};
    if (apart)
        job.sums = (void *)(uintptr_t)PLACE; /* for the plan: aligned like this */
    if (!cuda_blas_plan(instance, work->device, &job))
        return false;
    if (sums + job.workspace_bytes > 0 &&
        cuda_scratch_take(instance, work->device, sums + job.workspace_bytes, native, &memory) !=
            CUDA_SUCCESS)
        return false;
    if (apart)
        job.sums = (void *)(uintptr_t)memory;
    if (job.workspace_bytes > 0)
        job.workspace = (void *)(uintptr_t)(memory + sums);
    bool done = enqueue_blas(instance, work, &job, failed, native, status_p);
    cuda_scratch_give(instance, memory, native);
    return done;
}

/* --- one product -------------------------------------------------------------------- */

static symmem_status enqueue_own(const cuda_instance *instance, const cuda_work *work,
                                 const symmem_matmul *p, CUstream native) {
    symmem_status status = p->fn(p->fn_arg, p, native);
    return status == SYMMEM_OK ? status
                               : instance->host->fail(instance->host, status, 0, work->operation,
                                                      "the user's matrix product failed");
}

static symmem_status enqueue_one(cuda_instance *instance, const cuda_work *work,
                                 const symmem_matmul *p, const uint64_t *failed, CUstream native) {
    symmem_status status = SYMMEM_OK;
    if (p->m == 0 || p->n == 0)
        return SYMMEM_OK;
    if (p->fn != NULL)
        return enqueue_own(instance, work, p, native);
    if (enqueue_library(instance, work, p, failed, native, &status))
        return status;
    return enqueue_kernel(instance, work, p, failed, NULL, native);
}

/* --- one chunk after the other ------------------------------------------------------ */

static symmem_matmul chunk_of(const symmem_matmul *p, int32_t chunk) {
    const int64_t rows = p->m / p->signal_count, first = chunk * rows;
    symmem_matmul some = *p;
    some.m = rows;
    some.a = (const char *)p->a + first * p->a_row * (int64_t)element_bytes(p->dtype);
    some.out = (char *)p->out + first * p->out_row * (int64_t)element_bytes(p->out_dtype);
    some.signals = NULL;
    return some;
}

/* Returns the bytes from the first element to the end of the last. */
static size_t extent_of_a(const symmem_matmul *p) {
    return ((size_t)(p->m - 1) * (size_t)p->a_row + (size_t)(p->k - 1) * (size_t)p->a_column + 1) *
           element_bytes(p->dtype);
}

/* Multiplies arbitrary memory of the stream and discards the result. So the library has loaded its
 * kernel, which might be blocked later, while another kernel waits for a chunk. */
static void warm(cuda_instance *instance, const cuda_work *work, const symmem_matmul *p,
                 CUstream native) {
    symmem_matmul idle = *p;
    const size_t sum = p->dtype == SYMMEM_FLOAT64 ? sizeof(double) : sizeof(float);
    const size_t sums = places((size_t)p->m * (size_t)p->n * sum);
    cuda_blas_job job = {.product = p, .sums = (void *)(uintptr_t)PLACE};
    CUdeviceptr memory;
    if (p->m == 0 || p->n == 0 || p->fn != NULL || !cuda_blas_plan(instance, work->device, &job) ||
        !job.fresh)
        return;
    const size_t workspace = places(job.workspace_bytes), shift = (uintptr_t)p->a % PLACE;
    if (cuda_scratch_take(instance, work->device, sums + workspace + shift + extent_of_a(p), native,
                          &memory) != CUDA_SUCCESS)
        return;
    idle.a = (const void *)(uintptr_t)(memory + sums + workspace + shift);
    job.product = &idle;
    job.sums = (void *)(uintptr_t)memory;
    job.workspace = workspace > 0 ? (void *)(uintptr_t)(memory + sums) : NULL;
    (void)cuda_blas_enqueue(instance, work->device, &job,
                            native); /* the product itself reports it */
    cuda_scratch_give(instance, memory, native);
}

static symmem_status enqueue_chunk(cuda_instance *instance, const product_work *product, int32_t i,
                                   symmem_cuda_state *state, CUstream native) {
    const symmem_matmul *p = product->product;
    const int32_t chunk = (int32_t)(((int64_t)p->signal_pivot + i) % p->signal_count);
    const symmem_matmul some = chunk_of(p, chunk);
    symmem_cuda_await args = {.word = p->signals + chunk,
                              .state = state,
                              .fault = product->work.signal.fault,
                              .timeout_ms = product->timeout_ms,
                              .chunk = chunk,
                              .first = i == 0};
    CUresult result = cuda_launch_kernel(
        instance, instance->devices[product->work.device].kernels.local.await_chunk, 1,
        AWAIT_THREADS, &args, native);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, product->work.operation);
    return enqueue_one(instance, &product->work, &some, &state->failed, native);
}

static symmem_status enqueue_chunks(cuda_instance *instance, const product_work *product,
                                    CUstream native) {
    CUdeviceptr state = 0;
    CUresult result = cuda_scratch_take(instance, product->work.device, sizeof(symmem_cuda_state),
                                        native, &state);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, product->work.operation);
    symmem_status status = SYMMEM_OK;
    for (int32_t i = 0; i < product->product->signal_count && !product->work.capturing; i++) {
        const symmem_matmul some = chunk_of(product->product, i);
        warm(instance, &product->work, &some, native);
    }
    for (int32_t i = 0; i < product->product->signal_count && status == SYMMEM_OK; i++)
        status = enqueue_chunk(instance, product, i, (symmem_cuda_state *)(uintptr_t)state, native);
    cuda_scratch_give(instance, state, native);
    return status;
}

/* --- the entry ---------------------------------------------------------------------- */

static symmem_status enqueue(cuda_instance *instance, cuda_work *work, CUstream native) {
    const product_work *product = (const product_work *)work;
    return product->product->signals != NULL
               ? enqueue_chunks(instance, product, native)
               : enqueue_one(instance, work, product->product, work->failed, native);
}

/* Where the kernels report a chunk that does not arrive. */
static symmem_status take_fault(cuda_instance *instance, product_work *product) {
    void *fault;
    cuda_work *work = &product->work;
    symmem_status status = cuda_enter(instance, work->device, work->operation);
    if (status != SYMMEM_OK)
        return status;
    CUresult result = cuda_small_block_take(&instance->driver, &fault);
    cuda_leave(instance);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, work->operation);
    work->signal = (cuda_signal_op){.operation = work->operation,
                                    .instance = instance,
                                    .channel = -1,
                                    .chunk_count = product->product->signal_count,
                                    .fault = fault};
    return SYMMEM_OK;
}

symmem_status cuda_matmul(void *opaque, int32_t device, const symmem_matmul *matmul,
                          const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    product_work product = {
        .work = {.operation = exec->operation != NULL ? exec->operation : "matmul",
                 .enqueue = enqueue,
                 .device = device},
        .product = matmul,
        .timeout_ms = exec->timeout_ms,
    };
    symmem_status status = cuda_failpoint(instance, "cuda.matmul");
    if (status == SYMMEM_OK && matmul->signals != NULL)
        status = take_fault(instance, &product);
    return status == SYMMEM_OK ? cuda_work_run(instance, &product.work, exec) : status;
}
