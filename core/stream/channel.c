/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Barrier, put_signal and wait_signal: checks; and the order of one channel's operations, which
 * collectives (collective.c) keep too.
 *
 * Operations on one channel run in the order of the calls, on whatever streams they are. The event
 * after the last one is the channel's frontier: an operation on another stream waits for it, an
 * operation without stream waits for it in the calling thread. Inside a capture the same holds
 * with a frontier of the capture's own; captured and eager operations are not ordered with each
 * other. Two captures that alternate on one channel forget each other's frontier.
 */
#include "stream/channel.h"
#include "stream/stream.h"
#include "backend/host.h"
#include "backend/query.h"
#include "backend/registry.h"
#include "memory/group_explain.h"
#include "rendezvous/handle.h"
#include "rendezvous/link_poison.h"
#include "stream/capture.h"

/* capture is 0 for an eager one. end_p: see symmem_exec. */
static symmem_status call_backend(const sm_channel_op *op, void *stream, uint64_t capture,
                                  void **end_p) {
    const sm_link *link = op->link;
    const sm_backend *backend = link->context->backend;
    void *instance = link->context->instance;
    const symmem_exec exec = {.stream = stream,
                              .refs = op->refs,
                              .ref_count = op->ref_count,
                              .timeout_ms = op->timeout_ms,
                              .call = op->id,
                              .operation = op->kind == SM_BARRIER ? op->name : NULL,
                              .composite = op->composite,
                              .step = op->step,
                              .loose = op->loose,
                              .first = op->first,
                              .capture_known = stream != NULL,
                              .capture = capture,
                              .end_p = op->kind != SM_COMPOSED ? end_p : NULL};
    switch (op->kind) {
    case SM_BARRIER:
        return backend->barrier(instance, &link->peers, op->channel, &exec);
    case SM_PUT_SIGNAL:
        return backend->put_signal(instance, &link->peers, op->peer, op->channel, &exec);
    case SM_WAIT_SIGNAL:
        return backend->wait_signal(instance, &link->peers, op->peer, op->channel, &exec);
    case SM_COMPOSED:
        return op->compose(op, &exec, capture != 0);
    default:
        if (!link->within_direct_access)
            return backend->collective_apart(instance, &link->peers, op->channel, op->collective,
                                             &exec);
        if (op->collective->kind == SYMMEM_CALL_ALL_TO_ALL_V)
            return backend->collective_splits(instance, &link->peers, op->channel, op->collective,
                                              &exec);
        return backend->collective(instance, &link->peers, op->channel, op->collective, &exec);
    }
}

/* Returns the entry's name in backend.h, for the backend's author. A part of a composed operation
 * has reported its own. */
static const char *entry_of(const sm_channel_op *op) {
    return op->kind == SM_BARRIER       ? "barrier"
           : op->kind == SM_PUT_SIGNAL  ? "put_signal"
           : op->kind == SM_WAIT_SIGNAL ? "wait_signal"
           : op->kind == SM_COMPOSED    ? "parts"
                                        : "collective";
}

static symmem_status failed(const sm_channel_op *op, symmem_status status, const char *entry) {
    (void)sm_backend_failed(op->link->context, status, op->name, entry);
    return sm_error_channel(op->channel);
}

/* --- with a stream ------------------------------------------------------------------ */

static symmem_status capture_of(const sm_channel_op *op, void *stream, uint64_t *capture_p) {
    symmem_context *context = op->link->context;
    *capture_p = 0;
    if (!sm_backend_has(context, SYMMEM_CAP_CAPTURE))
        return SYMMEM_OK;
    return context->backend->capture_id(context->instance, stream, capture_p);
}

/* The frontier of a channel's eager or captured operations. */
typedef struct frontier {
    uint64_t capture; /* 0: eager */
    void **event_p, **stream_p;
} frontier;

static void forget_end(const sm_link *link, sm_channel *channel) {
    if (channel->eager_end != NULL)
        link->context->backend->event_destroy(link->context->instance, channel->eager_end);
    channel->eager_end = NULL;
}

void *sm_channel_eager_mark(const sm_channel *channel) {
    return channel->eager_end != NULL ? channel->eager_end : channel->eager_event;
}

static frontier frontier_of(sm_channel *channel, uint64_t capture) {
    if (capture == 0)
        return (frontier){0, &channel->eager_event, &channel->eager_stream};
    if (capture != channel->capture)
        channel->capture_stream = NULL; /* that capture is over */
    return (frontier){capture, &channel->capture_event, &channel->capture_stream};
}

