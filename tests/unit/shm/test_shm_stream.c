/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, events and byte operations of the emulation. */
#include <sched.h>

#include "shm_instance.h"

static symmem_status synchronize(void *stream, uint32_t timeout_ms) {
    symmem_error_record record;
    symmem_status status = backend->stream->synchronize(instance, stream, timeout_ms, &record);
    if (status != SYMMEM_OK)
        CU_ASSERT_EQUAL(record.status, status);
    return status;
}

static void sleep_fn(void *arg) {
    fake_sleep_us(*(const unsigned *)arg);
}

/* Holds a stream until opened. */
static void gate_fn(void *arg) {
    while (!atomic_load((atomic_bool *)arg))
        fake_sleep_us(200);
}

typedef struct counted {
    atomic_int retained;
    atomic_int released;
} counted;

typedef struct order_log {
    const uint32_t *word;
    int count;
    uint32_t entries[1000];
} order_log;

static void sync_device_fn(void *arg) {
    *(symmem_status *)arg = backend->stream->device_synchronize(instance, 0, 2000);
}

/* From a stream's own thread the others are waited for, itself is not. */
TEST("device synchronize inside") {
    void *stream = new_stream();
    void *other = new_stream();
    unsigned pause_us = 20000;
    symmem_status status = SYMMEM_BUSY;
    CU_ASSERT_EQUAL(backend->stream->host_fn(instance, other, sleep_fn, &pause_us), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->host_fn(instance, stream, sync_device_fn, &status), SYMMEM_OK);
    CU_ASSERT_EQUAL(synchronize(stream, 5000), SYMMEM_OK);
    CU_ASSERT_EQUAL(status, SYMMEM_OK);
    bool idle = false;
    CU_ASSERT_EQUAL(backend->stream->query(instance, other, &idle), SYMMEM_OK);
    CU_ASSERT(idle);
    backend->stream->destroy(instance, stream);
    backend->stream->destroy(instance, other);
}

