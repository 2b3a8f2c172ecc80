/* SPDX-License-Identifier: BSD-3-Clause */
/* Events. */
#include <stdlib.h>

#include "stream/stream.h"
#include "stream/event.h"
#include "backend/device.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "backend/registry.h"
#include "backend/table.h"

static symmem_status check_event(const symmem_event *event, const char *operation) {
    if (event == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "event is NULL");
    return sm_context_check(event->context, operation);
}

static symmem_status check_pair(const symmem_event *event, const symmem_stream *stream,
                                const char *operation) {
    symmem_status status = check_event(event, operation);
    if (status == SYMMEM_OK)
        status = sm_stream_need(stream, operation);
    if (status == SYMMEM_OK && stream->context != event->context)
        status = sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "",
                         "event and stream belong to different contexts");
    return status;
}

static symmem_status make_event(symmem_context *context, int32_t device, const char *operation,
                                symmem_event **event_p) {
    symmem_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, operation, "", "no memory");
    symmem_status status = sm_instance_enter(context, operation);
    if (status != SYMMEM_OK)
        goto fail_instance;
    status = context->backend->event_create(context->instance, device, &event->native);
    if (status != SYMMEM_OK) {
        status = sm_backend_failed(context, status, operation, "event_create");
        goto fail_native;
    }
    event->context = context;
    event->device = device;
    if (!sm_enlist(context, &context->events, &event->node)) {
        status = sm_context_check(context, operation);
        goto fail_enlist;
    }
    *event_p = event;
    return SYMMEM_OK;
fail_enlist:
    context->backend->event_destroy(context->instance, event->native);
fail_native:
    sm_instance_release(context);
fail_instance:
    free(event);
    return status;
}

symmem_status symmem_event_create(symmem_context *context, int32_t device, symmem_event **event_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "event_create";
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (event_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "event_p is NULL");
    status = sm_device_resolve(context, device, operation, &device);
    if (status == SYMMEM_OK)
        status = sm_need_capability(context, SYMMEM_CAP_STREAMS, operation, "events");
    return status == SYMMEM_OK ? make_event(context, device, operation, event_p) : status;
}

static void end_event(symmem_context *context, void *native) {
    context->backend->event_destroy(context->instance, native);
    sm_instance_release(context);
}

void symmem_event_destroy(symmem_event *event) {
    SM_PUBLIC_CALL;
    if (event == NULL || sm_fork_is_parents(event->context->made_in))
        return;
    symmem_context *context = event->context;
    void *native = sm_delist(context, &event->node, &event->native);
    if (native != NULL)
        end_event(context, native);
    free(event);
    sm_context_release(context);
}

void sm_event_destroy_all(symmem_context *context) {
    for (;;) {
        void *native = NULL;
        pthread_mutex_lock(&context->lock);
        if (!sm_list_empty(&context->events)) {
            symmem_event *event = SM_CONTAINER(context->events.next, symmem_event, node);
            sm_list_remove(&event->node);
            native = event->native;
            event->native = NULL;
        }
        pthread_mutex_unlock(&context->lock);
        if (native == NULL)
            return;
        end_event(context, native);
    }
}

symmem_status symmem_event_record(symmem_event *event, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char operation[] = "event_record";
    symmem_status status = check_pair(event, stream, operation);
    if (status == SYMMEM_OK)
        status = sm_stream_check(event->context, stream, event->device, operation);
    if (status != SYMMEM_OK)
        return status;
    symmem_context *context = event->context;
    status = context->backend->event_record(context->instance, event->native, stream->native);
    return status == SYMMEM_OK ? status
                               : sm_backend_failed(context, status, operation, "event_record");
}

symmem_status symmem_stream_wait_event(symmem_stream *stream, symmem_event *event) {
    SM_PUBLIC_CALL;
    static const char operation[] = "stream_wait_event";
    symmem_status status = check_pair(event, stream, operation);
    if (status != SYMMEM_OK)
        return status;
    symmem_context *context = event->context;
    status = context->backend->stream_wait_event(context->instance, stream->native, event->native);
    return status == SYMMEM_OK ? status
                               : sm_backend_failed(context, status, operation, "stream_wait_event");
}

symmem_status symmem_event_synchronize(symmem_event *event, uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    static const char operation[] = "event_synchronize";
    symmem_status status = check_event(event, operation);
    if (status != SYMMEM_OK)
        return status;
    symmem_context *context = event->context;
    const uint64_t begin_ns = sm_now_ns();
    status = context->backend->event_synchronize(context->instance, event->native,
                                                 sm_context_timeout(context, timeout_ms));
    if (status == SYMMEM_OK)
        return status;
    (void)sm_backend_failed(context, status, operation, "event_synchronize");
    return sm_error_elapsed(sm_now_ns() - begin_ns);
}

symmem_status symmem_event_query(symmem_event *event, bool *reached_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "event_query";
    symmem_status status = check_event(event, operation);
    if (status != SYMMEM_OK)
        return status;
    if (reached_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "reached_p is NULL");
    symmem_context *context = event->context;
    status = context->backend->event_query(context->instance, event->native, reached_p);
    return status == SYMMEM_OK ? status
                               : sm_backend_failed(context, status, operation, "event_query");
}
