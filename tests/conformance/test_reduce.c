/* SPDX-License-Identifier: BSD-3-Clause */
/* One-shot and two-shot all-reduce: every dtype, op, size and group against the scalar reference.
 */
#include "case_help.h"
#include "reduce_help.h"
#include "walk.h"

#define MOST_BYTES ((size_t)1 << 16)

/* --- PyTorch's counterparts ------------------------------------------------------------------- */

struct some_forms {
    const enum reduce_form *forms;
    int count;
};

/* Every dtype with every op, the forms alternating (all with SYMMEM_SUITE_LONG=1), in small sizes
 * that leave tails of every length, at the handle's place and behind it. */
static void forms_on_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                           void *arg) {
    const struct some_forms *some = arg;
    struct reduce_desk desk = reduce_desk_begin(t, group, MOST_BYTES);
    (void)shape;
    for (int i = reduce_first_pair(t, &desk); i < reduce_pair_count(); i += reduce_step(&desk)) {
        for (int f = 0; f < (tk_suite_is_long() ? some->count : 1); f++) {
            uint64_t turn = t->seed + (uint64_t)i + (uint64_t)f;
            struct reduce_call call = {.form = some->forms[turn % (uint64_t)some->count],
                                       .count = (size_t)(turn * 37 % 131),
                                       .at = turn % 3 == 0 ? 0 : turn % 8};
            reduce_pair(i, &call.dtype, &call.op);
            tk_checkpoint(t, "%s, pair %d, form %d, %zu elements", shape->name, i, (int)call.form,
                          call.count);
            reduce_check(t, &desk, &call);
        }
    }
    /* The sizes and places of PyTorch's test. */
    const size_t sizes[3] = {4, 8192, 8196};
    for (int i = 0; i < 6; i++) {
        const struct reduce_call call = {.form = some->forms[i % some->count],
                                         .dtype = i < 3 ? SYMMEM_FLOAT32 : SYMMEM_BFLOAT16,
                                         .op = SYMMEM_SUM,
                                         .count = sizes[i % 3] / (i < 3 ? 4 : 2),
                                         .at = i % 2 == 0 ? 0 : 16};
        reduce_check(t, &desk, &call);
    }
}

TK_PORTED(test_one_shot_all_reduce, "SM-REDUCE-01,SM-REDUCE-02,SM-REDUCE-03,SM-COLL-01",
          .needs = COLLECTIVES) {
    static const enum reduce_form forms[] = {FORM_ONE_SHOT_OUT, FORM_ONE_SHOT_COPY_OUT,
                                             FORM_ONE_SHOT, FORM_ONE_SHOT_COPY};
    struct some_forms some = {forms, 4};
    TK_REQ(t, "SM-REDUCE-02");
    tk_for_each_group_shape(t, forms_on_shape, &some);
}

TK_PORTED(test_two_shot_all_reduce, "SM-REDUCE-02,SM-REDUCE-06,SM-REDUCE-07,SM-COLL-01",
          .needs = COLLECTIVES) {
    static const enum reduce_form forms[] = {FORM_TWO_SHOT, FORM_TWO_SHOT_OUT};
    struct some_forms some = {forms, 2};
    TK_REQ(t, "SM-REDUCE-02");
    tk_for_each_group_shape(t, forms_on_shape, &some);
}

/* Recorded once on persistent memory, launched with new data each time: what the eager call gives.
 */
struct lowered {
    symmem_handle *handle;
    char *own, *out;
    symmem_stream *stream;
};

static void launch_and_compare(struct tk *t, const struct lowered *l, symmem_graph *graph,
                               uint32_t generation) {
    enum { COUNT = 1000 };
    struct reduce_data data;
    char got[COUNT * 4];
    symmem_handle_info info = info_of(t, l->handle);
    reduce_data_begin(t, &data, SYMMEM_FLOAT32, SYMMEM_SUM, COUNT, info.world_size, generation);
    for (int eager = 0; eager < 2; eager++) {
        reduce_lay(t, l->out, NULL, sizeof got);
        reduce_lay(t, l->own, data.inputs + (size_t)info.rank * sizeof got, sizeof got);
        if (eager)
            TK_OK(t, symmem_one_shot_all_reduce_out(l->handle, FLAT(l->own, SYMMEM_FLOAT32, COUNT),
                                                    SYMMEM_SUM, FLAT(l->out, SYMMEM_FLOAT32, COUNT),
                                                    0, LONG_MS, l->stream));
        else
            TK_OK(t, symmem_graph_launch(graph, l->stream));
        tk_synchronize(t, l->stream);
        reduce_expect_laid(t, l->out, data.expected, SYMMEM_FLOAT32, COUNT,
                           eager ? "the eager result" : "the launched result");
    }
    reduce_data_end(&data);
}

