/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory in the order of a stream. */

#include "fake.h"

#define LEFT_BEHIND 0xf7 /* by the memory's previous owner */

static void run_free(void *arg) {
    void *memory = *(void **)arg;
    fake_forget((CUdeviceptr)(uintptr_t)memory, 0);
    free(memory);
}

static void run_nothing(void *arg) {}

/* What is captured is the graph's: each launch finds it at the same place. */
FAKE(MemAllocFromPoolAsync, CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream stream) {
    FAKE_CALL("cuMemAllocFromPoolAsync");
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    size_t whole = (bytes + 4095) / 4096 * 4096;
    void *memory = aligned_alloc(4096, whole);
    if (memory == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(memory, LEFT_BEHIND, whole);
    *at = (CUdeviceptr)(uintptr_t)memory;
    fake_know(*at, bytes);
    return fake_is_capturing(stream)
               ? fake_enqueue(stream, run_nothing, run_free, &memory, sizeof memory, false)
               : CUDA_SUCCESS;
}

FAKE(MemFreeAsync, CUdeviceptr at, CUstream stream) {
    FAKE_CALL("cuMemFreeAsync");
    void *memory = (void *)(uintptr_t)at;
    if (!fake_is_known(at))
        return CUDA_ERROR_INVALID_VALUE;
    return fake_cuda_enqueue(stream, fake_is_capturing(stream) ? run_nothing : run_free, &memory,
                             sizeof memory);
}

FAKE(MemPoolCreate, CUmemoryPool *pool, const CUmemPoolProps *properties) {
    FAKE_UNSEEN_CALL("cuMemPoolCreate");
    fake_await_call();
    void *made = calloc(1, 1);
    memcpy(pool, &made, sizeof made);
    fake_count(made != NULL);
    return made != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE(MemPoolDestroy, CUmemoryPool pool) {
    FAKE_UNSEEN_CALL("cuMemPoolDestroy");
    free(pool);
    fake_count(-1);
    return CUDA_SUCCESS;
}

FAKE(MemPoolSetAttribute, CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    FAKE_CALL("cuMemPoolSetAttribute");
    return pool != NULL && value != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
