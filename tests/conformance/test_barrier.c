/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers: no rank passes early, everything is visible, rounds and channels keep apart. */
#include "case_help.h"
#include "plain_help.h"
#include "sync_help.h"

/* Rounds 1, 2, 3 and a later one with the rank held back, the others of round 4 to 16 free. */
TK_TEST(barrier, holds_for_each_rank, "SM-BARRIER-01", .min_ranks = 2) {
    uint64_t round = 0;
    for (int i = 0; i < held_count(t->world_size); i++) {
        int32_t held = held_rank(t->world_size, i);
        symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
        for (int k = 0; k < 3; k++)
            barrier_holding(t, handle, 0, NULL, t->world_size, held, ++round);
        for (int k = 0; k < (t->world_size > 8 ? 3 : 13); k++)
            TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        barrier_holding(t, handle, 0, NULL, t->world_size, held, ++round);
        tk_release(t, handle);
    }
}

ON_EACH_SHAPE(barrier, holds_on_every_group_shape, "SM-BARRIER-01", .min_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, group);
    int32_t last_channel = info_of(t, handle).channel_count - 1;
    /* A rank shared by two groups still shows the first one's rounds when the second one begins. */
    uint64_t base = strcmp(shape->name, "overlap_high") == 0 ? 1000 : 0;
    for (int i = 0; i < held_count(shape->count); i++)
        barrier_holding(t, handle, i % 2 ? last_channel : 0, shape->ranks, shape->count,
                        held_rank(shape->count, i), base + (uint64_t)i + 1);
    tk_group_barrier(t, group); /* the next shape counts from 1 again */
    show_entered(t, 0);
    show_passed(t, 0);
    tk_group_barrier(t, group);
}

/* Enters round g, and whether every rank is in it or in the next one behind it. */
static bool in_step(struct tk *t, symmem_handle *handle, int32_t channel, uint64_t g) {
    bool good = true;
    tk_share_u64(t, 2, g);
    TK_OK(t, symmem_barrier(handle, channel, LONG_MS, NULL));
    for (int32_t r = 0; r < t->world_size; r++) {
        uint64_t peer = tk_read_u64(t, r, 2);
        good = TK_CHECK_MSG(t, peer >= g && peer <= g + 1, "rank %d is in round %llu, not %llu",
                            (int)r, (unsigned long long)peer, (unsigned long long)g) &&
               good;
    }
    return good && !tk_failed(t);
}

TK_TEST(barrier, never_more_than_one_round_ahead, "SM-BARRIER-03", .min_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    uint64_t rounds = t->world_size <= 4 ? 600 : t->world_size <= 8 ? 200 : 12;
    for (uint64_t g = 1; g <= rounds; g++) {
        if (tk_random_below(t, 64) == 0)
            tk_sleep_ms(1);
        if (!in_step(t, handle, 1, g))
            break;
    }
}

#define NEAR_16_BITS ((1 << 16) - 32)

/* Counters of 16 bits wrap; those of 32 take hours, and have unit tests. Ranks that share a device
 * would take minutes. */
TK_TEST(barrier, past_two_to_the_sixteen, "SM-BARRIER-08", .needs = SYMMEM_CAP_HOST_ACCESS,
        .ranks = {2, 2}, .timeout_s = 60) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_status status = SYMMEM_OK;
    for (int i = 0; i < NEAR_16_BITS && status == SYMMEM_OK; i++)
        status = symmem_barrier(handle, 0, LONG_MS, NULL);
    TK_STATUS(t, SYMMEM_OK, status);
    for (uint64_t g = 1; g <= 64 && in_step(t, handle, 0, g); g++)
        if (t->rank == (int32_t)(g % 2))
            tk_sleep_ms(1);
    for (int i = 0; i < NEAR_16_BITS + 64 && status == SYMMEM_OK; i++) {
        status = symmem_put_signal(handle, t->next, 0, LONG_MS, NULL);
        if (status == SYMMEM_OK)
            status = symmem_wait_signal(handle, t->previous, 0, LONG_MS, NULL);
    }
    TK_STATUS(t, SYMMEM_OK, status);
}