TK_PORTED(test_lowering_one_shot_all_reduce, "SM-REDUCE-15",
          .needs = COLLECTIVES | SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE) {
    enum { COUNT = 1000, BYTES = COUNT * 4 + 2 * REDUCE_MARGIN };
    symmem_alloc_options options;
    struct lowered l = {.stream = tk_stream(t)};
    void *memory[2];
    for (int i = 0; i < 2; i++) {
        symmem_alloc_options_init(&options);
        options.alloc_id = 71 + (uint64_t)i;
        TK_REQUIRE_OK(t, symmem_alloc(t->context, BYTES, -1, &options, &memory[i]));
    }
    l.handle = tk_rendezvous(t, memory[0], tk_world_group(t));
    l.own = ops_own(t, l.handle) + REDUCE_MARGIN;
    l.out = (char *)memory[1] + REDUCE_MARGIN;
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(l.stream));
    TK_OK(t,
          symmem_one_shot_all_reduce_out(l.handle, FLAT(l.own, SYMMEM_FLOAT32, COUNT), SYMMEM_SUM,
                                         FLAT(l.out, SYMMEM_FLOAT32, COUNT), 0, LONG_MS, l.stream));
    symmem_graph *graph = tk_end_capture(t, l.stream);
    for (uint32_t generation = 1; generation <= 4; generation++)
        launch_and_compare(t, &l, graph, generation);
    for (int i = 0; i < 2; i++)
        TK_OK(t, symmem_free(t->context, memory[i]));
}

/* --- sizes ------------------------------------------------------------------------------------ */

/* Any count with any pair and form: sampled, all forms and pairs with SYMMEM_SUITE_LONG=1. */
TK_TEST(reduce, every_count, "SM-REDUCE-02,SM-REDUCE-11", .needs = COLLECTIVES, .timeout_s = 60) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), MOST_BYTES);
    int pairs = reduce_pair_count();
    int rounds = tk_suite_is_long() ? pairs * FORM_COUNT : 1;
    TK_REQ(t, "SM-REDUCE-02");
    for (size_t count = 0; count <= 130; count++)
        for (int round = 0; round < rounds; round++) {
            uint64_t turn = t->seed + count * 7 + (uint64_t)round;
            struct reduce_call call = {
                .form = (enum reduce_form)(turn % FORM_COUNT), .count = count, .at = turn / 11 % 9};
            reduce_pair((int)(turn / FORM_COUNT % (uint64_t)pairs), &call.dtype, &call.op);
            tk_checkpoint(t, "%zu of dtype %d, op %d, form %d", count, (int)call.dtype,
                          (int)call.op, (int)call.form);
            reduce_check(t, &desk, &call);
        }
    reduce_expect_same_digest(t, &desk);
}

/* Sizes at which pieces, shards and vectors do not come out even: the forms and pairs alternating,
 * every pair and every form with SYMMEM_SUITE_LONG=1. */
