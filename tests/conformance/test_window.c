/* SPDX-License-Identifier: BSD-3-Clause */
/* Counted signals: what they count, what a wait takes, what they are apart from. */
#include "timeout_help.h"
#include "window_help.h"

/* --- counts --------------------------------------------------------------------- */

/* One source gives in calls of several counts; the waits take other portions of them. */
TK_TEST(window, portions, "SM-COUNT-01,SM-COUNT-02", WINDOWS, .ranks = {2, 4}) {
    static const uint32_t given[] = {1, 5, 2, 1000, 1}, taken[] = {3, 1, 4, 1000, 1};
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (size_t i = 0; i < TK_COUNT(given); i++)
        TK_OK(t, give(handle, t->next, INDEX, given[i]));
    for (size_t i = 0; i < TK_COUNT(taken); i++)
        TK_OK(t, take(handle, t->previous, INDEX, taken[i], LONG_MS));
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_FAILS(t, TIMEOUT, take(handle, t->previous, INDEX, 1, 25));
}

/* The last of the signals that a wait needs comes late. */
TK_TEST(window, holds_until_all_have_come, "SM-COUNT-01", WINDOWS, .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (uint64_t round = 1; round <= 3; round++) {
        const uint32_t needed = (uint32_t)round * 3;
        if (t->rank == t->last) {
            for (int32_t r = 0; r < t->last; r++)
                TK_OK(t, give(handle, r, INDEX, needed - 1));
            check_others_held(t, NULL, t->world_size, round);
            for (int32_t r = 0; r < t->last; r++)
                TK_OK(t, give(handle, r, INDEX, 1));
        } else {
            show_entered(t, round);
            TK_OK(t, take(handle, t->last, INDEX, needed, LONG_MS));
            show_passed(t, round);
        }
        tk_out_of_band_barrier(t);
    }
}

/* Of no rank is any signal left: with more than these the number of them would be one that cannot
 * be. */
static void expect_none_left(struct tk *t, symmem_handle *handle) {
    symmem_window_wait waits[8];
    tk_out_of_band_barrier(t);
    for (int32_t r = 0; r < t->world_size; r++) {
        waits[r] = (symmem_window_wait){r, INT32_MAX};
        TK_OK(t, give(handle, r, INDEX, INT32_MAX));
    }
    TK_OK(t, symmem_window_wait_signal(handle, t->world_size, waits, INDEX, LONG_MS, NULL));
    tk_out_of_band_barrier(t);
}

/* Each time they have given what the wait takes, and the last time one of them has not. */
TK_TEST(window, waits_for_several_ranks, "SM-COUNT-01,SM-COUNT-02,SM-COUNT-06,SM-COUNT-07", WINDOWS,
        .max_ranks = 5) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_window_wait waits[8];
    for (int round = 0; round < 3; round++) {
        for (int32_t r = 0; r < t->world_size; r++) {
            waits[r] = (symmem_window_wait){t->last - r, (uint32_t)(t->last - r) + 1};
            TK_OK(t, give(handle, r, INDEX, (uint32_t)t->rank + 1));
        }
        TK_OK(t, symmem_window_wait_signal(handle, t->world_size, waits, INDEX, LONG_MS, NULL));
    }
    expect_none_left(t, handle);
    /* All but the first rank of the list give once more: that is the one that is missing. */
    if (t->rank != t->last)
        TK_OK(t, give(handle, 0, INDEX, (uint32_t)t->rank + 1));
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        TK_FAILS(t, TIMEOUT,
                 symmem_window_wait_signal(handle, t->world_size, waits, INDEX, 40, NULL));
        const symmem_error_record record = last_record();
        TK_EQ_STR(t, "window_wait_signal", record.operation);
        TK_EQ_INT(t, INDEX, record.channel);
        TK_EQ_INT(t, t->last, record.failed_rank);
        check_missing_one(t, &record, t->last, t->world_size);
    }
}

/* Exactly those that have not given enough are missing, this rank among them. */
TK_TEST(window, names_all_that_lack, "SM-COUNT-07", WINDOWS, .ranks = {2, 5}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const bool lacks = t->rank % 2 == 0;
    TK_OK(t, give(handle, 0, INDEX, lacks ? 1 : 2));
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        symmem_window_wait waits[8];
        bool absent[8] = {false};
        for (int32_t r = 0; r < t->world_size; r++) {
            waits[r] = (symmem_window_wait){r, 2};
            absent[r] = r % 2 == 0;
        }
        const uint64_t begin_ms = tk_now_ms();
        TK_FAILS(t, TIMEOUT,
                 symmem_window_wait_signal(handle, t->world_size, waits, INDEX, 40, NULL));
        TK_WITHIN(t, 40 + allowed_excess_ms(40), begin_ms);
        const symmem_error_record record = last_record();
        check_missing(t, &record, absent, t->world_size);
    }
}

