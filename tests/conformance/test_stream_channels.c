/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels and streams: one channel is serialized across streams, different ones are free. */
#include "case_help.h"
#include "ops_help.h"
#include "timeout_help.h"

struct ring {
    symmem_handle *handle;
    int32_t next, previous;
    symmem_stream *streams[2];
    uint32_t limit_ms;
};

static struct ring ring_begin(struct tk *t) {
    return (struct ring){.handle = tk_handle(t, 256, tk_world_group(t)),
                         .next = t->next,
                         .previous = t->previous,
                         .streams = {tk_stream(t), tk_stream(t)},
                         .limit_ms = LONG_MS};
}

static void ring_drain(struct tk *t, const struct ring *ring) {
    tk_synchronize(t, ring->streams[0]);
    tk_synchronize(t, ring->streams[1]);
}

static void check_peer_value(struct tk *t, struct ring *ring, uint32_t base) {
    uint32_t expected = base + (uint32_t)ring->next;
    tk_expect_data(t, ring->handle, ring->next, 0, &expected, 4);
}

/* Stream A is held at one rank before its barrier; B's barrier, issued later, comes after it. */
TK_PORTED(test_stream_serialization_barrier_two_streams, "SM-STREAM-05", .needs = STREAM_FN,
          .max_ranks = 4) {
    struct ring ring = ring_begin(t);
    struct gate gate = {0};
    uint32_t early = (uint32_t)t->rank;
    uint32_t late = (uint32_t)t->rank + 10;
    if (t->rank != 0)
        gate_open(&gate);
    hold(t, ring.streams[0], &gate);
    TK_OK(t, symmem_put(ring.handle, t->rank, 0, &early, 4, ring.streams[0]));
    TK_OK(t, symmem_barrier(ring.handle, 0, ring.limit_ms, ring.streams[0]));
    TK_OK(t, symmem_barrier(ring.handle, 0, ring.limit_ms, ring.streams[1]));
    TK_OK(t, symmem_put(ring.handle, t->rank, 0, &late, 4, ring.streams[1]));
    if (t->rank == 0) {
        tk_sleep_ms(30);
        TK_CHECK_MSG(t, !is_idle(t, ring.streams[1]),
                     "the second stream's barrier overtook the first one's");
        gate_open(&gate);
    }
    ring_drain(t, &ring);
    tk_out_of_band_barrier(t);
    check_peer_value(t, &ring, 10);
}

TK_PORTED(test_stream_serialization_put_wait_two_streams, "SM-STREAM-05",
          .needs = SYMMEM_CAP_STREAMS, .max_ranks = 4) {
    struct ring ring = ring_begin(t);
    uint32_t value = (uint32_t)t->rank + 100;
    for (int s = 0; s < 2; s++) {
        symmem_stream *stream = ring.streams[s];
        TK_OK(t, symmem_put_signal(ring.handle, ring.next, 0, ring.limit_ms, stream));
        TK_OK(t, symmem_wait_signal(ring.handle, ring.previous, 0, ring.limit_ms, stream));
    }
    TK_OK(t, symmem_put(ring.handle, t->rank, 0, &value, 4, ring.streams[1]));
    ring_drain(t, &ring);
    tk_out_of_band_barrier(t);
    check_peer_value(t, &ring, 100);
}

/* Many alternations; every other rank's order of streams is the opposite one. */
TK_TEST(stream, ranks_use_opposite_streams, "SM-STREAM-05", .needs = SYMMEM_CAP_STREAMS,
        .max_ranks = 4) {
    struct ring ring = ring_begin(t);
    for (int i = 0; i < 40; i++) {
        symmem_stream *stream = ring.streams[(i + t->rank) % 2];
        TK_OK(t, symmem_barrier(ring.handle, 0, ring.limit_ms, stream));
        TK_OK(t, symmem_put_signal(ring.handle, ring.next, 0, ring.limit_ms, stream));
        TK_OK(t, symmem_wait_signal(ring.handle, ring.previous, 0, ring.limit_ms, stream));
    }
    ring_drain(t, &ring);
    TK_CHECK(t, !info_of(t, ring.handle).poisoned);
}

