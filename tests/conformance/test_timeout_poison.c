/* SPDX-License-Identifier: BSD-3-Clause */
/* After a failure: poison, its spread, what still works, and the collective reset. */
#include "case_help.h"
#include "timeout_help.h"
#include "work_after.h"

/* --- poison on the rank that failed ----------------------------------------------------------- */

static void failure_poisons_the_link(struct tk *t, enum signal_op op) {
    void *ptr = tk_alloc(t, 256);
    symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
    symmem_handle *twin = tk_rendezvous(t, ptr, tk_world_group(t));
    symmem_handle *other = tk_handle(t, 256, tk_world_group(t));
    int32_t last = info_of(t, handle).channel_count - 1;
    symmem_error_record record;
    memset(&record, 0, sizeof(record));
    TK_EQ_INT(t, SYMMEM_OK, symmem_handle_status(handle, &record));
    if (t->rank == 0) {
        make_unsatisfied(t, handle, op, 1, 4);
        TK_FAILS(t, TIMEOUT, run_op(handle, op, 1, 4, 30, NULL));
        for (int32_t channel = 0; channel <= last; channel += last)
            for (int any = 0; any < OP_COUNT; any++) {
                TK_FAILS(t, POISONED,
                         run_op(handle, (enum signal_op)any, t->rank, channel, 1000, NULL));
                TK_FAILS(t, POISONED, run_op(twin, (enum signal_op)any, 1, channel, 1000, NULL));
            }
        TK_CHECK(t, info_of(t, handle).poisoned && info_of(t, twin).poisoned);
        TK_EQ_INT(t, SYMMEM_TIMEOUT, symmem_handle_status(twin, &record));
        TK_EQ_INT(t, SYMMEM_TIMEOUT, record.status);
        TK_EQ_STR(t, op_name(op), record.operation);
        TK_EQ_INT(t, 4, record.channel);
        TK_CHECK(t, symmem_error_is_missing(&record, 1));
    }
    tk_out_of_band_barrier(t);
    TK_CHECK(t, !info_of(t, other).poisoned);
    TK_OK(t, symmem_barrier(other, 4, LONG_MS, NULL));
    ring_signal(t, other, 4);
    work_after(t, NULL);
}

#define POISONS_THE_LINK(name_, op_)                                                               \
    TK_TEST(timeout, name_, "SM-TIMEOUT-04,SM-TIMEOUT-06,SM-TIMEOUT-14", .ranks = {2, 4}) {        \
        failure_poisons_the_link(t, op_);                                                          \
    }
POISONS_THE_LINK(barrier_poisons_the_link, OP_BARRIER)
POISONS_THE_LINK(put_poisons_the_link, OP_PUT)
POISONS_THE_LINK(wait_poisons_the_link, OP_WAIT)

TK_TEST(timeout, data_and_memory_work_on, "SM-TIMEOUT-06,SM-TIMEOUT-14", .max_ranks = 4) {
    void *ptr = tk_alloc(t, 4096);
    symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
    poison_own(t, handle, 0);
    tk_fill(t, handle, t->next, 0, 4096, (uint8_t)(0x10 + t->rank));
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, handle, t->rank, 0, 4096, (uint8_t)(0x10 + t->previous));
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, handle, t->next, 0, 4096, (uint8_t)(0x10 + t->rank));
    symmem_handle *fresh = tk_handle(t, 4096, tk_world_group(t));
    TK_OK(t, symmem_barrier(fresh, 0, LONG_MS, NULL));
    tk_release(t, handle);
    tk_free(t, ptr);
    work_after(t, NULL);
}

/* --- the others ------------------------------------------------------------------------------- */

/* Rank 0 fails; the others wait for it without limit, from before or from after the failure. */
static void waits_for_poisoned(struct tk *t, enum signal_op op, bool before, symmem_group *group) {
    symmem_handle *handle = tk_handle(t, 64, group);
    int32_t failing = group == tk_world_group(t) ? 0 : t->last;
    uint64_t failed_ms = 0;
    if (t->rank == 0) {
        for (int32_t r = 1; r < t->world_size; r++)
            (void)await_shared(t, r, 5, 1);
        tk_sleep_ms(before ? 20 : 0);
        poison_own(t, handle, 9);
        tk_share_u64(t, 6, tk_now_ms());
    } else {
        make_unsatisfied(t, handle, op, failing, 1);
        tk_share_u64(t, 5, 1);
        if (!before)
            (void)await_shared(t, 0, 6, 1);
        TK_FAILS(t, POISONED, run_op(handle, op, failing, 1, 0, NULL));
        uint64_t now_ms = tk_now_ms();
        symmem_error_record record = last_record();
        TK_EQ_INT(t, failing, record.failed_rank);
        TK_EQ_INT(t, 0, record.missing_count);
        TK_EQ_STR(t, op_name(op), record.operation);
        TK_CHECK(t, info_of(t, handle).poisoned);
        (void)await_shared(t, 0, 6, 1);
        failed_ms = tk_read_u64(t, 0, 6);
        TK_TOOK(t, 3000, failed_ms, now_ms);
    }
    tk_out_of_band_barrier(t);
    tk_share_u64(t, 5, 0);
    tk_share_u64(t, 6, 0);
    tk_out_of_band_barrier(t);
}

