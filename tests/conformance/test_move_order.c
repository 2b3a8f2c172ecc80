/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What holds for every move and multimem operation: what they wait for, in which order they run,
 * streams and graphs. Multimem operations take part where there is a multicast pointer.
 */
#include "move_ops.h"

#define STREAMS (COLLECTIVES | SYMMEM_CAP_STREAMS)

/* The kinds that can be run on this handle. */
static int kinds_of(struct tk *t, const struct mover_memory *memory) {
    return info_of(t, memory->handle).multicast_ptr != NULL ? MOVER_ALL_KINDS : MOVER_KINDS;
}

/* The kinds of one case: those through multicast, or the others. */
struct range {
    int first, end;
};

static bool range_begin(struct tk *t, struct mover_memory *memory, bool multicast,
                        struct range *range) {
    if (multicast && !multicast_allowed(t))
        return false;
    mover_memory_init(t, memory, tk_world_group(t));
    *range = (struct range){0, MOVER_KINDS};
    if (multicast)
        *range = (struct range){MOVER_KINDS, kinds_of(t, memory)};
    return TK_CHECK_MSG(t, range->first < range->end, "no multicast pointer");
}

/* Runs the body for each kind of the case, with the memory that all of them share. */
static void each_kind(struct tk *t, bool multicast,
                      void (*body)(struct tk *t, const struct mover_memory *memory, int kind)) {
    struct mover_memory memory = {0};
    struct range range;
    if (range_begin(t, &memory, multicast, &range))
        for (int kind = range.first; kind < range.end; kind++)
            body(t, &memory, kind);
}

/* The first rank, the last one, and then no other. */
static int32_t next_end(const struct tk *t, int32_t rank) {
    return rank < t->last ? t->last : t->world_size;
}

/* --- what an operation waits for -------------------------------------------------------------- */

/* The last one to come loads its input when all others wait for it already. */
static void late(struct tk *t, const struct mover_memory *memory, int kind) {
    TK_REQ(t, "SM-COLL-01");
    for (int32_t held = 0; held < t->world_size; held = next_end(t, held)) {
        uint32_t generation = (uint32_t)(10 * kind + held + 1);
        struct mover mover;
        mover_init(t, &mover, memory, kind, 1);
        mover_load(t, &mover, 1000 + generation);
        tk_out_of_band_barrier(t);
        if (t->rank == held)
            tk_sleep_ms(4);
        mover_load(t, &mover, generation);
        TK_OK(t, mover_run(&mover, mover.limit_ms, NULL));
        mover_expect(t, &mover, generation, "late rank");
    }
}

TK_TEST(move, late_rank, "SM-COLL-01", .needs = COLLECTIVES, .ranks = {2, 3}) {
    each_kind(t, false, late);
}

TK_TEST(move, late_rank_multimem, "SM-COLL-01", .needs = COLLECTIVES | SYMMEM_CAP_MULTICAST,
        .ranks = {2, 3}) {
    each_kind(t, true, late);
}

/* One rank lags behind the others after the first meeting: they may not go on to write the inputs
 * it still has to read, nor believe that what it writes is there. */
static void lagging(struct tk *t, const struct mover_memory *memory, int kind) {
    TK_REQ(t, "SM-COLL-01");
    for (int32_t slow = 0; slow < t->world_size; slow = next_end(t, slow)) {
        uint32_t generation = (uint32_t)(10 * kind + slow + 1);
        struct mover mover;
        mover_init(t, &mover, memory, kind, 0);
        mover_load(t, &mover, generation);
        tk_out_of_band_barrier(t);
        if (t->rank == slow)
            tk_on_point(t, "shm.barrier.after_arrive", 1, (struct tk_action){.delay_ms = 6});
        TK_OK(t, mover_run(&mover, mover.limit_ms, NULL));
        bool sent = kind == MOVER_BROADCAST && t->rank == t->last; /* the root */
        if (!mover_in_place(&mover) || sent)
            mover_overwrite(t, &mover);
        if (!sent)
            mover_expect(t, &mover, generation, "lagging rank");
        tk_forget_points(t);
        tk_out_of_band_barrier(t);
    }
}

TK_TEST(move, lagging_rank, "SM-COLL-01", .needs = COLLECTIVES, .ranks = {2, 3}) {
    each_kind(t, false, lagging);
}

TK_TEST(move, lagging_rank_multimem, "SM-COLL-01", .needs = COLLECTIVES | SYMMEM_CAP_MULTICAST,
        .ranks = {2, 3}) {
    each_kind(t, true, lagging);
}

/* Two different operations back to back through one memory, all pairs, one rank delayed. */
static void pairs(struct tk *t, bool multicast) {
    struct mover_memory memory[2] = {0};
    struct range range;
    if (!range_begin(t, &memory[0], multicast, &range))
        return;
    mover_memory_init(t, &memory[1], tk_world_group(t));
    uint32_t generation = 0;
    for (int first = 0; first < kinds_of(t, &memory[0]); first++)
        for (int second = range.first; second < range.end; second++) {
            struct mover a, b;
            mover_init(t, &a, &memory[0], first, 2);
            mover_init(t, &b, &memory[1], second, 2);
            generation++;
            mover_load(t, &a, generation);
            mover_load(t, &b, generation);
            if (generation % 4 == 0 && t->rank == (int32_t)(generation / 4) % t->world_size)
                tk_sleep_ms(1);
            TK_OK(t, mover_run(&a, a.limit_ms, NULL));
            TK_OK(t, mover_run(&b, b.limit_ms, NULL));
            mover_expect(t, &a, generation, "the first of two");
            mover_expect(t, &b, generation, "the second of two");
        }
}