/* The NULL stream keeps a channel's order too. */
TK_TEST(stream, null_stream_takes_its_turn, "SM-STREAM-05,SM-STREAM-02", .needs = STREAM_FN,
        .max_ranks = 4) {
    struct ring ring = ring_begin(t);
    struct gate gate = {0};
    TK_OK(t, symmem_put_signal(ring.handle, ring.next, 0, ring.limit_ms, NULL));
    if (t->rank != 0)
        gate_open(&gate);
    hold(t, ring.streams[0], &gate);
    TK_OK(t, symmem_wait_signal(ring.handle, ring.previous, 0, ring.limit_ms, ring.streams[0]));
    /* The stream's wait is first in line for the one signal; this one gets the second. */
    gate_open(&gate);
    TK_OK(t, symmem_put_signal(ring.handle, ring.next, 0, ring.limit_ms, NULL));
    TK_OK(t, symmem_wait_signal(ring.handle, ring.previous, 0, ring.limit_ms, NULL));
    tk_synchronize(t, ring.streams[0]);
    tk_out_of_band_barrier(t);
    check_nothing_pending(t, ring.handle, -1, 0);
}

/* Alone in its group a rank waits for its own stream alone. */
TK_TEST(stream, null_stream_waits_for_the_stream, "SM-STREAM-05,SM-STREAM-02", .needs = STREAM_FN,
        .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, tk_group(t, "alone", &t->rank, 1));
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    pthread_t thread;
    hold(t, stream, &gate);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
    TK_REQUIRE(t, pthread_create(&thread, NULL, open_later, &gate) == 0);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_CHECK_MSG(t, atomic_load(&gate.open), "the call overtook the channel's work on the stream");
    TK_CHECK(t, pthread_join(thread, NULL) == 0);
    tk_synchronize(t, stream);
}

/* A: barrier, then something slow. B: barrier. B must be done while A is still busy. */
TK_PORTED(test_stream_serialization_waits_on_pad_kernel_only, "SM-STREAM-06", .needs = STREAM_FN,
          .max_ranks = 4) {
    struct ring ring = ring_begin(t);
    struct gate gate = {0};
    TK_OK(t, symmem_barrier(ring.handle, 0, ring.limit_ms, ring.streams[0]));
    hold(t, ring.streams[0], &gate);
    TK_OK(t, symmem_barrier(ring.handle, 0, ring.limit_ms, ring.streams[1]));
    TK_OK(t, symmem_stream_synchronize(ring.streams[1], ring.limit_ms));
    TK_CHECK_MSG(t, !is_idle(t, ring.streams[0]) && !atomic_load(&gate.timed_out),
                 "the second barrier waited for the first stream's other work");
    gate_open(&gate);
    tk_synchronize(t, ring.streams[0]);
}

/* At rank 0 channel 0 waits on one stream while other channels do their rounds on the other. */
TK_TEST(stream, channels_are_independent, "SM-STREAM-07", .needs = SYMMEM_CAP_STREAMS,
        .ranks = {2, 4}) {
    struct ring ring = ring_begin(t);
    int32_t channels = info_of(t, ring.handle).channel_count;
    int32_t source = t->last;
    if (t->rank == 0)
        TK_OK(t, symmem_wait_signal(ring.handle, source, 0, ring.limit_ms, ring.streams[0]));
    for (int i = 0; i < 5; i++) {
        symmem_stream *stream = ring.streams[1];
        int32_t channel = i % 2 ? channels - 1 : 1;
        TK_OK(t, symmem_barrier(ring.handle, channel, ring.limit_ms, stream));
        TK_OK(t, symmem_put_signal(ring.handle, ring.next, channel, ring.limit_ms, stream));
        TK_OK(t, symmem_wait_signal(ring.handle, ring.previous, channel, ring.limit_ms, stream));
    }
    tk_synchronize(t, ring.streams[1]);
    TK_CHECK_MSG(t, is_idle(t, ring.streams[0]) == (t->rank != 0),
                 "signals of other channels satisfied channel 0");
    tk_out_of_band_barrier(t);
    if (t->rank == source)
        TK_OK(t, symmem_put_signal(ring.handle, 0, 0, ring.limit_ms, ring.streams[1]));
    ring_drain(t, &ring);
}

struct worker {
    struct tk *t;
    struct ring *ring;
    int number;
};

