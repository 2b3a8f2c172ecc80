/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for the duration of a product, allocated and freed in stream order (in a graph, in each
 * launch), and the tables of peers. The pool belongs to the instance. It never makes one stream
 * wait for memory that another one frees. With ranks that are threads that stream may be one which
 * waits for this rank.
 */
#include "memory/scratch.h"
#include "driver/context.h"

#define KEPT_BYTES ((cuuint64_t)256 << 20) /* by the pool, while unused */

static CUresult make_pool(const cuda_driver *driver, int32_t index, CUmemoryPool *pool_p) {
    const CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = index},
    };
    cuuint64_t kept = KEPT_BYTES;
    int never = 0;
    CUmemoryPool pool;
    CUresult result = driver->MemPoolCreate(&pool, &properties);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept);
    if (result == CUDA_SUCCESS)
        result = driver->MemPoolSetAttribute(
            pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &never);
    if (result == CUDA_SUCCESS)
        *pool_p = pool;
    else
        (void)driver->MemPoolDestroy(pool);
    return result;
}

/* Installs `made` if there was no pool. An unneeded one is left in *made_p. NULL: none yet. */
static CUmemoryPool pool_of(cuda_instance *instance, int32_t index, CUmemoryPool *made_p) {
    cuda_device *device = &instance->devices[index];
    pthread_mutex_lock(&instance->lock);
    if (device->scratch == NULL && made_p != NULL) {
        device->scratch = *made_p;
        *made_p = NULL;
    }
    CUmemoryPool pool = device->scratch;
    pthread_mutex_unlock(&instance->lock);
    return pool;
}

/* The lock is not held while the driver makes a pool, which may take long. If two are made at once,
 * one is destroyed. */
static CUresult find_pool(cuda_instance *instance, int32_t index, CUmemoryPool *pool_p) {
    CUmemoryPool made = NULL;
    *pool_p = pool_of(instance, index, NULL);
    if (*pool_p != NULL)
        return CUDA_SUCCESS;
    CUresult result = make_pool(&instance->driver, index, &made);
    if (result != CUDA_SUCCESS)
        return result;
    *pool_p = pool_of(instance, index, &made);
    if (made != NULL)
        (void)instance->driver.MemPoolDestroy(made);
    return CUDA_SUCCESS;
}

CUresult cuda_scratch_take(cuda_instance *instance, int32_t index, size_t bytes, CUstream native,
                           CUdeviceptr *at_p) {
    CUmemoryPool pool;
    CUresult result = find_pool(instance, index, &pool);
    return result == CUDA_SUCCESS
               ? instance->driver.MemAllocFromPoolAsync(at_p, bytes, pool, native)
               : result;
}

void cuda_scratch_give(const cuda_instance *instance, CUdeviceptr at, CUstream native) {
    if (at != 0)
        (void)instance->driver.MemFreeAsync(at, native);
}

/* No product is in flight any more. */
void cuda_scratch_close(cuda_instance *instance) {
    for (int32_t i = 0; i < instance->device_count; i++)
        if (instance->devices[i].scratch != NULL && cuda_reenter(instance, i)) {
            (void)instance->driver.MemPoolDestroy(instance->devices[i].scratch);
            cuda_leave(instance);
        }
}