/* Makes `stream` wait for the frontier if that is on another stream. */
static symmem_status wait_frontier(const sm_channel_op *op, void *stream, const sm_channel *channel,
                                   const frontier *own) {
    symmem_context *context = op->link->context;
    const void *last_stream = *own->stream_p;
    if (*own->event_p == NULL)
        return context->backend->event_create(context->instance, op->link->device, own->event_p);
    if (last_stream == NULL || last_stream == stream)
        return SYMMEM_OK;
    void *mark = own->capture == 0 ? sm_channel_eager_mark(channel) : *own->event_p;
    return context->backend->stream_wait_event(context->instance, stream, mark);
}

/* Moves the frontier after the operation that is on the stream now, whose end the backend knows. */
static void advance_to(const sm_channel_op *op, sm_channel *channel, void *end, void *stream) {
    forget_end(op->link, channel);
    channel->eager_end = end;
    channel->eager_stream = stream;
}

/* Moves the frontier after the work that is on the stream now. */
static symmem_status advance(const sm_channel_op *op, sm_channel *channel, const frontier *own,
                             void *stream) {
    symmem_context *context = op->link->context;
    *own->stream_p = stream;
    if (own->capture != 0)
        channel->capture = own->capture;
    else
        forget_end(op->link, channel);
    symmem_status status = context->backend->event_record(context->instance, *own->event_p, stream);
    /* The frontier lags behind now, so this call waits for the stream instead. A capture needs no
     * wait, because its work does not run yet. */
    if (status != SYMMEM_OK && own->capture == 0 &&
        sm_stream_drain(context, stream, op->timeout_ms))
        *own->stream_p = NULL;
    return status;
}

/* Handles a failure that may leave a part of the operation's work on the stream: the channel's next
 * operation comes after it. Does nothing if another capture has begun there meanwhile, because
 * nothing outside of that could wait for the mark. */
static symmem_status fail_behind(const sm_channel_op *op, sm_channel *channel, const frontier *own,
                                 void *stream, symmem_status status) {
    uint64_t capture;
    const symmem_status failure = failed(op, status, entry_of(op));
    SM_ATTEMPT(marking);
    if (capture_of(op, stream, &capture) == SYMMEM_OK && capture == own->capture)
        (void)advance(op, channel, own, stream);
    return failure;
}

/* The channel's call lock is held, here and below. */
static symmem_status follow(const sm_channel_op *op, sm_channel *channel, void *stream,
                            frontier *own_p) {
    uint64_t capture;
    symmem_status status = capture_of(op, stream, &capture);
    if (status != SYMMEM_OK)
        return failed(op, status, "capture_id");
    status = sm_capture_note(op->link, capture, op->name);
    if (status != SYMMEM_OK)
        return status;
    *own_p = frontier_of(channel, capture);
    const char *entry = *own_p->event_p == NULL ? "event_create" : "stream_wait_event";
    status = wait_frontier(op, stream, channel, own_p);
    return status == SYMMEM_OK ? status : failed(op, status, entry);
}

static symmem_status enqueue(const sm_channel_op *op, sm_channel *channel, void *stream) {
    frontier own;
    void *end = NULL;
    symmem_status status = follow(op, channel, stream, &own);
    if (status != SYMMEM_OK)
        return status;
    status = call_backend(op, stream, own.capture, own.capture == 0 ? &end : NULL);
    if (status != SYMMEM_OK)
        return fail_behind(op, channel, &own, stream, status);
    if (end != NULL) {
        advance_to(op, channel, end, stream);
        return SYMMEM_OK;
    }
    status = advance(op, channel, &own, stream);
    return status == SYMMEM_OK ? status : failed(op, status, "event_record");
}

/* --- without a stream --------------------------------------------------------------- */

static symmem_status busy(const sm_channel_op *op, uint64_t begin_ns) {
    (void)sm_fail(SYMMEM_TIMEOUT, op->name, "channel",
                  "channel %d stayed busy with an earlier operation", op->channel);
    (void)sm_error_channel(op->channel);
    return sm_error_elapsed(sm_now_ns() - begin_ns);
}

/* Waits until the channel's last operation on a stream is over. */
static symmem_status wait_for_stream(const sm_channel_op *op, sm_channel *channel,
                                     uint64_t begin_ns) {
    symmem_context *context = op->link->context;
    uint32_t left_ms = 0;
    if (op->timeout_ms != 0) {
        uint64_t limit_ns = (uint64_t)op->timeout_ms * 1000000u;
        left_ms = sm_remaining_ms(begin_ns + limit_ns, UINT32_MAX);
        if (left_ms == 0)
            return busy(op, begin_ns);
    }
    symmem_status status = context->backend->event_synchronize(
        context->instance, sm_channel_eager_mark(channel), left_ms);
    if (status == SYMMEM_TIMEOUT)
        return busy(op, begin_ns);
    if (status != SYMMEM_OK)
        return failed(op, status, "event_synchronize");
    channel->eager_stream = NULL;
    return SYMMEM_OK;
}

