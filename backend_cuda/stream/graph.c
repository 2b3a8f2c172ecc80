/* SPDX-License-Identifier: BSD-3-Clause */
/* Captured graphs, and what they hold: references, and where their kernels report failures. */
#include <stdlib.h>
#include <string.h>

#include "stream/graph.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "inflight/inflight.h"
#include "driver/pinned.h"
#include "driver/staging.h"
#include "inflight/chunk_wait.h"
#include "stream/stream.h"

CUresult cuda_capture_ask(const cuda_driver *driver, CUstream native, uint64_t *id_p) {
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUresult result = driver->StreamGetCaptureInfo(native, &capturing, &id, NULL, NULL, NULL);
    if (result == CUDA_SUCCESS)
        *id_p = capturing == CU_STREAM_CAPTURE_STATUS_NONE     ? 0
                : capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id
                                                               : CUDA_BROKEN_CAPTURE;
    return result;
}

/* These are streams of whatever context is current. Any other stream knows its context. */
bool cuda_is_default_stream(CUstream native) {
    return native == NULL || native == CU_STREAM_LEGACY || native == CU_STREAM_PER_THREAD;
}

symmem_status cuda_capture_id(void *opaque, void *opaque_stream, uint64_t *id_p) {
    cuda_instance *instance = opaque;
    const cuda_stream *stream = opaque_stream;
    if (!cuda_is_default_stream(stream->native) || cuda_is_entered(instance, stream->device)) {
        const CUresult result = cuda_capture_ask(&instance->driver, stream->native, id_p);
        return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, "capture_id");
    }
    symmem_status status = cuda_enter(instance, stream->device, "capture_id");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = cuda_capture_ask(&instance->driver, stream->native, id_p);
    cuda_leave(instance);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, "capture_id");
}

void cuda_captured_free(cuda_captured *held) {
    while (held != NULL) {
        cuda_captured *next = held->next;
        for (int32_t i = 0; i < held->ref_count; i++)
            held->refs[i].release(held->refs[i].object);
        cuda_small_block_give(held->signal.fault);
        cuda_staging_give(held->staging);
        cuda_stream_drop(held->stream);
        free(held);
        held = next;
    }
}

/* --- capture ------------------------------------------------------------------------ */

static cuda_capture *take_capture(cuda_instance *instance, cuuint64_t id) {
    pthread_mutex_lock(&instance->lock);
    cuda_capture **link = &instance->captures;
    while (*link != NULL && (*link)->id != id)
        link = &(*link)->next;
    cuda_capture *capture = *link;
    if (capture != NULL)
        *link = capture->next;
    pthread_mutex_unlock(&instance->lock);
    return capture;
}

static void put_capture(cuda_instance *instance, cuda_capture *capture) {
    pthread_mutex_lock(&instance->lock);
    capture->next = instance->captures;
    instance->captures = capture;
    pthread_mutex_unlock(&instance->lock);
}