/* The two halves of the group come late alternately. */
TK_TEST(barrier, halves_alternate, "SM-BARRIER-03", .ranks = {2, 8}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (uint64_t g = 1; g <= 40; g++) {
        bool low = t->rank < t->world_size / 2;
        if (low == (g % 2 == 0))
            tk_sleep_ms(1);
        if (!in_step(t, handle, 0, g))
            break;
    }
}

#define SLOT_WORDS 32u

/* Every rank writes a slot at every rank, then all are read. plain: by plain stores and loads;
 * NULL: by one-sided calls. */
static void visible_on(struct tk *t, symmem_handle *handle, const struct plain *plain, int rounds) {
    symmem_handle_info info = info_of(t, handle);
    symmem_stream *stream = plain != NULL ? plain->stream : NULL;
    uint32_t words[SLOT_WORDS];
    bool good = true;
    void *const *buffers = buffers_of(t, handle);
    const uint32_t *own = buffers[info.rank];
    for (uint32_t g = 1; good && g <= (uint32_t)rounds; g++) {
        fill_words(words, SLOT_WORDS, info.rank, g);
        for (int32_t peer = 0; peer < info.world_size; peer++) {
            size_t at = (size_t)info.rank * SLOT_WORDS;
            if (plain != NULL)
                plain_store(plain, (uint32_t *)buffers[peer] + at, words, 0, SLOT_WORDS);
            else
                tk_write(t, handle, peer, at * 4, words, sizeof(words));
        }
        good = TK_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
        for (int32_t peer = 0; good && peer < info.world_size; peer++) {
            size_t at = (size_t)peer * SLOT_WORDS;
            if (plain != NULL)
                plain_load(plain, own + at, words, 0, SLOT_WORDS);
            else
                tk_read(t, handle, info.rank, at * 4, words, sizeof(words));
            size_t wrong = first_wrong_word(words, SLOT_WORDS, peer, g);
            good = TK_CHECK_MSG(t, wrong == SLOT_WORDS, "round %u: rank %d's word %zu is missing",
                                g, (int)peer, wrong);
        }
        good = TK_OK(t, symmem_barrier(handle, 0, LONG_MS, stream)) && good;
    }
    tk_synchronize(t, stream);
}

TK_TEST(barrier, writes_are_visible, "SM-BARRIER-02") {
    size_t bytes = (size_t)t->world_size * SLOT_WORDS * 4;
    visible_on(t, tk_handle(t, bytes, tk_world_group(t)), NULL, t->world_size <= 8 ? 30 : 2);
}

TK_TEST(barrier, plain_writes_are_visible, "SM-BARRIER-02", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .min_ranks = 2, .flags = TK_PLAIN_MEMORY) {
    size_t bytes = (size_t)t->world_size * SLOT_WORDS * 4;
    struct plain plain = plain_begin(t, SLOT_WORDS, true);
    int rounds = t->world_size > 8 ? 3 : plain_by_cpu(&plain) ? 100 : 25;
    visible_on(t, tk_handle(t, bytes, tk_world_group(t)), &plain, rounds);
}

ON_EACH_SHAPE(barrier, writes_are_visible_on_every_group_shape, "SM-BARRIER-02", .max_ranks = 8) {
    visible_on(t, tk_handle(t, (size_t)shape->count * SLOT_WORDS * 4, group), NULL, 3);
}

/* The held rank has a signal pending at all ranks, on the barrier's channel. */
static void barrier_beside_signals(struct tk *t, int32_t channel, uint64_t first_round) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    if (channel < 0)
        channel = info_of(t, handle).channel_count - 1;
    for (int32_t held = 0; held < t->world_size; held++) {
        uint64_t round = first_round + (uint64_t)held;
        if (t->rank == held)
            for (int32_t r = 0; r < t->world_size; r++)
                TK_OK(t, symmem_put_signal(handle, r, channel, LONG_MS, NULL));
        tk_out_of_band_barrier(t);
        barrier_holding(t, handle, channel, NULL, t->world_size, held, round);
        TK_OK(t, symmem_barrier(handle, channel, LONG_MS, NULL));
        TK_OK(t, symmem_wait_signal(handle, held, channel, LONG_MS, NULL));
        TK_OK(t, symmem_barrier(handle, channel, LONG_MS, NULL));
    }
    check_nothing_pending(t, handle, 0, channel);
}

