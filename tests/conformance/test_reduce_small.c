/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions between tensors outside of symmetric memory, small enough that a backend may move them
 * in some shorter way than large ones: however they alternate, whichever rank is late, absent or
 * lost.
 */
#include "case_help.h"
#include "ops_help.h"
#include "reduce_help.h"
#include "work_after.h"

#define MOST_BYTES ((size_t)1 << 16)

/* Sizes around powers of two, of which some are small to a backend and some are not. */
static const size_t counts[] = {1, 17, 256, 700, 1024, 2048, 2049, 4099, 9000};
static const enum reduce_form forms[] = {FORM_CHOSEN_PRIVATE, FORM_ONE_SHOT_COPY_OUT,
                                         FORM_CHOSEN_PRIVATE_IN_PLACE, FORM_CHOSEN_OUT,
                                         FORM_CHOSEN_IN_PLACE};
#define COUNTS (TK_COUNT(counts))
#define FORMS (TK_COUNT(forms))

static struct reduce_call small_sum(size_t count) {
    return (struct reduce_call){
        .form = FORM_CHOSEN_PRIVATE, .dtype = SYMMEM_FLOAT32, .op = SYMMEM_SUM, .count = count};
}

/* Half of them small and private, so that many of these follow each other directly. */
static struct reduce_call random_one(uint64_t bits) {
    struct reduce_call call = small_sum(counts[bits % 5]);
    if (bits >> 8 & 1) {
        call.form = forms[(bits >> 12) % FORMS];
        call.count = counts[(bits >> 16) % COUNTS];
        call.at = bits >> 20 & 3;
    }
    return call;
}

/* One rank comes late, or stays behind when it has arrived, while the others go on. */
TK_TEST(reduce_small, by_turns, "SM-REDUCE-14", .needs = COLLECTIVES) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), MOST_BYTES);
    int32_t last = info_of(t, desk.handle).channel_count - 1;
    int rounds = tk_suite_is_long() ? 4000 : t->world_size <= 8 ? 160 : 32;
    uint64_t random = t->seed;
    for (int round = 0; round < rounds && !tk_failed(t); round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = random >> 24;
        int32_t late = (int32_t)((bits >> 24) % (uint64_t)t->world_size);
        const struct reduce_call call = random_one(bits);
        desk.channel = round % 16 < 12 ? 0 : last;
        tk_checkpoint(t, "round %d of seed %llu: form %d, %zu elements, rank %d late", round,
                      (unsigned long long)t->seed, (int)call.form, call.count, (int)late);
        if (t->rank == late && round % 4 == 1)
            tk_sleep_ms(1);
        if (t->rank == late && round % 4 == 3)
            tk_on_point(t, "shm.barrier.after_arrive", 0, (struct tk_action){.delay_ms = 1});
        reduce_check(t, &desk, &call);
        tk_forget_points(t);
    }
}

/* A rank that stays behind in one finds what the others had in that, not in the next. */
TK_TEST(reduce_small, left_behind, "SM-COLL-01", .needs = COLLECTIVES, .min_ranks = 2) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), MOST_BYTES);
    const struct reduce_call call = small_sum(300);
    for (int round = 0; round < 6; round++) {
        if (t->rank == round % t->world_size)
            tk_on_point(t, "shm.barrier.after_arrive", 1, (struct tk_action){.delay_ms = 4});
        for (int i = 0; i < 3; i++)
            reduce_check(t, &desk, &call);
        tk_forget_points(t);
    }
}

static symmem_status run_small(const struct reduce_desk *desk, size_t count, uint32_t limit_ms,
                               symmem_stream *stream) {
    return symmem_all_reduce(desk->handle, FLAT(desk->input + REDUCE_MARGIN, SYMMEM_FLOAT32, count),
                             SYMMEM_SUM, FLAT(desk->out + REDUCE_MARGIN, SYMMEM_FLOAT32, count), 0,
                             limit_ms, stream);
}

