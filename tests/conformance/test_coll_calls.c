/* SPDX-License-Identifier: BSD-3-Clause */
/* What holds for every collective, shown by one_shot_all_reduce: agreement of the calls, waiting
 * and failing, order. */
#include "coll_help.h"
#include "work_after.h"

#define STREAMS SYMMEM_CAP_STREAMS

/* What the odd rank does instead. */
enum oddity { ODD_COUNT, ODD_DTYPE, ODD_OP, ODD_OFFSET, ODD_BARRIER, ODDITIES };

static symmem_status odd_call(const struct sum *s, enum oddity oddity, symmem_stream *stream) {
    switch (oddity) {
    case ODD_COUNT:
        return sum_count(s, SYMMEM_FLOAT32, COUNT / 2 - 1, SYMMEM_SUM, 0, s->limit_ms, stream);
    case ODD_DTYPE:
        return sum_count(s, SYMMEM_INT32, COUNT / 2, SYMMEM_SUM, 0, s->limit_ms, stream);
    case ODD_OP:
        return sum_count(s, SYMMEM_FLOAT32, COUNT / 2, SYMMEM_MAX, 0, s->limit_ms, stream);
    case ODD_OFFSET:
        return symmem_one_shot_all_reduce_out(
            s->handle, FLAT(s->own + 4, SYMMEM_FLOAT32, COUNT / 2), SYMMEM_SUM,
            FLAT(s->out, SYMMEM_FLOAT32, COUNT / 2), 0, s->limit_ms, stream);
    default:
        return symmem_barrier(s->handle, 0, s->limit_ms, stream);
    }
}

static void expect_mismatch(struct tk *t, const struct sum *s, enum oddity oddity, int32_t odd) {
    symmem_error_record record = last_record();
    bool own = s->rank == odd;
    TK_EQ_INT(t, SYMMEM_MISMATCH, record.status);
    TK_EQ_INT(t, own ? (odd == 0 ? 1 : 0) : odd, record.failed_rank);
    TK_EQ_INT(t, 0, record.channel);
    TK_EQ_STR(t, own && oddity == ODD_BARRIER ? "barrier" : "one_shot_all_reduce_out",
              record.operation);
    if (oddity == ODD_COUNT) {
        TK_EQ_SIZE(t, own ? COUNT / 2 - 1 : COUNT / 2, record.expected);
        TK_EQ_SIZE(t, own ? COUNT / 2 : COUNT / 2 - 1, record.actual);
    }
    TK_EQ_INT(t, 0, record.missing_count);
}

TEST_WITH_AND_WITHOUT_STREAM(coll, ranks_disagree, "SM-COLL-06", COLLECTIVES, .min_ranks = 2) {
    struct sum own = sum_begin(t, tk_world_group(t)), *s = &own;
    for (int oddity = 0; oddity < ODDITIES; oddity++) {
        int32_t odd = (int32_t)(t->seed + (uint64_t)oddity) % s->size;
        odd = odd < 0 ? -odd : odd;
        out_mark(t, s);
        tk_checkpoint(t, "oddity %d at rank %d", oddity, (int)odd);
        symmem_status status = s->rank == odd ? odd_call(s, (enum oddity)oddity, stream)
                                              : sum_count(s, SYMMEM_FLOAT32, COUNT / 2, SYMMEM_SUM,
                                                          0, s->limit_ms, stream);
        if (stream != NULL && TK_OK(t, status))
            status = symmem_stream_synchronize(stream, s->limit_ms);
        TK_FAILS(t, MISMATCH, status);
        expect_mismatch(t, s, (enum oddity)oddity, odd);
        out_untouched(t, s);
        TK_CHECK(t, !info_of(t, s->handle).poisoned);
        sum_load(t, s, (uint32_t)oddity);
        TK_OK(t, sum_run(s, 0, s->limit_ms, NULL));
        sum_expect(t, s, (uint32_t)oddity, "after a mismatch");
        tk_out_of_band_barrier(t); /* inputs change again */
    }
}

/* Without checking nothing is compared: each rank reduces as it likes. */
TK_TEST(coll, unchecked_calls_are_not_compared, "SM-COLL-06", .needs = COLLECTIVES,
        .min_ranks = 2) {
    TK_REINIT(t, options.check_collectives = 0);
    struct sum s = sum_begin(t, tk_world_group(t));
    for (int round = 0; round < 2; round++) {
        symmem_reduce_op op = (s.rank + round) % 2 == 0 ? SYMMEM_SUM : SYMMEM_MAX;
        TK_OK(t, sum_count(&s, SYMMEM_FLOAT32, COUNT, op, 0, s.limit_ms, NULL));
    }
    TK_OK(t, symmem_barrier(s.handle, 0, s.limit_ms, NULL));
}

