/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals: ordering, back-pressure, isolation, ranges. */
#include "case_help.h"

/* A wait for a signal, with what the others are shown before and after it. */
static void wait_shown(struct tk *t, symmem_handle *handle, int32_t source, int32_t channel,
                       uint64_t round) {
    show_entered(t, round);
    TK_OK(t, symmem_wait_signal(handle, source, channel, LONG_MS, NULL));
    show_passed(t, round);
}

/* The peer has begun the round and, a moment later, is not through it. */
static void check_held(struct tk *t, int32_t peer, uint64_t round, const char *what) {
    (void)await_shared(t, peer, 0, round);
    tk_sleep_ms(15);
    TK_CHECK_MSG(t, tk_read_u64(t, peer, 1) < round, "round %llu: %s", (unsigned long long)round,
                 what);
}

/* Each rank in turn puts last; everybody else waits for it long before. */
TK_TEST(signal, wait_holds_until_put, "SM-SIGNAL-01,SM-SIGNAL-11", .min_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (int i = 0; i < held_count(t->world_size); i++) {
        int32_t source = held_rank(t->world_size, i);
        uint64_t round = (uint64_t)i + 1;
        if (t->rank == source) {
            check_others_held(t, NULL, t->world_size, round);
            for (int32_t r = 0; r < t->world_size; r++)
                if (r != source)
                    TK_OK(t, symmem_put_signal(handle, r, 0, LONG_MS, NULL));
        } else {
            wait_shown(t, handle, source, 0, round);
        }
    }
}

TK_TEST(signal, put_waits_for_consumption, "SM-SIGNAL-02", .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    uint32_t limit_ms = LONG_MS;
    for (int32_t source = 0; source < t->world_size; source++) {
        int32_t target = (source + 1) % t->world_size;
        uint64_t round = (uint64_t)source + 1;
        if (t->rank == source) {
            TK_OK(t, symmem_put_signal(handle, target, 2, limit_ms, NULL));
            show_entered(t, round);
            TK_OK(t, symmem_put_signal(handle, target, 2, limit_ms, NULL));
            show_passed(t, round);
        }
        if (t->rank == target) {
            check_held(t, source, round,
                       "a second put did not wait for the first one's consumption");
            TK_OK(t, symmem_wait_signal(handle, source, 2, limit_ms, NULL));
            (void)await_shared(t, source, 1, round);
            TK_OK(t, symmem_wait_signal(handle, source, 2, limit_ms, NULL));
        }
        tk_out_of_band_barrier(t);
    }
}

TK_TEST(signal, consumed_signal_is_gone, "SM-SIGNAL-03", .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    uint32_t limit_ms = LONG_MS;
    int32_t source = t->last;
    for (uint64_t round = 1; round <= 3; round++) {
        if (t->rank == source) {
            (void)await_shared(t, 0, 1, round - 1); /* the earlier one was consumed */
            check_held(t, 0, round, "a wait passed without a put of its own");
            TK_OK(t, symmem_put_signal(handle, 0, 1, limit_ms, NULL));
        }
        if (t->rank == 0) {
            wait_shown(t, handle, source, 1, round);
        }
    }
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, source, 1, 30, NULL));
}

/* A signal on channel a must leave a wait on channel b alone; both are served in the end. */
TK_TEST(signal, channels_are_apart, "SM-SIGNAL-04", .ranks = {2, 2}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    int32_t last = info_of(t, handle).channel_count - 1;
    const int32_t pairs[6][2] = {{0, 1}, {1, 0}, {0, last}, {last, 0}, {1, last}, {last, last - 1}};
    uint32_t limit_ms = LONG_MS;
    TK_REQUIRE(t, last >= 3);
    for (int i = 0; i < 6; i++) {
        uint64_t round = (uint64_t)i + 1;
        if (t->rank == 0) {
            TK_OK(t, symmem_put_signal(handle, 1, pairs[i][0], limit_ms, NULL));
            tk_share_u64(t, 2, round);
            check_held(t, 1, round, "a signal on another channel satisfied the wait");
            TK_OK(t, symmem_put_signal(handle, 1, pairs[i][1], limit_ms, NULL));
        } else {
            (void)await_shared(t, 0, 2, round);
            wait_shown(t, handle, 0, pairs[i][1], round);
            TK_OK(t, symmem_wait_signal(handle, 0, pairs[i][0], limit_ms, NULL));
        }
    }
}

