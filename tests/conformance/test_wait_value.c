/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for the value of a word: what they wait for, what they see, and what is refused. */
#include "timeout_help.h"
#include "value_help.h"

#define VALUES SYMMEM_CAP_VALUES
#define DIRECT_VALUES (SYMMEM_CAP_VALUES | SYMMEM_CAP_DIRECT_ACCESS)
#define HIGH (UINT64_C(1) << 32)

/* --- comparisons ------------------------------------------------------------------------------ */

static const uint64_t edges[] = {0,           1,           0x7fffffffu,  0x80000000u,
                                 0xfffffffeu, 0xffffffffu, HIGH,         HIGH + 1,
                                 HIGH << 31,  UINT64_MAX,  HIGH * 7 + 1, 0x80000001u};

/* Those that hold pass at once; of the others one each runs into its limit, for that poisons. */
static void compare_all(struct tk *t, bool wide) {
    const size_t count = wide ? TK_COUNT(edges) : 6;
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const struct value_word word = {t, handle, t->rank, 16, wide};
    for (size_t f = 0; f < count; f++) {
        value_set(&word, edges[f]);
        for (size_t v = 0; v < count; v++)
            for (size_t c = 0; c < TK_COUNT(all_compares); c++)
                if (value_compares(all_compares[c], edges[f], edges[v]))
                    TK_OK(t, value_wait(&word, all_compares[c], edges[v], t->rank, 1, NULL));
    }
}

TK_TEST(wait_value, comparisons_that_hold, "SM-WAITVAL-01,SM-WAITVAL-05", .needs = VALUES,
        .max_ranks = 3) {
    compare_all(t, false);
    compare_all(t, true);
}

/* One word and value for each comparison with which it just does not hold. */
static const struct {
    symmem_compare compare;
    uint64_t found, value;
} unmet[] = {{SYMMEM_EQ, 5, 6},           {SYMMEM_NE, 5, 5},          {SYMMEM_GT, 5, 5},
             {SYMMEM_GE, 5, 6},           {SYMMEM_LT, 5, 5},          {SYMMEM_LE, 5, 4},
             {SYMMEM_GT, 1, 0x80000000u}, {SYMMEM_LT, 0x80000000u, 1}};
static const struct {
    symmem_compare compare;
    uint64_t found, value;
} unmet_wide[] = {{SYMMEM_EQ, HIGH + 5, 5},      {SYMMEM_NE, HIGH * 9, HIGH * 9},
                  {SYMMEM_GE, 5, HIGH},          {SYMMEM_LE, HIGH, UINT32_MAX},
                  {SYMMEM_GT, HIGH, UINT64_MAX}, {SYMMEM_LT, UINT64_MAX, HIGH}};

static void check_value_record(struct tk *t, const struct value_word *word, int32_t source,
                               uint64_t wanted, uint64_t found, uint32_t limit_ms) {
    const symmem_error_record record = last_record();
    char number[24];
    TK_EQ_STR(t, word->wide ? "wait_value64" : "wait_value32", record.operation);
    TK_EQ_INT(t, -1, record.channel);
    TK_EQ_INT(t, source, record.failed_rank);
    check_missing_one(t, &record, source, info_of(t, word->handle).world_size);
    TK_EQ_SIZE(t, wanted, record.expected);
    TK_EQ_SIZE(t, found, record.actual);
    TK_AT_LEAST(t, (uint64_t)(limit_ms - 2) * 1000000u, record.elapsed_ns);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)wanted);
    TK_SAYS(t, number);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)found);
    TK_SAYS(t, number);
}

/* On a block of its own, since it poisons. */
static void expire_unmet(struct tk *t, bool wide, symmem_compare compare, uint64_t found,
                         uint64_t value, int32_t source, uint32_t limit_ms) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const struct value_word word = {t, handle, t->rank, 24, wide};
    value_set(&word, found);
    const uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, TIMEOUT, value_wait(&word, compare, value, source, limit_ms, NULL));
    const uint64_t took_ms = tk_now_ms() - begin_ms;
    TK_WITHIN(t, limit_ms + allowed_excess_ms(limit_ms), begin_ms);
    TK_AT_LEAST(t, limit_ms, took_ms + 2);
    check_value_record(t, &word, source, value, found, limit_ms);
    tk_out_of_band_barrier(t); /* a peer's poison may end a wait, too */
    tk_release(t, handle);
}

