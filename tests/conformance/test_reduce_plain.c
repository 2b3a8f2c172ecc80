/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions and barriers as programs have them: on streams, in a context that does not compare
 * what ranks call. A backend may have a shorter way for the common ones, beside the one for all.
 */
#include "reduce_help.h"
#include "work_after.h"

#define MOST_BYTES ((size_t)1 << 20)

static const symmem_dtype dtypes[] = {SYMMEM_BFLOAT16, SYMMEM_FLOAT32, SYMMEM_FLOAT16,
                                      SYMMEM_INT32};
static const symmem_reduce_op operations[] = {SYMMEM_SUM, SYMMEM_AVG, SYMMEM_SUM, SYMMEM_MAX};
/* In elements; of some, whole units of 16 bytes in all places. */
static const size_t counts[] = {8,     4,     100,   512,   2048,  3000,   8192, 16384,
                                16400, 30000, 32768, 40000, 65536, 100000, 7,    200000};
#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))

static struct reduce_desk begin(struct tk *t) {
    symmem_context_options options = tk_options(t);
    options.check_collectives = 0;
    tk_reinit(t, &options);
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), MOST_BYTES);
    desk.stream = tk_stream(t);
    return desk;
}

static struct reduce_call random_one(uint64_t bits) {
    struct reduce_call call = {.form = (enum reduce_form)(bits % FORM_COUNT),
                               .dtype = dtypes[(bits >> 8) % LENGTH(dtypes)],
                               .op = operations[(bits >> 12) % LENGTH(operations)],
                               .count = counts[(bits >> 16) % LENGTH(counts)],
                               .at = (bits >> 24) % 3 == 0 ? 3 : 0};
    if (call.dtype == SYMMEM_INT32 && call.op == SYMMEM_AVG)
        call.op = SYMMEM_MIN;
    if ((bits >> 40) % 4 == 0) /* one that a rank ends for another one to use at once */
        call = (struct reduce_call){
            .form = FORM_TWO_SHOT, .dtype = dtypes[bits % 3], .op = SYMMEM_SUM, .count = 65536};
    return call;
}

/* One rank comes late; barriers, and now and then a call without a stream, are between them. */
TK_TEST(reduce_plain, random_sequence, "SM-REDUCE-14", .needs = COLLECTIVES | SYMMEM_CAP_STREAMS) {
    struct reduce_desk desk = begin(t);
    symmem_stream *stream = desk.stream;
    int32_t last = info_of(t, desk.handle).channel_count - 1;
    int rounds = tk_suite_is_long() ? 600 : t->world_size <= 4 ? 80 : 30;
    uint64_t random = t->seed;
    for (int round = 0; round < rounds && !tk_failed(t); round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = random >> 16;
        const struct reduce_call call = random_one(bits);
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
TK_TEST(reduce_plain, without_a_rank, "SM-COLL-08,SM-TIMEOUT-14",
        .needs = COLLECTIVES | SYMMEM_CAP_STREAMS, .min_ranks = 2) {
    static const size_t sizes[] = {0, 64, 4096, 65536}; /* 0: a barrier */
    struct reduce_desk desk = begin(t);
    TK_REQ(t, "SM-COLL-08");
    for (size_t i = 0; i < 2 * LENGTH(sizes); i++) {
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
    struct reduce_desk desk = begin(t);
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