TK_TEST(coll, options_of_checking, "SM-COLL-06", .needs = COLLECTIVES, .min_ranks = 2,
        .flags = TK_PROCESS_ONLY | TK_SETS_ENVIRONMENT) {
    static const int32_t wrong[] = {-2, 2, INT32_MAX};
    for (size_t i = 0; i < TK_COUNT(wrong); i++) {
        symmem_context_options options = tk_options(t);
        symmem_context *context = NULL;
        options.check_collectives = wrong[i];
        TK_FAILS(t, INVALID_ARGUMENT, symmem_init(&options, &context));
        TK_EQ_PTR(t, NULL, context);
    }
    TK_REQUIRE(t, setenv("SYMMEM_CHECK_COLLECTIVES", "1", 1) == 0);
    TK_REINIT(t, options.check_collectives = -1);
    TK_REQUIRE(t, unsetenv("SYMMEM_CHECK_COLLECTIVES") == 0);
    struct sum s = sum_begin(t, tk_world_group(t));
    TK_FAILS(t, MISMATCH,
             sum_count(&s, SYMMEM_FLOAT32, s.rank == 0 ? 3 : 4, SYMMEM_SUM, 0, s.limit_ms, NULL));
}

/* No rank passes an operation without elements before the held rank comes. */
TK_TEST(coll, empty_ones_synchronize, "SM-COLL-07", .needs = COLLECTIVES, .min_ranks = 2) {
    struct sum s = sum_begin(t, tk_world_group(t));
    out_mark(t, &s);
    for (int i = 0; i < held_count(s.size); i++) {
        int32_t held = held_rank(s.size, i);
        if (t->rank == held)
            check_others_held(t, NULL, s.size, (uint64_t)i + 1);
        else
            show_entered(t, (uint64_t)i + 1);
        TK_OK(t, sum_count(&s, SYMMEM_FLOAT32, 0, SYMMEM_SUM, 0, s.limit_ms, NULL));
        show_passed(t, (uint64_t)i + 1);
    }
    out_untouched(t, &s);
}

TK_TEST(coll, missing_rank, "SM-COLL-08,SM-TIMEOUT-14", .needs = COLLECTIVES, .min_ranks = 2) {
    struct sum s = sum_begin(t, tk_world_group(t));
    int32_t absent = (int32_t)(t->seed % (uint64_t)s.size);
    TK_REQ(t, "SM-COLL-08");
    out_mark(t, &s);
    if (s.rank != absent) {
        uint64_t begin_ms = tk_now_ms();
        TK_FAILS(t, TIMEOUT, sum_run(&s, 0, 40, NULL));
        TK_AT_LEAST(t, 40, tk_now_ms() - begin_ms);
        TK_WITHIN(t, 2000, begin_ms);
        symmem_error_record record = last_record();
        TK_EQ_STR(t, "one_shot_all_reduce_out", record.operation);
        TK_CHECK(t, symmem_error_is_missing(&record, absent));
        TK_CHECK(t, info_of(t, s.handle).poisoned);
        TK_FAILS(t, POISONED, sum_run(&s, 0, 40, NULL));
        out_untouched(t, &s);
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(s.handle, s.limit_ms));
    sum_load(t, &s, 3);
    TK_OK(t, sum_run(&s, 0, s.limit_ms, NULL));
    sum_expect(t, &s, 3, "after a reset");
    work_after(t, NULL);
}

TK_TEST(coll, lost_rank, "SM-COLL-08,SM-TIMEOUT-14", .needs = COLLECTIVES, .min_ranks = 2,
        .flags = TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK) {
    struct sum s = sum_begin(t, tk_world_group(t));
    int32_t victim = s.size - 1;
    TK_REQ(t, "SM-COLL-08");
    tk_expect_death(t, victim);
    tk_out_of_band_barrier(t);
    if (s.rank == victim) {
        tk_sleep_ms(20);
        tk_kill_self(t);
    }
    uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, PEER_LOST, sum_run(&s, 0, 60000, NULL));
    TK_EQ_INT(t, victim, last_record().failed_rank);
    tk_expect_prompt(t, victim, begin_ms, tk_now_ms());
    TK_CHECK(t, info_of(t, s.handle).poisoned);
    work_after_loss(t, NULL, victim, 1, NULL);
}