static void *worker_run(void *arg) {
    struct worker *self = arg;
    struct tk *t = self->t;
    symmem_stream *stream = self->ring->streams[self->number];
    for (int i = 0; i < 20; i++)
        TK_OK(t, symmem_barrier(self->ring->handle, 0, self->ring->limit_ms, stream));
    TK_OK(t, symmem_stream_synchronize(stream, self->ring->limit_ms));
    return NULL;
}

/* Two host threads with a stream each, on one channel. */
TK_PORTED(test_stream_serialization_concurrent_threads, "SM-STREAM-05,SM-THREAD-02",
          .needs = SYMMEM_CAP_STREAMS, .max_ranks = 4) {
    struct ring ring = ring_begin(t);
    struct worker workers[2] = {{t, &ring, 0}, {t, &ring, 1}};
    uint32_t value = (uint32_t)t->rank + 55;
    tk_in_threads(t, worker_run, workers, sizeof(workers[0]), 2);
    TK_OK(t, symmem_put(ring.handle, t->rank, 0, &value, 4, ring.streams[0]));
    TK_OK(t, symmem_barrier(ring.handle, 0, ring.limit_ms, ring.streams[0]));
    tk_synchronize(t, ring.streams[0]);
    check_peer_value(t, &ring, 55);
}

/* Streams whose work fails: when its limit begins, what runs behind it, and who is told. */

/* --- what a failure leaves alone -------------------------------------------------------------- */

/* A synchronization that ends too early forgets no failure. */
TK_TEST(stream, failure_outlasts_a_timeout, "SM-STREAM-03,SM-TIMEOUT-14", .needs = STREAM_FN,
        .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    TK_OK(t, symmem_wait_signal(handle, t->rank, 2, 20, stream));
    hold(t, stream, &gate);
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, tk_limit_ms(t, 100)));
    gate_open(&gate);
    symmem_clear_error();
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
    TK_EQ_STR(t, "wait_signal", last_record().operation);
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
    work_after(t, stream);
}

/* What is not for the handle runs nevertheless, and may be what the program waits for. */
TK_TEST(stream, other_work_runs_behind_a_failure, "SM-STREAM-01,SM-TIMEOUT-06,SM-TIMEOUT-14",
        .needs = STREAM_FN, .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    struct step_log log = {0};
    struct step step;
    uint8_t from[16], to[16] = {0};
    memset(from, 0x7A, sizeof(from));
    TK_OK(t, symmem_wait_signal(handle, t->rank, 2, 20, stream));
    TK_OK(t, symmem_copy(t->context, to, from, sizeof(from), stream));
    enqueue_step(t, stream, &step, &log, 1);
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
    TK_EQ_INT(t, 1, steps_done(&log));
    TK_CHECK_MSG(t, memcmp(from, to, sizeof(from)) == 0,
                 "the copy behind an operation that failed did not run");
    work_after(t, stream);
}

