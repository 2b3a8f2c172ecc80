/* SPDX-License-Identifier: BSD-3-Clause */
/* The context that a thread works in, and how its calls spare captures of the program. */
#include "driver/context.h"

/*
 * The program may be capturing in global mode, in another thread or in this one. Calls that are
 * unsafe during such a capture, among them some queries, then fail and break it, unless the thread
 * has changed its capture mode. Calls of this library are never meant to be captured that way.
 */
static __thread struct {
    int depth;
    int changed_at; /* 0: unchanged */
    CUstreamCaptureMode before;
} relaxed;

/* Without a context this may be impossible. Then the next call does it. */
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

CUresult cuda_push(const cuda_driver *driver, CUcontext context) {
    CUresult result = driver->CtxPushCurrent(context);
    if (result == CUDA_SUCCESS)
        cuda_relax(driver);
    return result;
}

void cuda_pop(const cuda_driver *driver) {
    CUcontext context;
    cuda_restore(driver);
    (void)driver->CtxPopCurrent(&context);
}

bool cuda_reenter(const cuda_instance *instance, int32_t index) {
    return cuda_push(&instance->driver, instance->devices[index].context) == CUDA_SUCCESS;
}

bool cuda_is_entered(const cuda_instance *instance, int32_t index) {
    CUcontext current = NULL;
    return instance->driver.CtxGetCurrent(&current) == CUDA_SUCCESS && current != NULL &&
           current == instance->devices[index].context;
}

void cuda_leave(const cuda_instance *instance) {
    cuda_pop(&instance->driver);
}
