/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals: isolation by group and block, and refused arguments. */
#include "case_help.h"

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
    for (size_t i = 0; i < LENGTH(channels); i++) {
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
    for (size_t i = 0; i < LENGTH(ranks); i++) {
        DLManagedTensor *tensor = NULL;
        TK_FAILS(t, OUT_OF_RANGE, symmem_put_signal(handle, ranks[i], 0, 50, NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_wait_signal(handle, ranks[i], 0, 50, NULL));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_get_signal_pad(handle, ranks[i], 0, NULL, SYMMEM_UINT32, 0, &tensor));
        TK_CHECK(t, tensor == NULL);
    }
    check_nothing_written(t, handle, 0);
}
