/* SPDX-License-Identifier: BSD-3-Clause */
/* Events. Failures of the work before an event have been reported before it counts as reached. */
#include <stdlib.h>

#include "stream/event.h"
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "inflight/inflight.h"

#define SPIN_NS 100000ull
#define PAUSE_NS 20000ull

typedef struct cuda_event {
    CUevent native;
    int32_t device;
} cuda_event;

/* For an event that was recorded in a capture which is over, drivers return INVALID_VALUE. These
 * events are valid. */
static symmem_status event_failed(cuda_instance *instance, CUresult result, const char *entry) {
    return cuda_fail(
        instance, result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_CAPTURED_EVENT : result, entry);
}

symmem_status cuda_event_create(void *opaque, int32_t device, void **event_p) {
    cuda_instance *instance = opaque;
    cuda_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return cuda_no_memory(instance, "event_create");
    event->device = device;
    symmem_status status = cuda_enter(instance, device, "event_create");
    if (status != SYMMEM_OK)
        goto free_event;
    CUresult result = instance->driver.EventCreate(&event->native, CU_EVENT_DISABLE_TIMING);
    cuda_leave(instance);
    if (result != CUDA_SUCCESS) {
        status = cuda_fail(instance, result, "event_create");
        goto free_event;
    }
    *event_p = event;
    return SYMMEM_OK;
free_event:
    free(event);
    return status;
}

void cuda_event_destroy(void *opaque, void *opaque_event) {
    cuda_instance *instance = opaque;
    cuda_event *event = opaque_event;
    if (cuda_enter(instance, event->device, "event_destroy") == SYMMEM_OK) {
        (void)instance->driver.EventDestroy(event->native);
        cuda_leave(instance);
    }
    free(event);
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
