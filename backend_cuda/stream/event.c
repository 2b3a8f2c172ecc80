/* SPDX-License-Identifier: BSD-3-Clause */
/* Events. Failures of the work before an event have been reported before it counts as reached. */
#include <stdlib.h>

#include "cuda_internal.h"

#define SPIN_NS 100000ull
#define PAUSE_NS 20000ull

/* For an event that was recorded in a capture which is over, drivers return INVALID_VALUE. These
 * events are valid. */
static symmem_status event_failed(cuda_instance *instance, CUresult result, const char *entry) {
    return cuda_fail(
        instance, result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_CAPTURED_EVENT : result, entry);
}

/* --- events of work in flight ------------------------------------------------------- */

/* They are kept for the next work of their device, because making and destroying one takes as long
 * as much of a call. */
static bool keep(cuda_instance *instance, cuda_event *event) {
    cuda_device *device = &instance->devices[event->device];
    pthread_mutex_lock(&instance->lock);
    const bool kept = event->kept && device->event_count < CUDA_KEPT_EVENTS;
    if (kept)
        device->events[device->event_count++] = event;
    pthread_mutex_unlock(&instance->lock);
    return kept;
}

static cuda_event *take_kept(cuda_instance *instance, int32_t index) {
    cuda_device *device = &instance->devices[index];
    pthread_mutex_lock(&instance->lock);
    cuda_event *event = device->event_count > 0 ? device->events[--device->event_count] : NULL;
    pthread_mutex_unlock(&instance->lock);
    return event;
}

static CUresult make_event(cuda_instance *instance, int32_t index, bool kept, cuda_event **event_p) {
    cuda_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->device = index;
    event->kept = kept;
    atomic_store(&event->users, 1);
    CUresult result = instance->driver.EventCreate(&event->native, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        *event_p = event;
    else
        free(event);
    return result;
}

CUresult cuda_event_take(cuda_instance *instance, int32_t device, cuda_event **event_p) {
    *event_p = take_kept(instance, device);
    if (*event_p == NULL)
        return make_event(instance, device, true, event_p);
    atomic_store(&(*event_p)->users, 1);
    return CUDA_SUCCESS;
}

void cuda_event_give(cuda_instance *instance, cuda_event *event) {
    if (atomic_fetch_sub(&event->users, 1) != 1 || keep(instance, event))
        return;
    const bool entered = cuda_reenter(instance, event->device);
    (void)instance->driver.EventDestroy(event->native);
    if (entered)
        cuda_leave(instance);
    free(event);
}

void cuda_kept_events_end(cuda_instance *instance, int32_t index) {
    cuda_event *event;
    while ((event = take_kept(instance, index)) != NULL) {
        (void)instance->driver.EventDestroy(event->native);
        free(event);
    }
}

/* --- the core's and the program's --------------------------------------------------- */

symmem_status cuda_event_create(void *opaque, int32_t device, void **event_p) {
    cuda_instance *instance = opaque;
    cuda_event *event = NULL;
    symmem_status status = cuda_enter(instance, device, "event_create");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = make_event(instance, device, false, &event);
    cuda_leave(instance);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "event_create");
    *event_p = event;
    return SYMMEM_OK;
}

/* Also for the end of an operation, which the core was given. */
void cuda_event_destroy(void *opaque, void *event) {
    cuda_event_give(opaque, event);
}

symmem_status cuda_event_record(void *opaque, void *opaque_event, void *opaque_stream) {
    cuda_instance *instance = opaque;
    const cuda_event *event = opaque_event;
    const cuda_stream *stream = opaque_stream;
    symmem_status status = cuda_enter(instance, stream->device, "event_record");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = instance->driver.EventRecord(event->native, stream->native);
    cuda_leave(instance);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, "event_record");
}

symmem_status cuda_stream_wait_event(void *opaque, void *opaque_stream, void *opaque_event) {
    cuda_instance *instance = opaque;
    const cuda_event *event = opaque_event;
    const cuda_stream *stream = opaque_stream;
    symmem_status status = cuda_enter(instance, stream->device, "stream_wait_event");
    if (status != SYMMEM_OK)
        return status;
    CUresult result =
        instance->driver.StreamWaitEvent(stream->native, event->native, CU_EVENT_WAIT_DEFAULT);
    cuda_leave(instance);
    return result == CUDA_SUCCESS ? SYMMEM_OK : event_failed(instance, result, "stream_wait_event");
}

symmem_status cuda_event_query(void *opaque, void *opaque_event, bool *reached_p) {
    cuda_instance *instance = opaque;
    const cuda_event *event = opaque_event;
    symmem_status status = cuda_enter(instance, event->device, "event_query");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = instance->driver.EventQuery(event->native);
    cuda_leave(instance);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        return event_failed(instance, result, "event_query");
    cuda_collect(instance);
    *reached_p = result == CUDA_SUCCESS;
    return SYMMEM_OK;
}

symmem_status cuda_event_synchronize(void *opaque, void *event, uint32_t timeout_ms) {
    cuda_instance *instance = opaque;
    uint64_t start_ns = cuda_now_ns();
    for (;;) {
        bool reached = false;
        symmem_status status = cuda_event_query(opaque, event, &reached);
        if (status != SYMMEM_OK || reached)
            return status;
        uint64_t waited_ns = cuda_now_ns() - start_ns;
        if (timeout_ms != 0 && waited_ns >= timeout_ms * CUDA_NS_PER_MS)
            return instance->host->fail(instance->host, SYMMEM_TIMEOUT, 0, "event_synchronize",
                                        "the event was not reached");
        if (waited_ns > SPIN_NS)
            cuda_sleep_ns(PAUSE_NS);
    }
}