TK_TEST(wait_value, limits_pass, "SM-WAITVAL-06,SM-WAITVAL-01", .needs = VALUES, .ranks = {1, 3},
        .timeout_s = 40) {
    for (size_t i = 0; i < TK_COUNT(unmet); i++)
        expire_unmet(t, i % 2 == 1, unmet[i].compare, unmet[i].found, unmet[i].value, t->rank, 25);
    for (size_t i = 0; i < TK_COUNT(unmet_wide); i++)
        expire_unmet(t, true, unmet_wide[i].compare, unmet_wide[i].found, unmet_wide[i].value,
                     t->rank, 25);
    work_after(t, NULL);
}

/* The source is another rank, which makes no call. */
TK_TEST(wait_value, names_the_source, "SM-WAITVAL-06", .needs = VALUES, .ranks = {2, 4}) {
    const uint32_t limit_ms = 60;
    for (int i = 0; i < 2; i++) {
        symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
        const struct value_word word = {t, handle, t->rank, 8, i == 1};
        if (t->rank == 0) {
            value_set(&word, 3);
            TK_FAILS(t, TIMEOUT, value_wait(&word, SYMMEM_GE, 7, t->last, limit_ms, NULL));
            check_value_record(t, &word, t->last, 7, 3, limit_ms);
        }
        tk_out_of_band_barrier(t);
    }
}

/* --- what a wait sees, and where ------------------------------------------------ */

