/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures and their graphs. */
#include <stdlib.h>

#include "stream/stream.h"
#include "stream/graph.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "backend/registry.h"
#include "backend/table.h"
#include "stream/capture.h"

/* How long finalize waits for a graph's launches. Launches on the context's streams have ended by
 * then. Other launches give up their waits within a tick. */
#define GIVE_UP_MS 300u

static symmem_status check_capture(const symmem_stream *stream, const char *operation) {
    symmem_status status = sm_stream_need(stream, operation);
    if (status == SYMMEM_OK)
        status = sm_need_capability(stream->context, SYMMEM_CAP_CAPTURE, operation, "capture");
    return status;
}

symmem_status symmem_stream_begin_capture(symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char operation[] = "stream_begin_capture";
    symmem_status status = check_capture(stream, operation);
    if (status == SYMMEM_OK)
        status = sm_stream_not_capturing(stream, operation);
    if (status != SYMMEM_OK)
        return status;
    symmem_context *context = stream->context;
    status = sm_context_point(context, operation, "capture.begin");
    if (status != SYMMEM_OK)
        return status;
    /* First, so that other threads know their captures as the context's own. */
    atomic_fetch_add_explicit(&context->captures, 1, memory_order_relaxed);
    status = context->backend->capture_begin(context->instance, stream->native);
    if (status != SYMMEM_OK) {
        sm_node none;
        sm_list_init(&none);
        (void)sm_capture_take(context, 0, &none);
        return sm_backend_failed(context, status, operation, "capture_begin");
    }
    stream->capturing = true;
    return SYMMEM_OK;
}

static bool enlist(symmem_graph *graph) {
    symmem_context *context = graph->context;
    pthread_mutex_lock(&context->graphs_lock);
    bool live = sm_enlist(context, &context->graphs, &graph->node);
    pthread_mutex_unlock(&context->graphs_lock);
    return live;
}

/* Takes the graph out of the list, because a finalize would otherwise end what is waited for. NULL:
 * a finalize has ended it. */
static void *begin_ending(symmem_graph *graph) {
    symmem_context *context = graph->context;
    pthread_mutex_lock(&context->graphs_lock);
    void *native = sm_delist(context, &graph->node, &graph->native);
    pthread_mutex_unlock(&context->graphs_lock);
    return native;
}

/* Makes queries for pending launches look at the graph, until one query has found none. */
static void begin_launching(symmem_graph *graph) {
    pthread_mutex_lock(&graph->context->graphs_lock);
    sm_list_remove(&graph->launched);
    if (graph->native != NULL)
        sm_list_add(&graph->context->launched, &graph->launched);
    pthread_mutex_unlock(&graph->context->graphs_lock);
}

static void stop_launching(symmem_graph *graph) {
    pthread_mutex_lock(&graph->context->graphs_lock);
    sm_list_remove(&graph->launched);
    pthread_mutex_unlock(&graph->context->graphs_lock);
}

/* Makes the graph's shell. The native graph exists already and stays the caller's on failure. */
static symmem_status make_graph(symmem_context *context, int32_t device, void *native,
                                sm_node *links, uint64_t number, const char *operation,
                                symmem_graph **graph_p) {
    symmem_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, operation, "", "no memory");
    symmem_status status = sm_timed_mutex_init(&graph->call_lock);
    if (status != SYMMEM_OK)
        goto fail_lock;
    status = sm_instance_enter(context, operation);
    if (status != SYMMEM_OK)
        goto fail_instance;
    graph->context = context;
    graph->native = native;
    graph->device = device;
    sm_list_init(&graph->node);
    sm_list_init(&graph->launched);
    sm_list_init(&graph->links);
    graph->number = number;
    sm_list_move(&graph->links, links);
    if (!enlist(graph)) {
        status = sm_context_check(context, operation);
        goto fail_enlist;
    }
    *graph_p = graph;
    return SYMMEM_OK;
fail_enlist:
    sm_capture_forget(context, &graph->links);
    sm_instance_release(context);
fail_instance:
    sm_timed_mutex_finish(&graph->call_lock);
fail_lock:
    free(graph);
    return status;
}

