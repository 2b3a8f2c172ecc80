/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of a session share: session.c (bring-up), exchange.c (store phases),
 * session_watch.c (looking after peers while waiting) and session_fds.c (descriptors).
 *
 * Keys, below the session's prefix:
 *   j/<rank>           the join record of a rank that wants to be brought up; removed afterwards.
 *                      Below the name's prefix and by its number in the world: groups of one name
 *                      with other members have to see each other
 *   <id>/<seq>/<rank>  what a rank gives in exchange number seq, or the mark that it gave up
 *   <id>/<seq>/all     the combined value. Who has it removes its own key, rank 0 this in the next
 *                      exchange, and in the end who leaves last
 *   <id>/<seq>/d       where a rank gives too much for that: how many have read all ranks' keys;
 * the last one removes them
 */
#ifndef SYMMEM_CORE_SESSION_INTERNAL_H
#define SYMMEM_CORE_SESSION_INTERNAL_H

#include "bootstrap/bootstrap.h"

#define SM_JOIN_MAGIC 0x4e494f4au /* "JOIN" */
#define SM_JOIN_VERSION 5u
#define SM_JOIN_MEMBERS 16
#define SM_NONCE_BYTES 16
#define SM_SESSION_KEY_BYTES (SYMMEM_STORE_KEY_MAX + 1)
#define SM_ABANDONED_MAX 8
#define SM_EARLIER_JOB "an earlier job's process"
#define SM_MAY_BE_EARLIER "it may be " SM_EARLIER_JOB
#define SM_FOR_EARLIER "for what may be " SM_EARLIER_JOB
/* For a store call that does not wait for a peer, and for one that only cleans up. */
#define SM_STORE_CALL_MS 60000u
#define SM_STORE_CLEAN_MS 100u
/* After the deadline, for all looks at who is missing together. */
#define SM_LAST_LOOKS_NS 100000000u

/* Published by each rank at a bring-up. Travels as bytes. */
typedef struct sm_join {
    uint32_t magic;
    uint32_t version;
    uint8_t nonce[SM_NONCE_BYTES]; /* new for each bring-up of each rank */
    sm_identity identity;
    uint32_t address_bytes;
    int32_t count; /* of the group's members, their hash, and the first of them */
    uint64_t list;
    int32_t members[SM_JOIN_MEMBERS];
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint64_t made_ns; /* since boot */
    /* The rank has found a contradiction, which is to be told to whoever comes until then, though
     * it may have ended: in seconds since 1970, 0 if it has found none. */
    uint64_t stands_until_s;
    int32_t failed_rank;
    char cause[180];
} sm_join;
_Static_assert(sizeof(sm_join) <= 1024, "sm_store_take_back reads it");

/* An exchange that this rank gave up: its keys go once nobody can need them. */
typedef struct sm_abandoned {
    uint64_t id;
    uint64_t sequence;
    bool any_lost;
    uint64_t lost[SYMMEM_MAX_WORLD_SIZE / 64]; /* ranks that ended and cannot remove their keys */
} sm_abandoned;

/* The last exchange that was complete, of which the combined value is there yet. */
typedef struct sm_finished {
    uint64_t id;
    uint64_t sequence;
    bool is_left;
} sm_finished;

typedef struct sm_own_fd sm_own_fd;

struct sm_session {
    sm_session_config config;
    uint64_t id; /* 0: down */
    uint64_t sequence;
    uint64_t fd_sequence;
    uint64_t *sent;     /* per peer, descriptors sent one by one */
    uint64_t *received; /* per peer */
    sm_own_fd *own_fds; /* sent to itself, in order */
    uint8_t secret[SM_NONCE_BYTES];
    sm_join *joins; /* one a rank, own included */
    int32_t *hosts; /* of each rank, the first one on its host, as all have agreed */
    sm_ipc *ipc;
    bool has_listened; /* with a socket, of which a file may be left */
    bool joining;      /* own join key is in the store */
    bool stands;       /* and stays: others may come to whom it is a contradiction, too */
    uint64_t met[SYMMEM_MAX_WORLD_SIZE / 64];  /* whose join record of this bring-up was read */
    uint64_t told[SYMMEM_MAX_WORLD_SIZE / 64]; /* that this rank has given this bring-up up */
    bool reach_agreed;  /* since then: all ranks' sockets are in reach of all */
    bool hears_of_left; /* some rank has left that was never met */
    int32_t watch_next;
    int32_t failure_next; /* the peer to ask next for a failure */
    uint32_t looks;       /* while waiting for descriptors */
    /* Why a peer left that this rank then followed into a new bring-up; -1: none did. */
    int32_t left_by;
    uint8_t left_for[SM_IPC_NOTE_BYTES];
    bool renew; /* a peer's socket is gone: the next call brings the session up anew */
    sm_finished finished;
    int32_t abandoned_count;
    sm_abandoned abandoned[SM_ABANDONED_MAX];
    /* The operation that took the session down: its later steps must not start a bring-up. */
    bool failed;
    uint64_t failed_operation;
    uint64_t failed_deadline_ns;
};

