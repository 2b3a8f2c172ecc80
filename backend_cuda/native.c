/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver's streams, of the process and not of an instance. Streams that wait for one another on
 * the device need queues of their own there. The driver gives those to the first that it makes; one
 * made after others were destroyed may share a queue even so (seen on an H200). So enough for most
 * are made when a process first opens a device, and are kept for as long as its context lives; of
 * those at rest the first made is taken. What exceeds them is made and destroyed.
 */
#include "cuda_internal.h"

#define ORDINARY 32 /* as many as there can be queues (CUDA_DEVICE_MAX_CONNECTIONS) */
#define URGENT 8

typedef struct native {
    CUstream stream; /* NULL: could not be made */
    bool taken;
} native;

typedef struct shelf {
    pthread_mutex_t lock;
    unsigned long long context; /* its id: one that is reset takes its streams along. 0: none yet */
    native ordinary[ORDINARY], urgent[URGENT];
} shelf;

static shelf shelves[CUDA_MAX_DEVICES] = {
    [0 ... CUDA_MAX_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER},
};

static CUresult make(const cuda_driver *driver, bool urgent, CUstream *stream_p) {
    int lowest = 0, highest = 0;
    if (!urgent)
        return driver->StreamCreate(stream_p, CU_STREAM_NON_BLOCKING);
    CUresult result = driver->CtxGetStreamPriorityRange(&lowest, &highest);
    return result == CUDA_SUCCESS
               ? driver->StreamCreateWithPriority(stream_p, CU_STREAM_NON_BLOCKING, highest)
               : result;
}

/* What cannot be made is missed by who would have taken it. */
static void fill(const cuda_driver *driver, bool urgent, native *natives, int count) {
    for (int i = 0; i < count; i++) {
        natives[i] = (native){NULL, false};
        if (make(driver, urgent, &natives[i].stream) != CUDA_SUCCESS)
            natives[i].stream = NULL;
    }
}

void cuda_natives_open(const cuda_driver *driver, int32_t device) {
    shelf *own = &shelves[device];
    unsigned long long context = 0;
    if (driver->CtxGetId == NULL || driver->CtxGetId(NULL, &context) != CUDA_SUCCESS)
        return; /* contexts cannot be told apart, so nothing is kept */
    pthread_mutex_lock(&own->lock);
    if (own->context != context) {
        fill(driver, false, own->ordinary, ORDINARY);
        fill(driver, true, own->urgent, URGENT);
        own->context = context;
    }
    pthread_mutex_unlock(&own->lock);
}

/* lock held. One may still have work of who took it last. NULL: none is at rest. */
static native *find_at_rest(const cuda_driver *driver, native *natives, int count) {
    for (int i = 0; i < count; i++)
        if (natives[i].stream != NULL && !natives[i].taken &&
            driver->StreamQuery(natives[i].stream) == CUDA_SUCCESS)
            return &natives[i];
    return NULL;
}

CUresult cuda_native_take(const cuda_driver *driver, int32_t device, bool urgent,
                          CUstream *stream_p) {
    shelf *own = &shelves[device];
    pthread_mutex_lock(&own->lock);
    native *found = urgent ? find_at_rest(driver, own->urgent, URGENT)
                           : find_at_rest(driver, own->ordinary, ORDINARY);
    if (found != NULL) {
        found->taken = true;
        *stream_p = found->stream;
    }
    pthread_mutex_unlock(&own->lock);
    return found != NULL ? CUDA_SUCCESS : make(driver, urgent, stream_p);
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

void cuda_native_give(const cuda_driver *driver, int32_t device, CUstream stream, bool entered) {
    shelf *own = &shelves[device];
    pthread_mutex_lock(&own->lock);
    const bool kept =
        put_back(own->ordinary, ORDINARY, stream) || put_back(own->urgent, URGENT, stream);
    pthread_mutex_unlock(&own->lock);
    if (!kept && entered)
        (void)driver->StreamDestroy(stream); /* behind its work */
}