TK_TEST(reduce_small, without_a_rank, "SM-COLL-08,SM-TIMEOUT-14", .needs = COLLECTIVES,
        .min_ranks = 2) {
    enum { COUNT = 200 };
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), MOST_BYTES);
    const struct reduce_call call = small_sum(COUNT);
    TK_REQ(t, "SM-COLL-08");
    for (int round = 0; round < 2; round++) {
        int32_t absent = (int32_t)((t->seed + (uint64_t)round) % (uint64_t)t->world_size);
        for (int i = 0; i <= round; i++)
            reduce_check(t, &desk, &call);
        reduce_lay(t, desk.out + REDUCE_MARGIN, NULL, COUNT * sizeof(float));
        if (t->rank != absent) {
            TK_FAILS(t, TIMEOUT, run_small(&desk, COUNT, 30, NULL));
            symmem_error_record record = last_record();
            TK_EQ_STR(t, "all_reduce", record.operation);
            TK_CHECK(t, symmem_error_is_missing(&record, absent));
            TK_AT_LEAST(t, 30000000u, record.elapsed_ns);
            TK_CHECK(t, info_of(t, desk.handle).poisoned);
            TK_FAILS(t, POISONED, run_small(&desk, COUNT, 30, NULL));
            reduce_expect_laid(t, desk.out + REDUCE_MARGIN, NULL, SYMMEM_FLOAT32, COUNT, "out");
        }
        tk_out_of_band_barrier(t);
        TK_REQUIRE_OK(t, symmem_handle_reset(desk.handle, desk.limit_ms));
        for (int i = 0; i < 3; i++)
            reduce_check(t, &desk, &call);
    }
    work_after(t, NULL);
}

TK_TEST(reduce_small, rank_lost, "SM-COLL-08,SM-TIMEOUT-14", .needs = COLLECTIVES, .min_ranks = 2,
        .flags = TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), MOST_BYTES);
    const struct reduce_call call = small_sum(200);
    int32_t victim = t->last;
    TK_REQ(t, "SM-COLL-08");
    tk_expect_death(t, victim);
    reduce_check(t, &desk, &call);
    tk_out_of_band_barrier(t);
    if (t->rank == victim)
        tk_kill_self(t);
    uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, PEER_LOST, run_small(&desk, 200, 60000, NULL));
    TK_EQ_INT(t, victim, last_record().failed_rank);
    tk_expect_prompt(t, victim, begin_ms, tk_now_ms());
    work_after_loss(t, NULL, victim, 1, NULL);
}

/* Sizes that differ are found before anything is written, the memory on the way included. */
TK_TEST(reduce_small, ranks_disagree, "SM-COLL-06", .needs = COLLECTIVES, .min_ranks = 2) {
    enum { COUNT = 200, BYTES = COUNT * 4 };
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), MOST_BYTES);
    const struct reduce_call call = small_sum(COUNT);
    for (int round = 0; round < 4; round++) {
        bool odd = t->rank == round % t->world_size;
        size_t other = round % 2 ? COUNT / 2 : 9000; /* of another size, or of another kind */
        reduce_lay(t, desk.out + REDUCE_MARGIN, NULL, BYTES);
        reduce_lay(t, desk.own + REDUCE_MARGIN, NULL, BYTES);
        TK_FAILS(t, MISMATCH, run_small(&desk, odd ? other : COUNT, desk.limit_ms, NULL));
        char marks[BYTES], got[BYTES];
        memset(marks, REDUCE_MARK, sizeof marks);
        ops_download(t, got, desk.out + REDUCE_MARGIN, BYTES);
        ops_expect(t, marks, got, SYMMEM_UINT8, BYTES, "out");
        ops_download(t, got, desk.own + REDUCE_MARGIN, BYTES);
        ops_expect(t, marks, got, SYMMEM_UINT8, BYTES, "the memory on the way");
        TK_CHECK(t, !info_of(t, desk.handle).poisoned);
        reduce_check(t, &desk, &call);
    }
}

/* Three in a graph, eager ones between its launches: an odd number of each. */
TK_TEST(reduce_small, captured, "SM-REDUCE-15",
        .needs = COLLECTIVES | SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE) {
    enum { COUNT = 500, LAUNCHES = 5 };
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), MOST_BYTES);
    char *in = desk.input + REDUCE_MARGIN, *results = tk_alloc(t, (size_t)3 * COUNT * 4);
    desk.stream = tk_stream(t);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(desk.stream));
    for (size_t i = 0; i < 3; i++)
        TK_OK(t, symmem_all_reduce(desk.handle, FLAT(in, SYMMEM_FLOAT32, COUNT), SYMMEM_SUM,
                                   FLAT(results + i * COUNT * 4, SYMMEM_FLOAT32, COUNT), 0,
                                   desk.limit_ms, desk.stream));
    symmem_graph *graph = tk_end_capture(t, desk.stream);
    for (uint32_t launch = 0; launch < LAUNCHES; launch++) {
        struct reduce_data data;
        const struct reduce_call eager = small_sum(100 + launch);
        float got[COUNT];
        reduce_data_begin(t, &data, SYMMEM_FLOAT32, SYMMEM_SUM, COUNT, desk.size, 900 + launch);
        ops_upload(t, in, data.inputs + (size_t)desk.rank * data.bytes, data.bytes);
        run_graph(t, graph, desk.stream);
        for (size_t i = 0; i < 3; i++) {
            ops_download(t, got, results + i * COUNT * 4, sizeof got);
            ops_expect(t, data.expected, got, SYMMEM_FLOAT32, COUNT, "a launched result");
        }
        reduce_data_end(&data);
        reduce_check(t, &desk, &eager);
    }
}

