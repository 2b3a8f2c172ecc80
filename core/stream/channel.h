/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on a channel, which run in the channel's order (channel.c). */
#ifndef SYMMEM_CORE_CHANNEL_H
#define SYMMEM_CORE_CHANNEL_H

#include "stream/onesided.h"

typedef enum sm_signal_kind {
    SM_BARRIER,
    SM_PUT_SIGNAL,
    SM_WAIT_SIGNAL,
    SM_COLLECTIVE,
    SM_COMPOSED /* made of other entries of the backend */
} sm_signal_kind;

/* One call's operation. */
typedef struct sm_channel_op sm_channel_op;
struct sm_channel_op {
    sm_signal_kind kind;
    const char *name; /* the public call */
    const char *begin_point;
    const char *done_point;
    sm_link *link;
    int32_t peer; /* of put_signal and wait_signal */
    int32_t channel;
    uint32_t timeout_ms;
    const symmem_ref *refs;
    int32_t ref_count;
    symmem_call_id id;
    const symmem_collective *collective;
    /* SM_COMPOSED: enqueues or runs the parts on the backend, under the channel's call lock. */
    symmem_status (*compose)(const sm_channel_op *op, const symmem_exec *exec, bool capturing);
    const void *plan; /* for `compose` */
    /* SM_BARRIER: the composite operation of which this is a step, see symmem_exec. A later step
     * goes to its stream even if an earlier one has failed by now, so that the stream reports the
     * failure. */
    symmem_composite *composite;
    uint32_t step;
    bool loose, first; /* see symmem_exec */
    bool is_held;      /* the caller holds the channel's call lock by sm_channel_hold */
};
/* Answers OUT_OF_RANGE unless the link has the channel. */
symmem_status sm_signal_check_channel(const sm_link *link, int32_t channel, const char *operation);
/* Runs or enqueues an operation, whose arguments are checked, under its channel's call lock. */
symmem_status sm_channel_submit(const sm_channel_op *op, const symmem_stream *stream);
/* The same for a call that holds the call lock, on a handle that it has found not poisoned, in a
 * context without failpoints. */
symmem_status sm_channel_run(const sm_channel_op *op, sm_channel *channel,
                             const symmem_stream *stream);
/* Takes the channel's call lock for several operations in sequence, until sm_channel_let_go.
 * Without a stream it also waits for the channel's operations on streams. Answers TIMEOUT with
 * stage "channel" if that takes too long. */
symmem_status sm_channel_hold(const sm_channel_op *op, const symmem_stream *stream);
/* Makes the stream's next work run after the channel's operations so far. Under the call lock. */
symmem_status sm_channel_follow(const sm_channel_op *op, const symmem_stream *stream);
/* Makes the channel's next operation, or a reset, wait for the stream's work so far, as far as the
 * backend can. Under the call lock and not in a capture. */
void sm_channel_mark(const sm_channel_op *op, const symmem_stream *stream);
/* The event behind the channel's last eager operation, for queries and waits. The call lock is
 * held. */
void *sm_channel_eager_mark(const sm_channel *channel);
void sm_channel_let_go(const sm_link *link, int32_t channel);

#endif
