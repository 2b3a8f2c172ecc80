/* SPDX-License-Identifier: BSD-3-Clause */
/* Capture and replay. Suite of the STREAM area's second half. */
#include "case_help.h"
#include "timeout_help.h"
#include "work_after.h"

struct captured {
    symmem_handle *handle;
    symmem_stream *stream;
    symmem_graph *graph;
};

static struct captured captured_begin(struct tk *t, size_t bytes) {
    return (struct captured){.handle = tk_handle(t, bytes, tk_world_group(t)),
                             .stream = tk_stream(t)};
}

TK_PORTED(test_stream_serialization_cuda_graph_capture, "SM-STREAM-08,SM-STREAM-09",
          .needs = CAPTURE, .max_ranks = 4) {
    struct captured c = captured_begin(t, 64);
    uint32_t own = (uint32_t)t->rank + 200;
    uint32_t expected = (uint32_t)t->next + 200;
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(c.stream));
    TK_OK(t, symmem_put(c.handle, t->rank, 0, &own, 4, c.stream));
    TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, c.stream));
    c.graph = tk_end_capture(t, c.stream);
    tk_expect_bytes(t, c.handle, t->rank, 0, 64, 0);
    run_graph(t, c.graph, c.stream);
    tk_expect_data(t, c.handle, t->next, 0, &expected, 4);
}

TK_PORTED(test_stream_serialization_capture_without_replay, "SM-STREAM-14", .needs = CAPTURE,
          .max_ranks = 4) {
    struct captured c = captured_begin(t, 64);
    uint32_t own = (uint32_t)t->rank + 7;
    uint32_t expected = (uint32_t)t->next + 7;
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(c.stream));
    TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, c.stream));
    TK_OK(t, symmem_put_signal(c.handle, t->next, 0, LONG_MS, c.stream));
    TK_REQUIRE_OK(t, symmem_stream_end_capture(c.stream, &c.graph));
    tk_write(t, c.handle, t->rank, 0, &own, 4);
    barrier_holding(t, c.handle, 0, NULL, t->world_size, 0, 1);
    TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, c.stream));
    tk_synchronize(t, c.stream);
    tk_expect_data(t, c.handle, t->next, 0, &expected, 4);
    ring_signal(t, c.handle, 0); /* a put of the capture would be in its way */
    TK_OK(t, symmem_graph_destroy(c.graph));
    TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, NULL));
    check_nothing_pending(t, c.handle, -1, 0);
}

/* Two barriers on forked streams, a value written last, four replays with other values. */
TK_PORTED(test_stream_serialization_cuda_graph_forked_streams,
          "SM-STREAM-12,SM-STREAM-10,SM-STREAM-05,SM-HANDLE-09", .needs = CAPTURE, .max_ranks = 4) {
    struct captured c = captured_begin(t, 64);
    symmem_stream *side = tk_stream(t);
    uint32_t value = 0;
    symmem_event *fork = tk_event(t);
    symmem_event *join = tk_event(t);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(c.stream));
    let_follow(t, side, fork, c.stream);
    expect_capturing(t, side, true);
    TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, c.stream));
    TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, side));
    TK_OK(t, symmem_put(c.handle, t->rank, 0, &value, 4, side));
    let_follow(t, c.stream, join, side);
    c.graph = tk_end_capture(t, c.stream);
    expect_capturing(t, side, false);
    for (uint32_t counter = 1; counter <= 4; counter++) {
        value = counter * 100 + (uint32_t)t->rank;
        run_graph(t, c.graph, c.stream);
        tk_out_of_band_barrier(t);
        uint32_t expected = counter * 100 + (uint32_t)t->next;
        tk_expect_data(t, c.handle, t->next, 0, &expected, 4);
        tk_out_of_band_barrier(t);
    }
    pad_expect(t, c.handle, 0);
}

