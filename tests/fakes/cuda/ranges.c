/* SPDX-License-Identifier: BSD-3-Clause */
/* What the driver knows: device and pinned memory. */

#include "fake.h"

typedef struct range {
    struct range *next;
    CUdeviceptr at;
    size_t bytes;
    bool in_call; /* a call that changes who has access to it is under way */
} range;

static range *ranges;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void fake_know(CUdeviceptr at, size_t bytes) {
    range *known = malloc(sizeof *known);
    if (known == NULL)
        abort();
    pthread_mutex_lock(&lock);
    *known = (range){.next = ranges, .at = at, .bytes = bytes};
    ranges = known;
    pthread_mutex_unlock(&lock);
    fake_count(1);
}

void fake_forget(CUdeviceptr at, size_t bytes) {
    pthread_mutex_lock(&lock);
    range **link = &ranges;
    while (*link != NULL && (*link)->at != at)
        link = &(*link)->next;
    range *known = *link;
    if (known != NULL)
        *link = known->next;
    pthread_mutex_unlock(&lock);
    fake_count(known != NULL ? -1 : 0);
    free(known);
}

/* lock held */
static range *find(CUdeviceptr at) {
    range *known = ranges;
    while (known != NULL && (at < known->at || at >= known->at + known->bytes))
        known = known->next;
    return known;
}

bool fake_is_known(CUdeviceptr at) {
    pthread_mutex_lock(&lock);
    bool known = find(at) != NULL;
    pthread_mutex_unlock(&lock);
    return known;
}

CUresult fake_access_begin(CUdeviceptr at) {
    pthread_mutex_lock(&lock);
    range *known = find(at);
    CUresult result = known == NULL    ? CUDA_ERROR_INVALID_VALUE
                      : known->in_call ? CUDA_ERROR_ALREADY_MAPPED
                                       : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        known->in_call = true;
    pthread_mutex_unlock(&lock);
    return result;
}

void fake_access_end(CUdeviceptr at) {
    pthread_mutex_lock(&lock);
    range *known = find(at);
    if (known != NULL)
        known->in_call = false;
    pthread_mutex_unlock(&lock);
}

/* --- memory in the order of a stream ----------------------------------------------------- */

/* Memory in the order of a stream. */

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
