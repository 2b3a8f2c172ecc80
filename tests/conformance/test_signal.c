/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals: ordering, back-pressure, isolation, ranges. */
#include "case_help.h"
#include "sync_help.h"

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

/* Each rank puts last once; all others wait for it long before. */
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
TK_TEST(signal, put_and_wait_need_no_peer, "SM-SIGNAL-10,SM-SIGNAL-11", .max_ranks = 4) {
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

/* --- Signals: isolation by group and block, and refused arguments ----------------------------- */

/* The same block on {0, 1} and on the world: rank 1 has both signals at rank 0 pending at once. */
TK_PORTED(test_builtin_signals_not_shared_with_prefix_subgroup, "SM-SIGNAL-06", .ranks = {2, 5}) {
    const int32_t prefix[2] = {0, 1};
    void *ptr = tk_alloc(t, 256);
    symmem_handle *world = tk_rendezvous(t, ptr, tk_world_group(t));
    if (t->rank < 2) {
        symmem_handle *pair = tk_rendezvous(t, ptr, tk_group(t, "prefix", prefix, 2));
        uint32_t limit_ms = tk_limit_ms(t, 10000);
        if (t->rank == 1) {
            TK_OK(t, symmem_put_signal(pair, 0, 0, limit_ms, NULL));
            TK_OK(t, symmem_put_signal(world, 0, 0, limit_ms, NULL));
            tk_share_u64(t, 0, 1);
        } else {
            (void)await_shared(t, 1, 0, 1);
            TK_OK(t, symmem_wait_signal(world, 1, 0, limit_ms, NULL));
            TK_OK(t, symmem_wait_signal(pair, 1, 0, limit_ms, NULL));
        }
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_barrier(world, 0, LONG_MS, NULL));
}

/* Ranks 2 and 1 both have group rank 1, of {0, 2} and of the world. */
TK_PORTED(test_builtin_signals_not_shared_across_groups, "SM-SIGNAL-06,SM-SIGNAL-07",
          .ranks = {3, 4}) {
    const int32_t odd[2] = {0, 2};
    void *ptr = tk_alloc(t, 256);
    symmem_handle *world = tk_rendezvous(t, ptr, tk_world_group(t));
    symmem_handle *pair = NULL;
    uint32_t limit_ms = tk_limit_ms(t, 10000);
    if (t->rank == 0 || t->rank == 2)
        pair = tk_rendezvous(t, ptr, tk_group(t, "odd", odd, 2));
    if (t->rank == 2)
        TK_OK(t, symmem_put_signal(pair, 0, 0, limit_ms, NULL));
    tk_out_of_band_barrier(t);
    if (t->rank == 1) {
        (void)await_shared(t, 0, 0, 1);
        tk_sleep_ms(20);
        TK_CHECK_MSG(t, tk_read_u64(t, 0, 1) == 0,
                     "a signal of {0, 2} satisfied a wait on the world group");
        TK_OK(t, symmem_put_signal(world, 0, 0, limit_ms, NULL));
    }
    if (t->rank == 0) {
        show_entered(t, 1);
        TK_OK(t, symmem_wait_signal(world, 1, 0, limit_ms, NULL));
        show_passed(t, 1);
        TK_OK(t, symmem_wait_signal(pair, 1, 0, limit_ms, NULL));
    }
}

/* Two groups of the same members in the same order, hence the same slots. */
TK_TEST(signal, twin_groups_are_apart, "SM-SIGNAL-06", .ranks = {2, 2}) {
    int32_t ranks[2] = {0, 1};
    void *ptr = tk_alloc(t, 256);
    symmem_handle *first = tk_rendezvous(t, ptr, tk_group(t, "first", ranks, 2));
    symmem_handle *second = tk_rendezvous(t, ptr, tk_group(t, "second", ranks, 2));
    if (t->rank == 0)
        TK_OK(t, symmem_put_signal(first, 1, 0, LONG_MS, NULL));
    tk_out_of_band_barrier(t);
    if (t->rank == 1) {
        TK_FAILS(t, TIMEOUT, symmem_wait_signal(second, 0, 0, 50, NULL));
        TK_OK(t, symmem_wait_signal(first, 0, 0, LONG_MS, NULL));
    }
}

TK_TEST(signal, blocks_are_apart, "SM-SIGNAL-06", .max_ranks = 4) {
    symmem_handle *first = tk_handle(t, 256, tk_world_group(t));
    symmem_handle *second = tk_handle(t, 256, tk_world_group(t));
    TK_OK(t, symmem_put_signal(first, t->next, 0, LONG_MS, NULL));
    tk_out_of_band_barrier(t);
    check_nothing_pending(t, second, -1, 0);
    TK_OK(t, symmem_wait_signal(first, t->previous, 0, LONG_MS, NULL));
}

/* A ring on the channel works, nothing is pending, canaries and poison are as they were. */
static void check_nothing_written(struct tk *t, symmem_handle *handle, int32_t channel) {
    tk_out_of_band_barrier(t);
    TK_CHECK(t, !info_of(t, handle).poisoned);
    tk_expect_bytes(t, handle, t->rank, 0, 1024, 0xA5);
    pad_expect(t, handle, 0x5A);
    ring_signal(t, handle, channel);
    ring_signal(t, handle, 0);
    tk_out_of_band_barrier(t);
    check_nothing_pending(t, handle, -1, channel);
}

static symmem_handle *handle_with_canaries(struct tk *t) {
    symmem_handle *handle = tk_handle(t, 1024, tk_world_group(t));
    tk_fill(t, handle, t->rank, 0, 1024, 0xA5);
    pad_fill(t, handle, 0x5A);
    tk_out_of_band_barrier(t);
    return handle;
}

TK_PORTED(test_put_wait_signal_channel_out_of_bounds, "SM-SIGNAL-09", .max_ranks = 8,
          .flags = TK_WRITES_PADS) {
    symmem_handle *handle = handle_with_canaries(t);
    symmem_handle_info info = info_of(t, handle);
    int32_t count = info.channel_count;
    const int32_t channels[] = {count,     count + 1, count * t->last, -1,
                                INT32_MAX, INT32_MIN, 0x10000,         count * 4};
    TK_EQ_INT(t, (int64_t)(info.signal_pad_size / 4) / t->world_size, count);
    for (size_t i = 0; i < TK_COUNT(channels); i++) {
        if (channels[i] >= 0 && channels[i] < count)
            continue; /* a world of one has no such excess */
        TK_FAILS(t, OUT_OF_RANGE, symmem_put_signal(handle, t->next, channels[i], 50, NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_wait_signal(handle, t->next, channels[i], 50, NULL));
    }
    check_nothing_written(t, handle, count - 1);
}

TK_PORTED(test_put_wait_signal_rank_out_of_bounds, "SM-SIGNAL-09,SM-VIEW-04", .max_ranks = 8,
          .flags = TK_WRITES_PADS) {
    symmem_handle *handle = handle_with_canaries(t);
    const int32_t ranks[] = {-1, t->world_size, t->world_size + 1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < TK_COUNT(ranks); i++) {
        DLManagedTensor *tensor = NULL;
        TK_FAILS(t, OUT_OF_RANGE, symmem_put_signal(handle, ranks[i], 0, 50, NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_wait_signal(handle, ranks[i], 0, 50, NULL));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_get_signal_pad(handle, ranks[i], 0, NULL, SYMMEM_UINT32, 0, &tensor));
        TK_CHECK(t, tensor == NULL);
    }
    check_nothing_written(t, handle, 0);
}

/* A signal's slot: where it is depends on group, channel and source alone, and a failed operation
 * leaves it as it was. */

/* --- the place -------------------------------------------------------------------------------- */

/* Put and wait with limits, and copies before them, that have nothing to do with each other. */
TK_TEST(signal, place_is_fixed, "SM-SIGNAL-11", .max_ranks = 4) {
    static const uint32_t limits_ms[] = {0, 9001, 20000, 9002, 30007};
    static const size_t sizes[] = {1, 64, 4096, 16, 1000, 2048, 3};
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    int32_t channels = info_of(t, handle).channel_count;
    for (int i = 0; i < 35; i++) {
        int32_t channel = i % 3 == 0 ? 0 : i % 3 == 1 ? channels - 1 : channels / 2;
        tk_checkpoint(t, "signal %d", i);
        tk_fill(t, handle, t->rank, 0, sizes[i % 7], (uint8_t)i);
        if (!TK_OK(t, symmem_put_signal(handle, t->next, channel, limits_ms[i % 5], NULL)))
            return;
        tk_fill(t, handle, t->rank, 0, sizes[(i + 3) % 7], (uint8_t)i);
        uint32_t limit_ms = 3000 + limits_ms[(i + 2) % 5] % 100;
        if (!TK_OK(t, symmem_wait_signal(handle, t->previous, channel, tk_limit_ms(t, limit_ms),
                                         NULL)))
            return;
    }
}

/* From a stream to a call without stream, and back. */
TK_TEST(signal, place_is_fixed_on_streams, "SM-SIGNAL-11", .needs = SYMMEM_CAP_STREAMS,
        .max_ranks = 4) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    for (int i = 0; i < 6; i++) {
        symmem_stream *putting = i % 2 == 0 ? stream : NULL;
        symmem_stream *waiting = i % 2 == 0 ? NULL : stream;
        TK_OK(t, symmem_put_signal(handle, t->next, i, LONG_MS, putting));
        TK_OK(t, symmem_wait_signal(handle, t->previous, i, tk_limit_ms(t, 3000 + (uint32_t)i),
                                    waiting));
        tk_synchronize(t, stream);
    }
}

/* --- after a failure -------------------------------------------------------------------------- */

static symmem_status signal_once(symmem_handle *handle, bool put, int32_t peer, uint32_t limit_ms) {
    return put ? symmem_put_signal(handle, peer, 3, limit_ms, NULL)
               : symmem_wait_signal(handle, peer, 3, limit_ms, NULL);
}

/* Rank 0's put that found the slot full, or its wait that found it empty. The other half works once
 * at rank 1. */
static void fail_at_the_slot(struct tk *t, bool put) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    if (t->rank == 0) {
        if (put)
            TK_OK(t, signal_once(handle, put, 1, LONG_MS));
        TK_FAILS(t, TIMEOUT, signal_once(handle, put, 1, 30));
    }
    tk_out_of_band_barrier(t);
    if (t->rank == 1) {
        TK_OK(t, signal_once(handle, !put, 0, LONG_MS));
        TK_STATUS_EITHER(t, SYMMEM_POISONED, SYMMEM_TIMEOUT, signal_once(handle, !put, 0, 100));
    }
    work_after(t, NULL);
}

/* The first signal is still received, once. */
TK_TEST(signal, failed_put_leaves_its_slot, "SM-SIGNAL-12,SM-TIMEOUT-14", .ranks = {2, 2}) {
    fail_at_the_slot(t, true);
}

/* A put into the empty slot has nothing to wait for. */
TK_TEST(signal, failed_wait_leaves_its_slot, "SM-SIGNAL-12,SM-TIMEOUT-14", .ranks = {2, 2}) {
    fail_at_the_slot(t, false);
}