TK_TEST(timeout, waiting_for_a_poisoned_rank_ends, "SM-TIMEOUT-05,SM-TIMEOUT-14", .ranks = {2, 4}) {
    for (int op = 0; op < OP_COUNT; op++)
        waits_for_poisoned(t, (enum signal_op)op, true, tk_world_group(t));
    work_after(t, NULL);
}

TK_TEST(timeout, poisoned_peer_is_seen_later, "SM-TIMEOUT-05,SM-TIMEOUT-14", .ranks = {2, 4}) {
    symmem_group *group = reversed_group(t, "reversed");
    for (int op = 0; op < OP_COUNT; op++)
        waits_for_poisoned(t, (enum signal_op)op, false, group);
    work_after(t, NULL);
}

/* --- reset ------------------------------------------------------------------------------------ */

/*
 * Leaves behind a pending signal on channel 3 at every rank, arrivals at a barrier on channel 1
 * from every rank but `held`, and poison on the ranks whose bit is set.
 */
static void soil(struct tk *t, symmem_handle *handle, uint32_t poisoned, int32_t held) {
    TK_OK(t, symmem_put_signal(handle, t->next, 3, LONG_MS, NULL));
    tk_out_of_band_barrier(t);
    if (poisoned == ~0u && t->rank != held)
        TK_STATUS_EITHER(t, SYMMEM_TIMEOUT, SYMMEM_POISONED, symmem_barrier(handle, 1, 30, NULL));
    else if (poisoned & (1u << t->rank))
        poison_own(t, handle, 9);
    tk_out_of_band_barrier(t);
}

/* Everything must be as after the first rendezvous. */
static void check_clean(struct tk *t, symmem_handle *handle, int32_t held, uint64_t *round) {
    symmem_error_record record;
    TK_EQ_INT(t, SYMMEM_OK, symmem_handle_status(handle, &record));
    TK_CHECK(t, !info_of(t, handle).poisoned);
    tk_out_of_band_barrier(t);
    for (int k = 0; k < 2; k++)
        barrier_holding(t, handle, 1, NULL, t->world_size, held, ++*round);
    for (int32_t channel = 0; channel < 5; channel++)
        ring_signal(t, handle, channel);
    TK_OK(t, symmem_barrier(handle, 3, LONG_MS, NULL));
}

/* A left-over signal would make this wait succeed. */
static void check_no_signal(struct tk *t, symmem_handle *handle) {
    check_nothing_pending(t, handle, -1, 3);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
}

TK_TEST(timeout, reset_cleans, "SM-TIMEOUT-07,SM-TIMEOUT-14", .ranks = {2, 4},
        .flags = TK_WRITES_PADS) {
    uint64_t round = 0;
    symmem_handle *handle = tk_handle(t, 1024, tk_world_group(t));
    tk_fill(t, handle, t->rank, 0, 1024, (uint8_t)(t->rank + 1));
    pad_fill(t, handle, 0x42);
    for (int32_t i = -2; i < t->world_size; i++) {
        /* no rank poisoned, all but the last, each one alone */
        uint32_t poisoned = i == -2 ? 0u : i == -1 ? ~0u : 1u << i;
        int32_t held = i < 0 ? t->last : i;
        soil(t, handle, poisoned, held);
        TK_OK(t, symmem_handle_reset(handle, LONG_MS));
        check_clean(t, handle, held, &round);
        check_no_signal(t, handle);
    }
    tk_expect_bytes(t, handle, t->rank, 0, 1024, (uint8_t)(t->rank + 1));
    pad_expect(t, handle, 0x42);
    work_after(t, NULL);
}