symmem_status symmem_stream_end_capture(symmem_stream *stream, symmem_graph **graph_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "stream_end_capture";
    symmem_status status = check_capture(stream, operation);
    if (status != SYMMEM_OK)
        return status;
    if (graph_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "graph_p is NULL");
    symmem_context *context = stream->context;
    if (!stream->capturing)
        return sm_context_fail(context, SYMMEM_CAPTURE, operation, "",
                               "this stream did not begin a capture");
    void *native = NULL;
    sm_node links;
    sm_list_init(&links);
    sm_context_observe(context, "capture.end");
    const uint64_t capture = sm_capture_of(context, stream->native);
    status = context->backend->capture_end(context->instance, stream->native, &native);
    /* The capture is over even if its end failed. */
    stream->capturing = false;
    const uint64_t number = sm_capture_take(context, capture, &links);
    if (status != SYMMEM_OK) {
        sm_capture_forget(context, &links);
        return sm_backend_failed(context, status, operation, "capture_end");
    }
    status = make_graph(context, stream->device, native, &links, number, operation, graph_p);
    sm_capture_forget(context, &links); /* if there is no graph */
    if (status != SYMMEM_OK)
        context->backend->graph_destroy(context->instance, native);
    return status;
}

symmem_status symmem_stream_is_capturing(symmem_stream *stream, bool *capturing_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "stream_is_capturing";
    symmem_status status = check_capture(stream, operation);
    if (status != SYMMEM_OK)
        return status;
    if (capturing_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "capturing_p is NULL");
    symmem_context *context = stream->context;
    uint64_t capture = 0;
    status = context->backend->capture_id(context->instance, stream->native, &capture);
    if (status != SYMMEM_OK)
        return sm_backend_failed(context, status, operation, "capture_id");
    *capturing_p = capture != 0;
    return SYMMEM_OK;
}

/* --- launch and destroy ------------------------------------------------------------- */

/* Launches a graph whose call lock is held. A launch on another stream waits for the one before
 * it. */
static symmem_status launch(symmem_graph *graph, const symmem_stream *stream,
                            const char **entry_p) {
    symmem_context *context = graph->context;
    const sm_backend *backend = context->backend;
    symmem_status status;
    if (graph->done_event == NULL) {
        *entry_p = "event_create";
        status = backend->event_create(context->instance, stream->device, &graph->done_event);
    } else {
        *entry_p = "stream_wait_event";
        status = backend->stream_wait_event(context->instance, stream->native, graph->done_event);
    }
    if (status != SYMMEM_OK)
        return status;
    *entry_p = "graph_launch";
    status = backend->graph_launch(context->instance, graph->native, stream->native);
    if (status != SYMMEM_OK)
        return status;
    *entry_p = "event_record";
    status = backend->event_record(context->instance, graph->done_event, stream->native);
    if (status != SYMMEM_OK)
        (void)sm_stream_drain(context, stream->native,
                              sm_context_timeout(context, SYMMEM_TIMEOUT_DEFAULT));
    return status;
}

symmem_status symmem_graph_launch(symmem_graph *graph, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char operation[] = "graph_launch";
    if (graph == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "graph is NULL");
    symmem_status status = sm_stream_need(stream, operation);
    if (status == SYMMEM_OK)
        status = sm_stream_check(graph->context, stream, graph->device, operation);
    if (status == SYMMEM_OK)
        status = sm_stream_not_capturing(stream, operation);
    if (status == SYMMEM_OK)
        status = sm_context_point(graph->context, operation, "graph.launch");
    if (status != SYMMEM_OK)
        return status;
    symmem_context *context = graph->context;
    uint32_t timeout_ms = sm_context_timeout(context, SYMMEM_TIMEOUT_DEFAULT);
    if (!sm_timed_mutex_lock(&graph->call_lock, sm_deadline_ns(timeout_ms)))
        return sm_context_fail(context, SYMMEM_TIMEOUT, operation, "",
                               "another thread is launching the graph");
    const char *entry = "";
    begin_launching(graph);
    status = launch(graph, stream, &entry);
    if (status != SYMMEM_OK)
        status = sm_backend_failed(context, status, operation, entry);
    sm_timed_mutex_unlock(&graph->call_lock);
    return status;
}

/* graphs_lock held. */
static symmem_status look_at_launches(symmem_graph *graph, bool *pending_p) {
    symmem_context *context = graph->context;
    bool reached = true;
    symmem_status status = SYMMEM_OK;
    /* If the lock is taken, another thread is launching the graph. */
    *pending_p = !sm_timed_mutex_lock(&graph->call_lock, 1);
    if (*pending_p)
        return SYMMEM_OK;
    if (graph->done_event != NULL)
        status = context->backend->event_query(context->instance, graph->done_event, &reached);
    *pending_p = !reached;
    sm_timed_mutex_unlock(&graph->call_lock);
    return status;
}

