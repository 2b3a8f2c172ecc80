/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream's copies from and to ordinary host memory. The driver's own copy makes the calling
 * thread wait for everything before it in the stream, in a call that blocks other threads from the
 * context. With ranks as threads of one process, or two streams used by two threads, the work that
 * the stream waits for can then never be enqueued. So such copies go through pinned memory, piece
 * by piece. A host function copies between the pieces. In a graph that happens in each launch.
 */
#include <string.h>

#include "driver/staging.h"
#include "driver/pinned.h"

#define HEAD_BYTES 256

/* The head of a large block of pinned memory, followed by the data. Its host functions run one
 * after the other, as the stream does. */
struct cuda_staging {
    pthread_mutex_t lock; /* held during accesses to ordinary memory, and over the next one */
    bool given_up;
    char *dst;
    const char *src; /* the ordinary side, or both; otherwise NULL */
    size_t bytes;
    size_t done; /* bytes; starts again with the next launch of a graph */
};

_Static_assert(sizeof(cuda_staging) <= HEAD_BYTES, "the head of a unit");
_Static_assert(HEAD_BYTES + CUDA_STAGED_BYTES <= CUDA_LARGE_BLOCK_BYTES,
               "what is sent fits into one");

static char *data_of(cuda_staging *staging) {
    return (char *)staging + HEAD_BYTES;
}

static CUresult take_staging(const cuda_instance *instance, cuda_staging **staging_p) {
    void *unit;
    CUresult result = cuda_large_block_take(&instance->driver, &unit);
    if (result != CUDA_SUCCESS)
        return result;
    *staging_p = unit;
    **staging_p = (cuda_staging){.lock = PTHREAD_MUTEX_INITIALIZER};
    return CUDA_SUCCESS;
}

void cuda_staging_give(cuda_staging *staging) {
    if (staging == NULL)
        return;
    (void)pthread_mutex_destroy(&staging->lock);
    cuda_large_block_give(staging);
}

void cuda_staging_give_up(cuda_staging *staging) {
    if (staging == NULL)
        return;
    pthread_mutex_lock(&staging->lock);
    staging->given_up = true;
    pthread_mutex_unlock(&staging->lock);
}

CUresult cuda_staging_send(cuda_instance *instance, CUstream native, CUdeviceptr dst,
                           const void *bytes, size_t count, cuda_staging **staging_p) {
    CUresult result = take_staging(instance, staging_p);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(data_of(*staging_p), bytes, count);
    return instance->driver.MemcpyAsync(dst, cuda_address(data_of(*staging_p)), count, native);
}

/* --- in the stream ------------------------------------------------------------------ */

static size_t piece_of(const cuda_staging *staging, size_t done) {
    const size_t most = CUDA_LARGE_BLOCK_BYTES - HEAD_BYTES;
    return staging->bytes - done < most ? staging->bytes - done : most;
}

static void copy_next(cuda_staging *staging) {
    size_t piece = staging->src != NULL && staging->dst != NULL ? staging->bytes
                                                                : piece_of(staging, staging->done);
    char *dst = staging->dst != NULL ? staging->dst + staging->done : data_of(staging);
    const char *src = staging->src != NULL ? staging->src + staging->done : data_of(staging);
    memcpy(dst, src, piece);
    staging->done += piece;
    if (staging->done == staging->bytes)
        staging->done = 0;
}

/* Called by the driver, which must not be called here. */
static void CUDA_CB copy_piece(void *opaque) {
    cuda_staging *staging = opaque;
    pthread_mutex_lock(&staging->lock);
    if (!staging->given_up)
        copy_next(staging);
    pthread_mutex_unlock(&staging->lock);
}

static CUresult copy_across(const cuda_instance *instance, const cuda_mover *mover, CUdeviceptr dst,
                            CUdeviceptr src, size_t bytes, CUstream native) {
    (void)mover;
    return instance->driver.MemcpyAsync(dst, src, bytes, native);
}

static const cuda_mover plain_copy = {copy_across};

