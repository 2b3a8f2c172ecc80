/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Captures that the program began itself, on a stream of its own. Their graphs are the program's:
 * what was captured stays alive for them until the driver says that a graph and all that was made
 * of it are gone, which it does through a "user object" of the graph's. Nobody says when they are
 * launched, so whether one of their operations has failed is looked at all the time.
 */
#include <stdlib.h>

#include "cuda_internal.h"

/* How long a kernel may still write after its failure can be seen; and a consequence waits for its
 * cause, see pending.c. */
#define SETTLE_NS CUDA_NS_PER_MS
#define CAUSE_NS (20 * CUDA_NS_PER_MS)

/* The capture's, and the driver's for as long as there is a user object. */
struct cuda_ending {
    atomic_int users;
    atomic_bool over; /* the graph is gone */
};

static void drop_ending(cuda_ending *ending) {
    if (atomic_fetch_sub(&ending->users, 1) == 1)
        free(ending);
}

/* In a thread of the driver's, which may not call it: the instance may be gone as well. */
static void CUDA_CB graph_is_gone(void *opaque) {
    cuda_ending *ending = opaque;
    atomic_store(&ending->over, true);
    drop_ending(ending);
}

/* --- adopting ----------------------------------------------------------------------- */

/* The context is current. */
static CUresult attach(const cuda_driver *driver, CUstream native, cuda_ending *ending) {
    CUstreamCaptureStatus capturing;
    CUgraph graph = NULL;
    CUuserObject object = NULL;
    CUresult result = driver->StreamGetCaptureInfo(native, &capturing, NULL, &graph, NULL, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    atomic_fetch_add(&ending->users, 1);
    result = driver->UserObjectCreate(&object, ending, graph_is_gone, 1,
                                      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS) {
        drop_ending(ending);
        return result;
    }
    result = driver->GraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result != CUDA_SUCCESS)
        (void)driver->UserObjectRelease(object, 1); /* comes to graph_is_gone */
    return result;
}

static symmem_status attach_to(cuda_instance *instance, const cuda_stream *stream,
                               cuda_ending *ending, const char *operation) {
    symmem_status status = cuda_enter(instance, stream->device, operation);
    if (status != SYMMEM_OK)
        return status;
    CUresult result = attach(&instance->driver, stream->native, ending);
    cuda_leave(instance);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, operation);
}

static symmem_status adopt(cuda_instance *instance, cuda_stream *stream, cuuint64_t id,
                           const char *operation) {
    cuda_capture *capture = calloc(1, sizeof *capture);
    cuda_ending *ending = calloc(1, sizeof *ending);
    if (capture == NULL || ending == NULL) {
        free(ending);
        free(capture);
        return cuda_no_memory(instance, operation);
    }
    atomic_init(&ending->users, 1);
    symmem_status status = attach_to(instance, stream, ending, operation);
    if (status != SYMMEM_OK) {
        drop_ending(ending);
        free(capture);
        return status;
    }
    *capture = (cuda_capture){.id = id, .stream = stream, .ending = ending};
    capture->held_end = &capture->held;
    pthread_mutex_lock(&instance->lock);
    stream->users++;
    capture->next = instance->adopted;
    instance->adopted = capture;
    atomic_fetch_add(&instance->adopted_count, 1);
    pthread_cond_signal(&instance->work);
    pthread_mutex_unlock(&instance->lock);
    return SYMMEM_OK;
}

symmem_status cuda_capture_join(cuda_instance *instance, cuda_stream *stream, const char *operation,
                                uint64_t *id_p) {
    symmem_status status = cuda_capture_id(instance, stream, id_p);
    if (status != SYMMEM_OK || *id_p == 0)
        return status;
    pthread_mutex_lock(&instance->lock);
    const bool known = cuda_capture_find(instance, *id_p) != NULL;
    pthread_mutex_unlock(&instance->lock);
    return known ? SYMMEM_OK : adopt(instance, stream, *id_p, operation);
}

/* --- looking after them --------------------------------------------------------------- */

/* One whose graph is gone, or any; out of the list. */
static cuda_capture *take(cuda_instance *instance, bool any) {
    pthread_mutex_lock(&instance->lock);
    cuda_capture **link = &instance->adopted;
    while (*link != NULL && !any && !atomic_load(&(*link)->ending->over))
        link = &(*link)->next;
    cuda_capture *capture = *link;
    if (capture != NULL)
        *link = capture->next;
    pthread_mutex_unlock(&instance->lock);
    return capture;
}

static void end(cuda_instance *instance, cuda_capture *capture) {
    for (const cuda_captured *held = capture->held; held != NULL; held = held->next)
        cuda_look_for_fault(capture->stream, &held->signal);
    cuda_captured_free(capture->held);
    cuda_stream_drop(capture->stream);
    drop_ending(capture->ending);
    free(capture);
    atomic_fetch_sub(&instance->adopted_count, 1);
}

/* True: it has failed, but is not to be told yet. */
static bool is_unsettled(cuda_stream *stream, cuda_captured *held) {
    const cuda_signal_op *signal = &held->signal;
    if (signal->fault == NULL || __atomic_load_n(&signal->fault->code, __ATOMIC_ACQUIRE) == 0)
        return false;
    const uint64_t now_ns = cuda_now_ns();
    if (held->failed_ns == 0)
        held->failed_ns = now_ns;
    if (now_ns - held->failed_ns < (cuda_is_consequence(signal) ? CAUSE_NS : SETTLE_NS))
        return true;
    held->failed_ns = 0;
    cuda_look_for_fault(stream, signal);
    return false;
}

/* Captures and what they hold go only while `collecting` is held; both get more meanwhile. */
static cuda_captured *next_held(cuda_instance *instance, cuda_captured *const *link) {
    pthread_mutex_lock(&instance->lock);
    cuda_captured *held = *link;
    pthread_mutex_unlock(&instance->lock);
    return held;
}

static cuda_capture *next_adopted(cuda_instance *instance, cuda_capture *const *link) {
    pthread_mutex_lock(&instance->lock);
    cuda_capture *capture = *link;
    pthread_mutex_unlock(&instance->lock);
    return capture;
}

static bool are_unsettled(cuda_instance *instance, const cuda_capture *capture) {
    bool unsettled = false;
    cuda_captured *held = next_held(instance, &capture->held);
    for (; held != NULL; held = next_held(instance, &held->next))
        unsettled |= is_unsettled(capture->stream, held);
    return unsettled;
}

bool cuda_adopted_look(cuda_instance *instance) {
    bool unsettled = false;
    cuda_capture *gone, *capture;
    if (instance->looking) /* what is told and released comes back here */
        return false;
    instance->looking = true;
    while ((gone = take(instance, false)) != NULL)
        end(instance, gone);
    capture = next_adopted(instance, &instance->adopted);
    for (; capture != NULL; capture = next_adopted(instance, &capture->next))
        unsettled |= are_unsettled(instance, capture);
    instance->looking = false;
    return unsettled;
}

void cuda_adopted_close(cuda_instance *instance) {
    cuda_capture *capture;
    while ((capture = take(instance, true)) != NULL)
        end(instance, capture);
}
