/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures and graphs of the emulation. */

#include "shm_instance.h"

static void *new_event(void) {
    void *event = NULL;
    CU_ASSERT_EQUAL_FATAL(backend->stream->event_create(instance, 0, &event), SYMMEM_OK);
    return event;
}

static symmem_status synchronize(void *stream) {
    symmem_error_record record;
    return backend->stream->synchronize(instance, stream, 10000, &record);
}

static uint64_t capture_id(void *stream) {
    uint64_t id = 99;
    CU_ASSERT_EQUAL(backend->graph->capture_id(instance, stream, &id), SYMMEM_OK);
    return id;
}

static void add_fn(void *arg) {
    ++*(int *)arg;
}

static void double_fn(void *arg) {
    *(int *)arg *= 2;
}

static void pause_fn(void *arg) {
    fake_sleep_us(500);
}

static void call(void *stream, void (*fn)(void *), void *arg) {
    CU_ASSERT_EQUAL(backend->stream->host_fn(instance, stream, fn, arg), SYMMEM_OK);
}

static void record(void *event, void *stream) {
    CU_ASSERT_EQUAL(backend->stream->event_record(instance, event, stream), SYMMEM_OK);
}

static symmem_status wait_event(void *stream, void *event) {
    return backend->stream->wait_event(instance, stream, event);
}