/* Round after round each rank changes its input as soon as its call has ended. */
TK_TEST(coll, inputs_are_free_afterwards, "SM-COLL-01", .needs = COLLECTIVES, .min_ranks = 2) {
    enum { ROUNDS = 200 };
    struct sum s = sum_begin(t, tk_world_group(t));
    for (uint32_t round = 0; round < ROUNDS && !tk_failed(t); round++) {
        sum_load(t, &s, round);
        if (tk_random_below(t, 16) == 0)
            tk_sleep_ms(1);
        TK_OK(t, sum_run(&s, 0, s.limit_ms, NULL));
        sum_expect(t, &s, round, "round");
    }
}

/* What the peer before this one writes into its input, and what it then adds up to: one element. */
static float written(int32_t rank, uint32_t round) {
    return (float)(1000 * (int32_t)(round + 1) + rank);
}

static void write_to_next(struct tk *t, const struct sum *s, uint32_t round) {
    const float value = written(s->rank, round);
    TK_OK(t, symmem_put(s->handle, (s->rank + 1) % s->size, (size_t)s->rank % COUNT * sizeof value,
                        &value, sizeof value, NULL));
}

static void expect_written(struct tk *t, const struct sum *s, uint32_t round) {
    float expected[COUNT] = {0}, values[COUNT], got[COUNT];
    for (int32_t r = 0; r < s->size; r++) {
        const int32_t before = (r + s->size - 1) % s->size;
        ops_fill(values, SYMMEM_FLOAT32, COUNT, r, round);
        values[before % COUNT] = written(before, round);
        for (int i = 0; i < COUNT; i++)
            expected[i] += values[i];
    }
    ops_download(t, got, s->out, sizeof(got));
    ops_expect(t, expected, got, SYMMEM_FLOAT32, COUNT, "with what peers have written");
}

/* Into each other's inputs, with a barrier or signals before the call. */
TK_TEST(coll, writes_of_peers_count, "SM-COLL-18", .needs = COLLECTIVES, .min_ranks = 2) {
    enum { ROUNDS = 40 };
    struct sum s = sum_begin(t, tk_world_group(t));
    const int32_t next = (s.rank + 1) % s.size, before = (s.rank + s.size - 1) % s.size;
    for (uint32_t round = 0; round < ROUNDS && !tk_failed(t); round++) {
        sum_load(t, &s, round);
        TK_OK(t, symmem_barrier(s.handle, 0, s.limit_ms, NULL));
        if (tk_random_below(t, 8) == 0)
            tk_sleep_ms(1);
        write_to_next(t, &s, round);
        if (round % 2 == 0) {
            TK_OK(t, symmem_barrier(s.handle, 0, s.limit_ms, NULL));
        } else {
            TK_OK(t, symmem_put_signal(s.handle, next, 0, s.limit_ms, NULL));
            TK_OK(t, symmem_wait_signal(s.handle, before, 0, s.limit_ms, NULL));
        }
        TK_OK(t, sum_run(&s, 0, s.limit_ms, NULL));
        expect_written(t, &s, round);
        TK_OK(t, symmem_barrier(s.handle, 0, s.limit_ms, NULL)); /* all have taken their inputs */
    }
}

/* In place, so that inputs and outputs are what peers could write to. */
static void sum_in_place(struct tk *t, const struct sum *s) {
    TK_OK(t, symmem_two_shot_all_reduce(s->handle, FLAT(s->own, SYMMEM_FLOAT32, COUNT), SYMMEM_SUM,
                                        0, s->limit_ms, NULL));
    TK_OK(t, symmem_barrier(s->handle, 0, s->limit_ms, NULL));
}

