/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, and waits for them. The driver's own waits have no deadline, so all of these poll. */
#include <stdlib.h>
#include <string.h>

#include "stream/stream.h"
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "inflight/inflight.h"
#include "inflight/spare.h"
#include "stream/graph.h"
#include "driver/stream_cache.h"

#define SPIN_NS 100000ull
#define PAUSE_NS 20000ull
#define WATCH_NS (10 * CUDA_NS_PER_MS)
#define MOST_TELLING_MS 1000u

CUresult cuda_wait_idle(cuda_instance *instance, CUstream native, uint32_t timeout_ms,
                        const cuda_signal_op *signal) {
    uint64_t start_ns = cuda_now_ns(), watched_ns = start_ns;
    CUresult result;
    while ((result = instance->driver.StreamQuery(native)) == CUDA_ERROR_NOT_READY) {
        uint64_t now_ns = cuda_now_ns();
        if (timeout_ms != 0 && now_ns - start_ns >= timeout_ms * CUDA_NS_PER_MS)
            break;
        if (signal != NULL && now_ns - watched_ns >= WATCH_NS) {
            cuda_watch_peers(signal);
            watched_ns = now_ns;
        }
        if (now_ns - start_ns > SPIN_NS)
            cuda_sleep_ns(PAUSE_NS);
    }
    return result;
}

CUresult cuda_wait_call(cuda_instance *instance, CUstream native) {
    CUresult result = cuda_wait_idle(instance, native, instance->late_ms, NULL);
    if (result != CUDA_ERROR_NOT_READY)
        return result;
    instance->host->notice(instance->host,
                           "a call that has no limit waits for the device for longer than "
                           "SYMMEM_CUDA_LATE_MS: other work may fill the device, or wait for this "
                           "rank");
    return cuda_wait_idle(instance, native, 0, NULL);
}

/* An older core has none. */
uint64_t cuda_call_deadline(const symmem_host *host) {
    const bool known = host->size >= offsetof(symmem_host, deadline_ns) + sizeof host->deadline_ns;
    return known && host->deadline_ns != NULL ? host->deadline_ns(host) : 0;
}

CUresult cuda_wait_in_time(cuda_instance *instance, CUstream native) {
    const uint64_t deadline_ns = cuda_call_deadline(instance->host);
    if (deadline_ns == 0)
        return cuda_wait_call(instance, native);
    const uint64_t now_ns = cuda_now_ns();
    const uint64_t left_ms = deadline_ns > now_ns ? (deadline_ns - now_ns) / CUDA_NS_PER_MS : 0;
    const uint64_t telling_ms = left_ms / 4 < MOST_TELLING_MS ? left_ms / 4 : MOST_TELLING_MS;
    const uint64_t wait_ms = left_ms - telling_ms;
    return cuda_wait_idle(instance, native, wait_ms == 0 ? 1 : (uint32_t)wait_ms, NULL);
}

static symmem_status fail_wait(const cuda_instance *instance, CUresult result,
                               const char *operation) {
    if (result == CUDA_ERROR_NOT_READY)
        return instance->host->fail(instance->host, SYMMEM_TIMEOUT, 0, operation,
                                    "work is still running");
    return cuda_fail(instance, result, operation);
}

/* --- create and destroy ------------------------------------------------------------- */

static symmem_status make_stream(cuda_instance *instance, int32_t device, CUstream native,
                                 bool wrapped, void **stream_p) {
    cuda_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return cuda_no_memory(instance, "stream_create");
    CUresult result =
        wrapped ? CUDA_SUCCESS : cuda_cached_stream_take(instance, device, false, &native);
    if (result != CUDA_SUCCESS) {
        free(stream);
        return cuda_fail(instance, result, "stream_create");
    }
    stream->instance = instance;
    stream->native = native;
    stream->device = device;
    stream->wrapped = wrapped;
    stream->users = 1;
    pthread_mutex_lock(&instance->lock);
    stream->next = instance->streams;
    instance->streams = stream;
    pthread_mutex_unlock(&instance->lock);
    *stream_p = stream;
    return SYMMEM_OK;
}

symmem_status cuda_stream_create(void *opaque, int32_t device, void **stream_p) {
    cuda_instance *instance = opaque;
    symmem_status status = cuda_failpoint(instance, "cuda.stream.create");
    if (status == SYMMEM_OK)
        status = cuda_enter(instance, device, "stream_create");
    if (status != SYMMEM_OK)
        return status;
    status = make_stream(instance, device, NULL, false, stream_p);
    cuda_leave(instance);
    return status;
}

symmem_status cuda_stream_wrap(void *opaque, int32_t device, void *native, void **stream_p) {
    cuda_instance *instance = opaque;
    symmem_status status = cuda_enter(instance, device, "stream_wrap");
    if (status != SYMMEM_OK)
        return status;
    status = make_stream(instance, device, native, true, stream_p);
    cuda_leave(instance);
    return status;
}