/* Nothing runs while capturing; what is not allowed says CAPTURE. */
TEST("capture") {
    void *stream = new_stream();
    int value = 0;
    void *graph = &value;
    CU_ASSERT_EQUAL(backend->graph->capture_end(instance, stream, &graph), SYMMEM_CAPTURE);
    CU_ASSERT_PTR_EQUAL(graph, &value);
    CU_ASSERT_EQUAL(capture_id(stream), 0);
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, stream), SYMMEM_OK);
    uint64_t id = capture_id(stream);
    CU_ASSERT(id != 0);
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, stream), SYMMEM_CAPTURE);
    CU_ASSERT_EQUAL(capture_id(stream), id);
    call(stream, add_fn, &value);
    bool idle;
    symmem_error_record failure;
    CU_ASSERT_EQUAL(backend->stream->query(instance, stream, &idle), SYMMEM_CAPTURE);
    CU_ASSERT_EQUAL(backend->stream->synchronize(instance, stream, 10, &failure), SYMMEM_CAPTURE);
    CU_ASSERT_EQUAL(failure.status, SYMMEM_CAPTURE);
    CU_ASSERT_EQUAL(backend->graph->capture_end(instance, stream, &graph), SYMMEM_OK);
    CU_ASSERT_EQUAL(capture_id(stream), 0);
    CU_ASSERT_EQUAL(synchronize(stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(value, 0);
    for (int i = 0; i < 1000; i++)
        CU_ASSERT_EQUAL(backend->graph->launch(instance, graph, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(synchronize(stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(value, 1000);
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, stream), SYMMEM_OK);
    CU_ASSERT(capture_id(stream) != id);
    CU_ASSERT_EQUAL(backend->graph->launch(instance, graph, stream), SYMMEM_CAPTURE);
    void *empty = NULL;
    CU_ASSERT_EQUAL(backend->graph->capture_end(instance, stream, &empty), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->graph->launch(instance, empty, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(synchronize(stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(value, 1000);
    backend->graph->destroy(instance, empty);
    backend->graph->destroy(instance, graph);
    backend->stream->destroy(instance, stream);
}

/* (0 + 1) * 2 on the fork, then + 1 on the origin, 100 times; the pauses would show a lost edge. */
TEST("fork and join") {
    void *origin = new_stream();
    void *forked = new_stream();
    void *third = new_stream();
    void *event = new_event();
    int value = 0;
    int side = 0;
    void *graph;
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, origin), SYMMEM_OK);
    call(origin, pause_fn, NULL);
    call(origin, add_fn, &value);
    record(event, origin);
    CU_ASSERT_EQUAL(capture_id(forked), 0);
    CU_ASSERT_EQUAL(wait_event(forked, event), SYMMEM_OK);
    CU_ASSERT_EQUAL(capture_id(forked), capture_id(origin));
    /* The same event again, as an edge to a third stream and, through it, back. */
    call(forked, pause_fn, NULL);
    call(forked, double_fn, &value);
    record(event, forked);
    CU_ASSERT_EQUAL(wait_event(third, event), SYMMEM_OK);
    call(third, add_fn, &side);
    record(event, third);
    CU_ASSERT_EQUAL(wait_event(origin, event), SYMMEM_OK);
    call(origin, add_fn, &value);
    bool reached;
    CU_ASSERT_EQUAL(backend->stream->event_query(instance, event, &reached), SYMMEM_CAPTURE);
    CU_ASSERT_EQUAL(backend->stream->event_synchronize(instance, event, 1), SYMMEM_CAPTURE);
    CU_ASSERT_EQUAL_FATAL(backend->graph->capture_end(instance, origin, &graph), SYMMEM_OK);
    CU_ASSERT_EQUAL(capture_id(forked), 0);
    /* The event belongs to a capture that is over. */
    CU_ASSERT_EQUAL(wait_event(forked, event), SYMMEM_CAPTURE);
    CU_ASSERT_PTR_NOT_NULL(strstr(host.text, "do not belong to the same running capture"));
    backend->stream->event_destroy(instance, event);
    int expected = 0;
    for (int i = 0; i < 100; i++) {
        if (i % 10 == 0)
            value = expected = 0;
        CU_ASSERT_EQUAL(backend->graph->launch(instance, graph, i % 2 ? origin : forked),
                        SYMMEM_OK);
        expected = (expected + 1) * 2 + 1;
        if (i % 10 == 9) { /* ten launches in a row on changing streams */
            CU_ASSERT_EQUAL(synchronize(origin), SYMMEM_OK);
            CU_ASSERT_EQUAL(synchronize(forked), SYMMEM_OK);
            CU_ASSERT_EQUAL(value, expected);
        }
    }
    CU_ASSERT_EQUAL(side, 100);
    backend->graph->destroy(instance, graph);
    backend->stream->destroy(instance, third);
    backend->stream->destroy(instance, forked);
    backend->stream->destroy(instance, origin);
}

/* Ends a capture that must be refused, and checks that the streams run again. */
static void expect_malformed(void *ended, void *origin, void *forked, int *value) {
    void *graph = NULL;
    CU_ASSERT_EQUAL(backend->graph->capture_end(instance, ended, &graph), SYMMEM_CAPTURE);
    CU_ASSERT_PTR_NULL(graph);
    CU_ASSERT_EQUAL(capture_id(origin), 0);
    if (forked)
        CU_ASSERT_EQUAL(capture_id(forked), 0);
    *value = 0;
    call(origin, add_fn, value);
    CU_ASSERT_EQUAL(synchronize(origin), SYMMEM_OK);
    CU_ASSERT_EQUAL(*value, 1);
}

static void fork_capture(void *origin, void *forked, void *event, int *value) {
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, origin), SYMMEM_OK);
    call(origin, add_fn, value);
    record(event, origin);
    CU_ASSERT_EQUAL(wait_event(forked, event), SYMMEM_OK);
}

TEST("malformed") {
    void *origin = new_stream();
    void *forked = new_stream();
    void *event = new_event();
    int value = 0;
    /* Never joined. */
    fork_capture(origin, forked, event, &value);
    call(forked, add_fn, &value);
    expect_malformed(origin, origin, forked, &value);
    /* Joined, then used again. */
    fork_capture(origin, forked, event, &value);
    record(event, forked);
    CU_ASSERT_EQUAL(wait_event(origin, event), SYMMEM_OK);
    call(forked, add_fn, &value);
    expect_malformed(origin, origin, forked, &value);
    /* Ended on the wrong stream. */
    fork_capture(origin, forked, event, &value);
    record(event, forked);
    CU_ASSERT_EQUAL(wait_event(origin, event), SYMMEM_OK);
    expect_malformed(forked, origin, forked, &value);
    /* A joined stream is destroyed. */
    fork_capture(origin, forked, event, &value);
    backend->stream->destroy(instance, forked);
    expect_malformed(origin, origin, NULL, &value);
    /* The origin is destroyed: the capture is over, the other runs again. */
    forked = new_stream();
    fork_capture(origin, forked, event, &value);
    backend->stream->destroy(instance, origin);
    CU_ASSERT_EQUAL(capture_id(forked), 0);
    CU_ASSERT_EQUAL(synchronize(forked), SYMMEM_OK);
    CU_ASSERT_EQUAL(value, 1);
    backend->stream->event_destroy(instance, event);
    backend->stream->destroy(instance, forked);
}

/* Captures do not mix with each other or with running streams. */
TEST("isolation") {
    void *first = new_stream();
    void *second = new_stream();
    void *event = new_event();
    void *running = new_event();
    void *never = new_event();
    void *graph;
    record(running, second);
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, first), SYMMEM_OK);
    CU_ASSERT_EQUAL(wait_event(first, running), SYMMEM_CAPTURE);
    CU_ASSERT_EQUAL(wait_event(first, never), SYMMEM_OK);
    record(event, first);
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, second), SYMMEM_OK);
    CU_ASSERT(capture_id(first) != capture_id(second));
    CU_ASSERT_EQUAL(wait_event(second, event), SYMMEM_CAPTURE);
    /* A third stream joins the capture that its event belongs to, whichever began last. */
    void *third = new_stream();
    CU_ASSERT_EQUAL(wait_event(third, event), SYMMEM_OK);
    CU_ASSERT_EQUAL(capture_id(third), capture_id(first));
    record(event, third);
    CU_ASSERT_EQUAL(wait_event(first, event), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->graph->capture_end(instance, first, &graph), SYMMEM_OK);
    backend->stream->destroy(instance, third);
    backend->graph->destroy(instance, graph);
    CU_ASSERT_EQUAL(backend->graph->capture_end(instance, second, &graph), SYMMEM_OK);
    backend->graph->destroy(instance, graph);
    backend->stream->event_destroy(instance, never);
    backend->stream->event_destroy(instance, running);
    backend->stream->event_destroy(instance, event);
    backend->stream->destroy(instance, second);
    backend->stream->destroy(instance, first);
}

