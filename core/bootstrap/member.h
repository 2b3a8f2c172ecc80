/* SPDX-License-Identifier: BSD-3-Clause */
/* The process of each rank of a store's world. */
#ifndef SYMMEM_CORE_MEMBER_H
#define SYMMEM_CORE_MEMBER_H

#include "bootstrap/liveness.h"

/* The value of a rank's key. Ranks send it to each other as is. */
typedef struct sm_member {
    sm_identity identity; /* first: some keys hold nothing else */
    uint32_t magic;
    int32_t rank;
    int32_t world_size;
    uint32_t took_over;    /* the key was that of a process which has ended */
    uint64_t published_ns; /* since boot */
    uint8_t token[16];     /* of the context */
} sm_member;
/* What a process leaves whose rank another living process is: init has refused it. Sent as bytes.
 */
typedef struct sm_refusal {
    uint32_t magic;
    int32_t rank, world_size;
    uint32_t reserved;
    uint64_t made_ns; /* since boot */
    sm_identity there, refused;
} sm_refusal;
/* Reads the last one, if it was made after this rank had published its key. */
bool sm_member_read_refusal(symmem_store *store, const char *world_prefix, const sm_member *own,
                            sm_refusal *found_p);
/* Its MISMATCH, for a rank that waits for that one. */
symmem_status sm_member_fail_refused(const sm_refusal *found, const char *operation);
/* Answers MISMATCH if another process has this rank, or if a peer has found that this process does
 * not fit its world. `own` is NULL if this rank published nothing. */
symmem_status sm_member_check(symmem_store *store, const char *world_prefix, const sm_member *own,
                              const char *operation, uint32_t limit_ms);
/* Whether `found` belongs to a world of another size. `own` is NULL if this rank published
 * nothing. */
bool sm_member_differs(const sm_member *own, const sm_member *found);
/* Answers MISMATCH if the worlds differ, and tells the other process if it lives. */
symmem_status sm_member_compare(symmem_store *store, const char *world_prefix, const sm_member *own,
                                const sm_member *found, bool lives);
/* The first tells whether a rank that left before it met any peer has left a word for this rank.
 * The second reads the identity of that process. */
bool sm_member_hears_of_left(symmem_store *store, const char *world_prefix, const sm_member *own);
bool sm_member_read_left(symmem_store *store, const char *world_prefix, const sm_member *own,
                         int32_t rank, sm_identity *identity_p);
/* Returns a time that processes of one machine can compare. */
uint64_t sm_since_boot_ns(void);
/* Returns a time that all ranks see alike, whatever their machine and namespace. */
uint64_t sm_since_1970_s(void);
/* The identity and the time that something has, for instance a key. */
typedef struct sm_trace {
    const sm_identity *identity;
    uint64_t made_ns; /* since boot, 0 if unknown */
} sm_trace;
/* Whether a process that ended may belong to an earlier job. False only if it certainly lived when
 * this process began. */
bool sm_member_may_be_earlier(const sm_identity *own, sm_trace trace);
/* Does the same for a context that took the place of a process that had ended. */
bool sm_member_is_older(const sm_member *own, sm_trace trace);
/* A context's place in its world: what it publishes and where. */
typedef struct sm_world {
    symmem_store *store;
    const char *prefix;          /* of the world's keys */
    const sm_identity *identity; /* own; NULL: it is not known */
    sm_liveness *liveness;
    const uint64_t *met;  /* bits of the ranks that messages have reached; NULL: none */
    const uint64_t *told; /* and of those that messages have told of this rank's end */
    int32_t rank, size;
    uint32_t timeout_ms;
} sm_world;
/* Publishes the context's key in the store, see member.c. The liveness must exist by then.
 * *published_p tells whether the key is there, whatever the status. */
symmem_status sm_member_publish(const sm_world *world, sm_member *own, bool *published_p);
/* Tells the ranks that are there that this rank was there as well. A context that met no rank in a
 * group calls it before it ends, because peers may come later and wait for it. */
void sm_member_say_left(const sm_world *world);
/* Whether the rank has a key in the store: some process of it has begun and has not finalized. */
bool sm_member_has_key(const sm_world *world, int32_t rank);
/* Removes the member's key. Only for a published member: otherwise the key may be another
 * process's. */
void sm_member_withdraw(const sm_world *world, const sm_member *own);

#endif
