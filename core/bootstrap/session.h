/* SPDX-License-Identifier: BSD-3-Clause */
/* The link of a group to its peers: one session from the bring-up on. See SPEC.md, SM-EXCHANGE. */
#ifndef SYMMEM_CORE_SESSION_H
#define SYMMEM_CORE_SESSION_H

#include "bootstrap/member.h"

typedef struct sm_session sm_session;

/* What a session needs of its owner. Strings and arrays must outlive it. */
typedef struct sm_session_config {
    symmem_store *store;
    const char *prefix;       /* store key prefix, unique to (group name, members) */
    const char *name_prefix;  /* of all groups of that name; NULL: the same */
    const sm_member *member;  /* own; NULL: none was published */
    atomic_bool *has_met;     /* set once a session is up; or NULL */
    const char *world_prefix; /* prefix under which identities are published */
    const char *group_name;
    const char *socket_dir;          /* NULL: abstract */
    const char *relative_socket_dir; /* as the user gave it; NULL: not relative */
    uint64_t *met; /* bits of ranks of the world that have been in a session with this one, or were
                    * told something; NULL: nobody asks */
    int32_t rank;
    int32_t world_size;
    const int32_t *global_ranks;
    sm_liveness *liveness;
    const sm_identity *identity; /* own */
    symmem_point_fn point;
    void *point_arg;
    /* Asked during waits: a failure, with its record, ends the call. NULL: always wanted. */
    symmem_status (*wanted)(const void *owner, const char *operation);
    /* Lets the owner's engine work during waits; whether it has to be asked again soon. NULL: no
     * engine. */
    bool (*serve)(const void *owner);
    const void *owner;
} sm_session_config;

symmem_status sm_session_create(const sm_session_config *config, sm_session **session_p);
/* Local; removes what this rank left in the store. */
void sm_session_destroy(sm_session *session);
/* Collective unless the session is up already and no peer asks for a new one: brings it up. All
 * functions below do this first themselves. */
symmem_status sm_session_ensure(sm_session *session, const char *operation, uint64_t deadline_ns);
/* The agreed random id of the present bring-up (0 if down), and who the peers are. */
uint64_t sm_session_id(const sm_session *session);
/* While the session is up: a number that all ranks have between the same two exchanges, and at no
 * other time. Not 0. */
uint64_t sm_session_stamp(const sm_session *session);
const sm_identity *sm_session_peer(const sm_session *session, int32_t rank);
/* Since the bring-up, and the same on all ranks: whether two of them are on one host. */
bool sm_session_same_host(const sm_session *session, int32_t one, int32_t other);
/* While the session is up, of the process that it was brought up with. */
symmem_peer_state sm_session_peer_state(const sm_session *session, int32_t rank);
bool sm_session_peer_is_ending(const sm_session *session, int32_t rank);
/* Collective. One store phase. A failure other than an agreed one takes the session down: the next
 * collective call brings it up anew. Failure records: operation, stage, missing ranks, elapsed.
 * `restart` true allows joining a peer's new bring-up from here (the first exchange of an
 * operation); false makes that a failure. */
symmem_status sm_session_all_gather(sm_session *session, const char *operation, const char *stage,
                                    const void *in, size_t bytes, void *out, bool restart,
                                    uint64_t deadline_ns);
/* Collective. `own` is this rank's status, described by its thread's record if not OK. Returns OK
 * if all are; else the lowest failing rank's status, with its record as every rank's record
 * (failed_rank set). One store phase. */
symmem_status sm_session_agree(sm_session *session, const char *operation, const char *stage,
                               symmem_status own, uint64_t deadline_ns);
/* Local, 20 ms at the most. For a rank whose next exchange is an agreement: what a peer that is in
 * there already has failed with, or that it gave up; the thread's record then. OK: none is known
 * of, out of some of the peers; another call goes on from there. */
symmem_status sm_session_peer_failure(sm_session *session, const char *operation,
                                      uint64_t deadline_ns);
/* Collective. Every rank gives `count` descriptors (-1 allowed, 1 <= count <= 4); fds_p has
 * world_size * count entries, all owned by the caller, own ones duplicated; -1 on failure. */
symmem_status sm_session_all_gather_fds(sm_session *session, const char *operation, const int *fds,
                                        int count, int *fds_p, uint64_t deadline_ns);
symmem_status sm_session_broadcast_fd(sm_session *session, const char *operation, int root, int fd,
                                      int *fd_p, uint64_t deadline_ns);
symmem_status sm_session_send_fd(sm_session *session, int32_t dst, int fd, uint64_t deadline_ns);
symmem_status sm_session_recv_fd(sm_session *session, int32_t src, int *fd_p, uint64_t deadline_ns);
/* The group's end, or the context's: what this thread failed with last may be why others wait in
 * vain. Local. */
void sm_session_tell_end(sm_session *session, bool finalized);
/* A failure of this rank's own that spoils a handle: the peers' records will name the rank. Local.
 */
void sm_session_remark(sm_session *session, const symmem_error_record *record);
/* After a reset of all ranks nothing that was remarked before counts. Local. */
void sm_session_forget_remarks(sm_session *session);
/* Behind the message of a record that names ranks: what they said they had failed with. `rank`:
 * what that one said only; -1: whichever has left, or is named. Local. */
void sm_session_explain(sm_session *session, int32_t rank, symmem_error_record *record);

#endif
