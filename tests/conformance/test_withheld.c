/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rank in turn stays away from a signal operation: in the calling thread, on a stream, and in
 * the replay of a graph. */
#include "withheld.h"

static uint32_t long_ms(void) {
    return 2 * LONG_MS;
}

/* --- handles ---------------------------------------------------------------------------------- */

static void make_handle(struct withheld *w) {
    withheld_make_handle(w);
    w->channel = w->index % info_of(w->t, w->handle).channel_count;
}

/* Nothing is left of the trial: the barrier works, and so does a signal to the next rank. */
static void mend_handle(struct withheld *w) {
    struct tk *t = w->t;
    TK_REQUIRE_OK(t, symmem_handle_reset(w->handle, long_ms()));
    TK_REQUIRE_OK(
        t, symmem_put_signal(w->handle, (w->rank + 1) % w->size, w->channel, long_ms(), NULL));
    TK_REQUIRE_OK(t, symmem_barrier(w->handle, w->channel, long_ms(), NULL));
    TK_REQUIRE_OK(t, symmem_wait_signal(w->handle, (w->rank + w->size - 1) % w->size, w->channel,
                                        long_ms(), NULL));
}

static void fill_slot(struct withheld *w) {
    TK_REQUIRE_OK(w->t, symmem_put_signal(w->handle, w->absent, w->channel, long_ms(), NULL));
}

/* --- in the calling thread, where the stream is NULL ------------------------------------------ */

static symmem_status run_barrier(struct withheld *w) {
    return symmem_barrier(w->handle, w->channel, w->limit_ms, w->stream);
}

static symmem_status run_wait(struct withheld *w) {
    return symmem_wait_signal(w->handle, w->absent, w->channel, w->limit_ms, w->stream);
}

static symmem_status run_put(struct withheld *w) {
    return symmem_put_signal(w->handle, w->absent, w->channel, w->limit_ms, w->stream);
}

TK_TEST(withheld, barrier, "SM-BARRIER-01,SM-TIMEOUT-01,SM-TIMEOUT-02,SM-TIMEOUT-07",
        .min_ranks = 2, .timeout_s = 120, .flags = TK_GROWS_FAST) {
    TK_REQ(t, "SM-TIMEOUT-02");
    WITHHOLD(each, t, .operation = "barrier", .make = make_handle, .run = run_barrier,
             .mend = mend_handle, .end = withheld_end_handle);
}

TK_TEST(withheld, wait_signal, "SM-SIGNAL-01,SM-TIMEOUT-01,SM-TIMEOUT-02,SM-TIMEOUT-07",
        .timeout_s = 60, .flags = TK_GROWS_FAST) {
    TK_REQ(t, "SM-TIMEOUT-02");
    WITHHOLD(peers, t, .operation = "wait_signal", .make = make_handle, .run = run_wait,
             .mend = mend_handle, .end = withheld_end_handle);
}

TK_TEST(withheld, put_signal, "SM-SIGNAL-02,SM-TIMEOUT-01,SM-TIMEOUT-02,SM-TIMEOUT-07",
        .timeout_s = 60, .flags = TK_GROWS_FAST) {
    TK_REQ(t, "SM-TIMEOUT-02");
    WITHHOLD(peers, t, .operation = "put_signal", .make = make_handle, .arm = fill_slot,
             .run = run_put, .mend = mend_handle, .end = withheld_end_handle);
}

/* --- on a stream ------------------------------------------------------------------------------ */

static void make_streamed(struct withheld *w) {
    make_handle(w);
    w->stream = tk_stream(w->t);
}

static void end_streamed(struct withheld *w) {
    tk_stream_destroy(w->t, w->stream);
    withheld_end_handle(w);
}

static symmem_status settle(struct withheld *w, symmem_status called) {
    return called == SYMMEM_OK ? symmem_stream_synchronize(w->stream, long_ms()) : called;
}

static symmem_status run_streamed_barrier(struct withheld *w) {
    return settle(w, run_barrier(w));
}

static symmem_status run_streamed_wait(struct withheld *w) {
    return settle(w, run_wait(w));
}

static symmem_status run_streamed_put(struct withheld *w) {
    return settle(w, run_put(w));
}

TK_TEST(withheld, on_streams, "SM-STREAM-03,SM-TIMEOUT-02,SM-TIMEOUT-07",
        .needs = SYMMEM_CAP_STREAMS, .min_ranks = 2, .timeout_s = 120, .flags = TK_GROWS_FAST) {
    struct withheld_kind kind = {.operation = "barrier",
                                 .make = make_streamed,
                                 .run = run_streamed_barrier,
                                 .mend = mend_handle,
                                 .end = end_streamed};
    TK_REQ(t, "SM-STREAM-03");
    withhold_some(t, &kind);
    kind.operation = "wait_signal";
    kind.run = run_streamed_wait;
    withhold_peers(t, &kind);
    kind.operation = "put_signal";
    kind.arm = fill_slot;
    kind.run = run_streamed_put;
    withhold_peers(t, &kind);
}

/* --- in a replay ------------------------------------------------------------------------------ */

static symmem_status capture_into(struct withheld *w, symmem_status (*add)(struct withheld *w)) {
    symmem_status status = symmem_stream_begin_capture(w->stream);
    symmem_status ended;
    if (status == SYMMEM_OK)
        status = add(w);
    ended = symmem_stream_end_capture(w->stream, &w->graph);
    return status == SYMMEM_OK ? ended : status;
}

static void make_replayed_barrier(struct withheld *w) {
    make_streamed(w);
    TK_REQUIRE_OK(w->t, capture_into(w, run_barrier));
}

static void arm_replayed_wait(struct withheld *w) {
    TK_REQUIRE_OK(w->t, capture_into(w, run_wait));
}

static void arm_replayed_put(struct withheld *w) {
    fill_slot(w);
    TK_REQUIRE_OK(w->t, capture_into(w, run_put));
}

static symmem_status run_replay(struct withheld *w) {
    return settle(w, symmem_graph_launch(w->graph, w->stream));
}

/* The graph that failed works again after the reset, if all ranks launch it. Its barrier has the
 * short limit of the trial, so a rank that is kept from running may come too late. */
static void mend_replayed_barrier(struct withheld *w) {
    mend_handle(w);
    tk_out_of_band_barrier(w->t);
    TK_OK(w->t, run_replay(w));
}

static void mend_replayed(struct withheld *w) {
    if (w->absent >= 0)
        TK_OK(w->t, symmem_graph_destroy(w->graph));
    mend_handle(w);
}

static void end_replayed_barrier(struct withheld *w) {
    TK_OK(w->t, symmem_graph_destroy(w->graph));
    end_streamed(w);
}

TK_TEST(withheld, in_replays, "SM-STREAM-15,SM-TIMEOUT-02,SM-TIMEOUT-07",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, .min_ranks = 2, .timeout_s = 120,
        .flags = TK_GROWS_FAST) {
    struct withheld_kind kind = {.operation = "barrier",
                                 .make = make_replayed_barrier,
                                 .run = run_replay,
                                 .mend = mend_replayed_barrier,
                                 .end = end_replayed_barrier};
    TK_REQ(t, "SM-STREAM-15");
    withhold_some(t, &kind);
    kind = (struct withheld_kind){.operation = "wait_signal",
                                  .make = make_streamed,
                                  .arm = arm_replayed_wait,
                                  .run = run_replay,
                                  .mend = mend_replayed,
                                  .end = end_streamed};
    withhold_peers(t, &kind);
    kind.operation = "put_signal";
    kind.arm = arm_replayed_put;
    withhold_peers(t, &kind);
}
