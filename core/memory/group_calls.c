/* SPDX-License-Identifier: BSD-3-Clause */
/* The exchange over the host that a group offers to users and to backends. */
#include "bootstrap/session_fds.h"
#include "memory/mapping.h"
#include "memory/group_calls.h"
#include "backend/host.h"
#include "backend/query.h"

#include <string.h>
#include <unistd.h>

#define ALL_GATHER_MAX_BYTES ((size_t)64 * 1024)
#define GONE_NS 500000000u

symmem_status sm_group_rank_check(const symmem_group *group, int32_t rank, const char *operation) {
    if (rank >= 0 && rank < group->world_size)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, operation, "", "rank %d in group '%s' of %d", (int)rank,
                  group->name, (int)group->world_size);
    return sm_error_sizes((uint64_t)group->world_size, (uint64_t)rank);
}

static uint64_t deadline_of(const symmem_group *group, uint32_t timeout_ms) {
    return sm_deadline_ns(sm_context_timeout(group->context, timeout_ms));
}

/* Gathers one byte from every rank. A rank that gave up an earlier call is followed from here
 * on. */
static symmem_status exchange_byte(const symmem_group *group, const char *operation,
                                   uint64_t deadline_ns) {
    uint8_t in = 1;
    uint8_t out[SYMMEM_MAX_WORLD_SIZE];
    return sm_session_all_gather(group->session, operation, "arrive", &in, sizeof(in), out, true,
                                 deadline_ns);
}

/* --- users' calls ------------------------------------------------------------------- */

symmem_status symmem_group_all_gather(symmem_group *group, const void *in, size_t bytes, void *out,
                                      uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    static const char operation[] = "group_all_gather";
    symmem_status status = sm_group_check(group, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!in || !out)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "%s is NULL", in ? "out" : "in");
    if (bytes == 0)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "0 bytes");
    if (bytes > ALL_GATHER_MAX_BYTES) {
        (void)sm_fail(SYMMEM_OUT_OF_RANGE, operation, "", "%zu bytes are more than %zu", bytes,
                      ALL_GATHER_MAX_BYTES);
        return sm_error_sizes(ALL_GATHER_MAX_BYTES, bytes);
    }
    uint64_t deadline_ns = deadline_of(group, timeout_ms);
    status = sm_group_enter(group, operation, deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    status =
        sm_session_all_gather(group->session, operation, "data", in, bytes, out, true, deadline_ns);
    return sm_group_end_call(group, status);
}

symmem_status symmem_group_barrier(symmem_group *group, uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    static const char operation[] = "group_barrier";
    symmem_status status = sm_group_check(group, operation);
    if (status != SYMMEM_OK)
        return status;
    uint64_t deadline_ns = deadline_of(group, timeout_ms);
    status = sm_group_enter(group, operation, deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    status = exchange_byte(group, operation, deadline_ns);
    return sm_group_end_call(group, status);
}

static symmem_status check_fd(int fd, const char *operation) {
    if (fd >= -1)
        return SYMMEM_OK;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "descriptor %d", fd);
}

static symmem_status check_output(const void *output, const char *operation) {
    if (output)
        return SYMMEM_OK;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "the output pointer is NULL");
}

/* Makes one rank's failure the failure of all, which then close the descriptors that they received.
 * A rank whose session failed cannot agree with the others, which find that out themselves. */
