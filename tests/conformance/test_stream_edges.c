/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams at their edges: work that is running, work that comes later, limits, other devices. */
#include "case_help.h"
#include "timeout_help.h"
#include "work_after.h"

/* Nothing is queued behind what runs. */
TK_TEST(stream, running_work_is_no_idleness, "SM-STREAM-20", .needs = STREAM_FN, .max_ranks = 1) {
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    hold(t, stream, &gate);
    TK_CHECK(t, await_flag(&gate.entered, LONG_MS));
    TK_CHECK(t, !is_idle(t, stream));
    gate_open(&gate);
    tk_synchronize(t, stream);
    TK_CHECK(t, is_idle(t, stream));
}

struct waiter {
    struct tk *t;
    symmem_stream *stream;
    atomic_int done;
};

static void *synchronize(void *arg) {
    struct waiter *waiter = arg;
    TK_OK(waiter->t, symmem_stream_synchronize(waiter->stream, 2 * LONG_MS));
    atomic_store(&waiter->done, 1);
    return NULL;
}

/* True if a thread that waits for the first gate alone has come back while the second is closed. */
static bool synchronize_before_more(struct tk *t, symmem_stream *stream, uint32_t moment_ms) {
    struct waiter waiter = {.t = t, .stream = stream};
    struct gate first = {0}, second = {0};
    pthread_t thread;
    hold(t, stream, &first);
    bool started = TK_CHECK(t, pthread_create(&thread, NULL, synchronize, &waiter) == 0);
    tk_sleep_ms(moment_ms); /* for the thread to begin to wait */
    hold(t, stream, &second);
    gate_open(&first);
    bool back = await_flag(&waiter.done, tk_limit_ms(t, 20 * moment_ms));
    gate_open(&second);
    if (started)
        TK_CHECK(t, pthread_join(thread, NULL) == 0);
    tk_synchronize(t, stream);
    return back;
}

TK_TEST(stream, later_work_is_not_waited_for, "SM-STREAM-21", .needs = STREAM_FN, .max_ranks = 1) {
    symmem_stream *stream = tk_stream(t);
    bool back = false;
    for (uint32_t moment_ms = 5; moment_ms <= 80 && !back; moment_ms *= 4)
        back = synchronize_before_more(t, stream, moment_ms);
    TK_CHECK_MSG(t, back, "the call waited for work that was enqueued after it");
}

/* --- free ----------------------------------------------------------------------------------- */

struct opener {
    struct gate gate;
    atomic_int returned;
};

/* When the call has returned, or is not going to. */
static void *open_afterwards(void *arg) {
    struct opener *opener = arg;
    await_flag(&opener->returned, tk_scaled_ms(1500));
    gate_open(&opener->gate);
    return NULL;
}

TK_TEST(alloc_stream, free_has_a_limit, "SM-ALLOC-14", .needs = STREAM_FN, .max_ranks = 1) {
    struct opener opener = {.returned = 0};
    symmem_stream *stream;
    pthread_t thread;
    void *memory;
    TK_REINIT(t, options.default_timeout_ms = 20);
    memory = tk_alloc(t, 64);
    stream = tk_stream(t);
    hold(t, stream, &opener.gate);
    TK_REQUIRE(t, pthread_create(&thread, NULL, open_afterwards, &opener) == 0);
    TK_FAILS(t, TIMEOUT, symmem_free(t->context, memory));
    atomic_store(&opener.returned, 1);
    TK_CHECK(t, pthread_join(thread, NULL) == 0);
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
    TK_CHECK(t, is_symmetric(t, memory));
    tk_free(t, memory);
}

/* --- other devices ---------------------------------------------------------------------------- */

static void other_device_refused_for_memory(struct tk *t, symmem_handle *handle,
                                            symmem_stream *stream) {
    int64_t words = 16;
    void *const *buffers = buffers_of(t, handle);
    DLTensor tensor = {.data = buffers[info_of(t, handle).rank],
                       .device = {(DLDeviceType)t->device_type, own_device(t)},
                       .ndim = 1,
                       .dtype = {kDLUInt, 32, 1},
                       .shape = &words};
    uint8_t data[16] = {0xEE};
    for (int op = 0; op < OP_COUNT; op++)
        TK_FAILS(t, INVALID_ARGUMENT, run_op(handle, (enum signal_op)op, t->rank, 0, 50, stream));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_put(handle, t->rank, 0, data, 16, stream));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_get(handle, t->rank, 0, data, 16, stream));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_copy(t->context, tensor.data, data, 16, stream));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_memset32(t->context, &tensor, 0, 7, 4, stream));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_stream_write_value32(t->context, &tensor, 0, 7, stream));
    TK_OK(t, symmem_copy(t->context, data, data + 8, 8, stream)); /* of no device */
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
    tk_expect_bytes(t, handle, t->rank, 0, 256, 0);
    TK_CHECK(t, !info_of(t, handle).poisoned);
}

/* NULL on a machine with one device, which has no other one. */
static symmem_stream *stream_elsewhere(struct tk *t) {
    symmem_stream *other = NULL;
    const int32_t count = device_count(t);
    if (count >= 2)
        TK_REQUIRE_OK(t, symmem_stream_create(t->context, (own_device(t) + 1) % count, &other));
    return other;
}

TK_TEST(stream, other_devices_are_refused, "SM-STREAM-24", .needs = SYMMEM_CAP_STREAMS,
        .max_ranks = 1) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    symmem_stream *own = tk_stream(t), *other = stream_elsewhere(t);
    if (other == NULL)
        return;
    symmem_event *event = tk_event(t);
    other_device_refused_for_memory(t, handle, other);
    TK_FAILS(t, INVALID_ARGUMENT, symmem_event_record(event, other));
    TK_OK(t, symmem_event_record(event, own));
    TK_OK(t, symmem_stream_wait_event(other, event)); /* any device's may wait */
    TK_OK(t, symmem_stream_synchronize(other, LONG_MS));
    TK_CHECK(t, is_reached(t, event));
    TK_OK(t, symmem_stream_destroy(other));
}

TK_TEST(capture, graph_on_another_device_is_refused, "SM-STREAM-24", .needs = CAPTURE,
        .max_ranks = 1) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    symmem_stream *own = tk_stream(t), *other = stream_elsewhere(t);
    uint8_t byte = 9;
    if (other == NULL)
        return;
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(own));
    TK_OK(t, symmem_put(handle, t->rank, 0, &byte, 1, own));
    symmem_graph *graph = tk_end_capture(t, own);
    TK_FAILS(t, INVALID_ARGUMENT, symmem_graph_launch(graph, other));
    tk_expect_bytes(t, handle, t->rank, 0, 256, 0);
    run_graph(t, graph, own);
    tk_expect_data(t, handle, t->rank, 0, &byte, 1);
    TK_OK(t, symmem_stream_destroy(other));
}
