/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, each a thread while it has work, events, and graphs as lists of operations. */
#include <fenv.h>

#include "fake.h"

/* One lock for all of it: this is no performance model. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint64_t last_capture;
static CUstream streams;
static int made[2]; /* ordinary ones; of a higher priority */

struct CUgraph_st {
    uint64_t id;
    CUstream origin;
    fake_op *first, **end;
    struct fake_held *held;
    bool broken;
};

struct CUgraphExec_st {
    fake_op *first;
    struct fake_held *held;
};

struct CUstream_st {
    CUstream next;
    CUcontext context;
    unsigned long long context_id; /* when it was made */
    fake_op *first, **end;
    bool busy, running, closing; /* running: it has a thread */
    CUgraph capture;
    bool joined; /* nothing was captured here since an event that another stream waits for */
};

struct CUevent_st {
    int users; /* the owner and operations */
    uint64_t recorded, reached;
    struct timespec reached_at;
    CUstream source; /* that it was last recorded on while it captured */
    CUgraph capture; /* that it was last recorded in */
};

struct ticket {
    CUevent event;
    uint64_t number;
};

/* lock held */
static void reach(void *arg) {
    struct ticket *ticket = arg;
    if (ticket->event->reached < ticket->number)
        ticket->event->reached = ticket->number;
    clock_gettime(CLOCK_MONOTONIC, &ticket->event->reached_at);
}

static void run_op(fake_op *op) {
    const bool is_event = op->run == reach;
    if (is_event)
        pthread_mutex_lock(&lock);
    op->run(op->arg);
    if (is_event)
        pthread_mutex_unlock(&lock);
}

static void end_op(fake_op *op) {
    if (op->drop != NULL)
        op->drop(op->arg);
    free(op);
}

static bool is_lost(const void *stream) {
    return fake_cuda_hooks.is_lost != NULL && fake_cuda_hooks.is_lost(stream);
}

static bool is_held(const void *stream) {
    return fake_cuda_hooks.is_busy != NULL && fake_cuda_hooks.is_busy(stream);
}

/* Whether it goes on at all. */
static bool await_turn(const void *stream) {
    fake_await_motion();
    while (is_held(stream) && !is_lost(stream))
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    return !is_lost(stream);
}

/* lock held. Behind nothing, so that an event is reached at once. */
static bool is_idle(CUstream stream) {
    return stream->first == NULL && !stream->busy && !is_held(stream);
}

/* lock held */
static void forget(CUstream stream) {
    CUstream *link = &streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    fake_count(-1);
    free(stream);
}

/* What was given to it is never given back. */
static void lose(fake_op *op) {
    static fake_op *lost;
    pthread_mutex_lock(&lock);
    op->next = lost;
    lost = op;
    pthread_mutex_unlock(&lock);
}

static void carry_out(fake_op *op, CUstream stream) {
    const bool goes_on = await_turn(stream);
    if (goes_on)
        run_op(op);
    if (goes_on || op->drop != NULL)
        end_op(op);
    else
        lose(op);
}

/* lock held, but while the operation runs. An event is reached at the moment at which the stream
 * has nothing before it any more. */
static void run_first(CUstream stream) {
    fake_op *op = stream->first;
    stream->first = op->next;
    if (op->next == NULL)
        stream->end = &stream->first;
    const bool is_event = op->run == reach && !is_held(stream);
    stream->busy = !is_event;
    if (is_event) {
        reach(op->arg);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    if (is_event)
        end_op(op);
    else
        carry_out(op, stream);
    pthread_mutex_lock(&lock);
    stream->busy = false;
    pthread_cond_broadcast(&changed);
}

static void *run_stream(void *opaque) {
    CUstream stream = opaque;
    (void)fesetenv(FE_DFL_ENV); /* a device's, not that of who gave it work */
    pthread_mutex_lock(&lock);
    while (stream->first != NULL)
        run_first(stream);
    stream->running = false;
    if (stream->closing)
        forget(stream);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* lock held. Idle streams have none, for the suite counts threads. */
static void need_thread(CUstream stream) {
    pthread_t thread;
    sigset_t all, before;
    if (stream->running || stream->first == NULL)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, run_stream, stream) != 0 || pthread_detach(thread) != 0)
        abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    stream->running = true;
}

