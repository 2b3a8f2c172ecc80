/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: order, asynchrony, events, failures, foreign streams, destruction. */
#include "case_help.h"
#include "ops_help.h"
#include "timeout_help.h"
#include "work_after.h"

/* While a gate is closed a body must not leave: checks only, no REQUIRE. */

/* --- order and asynchrony --------------------------------------------------------------------- */

TK_TEST(stream, in_order_and_asynchronous, "SM-STREAM-01", .needs = STREAM_FN, .max_ranks = 2) {
    struct gate gate = {0};
    struct step_log log = {0};
    struct step steps[16];
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    uint32_t values[16];
    TK_CHECK(t, is_idle(t, stream));
    hold(t, stream, &gate);
    for (int i = 0; i < 16; i++) {
        values[i] = 100u + (uint32_t)i;
        TK_OK(t, symmem_put(handle, t->rank, 0, &values[i], 4, stream));
        enqueue_step(t, stream, &steps[i], &log, i);
    }
    TK_CHECK(t, !is_idle(t, stream));
    TK_EQ_INT(t, 0, steps_done(&log));
    tk_expect_bytes(t, handle, t->rank, 0, 64, 0);
    gate_open(&gate);
    tk_synchronize(t, stream);
    TK_CHECK(t, !atomic_load(&gate.timed_out));
    TK_EQ_INT(t, 16, steps_done(&log));
    for (int i = 0; i < 16; i++)
        TK_EQ_INT(t, i, log.order[i]);
    tk_expect_data(t, handle, t->rank, 0, &values[15], 4);
    TK_CHECK(t, is_idle(t, stream));
}

/* Without host functions: a wait that the last rank satisfies later holds the others' streams. */
TK_TEST(stream, enqueueing_does_not_wait, "SM-STREAM-01", .needs = SYMMEM_CAP_STREAMS,
        .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    uint8_t data[64];
    bool idle = true;
    memset(data, 0x6E, sizeof(data));
    if (t->rank != t->last)
        TK_OK(t, symmem_wait_signal(handle, t->last, 0, LONG_MS, stream));
    TK_OK(t, symmem_put(handle, t->rank, 64, data, 64, stream));
    TK_OK(t, symmem_stream_query(stream, &idle));
    TK_CHECK(t, t->rank == t->last || !idle);
    tk_sleep_ms(10);
    if (t->rank != t->last)
        tk_expect_bytes(t, handle, t->rank, 64, 64, 0);
    tk_out_of_band_barrier(t); /* no rank was held, although the streams wait */
    for (int32_t r = 0; t->rank == t->last && r < t->last; r++)
        TK_OK(t, symmem_put_signal(handle, r, 0, LONG_MS, NULL));
    tk_synchronize(t, stream);
    tk_expect_bytes(t, handle, t->rank, 64, 64, 0x6E);
    tk_expect_bytes(t, handle, t->rank, 0, 64, 0);
}

TK_TEST(stream, null_stream_is_synchronous, "SM-STREAM-02", .max_ranks = 2) {
    enum { BYTES = 1 << 20 };
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    uint8_t *data = tk_scratch(t, 2 * (size_t)BYTES);
    for (int i = 0; i < 4; i++) {
        memset(data, 0x30 + i + t->rank, BYTES);
        memset(data + BYTES, 0, BYTES);
        TK_OK(t, symmem_put(handle, t->next, 0, data, BYTES, NULL));
        memset(data, 0xFF, BYTES); /* the source is free at once */
        TK_OK(t, symmem_get(handle, t->next, 0, data + BYTES, BYTES, NULL));
        size_t at = 0;
        while (at < BYTES && data[BYTES + at] == (uint8_t)(0x30 + i + t->rank))
            at++;
        TK_EQ_SIZE(t, BYTES, at);
    }
}

