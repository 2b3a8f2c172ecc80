/* SPDX-License-Identifier: BSD-3-Clause */
/* A signal's slot: where it is depends on group, channel and source alone, and a failed operation
 * leaves it as it was. */
#include "sync_help.h"

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

/* The put that found the slot full leaves it full: the first signal is still received, once. */
TK_TEST(signal, failed_put_leaves_its_slot, "SM-SIGNAL-12,SM-TIMEOUT-14", .ranks = {2, 2}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    if (t->rank == 0) {
        TK_OK(t, symmem_put_signal(handle, 1, 3, LONG_MS, NULL));
        TK_FAILS(t, TIMEOUT, symmem_put_signal(handle, 1, 3, 30, NULL));
    }
    tk_out_of_band_barrier(t);
    if (t->rank == 1) {
        TK_OK(t, symmem_wait_signal(handle, 0, 3, LONG_MS, NULL));
        TK_STATUS_EITHER(t, SYMMEM_POISONED, SYMMEM_TIMEOUT,
                         symmem_wait_signal(handle, 0, 3, 100, NULL));
    }
    work_after(t, NULL);
}

/* The wait that found the slot empty leaves it empty: a put into it has nothing to wait for. */
TK_TEST(signal, failed_wait_leaves_its_slot, "SM-SIGNAL-12,SM-TIMEOUT-14", .ranks = {2, 2}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    if (t->rank == 0)
        TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, 1, 3, 30, NULL));
    tk_out_of_band_barrier(t);
    if (t->rank == 1) {
        TK_OK(t, symmem_put_signal(handle, 0, 3, LONG_MS, NULL));
        TK_STATUS_EITHER(t, SYMMEM_POISONED, SYMMEM_TIMEOUT,
                         symmem_put_signal(handle, 0, 3, 100, NULL));
    }
    work_after(t, NULL);
}