/* One collective call, for its records. */
typedef struct sm_call {
    const char *operation;
    const char *stage;
    uint64_t start_ns;
    uint64_t deadline_ns;
    bool restart; /* may follow a peer into a new bring-up */
    bool agrees;  /* the ranks agree behind it */
} sm_call;

/* How a step ended. */
typedef struct sm_outcome {
    symmem_status status;
    bool agreed;    /* all ranks return this same failure; the session stays up */
    bool again;     /* a peer gave this bring-up up; a new one is possible */
    bool published; /* own key of the exchange is in the store */
    bool complete;  /* the exchange itself was done: nothing to give up */
    int32_t lost;   /* the rank whose process ended, or -1 */
    int32_t over;   /* the rank that started over, or -1 */
} sm_outcome;

static inline sm_outcome sm_outcome_of(symmem_status status) {
    return (sm_outcome){.status = status, .lost = -1, .over = -1};
}

/* --- session.c --- */
sm_call sm_call_start(const char *operation, const char *stage, uint64_t deadline_ns);
/* Fills the record, the session's fields included. */
symmem_status sm_session_fail(const sm_session *session, const sm_call *call, symmem_status status,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Adds the session's fields to a record that a store or socket made; returns its status. */
symmem_status sm_session_describe(const sm_session *session, const sm_call *call,
                                  symmem_status status);
/* The same for a call of the store. TIMEOUT before the call's deadline says nothing of the other
 * ranks: it is this rank's failure. */
symmem_status sm_session_store_failed(const sm_session *session, const sm_call *call,
                                      symmem_status status);
/* `ranks` has a bit for each rank that is missing or lost. */
symmem_status sm_session_fail_ranks(const sm_session *session, const sm_call *call,
                                    symmem_status status, const uint64_t *ranks, const char *what);
/* The point's name becomes the record's stage. */
symmem_status sm_session_point(const sm_session *session, const sm_call *call, const char *name);
/* A point where this rank can no longer fail alone: its status is ignored. */
void sm_session_observe(const sm_session *session, const char *name);
void sm_session_take_down(sm_session *session, const sm_call *call);
/* The rank knows of this one, by the session or by a note. */
void sm_session_has_met(const sm_session *session, int32_t rank);
/* Brings the session up if it is down. */
symmem_status sm_session_up(sm_session *session, const sm_call *call);

/* --- session_watch.c --- */
uint32_t sm_session_tick_ms(const sm_session *session);
void sm_session_join_key(const sm_session *session, int32_t rank, char key[SM_SESSION_KEY_BYTES]);
/* symmem_store_get and wait, leaving the record alone when the key is absent. */
symmem_status sm_session_get(const sm_session *session, const sm_call *call, const char *key,
                             void *value, size_t capacity, size_t *bytes_p);
symmem_status sm_session_wait(const sm_session *session, const char *key, uint32_t timeout_ms);
void sm_session_remove(const sm_session *session, const char *key);
/* A hash of the members' list. */
uint64_t sm_session_list(const sm_session *session);
/* NOT_FOUND: no valid record there. MISMATCH: of another group. */
symmem_status sm_session_read_join(const sm_session *session, const sm_call *call, int32_t rank,
                                   sm_join *join_p);
/* True if the rank's process ended; *restarted_p: another one has taken its place. */
bool sm_session_gone(const sm_session *session, const sm_call *call, int32_t rank,
                     bool *restarted_p);
/* The same behind sm_liveness_glance. */
bool sm_session_seen_gone(const sm_session *session, const sm_call *call, int32_t rank,
                          bool *restarted_p);
/* Learns the identity of a rank not known yet, if it is published. MISMATCH: it is of a world of
 * another size. */
symmem_status sm_session_look_up(const sm_session *session, const sm_call *call, int32_t rank);
/* A call that has begun just now waits for the next process of a rank of which it finds an ended
 * one's traces: all ranks of a job begin at about the same time. */
bool sm_session_next_is_awaited(const sm_call *call);
/* Of the rank, which has ended, something is there that may be an earlier job's. */
bool sm_session_may_be_earlier(const sm_session *session, const sm_call *call, int32_t rank);
/* Takes that out of the store, so that no rank finds it again. */
void sm_session_remove_traces(const sm_session *session, const sm_call *call, int32_t rank);
/* It was there and has been finalized. */
bool sm_session_has_left(const sm_session *session, const sm_call *call, int32_t rank);
/* A process that had ended before this rank took an ended one's place: not of this job. */
bool sm_session_is_leftover(const sm_session *session, int32_t rank, sm_trace trace);
/* Whether two processes are this rank, or a peer cannot be in its world: MISMATCH. */
symmem_status sm_session_check_member(const sm_session *session, const sm_call *call);
/* Whether the group is still there: NOT_INITIALIZED or STALE otherwise. */
symmem_status sm_session_wanted(const sm_session *session, const sm_call *call);
/* One look at the peers during a wait: processes that ended, and peers that started over. Status
 * OK: go on waiting. */
sm_outcome sm_session_watch(sm_session *session, const sm_call *call);

/* Why a rank's socket cannot be reached from here; NULL if nothing speaks against it. */
const char *sm_session_out_of_reach(const sm_session *session, int32_t rank);
/* And why the rank cannot reach this one's. */
const char *sm_session_reaches_not(const sm_session *session, int32_t rank);
/* SYSTEM, if it is so: the file of a rank that lives is not there any more. */
bool sm_session_lost_socket(sm_session *session, const sm_call *call, int32_t rank);
/* UNREACHABLE if some rank is out of reach: said at once, and on every rank, whoever sees it. */
symmem_status sm_session_check_reach(sm_session *session, const sm_call *call);
/* The outcome of `rank` having given this bring-up up. For a call that cannot follow it, a rank
 * that ended is the reason: then PEER_LOST. */
sm_outcome sm_session_started_over(const sm_session *session, const sm_call *call, int32_t rank);

/* --- session_cause.c --- */
/* This rank leaves the session with the failure in its record: takes a peer's cause over if that
 * was first, and tells the peers. Before the session is taken down; returns what became of
 * `status`. */
symmem_status sm_session_give_up(sm_session *session, const sm_call *call, symmem_status status);
/* This rank follows a peer into a new bring-up: what that one said goes with the old one. */
void sm_session_keep_cause(sm_session *session);
/* A peer says that its group is another one: MISMATCH. */
symmem_status sm_session_contradicted(sm_session *session, const sm_call *call);
/* `other` is of a group of the same name with other members: MISMATCH, and its rank is told. */
symmem_status sm_session_contradict(const sm_session *session, const sm_call *call, int32_t rank,
                                    const sm_join *other);
/* The own join record is to tell of the contradiction in the thread's record. */
void sm_session_stand(sm_session *session, const sm_call *call);
/* MISMATCH if the rank has ended, and its join record tells of a contradiction. */
symmem_status sm_session_stood(const sm_session *session, const sm_call *call, int32_t rank,
                               const sm_join *join);
/* A peer that has given this session up, or -1. Hears what has come. */
int32_t sm_session_given_up_by(sm_session *session);
/* Whether that peer has said so, as far as was heard. */
bool sm_session_has_given_up(const sm_session *session, int32_t rank);

/* --- exchange.c --- */
/* The gathering itself, in session `id`, exchange `sequence`. `kind` must be the same text on all
 * ranks. `own`: NULL, or why this rank has nothing to give. If any rank has nothing to give, the
 * exchange is complete all the same and every rank gets the lowest such rank's failure, agreed.
 * Does not take the session down. */
sm_outcome sm_exchange(sm_session *session, const sm_call *call, const char *kind, uint64_t id,
                       uint64_t sequence, const symmem_error_record *own, const void *in,
                       size_t bytes, void *out);
/* --- exchange_clean.c --- */
/* Marks the own part as given up and remembers the keys. */
void sm_exchange_abandon(sm_session *session, uint64_t id, uint64_t sequence, sm_outcome outcome);
/* Removes the keys of what was given up. `all`: every rank has left those sessions. */
void sm_exchange_sweep(sm_session *session, bool all);

/* --- session_fds.c --- */
void sm_session_drop_own_fds(sm_session *session);

/* --- session_agree.c --- */
/* What travels of an error record. */
typedef struct sm_verdict {
    int32_t status;
    int32_t system_errno;
    int32_t channel;
    int32_t failed_rank;
    uint64_t expected;
    uint64_t actual;
    uint32_t missing_count;
    uint32_t reserved;
    uint64_t missing[SYMMEM_MAX_WORLD_SIZE / 64];
    char operation[64];
    char stage[32];
    char message[256];
} sm_verdict;

/* Whether a verdict from the store is one that sm_verdict_make could have made in this group. */
bool sm_verdict_valid(const sm_session *session, const sm_verdict *verdict);
void sm_verdict_make(const symmem_error_record *record, sm_verdict *verdict_p);
/* `rank`'s verdict becomes the thread's record. */
symmem_status sm_verdict_apply(const sm_session *session, const sm_call *call, int32_t rank,
                               const sm_verdict *verdict);
/* This rank's own failure becomes the thread's record again, the session's fields added. */
symmem_status sm_own_failure(const sm_session *session, const sm_call *call,
                             const symmem_error_record *own);
/* An exchange failed with `status` on a rank that had failed before: which one counts here? */
symmem_status sm_earlier_failure(const sm_session *session, const sm_call *call,
                                 const symmem_error_record *own, symmem_status status);
/* sm_session_all_gather for a rank that may have nothing to give, see sm_exchange. */
symmem_status sm_session_gather(sm_session *session, const char *operation, const char *stage,
                                const symmem_error_record *own, const void *in, size_t bytes,
                                void *out, bool restart, uint64_t deadline_ns);

#endif
