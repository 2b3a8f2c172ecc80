/* SPDX-License-Identifier: BSD-3-Clause */
/* The collective reset after a failed signal operation. */
#include <stdlib.h>

#include "backend/reach.h"
#include "stream/channel.h"
#include "bootstrap/session_internal.h"
#include "backend/failure.h"
#include "backend/host.h"
#include "backend/query.h"
#include "memory/group_explain.h"
#include "rendezvous/handle.h"
#include "rendezvous/link_poison.h"
#include "stream/graph.h"

#define MARK_LATE_NS 50000000

static const char operation[] = "handle_reset";

static symmem_status channel_busy(int32_t index) {
    (void)sm_fail(SYMMEM_BUSY, operation, "reset.begin",
                  "channel %d has a pending operation: synchronize its stream first", index);
    return sm_error_channel(index);
}

static symmem_status check_idle(sm_link *link, sm_channel *channel, int32_t index) {
    bool reached = true;
    /* If the lock is taken, another thread is in a call on the channel. */
    if (!sm_timed_mutex_lock(&channel->call_lock, 1))
        return channel_busy(index);
    symmem_status status = SYMMEM_OK;
    if (channel->eager_stream != NULL)
        status = link->context->backend->event_query(link->context->instance,
                                                     sm_channel_eager_mark(channel), &reached);
    sm_timed_mutex_unlock(&channel->call_lock);
    if (status != SYMMEM_OK)
        return sm_backend_failed(link->context, status, operation, "event_query");
    return reached ? SYMMEM_OK : channel_busy(index);
}

static symmem_status check_graphs(sm_link *link) {
    bool pending;
    symmem_status status = sm_graph_pending(link, operation, &pending);
    if (status != SYMMEM_OK || !pending)
        return status;
    return sm_fail(
        SYMMEM_BUSY, operation, "reset.begin",
        "a launch of a graph with its operations is pending: synchronize its stream first");
}

/* BUSY if an operation is pending on any channel. */
static symmem_status check_pending(sm_link *link) {
    pthread_mutex_lock(&link->lock);
    bool used = link->used_channels;
    pthread_mutex_unlock(&link->lock);
    for (int32_t c = 0; used && c < link->channel_count; c++) {
        pthread_mutex_lock(&link->lock);
        sm_channel *channel = link->channels[c];
        pthread_mutex_unlock(&link->lock);
        symmem_status status = channel == NULL ? SYMMEM_OK : check_idle(link, channel, c);
        if (status != SYMMEM_OK)
            return status;
    }
    return check_graphs(link);
}

/* Forgets failures of composite operations whose parts do not look at them. No operation is
 * pending. */
static void forget_failures(sm_link *link) {
    pthread_mutex_lock(&link->lock);
    for (int32_t c = 0; link->used_channels && c < link->channel_count; c++)
        if (link->channels[c] != NULL)
            __atomic_store_n(&link->channels[c]->composite.failed, NULL, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&link->lock);
}

static symmem_status reset_state(sm_link *link) {
    symmem_context *context = link->context;
    symmem_status status = sm_context_point(context, operation, "reset.state.before");
    if (status != SYMMEM_OK)
        return status;
    forget_failures(link);
    status = context->backend->signal_reset(context->instance, &link->peers);
    if (status != SYMMEM_OK)
        return sm_backend_failed(context, status, operation, "signal_reset");
    return sm_context_point(context, operation, "reset.state.after");
}

/* Waits until operations count as settled. A caller that has waited for an operation has not waited
 * for the mark after it, which may come a moment later. Takes at most half of the caller's time, so
 * that the other ranks can still be told. */
static symmem_status check_settled(sm_link *link, uint64_t deadline_ns) {
    const uint64_t begin_ns = sm_now_ns();
    uint64_t wait_ns = MARK_LATE_NS;
    if (deadline_ns != 0 && deadline_ns < begin_ns + 2 * wait_ns)
        wait_ns = deadline_ns > begin_ns ? (deadline_ns - begin_ns) / 2 : 0;
    for (;; sm_sleep_ns(1000000)) {
        SM_ATTEMPT(look);
        symmem_status status = check_pending(link);
        if (status == SYMMEM_BUSY && sm_now_ns() < begin_ns + wait_ns)
            continue;
        (void)sm_error_raise(&look.error);
        return status;
    }
}

/* The state that a rank reports before the reset begins. */
typedef struct readiness {
    int32_t status;
    int32_t channel;
    int32_t is_poisoned;
} readiness;

