/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices: the primary context, and private streams. */
#include "cuda_internal.h"

#include <stdlib.h>
#include <time.h>

CUdeviceptr cuda_address(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

uint64_t cuda_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * CUDA_NS_PER_MS + (uint64_t)now.tv_nsec;
}

void cuda_sleep_ns(uint64_t ns) {
    const struct timespec pause = {.tv_nsec = (long)ns};
    nanosleep(&pause, NULL);
}

/*
 * The primary context is made by who first retains it and destroyed with the last reference. Both
 * take a good part of a second, one process after the other, so the first instance of a process
 * keeps its reference for the process's life, as the CUDA runtime does. Whoever finds the context
 * there, made by the runtime, by its user or by an earlier instance, gives its reference back.
 */
static CUresult retain_context(const cuda_driver *driver, cuda_device *device,
                               CUcontext *context_p) {
    unsigned int flags = 0;
    int active = 0;
    CUresult result = driver->DevicePrimaryCtxGetState(device->id, &flags, &active);
    device->kept = active == 0;
    return result == CUDA_SUCCESS ? driver->DevicePrimaryCtxRetain(context_p, device->id) : result;
}

/* The driver starts the thread that calls host functions with the first of them. This one does
 * nothing, is not waited for, since others may hold that thread, and is never unloaded. */
static CUresult start_callbacks(const cuda_driver *driver, const cuda_device *device) {
    return driver->LaunchHostFunc(device->control, free, NULL);
}

/*
 * Somebody else may be capturing in global mode, in another thread or in this one: calls that such
 * a capture does not see, of which questions are some, then fail and break it, unless the thread
 * has said that it means them. Those of this library are never meant to be part of it.
 */
static __thread struct {
    int depth;
    int changed_at; /* 0: not */
    CUstreamCaptureMode before;
} relaxed;

/* It may not be possible without a context; then the next one does it. */
void cuda_relax(const cuda_driver *driver) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    relaxed.depth++;
    if (relaxed.changed_at != 0 || driver->ThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
        return;
    relaxed.before = mode;
    relaxed.changed_at = relaxed.depth;
}

void cuda_restore(const cuda_driver *driver) {
    if (relaxed.changed_at == relaxed.depth) {
        (void)driver->ThreadExchangeStreamCaptureMode(&relaxed.before);
        relaxed.changed_at = 0;
    }
    relaxed.depth--;
}

static CUresult push(const cuda_driver *driver, CUcontext context) {
    CUresult result = driver->CtxPushCurrent(context);
    if (result == CUDA_SUCCESS)
        cuda_relax(driver);
    return result;
}

static void pop(const cuda_driver *driver) {
    CUcontext context;
    cuda_restore(driver);
    (void)driver->CtxPopCurrent(&context);
}

/* 0: contexts cannot be told apart. */
static unsigned long long id_of_current(const cuda_driver *driver) {
    unsigned long long id = 0;
    const bool known = driver->CtxGetId != NULL && driver->CtxGetId(NULL, &id) == CUDA_SUCCESS;
    return known ? id : 0;
}

/* opening held. Leaves the device entered. */
static CUresult make_device(cuda_instance *instance, int32_t index) {
    const cuda_driver *driver = &instance->driver;
    cuda_device *device = &instance->devices[index];
    CUcontext context;
    CUresult result = driver->DeviceGet(&device->id, index);
    if (result == CUDA_SUCCESS)
        result = retain_context(driver, device, &context);
    if (result != CUDA_SUCCESS)
        return result;
    result = push(driver, context);
    if (result != CUDA_SUCCESS)
        goto release;
    device->context_id = id_of_current(driver);
    result = cuda_kernels_take(driver, index, instance->rank, context, device->context_id,
                               &device->kernels);
    if (result != CUDA_SUCCESS)
        goto pop;
    result = cuda_pinned_join(driver);
    if (result != CUDA_SUCCESS)
        goto give_kernels;
    cuda_natives_open(instance, index);
    /* Of the highest priority: streams of another one do not share its queue, in which it would
     * wait behind what they wait for. */
    result = cuda_native_take(instance, index, true, &device->control);
    if (result != CUDA_SUCCESS)
        goto leave_pinned;
    result = start_callbacks(driver, device);
    if (result != CUDA_SUCCESS)
        goto give_control;
    pthread_mutex_lock(&instance->lock);
    device->context = context; /* all else of it is there for whoever finds this */
    pthread_mutex_unlock(&instance->lock);
    return CUDA_SUCCESS;
give_control:
    cuda_native_give(instance, index, device->control, true);
leave_pinned:
    cuda_pinned_leave(driver);
give_kernels:
    cuda_kernels_give(driver, index, instance->rank);
pop:
    pop(driver);
release:
    (void)driver->DevicePrimaryCtxRelease(device->id);
    return result;
}