/* A stream's slow write, then a barrier on the stream: the peer's stream must see it. */
TK_TEST(stream, barrier_orders_stream_writes, "SM-STREAM-01,SM-BARRIER-02", .needs = STREAM_FN,
        .max_ranks = 4) {
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    uint8_t source[4096];
    uint8_t seen[4096] = {0};
    memset(source, 0x40 + t->rank, sizeof(source));
    hold(t, stream, &gate);
    TK_OK(t, symmem_put(handle, t->next, 0, source, sizeof(source), stream));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
    TK_OK(t, symmem_get(handle, t->rank, 0, seen, sizeof(seen), stream));
    tk_sleep_ms(t->rank == 0 ? 20 : 0);
    gate_open(&gate);
    tk_synchronize(t, stream);
    EXPECT_ALL(t, seen, (uint8_t)(0x40 + t->previous));
}

/* --- synchronize ------------------------------------------------------------------------------ */

static void expect_elapsed(struct tk *t, uint32_t limit_ms, uint64_t begin_ms) {
    symmem_error_record record = last_record();
    uint64_t told_ms = record.elapsed_ns / 1000000;
    TK_CHECK_MSG(t, told_ms + 2 >= limit_ms && told_ms <= tk_now_ms() - begin_ms + 2,
                 "the record tells of %llu ns, the limit was %u ms",
                 (unsigned long long)record.elapsed_ns, limit_ms);
}

static void take_a_moment(void *arg) {
    (void)arg;
    tk_sleep_ms(15);
}

static void long_limits_last(struct tk *t, symmem_stream *stream) {
    symmem_event *event = tk_event(t);
    for (size_t i = 0; i < LONG_LIMITS; i++) {
        TK_OK(t, symmem_stream_host_fn(stream, take_a_moment, NULL));
        TK_OK(t, symmem_stream_synchronize(stream, long_limits_ms[i]));
        TK_OK(t, symmem_stream_host_fn(stream, take_a_moment, NULL));
        TK_OK(t, symmem_event_record(event, stream));
        TK_OK(t, symmem_event_synchronize(event, long_limits_ms[i]));
    }
}

TK_TEST(stream, synchronize_times_out, "SM-STREAM-03", .needs = STREAM_FN, .max_ranks = 2) {
    struct gate gate = {0};
    struct step_log log = {0};
    struct step step;
    symmem_stream *stream = tk_stream(t);
    hold(t, stream, &gate);
    enqueue_step(t, stream, &step, &log, 1);
    uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, 60));
    expect_elapsed(t, 60, begin_ms);
    TK_AT_LEAST(t, 60, tk_now_ms() - begin_ms + 2);
    TK_WITHIN(t, 5000, begin_ms);
    TK_EQ_INT(t, 0, steps_done(&log));
    gate_open(&gate);
    tk_synchronize(t, stream); /* the expiry was no failure of the work */
    TK_EQ_INT(t, 1, steps_done(&log));
    long_limits_last(t, stream);
}

/* A failure at a step of the backend's own, of the call or of the work: whose, where and how. */
TK_TEST(stream, failed_step_is_recorded, "SM-POINT-02,SM-STREAM-03", .needs = SYMMEM_CAP_STREAMS,
        .max_ranks = 2) {
    enum { MOST = 16 };
    char steps[MOST][32], *from = tk_alloc(t, 64), *to = tk_alloc(t, 64);
    symmem_stream *stream = tk_stream(t);
    int found = 0, told = 0;
    tk_record_points(t, true);
    TK_OK(t, symmem_copy(t->context, to, from, 64, stream));
    tk_synchronize(t, stream);
    tk_record_points(t, false);
    for (int i = 0; i < tk_recorded_points(t) && found < MOST; i++) {
        int count;
        const char *name = tk_recorded_point(t, i, &count);
        if (ops_own_step(t, name))
            snprintf(steps[found++], sizeof(steps[0]), "%s", name);
    }
    for (int i = 0; i < found; i++) {
        tk_checkpoint(t, "%s", steps[i]);
        tk_on_point(t, steps[i], 1, (struct tk_action){.status = SYMMEM_SYSTEM});
        symmem_status status = symmem_copy(t->context, to, from, 64, stream);
        if (status == SYMMEM_OK) {
            symmem_clear_error();
            status = symmem_stream_synchronize(stream, LONG_MS);
        }
        if (tk_point_count(t, steps[i]) > 0) { /* some are passed when something is kept anew */
            symmem_error_record record = last_record();
            TK_FAILS(t, SYSTEM, status);
            TK_EQ_INT(t, SYMMEM_SYSTEM, record.status);
            TK_EQ_STR(t, steps[i], record.stage);
            TK_EQ_INT(t, t->rank, record.rank);
            TK_EQ_INT(t, -1, record.channel);
            TK_EQ_INT(t, -1, record.failed_rank);
            TK_EQ_INT(t, 0, record.missing_count);
            told++;
        }
        tk_forget_points(t);
        TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
        TK_OK(t, symmem_copy(t->context, to, from, 64, stream));
        tk_synchronize(t, stream);
    }
    if (t->rank == 0)
        tk_note(t, "%d steps of a copy's failed", told);
}

