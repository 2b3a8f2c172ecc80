/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The types that the files of a session share, and what session.c, which brings it up, offers them.
 *
 * Keys, below the session's prefix:
 *   j/<rank>           the join record of a rank that waits for the bring-up, removed afterwards.
 *                      It is below the name's prefix and has the rank's number in the world, so
 *                      that groups of one name with other members see each other
 *   <id>/<seq>/<rank>  what a rank gives in exchange number seq, or the mark that it gave up
 *   <id>/<seq>/all     the combined value. Each rank that has it removes its own key. Rank 0
 *                      removes the value in the next exchange. The last rank that leaves removes
 *                      that of the last exchange
 *   <id>/<seq>/d       if the parts are too large for `all`: how many ranks have read all parts.
 *                      The last one removes these keys
 */
#ifndef SYMMEM_CORE_SESSION_INTERNAL_H
#define SYMMEM_CORE_SESSION_INTERNAL_H

#include "bootstrap/bootstrap.h"

#define SM_JOIN_MAGIC 0x4e494f4au /* "JOIN" */
#define SM_JOIN_VERSION 6u
#define SM_JOIN_MEMBERS 16
#define SM_NONCE_BYTES 16
#define SM_SESSION_KEY_BYTES (SYMMEM_STORE_KEY_MAX + 1)
#define SM_ABANDONED_MAX 8
#define SM_EARLIER_JOB "an earlier job's process"
#define SM_MAY_BE_EARLIER "it may be " SM_EARLIER_JOB
#define SM_FOR_EARLIER "for what may be " SM_EARLIER_JOB
/* Limit of a store call that waits for no peer. One that only cleans up: sm_store_brief_ms. */
#define SM_STORE_CALL_MS 60000u
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
    sm_ipc *shut_ipc;  /* of a session that was given up: its file is still to be removed */
    bool has_listened; /* with a socket, whose file may be left */
    bool finalizes;    /* its context does, and looks for files that killed ranks have left */
    bool joining;      /* this rank's join key is in the store */
    bool stands;       /* the join key stays: later ranks may contradict it, too */
    bool stays; /* or until the next bring-up: the caller is to be told first that a rank ended */
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

/* What a rank gives to an exchange. */
typedef struct sm_contribution {
    const symmem_error_record *failure; /* NULL, or why the rank has nothing to give */
    const void *data;
    size_t bytes;
} sm_contribution;

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
/* Whether it says that the rank which serves the store has ended (PEER_LOST) or does not answer
 * (TIMEOUT, also once it is described). */
bool sm_session_blames_server(const symmem_error_record *record);
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
/* Notes that a note has told the rank of this one's end in the group, and why. */
void sm_session_has_told(const sm_session *session, int32_t rank);
/* Brings the session up if it is down. */
symmem_status sm_session_up(sm_session *session, const sm_call *call);
void sm_session_drop_own_fds(sm_session *session);
/* Does sm_session_all_gather for a rank that may have nothing to give, see sm_exchange. */
symmem_status sm_session_gather(sm_session *session, const char *operation, const char *stage,
                                const sm_contribution *mine, void *out, bool restart,
                                uint64_t deadline_ns);

#endif
