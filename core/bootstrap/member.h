/* SPDX-License-Identifier: BSD-3-Clause */
/* Which process is which rank of a store's world. */
#ifndef SYMMEM_CORE_MEMBER_H
#define SYMMEM_CORE_MEMBER_H

#include "bootstrap/liveness.h"

/* What stands in a rank's key. Sent between ranks as is. */
typedef struct sm_member {
    sm_identity identity; /* first: some keys hold nothing else */
    uint32_t magic;
    int32_t rank;
    int32_t world_size;
    uint32_t took_over;    /* the key was that of a process which has ended */
    uint64_t published_ns; /* since boot */
    uint8_t token[16];     /* of the context */
} sm_member;
/* Whether another one is that rank, or has found that this one cannot be in its world: MISMATCH.
 * `own` NULL: nothing is known. */
symmem_status sm_member_check(symmem_store *store, const char *world_prefix, const sm_member *own,
                              const char *operation, uint32_t limit_ms);
/* It is of a world of another size. `own` NULL: nothing is known. */
bool sm_member_differs(const sm_member *own, const sm_member *found);
/* MISMATCH if so, which it is told if it lives. */
symmem_status sm_member_judge(symmem_store *store, const char *world_prefix, const sm_member *own,
                              const sm_member *found, bool lives);
/* Whether some rank that nobody had met has left this one word of itself, and who that one was. */
bool sm_member_hears_of_left(symmem_store *store, const char *world_prefix, const sm_member *own);
bool sm_member_read_left(symmem_store *store, const char *world_prefix, const sm_member *own,
                         int32_t rank, sm_identity *identity_p);
/* For times that processes of one machine compare. */
uint64_t sm_since_boot_ns(void);
/* What has an identity and a time, for instance a key, and what both are. */
typedef struct sm_trace {
    const sm_identity *identity;
    uint64_t made_ns; /* since boot, 0 if unknown */
} sm_trace;
/* An ended process's, which did not live any more when this one began: an earlier job's, perhaps.
 * False if it certainly did. */
bool sm_member_may_be_earlier(const sm_identity *own, sm_trace trace);
/* The same of this context, which has taken an ended process's place. */
bool sm_member_is_older(const sm_member *own, sm_trace trace);
/* A context's place in its world: what it publishes there and where. */
typedef struct sm_world {
    symmem_store *store;
    const char *prefix;          /* of the world's keys */
    const char *socket_dir;      /* or NULL */
    const sm_identity *identity; /* own; NULL: it is not known */
    sm_liveness *liveness;
    const uint64_t *met; /* bits of the ranks that messages can tell; NULL: none */
    int32_t rank, size;
    uint32_t timeout_ms;
} sm_world;
/* The context's key in the store, see member.c. Once liveness is there. *published_p: it is there,
 * whatever the status. */
symmem_status sm_member_publish(const sm_world *world, sm_member *own, bool *published_p);
/* Before the end of a context that has met no rank in a group. Others may come to wait for it: to
 * those that are there it says that it was. */
void sm_member_say_left(const sm_world *world);
/* The member was published: otherwise the key may be another process's. */
void sm_member_withdraw(const sm_world *world, const sm_member *own);
/* Why a rank has ended before others have met it, see exit_record.c. At the context's end, its
 * member key removed; `record` NULL: nothing has failed in it. */
void sm_exit_record_leave(const sm_world *world, const symmem_error_record *record);
/* At its beginning: an earlier process's of this rank. */
void sm_exit_record_clear(const sm_world *world);
/* Whether there is a recent one of `rank`, and whose. *earlier_job_p: it ended for what may be an
 * earlier job's. */
bool sm_exit_record_read(const sm_world *world, int32_t rank, sm_identity *identity_p,
                         bool *earlier_job_p);
/* Behind the message of a record that names `rank` of a group: what that one has left. */
void sm_exit_record_explain(const sm_world *world, int32_t global_rank, int32_t rank,
                            symmem_error_record *record);

#endif
