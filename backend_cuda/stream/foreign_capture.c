/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Captures that the program began itself, on a stream of its own. Their graphs belong to the
 * program. What was captured stays alive until the driver says that a graph and everything made of
 * it are gone. It does so through a "user object" of the graph. The library does not learn when
 * they are launched, so it checks all the time whether one of their operations has failed.
 */
#include <stdlib.h>

#include "stream/foreign_capture.h"
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "inflight/inflight.h"
#include "stream/graph.h"
#include "stream/stream.h"

/* How long a kernel may still write after its failure can be seen, and how long a consequence waits
 * for its cause (see inflight.c). */
#define SETTLE_NS CUDA_NS_PER_MS
#define CAUSE_NS (20 * CUDA_NS_PER_MS)

/* Owned by the capture, and by the driver while there is a user object. */
struct cuda_graph_end {
    atomic_int users;
    atomic_bool over; /* the graph is gone */
};

/* Two threads may capture into one graph, which the driver allows only one at a time to change. */
static pthread_mutex_t adopting = PTHREAD_MUTEX_INITIALIZER;

static void drop_ending(cuda_graph_end *ending) {
    if (atomic_fetch_sub(&ending->users, 1) == 1)
        free(ending);
}

/* Runs in a thread of the driver, which may not call the driver. The instance may be gone too. */
static void CUDA_CB graph_is_gone(void *opaque) {
    cuda_graph_end *ending = opaque;
    atomic_store(&ending->over, true);
    drop_ending(ending);
}

/* --- beginning to track a capture -------------------------------------------------- */

/* The context is current. */
static CUresult attach(const cuda_driver *driver, CUstream native, cuda_graph_end *ending) {
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
        (void)driver->UserObjectRelease(object, 1); /* calls graph_is_gone */
    return result;
}

static symmem_status attach_to(cuda_instance *instance, const cuda_stream *stream,
                               cuda_graph_end *ending, const char *operation) {
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
    cuda_graph_end *ending = calloc(1, sizeof *ending);
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
    capture->next = instance->foreign_captures;
    instance->foreign_captures = capture;
    atomic_fetch_add(&instance->foreign_count, 1);
    pthread_cond_signal(&instance->work);
    pthread_mutex_unlock(&instance->lock);
    return SYMMEM_OK;
}

static bool is_known(cuda_instance *instance, cuuint64_t id) {
    pthread_mutex_lock(&instance->lock);
    const bool known = cuda_capture_find(instance, id) != NULL;
    pthread_mutex_unlock(&instance->lock);
    return known;
}

symmem_status cuda_capture_join(cuda_instance *instance, const symmem_exec *exec,
                                const char *operation, uint64_t *id_p) {
    symmem_status status = SYMMEM_OK;
    cuda_stream *stream = exec->stream;
    CUresult result = CUDA_SUCCESS;
    if (exec->capture_known)
        *id_p = exec->capture;
    else
        result = cuda_capture_ask(&instance->driver, stream->native, id_p);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "capture_id");
    if (*id_p == 0)
        return status;
    if (*id_p == CUDA_BROKEN_CAPTURE)
        return instance->host->fail(instance->host, SYMMEM_CAPTURE, 0, operation,
                                    "the stream's capture is broken, and has to be ended");
    if (is_known(instance, *id_p))
        return SYMMEM_OK;
    pthread_mutex_lock(&adopting);
    if (!is_known(instance, *id_p))
        status = adopt(instance, stream, *id_p, operation);
    pthread_mutex_unlock(&adopting);
    return status;
}

/* --- checking for failures --------------------------------------------------------- */

/* The state of one pass over all operations. */
typedef struct check_pass {
    cuda_stream *stream;   /* the stream that reports */
    bool over;             /* the graph is gone: none of its kernels runs */
    uint64_t patience_ns;  /* a failure seen later need not be waited for */
    bool unsettled, await; /* something is still to be reported; something is to be waited for */
} check_pass;

static uint32_t code_of(const cuda_captured *held) {
    return __atomic_load_n(&held->signal.fault->code, __ATOMIC_ACQUIRE);
}

static void check_capture(check_pass *look, cuda_captured *held) {
    const uint64_t now_ns = cuda_now_ns();
    if (held->failed_ns == 0)
        held->failed_ns = now_ns;
    const uint64_t rest_ns = cuda_is_consequence(&held->signal) ? CAUSE_NS
                             : look->over                       ? 0
                                                                : SETTLE_NS;
    if (now_ns - held->failed_ns >= rest_ns) {
        held->failed_ns = 0;
        cuda_check_fault(look->stream, &held->signal);
        return;
    }
    look->unsettled = true;
    look->await = look->await || held->failed_ns <= look->patience_ns;
}

static void look_at(check_pass *look, cuda_captured *held) {
    if (held->signal.fault != NULL && code_of(held) != 0)
        check_capture(look, held);
}

/* Captures and what they hold are freed only while `collecting` is held. Both lists grow meanwhile.
 * What is there now stays as it is. */
static cuda_captured *last_held(cuda_instance *instance, const cuda_capture *capture) {
    pthread_mutex_lock(&instance->lock);
    cuda_captured *last = capture->held_last;
    pthread_mutex_unlock(&instance->lock);
    return last;
}

static cuda_capture *first_adopted(cuda_instance *instance) {
    pthread_mutex_lock(&instance->lock);
    cuda_capture *first = instance->foreign_captures;
    pthread_mutex_unlock(&instance->lock);
    return first;
}

static void look_at_all(cuda_instance *instance, check_pass *look, const cuda_capture *capture) {
    const cuda_captured *last = last_held(instance, capture);
    for (cuda_captured *held = last != NULL ? capture->held : NULL; held != NULL;
         held = held == last ? NULL : held->next)
        look_at(look, held);
}

/* --- their end ------------------------------------------------------------------------ */

/* Removes a capture from the list: one that has nothing left to report, or any. */
static cuda_capture *take(cuda_instance *instance, bool any) {
    pthread_mutex_lock(&instance->lock);
    cuda_capture **link = &instance->foreign_captures;
    while (*link != NULL && !any && !(*link)->settled)
        link = &(*link)->next;
    cuda_capture *capture = *link;
    if (capture != NULL)
        *link = capture->next;
    pthread_mutex_unlock(&instance->lock);
    return capture;
}

static void end(cuda_instance *instance, cuda_capture *capture) {
    cuda_captured_free(capture->held);
    cuda_stream_drop(capture->stream);
    drop_ending(capture->ending);
    free(capture);
    atomic_fetch_sub(&instance->foreign_count, 1);
}

bool cuda_foreign_captures_check(cuda_instance *instance, uint64_t begin_ns) {
    bool await = false;
    cuda_capture *gone;
    if (instance->looking) /* reporting and releasing may come back here */
        return false;
    instance->looking = true;
    for (cuda_capture *capture = first_adopted(instance); capture != NULL;
         capture = capture->next) {
        check_pass look = {.stream = capture->stream,
                           .over = atomic_load(&capture->ending->over),
                           .patience_ns = begin_ns + SETTLE_NS};
        look_at_all(instance, &look, capture);
        capture->settled = look.over && !look.unsettled;
        await = await || look.await;
    }
    while ((gone = take(instance, false)) != NULL)
        end(instance, gone);
    instance->looking = false;
    return await;
}

void cuda_foreign_captures_close(cuda_instance *instance) {
    cuda_capture *capture;
    while ((capture = take(instance, true)) != NULL)
        end(instance, capture);
}
