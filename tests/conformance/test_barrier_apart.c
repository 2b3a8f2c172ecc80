/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers: independence of channels and handles, ranges, and the user's signal pad. */
#include "sync_help.h"

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