TK_TEST(barrier, pending_signal_is_no_arrival, "SM-BARRIER-04,SM-BARRIER-01", .ranks = {2, 4}) {
    barrier_beside_signals(t, 0, 1);
    tk_out_of_band_barrier(t);
    barrier_beside_signals(t, -1, (uint64_t)t->world_size + 1);
}

/* The other way round: arrivals at a barrier are no signals. */
TK_TEST(barrier, arrival_is_no_signal, "SM-BARRIER-04", .max_ranks = 8) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (int i = 0; i < 3; i++)
        TK_OK(t, symmem_barrier(handle, 2, LONG_MS, NULL));
    check_nothing_pending(t, handle, -1, 2);
}

TK_TEST(barrier, barriers_and_rings_mixed, "SM-BARRIER-04,SM-BARRIER-03") {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (int i = 0; i < (t->world_size > 8 ? 5 : 60) && !tk_failed(t); i++) {
        ring_signal(t, handle, 0);
        if (i % 3 != 1)
            TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

TK_TEST(barrier, group_of_one, "SM-BARRIER-01,SM-GROUP-08,SM-TIMEOUT-03", .max_ranks = 2) {
    int32_t own = t->rank;
    symmem_handle *handle = tk_handle(t, 64, tk_group(t, "alone", &own, 1));
    for (int i = 0; i < 10; i++)
        TK_OK(t, symmem_barrier(handle, i % 3, 1, NULL));
}

/* --- Barriers: independence of channels and handles, ranges, and the user's signal pad -------- */

struct side_barrier {
    struct tk *t;
    symmem_handle *handle;
    int32_t channel;
    atomic_int done;
    symmem_status status;
};

static void *run_side_barrier(void *arg) {
    struct side_barrier *side = arg;
    side->status = symmem_barrier(side->handle, side->channel, LONG_MS, NULL);
    atomic_store_explicit(&side->done, 1, memory_order_release); /* pairs with: independent */
    return NULL;
}

/*
 * All ranks but the last are in a barrier on (held, held_channel) in a second thread. Meanwhile
 * barriers on (free, free_channel) complete, and do not let the held one through.
 */
static void independent(struct tk *t, symmem_handle *held, int32_t held_channel,
                        symmem_handle *free_handle, int32_t free_channel) {
    struct side_barrier side = {.t = t, .handle = held, .channel = held_channel};
    pthread_t thread;
    bool last = t->rank == t->last;
    if (!last)
        TK_REQUIRE(t, pthread_create(&thread, NULL, run_side_barrier, &side) == 0);
    for (int i = 0; i < 3; i++)
        TK_OK(t, symmem_barrier(free_handle, free_channel, LONG_MS, NULL));
    tk_sleep_ms(10);
    TK_CHECK_MSG(t, atomic_load_explicit(&side.done, memory_order_acquire) == 0,
                 "barriers on another channel or handle let a held barrier through");
    (void)tk_try_out_of_band_barrier(t, LONG_MS);
    if (last)
        (void)run_side_barrier(&side);
    else
        TK_CHECK(t, pthread_join(thread, NULL) == 0);
    TK_EQ_INT(t, SYMMEM_OK, side.status);
}

TK_TEST(barrier, channels_are_independent, "SM-BARRIER-05", .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    int32_t last = info_of(t, handle).channel_count - 1;
    independent(t, handle, 0, handle, 1);
    independent(t, handle, last, handle, 0);
    independent(t, handle, 0, handle, last);
}

TK_TEST(barrier, handles_are_independent, "SM-BARRIER-05", .ranks = {2, 4}) {
    symmem_handle *first = tk_handle(t, 64, tk_world_group(t));
    symmem_handle *second = tk_handle(t, 64, tk_world_group(t));
    independent(t, first, 0, second, 0);
    independent(t, second, 0, first, 0);
    /* Two groups of the same ranks over one block. */
    int32_t *ranks = tk_scratch(t, (size_t)t->world_size * sizeof(*ranks));
    for (int32_t i = 0; i < t->world_size; i++)
        ranks[i] = i;
    void *ptr = tk_alloc(t, 64);
    first = tk_rendezvous(t, ptr, tk_world_group(t));
    second = tk_rendezvous(t, ptr, tk_group(t, "twin", ranks, t->world_size));
    independent(t, first, 0, second, 0);
}

TK_PORTED(test_barrier_channel_out_of_bounds, "SM-BARRIER-06", .max_ranks = 8,
          .flags = TK_WRITES_PADS) {
    symmem_handle *handle = tk_handle(t, 1024, tk_world_group(t));
    symmem_handle_info info = info_of(t, handle);
    int32_t count = info.channel_count;
    const int32_t channels[] = {count, count + 1, -1, INT32_MAX, INT32_MIN, 0x10000, count * 4};
    TK_EQ_INT(t, (int64_t)(info.signal_pad_size / 4) / t->world_size, count);
    tk_fill(t, handle, t->rank, 0, 1024, 0xC3);
    pad_fill(t, handle, 0x3C);
    tk_out_of_band_barrier(t);
    for (size_t i = 0; i < TK_COUNT(channels); i++)
        TK_FAILS(t, OUT_OF_RANGE, symmem_barrier(handle, channels[i], 50, NULL));
    tk_out_of_band_barrier(t);
    TK_CHECK(t, !info_of(t, handle).poisoned);
    /* No refused call counts as an arrival: the last channel still holds. */
    barrier_holding(t, handle, count - 1, NULL, t->world_size, 0, 1);
    barrier_holding(t, handle, 0, NULL, t->world_size, t->last, 2);
    tk_expect_bytes(t, handle, t->rank, 0, 1024, 0xC3);
    pad_expect(t, handle, 0x3C);
}

TK_PORTED(test_builtin_ops_leave_signal_pad_alone, "SM-BARRIER-07,SM-HANDLE-09", .max_ranks = 8,
          .flags = TK_WRITES_PADS) {
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    int32_t last = info_of(t, handle).channel_count - 1;
    tk_fill(t, handle, t->rank, 0, 4096, 0x77);
    pad_fill(t, handle, 1);
    for (int i = 0; i < 5; i++) {
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        TK_OK(t, symmem_barrier(handle, last, LONG_MS, NULL));
        ring_signal(t, handle, 1);
        ring_signal(t, handle, last);
    }
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    pad_expect(t, handle, 1);
    tk_expect_bytes(t, handle, t->rank, 0, 4096, 0x77);
}

/* PyTorch shares one internal pad between allocations; here each block has its own, and the user's
 * pads of two allocations differ and stay as filled under 100 barriers on two streams. */
TK_PORTED(test_internal_signal_pad_shared_across_allocations,
          "SM-BARRIER-07,SM-HANDLE-09,SM-HANDLE-11", .needs = SYMMEM_CAP_STREAMS, .ranks = {2, 4},
          .flags = TK_WRITES_PADS) {
    symmem_handle *handles[2];
    symmem_stream *streams[2];
    void *const *pads[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        handles[i] = tk_handle(t, 256, tk_world_group(t));
        streams[i] = tk_stream(t);
        TK_REQUIRE_OK(t, symmem_handle_signal_pad_ptrs(handles[i], &pads[i]));
        pad_fill(t, handles[i], (uint8_t)(i + 1));
    }
    TK_CHECK(t, pads[0][t->rank] != pads[1][t->rank]);
    for (int i = 0; i < 100; i++)
        TK_OK(t, symmem_barrier(handles[i % 2], 0, LONG_MS, streams[i / 2 % 2]));
    tk_synchronize(t, streams[0]);
    tk_synchronize(t, streams[1]);
    pad_expect(t, handles[0], 1);
    pad_expect(t, handles[1], 2);
}
