/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver's streams. They belong to the process and not to an instance. Streams that wait for
 * one another on the device need separate hardware queues. A stream that the driver makes after
 * others were destroyed may share a queue even if there are enough (seen on an H200). So none is
 * destroyed, and a user gets the idle one that was made first. They are kept as long as the
 * device's context lives. Only streams beyond the cache's size are made and destroyed.
 */
#include "driver/stream_cache.h"

#include <string.h>

#define ORDINARY 128
#define URGENT 64

typedef struct native {
    CUstream stream; /* NULL: not made yet */
    bool taken;
} native;

/* The lock protects only these fields. It is not held during calls of the driver, which may take
 * long. */
typedef struct stream_cache {
    pthread_mutex_t lock;
    unsigned long long context; /* its id; a reset context takes its streams along. 0: none yet */
    native ordinary[ORDINARY], urgent[URGENT];
} stream_cache;

static stream_cache stream_caches[CUDA_MAX_DEVICES] = {
    [0 ... CUDA_MAX_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER},
};

/* If contexts cannot be distinguished nothing is kept. */
void cuda_stream_cache_open(cuda_instance *instance, int32_t index) {
    stream_cache *own = &stream_caches[index];
    const unsigned long long context = instance->devices[index].context_id;
    if (context == 0)
        return;
    pthread_mutex_lock(&own->lock);
    if (own->context != context) {
        memset(own->ordinary, 0, sizeof own->ordinary);
        memset(own->urgent, 0, sizeof own->urgent);
        own->context = context;
    }
    pthread_mutex_unlock(&own->lock);
}

static CUresult make(const cuda_driver *driver, bool urgent, CUstream *stream_p) {
    int lowest = 0, highest = 0;
    if (!urgent)
        return driver->StreamCreate(stream_p, CU_STREAM_NON_BLOCKING);
    CUresult result = driver->CtxGetStreamPriorityRange(&lowest, &highest);
    return result == CUDA_SUCCESS
               ? driver->StreamCreateWithPriority(stream_p, CU_STREAM_NON_BLOCKING, highest)
               : result;
}

/* Not with work of its previous user, nor in a capture, which a query would break. */
static bool is_at_rest(const cuda_driver *driver, CUstream stream) {
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver->StreamGetCaptureInfo(stream, &capturing, NULL, NULL, NULL, NULL) ==
               CUDA_SUCCESS &&
           capturing == CU_STREAM_CAPTURE_STATUS_NONE &&
           driver->StreamQuery(stream) == CUDA_SUCCESS;
}

static bool reserve(stream_cache *own, unsigned long long context, native *each,
                    CUstream *stream_p) {
    pthread_mutex_lock(&own->lock);
    const bool reserved = own->context == context && !each->taken;
    if (reserved) {
        each->taken = true;
        *stream_p = each->stream;
    }
    pthread_mutex_unlock(&own->lock);
    return reserved;
}

/* Updates a reserved stream. A no-op if the context has been reset since. */
static void settle(stream_cache *own, unsigned long long context, native *each, CUstream stream,
                   bool taken) {
    pthread_mutex_lock(&own->lock);
    if (own->context == context)
        *each = (native){stream, taken};
    pthread_mutex_unlock(&own->lock);
}

CUresult cuda_cached_stream_take(cuda_instance *instance, int32_t index, bool urgent,
                                 CUstream *stream_p) {
    const cuda_driver *driver = &instance->driver;
    const unsigned long long context = instance->devices[index].context_id;
    stream_cache *own = &stream_caches[index];
    native *natives = urgent ? own->urgent : own->ordinary;
    const int count = urgent ? URGENT : ORDINARY;
    CUresult made = CUDA_SUCCESS;
    for (int i = 0; context != 0 && i < count; i++) {
        CUstream stream;
        if (!reserve(own, context, &natives[i], &stream))
            continue;
        if (stream == NULL && made == CUDA_SUCCESS) {
            made = make(driver, urgent, &stream);
            stream = made == CUDA_SUCCESS ? stream : NULL;
        }
        const bool good = stream != NULL && is_at_rest(driver, stream);
        settle(own, context, &natives[i], stream, good);
        if (good) {
            *stream_p = stream;
            return CUDA_SUCCESS;
        }
    }
    return made == CUDA_SUCCESS ? make(driver, urgent, stream_p) : made;
}

/* lock held */
static bool put_back(native *natives, int count, CUstream stream) {
    int i = 0;
    while (i < count && natives[i].stream != stream)
        i++;
    if (i < count)
        natives[i].taken = false;
    return i < count;
}

void cuda_cached_stream_give(cuda_instance *instance, int32_t index, CUstream stream,
                             bool entered) {
    const unsigned long long context = instance->devices[index].context_id;
    stream_cache *own = &stream_caches[index];
    bool done = false;
    pthread_mutex_lock(&own->lock);
    if (context != 0) /* it went with its context, or stays */
        done = own->context != context || put_back(own->ordinary, ORDINARY, stream) ||
               put_back(own->urgent, URGENT, stream);
    pthread_mutex_unlock(&own->lock);
    if (!done && entered)
        (void)instance->driver.StreamDestroy(stream); /* after its work */
}
