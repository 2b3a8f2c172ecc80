/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: thin wrappers in their context's list, so that finalize can end them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream/stream.h"
#include "backend/device.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "backend/registry.h"
#include "backend/table.h"
#include "memory/group_explain.h"
#include "stream/capture.h"
#include "stream/event.h"
#include "stream/graph.h"
#include "stream/second_stream.h"

#define DRAIN_SLEEP_NS 200000u
#define FINALIZE_WAIT_MS 2000u

symmem_status sm_stream_fits(const symmem_context *context, const symmem_stream *stream,
                             int32_t device, const char *operation) {
    if (stream == NULL)
        return SYMMEM_OK;
    if (stream->context != context)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "",
                       "the stream belongs to another context");
    if (device < 0 || stream->device == device)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "a stream of device %d for device %d",
                  stream->device, device);
    return sm_error_sizes((uint64_t)device, (uint64_t)stream->device);
}

symmem_status sm_stream_check(const symmem_context *context, const symmem_stream *stream,
                              int32_t device, const char *operation) {
    if (stream != NULL && stream->context == context) {
        symmem_status status = sm_context_check(context, operation);
        if (status != SYMMEM_OK)
            return status;
    }
    return sm_stream_fits(context, stream, device, operation);
}

symmem_status sm_stream_need(const symmem_stream *stream, const char *operation) {
    if (stream == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "stream is NULL");
    return sm_context_check(stream->context, operation);
}

symmem_status sm_stream_not_capturing(const symmem_stream *stream, const char *operation) {
    symmem_context *context = stream->context;
    uint64_t capture = 0;
    if (!sm_backend_has(context, SYMMEM_CAP_CAPTURE))
        return SYMMEM_OK;
    symmem_status status =
        context->backend->capture_id(context->instance, stream->native, &capture);
    if (status != SYMMEM_OK)
        return sm_backend_failed(context, status, operation, "capture_id");
    if (capture == 0)
        return SYMMEM_OK;
    return sm_context_fail(context, SYMMEM_CAPTURE, operation, "", "the stream captures");
}

bool sm_enlist(symmem_context *context, sm_node *head, sm_node *node) {
    pthread_mutex_lock(&context->lock);
    /* pairs with: finalize, which sets the flag before it empties the lists */
    bool live = !atomic_load_explicit(&context->finalized, memory_order_acquire);
    if (live) {
        sm_list_add(head, node);
        sm_context_retain(context); /* the shell's own, in addition to the instance use */
    }
    pthread_mutex_unlock(&context->lock);
    return live;
}

void *sm_delist(symmem_context *context, sm_node *node, void **native) {
    pthread_mutex_lock(&context->lock);
    void *taken = *native;
    *native = NULL;
    sm_list_remove(node);
    pthread_mutex_unlock(&context->lock);
    return taken;
}

/* --- create ------------------------------------------------------------------------- */

static symmem_status make_native(symmem_context *context, int32_t device, void *foreign,
                                 const char *operation, void **native_p) {
    const sm_backend *backend = context->backend;
    symmem_status status = sm_context_point(context, operation, "stream.create");
    if (status != SYMMEM_OK)
        return status;
    status = foreign != NULL ? backend->stream_wrap(context->instance, device, foreign, native_p)
                             : backend->stream_create(context->instance, device, native_p);
    if (status != SYMMEM_OK)
        status = sm_backend_failed(context, status, operation,
                                   foreign != NULL ? "stream_wrap" : "stream_create");
    return status;
}

static symmem_status make_stream(symmem_context *context, int32_t device, void *foreign,
                                 const char *operation, symmem_stream **stream_p) {
    symmem_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, operation, "", "no memory");
    symmem_status status = sm_instance_enter(context, operation);
    if (status != SYMMEM_OK)
        goto fail_instance;
    status = make_native(context, device, foreign, operation, &stream->native);
    if (status != SYMMEM_OK)
        goto fail_native;
    stream->context = context;
    stream->device = device;
    if (!sm_enlist(context, &context->streams, &stream->node)) {
        status = sm_context_check(context, operation);
        goto fail_enlist;
    }
    *stream_p = stream;
    return SYMMEM_OK;
fail_enlist:
    context->backend->stream_destroy(context->instance, stream->native);
fail_native:
    sm_instance_release(context);
fail_instance:
    free(stream);
    return status;
}

