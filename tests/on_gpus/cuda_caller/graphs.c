/* SPDX-License-Identifier: BSD-3-Clause */
/* Graphs of the caller's with the library's work in them, captured as PyTorch does it. */
#include <dirent.h>
#include <pthread.h>

#include "caller.h"

#define LARGE ((size_t)64 << 20)

void begin_capture(struct caller *c) {
    need_driver(c, "a capture",
                c->driver.StreamBeginCapture(c->native, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

CUgraphExec end_capture(struct caller *c, CUgraph *graph_p) {
    CUgraphExec executable = NULL;
    need_driver(c, "its end", c->driver.StreamEndCapture(c->native, graph_p));
    need_driver(c, "a graph", c->driver.GraphInstantiateWithFlags(&executable, *graph_p, 0));
    return executable;
}

void launch(struct caller *c, CUgraphExec executable) {
    need_driver(c, "a launch", c->driver.GraphLaunch(executable, c->native));
}

void end_graph(struct caller *c, CUgraph graph, CUgraphExec executable) {
    need_driver(c, "the end of a graph", c->driver.GraphExecDestroy(executable));
    need_driver(c, "the end of a graph", c->driver.GraphDestroy(graph));
}

static void sums(struct caller *c) {
    enum { LAUNCHES = 8 };
    CUgraph graph = NULL;
    int good = 0;
    put_in(c, 99);
    begin_capture(c);
    enqueue_sum(c);
    expect_status(c, "to wait for a stream that is captured",
                  symmem_stream_synchronize(c->stream, LIMIT_MS), SYMMEM_CAPTURE);
    symmem_graph *none = NULL;
    bool capturing = false;
    expect_status(c, "to end it by the library", symmem_stream_end_capture(c->stream, &none),
                  SYMMEM_CAPTURE);
    need(c, "capturing", symmem_stream_is_capturing(c->stream, &capturing));
    expect(c, "the stream", capturing, "captures");
    CUgraphExec executable = end_capture(c, &graph);
    sleep_ms(20);
    expect(c, "what is captured", !came_out(c, 99), "does not run");
    for (int round = 0; round < LAUNCHES; round++) {
        put_in(c, round);
        launch(c, executable);
        good += is_idle_in(c, (int)LIMIT_MS) && came_out(c, round);
    }
    expect(c, "sums in a graph of the caller's", good == LAUNCHES, "%d of %d launches", good,
           LAUNCHES);
    expect_status(c, "what they say", symmem_stream_synchronize(c->stream, LIMIT_MS), SYMMEM_OK);
    end_graph(c, graph, executable);
}

/* A wrapper that lives for a part of a capture. */
static void wrapped_meanwhile(struct caller *c) {
    struct vector from, to;
    symmem_stream *stream = NULL, *own = c->stream;
    CUgraph graph = NULL;
    begin_capture(c);
    need(c, "wrap", symmem_stream_wrap(c->context, c->device, c->native, &stream));
    c->stream = stream;
    need(c, "a copy as its first work",
         symmem_restride(c->context, vector(&from, c->memory + COUNT, COUNT),
                         vector(&to, c->memory + (size_t)2 * COUNT, COUNT), stream));
    enqueue_sum(c);
    c->stream = own;
    expect_status(c, "the end of a wrapper within a capture", symmem_stream_destroy(stream),
                  SYMMEM_OK);
    CUgraphExec executable = end_capture(c, &graph);
    put_in(c, 5);
    launch(c, executable);
    expect(c, "its graph", is_idle_in(c, (int)LIMIT_MS) && came_out(c, 5), "runs");
    end_graph(c, graph, executable);
}

/* --- two streams, two threads ----------------------------------------------------------------- */

struct half {
    struct caller *c;
    CUstream native;
    symmem_stream *stream;
    size_t place;
    pthread_barrier_t *begin;
};

static void *capture_half(void *arg) {
    const struct half *half = arg;
    (void)pthread_barrier_wait(half->begin);
    struct caller *c = half->c;
    for (int i = 0; i < 3; i++)
        need(c, "put", symmem_put(c->handle, c->rank, half->place, c->host, 64, half->stream));
    return NULL;
}

static void join(struct caller *c, CUevent event, CUstream from, CUstream to) {
    need_driver(c, "an event", c->driver.EventRecord(event, from));
    need_driver(c, "to wait for it", c->driver.StreamWaitEvent(to, event, 0));
}

static void capture_halves(struct caller *c, struct half *own, struct half *other, CUevent event) {
    pthread_t thread;
    need_driver(c, "a capture",
                c->driver.StreamBeginCapture(own->native, CU_STREAM_CAPTURE_MODE_RELAXED));
    join(c, event, own->native, other->native);
    if (pthread_create(&thread, NULL, capture_half, other) != 0)
        exit(1);
    (void)capture_half(own);
    (void)pthread_join(thread, NULL);
    join(c, event, other->native, own->native);
}

/* Against the contract both begin at once: one of them adopts the capture. On the fake driver only,
 * for a real one need not bear it. No rank waits for another: which branch of a graph comes first
 * is nowhere said. */
static void two_threads(struct caller *c) {
    enum { TURNS = 20 };
    pthread_barrier_t begin;
    CUevent event = NULL;
    struct half own = {c, c->native, c->stream, 0, &begin}, other = {c, NULL, NULL, 64, &begin};
    int good = 0;
    (void)pthread_barrier_init(&begin, NULL, 2);
    need_driver(c, "event", c->driver.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    need_driver(c, "stream", c->driver.StreamCreate(&other.native, CU_STREAM_NON_BLOCKING));
    need(c, "wrap", symmem_stream_wrap(c->context, c->device, other.native, &other.stream));
    for (int turn = 0; turn < TURNS; turn++) {
        CUgraph graph = NULL;
        capture_halves(c, &own, &other, event);
        CUgraphExec executable = end_capture(c, &graph);
        launch(c, executable);
        good += is_idle_in(c, (int)LIMIT_MS);
        end_graph(c, graph, executable);
    }
    expect(c, "two threads capture", good == TURNS, "%d of %d launches", good, TURNS);
    need(c, "what they say", symmem_stream_synchronize(c->stream, LIMIT_MS));
    need(c, "its end", symmem_stream_destroy(other.stream));
    need_driver(c, "its end", c->driver.StreamDestroy(other.native));
    need_driver(c, "its end", c->driver.EventDestroy(event));
    (void)pthread_barrier_destroy(&begin);
}

/* The driver breaks a capture where the program asks for its stream's progress, and so on. */
static void broken(struct caller *c) {
    symmem_stream *stream = NULL;
    CUgraph graph = NULL;
    need(c, "wrap", symmem_stream_wrap(c->context, c->device, c->native, &stream));
    begin_capture(c);
    need(c, "barrier", symmem_barrier(c->handle, 0, LIMIT_MS, stream));
    (void)c->driver.StreamQuery(c->native);
    expect_status(c, "a broken capture", symmem_barrier(c->handle, 0, LIMIT_MS, stream),
                  SYMMEM_CAPTURE);
    expect_status(c, "a wrapper's end within it", symmem_stream_destroy(stream), SYMMEM_OK);
    expect(c, "its end", c->driver.StreamEndCapture(c->native, &graph) != CUDA_SUCCESS,
           "gives no graph");
    put_in(c, 3);
    enqueue_sum(c);
    expect(c, "its stream", is_idle_in(c, (int)LIMIT_MS) && came_out(c, 3), "goes on");
    need(c, "what it says", symmem_stream_synchronize(c->stream, LIMIT_MS));
}

/* --- what a graph keeps ----------------------------------------------------------------------- */

static size_t free_bytes(struct caller *c) {
    size_t free = 0, all = 0;
    need_driver(c, "free memory", c->driver.MemGetInfo(&free, &all));
    return free;
}

static bool is_free_in(struct caller *c, size_t bytes, int ms) {
    const double end_s = now_s() + ms * 1e-3;
    while (free_bytes(c) < bytes && now_s() < end_s)
        sleep_ms(10);
    return free_bytes(c) >= bytes;
}

/* To the next rank, through memory that is the graph's alone by now. */
static void enqueue_hand_on(struct caller *c, symmem_handle *handle) {
    const size_t bytes = COUNT * sizeof(float);
    const int32_t next = (c->rank + 1) % c->world;
    need(c, "put", symmem_put(handle, next, 0, c->host, bytes, c->stream));
    need(c, "barrier", symmem_barrier(handle, 0, LIMIT_MS, c->stream));
    need(c, "get", symmem_get(handle, c->rank, 0, c->host + COUNT, bytes, c->stream));
    need(c, "barrier", symmem_barrier(handle, 0, LIMIT_MS, c->stream));
}

/* The NCCL backend keeps registered memory until its group's next rendezvous, which depends on when
 * each rank has given up its part. Memory that the rendezvous takes may replace it. */
static bool is_all_back(struct caller *c, size_t before, size_t least) {
    symmem_handle *handle = NULL;
    void *memory = NULL;
    if (strcmp(backend_wanted(), "nccl") != 0)
        return is_free_in(c, before + least, 10000);
    (void)is_free_in(c, before + least, 1000);
    host_barrier(c);
    need(c, "memory", symmem_alloc(c->context, COUNT, c->device, NULL, &memory));
    need(c, "rendezvous", symmem_rendezvous(c->context, memory, c->group, LIMIT_MS, &handle));
    symmem_handle_release(handle);
    need(c, "free", symmem_free(c->context, memory));
    return is_free_in(c, before + least / 2, 10000);
}

static void keeps_its_memory(struct caller *c) {
    enum { LAUNCHES = 4 };
    CUgraph graph = NULL;
    symmem_handle *handle = NULL;
    void *memory = NULL;
    int good = 0;
    host_barrier(c);
    const size_t first = free_bytes(c);
    need(c, "memory", symmem_alloc(c->context, LARGE, c->device, NULL, &memory));
    const size_t taken = first - free_bytes(c), least = taken < LARGE ? taken : LARGE;
    need(c, "rendezvous", symmem_rendezvous(c->context, memory, c->group, LIMIT_MS, &handle));
    begin_capture(c);
    enqueue_hand_on(c, handle);
    CUgraphExec executable = end_capture(c, &graph);
    symmem_handle_release(handle);
    need(c, "free", symmem_free(c->context, memory));
    host_barrier(c);
    for (int round = 0; round < LAUNCHES; round++) {
        const int previous = (c->rank + c->world - 1) % c->world;
        for (int i = 0; i < COUNT; i++)
            c->host[i] = (float)(1000 * round + 10 * c->rank + i);
        launch(c, executable);
        bool right = is_idle_in(c, (int)LIMIT_MS);
        for (int i = 0; i < COUNT; i++)
            right = right && c->host[COUNT + i] == (float)(1000 * round + 10 * previous + i);
        good += right;
    }
    expect(c, "a graph with memory that was freed", good == LAUNCHES, "%d of %d launches", good,
           LAUNCHES);
    const size_t before = free_bytes(c);
    host_barrier(c); /* it is not needed any more, but a rank that shares the device may not have
                        given it back yet */
    end_graph(c, graph, executable);
    const bool back = is_all_back(c, before, least);
    /* Below 0 where another job takes memory of the device. */
    expect(c, "that memory", back, "goes with the graph, %+lld of %zu KiB",
           ((long long)free_bytes(c) - (long long)before) / 1024, least / 1024);
    host_barrier(c);
}

static int threads(void) {
    DIR *directory = opendir("/proc/self/task");
    int count = 0;
    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        closedir(directory);
    return count;
}

static bool is_alone_in(int count, int ms) {
    const double end_s = now_s() + ms * 1e-3;
    while (threads() > count && now_s() < end_s)
        sleep_ms(10);
    return threads() <= count;
}

/* A world of its own, which ends before the graph does. */
struct alone {
    symmem_store *store;
    symmem_context *context;
    symmem_group *group;
    symmem_handle *handle;
    symmem_stream *stream;
};

static void begin_alone(struct caller *c, struct alone *own) {
    symmem_context_options options;
    void *memory = NULL;
    symmem_context_options_init(&options);
    need(c, "a store", symmem_store_open_memory(&own->store));
    options.store = own->store;
    options.rank = options.local_rank = 0;
    options.world_size = 1;
    options.backend = backend_wanted();
    options.multicast = 0;
    need(c, "another context", symmem_init(&options, &own->context));
    need(c, "its group", symmem_group_create(own->context, "alone", NULL, 0, NULL, &own->group));
    need(c, "its memory", symmem_alloc(own->context, 4096, c->device, NULL, &memory));
    need(c, "its rendezvous",
         symmem_rendezvous(own->context, memory, own->group, LIMIT_MS, &own->handle));
    need(c, "its wrapper", symmem_stream_wrap(own->context, c->device, c->native, &own->stream));
}

static void end_alone(struct caller *c, const struct alone *own) {
    symmem_handle_release(own->handle);
    need(c, "its wrapper's end", symmem_stream_destroy(own->stream));
    symmem_context_free(own->context);
    symmem_store_close(own->store);
}

static void outlives_its_context(struct caller *c) {
    struct alone own = {NULL};
    CUgraph graph = NULL;
    begin_alone(c, &own);
    begin_capture(c);
    need(c, "put", symmem_put(own.handle, 0, 0, c->host, 64, own.stream));
    need(c, "barrier", symmem_barrier(own.handle, 1, LIMIT_MS, own.stream));
    need(c, "get", symmem_get(own.handle, 0, 0, c->host + COUNT, 64, own.stream));
    CUgraphExec executable = end_capture(c, &graph);
    end_alone(c, &own);
    c->host[0] = 17;
    c->host[COUNT] = 0;
    launch(c, executable);
    expect(c, "a graph whose context is gone", is_idle_in(c, (int)LIMIT_MS) && c->host[COUNT] == 17,
           "runs");
    const int count = threads();
    end_graph(c, graph, executable);
    const bool alone = is_alone_in(count - 1, 10000);
    expect(c, "its thread", alone, "%s with the graph", alone ? "goes" : "DOES NOT GO");
}

/* Where the driver would not say when a graph is gone nothing is captured. */
void check_refused(struct caller *c) {
    CUgraph graph = NULL;
    float zero = 0, found = 1;
    c->host[0] = 17;
    need(c, "zero", symmem_copy(c->context, c->memory, &zero, sizeof zero, NULL));
    begin_capture(c);
    symmem_status put = symmem_put(c->handle, c->rank, 0, c->host, sizeof zero, c->stream);
    symmem_status barrier = symmem_barrier(c->handle, 0, LIMIT_MS, c->stream);
    CUgraphExec executable = end_capture(c, &graph);
    expect(c, "captures that cannot be followed", put != SYMMEM_OK && barrier == put, "%s and %s",
           symmem_status_name(put), symmem_status_name(barrier));
    launch(c, executable);
    const bool idle = is_idle_in(c, (int)LIMIT_MS);
    need(c, "what is there", symmem_copy(c->context, &found, c->memory, sizeof found, NULL));
    expect(c, "their graph", idle && found == 0, "does nothing");
    end_graph(c, graph, executable);
    expect_status(c, "the handle", symmem_barrier(c->handle, 0, LIMIT_MS, c->stream), SYMMEM_OK);
    expect_status(c, "the stream", symmem_stream_synchronize(c->stream, LIMIT_MS), SYMMEM_OK);
}

/* The process ends with all of it alive. */
_Noreturn void check_exit(struct caller *c) {
    CUgraph graph = NULL;
    begin_capture(c);
    enqueue_sum(c);
    CUgraphExec executable = end_capture(c, &graph);
    put_in(c, 1);
    launch(c, executable);
    expect(c, "a graph that is left", is_idle_in(c, (int)LIMIT_MS) && came_out(c, 1), "runs");
    sleep_ms(10 + c->rank * 3); /* ends at any time of what is looked at now and then */
    exit(c->bad == 0 ? 0 : 1);
}

void check_graphs(struct caller *c) {
    sums(c);
    wrapped_meanwhile(c);
    if (c->driver.is_fake)
        two_threads(c);
    broken(c);
    keeps_its_memory(c);
    outlives_its_context(c);
}
