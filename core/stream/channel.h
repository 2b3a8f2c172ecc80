/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on a channel, in the channel's order (channel.c). */
#ifndef SYMMEM_CORE_CHANNEL_H
#define SYMMEM_CORE_CHANNEL_H

#include "stream/onesided.h"

typedef enum sm_signal_kind {
    SM_BARRIER,
    SM_PUT_SIGNAL,
    SM_WAIT_SIGNAL,
    SM_COLLECTIVE,
    SM_COMPOSED /* of the backend's other entries */
} sm_signal_kind;

/* One call. */
typedef struct sm_channel_op sm_channel_op;
struct sm_channel_op {
    sm_signal_kind kind;
    const char *name; /* the public call */
    const char *begin_point;
    const char *done_point;
    sm_link *link;
    int32_t peer; /* of put and wait */
    int32_t channel;
    uint32_t timeout_ms;
    const symmem_ref *refs;
    int32_t ref_count;
    symmem_call_id id;
    const symmem_collective *collective;
    /* SM_COMPOSED: hands the parts to the backend, under the channel's call lock. */
    symmem_status (*compose)(const sm_channel_op *op, const symmem_exec *exec, bool capturing);
    const void *plan; /* its own */
    /* SM_BARRIER: a part of an operation, see symmem_exec. A later one goes to its stream even if
     * one before has failed by now, so that the stream tells of that. */
    symmem_composite *composite;
    uint32_t step;
    bool loose, first; /* see symmem_exec */
    bool is_held;      /* the caller holds the channel's call lock, by sm_channel_hold */
};
/* OUT_OF_RANGE unless the link has the channel. */
symmem_status sm_signal_check_channel(const sm_link *link, int32_t channel, const char *operation);
/* Runs or enqueues an operation whose arguments are checked, under its channel's call lock. */
symmem_status sm_channel_submit(const sm_channel_op *op, const symmem_stream *stream);
/* Takes the channel's call lock for several operations in sequence, until sm_channel_let_go.
 * Without a stream it also waits for the channel's operations on streams. TIMEOUT with stage
 * "channel" if that takes too long. */
symmem_status sm_channel_hold(const sm_channel_op *op, const symmem_stream *stream);
/* Under the call lock: the stream's next work runs after the channel's operations so far. */
symmem_status sm_channel_follow(const sm_channel_op *op, const symmem_stream *stream);
/* Under the call lock: the channel's next operation, or a reset, comes after the stream's work so
 * far, as far as the backend can. Not in a capture. */
void sm_channel_mark(const sm_channel_op *op, const symmem_stream *stream);
void sm_channel_let_go(const sm_link *link, int32_t channel);

#endif