symmem_status symmem_stream_create(symmem_context *context, int32_t device,
                                   symmem_stream **stream_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "stream_create";
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (stream_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "stream_p is NULL");
    status = sm_device_resolve(context, device, operation, &device);
    if (status == SYMMEM_OK)
        status = sm_need_capability(context, SYMMEM_CAP_STREAMS, operation, "streams");
    return status == SYMMEM_OK ? make_stream(context, device, NULL, operation, stream_p) : status;
}

symmem_status symmem_stream_wrap(symmem_context *context, int32_t device, void *native,
                                 symmem_stream **stream_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "stream_wrap";
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    status = sm_need_capability(context, SYMMEM_CAP_WRAP_STREAM, operation, "streams of others");
    if (status != SYMMEM_OK)
        return status;
    if (stream_p == NULL || native == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "%s is NULL",
                       native == NULL ? "native" : "stream_p");
    status = sm_device_resolve(context, device, operation, &device);
    return status == SYMMEM_OK ? make_stream(context, device, native, operation, stream_p) : status;
}

/* --- destroy ------------------------------------------------------------------------ */

/* Ends a capture whose owner will not end it. */
static void abandon_capture(symmem_context *context, void *native) {
    void *graph = NULL;
    sm_node links;
    SM_ATTEMPT(abandoning); /* its failure does not matter any more */
    sm_list_init(&links);
    sm_capture_take(context, sm_capture_of(context, native), &links);
    sm_capture_forget(context, &links);
    if (context->backend->capture_end(context->instance, native, &graph) == SYMMEM_OK)
        context->backend->graph_destroy(context->instance, graph);
}

/* Whether the backend's record describes its answer. */
static bool tells_of(const symmem_error_record *record, symmem_status status) {
    return record->status == status && sm_status_known(status);
}

/* Reports the failure before a capture that is given up, because that is usually why it is given
 * up. */
static void tell_what_was_before(symmem_status status, const symmem_error_record *before) {
    char text[128];
    if (status != SYMMEM_CAPTURE || before->status == SYMMEM_OK)
        return;
    /* The capture's other streams are given up, too. */
    const char *told =
        before->status == SYMMEM_CAPTURE ? strstr(before->message, ", after ") : NULL;
    if (told != NULL)
        sm_copy_text(text, sizeof(text), told);
    else
        (void)snprintf(text, sizeof(text), ", after %s in %.40s: %.60s",
                       symmem_status_name(before->status), before->operation, before->message);
    sm_explain_text(text);
}

/* Ends the stream natively and returns its work's status. */
static symmem_status end_stream(symmem_context *context, void *native, bool capturing,
                                uint32_t timeout_ms) {
    symmem_error_record record = {.status = SYMMEM_OK};
    if (capturing)
        abandon_capture(context, native);
    symmem_status status =
        context->backend->stream_synchronize(context->instance, native, timeout_ms, &record);
    /* After a timeout the backend releases the stream's resources when the work ends. */
    context->backend->stream_destroy(context->instance, native);
    if (status == SYMMEM_OK)
        return SYMMEM_OK;
    if (!tells_of(&record, status))
        return sm_backend_failed(context, status, "stream_destroy", "stream_synchronize");
    /* The record is the stream's own answer, and not that of an operation on it. */
    if (strcmp(record.operation, "stream_synchronize") == 0)
        sm_copy_text(record.operation, sizeof(record.operation), "stream_destroy");
    return sm_error_raise(&record);
}

symmem_status symmem_stream_destroy(symmem_stream *stream) {
    SM_PUBLIC_CALL;
    if (stream == NULL)
        return SYMMEM_OK;
    symmem_context *context = stream->context;
    if (sm_fork_is_parents(context->made_in))
        return sm_fork_refuse("stream_destroy");
    symmem_status status = SYMMEM_OK;
    void *native = sm_delist(context, &stream->node, &stream->native);
    if (native != NULL) {
        symmem_error_record before;
        symmem_last_error(&before);
        status = end_stream(context, native, stream->capturing,
                            sm_context_timeout(context, SYMMEM_TIMEOUT_DEFAULT));
        tell_what_was_before(status, &before);
        sm_instance_release(context);
    }
    sm_second_stream_leave(context, stream, status == SYMMEM_OK);
    free(stream);
    sm_context_release(context);
    return status;
}