/* Alloc and the first rendezvous are refused on every rank, although one rank alone captures. */
TK_PORTED(test_alloc_and_first_rendezvous_during_capture_raise, "SM-ALLOC-09,SM-RDV-16",
          .needs = CAPTURE, .max_ranks = 4) {
    struct captured c = captured_begin(t, 64);
    void *fresh = tk_alloc(t, 256);
    for (int32_t capturing = 0; capturing < t->world_size; capturing++) {
        symmem_handle *none = NULL;
        uint32_t value = 0x1000u + (uint32_t)capturing;
        if (t->rank == capturing) {
            void *ptr = NULL;
            TK_OK(t, symmem_stream_begin_capture(c.stream));
            TK_FAILS(t, CAPTURE, symmem_alloc(t->context, 256, -1, NULL, &ptr));
            TK_CHECK(t, ptr == NULL);
            TK_OK(t, symmem_put(c.handle, t->rank, 0, &value, 4, c.stream));
        }
        tk_out_of_band_barrier(t);
        TK_FAILS(t, CAPTURE,
                 symmem_rendezvous(t->context, fresh, tk_world_group(t), LONG_MS, &none));
        TK_CHECK(t, none == NULL);
        TK_EQ_INT(t, capturing, last_record().failed_rank);
        if (t->rank == capturing) {
            /* A second rendezvous of known memory is local and allowed; the capture goes on. */
            symmem_stream *stream = c.stream;
            c.graph = tk_end_capture(t, stream);
            run_graph(t, c.graph, stream);
            tk_expect_data(t, c.handle, t->rank, 0, &value, 4);
        }
        tk_out_of_band_barrier(t);
    }
    symmem_handle *handle = tk_rendezvous(t, fresh, tk_world_group(t));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* One launch of the captured barrier with a rank held back. */
static void replay_holding(struct tk *t, struct captured *c, int32_t held, uint64_t round) {
    if (t->rank == held)
        check_others_held(t, NULL, t->world_size, round);
    TK_OK(t, symmem_graph_launch(c->graph, c->stream));
    if (t->rank != held)
        show_entered(t, round);
    tk_synchronize(t, c->stream);
    show_passed(t, round);
}

TK_TEST(capture, barrier_synchronizes_in_every_replay, "SM-STREAM-09", .needs = CAPTURE,
        .ranks = {2, 4}) {
    struct captured c = captured_begin(t, 64);
    symmem_graph *twin = NULL;
    symmem_handle *other = tk_handle(t, 64, tk_world_group(t));
    uint64_t round = 0;
    for (int i = 0; i < 2; i++) {
        TK_REQUIRE_OK(t, symmem_stream_begin_capture(c.stream));
        TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, c.stream));
        *(i ? &twin : &c.graph) = tk_end_capture(t, c.stream);
    }
    for (int replay = 1; replay <= 200 && !tk_failed(t); replay++) {
        if (replay <= 3 || replay == 100 || replay == 199) {
            for (int32_t held = 0; held < t->world_size; held++)
                replay_holding(t, &c, held, ++round);
        } else {
            TK_OK(t, symmem_graph_launch(c.graph, c.stream));
        }
        if (replay % 14 == 7) /* a launch is no operation on the channel: it must be over first */
            tk_synchronize(t, c.stream);
        if (replay % 7 == 0)
            TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, replay % 2 ? NULL : c.stream));
        if (replay % 11 == 0)
            TK_OK(t, symmem_graph_launch(twin, c.stream));
        if (replay % 13 == 0)
            TK_OK(t, symmem_barrier(other, 0, LONG_MS, NULL));
    }
    tk_synchronize(t, c.stream);
    barrier_holding(t, c.handle, 0, NULL, t->world_size, 0, ++round);
}

TK_TEST(capture, signals_replay, "SM-STREAM-08,SM-STREAM-10", .needs = CAPTURE, .max_ranks = 4) {
    struct captured c = captured_begin(t, 4096);
    uint32_t source[256];
    uint32_t seen[256];
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(c.stream));
    TK_OK(t, symmem_put(c.handle, t->next, 0, source, sizeof(source), c.stream));
    TK_OK(t, symmem_put_signal(c.handle, t->next, 0, LONG_MS, c.stream));
    TK_OK(t, symmem_wait_signal(c.handle, t->previous, 0, LONG_MS, c.stream));
    TK_OK(t, symmem_get(c.handle, t->rank, 0, seen, sizeof(seen), c.stream));
    TK_OK(t, symmem_barrier(c.handle, 1, LONG_MS, c.stream));
    c.graph = tk_end_capture(t, c.stream);
    for (uint32_t g = 1; g <= 40 && !tk_failed(t); g++) {
        fill_words(source, 256, t->rank, g); /* content of the moment of replay */
        run_graph(t, c.graph, c.stream);
        TK_EQ_SIZE(t, 256, first_wrong_word(seen, 256, t->previous, g));
    }
}