TK_TEST(stream, first_failure_is_reported_once, "SM-STREAM-03,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_STREAMS, .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_handle *other = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    bool idle = false;
    TK_OK(t, symmem_wait_signal(handle, t->rank, 5, 20, stream));
    TK_OK(t, symmem_wait_signal(other, t->rank, 6, 20, stream));
    while (!idle && !tk_failed(t)) {
        TK_OK(t, symmem_stream_query(stream, &idle)); /* takes no failure away */
        tk_sleep_ms(2);
    }
    symmem_clear_error();
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
    symmem_error_record record = last_record();
    TK_EQ_INT(t, SYMMEM_TIMEOUT, record.status);
    TK_EQ_STR(t, "wait_signal", record.operation);
    TK_EQ_INT(t, 5, record.channel);
    TK_CHECK(t, symmem_error_is_missing(&record, t->rank));
    TK_CHECK(t, info_of(t, handle).poisoned);
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
    TK_STATUS_EITHER(t, SYMMEM_POISONED, SYMMEM_OK,
                     symmem_barrier(handle, 0, 1000, stream)); /* now, or at synchronize */
    symmem_status status = symmem_stream_synchronize(stream, LONG_MS);
    TK_CHECK(t, status == SYMMEM_OK || status == SYMMEM_POISONED);
    TK_OK(t, symmem_stream_synchronize(stream, 1000));
    work_after(t, stream);
}

/* Each of the three ops fails on a stream as it does without. */
TK_TEST(stream, every_operation_fails_on_a_stream,
        "SM-STREAM-03,SM-TIMEOUT-01,SM-TIMEOUT-02,SM-TIMEOUT-04,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_STREAMS, .ranks = {2, 2}) {
    for (int op = 0; op < OP_COUNT; op++) {
        symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
        symmem_stream *stream = tk_stream(t);
        if (t->rank == 0) {
            make_unsatisfied(t, handle, (enum signal_op)op, 1, 2);
            TK_OK(t, run_op(handle, (enum signal_op)op, 1, 2, 40, stream));
            TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
            symmem_error_record record = last_record();
            TK_EQ_STR(t, op_name((enum signal_op)op), record.operation);
            TK_EQ_INT(t, 2, record.channel);
            TK_EQ_INT(t, 1, record.failed_rank);
            TK_AT_LEAST(t, 38u * 1000000u, record.elapsed_ns);
            TK_EQ_INT(t, SYMMEM_TIMEOUT, symmem_handle_status(handle, &record));
        }
        tk_out_of_band_barrier(t);
        work_after(t, stream);
    }
}

/* What was enqueued before the failure and begins after it: poisoned, so its signal does not come.
 */