TK_TEST(reduce, odd_counts, "SM-REDUCE-02,SM-REDUCE-11", .needs = COLLECTIVES, .max_ranks = 8,
        .timeout_s = 600) {
    static const size_t counts[] = {997,   1009,   4099,   16381,         65537,
                                    99991, 100003, 262147, (1 << 20) - 1, (1 << 20) + 1};
    int kinds = (int)(TK_COUNT(counts));
    if (t->world_size > 4 && !tk_suite_is_long())
        kinds = 6; /* the host's part grows with the square of the ranks */
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), ((size_t)1 << 20) * 8 + 64);
    TK_REQ(t, "SM-REDUCE-02");
    for (int i = 0; i < kinds; i++)
        for (int f = 0; f < (tk_suite_is_long() ? reduce_pair_count() : i < 4 ? 3 : 1); f++) {
            uint64_t turn = t->seed + (uint64_t)(3 * i + f);
            struct reduce_call call = {
                .form = (enum reduce_form)(turn % FORM_COUNT), .count = counts[i], .at = turn % 5};
            reduce_pair((int)(turn % (uint64_t)reduce_pair_count()), &call.dtype, &call.op);
            if (!tk_suite_is_long() && i >= 4) /* the host's part takes long */
                call.dtype = i % 2 == 0 ? SYMMEM_FLOAT32 : SYMMEM_UINT8, call.op = SYMMEM_SUM;
            tk_checkpoint(t, "%zu of dtype %d, op %d, form %d", call.count, (int)call.dtype,
                          (int)call.op, (int)call.form);
            reduce_check(t, &desk, &call);
        }
    reduce_expect_same_digest(t, &desk);
}

/* Random counts, places, dtypes, ops, forms and groups, one after the other. */
TK_TEST(reduce, random_sequence, "SM-REDUCE-02,SM-REDUCE-14", .needs = COLLECTIVES,
        .timeout_s = 60) {
    enum { GROUPS = 4 };
    struct reduce_desk desks[GROUPS] = {{0}};
    int desk_count = 0, rounds = tk_suite_is_long() ? 10000 : 300;
    int32_t ranks[SYMMEM_MAX_WORLD_SIZE];
    uint64_t random = t->seed;
    static const char *const names[GROUPS] = {"first_1", "first_2", "first_3", "all"};
    TK_REQ(t, "SM-REDUCE-14");
    for (int32_t r = 0; r < t->world_size; r++)
        ranks[r] = t->last - r;
    for (int g = 0; g < GROUPS && g < t->world_size; g++) {
        int32_t size = g == GROUPS - 1 ? t->world_size : g + 1;
        if (t->rank < t->world_size - size)
            continue;
        desks[g] = reduce_desk_begin(t, tk_group(t, names[g], ranks, size), MOST_BYTES);
        desk_count = g + 1;
    }
    if (t->rank == 0)
        tk_note(t, "%d reductions, seed %llu", rounds, (unsigned long long)t->seed);
    for (int round = 0; round < rounds; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = random >> 24;
        int g = (int)(bits % 5 % (uint64_t)(t->world_size < GROUPS ? t->world_size : GROUPS));
        struct reduce_call call = {.form = (enum reduce_form)(bits / 8 % FORM_COUNT),
                                   .count = (size_t)(bits / 128 % ((uint64_t)1 << bits / 16 % 13)),
                                   .at = bits / 32 % 8};
        reduce_pair((int)(bits / 64 % (uint64_t)reduce_pair_count()), &call.dtype, &call.op);
        bool member = t->rank >= t->world_size - (g == GROUPS - 1 ? t->world_size : g + 1);
        if (!member || g >= desk_count)
            continue;
        tk_checkpoint(t, "round %d of seed %llu: group %d, %zu of dtype %d, op %d, form %d", round,
                      (unsigned long long)t->seed, g, call.count, (int)call.dtype, (int)call.op,
                      (int)call.form);
        reduce_check(t, &desks[g], &call);
    }
}

/* --- in order, however late ------------------------------------------------------------------- */

/* Two different reductions on one place, the input rewritten between them, one rank late at the
 * first, or after it has arrived there: where no rank waits for what it reads, it reads too late.
 */