/* Data to the next rank and then a number into its word; what the number says is there. */
static void pass_messages(struct tk *t, symmem_handle *handle, bool wide, bool own_memory,
                          symmem_stream *stream) {
    enum { DATA_WORDS = 1024, WORD_AT = DATA_WORDS * 4 };
    const symmem_handle_info info = info_of(t, handle);
    const int32_t next = (info.rank + 1) % info.world_size;
    const int32_t previous = (info.rank + info.world_size - 1) % info.world_size;
    /* The word lies at the reader, or at the writer. */
    const struct value_word written = {t, handle, own_memory ? next : info.rank, WORD_AT, wide};
    const struct value_word awaited = {t, handle, own_memory ? info.rank : previous, WORD_AT, wide};
    uint32_t *words = tk_scratch(t, DATA_WORDS * 4), *got = tk_scratch(t, DATA_WORDS * 4);
    const uint64_t step = wide ? HIGH : 1;
    for (uint32_t g = 1; g <= 12 && !tk_failed(t); g++) {
        fill_words(words, DATA_WORDS, info.rank, g);
        TK_OK(t, symmem_put(handle, next, 0, words, DATA_WORDS * 4, stream));
        TK_OK(t, value_write(&written, g * step, stream));
        TK_OK(t, value_wait(&awaited, SYMMEM_GE, g * step, previous, LONG_MS, stream));
        TK_OK(t, symmem_get(handle, info.rank, 0, got, DATA_WORDS * 4, stream));
        tk_synchronize(t, stream);
        TK_EQ_SIZE(t, DATA_WORDS, first_wrong_word(got, DATA_WORDS, previous, g));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
    if (info.rank == 0) /* nothing but the word was changed */
        tk_expect_data(t, handle, 0, WORD_AT + (wide ? 8 : 4), "\0\0\0\0\0\0\0\0", 8);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

TEST_WITH_AND_WITHOUT_STREAM(wait_value, what_came_before_is_visible,
                             "SM-WAITVAL-02,SM-WAITVAL-03,SM-WAITVAL-15", DIRECT_VALUES,
                             .ranks = {2, 4}) {
    for (int i = 0; i < 4; i++) {
        symmem_handle *handle = tk_handle(t, 4096 + 64, tk_world_group(t));
        pass_messages(t, handle, i % 2 == 1, i / 2 == 0, stream);
        tk_release(t, handle);
    }
}

ON_EACH_SHAPE(wait_value, ranks_are_group_ranks, "SM-WAITVAL-03", .needs = DIRECT_VALUES,
              .max_ranks = 5) {
    symmem_handle *handle = tk_handle(t, 4096 + 64, group);
    pass_messages(t, handle, shape->count % 2 == 0, true, NULL);
    tk_release(t, handle);
}

/* The CPU's own stores and loads, with the wait for their order: the race detector sees them. */
TK_TEST(wait_value, orders_plain_memory, "SM-WAITVAL-02",
        .needs = DIRECT_VALUES | SYMMEM_CAP_HOST_ACCESS, .ranks = {2, 4},
        .flags = TK_PLAIN_MEMORY) {
    enum { WORDS = 256, ROUNDS = 200, ENOUGH_MS = 4000, LAST_ROUND_SLOT = 0 };
    symmem_handle *handle = tk_handle(t, (WORDS + 4) * 4, tk_world_group(t));
    const uint64_t begun_ms = tk_now_ms();
    uint64_t last_round = UINT64_MAX;
    void *const *buffers = buffers_of(t, handle);
    uint32_t *there = buffers[t->next];
    const uint32_t *here = buffers[t->rank];
    for (int wide = 0; wide < 2; wide++) {
        const struct value_word written = {t, handle, t->next, WORDS * 4 + 8 * (size_t)wide, wide};
        const struct value_word awaited = {t, handle, t->rank, written.offset, wide};
        for (uint32_t g = 1; g <= ROUNDS && !tk_failed(t); g++) {
            fill_words(there, WORDS, t->rank, g);
            TK_OK(t, value_write(&written, g, NULL));
            TK_OK(t, value_wait(&awaited, SYMMEM_EQ, g, t->previous, LONG_MS, NULL));
            TK_EQ_SIZE(t, WORDS, first_wrong_word(here, WORDS, t->previous, g));
            /* Where each round takes long, few are enough, and rank 0 names the last one. A rank
             * that comes late out of the barrier may already see the number of the next round. */
            const uint64_t round = ROUNDS * (uint64_t)wide + g;
            if (t->rank == 0 && last_round > round && tk_now_ms() - begun_ms > ENOUGH_MS)
                tk_share_u64(t, LAST_ROUND_SLOT, round);
            TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
            const uint64_t told = tk_read_u64(t, 0, LAST_ROUND_SLOT);
            last_round = told != 0 ? told : last_round;
            if (last_round <= round)
                break;
        }
    }
}

/* The writer comes long after the wait began, and what the word held before is not enough. */
TK_TEST(wait_value, holds_until_the_word_is_written, "SM-WAITVAL-01", .needs = DIRECT_VALUES,
        .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (uint64_t round = 1; round <= 6; round++) {
        const bool wide = round % 2 == 0;
        const struct value_word word = {t, handle, 0, wide ? 8 : 4, wide};
        const uint64_t before = round * 10, after = wide ? before + HIGH : before + 1;
        if (t->rank == t->last)
            value_set(&word, before);
        tk_out_of_band_barrier(t);
        if (t->rank == t->last) {
            check_others_held(t, NULL, t->world_size, round);
            TK_OK(t, value_write(&word, after, NULL));
        } else {
            show_entered(t, round);
            TK_OK(t, value_wait(&word, round < 3 ? SYMMEM_NE : SYMMEM_GT, before, t->last, LONG_MS,
                                NULL));
            show_passed(t, round);
        }
        tk_out_of_band_barrier(t);
    }
}

/* Every aligned place, to the last of the block; the bytes around stay. */
TK_TEST(wait_value, each_place, "SM-WAITVAL-03,SM-WAITVAL-04", .needs = VALUES, .max_ranks = 2) {
    enum { BYTES = 256 };
    uint8_t expected[BYTES];
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    for (int i = 0; i < BYTES; i++)
        expected[i] = (uint8_t)(i * 7 + 1);
    tk_write(t, handle, t->rank, 0, expected, BYTES);
    for (size_t at = 0; at + 4 <= BYTES; at += 4) {
        const struct value_word word = {t, handle, t->rank, at, false};
        uint32_t found;
        memcpy(&found, expected + at, sizeof(found));
        TK_OK(t, value_wait(&word, SYMMEM_EQ, found, t->rank, 1000, NULL));
    }
    for (size_t at = 0; at + 8 <= BYTES; at += 8) {
        const struct value_word word = {t, handle, t->rank, at, true};
        uint64_t found;
        memcpy(&found, expected + at, sizeof(found));
        TK_OK(t, value_wait(&word, SYMMEM_EQ, found, t->rank, 1000, NULL));
    }
    const struct value_word last = {t, handle, t->rank, BYTES - 8, true};
    TK_FAILS(t, TIMEOUT, value_wait(&last, SYMMEM_EQ, 0, t->rank, 15, NULL));
    tk_expect_data(t, handle, t->rank, 0, expected, BYTES);
}

/* A peer that is in no call at all has a word that holds already. */
TK_TEST(wait_value, needs_no_call_of_the_peer, "SM-WAITVAL-05",
        .needs = DIRECT_VALUES | SYMMEM_CAP_PASSIVE, .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const struct value_word narrow = {t, handle, t->next, 0, false};
    const struct value_word wide = {t, handle, t->next, 8, true};
    tk_fill(t, handle, t->rank, 0, 64, 0x11);
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        TK_OK(t, value_wait(&narrow, SYMMEM_EQ, 0x11111111u, t->next, 1, NULL));
        TK_OK(t, value_wait(&wide, SYMMEM_GT, HIGH, t->next, 1, NULL));
    }
    tk_out_of_band_barrier(t);
}

/* --- what is refused ------------------------------------------------------------ */

TK_TEST(wait_value, misuse_is_refused, "SM-WAITVAL-10", .needs = VALUES, .max_ranks = 3) {
    enum { BYTES = 64 };
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    const int32_t bad_ranks[] = {-1, t->world_size, INT32_MIN, INT32_MAX};
    const int bad_compares[] = {-1, SYMMEM_COMPARE_COUNT, 1000, INT32_MIN};
    const int32_t me = t->rank;
    tk_fill(t, handle, me, 0, BYTES, 0x3C);
    for (size_t i = 0; i < TK_COUNT(bad_ranks); i++) {
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_wait_value32(handle, bad_ranks[i], 0, SYMMEM_EQ, 0, me, 20, NULL));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_wait_value64(handle, me, 0, SYMMEM_EQ, 0, bad_ranks[i], 20, NULL));
    }
    for (size_t i = 0; i < TK_COUNT(bad_compares); i++) {
        const symmem_compare compare = (symmem_compare)bad_compares[i];
        TK_FAILS(t, INVALID_ARGUMENT,
                 symmem_wait_value32(handle, me, 0, compare, 0x3C3C3C3Cu, me, 20, NULL));
        TK_FAILS(t, INVALID_ARGUMENT, symmem_wait_value64(handle, me, 0, compare, 0, me, 20, NULL));
    }
    for (size_t odd = 1; odd < 8; odd++) {
        if (odd % 4 != 0)
            TK_FAILS(t, MISALIGNED,
                     symmem_wait_value32(handle, me, odd, SYMMEM_NE, 0, me, 20, NULL));
        TK_FAILS(t, MISALIGNED, symmem_wait_value64(handle, me, odd, SYMMEM_NE, 0, me, 20, NULL));
    }
    TK_FAILS(t, INVALID_ARGUMENT, symmem_wait_value32(NULL, 0, 0, SYMMEM_NE, 0, 0, 20, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_wait_value64(NULL, 0, 0, SYMMEM_NE, 0, 0, 20, NULL));
    TK_CHECK(t, !info_of(t, handle).poisoned);
    tk_expect_bytes(t, handle, me, 0, BYTES, 0x3C);
}