static symmem_status check_readiness(const sm_link *link, const readiness *all) {
    for (int32_t r = 0; r < link->group->world_size; r++) {
        symmem_status status = (symmem_status)all[r].status;
        if (status == SYMMEM_OK)
            continue;
        (void)sm_fail(status, operation, "reset.begin", "rank %d is not ready: %s", r,
                      symmem_status_text(status));
        (void)sm_error_failed_rank(r);
        return sm_error_channel(all[r].channel);
    }
    return SYMMEM_OK;
}

/* Finds out this rank's state. Only the look at the streams, or at what a device reported, may find
 * that the link is poisoned. */
static readiness get_ready(sm_link *link, uint64_t deadline_ns) {
    readiness own = {.status = sm_context_point(link->context, operation, "reset.begin")};
    if (own.status == SYMMEM_OK)
        own.status = check_settled(link, deadline_ns);
    /* Writes under way to the peers' state must not arrive after their reset. */
    if (own.status == SYMMEM_OK)
        own.status = sm_reach_quiet(link->context, &link->peers, operation, deadline_ns);
    symmem_error_record error;
    (void)sm_error_get(&error);
    own.channel = error.channel;
    sm_link_check_device(link);
    own.is_poisoned = sm_link_is_poisoned(&link->peers);
    return own;
}

/* Tells the backend of lost ranks, on every rank that goes on from here. If some ranks do not go
 * on, the reset fails and poisons those that do, and the next reset tells all. */
static void tell_lost(const sm_link *link, const readiness *all) {
    const sm_backend *backend = link->context->backend;
    int32_t poisoned = 0;
    for (int32_t r = 0; r < link->group->world_size; r++)
        poisoned += all[r].is_poisoned;
    if (poisoned != 0 && backend->signal_lost)
        backend->signal_lost(link->context->instance, &link->peers);
}

/* Begins the reset by an all_gather. An agreement would not do: as the operation's first exchange
 * it has to follow a peer that started over after an earlier failure. */
static symmem_status begin_together(sm_link *link, uint64_t deadline_ns) {
    const readiness own = get_ready(link, deadline_ns);
    sm_session *session = link->group->session;
    readiness *all = calloc((size_t)link->group->world_size, sizeof *all);
    if (all == NULL) { /* no memory for the others' states: only tells them */
        (void)sm_fail(SYMMEM_OUT_OF_MEMORY, operation, "reset.begin", "no memory for %d ranks",
                      (int)link->group->world_size);
        symmem_error_record failure;
        (void)sm_error_get(&failure);
        const sm_contribution none = {.failure = &failure};
        return sm_session_gather(session, operation, "reset.begin", &none, NULL, true, deadline_ns);
    }
    symmem_status status = sm_session_all_gather(session, operation, "reset.begin", &own,
                                                 sizeof own, all, true, deadline_ns);
    if (status == SYMMEM_OK)
        status = check_readiness(link, all);
    if (status == SYMMEM_OK)
        tell_lost(link, all);
    free(all);
    return status;
}

/* The group's call lock is held. */
static symmem_status reset_together(sm_link *link, uint64_t deadline_ns) {
    sm_session *session = link->group->session;
    symmem_status status = begin_together(link, deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    sm_session_forget_remarks(session);
    /* No rank signals before all have left the second agreement. */
    status = sm_session_agree(session, operation, "reset.end", reset_state(link), deadline_ns);
    symmem_error_record error;
    (void)sm_error_get(&error);
    if (status == SYMMEM_OK)
        sm_link_clear_poison(link);
    else
        sm_link_poison_after_reset(link, &error); /* some ranks' state may not be reset */
    return status;
}

symmem_status symmem_handle_reset(symmem_handle *handle, uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_handle_check(handle, operation);
    if (status != SYMMEM_OK)
        return status;
    sm_link *link = handle->link;
    uint64_t begin_ns = sm_now_ns();
    uint64_t deadline_ns = sm_deadline_ns(sm_context_timeout(link->context, timeout_ms));
    status = sm_group_check(link->group, operation);
    if (status == SYMMEM_OK)
        status = sm_group_enter(link->group, operation, deadline_ns);
    if (status == SYMMEM_OK) {
        const uint64_t before_ns = sm_call_deadline(deadline_ns);
        status = reset_together(link, deadline_ns);
        (void)sm_call_deadline(before_ns);
        sm_group_leave(link->group);
        sm_context_observe(link->context, "reset.done");
    }
    if (status != SYMMEM_OK) {
        (void)sm_error_elapsed(sm_now_ns() - begin_ns);
        sm_group_explain(link->context);
    } else {
        sm_context_forget_lack(link->context, false);
    }
    return status;
}
