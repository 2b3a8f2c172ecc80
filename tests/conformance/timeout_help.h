/* SPDX-License-Identifier: BSD-3-Clause */
/* The three signal operations behind one call, and what a failure of each must look like. */
#ifndef SYMMEM_CONFORMANCE_TIMEOUT_HELP_H
#define SYMMEM_CONFORMANCE_TIMEOUT_HELP_H

#include "sync_help.h"

enum signal_op { OP_BARRIER = 0, OP_PUT, OP_WAIT, OP_COUNT };

static inline const char *op_name(enum signal_op op) {
    static const char *const names[OP_COUNT] = {"barrier", "put_signal", "wait_signal"};
    return names[op];
}

static inline symmem_status run_op(symmem_handle *handle, enum signal_op op, int32_t peer,
                                   int32_t channel, uint32_t limit_ms, symmem_stream *stream) {
    if (op == OP_BARRIER)
        return symmem_barrier(handle, channel, limit_ms, stream);
    if (op == OP_PUT)
        return symmem_put_signal(handle, peer, channel, limit_ms, stream);
    return symmem_wait_signal(handle, peer, channel, limit_ms, stream);
}

/* Makes the op on (peer, channel) unable to complete alone: a put needs its slot full. */
static inline void make_unsatisfied(struct tk *t, symmem_handle *handle, enum signal_op op,
                                    int32_t peer, int32_t channel) {
    if (op == OP_PUT)
        TK_OK(t, symmem_put_signal(handle, peer, channel, LONG_MS, NULL));
}

/* This rank's link is poisoned from here on, by no fault of another rank. */
static inline void poison_own(struct tk *t, symmem_handle *handle, int32_t channel) {
    TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, info_of(t, handle).rank, channel, 15, NULL));
    TK_CHECK(t, info_of(t, handle).poisoned);
}

/* Milliseconds after the limit that an expiry may take on a quiet machine. */
static inline uint64_t allowed_excess_ms(uint32_t limit_ms) {
    return limit_ms / 2 > 250 ? limit_ms / 2 : 250;
}

#endif