TK_TEST(wait_value, ends_of_the_block, "SM-WAITVAL-10", .needs = VALUES, .max_ranks = 2,
        .flags = TK_PLAIN_MEMORY) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const int32_t me = t->rank;
    const size_t beyond[] = {64, 72, 1024, (size_t)1 << 40};
    for (size_t i = 0; i < TK_COUNT(beyond); i++) {
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_wait_value32(handle, me, beyond[i], SYMMEM_EQ, 0, me, 20, NULL));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_wait_value64(handle, me, beyond[i], SYMMEM_EQ, 0, me, 20, NULL));
    }
    TK_FAILS(t, OUT_OF_RANGE, symmem_wait_value64(handle, me, 60, SYMMEM_EQ, 0, me, 20, NULL));
    TK_FAILS(t, OVERFLOW,
             symmem_wait_value32(handle, me, SIZE_MAX - 3, SYMMEM_EQ, 0, me, 20, NULL));
    TK_FAILS(t, OVERFLOW,
             symmem_wait_value64(handle, me, SIZE_MAX - 7, SYMMEM_EQ, 0, me, 20, NULL));
    TK_OK(t, symmem_wait_value32(handle, me, 60, SYMMEM_EQ, 0, me, 20, NULL));
    TK_OK(t, symmem_wait_value64(handle, me, 56, SYMMEM_EQ, 0, me, 20, NULL));
    TK_CHECK(t, !info_of(t, handle).poisoned);
}

