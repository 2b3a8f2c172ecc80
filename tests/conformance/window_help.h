/* SPDX-License-Identifier: BSD-3-Clause */
/* Counted signals of one rank at a time. */
#ifndef SYMMEM_CONFORMANCE_WINDOW_HELP_H
#define SYMMEM_CONFORMANCE_WINDOW_HELP_H

#include "case_help.h"

#define WINDOWS .needs = SYMMEM_CAP_WINDOW
#define INDEX 3

static inline symmem_status give(symmem_handle *handle, int32_t rank, int32_t index,
                                 uint32_t count) {
    return symmem_window_signal(handle, rank, index, count, LONG_MS, NULL);
}

static inline symmem_status take(symmem_handle *handle, int32_t rank, int32_t index, uint32_t count,
                                 uint32_t limit_ms) {
    const symmem_window_wait wait = {rank, count};
    return symmem_window_wait_signal(handle, 1, &wait, index, limit_ms, NULL);
}

/* OK if no signal of the rank before is there on INDEX: with any more than these the number of them
 * would be one that cannot be. All ranks call it. */
static inline symmem_status take_nothing_left(struct tk *t, symmem_handle *handle) {
    const symmem_handle_info info = info_of(t, handle);
    const int32_t next = (info.rank + 1) % info.world_size;
    const int32_t previous = (info.rank + info.world_size - 1) % info.world_size;
    tk_out_of_band_barrier(t);
    symmem_status status = give(handle, next, INDEX, INT32_MAX);
    if (status == SYMMEM_OK)
        status = take(handle, previous, INDEX, INT32_MAX, LONG_MS);
    tk_out_of_band_barrier(t);
    return status;
}

#endif