/* Three copies in a chain: each launch runs all of them, once, in order; none runs at capture. */
TK_TEST(capture, launches_run_everything_once, "SM-STREAM-08,SM-STREAM-10", .needs = CAPTURE,
        .max_ranks = 2) {
    struct captured c = captured_begin(t, 64);
    const uint32_t chain[4] = {11, 22, 33, 44};
    uint32_t seen[4] = {0};
    tk_write(t, c.handle, t->rank, 0, chain, 16);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(c.stream));
    for (size_t i = 0; i < 3; i++) { /* shifts the four words down by one place */
        TK_OK(t, symmem_get(c.handle, t->rank, (i + 1) * 4, &seen[i], 4, c.stream));
        TK_OK(t, symmem_put(c.handle, t->rank, i * 4, &seen[i], 4, c.stream));
    }
    c.graph = tk_end_capture(t, c.stream);
    tk_sleep_ms(5);
    tk_expect_data(t, c.handle, t->rank, 0, chain, 16);
    for (size_t launch = 1; launch <= 3; launch++) {
        run_graph(t, c.graph, c.stream);
        uint32_t expected[4];
        for (size_t i = 0; i < 4; i++)
            expected[i] = chain[i + launch < 3 ? i + launch : 3];
        tk_expect_data(t, c.handle, t->rank, 0, expected, 16);
    }
}

/* Launches on several streams without synchronizing in between: one at a time, none lost. */
TK_TEST(capture, launches_on_several_streams, "SM-STREAM-08,SM-STREAM-09",
        .needs = CAPTURE | SYMMEM_CAP_HOST_FN, .max_ranks = 4) {
    struct captured c = captured_begin(t, 64);
    symmem_stream *side = tk_stream(t);
    struct step_log log = {0};
    struct step step;
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(c.stream));
    enqueue_step(t, c.stream, &step, &log, 1);
    TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, c.stream));
    c.graph = tk_end_capture(t, c.stream);
    TK_EQ_INT(t, 0, steps_done(&log));
    for (int i = 0; i < 20; i++)
        TK_OK(t, symmem_graph_launch(c.graph, i % 2 ? side : c.stream));
    tk_synchronize(t, c.stream);
    tk_synchronize(t, side);
    TK_EQ_INT(t, 20, steps_done(&log));
}

TK_TEST(capture, graph_keeps_memory, "SM-STREAM-11,SM-STREAM-10", .needs = CAPTURE,
        .max_ranks = 4) {
    symmem_stream *stream = tk_stream(t);
    symmem_handle *peer_view = NULL;
    uint32_t value = 0;
    uint32_t seen = 0;
    void *ptr = tk_alloc(t, 4096);
    TK_REQUIRE_OK(t, symmem_rendezvous(t->context, ptr, tk_world_group(t), LONG_MS, &peer_view));
    TK_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, symmem_put(peer_view, t->next, 128, &value, 4, stream));
    TK_OK(t, symmem_barrier(peer_view, 0, LONG_MS, stream));
    TK_OK(t, symmem_get(peer_view, t->rank, 128, &seen, 4, stream));
    TK_OK(t, symmem_barrier(peer_view, 0, LONG_MS, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    symmem_handle_release(peer_view);
    tk_free(t, ptr);
    /* Memory handed out anew must not be the graph's. */
    symmem_handle *fresh = tk_handle(t, 4096, tk_world_group(t));
    for (uint32_t i = 1; i <= 3; i++) {
        value = i * 1000 + (uint32_t)t->rank;
        seen = 0;
        run_graph(t, graph, stream);
        TK_EQ_INT(t, i * 1000 + (uint32_t)t->previous, seen);
    }
    tk_expect_bytes(t, fresh, t->rank, 0, 4096, 0);
}

/* A fork that is not joined back makes the capture invalid and nothing else. */
TK_TEST(capture, unjoined_fork_is_refused, "SM-STREAM-12", .needs = CAPTURE, .max_ranks = 4) {
    struct captured c = captured_begin(t, 64);
    symmem_stream *side = tk_stream(t);
    symmem_event *fork = tk_event(t);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(c.stream));
    let_follow(t, side, fork, c.stream);
    TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, side));
    TK_FAILS(t, CAPTURE, symmem_stream_end_capture(c.stream, &c.graph));
    TK_CHECK(t, c.graph == NULL);
    expect_capturing(t, c.stream, false);
    expect_capturing(t, side, false);
    TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, c.stream));
    TK_OK(t, symmem_barrier(c.handle, 0, LONG_MS, side));
    tk_synchronize(t, c.stream);
    tk_synchronize(t, side);
}