TK_TEST(signal, every_channel_holds_one_signal, "SM-SIGNAL-04,SM-SIGNAL-11", .max_ranks = 8) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    int32_t count = info_of(t, handle).channel_count;
    int32_t step = count > 300 ? 7 : 1; /* the last channel comes anyway */
    bool good = true;
    for (int32_t c = 0; good && c < count; c += step)
        good = TK_OK(t, symmem_put_signal(handle, t->next, c, LONG_MS, NULL));
    for (int32_t c = (count - 1) / step * step; good && c >= 0; c -= step)
        good = TK_OK(t, symmem_wait_signal(handle, t->previous, c, LONG_MS, NULL));
    ring_signal(t, handle, count - 1);
}

/* All sources but one have put, the waiting rank itself included. */
TK_TEST(signal, sources_are_apart, "SM-SIGNAL-05", .ranks = {2, 5}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    int32_t consumer = t->last;
    uint32_t limit_ms = LONG_MS;
    for (int32_t held = 0; held < consumer; held++) {
        uint64_t round = (uint64_t)held + 1;
        if (t->rank != held)
            TK_OK(t, symmem_put_signal(handle, consumer, 0, limit_ms, NULL));
        tk_out_of_band_barrier(t);
        if (t->rank == held) {
            check_held(t, consumer, round, "another source's signal satisfied the wait");
            TK_OK(t, symmem_put_signal(handle, consumer, 0, limit_ms, NULL));
        }
        if (t->rank == consumer) {
            wait_shown(t, handle, held, 0, round);
            for (int32_t r = 0; r < t->world_size; r++)
                if (r != held)
                    TK_OK(t, symmem_wait_signal(handle, r, 0, limit_ms, NULL));
        }
        tk_out_of_band_barrier(t);
    }
}

/* A ring with data in every group shape: ranks are places in the group's list. */
ON_EACH_SHAPE(signal, ranks_are_group_ranks, "SM-SIGNAL-07,SM-GROUP-02", .max_ranks = 16) {
    symmem_handle *handle = tk_handle(t, 256, group);
    int32_t next = (shape->rank + 1) % shape->count;
    int32_t previous = (shape->rank + shape->count - 1) % shape->count;
    uint32_t own = word_of(shape->ranks[shape->rank], 1, 0);
    uint32_t expected = word_of(shape->ranks[previous], 1, 0);
    tk_write(t, handle, next, 4 * 4, &own, 4);
    ring_signal(t, handle, 3);
    tk_expect_data(t, handle, shape->rank, 4 * 4, &expected, 4);
    ring_signal(t, handle, 0);
}

TK_TEST(signal, signal_to_oneself, "SM-SIGNAL-08,SM-SIGNAL-03,SM-GROUP-08", .max_ranks = 4) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (int i = 0; i < 5; i++) {
        TK_OK(t, symmem_put_signal(handle, t->rank, i, LONG_MS, NULL));
        TK_OK(t, symmem_wait_signal(handle, t->rank, i, LONG_MS, NULL));
    }
    TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, t->rank, 4, 20, NULL));
}

/* While the peer sits in the kit's barrier it makes no call of the library. */
TK_TEST(signal, put_and_wait_need_no_peer, "SM-SIGNAL-10,SM-SIGNAL-11", .needs = SYMMEM_CAP_PASSIVE,
        .max_ranks = 4) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (int32_t active = 0; active < t->world_size; active++) {
        if (t->rank == active)
            TK_OK(t, symmem_put_signal(handle, t->next, 0, LONG_MS, NULL));
        tk_out_of_band_barrier(t);
    }
    for (int32_t active = 0; active < t->world_size; active++) {
        if (t->rank == active)
            TK_OK(t, symmem_wait_signal(handle, t->previous, 0, LONG_MS, NULL));
        tk_out_of_band_barrier(t);
    }
}

/* Neighboring slots of one channel, all written at once. */
TK_TEST(signal, all_pairs_at_once, "SM-SIGNAL-05,SM-SIGNAL-02", .max_ranks = 8) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    bool good = true;
    for (int round = 0; good && round < (t->world_size > 4 ? 20 : 60); round++) {
        for (int32_t r = 0; good && r < t->world_size; r++)
            good = TK_OK(t, symmem_put_signal(handle, r, 1, LONG_MS, NULL));
        for (int32_t r = t->last; good && r >= 0; r--)
            good = TK_OK(t, symmem_wait_signal(handle, r, 1, LONG_MS, NULL));
    }
}