TK_TEST(window, giving_waits_for_nobody, "SM-COUNT-03",
        .needs = SYMMEM_CAP_WINDOW | SYMMEM_CAP_PASSIVE, .ranks = {2, 3}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        for (int i = 0; i < 500; i++)
            TK_OK(t, symmem_window_signal(handle, 1, INDEX, 1, 1000, NULL));
    tk_out_of_band_barrier(t);
    if (t->rank == 1)
        TK_OK(t, take(handle, 0, INDEX, 500, LONG_MS));
}

/* Three times the most that may be there at once, so that the words wrap. */
TK_TEST(window, counts_wrap, "SM-COUNT-13,SM-COUNT-02", WINDOWS, .ranks = {2, 2}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (int i = 0; i < 6; i++) {
        TK_OK(t, give(handle, t->next, INDEX, INT32_MAX));
        TK_OK(t, take(handle, t->previous, INDEX, 5, LONG_MS));
        TK_OK(t, take(handle, t->previous, INDEX, INT32_MAX - 5, LONG_MS));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
    if (t->rank == 0)
        TK_FAILS(t, TIMEOUT, take(handle, 1, INDEX, 1, 25));
}

TK_TEST(window, too_many_are_corrupt, "SM-COUNT-12", WINDOWS, .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    TK_OK(t, give(handle, t->next, INDEX, INT32_MAX));
    TK_OK(t, give(handle, t->next, INDEX, 7));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL)); /* all of them have come */
    if (t->rank == 0) {
        TK_FAILS(t, CORRUPT, take(handle, t->previous, INDEX, 1, LONG_MS));
        TK_EQ_INT(t, t->previous, last_record().failed_rank);
        TK_EQ_SIZE(t, (uint64_t)INT32_MAX + 7, last_record().actual);
        TK_EQ_INT(t, INDEX, last_record().channel);
        TK_CHECK(t, info_of(t, handle).poisoned);
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_OK(t, give(handle, t->next, INDEX, 1));
    TK_OK(t, take(handle, t->previous, INDEX, 1, LONG_MS));
}

/* --- what they are apart from --------------------------------------------------- */

/* Of all that is pending nothing but the right signal counts. */
TK_TEST(window, apart_from_all_else, "SM-COUNT-04", WINDOWS, .ranks = {2, 4}) {
    symmem_group *mirrored = reversed_group(t, "reversed");
    void *memory = tk_alloc(t, 64);
    symmem_handle *handle = tk_rendezvous(t, memory, tk_world_group(t));
    symmem_handle *other_group = tk_rendezvous(t, memory, mirrored);
    symmem_handle *other_block = tk_handle(t, 64, tk_world_group(t));
    const int32_t last = info_of(t, handle).channel_count - 1;
    const int32_t there = info_of(t, other_group).world_size - 1 - t->next;
    TK_OK(t, give(handle, t->next, INDEX + 1, 3));
    TK_OK(t, give(handle, t->next, last, 3));
    TK_OK(t, give(other_group, there, INDEX, 3));
    TK_OK(t, give(other_block, t->next, INDEX, 3));
    TK_OK(t, symmem_put_signal(handle, t->next, INDEX, LONG_MS, NULL));
    TK_OK(t, symmem_barrier(handle, INDEX, LONG_MS, NULL));
    if (t->world_size > 2)
        TK_OK(t, give(handle, t->previous, INDEX, 3));
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_FAILS(t, TIMEOUT, take(handle, t->previous, INDEX, 1, 25));
    tk_out_of_band_barrier(t);
}

/* A counted signal is no signal of the channel, and no arrival. */
TK_TEST(window, no_signal_of_the_channel, "SM-COUNT-04", WINDOWS, .ranks = {2, 3}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    TK_OK(t, give(handle, t->next, INDEX, 1));
    TK_OK(t, symmem_barrier(handle, INDEX, LONG_MS, NULL));
    ring_signal(t, handle, INDEX);
    TK_OK(t, take(handle, t->previous, INDEX, 1, LONG_MS));
    TK_OK(t, give(handle, t->next, INDEX, 1));
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, t->previous, INDEX, 25, NULL));
}

/* --- what is visible ------------------------------------------------------------ */