void sm_stream_give_up(symmem_stream *stream) {
    symmem_context *context = stream->context;
    void *native = sm_delist(context, &stream->node, &stream->native);
    if (native != NULL) {
        context->backend->stream_destroy(context->instance, native);
        sm_instance_release(context);
    }
    free(stream);
}

/* Takes the next stream that finalize has to end out of the list. */
static symmem_stream *take_stream(symmem_context *context, void **native_p, bool *capturing_p) {
    symmem_stream *stream = NULL;
    pthread_mutex_lock(&context->lock);
    if (!sm_list_empty(&context->streams)) {
        stream = SM_CONTAINER(context->streams.next, symmem_stream, node);
        sm_list_remove(&stream->node);
        *native_p = stream->native;
        *capturing_p = stream->capturing;
        stream->native = NULL;
        stream->capturing = false;
    }
    pthread_mutex_unlock(&context->lock);
    return stream;
}

void sm_stream_destroy_all(symmem_context *context) {
    uint64_t deadline_ns = sm_deadline_ns(FINALIZE_WAIT_MS);
    void *native;
    bool capturing;
    while (take_stream(context, &native, &capturing) != NULL) {
        uint32_t left_ms = sm_remaining_ms(deadline_ns, FINALIZE_WAIT_MS);
        (void)end_stream(context, native, capturing, left_ms > 0 ? left_ms : 1);
        sm_instance_release(context);
    }
    sm_graph_destroy_all(context, deadline_ns);
    sm_event_destroy_all(context);
}

/* --- use ---------------------------------------------------------------------------- */

symmem_status symmem_stream_synchronize(symmem_stream *stream, uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    static const char operation[] = "stream_synchronize";
    symmem_status status = sm_stream_need(stream, operation);
    if (status == SYMMEM_OK)
        status = sm_stream_not_capturing(stream, operation);
    if (status != SYMMEM_OK)
        return status;
    symmem_context *context = stream->context;
    symmem_error_record record = {.status = SYMMEM_OK};
    const uint64_t begin_ns = sm_now_ns();
    sm_context_observe(context, "stream.synchronize");
    status = context->backend->stream_synchronize(context->instance, stream->native,
                                                  sm_context_timeout(context, timeout_ms), &record);
    if (status == SYMMEM_OK)
        return SYMMEM_OK;
    /* Without a record this call failed, and not work of the stream. */
    if (tells_of(&record, status)) {
        (void)sm_error_raise(&record);
        sm_group_explain(context);
        return status;
    }
    (void)sm_backend_failed(context, status, operation, "stream_synchronize");
    return sm_error_elapsed(sm_now_ns() - begin_ns);
}

bool sm_stream_drain(const symmem_context *context, void *native, uint32_t timeout_ms) {
    SM_ATTEMPT(asking);
    uint64_t deadline_ns = sm_deadline_ns(timeout_ms);
    bool idle = false;
    /* Queries the stream. A synchronization would take its first failure away from the user. */
    while (context->backend->stream_query(context->instance, native, &idle) == SYMMEM_OK && !idle &&
           !sm_expired(deadline_ns))
        sm_sleep_ns(DRAIN_SLEEP_NS);
    return idle;
}

symmem_status symmem_stream_query(symmem_stream *stream, bool *idle_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "stream_query";
    symmem_status status = sm_stream_need(stream, operation);
    if (status != SYMMEM_OK)
        return status;
    if (idle_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "idle_p is NULL");
    symmem_context *context = stream->context;
    status = context->backend->stream_query(context->instance, stream->native, idle_p);
    return status == SYMMEM_OK ? status
                               : sm_backend_failed(context, status, operation, "stream_query");
}

symmem_status symmem_stream_host_fn(symmem_stream *stream, void (*fn)(void *arg), void *arg) {
    SM_PUBLIC_CALL;
    static const char operation[] = "stream_host_fn";
    symmem_status status = sm_stream_need(stream, operation);
    if (status != SYMMEM_OK)
        return status;
    if (fn == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "fn is NULL");
    symmem_context *context = stream->context;
    status = sm_need_capability(context, SYMMEM_CAP_HOST_FN, operation, "host functions");
    if (status != SYMMEM_OK)
        return status;
    status = context->backend->host_fn(context->instance, stream->native, fn, arg);
    return status == SYMMEM_OK ? status : sm_backend_failed(context, status, operation, "host_fn");
}