static CUresult open_device(cuda_instance *instance, int32_t index) {
    sigset_t before;
    cuda_signals_block(&before);
    CUresult result = make_device(instance, index);
    cuda_signals_allow(&before);
    return result;
}

/* NULL: it is not open. */
static CUcontext context_of(cuda_instance *instance, int32_t index) {
    pthread_mutex_lock(&instance->lock);
    CUcontext context = instance->devices[index].context;
    pthread_mutex_unlock(&instance->lock);
    return context;
}

/* That takes as long as the driver wants, so no other device's work needs this lock. */
static CUresult enter_first(cuda_instance *instance, int32_t index) {
    pthread_mutex_lock(&instance->opening);
    CUcontext context = context_of(instance, index); /* another thread may have been first */
    CUresult result =
        context != NULL ? push(&instance->driver, context) : open_device(instance, index);
    pthread_mutex_unlock(&instance->opening);
    return result;
}

symmem_status cuda_enter(cuda_instance *instance, int32_t index, const char *operation) {
    CUcontext context = context_of(instance, index);
    CUresult result =
        context != NULL ? push(&instance->driver, context) : enter_first(instance, index);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, operation);
}

bool cuda_reenter(const cuda_instance *instance, int32_t index) {
    return push(&instance->driver, instance->devices[index].context) == CUDA_SUCCESS;
}

void cuda_leave(const cuda_instance *instance) {
    pop(&instance->driver);
}

CUresult cuda_lane_take(cuda_instance *instance, int32_t index, cuda_lane **lane_p) {
    cuda_device *device = &instance->devices[index];
    pthread_mutex_lock(&instance->lock);
    cuda_lane *lane = device->lanes;
    if (lane != NULL)
        device->lanes = lane->next;
    pthread_mutex_unlock(&instance->lock);
    if (lane == NULL) {
        lane = calloc(1, sizeof *lane);
        if (lane == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        CUresult result = cuda_native_take(instance, index, false, &lane->native);
        if (result != CUDA_SUCCESS) {
            free(lane);
            return result;
        }
    }
    *lane_p = lane;
    return CUDA_SUCCESS;
}

void cuda_lane_give(cuda_instance *instance, int32_t index, cuda_lane *lane) {
    pthread_mutex_lock(&instance->lock);
    lane->next = instance->devices[index].lanes;
    instance->devices[index].lanes = lane;
    pthread_mutex_unlock(&instance->lock);
}

void cuda_lane_end(cuda_instance *instance, int32_t index, cuda_lane *lane) {
    cuda_native_give(instance, index, lane->native, true);
    free(lane);
}

static void close_device(cuda_instance *instance, int32_t index) {
    const cuda_driver *driver = &instance->driver;
    cuda_device *device = &instance->devices[index];
    /* A broken context takes nothing back; what the process counts has to be right all the same. */
    bool entered = cuda_reenter(instance, index);
    cuda_kept_events_end(instance, index);
    cuda_granule_close(instance, index);
    cuda_imports_close(instance, index);
    while (device->lanes != NULL) {
        cuda_lane *lane = device->lanes;
        device->lanes = lane->next;
        cuda_native_give(instance, index, lane->native, entered);
        free(lane);
    }
    cuda_native_give(instance, index, device->control, entered);
    cuda_pinned_leave(driver);
    cuda_kernels_give(driver, index, instance->rank);
    if (entered)
        cuda_leave(instance);
    if (!device->kept)
        (void)driver->DevicePrimaryCtxRelease(device->id);
}

void cuda_devices_close(cuda_instance *instance) {
    for (int32_t i = 0; i < instance->device_count; i++)
        if (instance->devices[i].context != NULL)
            close_device(instance, i);
}