static symmem_status agree_on_fds(symmem_group *group, const char *operation, symmem_status own,
                                  const int *fds, int32_t count, uint64_t deadline_ns) {
    if (own != SYMMEM_OK && sm_session_id(group->session) == 0)
        return own;
    symmem_status status =
        sm_session_agree(group->session, operation, "descriptors", own, deadline_ns);
    for (int32_t i = 0; status != SYMMEM_OK && own == SYMMEM_OK && i < count; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    return status;
}

symmem_status symmem_group_all_gather_fds(symmem_group *group, int fd, int *fds_p,
                                          uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    static const char operation[] = "group_all_gather_fds";
    symmem_status status = sm_group_check(group, operation);
    if (status == SYMMEM_OK)
        status = check_output(fds_p, operation);
    if (status == SYMMEM_OK)
        status = check_fd(fd, operation);
    if (status != SYMMEM_OK)
        return status;
    uint64_t deadline_ns = deadline_of(group, timeout_ms);
    status = sm_group_enter(group, operation, deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    /* Descriptors go through one rank, and the others would not learn which rank is missing. */
    status = exchange_byte(group, operation, deadline_ns);
    int fds[SYMMEM_MAX_WORLD_SIZE]; /* copied to the caller once all ranks have theirs */
    if (status == SYMMEM_OK) {
        status = sm_session_all_gather_fds(group->session, operation, &fd, 1, fds, deadline_ns);
        status = agree_on_fds(group, operation, status, fds, group->world_size, deadline_ns);
    }
    if (status == SYMMEM_OK)
        memcpy(fds_p, fds, (size_t)group->world_size * sizeof(fds[0]));
    return sm_group_end_call(group, status);
}

symmem_status symmem_group_broadcast_fds(symmem_group *group, int root, int fd, int *fd_p,
                                         uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    static const char operation[] = "group_broadcast_fds";
    symmem_status status = sm_group_check(group, operation);
    if (status == SYMMEM_OK)
        status = check_output(fd_p, operation);
    if (status == SYMMEM_OK)
        status = sm_group_rank_check(group, root, operation);
    if (status == SYMMEM_OK && root == group->rank) /* other ranks' fd is ignored */
        status = check_fd(fd, operation);
    if (status != SYMMEM_OK)
        return status;
    uint64_t deadline_ns = deadline_of(group, timeout_ms);
    status = sm_group_enter(group, operation, deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    status = exchange_byte(group, operation,
                           deadline_ns); /* the root does not learn which rank did not take it */
    int got = -1;
    if (status == SYMMEM_OK) {
        status = sm_session_broadcast_fd(group->session, operation, root, fd, &got, deadline_ns);
        status = agree_on_fds(group, operation, status, &got, 1, deadline_ns);
    }
    if (status == SYMMEM_OK)
        *fd_p = got;
    return sm_group_end_call(group, status);
}

symmem_status symmem_group_send_fd(symmem_group *group, int32_t dst_rank, int fd,
                                   uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    static const char operation[] = "group_send_fd";
    symmem_status status = sm_group_check(group, operation);
    if (status == SYMMEM_OK)
        status = sm_group_rank_check(group, dst_rank, operation);
    if (status == SYMMEM_OK)
        status = check_fd(fd, operation);
    if (status != SYMMEM_OK)
        return status;
    uint64_t deadline_ns = deadline_of(group, timeout_ms);
    /* Not sm_group_enter: bringing the session up is collective, this call is not. */
    status = sm_group_take(group, operation, deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    status = sm_session_send_fd(group->session, dst_rank, fd, deadline_ns);
    return sm_group_end_call(group, status);
}

symmem_status symmem_group_recv_fd(symmem_group *group, int32_t src_rank, int *fd_p,
                                   uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    static const char operation[] = "group_recv_fd";
    symmem_status status = sm_group_check(group, operation);
    if (status == SYMMEM_OK)
        status = check_output(fd_p, operation);
    if (status == SYMMEM_OK)
        status = sm_group_rank_check(group, src_rank, operation);
    if (status != SYMMEM_OK)
        return status;
    uint64_t deadline_ns = deadline_of(group, timeout_ms);
    status = sm_group_take(group, operation, deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    status = sm_session_recv_fd(group->session, src_rank, fd_p, deadline_ns);
    return sm_group_end_call(group, status);
}

/* --- a backend's exchange ----------------------------------------------------------- */

/* Backends exchange inside a rendezvous only. */
static const char backend_operation[] = "rendezvous";

static symmem_status exchange_all_gather(const symmem_exchange *exchange, const void *in,
                                         size_t bytes, void *out) {
    const symmem_group *group = exchange->self;
    return sm_session_all_gather(group->session, backend_operation, "backend", in, bytes, out,
                                 false, exchange->deadline_ns);
}

static symmem_status exchange_barrier(const symmem_exchange *exchange) {
    uint8_t in = 1;
    uint8_t out[SYMMEM_MAX_WORLD_SIZE];
    return exchange_all_gather(exchange, &in, sizeof(in), out);
}

static symmem_status exchange_agree(const symmem_exchange *exchange, symmem_status own,
                                    const char *stage) {
    const symmem_group *group = exchange->self;
    if (!sm_status_known(own)) /* peers would take the record for a corrupt one */
        own = sm_backend_failed(group->context, own, backend_operation, stage);
    return sm_session_agree(group->session, backend_operation, stage, own, exchange->deadline_ns);
}

static symmem_peer_state exchange_peer_state(const symmem_exchange *exchange, int32_t rank) {
    const symmem_group *group = exchange->self;
    if (rank < 0 || rank >= group->world_size)
        return SYMMEM_PEER_ALIVE;
    return sm_session_peer_state(group->session, rank);
}

/* Shortens the limit of a call whose group is gone to one second, even if the backend has much to
 * release. */
static void hurry(void) {
    const uint64_t until_ns = sm_now_ns() + GONE_NS;
    const uint64_t before_ns = sm_call_deadline(until_ns);
    if (before_ns != 0 && before_ns < until_ns)
        (void)sm_call_deadline(before_ns);
}

static symmem_status exchange_peer_failure(const symmem_exchange *exchange) {
    const symmem_group *group = exchange->self;
    symmem_status status = sm_group_check(group, backend_operation); /* destroyed meanwhile? */
    if (status != SYMMEM_OK) {
        hurry();
        return status;
    }
    return sm_session_peer_failure(group->session, backend_operation, exchange->deadline_ns);
}

static bool exchange_peer_is_ending(const symmem_exchange *exchange, int32_t rank) {
    const symmem_group *group = exchange->self;
    return rank >= 0 && rank < group->world_size && sm_session_peer_is_ending(group->session, rank);
}

void sm_group_exchange(symmem_group *group, uint64_t deadline_ns, symmem_exchange *exchange) {
    *exchange = (symmem_exchange){
        .size = sizeof(*exchange),
        .self = group,
        .rank = group->rank,
        .world_size = group->world_size,
        .group_name = group->name,
        .group_id = sm_session_id(group->session),
        .deadline_ns = deadline_ns,
        .global_ranks = group->global_ranks,
        .all_gather = exchange_all_gather,
        .barrier = exchange_barrier,
        .agree = exchange_agree,
        .peer_state = exchange_peer_state,
        .communicator = group->communicator,
        .group_uid = group->uid,
        .peer_is_ending = exchange_peer_is_ending,
        .peer_failure = exchange_peer_failure,
    };
}
