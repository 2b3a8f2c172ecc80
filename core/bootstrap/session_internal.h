/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of a session: session.c (bring-up), exchange.c (store phases),
 * session_watch.c (the watch over peers during waits) and session_fds.c (descriptors).
 *
 * Keys, below the session's prefix:
 *   j/<rank>           the join record of a rank that waits for the bring-up, removed afterwards.
 *                      It is below the name's prefix and has the rank's number in the world, so
 *                      that groups of one name with other members see each other
 *   <id>/<seq>/<rank>  what a rank gives in exchange number seq, or the mark that it gave up
 *   <id>/<seq>/all     the combined value. Each rank that has it removes its own key. Rank 0
 * removes the value in the next exchange, the last rank that leaves that of the last <id>/<seq>/d
 * if the parts are too large for `all`: how many ranks have read all parts. The last one removes
 * these keys
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
/* Limits of a store call that waits for no peer, and of one that only cleans up. */
#define SM_STORE_CALL_MS 60000u
#define SM_STORE_CLEAN_MS 100u
/* Limit, after the deadline, of all looks for missing ranks together. */
#define SM_LAST_LOOKS_NS 100000000u

/* The record that each rank publishes at a bring-up. Sent as bytes. */
typedef struct sm_join {
    uint32_t magic;
    uint32_t version;
    uint8_t nonce[SM_NONCE_BYTES]; /* new for each bring-up of each rank */
    sm_identity identity;
    uint32_t address_bytes;
    int32_t count; /* of the group's members; then their hash and the first of them */
    uint64_t list;
    int32_t members[SM_JOIN_MEMBERS];
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint64_t made_ns; /* since boot */
    /* Set by a rank that has found a contradiction: until then the record tells it to ranks that
     * come, even if the rank has ended. In seconds since 1970; 0: no contradiction. */
    uint64_t stands_until_s;
    int32_t failed_rank;
    char cause[180];
} sm_join;
_Static_assert(sizeof(sm_join) <= 1024, "sm_store_take_back reads it");

/* An exchange that this rank gave up. Its keys are removed once no rank can need them. */
typedef struct sm_abandoned {
    uint64_t id;
    uint64_t sequence;
    bool any_lost;
    uint64_t lost[SYMMEM_MAX_WORLD_SIZE / 64]; /* ranks that ended and cannot remove their keys */
} sm_abandoned;

/* The last completed exchange whose combined value may still be in the store. */
typedef struct sm_finished {
    uint64_t id;
    uint64_t sequence;
    bool is_left;
} sm_finished;

/* A descriptor that a rank sent to itself and has not received yet. It does not go through a
 * socket: a group of one has none, and a socket's queue holds only so many unread messages. */
typedef struct sm_own_fd {
    struct sm_own_fd *next;
    int fd;
} sm_own_fd;

struct sm_session {
    sm_session_config config;
    uint64_t id; /* 0: down */
    uint64_t sequence;
    uint64_t fd_sequence;
    uint64_t *sent;     /* per peer, descriptors sent one by one */
    uint64_t *received; /* per peer */
    sm_own_fd *own_fds; /* sent to itself, in order */
    uint8_t secret[SM_NONCE_BYTES];
    sm_join *joins; /* one per rank, this rank's included */
    int32_t *hosts; /* of each rank, the lowest rank on its host, as all have agreed */
    sm_ipc *ipc;
    bool has_listened; /* with a socket, whose file may be left */
    bool joining;      /* this rank's join key is in the store */
    bool stands;       /* the join key stays: later ranks may contradict it, too */
    uint64_t met[SYMMEM_MAX_WORLD_SIZE / 64];  /* ranks whose join record was read */
    uint64_t told[SYMMEM_MAX_WORLD_SIZE / 64]; /* ranks told that it was given up */
    bool reach_agreed;  /* in this bring-up: each rank reaches all ranks' sockets */
    bool hears_of_left; /* some rank left before it met any peer */
    int32_t watch_next;
    int32_t failure_next; /* the peer to ask next for a failure */
    uint32_t looks;       /* while waiting for descriptors */
    /* The peer that left, and why, before this rank followed it into a new bring-up; -1: none. */
    int32_t left_by;
    uint8_t left_for[SM_IPC_NOTE_BYTES];
    bool renew; /* a peer's socket is gone: the next call brings the session up anew */
    sm_finished finished;
    int32_t abandoned_count;
    sm_abandoned abandoned[SM_ABANDONED_MAX];
    /* The operation that took the session down. Its later steps must not start a bring-up. */
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
    bool agrees;  /* the ranks agree after it */
} sm_call;

