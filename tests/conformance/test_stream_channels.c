/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels and streams: one channel is serialized across streams, different ones are free. */
#include "case_help.h"

#define STREAM_FN (SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_FN)

struct ring {
    symmem_handle *handle;
    int32_t next, previous;
    symmem_stream *streams[2];
    uint32_t limit_ms;
};

static struct ring ring_begin(struct tk *t) {
    struct ring ring = {.handle = tk_handle(t, 256, tk_world_group(t))};
    ring.next = t->next;
    ring.previous = t->previous;
    ring.streams[0] = tk_stream(t);
    ring.streams[1] = tk_stream(t);
    ring.limit_ms = LONG_MS;
    return ring;
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
    tk_synchronize(t, ring.streams[0]);
    tk_synchronize(t, ring.streams[1]);
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
    tk_synchronize(t, ring.streams[1]);
    tk_synchronize(t, ring.streams[0]);
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
    tk_synchronize(t, ring.streams[0]);
    tk_synchronize(t, ring.streams[1]);
    TK_CHECK(t, !info_of(t, ring.handle).poisoned);
}

/* The NULL stream takes its turn on a channel too. */
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

/* Alone in its group a rank waits for nobody but its own stream. */
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
    tk_synchronize(t, ring.streams[0]);
    tk_synchronize(t, ring.streams[1]);
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
    run_threads(t, worker_run, workers, sizeof(workers[0]), 2);
    TK_OK(t, symmem_put(ring.handle, t->rank, 0, &value, 4, ring.streams[0]));
    TK_OK(t, symmem_barrier(ring.handle, 0, ring.limit_ms, ring.streams[0]));
    tk_synchronize(t, ring.streams[0]);
    check_peer_value(t, &ring, 55);
}