static CUresult make_stream(CUstream *stream_p, unsigned int flags, bool urgent) {
    CUstream stream = calloc(1, sizeof *stream);
    if (stream == NULL || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->end = &stream->first;
    stream->context = fake_current();
    stream->context_id = fake_id_of(stream->context);
    pthread_mutex_lock(&lock);
    made[urgent]++;
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
    fake_count(1);
    *stream_p = stream;
    return CUDA_SUCCESS;
}

FAKE(StreamCreate, CUstream *stream_p, unsigned int flags) {
    FAKE_CALL("cuStreamCreate");
    return make_stream(stream_p, flags, false);
}

int fake_streams_made(bool urgent) {
    pthread_mutex_lock(&lock);
    int count = made[urgent];
    pthread_mutex_unlock(&lock);
    return count;
}

int fake_streams_left(void) {
    int count = 0;
    pthread_mutex_lock(&lock);
    for (const struct CUstream_st *stream = streams; stream != NULL; stream = stream->next)
        count++;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Stops the process if the stream's context is gone, for then the stream's memory is freed. */
static void need_context_of(CUstream stream) {
    if (stream->context_id == fake_id_of(stream->context))
        return;
    fprintf(stderr, "a stream is used whose context was reset\n");
    abort();
}

FAKE(CtxGetStreamPriorityRange, int *lowest, int *highest) {
    FAKE_CALL("cuCtxGetStreamPriorityRange");
    *lowest = 0;
    *highest = -5;
    return CUDA_SUCCESS;
}

FAKE(StreamCreateWithPriority, CUstream *stream_p, unsigned int flags, int priority) {
    FAKE_CALL("cuStreamCreateWithPriority");
    return priority <= 0 && priority >= -5 ? make_stream(stream_p, flags, priority < 0)
                                           : CUDA_ERROR_INVALID_VALUE;
}

/* A busy one ends after its work. */
FAKE(StreamDestroy, CUstream stream) {
    FAKE_CALL("cuStreamDestroy");
    need_context_of(stream);
    pthread_mutex_lock(&lock);
    stream->closing = true;
    if (!stream->running)
        forget(stream);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

FAKE(StreamQuery, CUstream stream) {
    FAKE_UNSEEN_CALL("cuStreamQuery");
    need_context_of(stream);
    pthread_mutex_lock(&lock);
    if (stream->capture != NULL)
        stream->capture->broken = true;
    CUresult result = stream->capture != NULL ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                      : is_lost(stream)       ? CUDA_ERROR_ILLEGAL_ADDRESS
                      : is_idle(stream)       ? CUDA_SUCCESS
                                              : CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&lock);
    return result;
}

void fake_wait_stream(CUstream stream) {
    fake_go_on(stream);
    pthread_mutex_lock(&lock);
    while (stream->first != NULL || stream->busy)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* lock held */
static bool is_quiet(CUcontext context) {
    const struct CUstream_st *stream = streams;
    while (stream != NULL &&
           (stream->context != context || (stream->first == NULL && !stream->busy)))
        stream = stream->next;
    return stream == NULL;
}

bool fake_is_idle(void) {
    pthread_mutex_lock(&lock);
    const struct CUstream_st *stream = streams;
    while (stream != NULL && stream->first == NULL && !stream->busy)
        stream = stream->next;
    pthread_mutex_unlock(&lock);
    return stream == NULL;
}

void fake_wait_context(CUcontext context) {
    pthread_mutex_lock(&lock);
    while (!is_quiet(context))
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

bool fake_is_capturing(CUstream stream) {
    pthread_mutex_lock(&lock);
    bool capturing = stream->capture != NULL;
    pthread_mutex_unlock(&lock);
    return capturing;
}

static fake_op *new_op(void (*run)(void *arg), void (*drop)(void *arg), const void *arg,
                       size_t bytes, bool blocks) {
    fake_op *op = malloc(sizeof *op + bytes);
    if (op == NULL)
        abort();
    *op = (fake_op){.run = run, .drop = drop, .bytes = bytes, .blocks = blocks};
    memcpy(op->arg, arg, bytes);
    return op;
}

/* lock held */
static void append(CUstream stream, fake_op *op) {
    stream->joined = false;
    fake_op ***end = stream->capture != NULL ? &stream->capture->end : &stream->end;
    **end = op;
    *end = &op->next;
    if (!fake_cuda_hooks.at_once)
        need_thread(stream);
    pthread_cond_broadcast(&changed);
}

static void wait_reached(void *arg);

/* lock held. Whether its next work would keep the one who does it. */
static bool must_wait(CUstream stream) {
    const struct ticket *ticket = (const void *)stream->first->arg;
    return is_held(stream) ||
           (stream->first->run == wait_reached && ticket->event->reached < ticket->number);
}

/* The caller is the stream's thread, as far as that need not wait. */
void fake_go_on(CUstream stream) {
    if (!fake_cuda_hooks.at_once)
        return;
    pthread_mutex_lock(&lock);
    if (!stream->running) {
        stream->running = true;
        while (stream->first != NULL && !must_wait(stream))
            run_first(stream);
        stream->running = false;
        if (stream->first != NULL)
            need_thread(stream);
        else if (stream->closing)
            forget(stream);
    }
    pthread_mutex_unlock(&lock);
}

CUresult fake_enqueue(CUstream stream, void (*run)(void *arg), void (*drop)(void *arg),
                      const void *arg, size_t bytes, bool blocks) {
    fake_op *op = new_op(run, drop, arg, bytes, blocks);
    need_context_of(stream);
    pthread_mutex_lock(&lock);
    append(stream, op);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* lock held. Whether an event's capture is still under way. */
static bool is_live(CUgraph capture) {
    CUstream stream = streams;
    while (stream != NULL && stream->capture != capture)
        stream = stream->next;
    return stream != NULL;
}

/* --- events ------------------------------------------------------------------------- */

static void drop_event(void *arg) {
    CUevent event = ((struct ticket *)arg)->event;
    pthread_mutex_lock(&lock);
    bool last = --event->users == 0;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    fake_count(-1);
    free(event);
}

static void wait_reached(void *arg) {
    struct ticket *ticket = arg;
    pthread_mutex_lock(&lock);
    while (ticket->event->reached < ticket->number)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

FAKE(EventCreate, CUevent *event_p, unsigned int flags) {
    FAKE_CALL("cuEventCreate");
    CUevent event = calloc(1, sizeof *event);
    if (event == NULL || (flags != CU_EVENT_DISABLE_TIMING && flags != CU_EVENT_DEFAULT))
        return CUDA_ERROR_INVALID_VALUE;
    event->users = 1;
    fake_count(1);
    *event_p = event;
    return CUDA_SUCCESS;
}

FAKE(EventDestroy, CUevent event) {
    FAKE_UNSEEN_CALL("cuEventDestroy");
    drop_event(&(struct ticket){.event = event});
    return CUDA_SUCCESS;
}

/* lock held. A stream that has nothing before the event reaches it at once: a thread for that alone
 * would begin late on a busy machine. */
static void mark(CUevent event, CUstream stream) {
    struct ticket ticket = {event, ++event->recorded};
    if (is_idle(stream)) {
        reach(&ticket);
        pthread_cond_broadcast(&changed);
        return;
    }
    event->users++;
    append(stream, new_op(reach, drop_event, &ticket, sizeof ticket, false));
}

/* lock held. In a capture, where all operations of a graph run in the order in which they came, it
 * only marks the event. */
static void record(CUevent event, CUstream stream) {
    event->capture = stream->capture;
    event->source = stream;
    if (stream->capture == NULL)
        mark(event, stream);
}

FAKE(EventRecord, CUevent event, CUstream stream) {
    FAKE_CALL("cuEventRecord");
    fake_await_call();
    pthread_mutex_lock(&lock);
    record(event, stream);
    pthread_mutex_unlock(&lock);
    fake_go_on(stream);
    return CUDA_SUCCESS;
}

FAKE(StreamWaitEvent, CUstream stream, CUevent event, unsigned int flags) {
    FAKE_CALL("cuStreamWaitEvent");
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (event->capture != NULL && is_live(event->capture)) {
        if (stream->capture != NULL && stream->capture != event->capture)
            result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
        else
            stream->capture = event->capture;
        if (result == CUDA_SUCCESS && stream != event->source) {
            stream->joined = false;
            event->source->joined = true;
        }
    } else if (event->capture != NULL) { /* its capture is over */
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (stream->capture == NULL) {
        struct ticket ticket = {event, event->recorded};
        event->users++;
        append(stream, new_op(wait_reached, drop_event, &ticket, sizeof ticket, false));
    } else {
        result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    pthread_mutex_unlock(&lock);
    fake_go_on(stream);
    return result;
}

FAKE(EventQuery, CUevent event) {
    FAKE_UNSEEN_CALL("cuEventQuery");
    pthread_mutex_lock(&lock);
    const CUresult captured = event->capture != NULL && is_live(event->capture)
                                  ? CUDA_ERROR_CAPTURED_EVENT
                                  : CUDA_ERROR_INVALID_VALUE;
    CUresult result = event->capture != NULL              ? captured
                      : event->reached == event->recorded ? CUDA_SUCCESS
                      : is_lost(event->source)            ? CUDA_ERROR_ILLEGAL_ADDRESS
                                                          : CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&lock);
    return result;
}

FAKE(EventElapsedTime, float *ms, CUevent start, CUevent end) {
    FAKE_CALL("cuEventElapsedTime");
    pthread_mutex_lock(&lock);
    bool over = start->reached == start->recorded && end->reached == end->recorded;
    *ms = (float)(end->reached_at.tv_sec - start->reached_at.tv_sec) * 1e3F +
          (float)(end->reached_at.tv_nsec - start->reached_at.tv_nsec) / 1e6F;
    pthread_mutex_unlock(&lock);
    return over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* --- graphs ------------------------------------------------------------------------- */

FAKE(StreamBeginCapture, CUstream stream, CUstreamCaptureMode mode) {
    FAKE_CALL("cuStreamBeginCapture");
    CUgraph graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    bool capturing = stream->capture != NULL;
    if (!capturing) {
        graph->id = ++last_capture;
        graph->origin = stream;
        graph->end = &graph->first;
        stream->capture = graph;
    }
    pthread_mutex_unlock(&lock);
    fake_count(!capturing);
    if (capturing)
        free(graph);
    return capturing ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}

static CUresult fake_GraphDestroy(CUgraph graph);

/* Streams that joined leave the capture with its origin. The capture fails if the origin has not
 * waited for them. */
FAKE(StreamEndCapture, CUstream stream, CUgraph *graph_p) {
    FAKE_CALL("cuStreamEndCapture");
    bool spoilt = false;
    pthread_mutex_lock(&lock);
    CUgraph graph = stream->capture;
    stream->capture = NULL;
    for (CUstream other = streams; other != NULL && graph != NULL; other = other->next)
        if (other->capture == graph) {
            spoilt = spoilt || !other->joined;
            other->capture = NULL;
        }
    pthread_mutex_unlock(&lock);
    if (graph == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    const CUresult result = graph->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                            : spoilt      ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                          : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        (void)fake_GraphDestroy(graph);
    *graph_p = result == CUDA_SUCCESS ? graph : NULL;
    return result;
}

FAKE(StreamGetCaptureInfo, CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
     CUgraph *graph, const CUgraphNode **dependencies, size_t *count) {
    FAKE_CALL("cuStreamGetCaptureInfo");
    pthread_mutex_lock(&lock);
    const CUgraph capture = stream->capture;
    const bool active = capture != NULL && !capture->broken; /* only then there is the rest */
    *status = active            ? CU_STREAM_CAPTURE_STATUS_ACTIVE
              : capture != NULL ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                : CU_STREAM_CAPTURE_STATUS_NONE;
    if (active && graph != NULL)
        *graph = capture;
    if (active && id != NULL)
        *id = capture->id;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

struct fake_held **fake_held_by(CUgraph graph) {
    return &graph->held;
}

static void end_list(fake_op *op) {
    while (op != NULL) {
        fake_op *next = op->next;
        end_op(op);
        op = next;
    }
}

FAKE(GraphInstantiateWithFlags, CUgraphExec *executable_p, CUgraph graph,
     unsigned long long flags) {
    FAKE_CALL("cuGraphInstantiateWithFlags");
    CUgraphExec executable = calloc(1, sizeof *executable);
    if (executable == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    executable->first = graph->first;
    executable->held = fake_hold_too(graph->held);
    graph->first = NULL;
    fake_count(1);
    *executable_p = executable;
    return CUDA_SUCCESS;
}

FAKE(GraphDestroy, CUgraph graph) {
    FAKE_CALL("cuGraphDestroy");
    end_list(graph->first);
    fake_let_go(graph->held);
    fake_count(-1);
    free(graph);
    return CUDA_SUCCESS;
}

CUresult fake_graph_launch(CUgraphExec executable, CUstream stream) {
    bool blocks = false;
    pthread_mutex_lock(&lock);
    for (const fake_op *op = executable->first; op != NULL; op = op->next) {
        append(stream, new_op(op->run, NULL, op->arg, op->bytes, op->blocks));
        blocks = blocks || op->blocks;
    }
    pthread_mutex_unlock(&lock);
    if (blocks)
        fake_wait_stream(stream);
    return CUDA_SUCCESS;
}

FAKE(GraphExecDestroy, CUgraphExec executable) {
    FAKE_CALL("cuGraphExecDestroy");
    end_list(executable->first);
    fake_let_go(executable->held); /* the driver: after its launches */
    fake_count(-1);
    free(executable);
    return CUDA_SUCCESS;
}