TK_TEST(stream, work_behind_a_failure_is_poisoned, "SM-TIMEOUT-04,SM-TIMEOUT-05,SM-SIGNAL-12",
        .needs = SYMMEM_CAP_STREAMS, .ranks = {2, 2}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t), *beside = tk_stream(t);
    if (t->rank == 0) {
        TK_OK(t, symmem_wait_signal(handle, 1, 4, 0, beside));
        TK_OK(t, symmem_wait_signal(handle, 1, 2, tk_limit_ms(t, 300), stream));
        TK_OK(t, symmem_put_signal(handle, 1, 3, LONG_MS, stream));
        TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
        /* What waits on another stream ends of this rank's own poison: the peer has none. */
        TK_FAILS(t, POISONED, symmem_stream_synchronize(beside, LONG_MS));
        TK_EQ_INT(t, 0, last_record().failed_rank);
        TK_EQ_INT(t, 0, last_record().missing_count);
        TK_EQ_INT(t, 4, last_record().channel);
    }
    tk_out_of_band_barrier(t);
    if (t->rank == 1) {
        symmem_status status = symmem_wait_signal(handle, 0, 3, LONG_MS, NULL);
        TK_CHECK_MSG(t, status != SYMMEM_OK,
                     "rank 0's stream put a signal after its handle was poisoned");
        TK_FAILS(t, POISONED, status);
        TK_EQ_INT(t, 0, last_record().failed_rank);
    }
    tk_out_of_band_barrier(t);
    work_after(t, stream);
}

/* --- events ----------------------------------------------------------------------------------- */

/* One stream's work waits for another's by an event, which may be gone by then. */
static void order_by_event(struct tk *t, bool destroyed) {
    struct gate gate = {0};
    struct step_log log = {0};
    struct step steps[2];
    symmem_stream *first = tk_stream(t), *second = tk_stream(t);
    symmem_event *event = NULL;
    TK_REQUIRE_OK(t, symmem_event_create(t->context, own_device(t), &event));
    hold(t, first, &gate);
    enqueue_step(t, first, &steps[0], &log, 0);
    TK_OK(t, symmem_event_record(event, first));
    TK_OK(t, symmem_stream_wait_event(second, event));
    if (destroyed)
        symmem_event_destroy(event);
    enqueue_step(t, second, &steps[1], &log, 1);
    tk_sleep_ms(20);
    TK_EQ_INT(t, 0, steps_done(&log));
    if (!destroyed) {
        uint64_t begin_ms = tk_now_ms();
        TK_CHECK(t, !is_reached(t, event));
        TK_FAILS(t, TIMEOUT, symmem_event_synchronize(event, 30));
        expect_elapsed(t, 30, begin_ms);
    }
    gate_open(&gate);
    if (!destroyed) {
        TK_OK(t, symmem_event_synchronize(event, LONG_MS));
        TK_CHECK(t, is_reached(t, event));
        symmem_event_destroy(event);
    }
    tk_synchronize(t, second);
    tk_synchronize(t, first);
    TK_EQ_INT(t, 2, steps_done(&log));
    TK_CHECK(t, log.order[0] == 0 && log.order[1] == 1);
}

TK_TEST(stream, events_order_streams, "SM-STREAM-04", .needs = STREAM_FN, .max_ranks = 2) {
    order_by_event(t, false);
}

TK_TEST(stream, event_destroyed_while_waited_for, "SM-STREAM-17,SM-STREAM-04", .needs = STREAM_FN,
        .max_ranks = 2) {
    order_by_event(t, true);
    symmem_event_destroy(NULL);
}

TK_TEST(stream, unrecorded_event_is_reached, "SM-STREAM-04", .needs = SYMMEM_CAP_STREAMS,
        .max_ranks = 2) {
    symmem_stream *stream = tk_stream(t);
    symmem_event *event = tk_event(t);
    TK_CHECK(t, is_reached(t, event));
    TK_OK(t, symmem_event_synchronize(event, 100));
    TK_OK(t, symmem_stream_wait_event(stream, event));
    tk_synchronize(t, stream);
}