TK_TEST(capture, misuse_is_refused, "SM-STREAM-13", .needs = CAPTURE, .max_ranks = 2) {
    struct captured c = captured_begin(t, 64);
    uint32_t value = 0x77;
    expect_capturing(t, c.stream, false);
    TK_FAILS(t, CAPTURE, symmem_stream_end_capture(c.stream, &c.graph));
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(c.stream));
    TK_OK(t, symmem_put(c.handle, t->rank, 0, &value, 4, c.stream));
    TK_FAILS(t, CAPTURE, symmem_stream_synchronize(c.stream, 1000));
    expect_capturing(t, c.stream, true);
    c.graph = tk_end_capture(t, c.stream);
    run_graph(t, c.graph, c.stream);
    tk_expect_data(t, c.handle, t->rank, 0, &value, 4);
}

TK_TEST(capture, failure_in_a_launch_is_reported, "SM-STREAM-15,SM-TIMEOUT-14", .needs = CAPTURE,
        .ranks = {2, 2}) {
    for (int op = 0; op < OP_COUNT; op++) {
        struct captured c = captured_begin(t, 64);
        if (t->rank == 0) {
            make_unsatisfied(t, c.handle, (enum signal_op)op, 1, 3);
            TK_REQUIRE_OK(t, symmem_stream_begin_capture(c.stream));
            TK_OK(t, run_op(c.handle, (enum signal_op)op, 1, 3, 40, c.stream));
            c.graph = tk_end_capture(t, c.stream);
            TK_OK(t, symmem_stream_synchronize(c.stream, 1000));
            TK_OK(t, symmem_graph_launch(c.graph, c.stream));
            TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(c.stream, LONG_MS));
            symmem_error_record record = last_record();
            TK_EQ_STR(t, op_name((enum signal_op)op), record.operation);
            TK_EQ_INT(t, 3, record.channel);
            TK_OK(t, symmem_stream_synchronize(c.stream, LONG_MS));
        }
        tk_out_of_band_barrier(t);
        work_after(t, c.stream);
    }
}

TK_TEST(capture, graph_destroyed_with_a_launch_under_way, "SM-STREAM-17",
        .needs = CAPTURE | SYMMEM_CAP_HOST_FN, .max_ranks = 2) {
    struct captured c = captured_begin(t, 64);
    struct gate gate = {0};
    struct step_log log = {0};
    struct step step;
    pthread_t thread;
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(c.stream));
    hold(t, c.stream, &gate);
    enqueue_step(t, c.stream, &step, &log, 1);
    TK_REQUIRE_OK(t, symmem_stream_end_capture(c.stream, &c.graph));
    TK_OK(t, symmem_graph_launch(c.graph, c.stream));
    bool started = TK_CHECK(t, pthread_create(&thread, NULL, open_later, &gate) == 0);
    if (!started)
        gate_open(&gate);
    TK_OK(t, symmem_graph_destroy(c.graph));
    TK_EQ_INT(t, 1, steps_done(&log));
    TK_CHECK(t, !started || pthread_join(thread, NULL) == 0);
    tk_synchronize(t, c.stream);
    TK_OK(t, symmem_graph_destroy(NULL));
}

/* A capture that forks to a second stream and joins it. */
struct fork {
    symmem_stream *first, *second;
    symmem_event *out, *back;
    symmem_graph *graph;
};

