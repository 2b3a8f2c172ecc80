/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver's streams, of the process and not of an instance. Streams that wait for one another on
 * the device need queues of their own there. One that the driver makes after others were destroyed
 * may share a queue even if there are enough (seen on an H200), so none is destroyed: whoever needs
 * one takes the first made of those at rest. They are kept for as long as the device's context
 * lives; only what exceeds them is made and destroyed.
 */
#include "cuda_internal.h"

#define ORDINARY 128
#define URGENT 64

typedef struct native {
    atomic_bool taken;
    _Atomic(CUstream) stream; /* NULL: not made yet; written by who has taken it */
} native;

typedef struct shelf {
    pthread_mutex_t opening;
    atomic_ullong context; /* its id: one that is reset takes its streams along. 0: none yet */
    native ordinary[ORDINARY], urgent[URGENT];
} shelf;

static shelf shelves[CUDA_MAX_DEVICES] = {
    [0 ... CUDA_MAX_DEVICES - 1] = {.opening = PTHREAD_MUTEX_INITIALIZER},
};

static void forget(native *natives, int count) {
    for (int i = 0; i < count; i++) {
        atomic_store(&natives[i].stream, NULL);
        atomic_store(&natives[i].taken, false);
    }
}

/* Where contexts cannot be told apart nothing is kept. */
void cuda_natives_open(cuda_instance *instance, int32_t index) {
    shelf *own = &shelves[index];
    unsigned long long context = 0;
    if (instance->driver.CtxGetId == NULL ||
        instance->driver.CtxGetId(NULL, &context) != CUDA_SUCCESS)
        context = 0;
    instance->devices[index].context_id = context;
    if (context == 0)
        return;
    pthread_mutex_lock(&own->opening);
    if (atomic_load(&own->context) != context) {
        forget(own->ordinary, ORDINARY);
        forget(own->urgent, URGENT);
        atomic_store(&own->context, context);
    }
    pthread_mutex_unlock(&own->opening);
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

/* Not with work of who took it last, nor in a capture, which a query would break. */
static bool is_at_rest(const cuda_driver *driver, CUstream stream) {
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver->StreamGetCaptureInfo(stream, &capturing, NULL, NULL, NULL, NULL) ==
               CUDA_SUCCESS &&
           capturing == CU_STREAM_CAPTURE_STATUS_NONE &&
           driver->StreamQuery(stream) == CUDA_SUCCESS;
}

/* False: it is not to be had. No lock is held while the driver is asked, which may take long. */
static bool try_take(const cuda_driver *driver, bool urgent, native *each, CUresult *result_p) {
    CUstream stream = NULL;
    if (atomic_exchange(&each->taken, true))
        return false;
    stream = atomic_load(&each->stream);
    *result_p = CUDA_SUCCESS;
    if (stream != NULL && is_at_rest(driver, stream))
        return true;
    if (stream == NULL) {
        *result_p = make(driver, urgent, &stream);
        if (*result_p == CUDA_SUCCESS) {
            atomic_store(&each->stream, stream);
            return true;
        }
    }
    atomic_store(&each->taken, false);
    return *result_p != CUDA_SUCCESS;
}

CUresult cuda_native_take(cuda_instance *instance, int32_t index, bool urgent, CUstream *stream_p) {
    const cuda_driver *driver = &instance->driver;
    const unsigned long long context = instance->devices[index].context_id;
    shelf *own = &shelves[index];
    native *natives = urgent ? own->urgent : own->ordinary;
    const int count = urgent ? URGENT : ORDINARY;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; context != 0 && atomic_load(&own->context) == context && i < count; i++)
        if (try_take(driver, urgent, &natives[i], &result)) {
            *stream_p = atomic_load(&natives[i].stream);
            return result;
        }
    return make(driver, urgent, stream_p);
}

static bool put_back(native *natives, int count, CUstream stream) {
    int i = 0;
    while (i < count && atomic_load(&natives[i].stream) != stream)
        i++;
    if (i < count)
        atomic_store(&natives[i].taken, false);
    return i < count;
}

void cuda_native_give(cuda_instance *instance, int32_t index, CUstream stream, bool entered) {
    const unsigned long long context = instance->devices[index].context_id;
    shelf *own = &shelves[index];
    if (context != 0 && atomic_load(&own->context) != context)
        return; /* it went with its context */
    if (context != 0 &&
        (put_back(own->ordinary, ORDINARY, stream) || put_back(own->urgent, URGENT, stream)))
        return;
    if (entered)
        (void)instance->driver.StreamDestroy(stream); /* behind its work */
}