/* Neither in a form that publishes its whole input at once nor in one that does it in pieces. */
TK_TEST(stream, collective_behind_a_failure_writes_nothing, "SM-ERROR-30",
        .needs = COLLECTIVES | SYMMEM_CAP_STREAMS, .ranks = {2, 4}) {
    enum { MOST = 65536 };
    static const size_t counts[] = {16, 1000, MOST};
    const size_t bytes = MOST * sizeof(float);
    TK_REINIT(t, options.check_collectives = 0); /* to compare the calls would be a barrier */
    symmem_handle *handle = tk_handle(t, bytes, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    void *input = tk_alloc(t, bytes), *out = tk_alloc(t, bytes);
    for (size_t i = 0; i < LENGTH(counts); i++) {
        tk_checkpoint(t, "%zu elements", counts[i]);
        tk_fill(t, handle, t->rank, 0, bytes, 0x3C);
        TK_OK(t, symmem_wait_signal(handle, t->rank, 0, 20, stream));
        TK_OK(t, symmem_one_shot_all_reduce_copy_out(
                     handle, FLAT(ops_own(t, handle), SYMMEM_FLOAT32, counts[i]),
                     FLAT(input, SYMMEM_FLOAT32, counts[i]), SYMMEM_SUM,
                     FLAT(out, SYMMEM_FLOAT32, counts[i]), 0, LONG_MS, stream));
        TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
        tk_expect_bytes(t, handle, t->rank, 0, bytes, 0x3C);
        TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    }
    tk_free(t, input);
    tk_free(t, out);
}

/* --- held back behind a gate ------------------------------------------------------------------ */

/* The three signal operations and, where there are collectives, one that needs all ranks. */
enum { OP_BROADCAST = OP_COUNT };

static int last_op(const struct tk *t) {
    return (t->capabilities & COLLECTIVES) == COLLECTIVES ? OP_BROADCAST : OP_COUNT - 1;
}

/* Enqueues the operation behind the gate. */
static void hold_back(struct tk *t, symmem_handle *handle, int op, int32_t peer, int32_t channel,
                      uint32_t limit_ms, symmem_stream *stream, struct gate *gate) {
    const DLTensor *tensor = FLAT(ops_own(t, handle), SYMMEM_INT32, 16);
    tk_checkpoint(t, "%s", op == OP_BROADCAST ? "broadcast" : op_name((enum signal_op)op));
    hold(t, stream, gate);
    if (op == OP_BROADCAST)
        TK_OK(t, symmem_broadcast(handle, tensor, 0, channel, limit_ms, stream));
    else
        TK_OK(t, run_op(handle, (enum signal_op)op, peer, channel, limit_ms, stream));
}

/* Each was enqueued while all was well and would succeed at once; another stream's failure comes
 * before it begins. A group of one, in which no other rank is needed. */
TK_TEST(stream, begun_after_a_poison_is_poisoned, "SM-TIMEOUT-04,SM-TIMEOUT-14", .needs = STREAM_FN,
        .max_ranks = 2) {
    symmem_group *group = tk_group(t, "alone", &t->rank, 1);
    for (int op = 0; op <= last_op(t); op++) {
        symmem_handle *handle = tk_handle(t, 64, group);
        symmem_stream *stream = tk_stream(t);
        struct gate gate = {0};
        if (op == OP_WAIT)
            TK_OK(t, symmem_put_signal(handle, 0, 1, LONG_MS, NULL));
        hold_back(t, handle, op, 0, 1, LONG_MS, stream, &gate);
        poison_own(t, handle, 2);
        gate_open(&gate);
        TK_FAILS(t, POISONED, symmem_stream_synchronize(stream, LONG_MS));
    }
    work_after(t, NULL);
}

/* The gates open when the limit has passed since the call, where all ranks wait for each other on
 * rank 1 a moment later: then rank 0's work has still to wait when it begins. */
static void held_back_for_long(struct tk *t, int op, uint32_t limit_ms) {
    bool for_all = op == OP_BARRIER || op == OP_BROADCAST;
    int32_t peer = 1 - t->rank,
            channel = for_all ? 3 : t->rank; /* of one each: they run in order */
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    if (op == OP_PUT)
        make_unsatisfied(t, handle, OP_PUT, peer, channel);
    hold_back(t, handle, op, peer, channel, limit_ms, stream, &gate);
    tk_sleep_ms(limit_ms + 5);
    tk_out_of_band_barrier(t);
    if (for_all && t->rank == 1)
        tk_sleep_ms(20);
    gate_open(&gate);
    tk_sleep_ms(20);
    if (op == OP_WAIT)
        TK_OK(t, symmem_put_signal(handle, peer, peer, LONG_MS, NULL));
    for (int i = 0; op == OP_PUT && i < 2; i++) /* the one that was in its way, and itself */
        TK_OK(t, symmem_wait_signal(handle, peer, peer, LONG_MS, NULL));
    tk_synchronize(t, stream);
    TK_CHECK(t, !info_of(t, handle).poisoned);
    tk_out_of_band_barrier(t);
}

/* The limit counts from the moment the operation begins to run, not from the call: each is held
 * back for longer than its limit, and has still to wait when it begins. */
TK_TEST(stream, limit_counts_from_the_start_of_work, "SM-TIMEOUT-03", .needs = STREAM_FN,
        .ranks = {2, 2}) {
    for (int op = 0; op <= last_op(t); op++)
        held_back_for_long(t, op, tk_limit_ms(t, 250));
}