static void retain(void *object) {
    atomic_fetch_add((atomic_int *)object, 1);
}

static void release(void *object) {
    atomic_fetch_sub((atomic_int *)object, 1);
}

TEST("references") {
    void *stream = new_stream();
    atomic_int count = 0;
    symmem_ref ref = {retain, release, &count};
    symmem_exec exec = {.stream = stream, .refs = &ref, .ref_count = 1};
    uint32_t word = 0;
    void *graph;
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->copy->write_value32(instance, 0, &word, 6, &exec), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->graph->capture_end(instance, stream, &graph), SYMMEM_OK);
    CU_ASSERT_EQUAL(atomic_load(&count), 1);
    CU_ASSERT_EQUAL(backend->graph->launch(instance, graph, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(synchronize(stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(word, 6);
    CU_ASSERT_EQUAL(atomic_load(&count), 1);
    backend->graph->destroy(instance, graph);
    CU_ASSERT_EQUAL(atomic_load(&count), 0);
    CU_ASSERT_EQUAL(backend->graph->capture_begin(instance, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->copy->write_value32(instance, 0, &word, 6, &exec), SYMMEM_OK);
    CU_ASSERT_EQUAL(atomic_load(&count), 1);
    backend->stream->destroy(instance, stream);
    CU_ASSERT_EQUAL(atomic_load(&count), 0);
}