/* How a step ended. */
typedef struct sm_outcome {
    symmem_status status;
    bool agreed;    /* all ranks return this same failure; the session stays up */
    bool again;     /* a peer gave this bring-up up; a new one is possible */
    bool published; /* this rank's key of the exchange is in the store */
    bool complete;  /* the exchange was completed: nothing to give up */
    int32_t lost;   /* the rank whose process ended, or -1 */
    int32_t over;   /* the rank that started over, or -1 */
} sm_outcome;

/* Whether the set of ranks has this one. */
static inline bool sm_has_rank(const uint64_t *ranks, int32_t rank) {
    return (ranks[rank / 64] >> (rank % 64) & 1) != 0;
}

static inline sm_outcome sm_outcome_of(symmem_status status) {
    return (sm_outcome){.status = status, .lost = -1, .over = -1};
}

/* --- session.c --- */
sm_call sm_call_start(const char *operation, const char *stage, uint64_t deadline_ns);
/* Fills the record, including the session's fields. */
symmem_status sm_session_fail(const sm_session *session, const sm_call *call, symmem_status status,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Adds the session's fields to the record of a store or socket, and returns the record's status. */
symmem_status sm_session_describe(const sm_session *session, const sm_call *call,
                                  symmem_status status);
/* Does the same for a store call. TIMEOUT before the call's deadline tells nothing about the other
 * ranks: it is this rank's failure. */
symmem_status sm_session_store_failed(const sm_session *session, const sm_call *call,
                                      symmem_status status);
/* `ranks` has a bit for each rank that is missing or lost. */
symmem_status sm_session_fail_ranks(const sm_session *session, const sm_call *call,
                                    symmem_status status, const uint64_t *ranks, const char *what);
/* Passes a failpoint, whose name becomes the record's stage. */
symmem_status sm_session_point(const sm_session *session, const sm_call *call, const char *name);
/* Passes a failpoint at which this rank can no longer fail alone. Its status is ignored. */
void sm_session_observe(const sm_session *session, const char *name);
void sm_session_take_down(sm_session *session, const sm_call *call);
/* Notes that the rank knows of this one, through the session or a note. */
void sm_session_has_met(const sm_session *session, int32_t rank);
/* Brings the session up if it is down. */
symmem_status sm_session_up(sm_session *session, const sm_call *call);
void sm_session_drop_own_fds(sm_session *session);

/* --- session_watch.c --- */
uint32_t sm_session_tick_ms(const sm_session *session);
void sm_session_join_key(const sm_session *session, int32_t rank, char key[SM_SESSION_KEY_BYTES]);
/* Like symmem_store_get and symmem_store_wait, but leave the record alone if the key is absent. */
symmem_status sm_session_get(const sm_session *session, const sm_call *call, const char *key,
                             void *value, size_t capacity, size_t *bytes_p);
symmem_status sm_session_wait(const sm_session *session, const char *key, uint32_t timeout_ms);
void sm_session_remove(const sm_session *session, const char *key);
/* Returns a hash of the members' list. */
uint64_t sm_session_list(const sm_session *session);
/* Answers NOT_FOUND if the key has no valid record, and MISMATCH if another group's record is
 * there. */
symmem_status sm_session_read_join(const sm_session *session, const sm_call *call, int32_t rank,
                                   sm_join *join_p);
/* Whether the rank's process ended. *restarted_p tells whether another one has taken its place. */
bool sm_session_gone(const sm_session *session, const sm_call *call, int32_t rank,
                     bool *restarted_p);
/* Does the same after sm_liveness_glance. */
bool sm_session_seen_gone(const sm_session *session, const sm_call *call, int32_t rank,
                          bool *restarted_p);
/* Learns the identity of a rank that is not known yet, if it is published. Answers MISMATCH if the
 * rank is in a world of another size. */
symmem_status sm_session_look_up(const sm_session *session, const sm_call *call, int32_t rank);
/* Whether the call began just now and so waits for the next process of a rank when it finds traces
 * of an ended one. The ranks of a job begin at about the same time. */
bool sm_session_next_is_awaited(const sm_call *call);
/* Whether the rank, whose process has ended, left something that may be an earlier job's. */
bool sm_session_may_be_earlier(const sm_session *session, const sm_call *call, int32_t rank);
/* Takes such traces out of the store, so that no rank finds them again. */
void sm_session_remove_traces(const sm_session *session, const sm_call *call, int32_t rank);
/* Whether the rank was there and has been finalized. */
bool sm_session_has_left(const sm_session *session, const sm_call *call, int32_t rank);
/* Whether the trace's process had ended before this rank took an ended one's place, so that it does
 * not belong to this job. */
bool sm_session_is_leftover(const sm_session *session, int32_t rank, sm_trace trace);
/* Answers MISMATCH if two processes claim this rank, or if a peer does not fit this rank's
 * world. */
symmem_status sm_session_check_member(const sm_session *session, const sm_call *call);
/* Answers NOT_INITIALIZED or STALE if the group is gone. */
symmem_status sm_session_wanted(const sm_session *session, const sm_call *call);
/* Looks once at the peers during a wait, for processes that ended and peers that started over.
 * Status OK: the wait goes on. */
sm_outcome sm_session_watch(sm_session *session, const sm_call *call);

/* Returns why this rank cannot reach a rank's socket, or NULL if no obstacle is known. */
const char *sm_session_out_of_reach(const sm_session *session, int32_t rank);
/* Returns why the rank cannot reach this one's socket, or NULL. */
const char *sm_session_reaches_not(const sm_session *session, int32_t rank);
/* Whether the socket's file of a living rank is gone. The record then says SYSTEM. */
bool sm_session_lost_socket(sm_session *session, const sm_call *call, int32_t rank);
/* Answers UNREACHABLE at once, on every rank, if any rank finds another one out of reach. */
symmem_status sm_session_check_reach(sm_session *session, const sm_call *call);
/* Returns the outcome for a bring-up that `rank` gave up. A call that cannot follow it gets
 * PEER_LOST if a rank ended. */
sm_outcome sm_session_started_over(const sm_session *session, const sm_call *call, int32_t rank);

/* --- session_cause.c --- */
/* Leaves the session with the failure in this rank's record. Takes over a peer's cause if that came
 * first, and tells the peers. To be called before the session is taken down. Returns the final
 * status. */
symmem_status sm_session_give_up(sm_session *session, const sm_call *call, symmem_status status);
/* Keeps a peer's cause when this rank follows the peer into a new bring-up. The old session's notes
 * are lost there. */
void sm_session_keep_cause(sm_session *session);
/* Answers MISMATCH if a peer says that its group has other members. */
symmem_status sm_session_contradicted(sm_session *session, const sm_call *call);
/* Answers MISMATCH for `other`, a join record of the same name's group with other members, and
 * tells its rank. */
symmem_status sm_session_contradict(const sm_session *session, const sm_call *call, int32_t rank,
                                    const sm_join *other);
/* Makes this rank's join record tell of the contradiction in the thread's record. */
void sm_session_stand(sm_session *session, const sm_call *call);
/* Answers MISMATCH if the rank has ended and its join record tells of a contradiction. */
symmem_status sm_session_stood(const sm_session *session, const sm_call *call, int32_t rank,
                               const sm_join *join);
/* Reads the notes that have come. Returns a peer that has given this session up, or -1. */
int32_t sm_session_given_up_by(sm_session *session);
/* Whether the notes read so far say that the peer has given this session up. */
bool sm_session_has_given_up(const sm_session *session, int32_t rank);

/* --- exchange.c --- */
/* What a rank gives to an exchange. */
typedef struct sm_contribution {
    const symmem_error_record *failure; /* NULL, or why the rank has nothing to give */
    const void *data;
    size_t bytes;
} sm_contribution;
/* Does one gathering, in session `id`, exchange `sequence`. `kind` must be the same text on all
 * ranks. A rank that has nothing to give
 * says why. The exchange is then completed all the same, and every rank gets the failure of the
 * lowest such rank, as an agreed one. Does not take the session down. */
sm_outcome sm_exchange(sm_session *session, const sm_call *call, const char *kind, uint64_t id,
                       uint64_t sequence, const sm_contribution *mine, void *out);
/* --- exchange_clean.c --- */
/* Marks this rank's part as given up and remembers the keys. */
void sm_exchange_abandon(sm_session *session, uint64_t id, uint64_t sequence, sm_outcome outcome);
/* Removes the keys of exchanges that were given up. `all`: every rank has left those sessions. */
void sm_exchange_sweep(sm_session *session, bool all);

/* --- session_agree.c --- */
/* The part of an error record that ranks send each other. */
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

/* Whether a verdict from the store is one that sm_verdict_make can make in this group. */
bool sm_verdict_valid(const sm_session *session, const sm_verdict *verdict);
void sm_verdict_make(const symmem_error_record *record, sm_verdict *verdict_p); /* exit_record.c */
/* Makes the verdict of `rank` the thread's record. */
symmem_status sm_verdict_apply(const sm_session *session, const sm_call *call, int32_t rank,
                               const sm_verdict *verdict);
/* Makes this rank's own failure the thread's record again and adds the session's fields. */
symmem_status sm_own_failure(const sm_session *session, const sm_call *call,
                             const symmem_error_record *own);
/* Chooses between this rank's earlier failure and the `status` with which an exchange then
 * failed. */
symmem_status sm_earlier_failure(const sm_session *session, const sm_call *call,
                                 const symmem_error_record *own, symmem_status status);
/* Does sm_session_all_gather for a rank that may have nothing to give, see sm_exchange. */
symmem_status sm_session_gather(sm_session *session, const char *operation, const char *stage,
                                const sm_contribution *mine, void *out, bool restart,
                                uint64_t deadline_ns);

#endif