/*
 * Reductions and barriers as programs have them: on streams, in a context that does not compare
 * what ranks call. A backend may have a shorter way for the common ones, beside the one for all.
 */

#define PLAIN_BYTES ((size_t)1 << 20)

static const symmem_dtype plain_dtypes[] = {SYMMEM_BFLOAT16, SYMMEM_FLOAT32, SYMMEM_FLOAT16,
                                            SYMMEM_INT32};
static const symmem_reduce_op plain_operations[] = {SYMMEM_SUM, SYMMEM_AVG, SYMMEM_SUM, SYMMEM_MAX};
/* In elements; of some, whole units of 16 bytes in all places. */
static const size_t plain_counts[] = {8,     4,     100,   512,   2048,  3000,   8192, 16384,
                                      16400, 30000, 32768, 40000, 65536, 100000, 7,    200000};

static struct reduce_desk plain_begin(struct tk *t) {
    TK_REINIT(t, options.check_collectives = 0);
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), PLAIN_BYTES);
    desk.stream = tk_stream(t);
    return desk;
}

static struct reduce_call random_plain(uint64_t bits) {
    struct reduce_call call = {.form = (enum reduce_form)(bits % FORM_COUNT),
                               .dtype = plain_dtypes[(bits >> 8) % TK_COUNT(plain_dtypes)],
                               .op = plain_operations[(bits >> 12) % TK_COUNT(plain_operations)],
                               .count = plain_counts[(bits >> 16) % TK_COUNT(plain_counts)],
                               .at = (bits >> 24) % 3 == 0 ? 3 : 0};
    if (call.dtype == SYMMEM_INT32 && call.op == SYMMEM_AVG)
        call.op = SYMMEM_MIN;
    if ((bits >> 40) % 4 == 0) /* one that a rank ends for another one to use at once */
        call = (struct reduce_call){.form = FORM_TWO_SHOT,
                                    .dtype = plain_dtypes[bits % 3],
                                    .op = SYMMEM_SUM,
                                    .count = 65536};
    return call;
}

/* One rank comes late; barriers, and now and then a call without a stream, are between them. */
TK_TEST(reduce_plain, random_sequence, "SM-REDUCE-14", .needs = COLLECTIVES | SYMMEM_CAP_STREAMS) {
    struct reduce_desk desk = plain_begin(t);
    symmem_stream *stream = desk.stream;
    int32_t last = info_of(t, desk.handle).channel_count - 1;
    int rounds = tk_suite_is_long() ? 600 : t->world_size <= 4 ? 80 : 30;
    uint64_t random = t->seed;
    for (int round = 0; round < rounds && !tk_failed(t); round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = random >> 16;
        const struct reduce_call call = random_plain(bits);
        desk.channel = round % 16 < 12 ? 0 : last;
        desk.stream = bits >> 30 & 3 ? stream : NULL;
        tk_checkpoint(t, "round %d of seed %llu: form %d, dtype %d, op %d, %zu elements at %zu",
                      round, (unsigned long long)t->seed, (int)call.form, (int)call.dtype,
                      (int)call.op, call.count, call.at);
        if (round % 4 == 1 && t->rank == (int32_t)((bits >> 34) % (uint64_t)t->world_size))
            tk_sleep_ms(1);
        if (round % 3 == 0)
            TK_OK(t, symmem_barrier(desk.handle, desk.channel, desk.limit_ms, desk.stream));
        if (desk.stream == stream && round % 3 == 0)
            tk_synchronize(t, stream);
        reduce_check(t, &desk, &call);
    }
    reduce_expect_same_digest(t, &desk);
}

static symmem_status run(const struct reduce_desk *desk, size_t count, bool in_place,
                         uint32_t limit_ms) {
    char *at = in_place ? desk->own : desk->input, *to = in_place ? desk->own : desk->out;
    return symmem_all_reduce(desk->handle, FLAT(at + REDUCE_MARGIN, SYMMEM_FLOAT32, count),
                             SYMMEM_SUM, FLAT(to + REDUCE_MARGIN, SYMMEM_FLOAT32, count), 0,
                             limit_ms, desk->stream);
}