/* What a collective left to a peer is there behind a barrier, and what is then written stays. */
TK_TEST(coll, writes_after_a_barrier_stay, "SM-COLL-19", .needs = COLLECTIVES, .min_ranks = 2) {
    enum { ROUNDS = 40 };
    struct sum s = sum_begin(t, tk_world_group(t));
    for (uint32_t round = 0; round < ROUNDS && !tk_failed(t); round++) {
        const int32_t before = (s.rank + s.size - 1) % s.size;
        float theirs[COUNT], got[COUNT];
        sum_load(t, &s, round);
        sum_in_place(t, &s);
        TK_OK(t, symmem_get(s.handle, (s.rank + 1) % s.size, 0, s.out, sizeof theirs, NULL));
        sum_expect(t, &s, round, "at the next rank");
        ops_download(t, theirs, s.out, sizeof theirs);
        TK_OK(t, symmem_barrier(s.handle, 0, s.limit_ms, NULL));
        write_to_next(t, &s, round);
        TK_OK(t, symmem_barrier(s.handle, 0, s.limit_ms, NULL));
        theirs[before % COUNT] = written(before, round);
        ops_download(t, got, s.own, sizeof got);
        ops_expect(t, theirs, got, SYMMEM_FLOAT32, COUNT, "with what a peer wrote afterwards");
        TK_OK(t, symmem_barrier(s.handle, 0, s.limit_ms, NULL));
    }
}

TK_TEST(coll, on_a_stream, "SM-COLL-09", .needs = COLLECTIVES | STREAMS | SYMMEM_CAP_HOST_FN) {
    struct sum s = sum_begin(t, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    float values[2][COUNT];
    struct gate gate = {0};
    for (uint32_t i = 0; i < 2; i++)
        ops_fill(values[i], SYMMEM_FLOAT32, COUNT, s.rank, i);
    TK_OK(t, symmem_stream_host_fn(stream, gate_fn, &gate));
    TK_OK(t, symmem_copy(t->context, s.own, values[0], sizeof(values[0]), stream));
    TK_OK(t, sum_run(&s, 0, s.limit_ms, stream));
    char *second = tk_alloc(t, COUNT * sizeof(float));
    struct sum later = s;
    later.out = second;
    TK_OK(t, symmem_copy(t->context, s.own, values[1], sizeof(values[1]), stream));
    TK_OK(t, sum_run(&later, 0, s.limit_ms, stream));
    TK_CHECK(t, !is_idle(t, stream));
    gate_open(&gate);
    tk_synchronize(t, stream);
    sum_expect(t, &s, 0, "the first");
    sum_expect(t, &later, 1, "the second");
}

TK_TEST(coll, captured, "SM-COLL-09", .needs = COLLECTIVES | STREAMS | SYMMEM_CAP_CAPTURE) {
    enum { LAUNCHES = 5 };
    struct sum s = sum_begin(t, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    out_mark(t, &s);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, sum_run(&s, 0, s.limit_ms, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    out_untouched(t, &s);
    for (uint32_t launch = 0; launch < LAUNCHES; launch++) {
        sum_load(t, &s, launch);
        run_graph(t, graph, stream);
        sum_expect(t, &s, launch, "a launch");
        /* An eager one between the launches runs in order. */
        out_mark(t, &s);
        TK_OK(t, sum_run(&s, 0, s.limit_ms, stream));
        tk_synchronize(t, stream);
        sum_expect(t, &s, launch, "an eager call");
    }
}

/* One stream's collective is held at one rank; another stream's barrier on the same channel comes
 * after it, one on another channel does not wait. */
TK_TEST(coll, order_on_a_channel, "SM-COLL-10", .needs = COLLECTIVES | STREAMS | SYMMEM_CAP_HOST_FN,
        .min_ranks = 2) {
    struct sum s = sum_begin(t, tk_world_group(t));
    symmem_stream *streams[3] = {tk_stream(t), tk_stream(t), tk_stream(t)};
    struct gate gate = {0};
    sum_load(t, &s, 7);
    if (s.rank != 0)
        gate_open(&gate);
    TK_OK(t, symmem_stream_host_fn(streams[0], gate_fn, &gate));
    TK_OK(t, sum_run(&s, 0, s.limit_ms, streams[0]));
    TK_OK(t, symmem_barrier(s.handle, 0, s.limit_ms, streams[1]));
    TK_OK(t, symmem_barrier(s.handle, 1, s.limit_ms, streams[2]));
    tk_synchronize(t, streams[2]);
    if (s.rank == 0) {
        tk_sleep_ms(20);
        TK_CHECK_MSG(t, !is_idle(t, streams[1]), "a barrier overtook the collective before it");
        gate_open(&gate);
    }
    tk_synchronize(t, streams[1]);
    tk_synchronize(t, streams[0]);
    sum_expect(t, &s, 7, "the held one");
}
