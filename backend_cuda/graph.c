/* SPDX-License-Identifier: BSD-3-Clause */
/* Events, and captured graphs with the references that they hold. */
#include "cuda_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

symmem_status cuda_event_create(void *opaque, int32_t device, void **event_p) {
    CUevent event = NULL;
    symmem_status status = cuda_enter(opaque, device, "event_create");
    if (status != SYMMEM_OK) {
        return status;
    }
    CUresult result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    cuda_leave();
    if (result != CUDA_SUCCESS) {
        return cuda_fail(opaque, result, "event_create");
    }
    *event_p = event;
    return SYMMEM_OK;
}

void cuda_event_destroy(void *opaque, void *event) {
    (void)opaque;
    (void)cuEventDestroy(event);
}

symmem_status cuda_event_record(void *opaque, void *event, void *stream) {
    CUresult result = cuEventRecord(event, ((cuda_stream *)stream)->native);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(opaque, result, "event_record");
}

/* Refused by the driver if exactly one of the two belongs to a capture. */
symmem_status cuda_stream_wait_event(void *opaque, void *stream, void *event) {
    CUresult result =
        cuStreamWaitEvent(((cuda_stream *)stream)->native, event, CU_EVENT_WAIT_DEFAULT);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(opaque, result, "stream_wait_event");
}

symmem_status cuda_event_query(void *opaque, void *event, bool *reached_p) {
    CUresult result = cuEventQuery(event);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        return cuda_fail(opaque, result, "event_query");
    }
    *reached_p = result == CUDA_SUCCESS;
    return SYMMEM_OK;
}

symmem_status cuda_event_synchronize(void *opaque, void *event, uint32_t timeout_ms) {
    cuda_instance *instance = opaque;
    const struct timespec pause = {.tv_nsec = 50000};
    struct timespec start, now;
    bool reached = false;

    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        symmem_status status = cuda_event_query(opaque, event, &reached);
        if (status != SYMMEM_OK || reached) {
            return status;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t elapsed_ms =
            (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
        if (timeout_ms != 0 && elapsed_ms >= (int64_t)timeout_ms) {
            return instance->host->fail(instance->host, SYMMEM_TIMEOUT, 0, "event_synchronize",
                                        "the event was not reached");
        }
        nanosleep(&pause, NULL);
    }
}

/* --- capture ------------------------------------------------------------------------ */

/* Relaxed: the end may come from another thread, and allocations elsewhere go on. */
symmem_status cuda_capture_begin(void *opaque, void *stream) {
    CUresult result =
        cuStreamBeginCapture(((cuda_stream *)stream)->native, CU_STREAM_CAPTURE_MODE_RELAXED);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(opaque, result, "capture_begin");
}

symmem_status cuda_capture_id(void *opaque, void *stream, uint64_t *id_p) {
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUresult result = cuStreamGetCaptureInfo(((cuda_stream *)stream)->native, &capturing, &id, NULL,
                                             NULL, NULL, NULL);
    if (result != CUDA_SUCCESS) {
        return cuda_fail(opaque, result, "capture_id");
    }
    *id_p = capturing == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : id;
    return SYMMEM_OK;
}

/* The driver runs this in a thread of its own, where no driver call is allowed. symmem_ref.release
 * may come to memory_release, so a real backend only queues here; see README.md. */
static void CUDA_CB drop_ref(void *argument) {
    symmem_ref *ref = argument;
    ref->release(ref->object);
    free(ref);
}

static CUresult give_ref(CUgraph graph, const symmem_ref *ref) {
    symmem_ref *copy = malloc(sizeof *copy);
    CUuserObject object = NULL;
    if (copy == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *copy = *ref;
    CUresult result =
        cuUserObjectCreate(&object, copy, drop_ref, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS) {
        free(copy);
        return result;
    }
    copy->retain(copy->object);
    result = cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result != CUDA_SUCCESS) {
        (void)cuUserObjectRelease(object, 1); /* runs drop_ref */
    }
    return result;
}

symmem_status cuda_capture_refs(cuda_instance *instance, CUgraph graph, const symmem_exec *exec) {
    for (int32_t i = 0; i < exec->ref_count; i++) {
        CUresult result = give_ref(graph, &exec->refs[i]);
        if (result != CUDA_SUCCESS) {
            return cuda_fail(instance, result, "capture");
        }
    }
    return SYMMEM_OK;
}

symmem_status cuda_capture_end(void *opaque, void *stream, void **graph_p) {
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CUresult result = cuStreamEndCapture(((cuda_stream *)stream)->native, &graph);

    if (result == CUDA_SUCCESS) {
        /* The executable takes over the user objects, so the template can go. */
        result = cuGraphInstantiate(&executable, graph, 0);
    }
    if (graph != NULL) {
        (void)cuGraphDestroy(graph);
    }
    if (result != CUDA_SUCCESS) {
        return cuda_fail(opaque, result, "capture_end");
    }
    *graph_p = executable;
    return SYMMEM_OK;
}

symmem_status cuda_graph_launch(void *opaque, void *graph, void *stream) {
    CUresult result = cuGraphLaunch(graph, ((cuda_stream *)stream)->native);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(opaque, result, "graph_launch");
}

void cuda_graph_destroy(void *opaque, void *graph) {
    (void)opaque;
    (void)cuGraphExecDestroy(graph);
}