/* Of one device, and of all that are late the first is enough. */
TEST("device synchronize of several") {
    void *streams[3] = {new_stream(), new_stream(), NULL};
    atomic_bool open = false;
    CU_ASSERT_EQUAL_FATAL(backend->stream->create(instance, 1, &streams[2]), SYMMEM_OK);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(backend->stream->host_fn(instance, streams[i], gate_fn, &open), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->device_synchronize(instance, 0, 10), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(backend->stream->device_synchronize(instance, 1, 10), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(backend->stream->device_synchronize(instance, 2, 10), SYMMEM_OK);
    atomic_store(&open, true);
    CU_ASSERT_EQUAL(backend->stream->device_synchronize(instance, 0, 5000), SYMMEM_OK);
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(synchronize(streams[i], 5000), SYMMEM_OK);
        backend->stream->destroy(instance, streams[i]);
    }
}

static void destroy_fn(void *arg) {
    backend->stream->destroy(instance, arg);
}

/* Destroyed with work under way, and from its own thread: all goes when the work ends. */
TEST("destroy busy") {
    int threads = fake_count_threads();
    void *stream = new_stream();
    atomic_bool open = false;
    uint32_t word = 0;
    symmem_exec exec = {.stream = stream};
    CU_ASSERT_EQUAL(backend->stream->host_fn(instance, stream, gate_fn, &open), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->copy->write_value32(instance, 0, &word, 1, &exec), SYMMEM_OK);
    backend->stream->destroy(instance, stream);
    CU_ASSERT_EQUAL(backend->stream->device_synchronize(instance, 0, 10), SYMMEM_TIMEOUT);
    atomic_store(&open, true);
    CU_ASSERT_EQUAL(backend->stream->device_synchronize(instance, 0, 5000), SYMMEM_OK);
    CU_ASSERT_EQUAL(word, 1);
    stream = new_stream();
    CU_ASSERT_EQUAL(backend->stream->host_fn(instance, stream, destroy_fn, stream), SYMMEM_OK);
    CU_ASSERT(fake_threads_settle(threads));
}

/* close waits for such work, but not for ever. */
TEST("close busy") {
    fake_host other;
    void *closed = fake_open(&other);
    void *stream;
    unsigned pause_us = 100000;
    CU_ASSERT_EQUAL_FATAL(backend->stream->create(closed, 0, &stream), SYMMEM_OK);
    uint64_t start_ms = fake_now_ms();
    CU_ASSERT_EQUAL(backend->stream->host_fn(closed, stream, sleep_fn, &pause_us), SYMMEM_OK);
    backend->stream->destroy(closed, stream);
    backend->instance->close(closed);
    CU_ASSERT(fake_now_ms() - start_ms >= 99);
    CU_ASSERT(fake_now_ms() - start_ms < 5000);
}

static symmem_status count_point(const symmem_host *closed, const char *name) {
    atomic_fetch_add((atomic_int *)closed->self, 1);
    return SYMMEM_OK;
}

static void note_fn(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* The machine's time, as a clock of a program that gives it up once its only thread has ended. */
static atomic_bool clock_ended;
static atomic_int clock_late_calls;

static uint64_t clock_now_ns(void *arg) {
    (void)arg;
    atomic_fetch_add(&clock_late_calls, atomic_load(&clock_ended));
    return (fake_now_ms() + 1) * 1000000;
}

static void clock_wait(void *arg, uint64_t until_ns) {
    (void)until_ns;
    (void)clock_now_ns(arg);
    fake_sleep_us(1000);
}

static void clock_changed(void *arg) {
    (void)clock_now_ns(arg);
}

static void clock_threads(void *arg, int change) {
    (void)clock_now_ns(arg);
    atomic_store(&clock_ended, change < 0);
}

static const symmem_clock mortal_clock = {.size = sizeof mortal_clock,
                                          .now_ns = clock_now_ns,
                                          .wait = clock_wait,
                                          .changed = clock_changed,
                                          .threads = clock_threads};

/* What runs once close has given up waiting asks nothing of the host, which may be gone, and
 * nothing of the clock once it has said that its thread ends. */
TEST("outlives close") {
    int threads = fake_count_threads();
    fake_host other;
    const symmem_backend_config config = {.size = sizeof config, .world_size = 1};
    void *closed;
    fake_host_init(&other);
    other.host.clock = &mortal_clock;
    CU_ASSERT_EQUAL_FATAL(backend->instance->open(&other.host, &config, &closed), SYMMEM_OK);
    void *stream, *event;
    atomic_bool open = false;
    atomic_int asked = 0, ran = 0;
    CU_ASSERT_EQUAL_FATAL(backend->stream->create(closed, 0, &stream), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(backend->stream->event_create(closed, 0, &event), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->host_fn(closed, stream, gate_fn, &open), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->event_record(closed, event, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->wait_event(closed, stream, event), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->host_fn(closed, stream, note_fn, &ran), SYMMEM_OK);
    backend->stream->event_destroy(closed, event);
    backend->stream->destroy(closed, stream);
    backend->instance->close(closed);
    other.host.self = &asked;
    other.host.point = count_point;
    atomic_store(&open, true);
    /* First the work: a thread of an earlier test's may have counted above. */
    for (int i = 0; i < 5000 && atomic_load(&ran) == 0; i++)
        fake_sleep_us(1000);
    CU_ASSERT_EQUAL(atomic_load(&ran), 1);
    CU_ASSERT(fake_threads_settle(threads));
    CU_ASSERT_EQUAL(atomic_load(&asked), 0);
    CU_ASSERT(atomic_load(&clock_ended));
    CU_ASSERT_EQUAL(atomic_load(&clock_late_calls), 0);
    pthread_mutex_destroy(&other.lock);
}

/* Two streams outlive it: the instance goes with the second one. */
TEST("two outlive close") {
    /* Not on the stack: the threads end unseen, and ThreadSanitizer knows no order with that. */
    static fake_host other;
    static atomic_bool open[2];
    int threads = fake_count_threads();
    void *closed = fake_open(&other), *streams[2];
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL_FATAL(backend->stream->create(closed, 0, &streams[i]), SYMMEM_OK);
        CU_ASSERT_EQUAL(backend->stream->host_fn(closed, streams[i], gate_fn, &open[i]), SYMMEM_OK);
        backend->stream->destroy(closed, streams[i]);
    }
    backend->instance->close(closed);
    pthread_mutex_destroy(&other.lock);
    atomic_store(&open[0], true);
    CU_ASSERT(fake_threads_settle(threads + 1));
    atomic_store(&open[1], true);
    CU_ASSERT(fake_threads_settle(threads));
}

/* --- captures that the core does not let happen ----------------------------------------- */

static uint64_t capture_id(void *stream) {
    uint64_t id = 99;
    CU_ASSERT_EQUAL(backend->graph->capture_id(instance, stream, &id), SYMMEM_OK);
    return id;
}

/* Begun on `origin`, and joined by `forked`. */
static void fork_capture(void *origin, void *forked, void *event) {
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, origin), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, origin), SYMMEM_CAPTURE);
    CU_ASSERT_EQUAL(backend->stream->event_record(instance, event, origin), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->wait_event(instance, forked, event), SYMMEM_OK);
    CU_ASSERT(capture_id(origin) != 0 && capture_id(forked) == capture_id(origin));
}