static symmem_status await_launches(symmem_context *context, void *done_event,
                                    uint32_t timeout_ms) {
    if (done_event == NULL)
        return SYMMEM_OK;
    symmem_status status =
        context->backend->event_synchronize(context->instance, done_event, timeout_ms);
    return status == SYMMEM_OK
               ? status
               : sm_backend_failed(context, status, "graph_destroy", "event_synchronize");
}

static void end_graph(symmem_context *context, void *native, void *done_event) {
    if (done_event != NULL)
        context->backend->event_destroy(context->instance, done_event);
    context->backend->graph_destroy(context->instance, native);
    sm_instance_release(context);
}

/* Puts back a graph that a launch still uses. False: the context was finalized meanwhile. */
static bool keep_graph(symmem_graph *graph, void *native) {
    symmem_context *context = graph->context;
    graph->native = native;
    if (!enlist(graph)) {
        graph->native = NULL;
        return false;
    }
    sm_context_release(context); /* the shell still has its own */
    return true;
}

symmem_status symmem_graph_destroy(symmem_graph *graph) {
    SM_PUBLIC_CALL;
    if (graph == NULL)
        return SYMMEM_OK;
    symmem_context *context = graph->context;
    if (sm_fork_is_parents(context->made_in))
        return sm_fork_refuse("graph_destroy");
    symmem_status status = SYMMEM_OK;
    void *native = begin_ending(graph);
    if (native != NULL)
        status = await_launches(context, graph->done_event,
                                sm_context_timeout(context, SYMMEM_TIMEOUT_DEFAULT));
    if (status != SYMMEM_OK && keep_graph(graph, native))
        return status;
    stop_launching(graph);
    if (native != NULL)
        end_graph(context, native, graph->done_event);
    sm_timed_mutex_finish(&graph->call_lock);
    sm_capture_forget(context, &graph->links);
    free(graph);
    sm_context_release(context);
    return SYMMEM_OK;
}

/* Looks at the graphs with pending launches. Graphs whose launches have ended are not looked at
 * again, so the time depends on the pending launches and not on the number of graphs. graphs_lock
 * held. */
static symmem_status look_at_launched(symmem_context *context, const sm_link *link,
                                      bool *pending_p) {
    for (sm_node *node = context->launched.next, *next; node != &context->launched; node = next) {
        symmem_graph *graph = SM_CONTAINER(node, symmem_graph, launched);
        SM_ATTEMPT(look);
        bool is_pending = true;
        next = node->next;
        symmem_status status = look_at_launches(graph, &is_pending);
        if (status == SYMMEM_OK && !is_pending) {
            sm_list_remove(node);
        } else if (sm_capture_has(context, graph->number, link)) {
            *pending_p = is_pending;
            (void)sm_error_raise(&look.error);
            return status;
        }
    }
    return SYMMEM_OK;
}

symmem_status sm_graph_pending(const sm_link *link, const char *operation, bool *pending_p) {
    symmem_context *context = link->context;
    *pending_p = false;
    pthread_mutex_lock(&context->graphs_lock);
    symmem_status status = look_at_launched(context, link, pending_p);
    pthread_mutex_unlock(&context->graphs_lock);
    return status == SYMMEM_OK ? status
                               : sm_backend_failed(context, status, operation, "event_query");
}

/* Takes the next graph that finalize has to end out of the list. */
static bool take_graph(symmem_context *context, void **native_p, void **done_event_p) {
    bool found = false;
    pthread_mutex_lock(&context->graphs_lock);
    pthread_mutex_lock(&context->lock);
    if (!sm_list_empty(&context->graphs)) {
        symmem_graph *graph = SM_CONTAINER(context->graphs.next, symmem_graph, node);
        *native_p = graph->native;
        *done_event_p = graph->done_event;
        graph->native = graph->done_event = NULL;
        sm_list_remove(&graph->node);
        sm_list_remove(&graph->launched);
        found = true;
    }
    pthread_mutex_unlock(&context->lock);
    pthread_mutex_unlock(&context->graphs_lock);
    return found;
}

void sm_graph_destroy_all(symmem_context *context, uint64_t deadline_ns) {
    void *native, *done_event;
    while (take_graph(context, &native, &done_event)) {
        uint32_t left_ms = sm_remaining_ms(deadline_ns, GIVE_UP_MS);
        /* A launch that does not end goes on, and the backend keeps what it needs. */
        (void)await_launches(context, done_event, left_ms > 0 ? left_ms : 1);
        end_graph(context, native, done_event);
    }
}
