/* SPDX-License-Identifier: BSD-3-Clause */
/* Places that descriptors cannot reach: other hosts, and namespaces that hide a rank's socket. */
#include "bootstrap/session_reach.h"
#include "bootstrap/session_internal.h"
#include "bootstrap/session_watch.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static bool apart(uint64_t one_namespace, uint64_t other) {
    return one_namespace != 0 && other != 0 && one_namespace != other;
}

/* Returns the address of the rank's socket file. The path is "" if the socket has an abstract name,
 * which belongs to its network namespace. */
static struct sockaddr_un file_of(const sm_join *join) {
    struct sockaddr_un address;
    memcpy(&address, join->address, sizeof(address));
    address.sun_path[sizeof(address.sun_path) - 1] = '\0';
    return address;
}

static const char *in_another_network(const sm_identity *one, const sm_identity *other) {
    return apart(one->net_namespace, other->net_namespace)
               ? "in another network namespace (a socket directory that all see would do)"
               : NULL;
}

const char *sm_session_out_of_reach(const sm_session *session, int32_t rank) {
    const sm_join *peer = &session->joins[rank];
    const sm_identity *own = session->config.identity;
    if (!sm_session_same_host(session, session->config.rank, rank))
        return "on another host";
    const struct sockaddr_un address = file_of(peer);
    if (address.sun_path[0] == '\0')
        return in_another_network(&peer->identity, own);
    return apart(peer->identity.mount_namespace, own->mount_namespace) &&
                   access(address.sun_path, F_OK) != 0
               ? "in another mount namespace, its socket's directory is not this one's"
               : NULL;
}

/* Only the rank itself knows whether it sees this one's file. Usually that is so in both directions
 * or in none. */
const char *sm_session_reaches_not(const sm_session *session, int32_t rank) {
    const sm_join *peer = &session->joins[rank];
    const sm_identity *own = session->config.identity;
    if (!sm_session_same_host(session, session->config.rank, rank))
        return "on another host";
    if (file_of(&session->joins[session->config.rank]).sun_path[0] == '\0')
        return in_another_network(&peer->identity, own);
    return file_of(peer).sun_path[0] != '\0' ? sm_session_out_of_reach(session, rank) : NULL;
}

bool sm_session_lost_socket(sm_session *session, const sm_call *call, int32_t rank) {
    const struct sockaddr_un address = file_of(&session->joins[rank]);
    if (address.sun_path[0] == '\0' || access(address.sun_path, F_OK) == 0)
        return false;
    sm_session_fail(session, call, SYMMEM_SYSTEM,
                    "rank %d runs, but its socket's file is gone: %.108s", rank, address.sun_path);
    (void)sm_error_failed_rank(rank);
    session->renew = true;
    return true;
}

static symmem_status look_at_all(sm_session *session, const sm_call *call) {
    uint64_t remote[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    const char *why = NULL;
    for (int32_t rank = 0; rank < session->config.world_size; rank++) {
        const char *reason = sm_session_out_of_reach(session, rank);
        if (reason == NULL)
            continue;
        remote[rank / 64] |= 1ull << (rank % 64);
        why = reason;
    }
    if (why == NULL)
        return SYMMEM_OK;
    sm_outcome outcome = sm_session_watch(session, call); /* a rank that ended has no socket */
    if (outcome.status != SYMMEM_OK)
        return outcome.status;
    return sm_session_fail_ranks(session, call, SYMMEM_UNREACHABLE, remote, why);
}

/* All ranks have the same records, so all get the same answer. */
static bool are_in_one_place(const sm_session *session) {
    const sm_identity *first = &session->joins[0].identity;
    for (int32_t rank = 1; rank < session->config.world_size; rank++) {
        const sm_identity *other = &session->joins[rank].identity;
        if (other->net_namespace != first->net_namespace ||
            other->mount_namespace != first->mount_namespace)
            return false;
    }
    return true;
}

/* A rank in one namespace may reach a rank that does not reach it, and would then wait for it. */
symmem_status sm_session_check_reach(sm_session *session, const sm_call *call) {
    symmem_status own = look_at_all(session, call);
    if (session->reach_agreed || are_in_one_place(session))
        return own;
    symmem_error_record record;
    (void)sm_error_get(&record);
    symmem_status agreed =
        sm_session_agree(session, call->operation, call->stage, own, call->deadline_ns);
    session->reach_agreed = agreed == SYMMEM_OK;
    return own == SYMMEM_OK ? agreed : sm_error_raise(&record);
}