/* The others have arrived once, before they failed, and no more since: so not twice. */
static void comes_when_all_have_gone(struct tk *t, const struct reduce_desk *desk) {
    TK_OK(t, symmem_barrier(desk->handle, 0, 40, desk->stream));
    TK_STATUS_EITHER(t, SYMMEM_OK, SYMMEM_POISONED, /* if that is over already */
                     symmem_barrier(desk->handle, 0, 40, desk->stream));
    symmem_status status = symmem_stream_synchronize(desk->stream, desk->limit_ms);
    TK_CHECK_MSG(t, status == SYMMEM_TIMEOUT || status == SYMMEM_POISONED, "%s",
                 symmem_status_name(status));
}

/* Small and large ones, and a barrier; after the reset all of it works. */
TK_NAMED("reduce_plain.without_a_rank", plain_without_a_rank, "SM-COLL-08,SM-TIMEOUT-14",
         .needs = COLLECTIVES | SYMMEM_CAP_STREAMS, .min_ranks = 2) {
    static const size_t sizes[] = {0, 64, 4096, 65536}; /* 0: a barrier */
    struct reduce_desk desk = plain_begin(t);
    TK_REQ(t, "SM-COLL-08");
    for (size_t i = 0; i < 2 * TK_COUNT(sizes); i++) {
        size_t count = sizes[i / 2];
        int32_t absent = (int32_t)((t->seed + i) % (uint64_t)t->world_size);
        const struct reduce_call call = {.form = i % 2 ? FORM_TWO_SHOT : FORM_ONE_SHOT,
                                         .dtype = SYMMEM_FLOAT32,
                                         .op = SYMMEM_SUM,
                                         .count = count + 64};
        tk_checkpoint(t, "%zu elements, rank %d absent", count, (int)absent);
        if (t->rank != absent) {
            TK_OK(t, count == 0 ? symmem_barrier(desk.handle, 0, 40, desk.stream)
                                : run(&desk, count, i % 2 == 1, 40));
            TK_STATUS_EITHER(t, SYMMEM_OK, SYMMEM_POISONED, /* if that is over already */
                             symmem_barrier(desk.handle, 0, 40, desk.stream));
            TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(desk.stream, desk.limit_ms));
            symmem_error_record record = last_record();
            TK_CHECK(t, symmem_error_is_missing(&record, absent));
            TK_AT_LEAST(t, 40000000u, record.elapsed_ns);
            TK_CHECK(t, info_of(t, desk.handle).poisoned);
        }
        tk_out_of_band_barrier(t);
        if (t->rank == absent)
            comes_when_all_have_gone(t, &desk);
        tk_out_of_band_barrier(t);
        TK_REQUIRE_OK(t, symmem_handle_reset(desk.handle, desk.limit_ms));
        reduce_check(t, &desk, &call);
        TK_OK(t, symmem_barrier(desk.handle, 0, desk.limit_ms, desk.stream));
        tk_synchronize(t, desk.stream);
    }
    work_after(t, desk.stream);
}

/* What a rank wrote to the next one before a barrier is there after it. */
TK_TEST(reduce_plain, barriers_order_writes, "SM-BARRIER-02",
        .needs = COLLECTIVES | SYMMEM_CAP_STREAMS, .min_ranks = 2) {
    enum { ROUNDS = 60 };
    struct reduce_desk desk = plain_begin(t);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint32_t word = round * 100 + (uint32_t)t->rank, seen = 0;
        TK_OK(t, symmem_put(desk.handle, t->next, 0, &word, 4, desk.stream));
        TK_OK(t, symmem_barrier(desk.handle, 0, desk.limit_ms, desk.stream));
        TK_OK(t, symmem_get(desk.handle, t->rank, 0, &seen, 4, desk.stream));
        TK_OK(t, symmem_barrier(desk.handle, 1, desk.limit_ms, desk.stream));
        tk_synchronize(t, desk.stream);
        TK_EQ_INT(t, round * 100 + (uint32_t)t->previous, seen);
    }
}

/*
 * Reductions of a few MiB, where implementations begin to go past the caches: each element is
 * looked at, with beginnings and ends that are no multiple of a line.
 */

enum { WORDS = (8 << 20) / 4 + 1029, LESS = (4 << 20) / 4 + 77, AT = 3 };

struct room {
    symmem_handle *handle;
    char *own, *input, *out; /* the last two elsewhere */
    uint32_t *words;
    uint32_t limit_ms;
};

static uint32_t input_word(int32_t rank, uint32_t generation, size_t i) {
    return (uint32_t)(rank + 1) * 0x01000193u + generation * 0x9e3779b1u + (uint32_t)i;
}