/* A graph is not launched into a capture, and nothing of it runs. */
TEST("a launch into a capture") {
    void *stream = new_stream(), *graph, *none;
    uint32_t word = 0;
    const symmem_exec exec = {.stream = stream};
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->copy->write_value32(instance, 0, &word, 1, &exec), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(backend->graph->capture_end(instance, stream, &graph), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->graph->launch(instance, graph, stream), SYMMEM_CAPTURE);
    CU_ASSERT_EQUAL_FATAL(backend->graph->capture_end(instance, stream, &none), SYMMEM_OK);
    CU_ASSERT_EQUAL(synchronize(stream, 5000), SYMMEM_OK);
    CU_ASSERT_EQUAL(word, 0);
    CU_ASSERT_EQUAL(backend->graph->launch(instance, graph, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(synchronize(stream, 5000), SYMMEM_OK);
    CU_ASSERT_EQUAL(word, 1);
    backend->graph->destroy(instance, graph);
    backend->graph->destroy(instance, none);
    backend->stream->destroy(instance, stream);
}

/* There is no graph, and the streams run again. */
static void expect_no_graph(void *ended, void *stream) {
    void *graph = &graph;
    CU_ASSERT_EQUAL(backend->graph->capture_end(instance, ended, &graph), SYMMEM_CAPTURE);
    CU_ASSERT_PTR_EQUAL(graph, &graph);
    CU_ASSERT_EQUAL(capture_id(stream), 0);
    CU_ASSERT_EQUAL(synchronize(stream, 5000), SYMMEM_OK);
}

TEST("captures that end badly") {
    void *origin = new_stream(), *forked = new_stream(), *event;
    CU_ASSERT_EQUAL_FATAL(backend->stream->event_create(instance, 0, &event), SYMMEM_OK);
    expect_no_graph(origin, origin); /* none has begun */
    /* Joined again, but ended on the other stream. */
    fork_capture(origin, forked, event);
    CU_ASSERT_EQUAL(backend->stream->event_record(instance, event, forked), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->wait_event(instance, origin, event), SYMMEM_OK);
    expect_no_graph(forked, origin);
    CU_ASSERT_EQUAL(capture_id(forked), 0);
    fork_capture(origin, forked, event);
    backend->stream->destroy(instance, forked);
    expect_no_graph(origin, origin);
    /* With its origin a capture is over. */
    forked = new_stream();
    fork_capture(origin, forked, event);
    backend->stream->destroy(instance, origin);
    CU_ASSERT_EQUAL(capture_id(forked), 0);
    CU_ASSERT_EQUAL(synchronize(forked, 5000), SYMMEM_OK);
    backend->stream->event_destroy(instance, event);
    backend->stream->destroy(instance, forked);
}

/* --- signals on streams ------------------------------------------------------------- */

static void *rank_stream(fake_rank *rank) {
    void *stream = NULL;
    if (backend->stream->create(rank->instance, rank->peers.rank, &stream) != SYMMEM_OK)
        exit(2);
    return stream;
}

/* The first failure is kept with its record; later work of the stream still runs. */
WORLD_TEST("failures", 3, 2, 4096) {
    fake_rank *rank = &world->ranks[0];
    void *stream = rank_stream(rank);
    uint32_t word = 0;
    symmem_exec exec = {.stream = stream};
    CU_ASSERT_EQUAL(fake_barrier(rank, 1, 20, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(fake_wait(rank, 2, 0, 20, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->copy->write_value32(rank->instance, 0, &word, 3, &exec), SYMMEM_OK);
    symmem_error_record record;
    CU_ASSERT_EQUAL(backend->stream->synchronize(rank->instance, stream, 5000, &record),
                    SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(record.status, SYMMEM_TIMEOUT);
    CU_ASSERT_STRING_EQUAL(record.operation, "barrier");
    CU_ASSERT_EQUAL(record.channel, 1);
    CU_ASSERT_EQUAL(record.missing[0], 0x6u);
    CU_ASSERT_EQUAL(atomic_load(&rank->host.fault_count), 2);
    CU_ASSERT_EQUAL(word, 3);
    CU_ASSERT_EQUAL(backend->stream->synchronize(rank->instance, stream, 5000, &record), SYMMEM_OK);
    backend->stream->destroy(rank->instance, stream);
}

TEST("leaks") {
    int descriptors = fake_count_descriptors();
    int threads = fake_count_threads();
    for (int i = 0; i < 50; i++) {
        void *stream = new_stream();
        void *event;
        CU_ASSERT_EQUAL(backend->stream->event_create(instance, 0, &event), SYMMEM_OK);
        CU_ASSERT_EQUAL(backend->stream->event_record(instance, event, stream), SYMMEM_OK);
        CU_ASSERT_EQUAL(synchronize(stream, 10000), SYMMEM_OK);
        backend->stream->event_destroy(instance, event);
        backend->stream->destroy(instance, stream);
    }
    CU_ASSERT_EQUAL(fake_count_descriptors(), descriptors);
    CU_ASSERT(fake_threads_settle(threads));
}

static volatile sig_atomic_t trapped;

static void note_trap(int number) {
    trapped = 1;
}

/* A stream's thread has other signals open than its maker, whose own stay as they are meanwhile. */
TEST("signals of the maker") {
    struct sigaction noting = {.sa_handler = note_trap}, usual;
    sigset_t trap, before;
    sigemptyset(&trap);
    sigaddset(&trap, SIGTRAP);
    CU_ASSERT_EQUAL_FATAL(sigaction(SIGTRAP, &noting, &usual), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_sigmask(SIG_BLOCK, &trap, &before), 0);
    trapped = 0;
    CU_ASSERT_EQUAL(pthread_kill(pthread_self(), SIGTRAP), 0);
    void *stream = new_stream();
    CU_ASSERT_EQUAL(trapped, 0);
    CU_ASSERT_EQUAL(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    CU_ASSERT_EQUAL(trapped, 1);
    CU_ASSERT_EQUAL(sigaction(SIGTRAP, &usual, NULL), 0);
    backend->stream->destroy(instance, stream);
}
