/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for the time of a product, taken and given back in the order of its stream (in a graph, in
 * each launch), and the tables of peers. The pool is the instance's own and never makes one stream
 * wait for what another one gives back: with ranks that are threads that stream may be one which
 * waits for this rank.
 */
#include "cuda_internal.h"

#define KEPT_BYTES ((cuuint64_t)256 << 20) /* by the pool, while nobody uses them */

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

CUresult cuda_scratch_take(cuda_instance *instance, int32_t index, size_t bytes, CUstream native,
                           CUdeviceptr *at_p) {
    cuda_device *device = &instance->devices[index];
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&instance->lock);
    if (device->scratch == NULL)
        result = make_pool(&instance->driver, index, &device->scratch);
    pthread_mutex_unlock(&instance->lock);
    return result == CUDA_SUCCESS
               ? instance->driver.MemAllocFromPoolAsync(at_p, bytes, device->scratch, native)
               : result;
}

void cuda_scratch_give(const cuda_instance *instance, CUdeviceptr at, CUstream native) {
    if (at != 0)
        (void)instance->driver.MemFreeAsync(at, native);
}

/* No product is under way any more. */
void cuda_scratch_close(cuda_instance *instance) {
    for (int32_t i = 0; i < instance->device_count; i++)
        if (instance->devices[i].scratch != NULL && cuda_reenter(instance, i)) {
            (void)instance->driver.MemPoolDestroy(instance->devices[i].scratch);
            cuda_leave(instance);
        }
}