/* An event marks the point where it was recorded; later work of that stream is not waited for. */
TK_TEST(stream, event_marks_a_point, "SM-STREAM-04", .needs = STREAM_FN, .max_ranks = 2) {
    struct gate gate = {0};
    symmem_stream *first = tk_stream(t);
    symmem_stream *second = tk_stream(t);
    symmem_event *event = tk_event(t);
    TK_OK(t, symmem_event_record(event, first));
    hold(t, first, &gate);
    TK_OK(t, symmem_stream_wait_event(second, event));
    TK_OK(t, symmem_stream_synchronize(second, LONG_MS));
    TK_OK(t, symmem_event_synchronize(event, tk_limit_ms(t, 2000)));
    TK_CHECK(t, is_reached(t, event));
    TK_CHECK(t, !atomic_load(&gate.timed_out));
    gate_open(&gate);
    tk_synchronize(t, first);
}

/* A record moves the event, but no wait that was enqueued before it; and what the event marked then
 * does not reach it. */
TK_TEST(stream, later_record_moves_no_wait, "SM-STREAM-04", .needs = STREAM_FN, .max_ranks = 2) {
    struct gate gates[2] = {{0}, {0}};
    symmem_stream *first = tk_stream(t), *second = tk_stream(t), *third = tk_stream(t);
    symmem_event *event = tk_event(t);
    hold(t, first, &gates[0]);
    hold(t, second, &gates[1]);
    TK_OK(t, symmem_event_record(event, first));
    TK_OK(t, symmem_stream_wait_event(third, event));
    TK_OK(t, symmem_event_record(event, second));
    gate_open(&gates[0]);
    TK_OK(t, symmem_stream_synchronize(third, tk_limit_ms(t, 2000)));
    tk_synchronize(t, first);
    TK_CHECK_MSG(t, !is_reached(t, event), "the event is reached by what it marked before");
    TK_FAILS(t, TIMEOUT, symmem_event_synchronize(event, 10));
    gate_open(&gates[1]);
    TK_OK(t, symmem_event_synchronize(event, LONG_MS));
    tk_synchronize(t, second);
    tk_synchronize(t, third);
}

/* --- destruction and free with work pending --------------------------------------------------- */

/* The gate opens while a thread waits by `wait` for the stream's work, a write to `ptr` (or NULL)
 * and a step; true if that was done then. */
static bool waits_for_work(struct tk *t, symmem_stream *stream, void *ptr,
                           symmem_status (*wait)(struct tk *t, void *what), void *what) {
    struct gate gate = {0};
    struct step_log log = {0};
    struct step step;
    pthread_t thread;
    static const uint8_t data[64] = {0x5D};
    hold(t, stream, &gate);
    if (ptr != NULL)
        TK_OK(t, symmem_copy(t->context, ptr, data, sizeof(data), stream));
    enqueue_step(t, stream, &step, &log, 1);
    bool started = TK_CHECK(t, pthread_create(&thread, NULL, open_later, &gate) == 0);
    if (!started)
        gate_open(&gate);
    TK_OK(t, wait(t, what));
    bool done = steps_done(&log) == 1;
    TK_CHECK(t, !started || pthread_join(thread, NULL) == 0);
    return done;
}

static symmem_status destroy_stream(struct tk *t, void *stream) {
    (void)t;
    return symmem_stream_destroy(stream);
}

TK_TEST(stream, destroy_keeps_work, "SM-STREAM-17", .needs = STREAM_FN, .max_ranks = 2) {
    symmem_stream *stream = NULL;
    TK_REQUIRE_OK(t, symmem_stream_create(t->context, own_device(t), &stream));
    TK_CHECK(t, waits_for_work(t, stream, NULL, destroy_stream, stream));
    TK_OK(t, symmem_stream_destroy(NULL));
}

static symmem_status free_it(struct tk *t, void *ptr) {
    return symmem_free(t->context, ptr);
}

/* free waits for work enqueued before it: on its return the last write has been done. */
TK_PORTED(test_free_waits_for_pending_work, "SM-ALLOC-12", .needs = STREAM_FN, .max_ranks = 2) {
    void *ptr = NULL;
    symmem_stream *stream = tk_stream(t);
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 4096, -1, NULL, &ptr));
    TK_CHECK_MSG(t, waits_for_work(t, stream, ptr, free_it, ptr),
                 "symmem_free did not wait for the stream's work (by device_synchronize)");
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
}