/* Relaxed: the end may come from another thread, and other threads go on allocating. */
static CUresult begin_capture(const cuda_driver *driver, CUstream native, uint64_t *id_p) {
    CUgraph graph = NULL;
    CUresult result = driver->StreamBeginCapture(native, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda_capture_ask(driver, native, id_p);
    if (result != CUDA_SUCCESS)
        (void)driver->StreamEndCapture(native, &graph);
    if (graph != NULL)
        (void)driver->GraphDestroy(graph);
    return result;
}

symmem_status cuda_capture_begin(void *opaque, void *opaque_stream) {
    cuda_instance *instance = opaque;
    cuda_stream *stream = opaque_stream;
    uint64_t id = 0;
    cuda_capture *capture = calloc(1, sizeof *capture);
    if (capture == NULL)
        return cuda_no_memory(instance, "capture_begin");
    capture->held_end = &capture->held;
    symmem_status status = cuda_enter(instance, stream->device, "capture_begin");
    if (status != SYMMEM_OK)
        goto free_capture;
    CUresult result = begin_capture(&instance->driver, stream->native, &id);
    cuda_leave(instance);
    if (result != CUDA_SUCCESS) {
        status = cuda_fail(instance, result, "capture_begin");
        goto free_capture;
    }
    capture->id = id;
    stream->capture = id;
    put_capture(instance, capture);
    return SYMMEM_OK;
free_capture:
    free(capture);
    return status;
}

static cuda_capture *find_in(cuda_capture *list, cuuint64_t id) {
    while (list != NULL && list->id != id)
        list = list->next;
    return list;
}

cuda_capture *cuda_capture_find(const cuda_instance *instance, cuuint64_t id) {
    cuda_capture *own = find_in(instance->captures, id);
    return own != NULL ? own : find_in(instance->foreign_captures, id);
}

/* For peers that none before it has. */
static void watch(cuda_capture *capture, cuda_captured *held) {
    cuda_captured **link = &capture->watched;
    if (held->signal.peers == NULL)
        return;
    while (*link != NULL && (*link)->signal.peers != held->signal.peers)
        link = &(*link)->next_watched;
    if (*link == NULL)
        *link = held;
}

/* The instance's lock is held. */
static void append(cuda_capture *capture, cuda_captured *held) {
    held->stream->users++;
    *capture->held_end = held;
    capture->held_end = &held->next;
    capture->held_last = held;
    if (capture->ending != NULL)
        watch(capture, held);
}

static cuda_captured *make_held(const symmem_exec *exec, const cuda_needs *needs) {
    cuda_captured *held = calloc(1, sizeof *held);
    if (held == NULL)
        return NULL;
    held->stream = exec->stream;
    held->staging = needs->staging;
    if (needs->signal != NULL)
        held->signal = *needs->signal;
    for (int32_t i = 0; i < exec->ref_count; i++) {
        held->refs[held->ref_count++] = exec->refs[i];
        exec->refs[i].retain(exec->refs[i].object);
    }
    return held;
}

/* Returns false if the capture is over, and nothing is held. */
static bool hold(cuda_instance *instance, cuuint64_t id, cuda_captured *held) {
    pthread_mutex_lock(&instance->lock);
    cuda_capture *capture = cuda_capture_find(instance, id);
    if (capture != NULL)
        append(capture, held);
    pthread_mutex_unlock(&instance->lock);
    if (capture != NULL)
        return true;
    for (int32_t i = 0; i < held->ref_count; i++)
        held->refs[i].release(held->refs[i].object);
    free(held);
    return false;
}

symmem_status cuda_captured_add(cuda_instance *instance, cuuint64_t id, const symmem_exec *exec,
                                const cuda_needs *needs, const char *operation) {
    cuda_captured *held = make_held(exec, needs);
    if (held == NULL)
        return cuda_no_memory(instance, operation);
    if (hold(instance, id, held))
        return SYMMEM_OK;
    return instance->host->fail(instance->host, SYMMEM_CAPTURE, 0, operation,
                                "the capture is over");
}

void cuda_captured_rest(cuda_instance *instance, cuuint64_t id, const symmem_exec *exec) {
    const cuda_needs none = {.staging = NULL};
    cuda_captured *held = make_held(exec, &none);
    if (held != NULL)
        (void)hold(instance, id, held);
}

/* Ends the capture. *executable_p is NULL if it was malformed. */
static CUresult end_capture(const cuda_driver *driver, CUstream native, CUgraphExec *executable_p) {
    CUgraph graph = NULL;
    CUresult result = driver->StreamEndCapture(native, &graph);
    if (result == CUDA_SUCCESS)
        result = driver->GraphInstantiateWithFlags(executable_p, graph, 0);
    if (graph != NULL)
        (void)driver->GraphDestroy(graph);
    return result;
}

symmem_status cuda_capture_end(void *opaque, void *opaque_stream, void **graph_p) {
    cuda_instance *instance = opaque;
    cuda_stream *stream = opaque_stream;
    CUgraphExec executable = NULL;
    symmem_status status = cuda_enter(instance, stream->device, "capture_end");
    if (status != SYMMEM_OK)
        return status;
    cuda_graph *graph = calloc(1, sizeof *graph);
    CUresult result = end_capture(&instance->driver, stream->native, &executable);
    if (result == CUDA_SUCCESS && graph == NULL)
        (void)instance->driver.GraphExecDestroy(executable);
    cuda_leave(instance);
    cuda_capture *capture = take_capture(instance, stream->capture);
    stream->capture = 0;
    cuda_captured *held = capture != NULL ? capture->held : NULL;
    free(capture);
    if (result == CUDA_SUCCESS && graph != NULL) {
        *graph = (cuda_graph){
            .users = 1, .device = stream->device, .executable = executable, .held = held};
        *graph_p = graph;
        return SYMMEM_OK;
    }
    free(graph);
    cuda_captured_free(held);
    if (result == CUDA_ERROR_ILLEGAL_STATE)
        return instance->host->fail(instance->host, SYMMEM_CAPTURE, 0, "capture_end",
                                    "the stream does not capture");
    return result == CUDA_SUCCESS ? cuda_no_memory(instance, "capture_end")
                                  : cuda_fail(instance, result, "capture_end");
}

/* --- graphs ------------------------------------------------------------------------- */

/* The launch before it may have been told that its chunk waits are canceled. This launch waits for
 * the same chunks again. From now on nothing cancels them until the launch has an entry. */
static void begin_launch(cuda_instance *instance, cuda_graph *graph) {
    pthread_mutex_lock(&instance->lock);
    graph->is_launched = true;
    for (const cuda_captured *held = graph->held; held != NULL; held = held->next)
        if (held->signal.fault != NULL && held->signal.peers == NULL)
            cuda_allow_chunk_waits(&held->signal);
    pthread_mutex_unlock(&instance->lock);
}

static void end_launch(cuda_instance *instance, cuda_graph *graph) {
    pthread_mutex_lock(&instance->lock);
    graph->is_launched = false;
    pthread_mutex_unlock(&instance->lock);
}

symmem_status cuda_graph_launch(void *opaque, void *opaque_graph, void *opaque_stream) {
    cuda_instance *instance = opaque;
    cuda_graph *graph = opaque_graph;
    cuda_stream *stream = opaque_stream;
    cuda_collect(instance);
    symmem_status status = cuda_enter(instance, stream->device, "graph_launch");
    if (status != SYMMEM_OK)
        return status;
    cuda_pending *pending = NULL;
    status = cuda_pending_make(stream, "graph_launch", &pending);
    if (status == SYMMEM_OK) {
        begin_launch(instance, graph);
        CUresult result = instance->driver.GraphLaunch(graph->executable, stream->native);
        if (result == CUDA_SUCCESS) {
            status = cuda_pending_add(pending, NULL, &(cuda_needs){.graph = graph}, "graph_launch");
        } else {
            cuda_pending_drop(instance, pending);
            status = cuda_fail(instance, result, "graph_launch");
        }
        end_launch(instance, graph);
    }
    cuda_leave(instance);
    return status;
}

void cuda_graph_drop(cuda_instance *instance, cuda_graph *graph) {
    pthread_mutex_lock(&instance->lock);
    bool last = --graph->users == 0;
    pthread_mutex_unlock(&instance->lock);
    if (!last)
        return;
    /* Its context is open. If it is lost there may be no reader left to inform. */
    if (cuda_reenter(instance, graph->device)) {
        (void)instance->driver.GraphExecDestroy(graph->executable);
        cuda_leave(instance);
    }
    cuda_captured_free(graph->held);
    free(graph);
}

void cuda_graph_destroy(void *opaque, void *graph) {
    cuda_collect(opaque);
    cuda_graph_drop(opaque, graph);
}