/* The channel's call lock is held. */
static symmem_status run_now(const sm_channel_op *op, sm_channel *channel, uint64_t begin_ns) {
    if (channel->eager_stream != NULL) {
        symmem_status status = wait_for_stream(op, channel, begin_ns != 0 ? begin_ns : sm_now_ns());
        if (status != SYMMEM_OK)
            return status;
    }
    symmem_error_record record;
    record.status = SYMMEM_OK; /* the other members matter only once it is filled */
    sm_link_caller *caller = sm_link_set_caller(op->link, op->channel, &record);
    symmem_status status = call_backend(op, NULL, 0, NULL);
    caller->record = NULL;
    if (status == SYMMEM_OK)
        return SYMMEM_OK;
    /* Without a record the call failed, and not a signal operation. */
    if (record.status != status)
        return failed(op, status, entry_of(op));
    sm_copy_text(record.operation, sizeof record.operation, op->name); /* or it has a part's name */
    return sm_error_raise(&record);
}

/* --- front -------------------------------------------------------------------------- */

symmem_status sm_signal_check_channel(const sm_link *link, int32_t channel, const char *operation) {
    if (channel >= 0 && channel < link->channel_count)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, operation, "", "channel %d is not in [0, %d)", channel,
                  link->channel_count);
    (void)sm_error_channel(channel);
    return sm_error_sizes((uint64_t)link->channel_count, (uint64_t)(int64_t)channel);
}

/* Takes the call lock. *begin_ns_p is the time before that, or 0: the clock is read only if there
 * is something to wait for. */
static symmem_status lock_channel(const sm_channel_op *op, sm_channel *channel,
                                  uint64_t *begin_ns_p) {
    *begin_ns_p = 0;
    if (sm_timed_mutex_try_lock(&channel->call_lock))
        return SYMMEM_OK;
    *begin_ns_p = sm_now_ns();
    return sm_timed_mutex_lock(&channel->call_lock, sm_deadline_ns(op->timeout_ms))
               ? SYMMEM_OK
               : busy(op, *begin_ns_p);
}

symmem_status sm_channel_hold(const sm_channel_op *op, const symmem_stream *stream) {
    sm_channel *channel;
    uint64_t begin_ns;
    symmem_status status = sm_link_channel(op->link, op->channel, &channel);
    if (status == SYMMEM_OK)
        status = lock_channel(op, channel, &begin_ns);
    if (status != SYMMEM_OK || stream != NULL || channel->eager_stream == NULL)
        return status;
    status = wait_for_stream(op, channel, begin_ns != 0 ? begin_ns : sm_now_ns());
    if (status != SYMMEM_OK)
        sm_timed_mutex_unlock(&channel->call_lock);
    return status;
}

symmem_status sm_channel_follow(const sm_channel_op *op, const symmem_stream *stream) {
    frontier own;
    sm_channel *channel;
    symmem_status status = sm_link_channel(op->link, op->channel, &channel);
    return status == SYMMEM_OK ? follow(op, channel, stream->native, &own) : status;
}

void sm_channel_mark(const sm_channel_op *op, const symmem_stream *stream) {
    sm_channel *channel;
    if (sm_link_channel(op->link, op->channel, &channel) != SYMMEM_OK)
        return;
    const frontier own = frontier_of(channel, 0);
    (void)advance(op, channel, &own, stream->native);
}

void sm_channel_let_go(const sm_link *link, int32_t channel) {
    /* acquire; pairs with: make_channel */
    sm_timed_mutex_unlock(
        &atomic_load_explicit(&link->channels[channel], memory_order_acquire)->call_lock);
}

/* Answers POISONED if the handle is. The call lock is held.
 *
 * The call has looked before, without the lock, so that a poisoned handle is told before its
 * arguments are read and before it waits for the lock. Only the look with the lock is final. An
 * operation of another thread poisons the handle before it gives the lock back, and between the two
 * looks it may have held it. The ranks may then have met a different number of times, so the
 * backend must not be called.
 *
 * The devices are asked once a call, in the first look. This one loads a flag. It asks them again
 * if the call has waited for the lock, or if it is a part of an operation that began long before.
 */
static symmem_status refuse_poisoned(const sm_channel_op *op, bool has_waited) {
    return has_waited || op->is_held ? sm_link_refuse_poisoned(op->link, op->name)
                                     : sm_link_refuse_known_poison(op->link, op->name);
}