static void windows_move(struct tk *t, symmem_handle *handle, symmem_stream *stream) {
    enum { WORDS = 512 };
    const symmem_handle_info info = info_of(t, handle);
    const int32_t next = (info.rank + 1) % info.world_size;
    const int32_t previous = (info.rank + info.world_size - 1) % info.world_size;
    const symmem_window_wait both = {previous, 2};
    uint32_t *words = tk_scratch(t, WORDS * 8), *got = tk_scratch(t, WORDS * 8);
    for (uint32_t g = 1; g <= 8 && !tk_failed(t); g++) {
        fill_words(words, 2 * WORDS, info.rank, g);
        TK_OK(t,
              symmem_window_put_signal(handle, next, 0, words, WORDS * 4, INDEX, LONG_MS, stream));
        TK_OK(t, symmem_put(handle, next, WORDS * 4, words + WORDS, WORDS * 4, stream));
        TK_OK(t, symmem_window_signal(handle, next, INDEX, 1, LONG_MS, stream));
        TK_OK(t, symmem_window_wait_signal(handle, 1, &both, INDEX, LONG_MS, stream));
        TK_OK(t, symmem_get(handle, info.rank, 0, got, WORDS * 8, stream));
        tk_synchronize(t, stream);
        TK_EQ_SIZE(t, 2 * WORDS, first_wrong_word(got, 2 * WORDS, previous, g));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

TEST_WITH_AND_WITHOUT_STREAM(window, what_came_before_is_visible, "SM-COUNT-05,SM-COUNT-11",
                             SYMMEM_CAP_WINDOW, .max_ranks = 4) {
    windows_move(t, tk_handle(t, 4096, tk_world_group(t)), stream);
}

ON_EACH_SHAPE(window, ranks_are_group_ranks, "SM-COUNT-06,SM-COUNT-05", WINDOWS, .max_ranks = 5) {
    symmem_handle *handle = tk_handle(t, 4096, group);
    windows_move(t, handle, NULL);
    tk_release(t, handle);
}

/* The CPU's own stores and loads: the race detector sees them. */
TK_TEST(window, orders_plain_memory, "SM-COUNT-05",
        .needs = SYMMEM_CAP_WINDOW | SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_DIRECT_ACCESS,
        .ranks = {2, 4}, .flags = TK_PLAIN_MEMORY) {
    enum { WORDS = 256, ROUNDS = 200 };
    symmem_handle *handle = tk_handle(t, WORDS * 4, tk_world_group(t));
    uint32_t *there = buffers_of(t, handle)[t->next];
    const uint32_t *here = buffers_of(t, handle)[t->rank];
    for (uint32_t g = 1; g <= ROUNDS && !tk_failed(t); g++) {
        fill_words(there, WORDS, t->rank, g);
        TK_OK(t, give(handle, t->next, INDEX, 1));
        TK_OK(t, take(handle, t->previous, INDEX, 1, LONG_MS));
        TK_EQ_SIZE(t, WORDS, first_wrong_word(here, WORDS, t->previous, g));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

/* --- what is refused ------------------------------------------------------------ */

TK_TEST(window, misuse_is_refused, "SM-COUNT-09,SM-COUNT-14", WINDOWS, .max_ranks = 3,
        .flags = TK_PLAIN_MEMORY) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const symmem_handle_info info = info_of(t, handle);
    const int32_t me = info.rank, bad_ranks[] = {-1, info.world_size, INT32_MAX};
    const int32_t bad_indexes[] = {-1, info.channel_count, INT32_MIN};
    const uint32_t bad_counts[] = {0, (uint32_t)INT32_MAX + 1, UINT32_MAX};
    const int32_t bad_lengths[] = {0, -1, SYMMEM_WINDOW_PEERS + 1};
    symmem_window_wait waits[SYMMEM_WINDOW_PEERS + 1];
    const uint32_t word = 9;
    for (int i = 0; i <= SYMMEM_WINDOW_PEERS; i++)
        waits[i] = (symmem_window_wait){me, 1};
    for (size_t i = 0; i < 3; i++) {
        TK_FAILS(t, OUT_OF_RANGE, give(handle, bad_ranks[i], INDEX, 1));
        TK_FAILS(t, OUT_OF_RANGE, give(handle, me, bad_indexes[i], 1));
        TK_FAILS(t, OUT_OF_RANGE, give(handle, me, INDEX, bad_counts[i]));
        TK_FAILS(t, OUT_OF_RANGE, take(handle, bad_ranks[i], INDEX, 1, 20));
        TK_FAILS(t, OUT_OF_RANGE, take(handle, me, bad_indexes[i], 1, 20));
        TK_FAILS(t, OUT_OF_RANGE, take(handle, me, INDEX, bad_counts[i], 20));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_window_wait_signal(handle, bad_lengths[i], waits, INDEX, 20, NULL));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_window_put_signal(handle, bad_ranks[i], 0, &word, 4, INDEX, 20, NULL));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_window_put_signal(handle, me, 0, &word, 4, bad_indexes[i], 20, NULL));
    }
    TK_FAILS(t, INVALID_ARGUMENT, symmem_window_wait_signal(handle, 2, waits, INDEX, 20, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_window_wait_signal(handle, 1, NULL, INDEX, 20, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_window_put_signal(handle, me, 61, &word, 4, INDEX, 20, NULL));
    TK_FAILS(t, OVERFLOW,
             symmem_window_put_signal(handle, me, SIZE_MAX, &word, 4, INDEX, 20, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_window_put_signal(handle, me, 0, NULL, 4, INDEX, 20, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, give(NULL, 0, 0, 1));
    TK_FAILS(t, INVALID_ARGUMENT, take(NULL, 0, 0, 1, 20));
    TK_CHECK(t, !info_of(t, handle).poisoned);
    tk_expect_bytes(t, handle, me, 0, 64, 0);
    TK_FAILS(t, TIMEOUT, take(handle, me, INDEX, 1, 20)); /* nothing was given */
}