/* A signal pending at each rank's slot before the reset must not come through after it. */
TK_TEST(timeout, reset_forgets_pending_signals, "SM-TIMEOUT-07,SM-TIMEOUT-14", .max_ranks = 8) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    int32_t last = info_of(t, handle).channel_count - 1;
    for (int32_t r = 0; r < t->world_size; r++) {
        TK_OK(t, symmem_put_signal(handle, r, 0, LONG_MS, NULL));
        TK_OK(t, symmem_put_signal(handle, r, last, LONG_MS, NULL));
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    /* Slots are empty: puts need no consumption. */
    for (int32_t r = 0; r < t->world_size; r++)
        TK_OK(t, symmem_put_signal(handle, r, last, 1000, NULL));
    for (int32_t r = 0; r < t->world_size; r++)
        TK_OK(t, symmem_wait_signal(handle, r, last, LONG_MS, NULL));
    TK_OK(t, symmem_barrier(handle, last, LONG_MS, NULL));
    TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, t->rank, 0, 20, NULL));
    work_after(t, NULL);
}

/* A rank whose barrier failed has counted one round more than the others: the reset must make that
 * forgotten on every channel, the last one's state being the end of all. */
TK_TEST(timeout, reset_forgets_rounds_on_every_channel, "SM-TIMEOUT-07,SM-TIMEOUT-14",
        .ranks = {2, 8}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const int32_t channels[] = {0, 1, info_of(t, handle).channel_count - 1};
    for (int i = 0; i < 3; i++) {
        if (t->rank == t->last)
            TK_FAILS(t, TIMEOUT, symmem_barrier(handle, channels[i], 20, NULL));
        tk_out_of_band_barrier(t);
        TK_OK(t, symmem_handle_reset(handle, LONG_MS));
        TK_OK(t, symmem_barrier(handle, channels[i], LONG_MS, NULL));
    }
    work_after(t, NULL);
}

/* No rank's signals after the reset may be wiped by a slower rank's part of it. */
TK_TEST(timeout, signals_right_after_reset_stay, "SM-TIMEOUT-07", .max_ranks = 8) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (int i = 0; i < 8; i++) {
        if (t->rank == i % t->world_size)
            tk_sleep_ms(5);
        TK_OK(t, symmem_handle_reset(handle, LONG_MS));
        ring_signal(t, handle, i % 2);
    }
}

static void reset_on_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                           void *arg) {
    (void)arg;
    symmem_handle *handle = tk_handle(t, 64, group);
    if (shape->rank == shape->count - 1)
        poison_own(t, handle, 0);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    ring_signal(t, handle, 0);
}

TK_TEST(timeout, reset_works_on_every_group_shape, "SM-TIMEOUT-07,SM-TIMEOUT-14", .max_ranks = 8) {
    tk_for_each_group_shape(t, reset_on_shape, NULL);
    work_after(t, NULL);
}

/* Work of group rank `pending` waits for the last rank's signal on the channel. */
static void expect_busy(struct tk *t, symmem_handle *handle, int32_t pending, int32_t channel,
                        bool in_graph) {
    tk_out_of_band_barrier(t);
    TK_FAILS(t, BUSY, symmem_handle_reset(handle, LONG_MS));
    if (!in_graph) /* which tells of no single operation */
        TK_EQ_INT(t, channel, last_record().channel);
    tk_out_of_band_barrier(t);
    if (t->rank == t->last)
        TK_OK(t, symmem_put_signal(handle, pending, channel, LONG_MS, NULL));
}

TK_TEST(timeout, reset_with_pending_work_is_busy, "SM-TIMEOUT-12", .needs = SYMMEM_CAP_STREAMS,
        .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    for (int32_t pending = 0; pending < t->last; pending++) {
        int32_t channel = pending % 2 == 0 ? info_of(t, handle).channel_count - 1 : 0;
        if (t->rank == pending)
            TK_OK(t, symmem_wait_signal(handle, t->last, channel, LONG_MS, stream));
        expect_busy(t, handle, pending, channel, false);
        if (t->rank == pending)
            tk_synchronize(t, stream);
        tk_out_of_band_barrier(t);
        TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    }
}

/* Begins a capture, on rank 0 with a wait for the last rank's signal. */
static symmem_stream *capture_wait(struct tk *t, symmem_handle *handle, symmem_stream *stream) {
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    if (t->rank == 0)
        TK_OK(t, symmem_wait_signal(handle, t->last, 0, LONG_MS, stream));
    return stream;
}