TK_TEST(wait_value, wide_writes, "SM-WAITVAL-15", .needs = VALUES, .max_ranks = 2,
        .flags = TK_PLAIN_MEMORY) {
    uint64_t words[8];
    int64_t count = 8, stride = 1, none = 0;
    symmem_handle *handle = tk_handle(t, sizeof(words), tk_world_group(t));
    const symmem_handle_info info = info_of(t, handle);
    DLTensor tensor = {.data = buffers_of(t, handle)[info.rank],
                       .device = {(DLDeviceType)t->device_type, info.device},
                       .ndim = 1,
                       .dtype = {kDLUInt, 64, 1},
                       .shape = &count,
                       .strides = &stride};
    DLTensor bad = tensor;
    memset(words, 0xA5, sizeof(words));
    tk_write(t, handle, info.rank, 0, words, sizeof(words));
    TK_OK(t,
          symmem_stream_write_value64(t->context, &tensor, 3, UINT64_C(0x0123456789abcdef), NULL));
    words[3] = UINT64_C(0x0123456789abcdef);
    TK_OK(t, symmem_stream_write_value64(t->context, &tensor, 7, 0, NULL));
    words[7] = 0;
    TK_FAILS(t, OUT_OF_RANGE, symmem_stream_write_value64(t->context, &tensor, 8, 1, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_stream_write_value64(t->context, &tensor, -1, 1, NULL));
    bad.dtype.bits = 32;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_stream_write_value64(t->context, &bad, 0, 1, NULL));
    bad = tensor;
    bad.dtype.code = kDLInt;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_stream_write_value64(t->context, &bad, 0, 1, NULL));
    bad = tensor;
    bad.data = (char *)tensor.data + 4;
    TK_FAILS(t, MISALIGNED, symmem_stream_write_value64(t->context, &bad, 0, 1, NULL));
    bad = tensor;
    bad.strides = &none;
    bad.strides[0] = 2;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_stream_write_value64(t->context, &bad, 0, 1, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_stream_write_value64(t->context, NULL, 0, 1, NULL));
    TK_FAILS(t, NOT_INITIALIZED, symmem_stream_write_value64(NULL, &tensor, 0, 1, NULL));
    tk_expect_data(t, handle, info.rank, 0, words, sizeof(words));
}

TK_TEST(wait_value, goes_on_behind_a_reset, "SM-WAITVAL-16", .needs = VALUES | SYMMEM_CAP_STREAMS,
        .ranks = {2, 3}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const struct value_word word = {t, handle, t->rank, 16, false};
    symmem_stream *stream = tk_stream(t);
    TK_OK(t, value_wait(&word, SYMMEM_EQ, 7, t->rank, LONG_MS, stream));
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    if ((t->capabilities & SYMMEM_CAP_DIRECT_ACCESS) != 0)
        TK_OK(t, value_write(&word, 7, NULL)); /* in order with the wait, as a put is not */
    else
        value_set(&word, 7);
    tk_synchronize(t, stream);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}
