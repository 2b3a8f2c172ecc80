/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors between ranks. All go through group rank 0, so that a rank sends one message and rank
 * 0 sends each rank as few as the kernel's limit allows.
 *
 * An empty message means that the sender cannot send descriptors. Rank 0 then uses -1 for that
 * rank's descriptors and goes on, so that no rank waits for a failed one. The failed rank's own
 * status tells the others in the agreement that follows. Ranks without a message from rank 0 cannot
 * go on.
 */
#include "bootstrap/session_fds.h"
#include "bootstrap/session_internal.h"
#include "bootstrap/session_cause.h"
#include "bootstrap/session_reach.h"
#include "bootstrap/session_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KIND_GATHER = 1, KIND_SPREAD = 2, KIND_BROADCAST = 3, KIND_SINGLE = 4 };

/* Each step of a transfer waits this long before it looks after the peers. */
#define STEP_MS 50u
#define GONE_LOOKS 50
#define LEAST_LOOKS 10 /* made even if the time is up */
#define FAILURE_LOOKS 4

static void close_fds(int *fds, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

static symmem_status duplicate(const sm_session *session, const sm_call *call, int fd, int *fd_p) {
    if (fd < 0) {
        *fd_p = -1;
        return SYMMEM_OK;
    }
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return sm_session_describe(
            session, call, sm_fail_errno(errno, "", "", "cannot duplicate descriptor %d", fd));
    *fd_p = copy;
    return SYMMEM_OK;
}

static sm_ipc_tag tag_of(const sm_session *session, uint64_t sequence, int32_t source,
                         uint32_t kind) {
    sm_ipc_tag tag;
    memset(&tag, 0, sizeof(tag));
    memcpy(tag.nonce, session->secret, sizeof(tag.nonce));
    tag.group = session->id;
    tag.sequence = sequence;
    tag.source = source;
    tag.kind = kind;
    return tag;
}

static symmem_status fail_rank(const sm_session *session, const sm_call *call, int32_t rank,
                               const char *what) {
    uint64_t ranks[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    ranks[rank / 64] = 1ull << (rank % 64);
    return sm_session_fail_ranks(session, call, SYMMEM_TIMEOUT, ranks, what);
}

/* Looks at the peers after a step without success: whether one has ended or started over, and
 * whether the time is up. */
static symmem_status look_around(sm_session *session, const sm_call *call, int32_t waiting_for,
                                 bool root) {
    sm_outcome outcome = sm_session_watch(session, call);
    /* Rank 0 knows which ranks came. It does not name a rank that came and gave up. */
    if (root && outcome.again)
        return fail_rank(session, call, waiting_for, "did not send descriptors");
    if (outcome.status != SYMMEM_OK)
        return outcome.status;
    /* A peer that could not send is in the agreement that follows. */
    symmem_status status =
        call->agrees && ++session->looks % FAILURE_LOOKS == 0
            ? sm_session_peer_failure(session, call->operation, call->deadline_ns)
            : SYMMEM_OK;
    if (status != SYMMEM_OK || !sm_expired(call->deadline_ns))
        return status;
    /* Rank 0 may be about to report the rank for which it waited. */
    for (int i = 0; i < LEAST_LOOKS && !root && sm_session_given_up_by(session) < 0; i++)
        sm_sleep_ns(10000000);
    return fail_rank(session, call, waiting_for, "did not send or take descriptors");
}

/* Whether the rank lives, as far as is known. The order matters: a process that no longer is ending
 * has gone. */
static bool lives(const sm_session *session, int32_t rank) {
    return !sm_session_peer_is_ending(session, rank) &&
           sm_session_peer_state(session, rank) == SYMMEM_PEER_ALIVE;
}

/* Handles a peer's missing socket. A socket vanishes with its session, or with its process shortly
 * before the process counts as ended (seconds before, if a device's driver has much to do). */
static symmem_status socket_gone(sm_session *session, const sm_call *call, int32_t rank,
                                 const symmem_error_record *found) {
    const int looks = found->status == SYMMEM_PERMISSION ? LEAST_LOOKS : GONE_LOOKS;
    for (int i = 0; i < looks || !lives(session, rank); i++) {
        if (i >= LEAST_LOOKS && sm_expired(call->deadline_ns))
            break;
        sm_outcome outcome = sm_session_watch(session, call);
        if (outcome.status != SYMMEM_OK)
            return outcome.status;
        sm_sleep_ns(10000000);
    }
    if (found->status == SYMMEM_PERMISSION) /* another user has taken the name of a living rank */
        return sm_session_describe(session, call, sm_error_raise(found));
    if (sm_session_given_up_by(session) < 0 && sm_session_lost_socket(session, call, rank))
        return SYMMEM_SYSTEM;
    return fail_rank(session, call, rank, "gave the operation up");
}

/* Tries to send once. *error_p says why it failed, or has status SYMMEM_OK if there is only no
 * answer. */
static symmem_status try_send(sm_session *session, const sm_join *peer, const sm_ipc_tag *tag,
                              const int *fds, int count, uint32_t limit_ms,
                              symmem_error_record *error_p) {
    SM_ATTEMPT(sending);
    const symmem_status status =
        sm_ipc_send(session->ipc, peer->address, peer->address_bytes, tag, fds, count, limit_ms);
    if (status != SYMMEM_OK)
        (void)sm_error_get(error_p);
    return status;
}

static symmem_status raise_as(const sm_session *session, const sm_call *call, symmem_status status,
                              const symmem_error_record *error) {
    (void)sm_error_raise(error);
    return sm_session_describe(session, call, status);
}

static symmem_status send_to(sm_session *session, const sm_call *call, int32_t rank,
                             const sm_ipc_tag *tag, const int *fds, int count) {
    const sm_join *peer = &session->joins[rank];
    for (;;) {
        symmem_error_record error;
        uint32_t step_ms = sm_remaining_ms(call->deadline_ns, STEP_MS);
        symmem_status status =
            try_send(session, peer, tag, fds, count, step_ms == 0 ? 1 : step_ms, &error);
        if (status == SYMMEM_OK)
            return status;
        if (status == SYMMEM_PEER_LOST || status == SYMMEM_PERMISSION)
            return socket_gone(session, call, rank, &error);
        const bool in_flight = status == SYMMEM_LIMIT && error.system_errno == ETOOMANYREFS;
        if (status != SYMMEM_TIMEOUT && !in_flight)
            return raise_as(session, call, status, &error);
        status = look_around(session, call, rank, false);
        /* The time is up because of the limit on descriptors in flight, and not because of the
         * peer. */
        if (status == SYMMEM_TIMEOUT && in_flight && sm_expired(call->deadline_ns))
            return raise_as(session, call, error.status, &error);
        if (status != SYMMEM_OK)
            return status;
    }
}

/* Tries to receive once. TIMEOUT without an error: nothing has come. */
static symmem_status try_receive(sm_session *session, const sm_ipc_tag *want, int32_t *source_p,
                                 int *fds_p, int *count_p, uint32_t limit_ms) {
    SM_ATTEMPT(receiving);
    const symmem_status status =
        sm_ipc_recv(session->ipc, want, source_p, fds_p, count_p, limit_ms);
    if (status != SYMMEM_TIMEOUT)
        (void)sm_error_raise(&receiving.error);
    return status;
}

/* Receives the next message of `want`. *count_p is 0 if the sender cannot send descriptors. fds_p
 * has SM_IPC_MAX_FDS entries. */
static symmem_status receive_from(sm_session *session, const sm_call *call, const sm_ipc_tag *want,
                                  int32_t waiting_for, int32_t *source_p, int *fds_p,
                                  int *count_p) {
    for (;;) {
        uint32_t step_ms = sm_remaining_ms(call->deadline_ns, STEP_MS);
        symmem_status status =
            try_receive(session, want, source_p, fds_p, count_p, step_ms == 0 ? 1 : step_ms);
        if (status != SYMMEM_TIMEOUT)
            return status == SYMMEM_OK ? status : sm_session_describe(session, call, status);
        status = look_around(session, call, waiting_for, want->source == -1);
        if (status != SYMMEM_OK)
            return status;
    }
}

/* Tells a rank that no descriptors will come. One try suffices, because the rank's deadline ends
 * its wait in any case. */
static void send_refusal(sm_session *session, int32_t rank, const sm_ipc_tag *tag) {
    const sm_join *peer = &session->joins[rank];
    SM_ATTEMPT(sending);
    (void)!sm_ipc_send(session->ipc, peer->address, peer->address_bytes, tag, NULL, 0, 20);
}

/* Handles a refusal. The sender may have failed because of a rank that ended. Otherwise its own
 * status tells all ranks in the agreement that follows. */
static symmem_status refused(sm_session *session, const sm_call *call, int32_t rank) {
    sm_outcome outcome = sm_session_watch(session, call);
    if (outcome.status != SYMMEM_OK)
        return outcome.status;
    sm_session_fail(session, call, SYMMEM_SYSTEM, "rank %d could not send its descriptors", rank);
    return sm_error_failed_rank(rank);
}

/* Whether the others need to be told. They notice themselves that a rank ended or does not come. */
static bool worth_telling(symmem_status status) {
    return status != SYMMEM_TIMEOUT && status != SYMMEM_PEER_LOST;
}

/* --- all to all --------------------------------------------------------------------- */

static size_t chunk_of(size_t total, size_t start) {
    return total - start < SM_IPC_MAX_FDS ? total - start : SM_IPC_MAX_FDS;
}

/* Gathers all ranks' descriptors into fds_p on rank 0. `served` marks the ranks that want an
 * answer. */
static symmem_status root_gather(sm_session *session, const sm_call *call, uint64_t sequence,
                                 int count, int *fds_p, bool *served) {
    bool arrived[SYMMEM_MAX_WORLD_SIZE] = {true};
    int32_t waiting_for = 1;
    symmem_error_record shortage = {.status = SYMMEM_OK};
    for (int32_t left = session->config.world_size - 1; left > 0;) {
        while (arrived[waiting_for])
            waiting_for++;
        sm_ipc_tag want = tag_of(session, sequence, -1, KIND_GATHER);
        int32_t source = -1;
        int fds[SM_IPC_MAX_FDS], got = 0;
        symmem_status status = receive_from(session, call, &want, waiting_for, &source, fds, &got);
        bool none_left = status == SYMMEM_LIMIT && source >= 1 &&
                         source < session->config.world_size && !arrived[source];
        if (none_left && shortage.status == SYMMEM_OK) {
            (void)sm_error_get(&shortage);
            close_fds(fds_p, (size_t)session->config.world_size * (size_t)count);
        }
        if (status != SYMMEM_OK && !none_left)
            return status;
        if (source < 1 || source >= session->config.world_size || arrived[source] ||
            (got != 0 && got != count)) {
            close_fds(fds, (size_t)got);
            return sm_session_fail(session, call, SYMMEM_MISMATCH,
                                   "rank %d sent %d descriptors instead of %d", source, got, count);
        }
        /* After a shortage the remaining messages are received as well, so that no rank is stuck in
         * sending. */
        if (shortage.status != SYMMEM_OK)
            close_fds(fds, (size_t)got);
        else
            memcpy(fds_p + (size_t)source * (size_t)count, fds, (size_t)got * sizeof(fds[0]));
        arrived[source] = true;
        served[source] = got != 0 || none_left;
        left--;
        if (shortage.status == SYMMEM_OK &&
            sm_session_point(session, call, "ipc.recv.after") != SYMMEM_OK) {
            (void)sm_error_get(&shortage);
            close_fds(fds_p, (size_t)session->config.world_size * (size_t)count);
        }
    }
    return sm_error_raise(&shortage);
}

/* Sends all messages to one rank. If some cannot be sent, the first of those is a refusal. */
static symmem_status spread_to(sm_session *session, const sm_call *call, int32_t rank,
                               uint64_t sequence, const int *fds, size_t total) {
    symmem_status status = SYMMEM_OK;
    for (size_t start = 0; start < total && status == SYMMEM_OK; sequence++) {
        sm_ipc_tag tag = tag_of(session, sequence, 0, KIND_SPREAD);
        size_t count = chunk_of(total, start);
        status = sm_session_point(session, call, "ipc.send.before");
        if (status == SYMMEM_OK)
            status = send_to(session, call, rank, &tag, fds + start, (int)count);
        if (status == SYMMEM_OK) {
            start += count;
            tag.sequence++;
            status = sm_session_point(session, call, "ipc.send.after");
        }
        if (status != SYMMEM_OK && start < total && worth_telling(status))
            send_refusal(session, rank, &tag);
    }
    return status;
}

static symmem_status root_spread(sm_session *session, const sm_call *call, uint64_t sequence,
                                 const int *fds, size_t total, bool *served) {
    symmem_status status = SYMMEM_OK;
    for (int32_t rank = 1; rank < session->config.world_size && status == SYMMEM_OK; rank++) {
        if (served[rank])
            status = spread_to(session, call, rank, sequence, fds, total);
        served[rank] = false; /* a later failure is no longer this rank's */
    }
    return status;
}

static symmem_status root_exchange(sm_session *session, const sm_call *call, uint64_t sequence,
                                   const int *own, int count, int *fds_p) {
    size_t total = (size_t)session->config.world_size * (size_t)count;
    bool served[SYMMEM_MAX_WORLD_SIZE];
    memset(served, true, sizeof(served));
    symmem_status status = SYMMEM_OK;
    for (int i = 0; i < count && status == SYMMEM_OK; i++)
        status = duplicate(session, call, own[i], &fds_p[i]);
    if (status == SYMMEM_OK)
        status = root_gather(session, call, sequence, count, fds_p, served);
    if (status == SYMMEM_OK)
        status = root_spread(session, call, sequence, fds_p, total, served);
    if (status == SYMMEM_OK || !worth_telling(status))
        return status;
    sm_ipc_tag tag = tag_of(session, sequence, 0, KIND_SPREAD);
    for (int32_t rank = 1; rank < session->config.world_size; rank++)
        if (served[rank])
            send_refusal(session, rank, &tag);
    return status;
}

static symmem_status leaf_receive(sm_session *session, const sm_call *call, uint64_t sequence,
                                  size_t total, int *fds_p) {
    symmem_error_record own = {.status = SYMMEM_OK};
    for (size_t start = 0, chunk = 0; start < total; chunk++) {
        sm_ipc_tag want = tag_of(session, sequence + chunk, 0, KIND_SPREAD);
        int32_t source = -1;
        int fds[SM_IPC_MAX_FDS], got = 0;
        symmem_status status = receive_from(session, call, &want, 0, &source, fds, &got);
        if (status != SYMMEM_OK)
            return status;
        if ((size_t)got != chunk_of(total, start)) {
            close_fds(fds, (size_t)got);
            return refused(session, call, 0);
        }
        memcpy(fds_p + start, fds, (size_t)got * sizeof(fds[0]));
        start += (size_t)got;
        /* The remaining messages are received as well, so that rank 0 is not stuck in sending. */
        if (sm_session_point(session, call, "ipc.recv.after") != SYMMEM_OK &&
            own.status == SYMMEM_OK)
            (void)sm_error_get(&own);
    }
    return sm_error_raise(&own);
}

static symmem_status leaf_exchange(sm_session *session, const sm_call *call, uint64_t sequence,
                                   const int *own, int count, int *fds_p) {
    sm_ipc_tag tag = tag_of(session, sequence, session->config.rank, KIND_GATHER);
    symmem_status status = sm_session_point(session, call, "ipc.send.before");
    if (status == SYMMEM_OK)
        status = send_to(session, call, 0, &tag, own, count);
    if (status != SYMMEM_OK) {
        if (worth_telling(status))
            send_refusal(session, 0, &tag);
        return status;
    }
    status = sm_session_point(session, call, "ipc.send.after");
    if (status != SYMMEM_OK)
        return status;
    size_t total = (size_t)session->config.world_size * (size_t)count;
    return leaf_receive(session, call, sequence, total, fds_p);
}

/* Ends the session after a timeout: a late rank may come with older numbers, so the next call
 * starts afresh. */
static symmem_status closing(sm_session *session, const sm_call *call, symmem_status status) {
    if (status != SYMMEM_TIMEOUT && status != SYMMEM_PEER_LOST)
        return status;
    status = sm_session_give_up(session, call, status);
    sm_session_take_down(session, call);
    return status;
}

symmem_status sm_session_all_gather_fds(sm_session *session, const char *operation, const int *fds,
                                        int count, int *fds_p, uint64_t deadline_ns) {
    sm_call call = sm_call_start(operation, "descriptors", deadline_ns);
    call.agrees = true;
    size_t total = (size_t)session->config.world_size * (size_t)count;
    for (size_t i = 0; i < total; i++)
        fds_p[i] = -1;
    symmem_status status = sm_session_up(session, &call);
    if (status == SYMMEM_OK)
        status = sm_session_check_reach(session, &call);
    if (status != SYMMEM_OK)
        return status;
    /* Counted before anything can fail, so that all ranks stay in step. */
    uint64_t sequence = session->fd_sequence;
    session->fd_sequence += (total + SM_IPC_MAX_FDS - 1) / SM_IPC_MAX_FDS;
    if (session->config.world_size == 1)
        for (int i = 0; i < count && status == SYMMEM_OK; i++)
            status = duplicate(session, &call, fds[i], &fds_p[i]);
    else if (session->config.rank == 0)
        status = root_exchange(session, &call, sequence, fds, count, fds_p);
    else
        status = leaf_exchange(session, &call, sequence, fds, count, fds_p);
    if (status != SYMMEM_OK)
        close_fds(fds_p, total);
    return closing(session, &call, status);
}

/* --- one to all --------------------------------------------------------------------- */

static symmem_status broadcast_send(sm_session *session, const sm_call *call, const sm_ipc_tag *tag,
                                    int fd, int *fd_p) {
    symmem_status status = duplicate(session, call, fd, fd_p);
    int32_t rank = 0;
    while (rank < session->config.world_size && status == SYMMEM_OK) {
        if (rank == session->config.rank) {
            rank++;
            continue;
        }
        status = sm_session_point(session, call, "ipc.send.before");
        if (status == SYMMEM_OK)
            status = send_to(session, call, rank, tag, &fd, 1);
        if (status == SYMMEM_OK) {
            rank++; /* served: a later failure is no longer this rank's */
            status = sm_session_point(session, call, "ipc.send.after");
        }
    }
    if (!worth_telling(status))
        return status;
    for (; rank < session->config.world_size; rank++)
        if (rank != session->config.rank)
            send_refusal(session, rank, tag);
    return status;
}

/* Receives one message. *came_p: the message has come, with or without success, and is not to be
 * received again. */
static symmem_status receive_one(sm_session *session, const sm_call *call, const sm_ipc_tag *want,
                                 int *fd_p, bool *came_p) {
    int32_t source = -1;
    int fds[SM_IPC_MAX_FDS], got = 0;
    symmem_status status = receive_from(session, call, want, want->source, &source, fds, &got);
    *came_p = source >= 0;
    if (status != SYMMEM_OK)
        return status;
    if (got != 1) {
        close_fds(fds, (size_t)got);
        return refused(session, call, want->source);
    }
    *fd_p = fds[0];
    return sm_session_point(session, call, "ipc.recv.after");
}

symmem_status sm_session_broadcast_fd(sm_session *session, const char *operation, int root, int fd,
                                      int *fd_p, uint64_t deadline_ns) {
    sm_call call = sm_call_start(operation, "descriptors", deadline_ns);
    call.agrees = true;
    *fd_p = -1;
    symmem_status status = sm_session_up(session, &call);
    if (status == SYMMEM_OK)
        status = sm_session_check_reach(session, &call);
    if (status != SYMMEM_OK)
        return status;
    bool came;
    sm_ipc_tag tag = tag_of(session, session->fd_sequence++, root, KIND_BROADCAST);
    status = root == session->config.rank ? broadcast_send(session, &call, &tag, fd, fd_p)
                                          : receive_one(session, &call, &tag, fd_p, &came);
    if (status != SYMMEM_OK)
        close_fds(fd_p, 1);
    return closing(session, &call, status);
}

/* --- one to one --------------------------------------------------------------------- */

static symmem_status keep_own(sm_session *session, const sm_call *call, int fd) {
    sm_own_fd *entry = malloc(sizeof(*entry));
    if (entry == NULL)
        return sm_session_fail(session, call, SYMMEM_OUT_OF_MEMORY, "no memory for a descriptor");
    symmem_status status = duplicate(session, call, fd, &entry->fd);
    if (status != SYMMEM_OK) {
        free(entry);
        return status;
    }
    entry->next = NULL;
    sm_own_fd **link_p = &session->own_fds;
    while (*link_p != NULL)
        link_p = &(*link_p)->next;
    *link_p = entry;
    return SYMMEM_OK;
}

static symmem_status take_own(sm_session *session, const sm_call *call, int *fd_p) {
    sm_own_fd *entry = session->own_fds;
    /* No other thread can send it meanwhile, because this call holds the group. */
    if (entry == NULL)
        return fail_rank(session, call, session->config.rank, "has not sent itself a descriptor");
    session->own_fds = entry->next;
    *fd_p = entry->fd;
    free(entry);
    return sm_session_point(session, call, "ipc.recv.after");
}

static symmem_status check_pair(sm_session *session, const sm_call *call, int32_t rank,
                                const char *(*reach)(const sm_session *session, int32_t rank)) {
    if (rank < 0 || rank >= session->config.world_size)
        return sm_session_fail(session, call, SYMMEM_OUT_OF_RANGE, "no rank %d", rank);
    if (session->config.world_size == 1)
        return sm_session_up(session, call); /* no peer to wait for */
    if (session->id == 0)
        return sm_session_fail(session, call, SYMMEM_INVALID_ARGUMENT,
                               "the group was not brought up by a collective call");
    const char *why = reach(session, rank);
    if (why == NULL)
        return SYMMEM_OK;
    sm_session_fail(session, call, SYMMEM_UNREACHABLE, "rank %d is %s", rank, why);
    return sm_error_failed_rank(rank);
}

symmem_status sm_session_send_fd(sm_session *session, int32_t dst, int fd, uint64_t deadline_ns) {
    sm_call call = sm_call_start("group_send_fd", "descriptors", deadline_ns);
    symmem_status status = check_pair(session, &call, dst, sm_session_out_of_reach);
    if (status == SYMMEM_OK)
        status = sm_session_point(session, &call, "ipc.send.before");
    if (status != SYMMEM_OK)
        return status;
    if (dst == session->config.rank) {
        status = keep_own(session, &call, fd);
    } else {
        sm_ipc_tag tag = tag_of(session, session->sent[dst], session->config.rank, KIND_SINGLE);
        status = send_to(session, &call, dst, &tag, &fd, 1);
    }
    if (status != SYMMEM_OK)
        return status;
    session->sent[dst]++;
    return sm_session_point(session, &call, "ipc.send.after");
}

symmem_status sm_session_recv_fd(sm_session *session, int32_t src, int *fd_p,
                                 uint64_t deadline_ns) {
    sm_call call = sm_call_start("group_recv_fd", "descriptors", deadline_ns);
    symmem_status status = check_pair(session, &call, src, sm_session_reaches_not);
    if (status != SYMMEM_OK)
        return status;
    int fd = -1;
    bool came = false;
    sm_ipc_tag want = tag_of(session, session->received[src], src, KIND_SINGLE);
    status = src == session->config.rank ? take_own(session, &call, &fd)
                                         : receive_one(session, &call, &want, &fd, &came);
    if (came || fd >= 0 || status == SYMMEM_OK)
        session->received[src]++;
    if (status == SYMMEM_OK)
        *fd_p = fd;
    else
        close_fds(&fd, 1);
    return status;
}