void cuda_stream_drop(cuda_stream *stream) {
    pthread_mutex_lock(&stream->instance->lock);
    bool last = --stream->users == 0;
    pthread_mutex_unlock(&stream->instance->lock);
    if (!last)
        return;
    cuda_spare_leave(stream);
    free(stream);
}

static void end_native(cuda_instance *instance, const cuda_stream *stream) {
    bool entered = cuda_enter(instance, stream->device, "stream_destroy") == SYMMEM_OK;
    cuda_cached_stream_give(instance, stream->device, stream->native, entered);
    if (entered)
        cuda_leave(instance);
}

/* It may be full because of a wait for a chunk, which this cancels. */
static void give_up(cuda_instance *instance, cuda_stream *stream) {
    pthread_mutex_lock(&instance->lock);
    stream->given_up = true;
    pthread_mutex_unlock(&instance->lock);
}

static void delist(cuda_instance *instance, const cuda_stream *stream) {
    pthread_mutex_lock(&instance->ending);
    pthread_mutex_lock(&instance->lock);
    cuda_stream **link = &instance->streams;
    while (*link != NULL && *link != stream)
        link = &(*link)->next;
    if (*link != NULL)
        *link = stream->next;
    pthread_mutex_unlock(&instance->lock);
    pthread_mutex_unlock(&instance->ending);
}

void cuda_stream_destroy(void *opaque, void *opaque_stream) {
    cuda_instance *instance = opaque;
    cuda_stream *stream = opaque_stream;
    give_up(instance, stream);
    delist(instance, stream);
    if (!stream->wrapped)
        end_native(instance, stream); /* running work goes on */
    cuda_stream_drop(stream);
}

/* --- waiting ------------------------------------------------------------------------ */

static CUresult wait_event(cuda_instance *instance, CUevent event, uint32_t timeout_ms) {
    uint64_t start_ns = cuda_now_ns();
    CUresult result;
    while ((result = instance->driver.EventQuery(event)) == CUDA_ERROR_NOT_READY) {
        uint64_t now_ns = cuda_now_ns();
        if (timeout_ms != 0 && now_ns - start_ns >= timeout_ms * CUDA_NS_PER_MS)
            break;
        if (now_ns - start_ns > SPIN_NS)
            cuda_sleep_ns(PAUSE_NS);
    }
    return result;
}

/* For the work so far and no longer. The context is current. */
static CUresult wait_so_far(cuda_instance *instance, CUstream native, uint32_t timeout_ms) {
    CUevent event;
    CUresult result = instance->driver.EventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    result = instance->driver.EventRecord(event, native);
    if (result == CUDA_SUCCESS)
        result = wait_event(instance, event, timeout_ms);
    (void)instance->driver.EventDestroy(event);
    return result;
}

static bool has_pending(cuda_instance *instance, const cuda_stream *stream) {
    pthread_mutex_lock(&instance->lock);
    const cuda_pending *pending = instance->pending;
    while (pending != NULL && pending->stream != stream)
        pending = pending->next;
    pthread_mutex_unlock(&instance->lock);
    return pending != NULL;
}

/* For a wrapper that is destroyed while the program captures its stream. No event could be recorded
 * there, but the work that it enqueued before is known. */
static CUresult wait_pending(cuda_instance *instance, const cuda_stream *stream,
                             uint32_t timeout_ms) {
    const uint64_t start_ns = cuda_now_ns();
    cuda_collect(instance);
    while (has_pending(instance, stream)) {
        if (timeout_ms != 0 && cuda_now_ns() - start_ns >= timeout_ms * CUDA_NS_PER_MS)
            return CUDA_ERROR_NOT_READY;
        cuda_sleep_ns(PAUSE_NS);
        cuda_collect(instance);
    }
    return CUDA_SUCCESS;
}

symmem_status cuda_stream_synchronize(void *opaque, void *opaque_stream, uint32_t timeout_ms,
                                      symmem_error_record *record_p) {
    cuda_instance *instance = opaque;
    cuda_stream *stream = opaque_stream;
    uint64_t id = 0;
    symmem_status status = cuda_capture_id(instance, stream, &id);
    if (status == SYMMEM_OK)
        status = cuda_enter(instance, stream->device, "stream_synchronize");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = id == 0 ? wait_so_far(instance, stream->native, timeout_ms)
                              : wait_pending(instance, stream, timeout_ms);
    cuda_leave(instance);
    cuda_collect(instance);
    if (result != CUDA_SUCCESS)
        return fail_wait(instance, result, "stream_synchronize");
    pthread_mutex_lock(&instance->lock);
    status = stream->record.status;
    if (status != SYMMEM_OK) {
        *record_p = stream->record;
        stream->record.status = SYMMEM_OK;
    }
    pthread_mutex_unlock(&instance->lock);
    return status;
}

