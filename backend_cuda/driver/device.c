/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices: the primary context, from its first use to its end, and private streams. */
#include "driver/device.h"
#include "driver/context.h"
#include "driver/error.h"
#include "driver/kernels.h"
#include "driver/pinned.h"
#include "driver/stream_cache.h"

#include <stdlib.h>

/*
 * The primary context is created by its first user and destroyed with the last reference. Both take
 * a good part of a second, one process after the other. So the first instance of a process keeps
 * its reference for the process's life, as the CUDA runtime does. An instance that finds the
 * context, created by the runtime, by the user or by an earlier instance, gives its reference back.
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
 * nothing. It is not waited for, because others may block that thread, and it is never unloaded. */
static CUresult start_callbacks(const cuda_driver *driver, const cuda_device *device) {
    return driver->LaunchHostFunc(device->control, free, NULL);
}

/* Returns 0 if contexts cannot be distinguished. */
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
    result = cuda_push(driver, context);
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
    cuda_stream_cache_open(instance, index);
    /* Of the highest priority. Streams of another priority do not share its queue, in which it
     * could be blocked. */
    result = cuda_cached_stream_take(instance, index, true, &device->control);
    if (result != CUDA_SUCCESS)
        goto leave_pinned;
    result = start_callbacks(driver, device);
    if (result != CUDA_SUCCESS)
        goto give_control;
    pthread_mutex_lock(&instance->lock);
    device->context = context; /* everything else is initialized before others see the context */
    pthread_mutex_unlock(&instance->lock);
    return CUDA_SUCCESS;
give_control:
    cuda_cached_stream_give(instance, index, device->control, true);
leave_pinned:
    cuda_pinned_leave(driver);
give_kernels:
    cuda_kernels_give(driver, index, instance->rank);
pop:
    cuda_pop(driver);
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

/* Returns NULL if it is not open. */
static CUcontext context_of(cuda_instance *instance, int32_t index) {
    pthread_mutex_lock(&instance->lock);
    CUcontext context = instance->devices[index].context;
    pthread_mutex_unlock(&instance->lock);
    return context;
}

/* The driver may take long, so this lock is never needed for another device's work. */
static CUresult enter_first(cuda_instance *instance, int32_t index) {
    pthread_mutex_lock(&instance->opening);
    CUcontext context = context_of(instance, index); /* another thread may have been first */
    CUresult result =
        context != NULL ? cuda_push(&instance->driver, context) : open_device(instance, index);
    pthread_mutex_unlock(&instance->opening);
    return result;
}

symmem_status cuda_enter(cuda_instance *instance, int32_t index, const char *operation) {
    CUcontext context = context_of(instance, index);
    CUresult result =
        context != NULL ? cuda_push(&instance->driver, context) : enter_first(instance, index);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, operation);
}

CUresult cuda_private_stream_take(cuda_instance *instance, int32_t index,
                                  cuda_private_stream **lane_p) {
    cuda_device *device = &instance->devices[index];
    pthread_mutex_lock(&instance->lock);
    cuda_private_stream *private_stream = device->private_streams;
    if (private_stream != NULL)
        device->private_streams = private_stream->next;
    pthread_mutex_unlock(&instance->lock);
    if (private_stream == NULL) {
        private_stream = calloc(1, sizeof *private_stream);
        if (private_stream == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        CUresult result = cuda_cached_stream_take(instance, index, false, &private_stream->native);
        if (result != CUDA_SUCCESS) {
            free(private_stream);
            return result;
        }
    }
    *lane_p = private_stream;
    return CUDA_SUCCESS;
}

void cuda_private_stream_give(cuda_instance *instance, int32_t index,
                              cuda_private_stream *private_stream) {
    pthread_mutex_lock(&instance->lock);
    private_stream->next = instance->devices[index].private_streams;
    instance->devices[index].private_streams = private_stream;
    pthread_mutex_unlock(&instance->lock);
}

void cuda_private_stream_end(cuda_instance *instance, int32_t index,
                             cuda_private_stream *private_stream) {
    cuda_cached_stream_give(instance, index, private_stream->native, true);
    free(private_stream);
}

static void close_device(cuda_instance *instance, int32_t index) {
    const cuda_driver *driver = &instance->driver;
    cuda_device *device = &instance->devices[index];
    /* A broken context takes nothing back, but the process's counts must stay correct. */
    bool entered = cuda_reenter(instance, index);
    while (device->private_streams != NULL) {
        cuda_private_stream *private_stream = device->private_streams;
        device->private_streams = private_stream->next;
        cuda_cached_stream_give(instance, index, private_stream->native, entered);
        free(private_stream);
    }
    cuda_cached_stream_give(instance, index, device->control, entered);
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

CUresult cuda_device_uuid(const cuda_driver *driver, int32_t device, CUuuid *uuid_p) {
    CUdevice id;
    CUresult result = driver->DeviceGet(&id, device);
    return result == CUDA_SUCCESS ? driver->DeviceGetUuid(uuid_p, id) : result;
}
