/* SPDX-License-Identifier: BSD-3-Clause */
/* A group's session: the connection to its peers from the bring-up on. See SPEC.md, SM-EXCHANGE. */
#ifndef SYMMEM_CORE_SESSION_H
#define SYMMEM_CORE_SESSION_H

#include "bootstrap/member.h"

typedef struct sm_session sm_session;

/* The values that a session takes from its owner. Strings and arrays must outlive it. */
typedef struct sm_session_config {
    symmem_store *store;
    const char *prefix;       /* prefix of store keys, unique to (group name, members) */
    const char *name_prefix;  /* shared by all groups of that name; NULL: the same */
    const sm_member *member;  /* this rank's; NULL: none was published */
    atomic_bool *has_met;     /* set once a session is up; or NULL */
    const char *world_prefix; /* prefix under which identities are published */
    const char *group_name;
    const char *socket_dir;          /* NULL: abstract */
    const char *relative_socket_dir; /* as the user gave it; NULL: not relative */
    uint64_t *met;  /* ranks of the world that this one has met or told something; NULL: not kept */
    uint64_t *told; /* that it has told of its end in the group; NULL: not kept */
    int32_t rank;
    int32_t world_size;
    const int32_t *global_ranks;
    sm_liveness *liveness;
    const sm_identity *identity; /* this rank's */
    symmem_point_fn point;
    void *point_arg;
    /* Asked during waits. A failure, with its record, ends the call. NULL: never ends it. */
    symmem_status (*wanted)(const void *owner, const char *operation);
    /* Lets the owner's engine work during waits; whether it has to be asked again soon. NULL: no
     * engine. */
    bool (*serve)(const void *owner);
    const void *owner;
} sm_session_config;

symmem_status sm_session_create(const sm_session_config *config, sm_session **session_p);
/* Removes what this rank left in the store. Local. */
void sm_session_destroy(sm_session *session);
/* Brings the session up, collectively, unless it is up and no peer asks for a new one. All
 * functions below do this first. */
symmem_status sm_session_ensure(sm_session *session, const char *operation, uint64_t deadline_ns);
/* The first returns the agreed random id of the present bring-up, or 0 if the session is down. */
uint64_t sm_session_id(const sm_session *session);
/* Returns a number that all ranks have between the same two exchanges, and at no other time. Not 0.
 * Only while the session is up. */
uint64_t sm_session_stamp(const sm_session *session);
const sm_identity *sm_session_peer(const sm_session *session, int32_t rank);
/* Whether two ranks are on one host, as all ranks agreed at the bring-up. */
bool sm_session_same_host(const sm_session *session, int32_t one, int32_t other);
/* Asks about the process with which the session was brought up. Only while the session is up. */
symmem_peer_state sm_session_peer_state(const sm_session *session, int32_t rank);
bool sm_session_peer_is_ending(const sm_session *session, int32_t rank);
/* Exchanges values in one store phase. Collective. A failure that the ranks did not agree on takes
 * the session down, and the next collective call brings it up anew. Failure records have operation,
 * stage, missing ranks and elapsed time. With `restart` this call may follow a peer into a new
 * bring-up (the first exchange of an operation); otherwise that is a failure. */
symmem_status sm_session_all_gather(sm_session *session, const char *operation, const char *stage,
                                    const void *in, size_t bytes, void *out, bool restart,
                                    uint64_t deadline_ns);
/* Agrees on a status in one store phase. Collective. `own` is this rank's status, described by its
 * thread's record if not OK. Returns OK if all ranks are OK. Otherwise returns the lowest failing
 * rank's status, and that rank's record becomes every rank's record (failed_rank set). */
symmem_status sm_session_agree(sm_session *session, const char *operation, const char *stage,
                               symmem_status own, uint64_t deadline_ns);
/* The same, and on success out[r] gets the `bytes` bytes that rank r gave as `data`. */
symmem_status sm_session_agree_and_gather(sm_session *session, const char *operation,
                                          const char *stage, symmem_status own, const void *data,
                                          size_t bytes, void *out, uint64_t deadline_ns);
/* Looks for a peer's failure before this rank enters an agreement. Local, at most 20 ms. Makes the
 * failure of a peer that has already entered, or that gave up, the thread's record. Looks at some
 * of the peers only and continues from there at the next call. OK: none of those is known to have
 * failed. */
symmem_status sm_session_peer_failure(sm_session *session, const char *operation,
                                      uint64_t deadline_ns);
/* Tells the peers that the group or the context ends, and with what this thread failed last, which
 * may be why they wait. Local. */
void sm_session_tell_end(sm_session *session, bool finalized);
/* Tells the peers of this rank's failure that poisons a handle. Their records will name the rank.
 * Local. */
void sm_session_remark(sm_session *session, const symmem_error_record *record);
/* Drops all earlier remarks after a reset of all ranks. Local. */
void sm_session_forget_remarks(sm_session *session);
/* Appends to the message of a record that names ranks the failures that these ranks reported.
 * `rank`: only that rank's; -1: those of all ranks that have left or are named. Local. */
void sm_session_explain(sm_session *session, int32_t rank, symmem_error_record *record);

#endif