symmem_status cuda_stream_query(void *opaque, void *opaque_stream, bool *idle_p) {
    cuda_instance *instance = opaque;
    const cuda_stream *stream = opaque_stream;
    uint64_t id = 0;
    symmem_status status = cuda_capture_id(instance, opaque_stream, &id);
    if (status == SYMMEM_OK && id == 0)
        status = cuda_enter(instance, stream->device, "stream_query");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = CUDA_SUCCESS;
    if (id != 0) { /* captured work does not run, but earlier work may */
        cuda_collect(instance);
        result = has_pending(instance, stream) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    } else {
        result = instance->driver.StreamQuery(stream->native);
        cuda_leave(instance);
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        return cuda_fail(instance, result, "stream_query");
    cuda_collect(instance);
    *idle_p = result == CUDA_SUCCESS;
    return SYMMEM_OK;
}

/* The list from there on does not change while none of them can be destroyed. */
static const cuda_stream *first_stream(cuda_instance *instance) {
    pthread_mutex_lock(&instance->lock);
    const cuda_stream *first = instance->streams;
    pthread_mutex_unlock(&instance->lock);
    return first;
}

/* Records one event for each stream of the device that does not capture. `ending` held; context
 * current. */
static CUresult record_all(const cuda_instance *instance, const cuda_stream *first, int32_t device,
                           CUevent *events, int32_t *count_p) {
    const cuda_driver *driver = &instance->driver;
    for (const cuda_stream *stream = first; stream != NULL; stream = stream->next) {
        CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
        CUevent *event = &events[*count_p];
        if (stream->device != device ||
            driver->StreamGetCaptureInfo(stream->native, &capturing, NULL, NULL, NULL, NULL) !=
                CUDA_SUCCESS ||
            capturing != CU_STREAM_CAPTURE_STATUS_NONE)
            continue;
        CUresult result = driver->EventCreate(event, CU_EVENT_DISABLE_TIMING);
        if (result != CUDA_SUCCESS)
            return result;
        (*count_p)++;
        result = driver->EventRecord(*event, stream->native);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

/* events_p: NULL without memory. */
static CUresult mark_all(cuda_instance *instance, int32_t device, CUevent **events_p,
                         int32_t *count_p) {
    int32_t capacity = 1;
    pthread_mutex_lock(&instance->ending);
    const cuda_stream *first = first_stream(instance);
    for (const cuda_stream *stream = first; stream != NULL; stream = stream->next)
        capacity++;
    *events_p = calloc((size_t)capacity, sizeof **events_p);
    CUresult result = *events_p != NULL ? record_all(instance, first, device, *events_p, count_p)
                                        : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&instance->ending);
    return result;
}

static CUresult synchronize_all(cuda_instance *instance, int32_t device, uint32_t timeout_ms) {
    uint64_t end_ns = cuda_now_ns() + timeout_ms * CUDA_NS_PER_MS;
    int32_t count = 0;
    CUevent *events;
    CUresult result = mark_all(instance, device, &events, &count);
    for (int32_t i = 0; i < count; i++) {
        uint64_t now_ns = cuda_now_ns();
        uint64_t left_ms = end_ns > now_ns ? (end_ns - now_ns) / CUDA_NS_PER_MS + 1 : 1;
        if (result == CUDA_SUCCESS)
            result = wait_event(instance, events[i], timeout_ms == 0 ? 0 : (uint32_t)left_ms);
        (void)instance->driver.EventDestroy(events[i]);
    }
    free(events);
    return result;
}

symmem_status cuda_device_synchronize(void *opaque, int32_t device, uint32_t timeout_ms) {
    cuda_instance *instance = opaque;
    symmem_status status = cuda_enter(instance, device, "device_synchronize");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = synchronize_all(instance, device, timeout_ms);
    cuda_leave(instance);
    cuda_collect(instance);
    return result == CUDA_SUCCESS ? SYMMEM_OK : fail_wait(instance, result, "device_synchronize");
}

/* It has no references, but counts as pending, because close must not free its instance before it
 * ends. */
symmem_status cuda_host_fn(void *opaque, void *opaque_stream, void (*fn)(void *arg), void *arg) {
    cuda_instance *instance = opaque;
    cuda_stream *stream = opaque_stream;
    uint64_t id = 0;
    symmem_status status = cuda_capture_id(instance, stream, &id);
    if (status == SYMMEM_OK)
        status = cuda_enter(instance, stream->device, "host_fn");
    if (status != SYMMEM_OK)
        return status;
    cuda_pending *pending = NULL;
    if (id == 0)
        status = cuda_pending_make(stream, "host_fn", &pending);
    if (status == SYMMEM_OK) {
        CUresult result = instance->driver.LaunchHostFunc(stream->native, fn, arg);
        if (result == CUDA_SUCCESS && pending != NULL) { /* it runs, with or without an entry */
            (void)cuda_pending_add(pending, NULL, &(cuda_needs){.graph = NULL}, "host_fn");
        } else if (result != CUDA_SUCCESS) {
            cuda_pending_drop(instance, pending);
            status = cuda_fail(instance, result, "host_fn");
        }
    }
    cuda_leave(instance);
    return status;
}