static void fork_open(struct tk *t, struct fork *f) {
    *f = (struct fork){
        .first = tk_stream(t), .second = tk_stream(t), .out = tk_event(t), .back = tk_event(t)};
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(f->first));
}

static void fork_begin(struct tk *t, struct fork *f) {
    fork_open(t, f);
    let_follow(t, f->second, f->out, f->first);
}

static void fork_join(struct tk *t, struct fork *f) {
    let_follow(t, f->first, f->back, f->second);
}

TK_TEST(capture, several_at_once, "SM-STREAM-26", .needs = CAPTURE, .max_ranks = 2) {
    enum { CAPTURES = 3 };
    static const int ends[CAPTURES] = {1, 2, 0}, launches[CAPTURES] = {2, 0, 1};
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    struct fork forks[CAPTURES];
    uint32_t values[CAPTURES] = {71, 72, 73};
    const uint32_t nothing = 0;
    for (int i = 0; i < CAPTURES; i++)
        fork_open(t, &forks[i]);
    for (int i = 0; i < CAPTURES; i++) /* the second stream joins one that others began after */
        let_follow(t, forks[i].second, forks[i].out, forks[i].first);
    for (int i = 0; i < CAPTURES; i++)
        TK_OK(t, symmem_put(handle, t->rank, 4 * (size_t)i, &values[i], 4, forks[i].second));
    for (int i = 0; i < CAPTURES; i++) {
        struct fork *f = &forks[ends[i]];
        fork_join(t, f);
        f->graph = tk_end_capture(t, f->first);
        expect_capturing(t, f->first, false);
        expect_capturing(t, f->second, false);
        for (int k = i + 1; k < CAPTURES; k++)
            expect_capturing(t, forks[ends[k]].second, true);
    }
    for (int i = 0; i < CAPTURES; i++) {
        struct fork *f = &forks[launches[i]];
        run_graph(t, f->graph, f->second);
        tk_expect_data(t, handle, t->rank, 4 * (size_t)launches[i], &values[launches[i]], 4);
        if (i + 1 < CAPTURES)
            tk_expect_data(t, handle, t->rank, 4 * (size_t)launches[i + 1], &nothing, 4);
    }
}

TK_TEST(capture, refused_meanwhile, "SM-STREAM-27", .needs = CAPTURE, .max_ranks = 1) {
    symmem_stream *stream = tk_stream(t);
    bool flag = true;
    struct fork f;
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    fork_begin(t, &f);
    fork_join(t, &f);
    symmem_stream *const both[] = {f.first, f.second};
    for (int i = 0; i < 2; i++) {
        expect_capturing(t, both[i], true);
        TK_STATUS(t, SYMMEM_CAPTURE, symmem_stream_begin_capture(both[i]));
        TK_STATUS(t, SYMMEM_CAPTURE, symmem_stream_synchronize(both[i], LONG_MS));
        TK_STATUS(t, SYMMEM_CAPTURE, symmem_graph_launch(graph, both[i]));
    }
    TK_STATUS(t, SYMMEM_CAPTURE, symmem_stream_end_capture(f.second, &f.graph));
    TK_CHECK(t, f.graph == NULL);
    f.graph = tk_end_capture(t, f.first);
    TK_STATUS(t, SYMMEM_CAPTURE, symmem_event_query(f.out, &flag));
    TK_STATUS(t, SYMMEM_CAPTURE, symmem_event_synchronize(f.back, LONG_MS));
    TK_STATUS(t, SYMMEM_CAPTURE, symmem_stream_wait_event(stream, f.back));
    TK_CHECK(t, flag);
    TK_OK(t, symmem_event_record(f.back, stream)); /* one of the usual again */
    TK_OK(t, symmem_event_synchronize(f.back, LONG_MS));
    TK_OK(t, symmem_event_query(f.back, &flag));
    TK_CHECK(t, flag);
    run_graph(t, f.graph, f.first);
}

TK_TEST(capture, record_after_joining, "SM-STREAM-22", .needs = CAPTURE, .max_ranks = 1) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    struct fork f;
    uint32_t value = 0x5151;
    fork_begin(t, &f);
    TK_OK(t, symmem_put(handle, t->rank, 0, &value, 4, f.second));
    fork_join(t, &f);
    TK_OK(t, symmem_event_record(tk_event(t), f.second));
    run_graph(t, tk_end_capture(t, f.first), f.first);
    tk_expect_data(t, handle, t->rank, 0, &value, 4);
}