TK_TEST(move, back_to_back, "SM-COLL-01,SM-COLL-10", .needs = COLLECTIVES, .ranks = {2, 3}) {
    pairs(t, false);
}

TK_TEST(move, back_to_back_multimem, "SM-COLL-01,SM-COLL-10",
        .needs = COLLECTIVES | SYMMEM_CAP_MULTICAST, .ranks = {2, 3}) {
    pairs(t, true);
}

/* --- agreement -------------------------------------------------------------------------------- */

/* Rank 0 calls one operation, the others another: all see it, nothing is written. */
static void other_calls(struct tk *t, bool multicast) {
    struct mover_memory memory = {0};
    struct range range;
    TK_REQ(t, "SM-COLL-06");
    if (!range_begin(t, &memory, multicast, &range))
        return;
    for (int kind = range.first; kind < range.end; kind++) {
        struct mover mover;
        int other = kind + 1 < range.end ? kind + 1 : 0;
        mover_init(t, &mover, &memory, t->rank == 0 ? kind : other, 1);
        mover_load(t, &mover, 7);
        /* A push or a store of a wrong rank would be in the block. */
        TK_FAILS(t, MISMATCH, mover_run(&mover, mover.limit_ms, NULL));
        mover_untouched(t, &mover, 7, "after a mismatch");
        TK_CHECK(t, !info_of(t, mover.handle).poisoned);
        mover_init(t, &mover, &memory, kind, 1);
        mover_load(t, &mover, 8);
        TK_OK(t, mover_run(&mover, mover.limit_ms, NULL));
        mover_expect(t, &mover, 8, "after a mismatch");
    }
}

TK_TEST(move, calls_differ, "SM-COLL-06", .needs = COLLECTIVES, .ranks = {2, 3}) {
    other_calls(t, false);
}

TK_TEST(move, calls_differ_multimem, "SM-COLL-06", .needs = COLLECTIVES | SYMMEM_CAP_MULTICAST,
        .ranks = {2, 3}) {
    other_calls(t, true);
}

/* --- streams and graphs ----------------------------------------------------------------------- */

/* All at once behind a gate, on two streams by turns, one channel. */
static void streams(struct tk *t, bool multicast) {
    struct mover_memory memory[MOVER_ALL_KINDS];
    struct mover movers[MOVER_ALL_KINDS];
    struct range range;
    struct gate gate = {0};
    TK_REQ(t, "SM-COLL-09");
    if (!range_begin(t, &memory[0], multicast, &range))
        return;
    symmem_stream *two[2] = {tk_stream(t), tk_stream(t)};
    TK_OK(t, symmem_stream_host_fn(two[0], gate_fn, &gate));
    for (int kind = range.first; kind < range.end; kind++) {
        struct mover_memory *own = &memory[kind - range.first];
        if (kind > range.first)
            mover_memory_init(t, own, tk_world_group(t));
        mover_init(t, &movers[kind], own, kind, 1);
        mover_load(t, &movers[kind], 3);
    }
    for (int kind = range.first; kind < range.end; kind++)
        TK_OK(t, mover_run(&movers[kind], movers[kind].limit_ms, two[(kind - range.first) % 2]));
    mover_untouched(t, &movers[range.first], 3, "enqueued");
    gate_open(&gate);
    tk_synchronize(t, two[0]);
    tk_synchronize(t, two[1]);
    for (int kind = range.first; kind < range.end; kind++)
        mover_expect(t, &movers[kind], 3, "on a stream");
}

TK_TEST(move, on_streams, "SM-COLL-09,SM-COLL-10,SM-MOVE-10", .needs = STREAMS | SYMMEM_CAP_HOST_FN,
        .ranks = {2, 3}) {
    streams(t, false);
}

TK_TEST(move, on_streams_multimem, "SM-COLL-09,SM-COLL-10,SM-MOVE-10",
        .needs = STREAMS | SYMMEM_CAP_HOST_FN | SYMMEM_CAP_MULTICAST, .ranks = {2, 3}) {
    streams(t, true);
}

/* Captured once, replayed with other data. */
static void replays(struct tk *t, const struct mover_memory *memory, int kind) {
    symmem_stream *stream = tk_stream(t);
    struct mover mover;
    TK_REQ(t, "SM-COLL-09");
    mover_init(t, &mover, memory, kind, 0);
    mover_load(t, &mover, 1);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, mover_run(&mover, mover.limit_ms, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    mover_untouched(t, &mover, 1, "captured");
    tk_out_of_band_barrier(t);
    for (uint32_t generation = 2; generation < 5; generation++) {
        mover_load(t, &mover, generation);
        TK_OK(t, symmem_graph_launch(graph, stream));
        tk_synchronize(t, stream);
        mover_expect(t, &mover, generation, "replayed");
        if (generation == 3) { /* an eager one between two launches */
            mover_load(t, &mover, 9);
            TK_OK(t, mover_run(&mover, mover.limit_ms, NULL));
            mover_expect(t, &mover, 9, "between two launches");
        }
    }
    tk_out_of_band_barrier(t);
}

TK_TEST(move, replayed, "SM-COLL-09,SM-MOVE-10", .needs = COLLECTIVES | SYMMEM_CAP_CAPTURE,
        .ranks = {2, 3}) {
    each_kind(t, false, replays);
}

TK_TEST(move, replayed_multimem, "SM-COLL-09,SM-MOVE-10",
        .needs = COLLECTIVES | SYMMEM_CAP_CAPTURE | SYMMEM_CAP_MULTICAST, .ranks = {2, 3}) {
    each_kind(t, true, replays);
}
