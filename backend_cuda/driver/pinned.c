/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small blocks of pinned memory. They belong to the process and not to an instance, because ranks
 * that are threads may share a context. The driver's own calls to allocate or free pinned memory
 * may wait there for a peer's running kernel that waits for this rank. Blocks come from slabs,
 * which are freed when no instance uses a device any more.
 */
#include "driver/pinned.h"

#include <stdlib.h>
#include <string.h>

typedef struct slab {
    struct slab *next;
    void *pinned;
    CUdevice device; /* the device of the slab, whose context is held for it */
} slab;

/* The head of a free block. */
typedef struct idle {
    struct idle *next;
} idle;

typedef struct pool {
    const size_t piece_bytes, pieces; /* of a slab */
    idle *first;
} pool;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over all of it */
static int32_t users;
static slab *slabs;
/* A slab is everything that the driver maps at a time. Otherwise other libraries' pinned memory
 * might lie in the same mapping, and keep it. */
static pool pieces = {CUDA_SMALL_BLOCK_BYTES, 8192, NULL};
static pool units = {CUDA_LARGE_BLOCK_BYTES, 64, NULL};

_Static_assert(sizeof(symmem_cuda_fault) <= CUDA_SMALL_BLOCK_BYTES, "a fault is one piece");
_Static_assert(sizeof(symmem_cuda_control) <= CUDA_SMALL_BLOCK_BYTES,
               "a control word is one piece");

static CUresult make_slab(const cuda_driver *driver, size_t bytes, slab *made) {
    CUcontext context;
    CUresult result = driver->CtxGetDevice(&made->device);
    if (result == CUDA_SUCCESS)
        result = driver->DevicePrimaryCtxRetain(&context, made->device);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->MemHostAlloc(&made->pinned, bytes,
                                  CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result != CUDA_SUCCESS)
        (void)driver->DevicePrimaryCtxRelease(made->device);
    return result;
}

/* lock not held, because it may take until a running kernel ends, and the threads that end it need
 * the lock. */
static CUresult grow(const cuda_driver *driver, pool *from) {
    slab *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = make_slab(driver, from->pieces * from->piece_bytes, made);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    pthread_mutex_lock(&lock);
    made->next = slabs;
    slabs = made;
    for (size_t i = 0; i < from->pieces; i++) {
        idle *piece = (idle *)(void *)((char *)made->pinned + i * from->piece_bytes);
        piece->next = from->first;
        from->first = piece;
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static idle *take_idle(pool *from) {
    pthread_mutex_lock(&lock);
    idle *piece = from->first;
    if (piece != NULL)
        from->first = piece->next;
    pthread_mutex_unlock(&lock);
    return piece;
}

static CUresult take_block(const cuda_driver *driver, pool *from, void **piece_p) {
    CUresult result = CUDA_SUCCESS;
    idle *piece;
    while ((piece = take_idle(from)) == NULL && result == CUDA_SUCCESS)
        result = grow(driver, from);
    *piece_p = piece;
    return result;
}

static void give(pool *to, void *opaque) {
    idle *piece = opaque;
    pthread_mutex_lock(&lock);
    piece->next = to->first;
    to->first = piece;
    pthread_mutex_unlock(&lock);
}

CUresult cuda_small_block_take(const cuda_driver *driver, void **piece_p) {
    CUresult result = take_block(driver, &pieces, piece_p);
    if (result == CUDA_SUCCESS)
        memset(*piece_p, 0, CUDA_SMALL_BLOCK_BYTES);
    return result;
}

void cuda_small_block_give(void *piece) {
    if (piece != NULL)
        give(&pieces, piece);
}

CUresult cuda_large_block_take(const cuda_driver *driver, void **unit_p) {
    return take_block(driver, &units, unit_p);
}

void cuda_large_block_give(void *unit) {
    give(&units, unit);
}

static void free_slabs(const cuda_driver *driver, slab *list) {
    while (list != NULL) {
        slab *freed = list;
        list = freed->next;
        (void)driver->MemFreeHost(freed->pinned);
        (void)driver->DevicePrimaryCtxRelease(freed->device);
        free(freed);
    }
}

/* Preallocates as many of both sizes as are rarely exceeded. A later allocation might have to
 * wait. */
CUresult cuda_pinned_join(const cuda_driver *driver) {
    void *piece = NULL, *unit = NULL;
    pthread_mutex_lock(&lock);
    users++;
    pthread_mutex_unlock(&lock);
    CUresult result = take_block(driver, &pieces, &piece);
    if (result == CUDA_SUCCESS)
        result = take_block(driver, &units, &unit);
    if (piece != NULL)
        give(&pieces, piece);
    if (unit != NULL)
        give(&units, unit);
    if (result != CUDA_SUCCESS)
        cuda_pinned_leave(driver);
    return result;
}

void cuda_pinned_leave(const cuda_driver *driver) {
    slab *list = NULL;
    pthread_mutex_lock(&lock);
    if (--users == 0) {
        list = slabs;
        slabs = NULL;
        pieces.first = NULL;
        units.first = NULL;
    }
    pthread_mutex_unlock(&lock);
    free_slabs(driver, list);
}