/* What a graph holds is pending while a launch of it is, and not before nor on other handles. */
TK_TEST(timeout, reset_beside_a_launch_is_busy, "SM-TIMEOUT-12", .needs = SYMMEM_CAP_CAPTURE,
        .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_handle *other = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    symmem_graph *graph = tk_end_capture(t, capture_wait(t, handle, stream));
    for (int launch = 0; launch < 2; launch++) {
        TK_OK(t, symmem_handle_reset(handle, LONG_MS));
        TK_OK(t, symmem_graph_launch(graph, stream));
        tk_out_of_band_barrier(t);
        TK_OK(t, symmem_handle_reset(other, LONG_MS));
        expect_busy(t, handle, 0, 0, true);
        tk_synchronize(t, stream);
    }
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    ring_signal(t, handle, 0);
}

static void *destroy_graph(void *arg) {
    return (void *)(intptr_t)symmem_graph_destroy(arg);
}

/* The launch is waited for by who destroys the graph, and so it is pending still. */
TK_TEST(timeout, reset_beside_a_destroy_is_busy, "SM-TIMEOUT-12", .needs = SYMMEM_CAP_CAPTURE,
        .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    symmem_graph *graph = NULL;
    pthread_t thread;
    void *answer = NULL;
    TK_REQUIRE_OK(t, symmem_stream_end_capture(capture_wait(t, handle, stream), &graph));
    TK_OK(t, symmem_graph_launch(graph, stream));
    TK_REQUIRE(t, pthread_create(&thread, NULL, destroy_graph, graph) == 0);
    tk_sleep_ms(tk_limit_ms(t, 100)); /* until the thread waits there */
    expect_busy(t, handle, 0, 0, true);
    TK_CHECK(t, pthread_join(thread, &answer) == 0);
    TK_EQ_INT(t, SYMMEM_OK, (int)(intptr_t)answer);
    tk_synchronize(t, stream);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    ring_signal(t, handle, 0);
}

static void fail_reset(struct tk *t, symmem_handle *handle) {
    if (t->rank == t->last)
        tk_on_point(t, "reset.state.before", 1, (struct tk_action){.status = SYMMEM_SYSTEM});
    TK_FAILS(t, SYSTEM, symmem_handle_reset(handle, LONG_MS));
}

/* Some ranks' state is reset then, others' may not be. */
TK_TEST(timeout, failed_reset_poisons, "SM-TIMEOUT-13,SM-TIMEOUT-14", .ranks = {2, 3}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    fail_reset(t, handle);
    TK_EQ_INT(t, t->last, last_record().failed_rank);
    TK_FAILS(t, POISONED, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_FAILS(t, SYSTEM, symmem_handle_status(handle, NULL));
    tk_out_of_band_barrier(t);
    work_after(t, NULL);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    ring_signal(t, handle, 0);
}

/* What was captured before asks no host: the poison has to stand where the device looks, also on
 * ranks whose state was reset. */
TK_TEST(timeout, failed_reset_poisons_graphs, "SM-TIMEOUT-04,SM-TIMEOUT-13,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_CAPTURE, .ranks = {3, 3}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, symmem_put_signal(handle, t->next, 0, LONG_MS, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    fail_reset(t, handle);
    TK_OK(t, symmem_graph_launch(graph, stream));
    TK_FAILS(t, POISONED, symmem_stream_synchronize(stream, LONG_MS));
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_OK(t, symmem_graph_launch(graph, stream));
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
    TK_OK(t, symmem_wait_signal(handle, (t->rank + t->last) % t->world_size, 0, LONG_MS, NULL));
    work_after(t, stream);
}

/* --- the user's pad is not looked at ---------------------------------------------------------- */

TK_TEST(timeout, waits_ignore_the_users_pad, "SM-TIMEOUT-10,SM-TIMEOUT-14", .max_ranks = 4,
        .flags = TK_WRITES_PADS) {
    const uint8_t bytes[] = {0x01, 0xFF, 0x00};
    for (size_t i = 0; i < 3; i++) {
        symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
        symmem_handle_info info = info_of(t, handle);
        uint32_t one = 1;
        void *const *pads = pads_of(t, handle);
        pad_fill(t, handle, bytes[i]);
        for (int32_t slot = 0; bytes[i] == 0 && slot < 8 * t->world_size; slot++)
            TK_OK(t, symmem_copy(t->context, (uint32_t *)pads[info.rank] + slot, &one, 4, NULL));
        tk_out_of_band_barrier(t);
        check_nothing_pending(t, handle, -1, 1);
        tk_out_of_band_barrier(t);
    }
    work_after(t, NULL);
}