static void lay(struct tk *t, const struct room *room, char *at, size_t count,
                uint32_t generation) {
    for (size_t i = 0; i < count; i++)
        room->words[i] = input_word(t->rank, generation, i);
    ops_upload(t, at, room->words, count * 4);
}

/* `count` sums from element `first` on; the words around them were zero and still are. */
static void expect_sums(struct tk *t, const struct room *room, char *at, size_t first, size_t count,
                        uint32_t generation, const char *what) {
    size_t i = 0;
    ops_download(t, room->words, at - AT * 4, (AT + count + 1) * 4);
    for (; i < count; i++) {
        uint32_t sum = 0;
        for (int32_t r = 0; r < t->world_size; r++)
            sum += input_word(r, generation, first + i);
        if (room->words[AT + i] != sum)
            break;
    }
    TK_CHECK_MSG(t, i == count, "%s: element %zu of %zu is wrong", what, i, count);
    TK_EQ_INT(t, 0, room->words[AT - 1]);
    TK_EQ_INT(t, 0, room->words[AT + count]);
}

static void clear(struct tk *t, const struct room *room, char *at) {
    memset(room->words, 0, (WORDS + 16) * 4);
    ops_upload(t, at, room->words, (WORDS + 16) * 4);
}

static void all_reduces(struct tk *t, const struct room *room) {
    char *own = room->own + AT * 4, *far = room->out + AT * 4;
    lay(t, room, own, LESS, 1);
    TK_OK(t,
          symmem_one_shot_all_reduce_out(room->handle, FLAT(own, SYMMEM_UINT32, LESS), SYMMEM_SUM,
                                         FLAT(far, SYMMEM_UINT32, LESS), 0, room->limit_ms, NULL));
    expect_sums(t, room, far, 0, LESS, 1, "one_shot_all_reduce_out");
    clear(t, room, room->out);
    TK_OK(t,
          symmem_two_shot_all_reduce_out(room->handle, FLAT(own, SYMMEM_UINT32, LESS), SYMMEM_SUM,
                                         FLAT(far, SYMMEM_UINT32, LESS), 0, room->limit_ms, NULL));
    expect_sums(t, room, far, 0, LESS, 1, "two_shot_all_reduce_out");
    clear(t, room, room->own);
    lay(t, room, room->input, WORDS, 2);
    TK_OK(t, symmem_all_reduce(room->handle, FLAT(room->input, SYMMEM_UINT32, WORDS), SYMMEM_SUM,
                               FLAT(own, SYMMEM_UINT32, WORDS), 0, room->limit_ms, NULL));
    expect_sums(t, room, own, 0, WORDS, 2, "all_reduce into symmetric memory");
    clear(t, room, room->out);
    TK_OK(t, symmem_all_reduce(room->handle, FLAT(room->input, SYMMEM_UINT32, WORDS), SYMMEM_SUM,
                               FLAT(far, SYMMEM_UINT32, WORDS), 0, room->limit_ms, NULL));
    expect_sums(t, room, far, 0, WORDS, 2, "all_reduce elsewhere");
}

static void reduce_scatters(struct tk *t, const struct room *room) {
    const size_t size = (size_t)t->world_size, part = WORDS / size;
    char *own = room->own + AT * 4, *far = room->out + AT * 4;
    for (uint32_t symmetric = 0; symmetric < 2; symmetric++) {
        char *from = symmetric ? own : room->input;
        clear(t, room, room->out);
        lay(t, room, from, part * size, 3 + symmetric);
        TK_OK(t, symmem_low_contention_reduce_scatter(
                     room->handle, FLAT(from, SYMMEM_UINT32, part * size), SYMMEM_SUM,
                     FLAT(far, SYMMEM_UINT32, part), 0, room->limit_ms, NULL));
        expect_sums(t, room, far, (size_t)t->rank * part, part, 3 + symmetric,
                    symmetric ? "pulled parts" : "pushed parts");
        TK_OK(t, symmem_barrier(room->handle, 0, room->limit_ms, NULL));
    }
}

TK_TEST(reduce, past_the_caches, "SM-REDUCE-01,SM-REDUCE-02,SM-REDUCE-10", .needs = COLLECTIVES,
        .ranks = {2, 2}, .timeout_s = 40) {
    struct room room = {.handle = tk_handle(t, (WORDS + 16) * 4, tk_world_group(t)),
                        .input = tk_alloc(t, (WORDS + 16) * 4),
                        .out = tk_alloc(t, (WORDS + 16) * 4),
                        .words = tk_scratch(t, (WORDS + 16) * 4),
                        .limit_ms = tk_scaled_ms(LONG_MS)};
    room.own = ops_own(t, room.handle);
    all_reduces(t, &room);
    reduce_scatters(t, &room);
}