static CUresult enqueue_pieces(const cuda_instance *instance, CUstream native,
                               cuda_staging *staging, CUdeviceptr device, const cuda_mover *mover) {
    const cuda_driver *driver = &instance->driver;
    const CUdeviceptr data = cuda_address(data_of(staging));
    const bool from_host = staging->src != NULL;
    CUresult result = CUDA_SUCCESS;
    for (size_t at = 0; result == CUDA_SUCCESS && at < staging->bytes;) {
        size_t piece = piece_of(staging, at);
        if (from_host)
            result = driver->LaunchHostFunc(native, copy_piece, staging);
        if (result == CUDA_SUCCESS)
            result = mover->move(instance, mover, from_host ? device + at : data,
                                 from_host ? data : device + at, piece, native);
        if (result == CUDA_SUCCESS && !from_host)
            result = driver->LaunchHostFunc(native, copy_piece, staging);
        at += piece;
    }
    return result;
}

/* --- choosing the path ------------------------------------------------------------- */

/* Memory that the driver does not know is no error for this call, as it would be for a query of one
 * attribute. So tools that watch for errors of the driver find none. */
unsigned int cuda_memory_type(const cuda_driver *driver, CUdeviceptr address) {
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    unsigned int type = 0;
    void *data[] = {&type};
    CUresult result = driver->PointerGetAttributes(1, &attribute, data, address);
    return result == CUDA_SUCCESS ? type : 0;
}

bool cuda_is_ordinary(const cuda_driver *driver, CUdeviceptr address) {
    return cuda_memory_type(driver, address) == 0;
}

/* With an idle stream the driver's own copy waits for nothing. */
static bool uses_driver_copy(const cuda_driver *driver, CUstream native, bool capturing) {
    return !capturing && driver->StreamQuery(native) == CUDA_SUCCESS;
}

/* Allocates for `bytes` bytes. An end that is not ordinary memory is 0. */
static CUresult take_for(const cuda_instance *instance, CUdeviceptr dst, CUdeviceptr src,
                         size_t bytes, cuda_staging **staging_p) {
    CUresult result = take_staging(instance, staging_p);
    if (result != CUDA_SUCCESS)
        return result;
    (*staging_p)->dst = (char *)(uintptr_t)dst;
    (*staging_p)->src = (const char *)(uintptr_t)src;
    (*staging_p)->bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult cuda_copy_enqueue(cuda_instance *instance, CUstream native, bool capturing,
                           CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                           cuda_staging **staging_p) {
    const cuda_driver *driver = &instance->driver;
    if (bytes == 0)
        return CUDA_SUCCESS;
    const bool from_host = cuda_is_ordinary(driver, src), to_host = cuda_is_ordinary(driver, dst);
    if ((!from_host && !to_host) || uses_driver_copy(driver, native, capturing))
        return driver->MemcpyAsync(dst, src, bytes, native);
    CUresult result = take_for(instance, to_host ? dst : 0, from_host ? src : 0, bytes, staging_p);
    if (result != CUDA_SUCCESS)
        return result;
    if (from_host && to_host)
        return driver->LaunchHostFunc(native, copy_piece, *staging_p);
    return enqueue_pieces(instance, native, *staging_p, from_host ? dst : src, &plain_copy);
}

CUresult cuda_move_enqueue(cuda_instance *instance, CUstream native, CUdeviceptr dst,
                           CUdeviceptr src, size_t bytes, const cuda_mover *mover,
                           cuda_staging **staging_p) {
    const cuda_driver *driver = &instance->driver;
    if (bytes == 0)
        return CUDA_SUCCESS;
    const bool from_host = cuda_is_ordinary(driver, src), to_host = cuda_is_ordinary(driver, dst);
    if (!from_host && !to_host)
        return mover->move(instance, mover, dst, src, bytes, native);
    CUresult result = take_for(instance, to_host ? dst : 0, from_host ? src : 0, bytes, staging_p);
    return result == CUDA_SUCCESS
               ? enqueue_pieces(instance, native, *staging_p, from_host ? dst : src, mover)
               : result;
}