TK_TEST(reduce, late_rank, "SM-REDUCE-14,SM-COLL-01", .needs = COLLECTIVES, .min_ranks = 2) {
    static const enum reduce_form pairs[][2] = {
        {FORM_ONE_SHOT_OUT, FORM_TWO_SHOT},       {FORM_ONE_SHOT_OUT, FORM_ONE_SHOT_OUT},
        {FORM_TWO_SHOT_OUT, FORM_ONE_SHOT_OUT},   {FORM_TWO_SHOT, FORM_ONE_SHOT_OUT},
        {FORM_ONE_SHOT_COPY_OUT, FORM_TWO_SHOT},  {FORM_CHOSEN_PRIVATE, FORM_CHOSEN_PRIVATE},
        {FORM_CHOSEN_PRIVATE, FORM_ONE_SHOT_OUT}, {FORM_CHOSEN_TO_SYMMETRIC, FORM_TWO_SHOT},
    };
    const int count = (int)(TK_COUNT(pairs));
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), MOST_BYTES);
    int32_t last = info_of(t, desk.handle).channel_count - 1;
    TK_REQ(t, "SM-REDUCE-14");
    for (int turn = 0; turn < 2 * count; turn++) {
        int i = turn % count;
        int32_t late = (int32_t)((t->seed + (uint64_t)i) % (uint64_t)t->world_size);
        bool arrived = i % 2 == 0;
        desk.channel = turn < count ? 0 : last; /* a backend may do more for the first ones */
        tk_checkpoint(t, "forms %d and %d, rank %d late", (int)pairs[i][0], (int)pairs[i][1],
                      (int)late);
        if (t->rank == late && arrived)
            tk_on_point(t, "shm.barrier.after_arrive", 0, (struct tk_action){.delay_ms = 2});
        if (t->rank == late && !arrived)
            tk_sleep_ms(3);
        for (int k = 0; k < 2; k++) {
            const struct reduce_call call = {
                .form = pairs[i][k], .dtype = SYMMEM_FLOAT32, .op = SYMMEM_SUM, .count = 700};
            reduce_check(t, &desk, &call);
        }
        tk_forget_points(t);
    }
}

/* Every pair of dtype and op, the forms alternating, on a stream and on a channel other than the
 * first. */
TK_TEST(reduce, on_streams, "SM-REDUCE-02", .needs = COLLECTIVES | SYMMEM_CAP_STREAMS,
        .max_ranks = 3) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), MOST_BYTES);
    desk.stream = tk_stream(t);
    desk.channel = info_of(t, desk.handle).channel_count - 1;
    for (int i = 0; i < reduce_pair_count(); i++) {
        uint64_t turn = t->seed + (uint64_t)i;
        struct reduce_call call = {.form = (enum reduce_form)(turn % FORM_COUNT),
                                   .count = (size_t)(turn * 337 % 1031),
                                   .at = turn % 5};
        reduce_pair(i, &call.dtype, &call.op);
        tk_checkpoint(t, "pair %d, form %d, %zu elements", i, (int)call.form, call.count);
        reduce_check(t, &desk, &call);
    }
}

/* Two at a time on one handle, on two streams and channels, which the ranks begin in opposite
 * order: neither waits for the other, nor pairs with it. */
TK_TEST(reduce, channels_are_apart, "SM-REDUCE-14,SM-COLL-10",
        .needs = COLLECTIVES | SYMMEM_CAP_STREAMS, .ranks = {2, 4}) {
    enum { ROUNDS = 8, BYTES = 2048 };
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 4 * BYTES);
    symmem_stream *streams[2] = {tk_stream(t), tk_stream(t)};
    TK_REQ(t, "SM-REDUCE-14");
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct reduce_data data[2];
        for (int i = 0; i < 2; i++) {
            size_t place = REDUCE_MARGIN + (size_t)i * BYTES;
            reduce_data_begin(t, &data[i], SYMMEM_FLOAT32, SYMMEM_SUM, 300 + (size_t)i,
                              t->world_size, 2 * round + (uint32_t)i);
            ops_upload(t, desk.own + place, data[i].inputs + (size_t)t->rank * data[i].bytes,
                       data[i].bytes);
        }
        for (int k = 0; k < 2; k++) {
            int i = (k + t->rank) % 2;
            size_t place = REDUCE_MARGIN + (size_t)i * BYTES;
            TK_OK(t, symmem_one_shot_all_reduce_out(
                         desk.handle, FLAT(desk.own + place, SYMMEM_FLOAT32, data[i].count),
                         SYMMEM_SUM, FLAT(desk.out + place, SYMMEM_FLOAT32, data[i].count), i,
                         desk.limit_ms, streams[i]));
            tk_sleep_ms(1);
        }
        for (int i = 0; i < 2; i++) {
            char got[BYTES];
            tk_synchronize(t, streams[i]);
            ops_download(t, got, desk.out + REDUCE_MARGIN + (size_t)i * BYTES, data[i].bytes);
            ops_expect(t, data[i].expected, got, SYMMEM_FLOAT32, data[i].count, "the result");
            reduce_data_end(&data[i]);
        }
    }
}