TK_TEST(capture, failure_beside_the_origin, "SM-STREAM-15,SM-TIMEOUT-14", .needs = CAPTURE,
        .max_ranks = 1) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    struct fork f;
    fork_begin(t, &f);
    TK_OK(t, symmem_wait_signal(handle, t->rank, 2, 15, f.second));
    fork_join(t, &f);
    TK_OK(t, symmem_graph_launch(tk_end_capture(t, f.first), f.first));
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(f.first, LONG_MS));
    TK_EQ_INT(t, 2, last_record().channel);
    TK_OK(t, symmem_stream_synchronize(f.second, LONG_MS));
    work_after(t, f.first);
    work_after(t, f.second);
}

/* First one that joined, which makes the capture invalid, then the one that began it. */
TK_TEST(capture, given_up_in_turn, "SM-ERROR-01", .needs = CAPTURE, .max_ranks = 2) {
    symmem_stream *first = NULL, *second = NULL;
    symmem_event *event = NULL;
    TK_REQUIRE_OK(t, symmem_stream_create(t->context, own_device(t), &first));
    TK_REQUIRE_OK(t, symmem_stream_create(t->context, own_device(t), &second));
    TK_REQUIRE_OK(t, symmem_event_create(t->context, own_device(t), &event));
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(first));
    let_follow(t, second, event, first);
    TK_STATUS_EITHER(t, SYMMEM_CAPTURE, SYMMEM_OK, symmem_stream_destroy(second));
    symmem_event_destroy(event);
    symmem_clear_error();
    const symmem_status status = symmem_stream_destroy(first);
    TK_EQ_INT(t, status, last_record().status); /* one that goes well leaves it alone */
}

/* By the end of the stream that began it, of one that joined, or of the context with both. */
TK_TEST(capture, given_up, "SM-STREAM-28", .needs = CAPTURE, .max_ranks = 1) {
    symmem_context_options options = tk_options(t);
    for (int way = 0; way < 4; way++) {
        symmem_stream *streams[2];
        symmem_event *event = NULL;
        symmem_graph *graph = NULL;
        tk_checkpoint(t, "way %d", way);
        for (int i = 0; i < 2; i++)
            TK_REQUIRE_OK(t, symmem_stream_create(t->context, own_device(t), &streams[i]));
        symmem_stream *first = streams[way % 2], *second = streams[1 - way % 2];
        TK_REQUIRE_OK(t, symmem_event_create(t->context, own_device(t), &event));
        TK_REQUIRE_OK(t, symmem_stream_begin_capture(first));
        let_follow(t, second, event, first);
        TK_OK(t, symmem_event_record(event, second)); /* it is joined back */
        TK_OK(t, symmem_stream_wait_event(first, event));
        symmem_event_destroy(event);
        if (way == 0)
            TK_OK(t, symmem_stream_destroy(first));
        if (way == 1) {
            const symmem_status status = symmem_stream_destroy(second);
            TK_STATUS_EITHER(t, SYMMEM_CAPTURE, SYMMEM_OK, status);
            TK_STATUS(t, status, symmem_stream_end_capture(first, &graph));
            if (status == SYMMEM_OK)
                TK_OK(t, symmem_graph_destroy(graph));
        }
        if (way >= 2)
            TK_OK(t, symmem_finalize(t->context));
        symmem_stream *rest = way == 0 ? second : first;
        if (way < 2) {
            expect_capturing(t, rest, false);
            TK_REQUIRE_OK(t, symmem_stream_begin_capture(rest));
            TK_REQUIRE_OK(t, symmem_stream_end_capture(rest, &graph));
            TK_OK(t, symmem_graph_launch(graph, rest));
            TK_OK(t, symmem_stream_synchronize(rest, LONG_MS));
            TK_OK(t, symmem_graph_destroy(graph));
        }
        TK_OK(t, symmem_stream_destroy(rest));
        if (way >= 2) {
            TK_OK(t, symmem_stream_destroy(second));
            tk_reinit(t, &options);
        }
    }
}