symmem_status sm_channel_submit(const sm_channel_op *op, const symmem_stream *stream) {
    sm_channel *channel;
    symmem_status status = sm_link_channel(op->link, op->channel, &channel);
    if (status != SYMMEM_OK)
        return status;
    uint64_t begin_ns = 0;
    sm_context_observe(op->link->context, op->begin_point);
    if (!op->is_held)
        status = lock_channel(op, channel, &begin_ns);
    if (status != SYMMEM_OK)
        return status;
    if (op->step == 0 || stream == NULL)
        status = refuse_poisoned(op, begin_ns != 0);
    if (status == SYMMEM_OK)
        status =
            stream != NULL ? enqueue(op, channel, stream->native) : run_now(op, channel, begin_ns);
    if (!op->is_held)
        sm_timed_mutex_unlock(&channel->call_lock);
    sm_context_observe(op->link->context, op->done_point);
    if (status != SYMMEM_OK)
        sm_group_explain(op->link->context);
    return status;
}

symmem_status sm_channel_run(const sm_channel_op *op, sm_channel *channel,
                             const symmem_stream *stream) {
    return stream != NULL ? enqueue(op, channel, stream->native) : run_now(op, channel, 0);
}

/* Names and points of an operation, by its kind. */
static const sm_channel_op forms[] = {
    {.kind = SM_BARRIER,
     .name = "barrier",
     .begin_point = "barrier.begin",
     .done_point = "barrier.done"},
    {.kind = SM_PUT_SIGNAL,
     .name = "put_signal",
     .begin_point = "put_signal.begin",
     .done_point = "put_signal.done"},
    {.kind = SM_WAIT_SIGNAL,
     .name = "wait_signal",
     .begin_point = "wait_signal.begin",
     .done_point = "wait_signal.done"},
};

/* The usual case: no other call has the channel, and no failpoint looks on. Then one look for
 * poison is enough. Returns false, with nothing done, in any other case. */
static bool submit_at_once(const sm_channel_op *op, const symmem_stream *stream,
                           symmem_status *status_p) {
    const sm_link *link = op->link;
    /* acquire; pairs with: make_channel of link.c */
    sm_channel *channel = atomic_load_explicit(&link->channels[op->channel], memory_order_acquire);
    if (link->context->point != NULL || channel == NULL ||
        !sm_timed_mutex_try_lock(&channel->call_lock))
        return false;
    const bool may_run = !sm_link_finds_poison(link);
    if (may_run)
        *status_p = sm_channel_run(op, channel, stream);
    sm_timed_mutex_unlock(&channel->call_lock);
    if (may_run && *status_p != SYMMEM_OK)
        sm_group_explain(link->context);
    return may_run;
}

static symmem_status signal_call(symmem_handle *handle, sm_signal_kind kind, int32_t peer,
                                 int32_t channel, uint32_t timeout_ms,
                                 const symmem_stream *stream) {
    sm_channel_op op = forms[kind];
    symmem_status status = sm_handle_check(handle, op.name);
    if (status != SYMMEM_OK)
        return status;
    sm_link *link = handle->link;
    symmem_ref ref;
    sm_link_ref(link, &ref);
    op.link = link;
    op.peer = peer;
    op.channel = channel;
    op.timeout_ms = sm_context_timeout(link->context, timeout_ms);
    op.refs = &ref;
    op.ref_count = 1;
    if (kind == SM_BARRIER && link->context->check_collectives)
        op.id.kind = SYMMEM_CALL_BARRIER;
    status = sm_signal_check_channel(link, channel, op.name);
    if (status == SYMMEM_OK && kind != SM_BARRIER)
        status = sm_handle_rank_check(handle, op.name, peer);
    if (status == SYMMEM_OK)
        status = sm_stream_fits(link->context, stream, link->device, op.name);
    if (status != SYMMEM_OK || submit_at_once(&op, stream, &status))
        return status;
    status = sm_link_refuse_poisoned(link, op.name);
    return status == SYMMEM_OK ? sm_channel_submit(&op, stream) : status;
}

symmem_status symmem_barrier(symmem_handle *handle, int32_t channel, uint32_t timeout_ms,
                             symmem_stream *stream) {
    SM_PUBLIC_CALL;
    return signal_call(handle, SM_BARRIER, 0, channel, timeout_ms, stream);
}

symmem_status symmem_put_signal(symmem_handle *handle, int32_t dst_rank, int32_t channel,
                                uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    return signal_call(handle, SM_PUT_SIGNAL, dst_rank, channel, timeout_ms, stream);
}

symmem_status symmem_wait_signal(symmem_handle *handle, int32_t src_rank, int32_t channel,
                                 uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    return signal_call(handle, SM_WAIT_SIGNAL, src_rank, channel, timeout_ms, stream);
}
