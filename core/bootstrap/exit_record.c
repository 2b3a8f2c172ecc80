/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exit records: why a rank ended before its peers met it. The rank lacked something (memory,
 * descriptors, rights), or a process left something that may be an earlier job's. A peer that waits
 * for the rank reads the record in the store, and stops waiting once the process has ended. Ranks
 * that have met tell each other by messages, see session_cause.c, and leave no record. The last
 * rank that can read the record removes it, and so does the next process of its rank.
 */
#include "bootstrap/exit_record.h"
#include "bootstrap/session_internal.h"
#include "bootstrap/session_agree.h"

#include <stdio.h>
#include <string.h>

#define EXIT_RECORD_MAGIC 0x54495845u /* "EXIT" */
/* A rank that comes to the same store later than this belongs to another job. */
#define TOLD_S 60u

typedef struct exit_record {
    uint32_t magic;
    int32_t rank;
    uint64_t made_s;      /* since 1970: all machines have the same */
    sm_identity identity; /* zeros: unknown */
    sm_verdict verdict;
} exit_record;
_Static_assert(sizeof(exit_record) <= 1024, "it fits a value of every store");

void sm_verdict_make(const symmem_error_record *record, sm_verdict *verdict_p) {
    memset(verdict_p, 0, sizeof(*verdict_p));
    verdict_p->status = record->status;
    verdict_p->system_errno = record->system_errno;
    verdict_p->channel = record->channel;
    verdict_p->failed_rank = record->failed_rank;
    verdict_p->expected = record->expected;
    verdict_p->actual = record->actual;
    verdict_p->missing_count = record->missing_count;
    memcpy(verdict_p->missing, record->missing, sizeof(verdict_p->missing));
    sm_copy_text(verdict_p->operation, sizeof(verdict_p->operation), record->operation);
    sm_copy_text(verdict_p->stage, sizeof(verdict_p->stage), record->stage);
    sm_copy_text(verdict_p->message, sizeof(verdict_p->message), record->message);
}

static void key_of(const sm_world *world, int32_t rank, char *key, size_t capacity) {
    (void)snprintf(key, capacity, "%s/exit/%d", world->prefix, rank);
}

static bool read_of(const sm_world *world, int32_t rank, exit_record *found) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    size_t bytes = 0;
    key_of(world, rank, key, sizeof(key));
    return symmem_store_get(world->store, key, found, sizeof(*found), &bytes, SM_STORE_CLEAN_MS) ==
               SYMMEM_OK &&
           bytes == sizeof(*found) && found->magic == EXIT_RECORD_MAGIC && found->rank == rank &&
           sm_status_known(found->verdict.status) && found->verdict.status != SYMMEM_OK;
}

static bool tells_of_an_earlier_job(const exit_record *found) {
    return memmem(found->verdict.message, sizeof(found->verdict.message), SM_EARLIER_JOB,
                  sizeof(SM_EARLIER_JOB) - 1) != NULL;
}

static void remove_of(const sm_world *world, int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    key_of(world, rank, key, sizeof(key));
    if (symmem_store_remove(world->store, key, SM_STORE_CLEAN_MS) != SYMMEM_OK)
        (void)!symmem_store_remove(world->store, key, SM_STORE_CLEAN_MS);
}

/* --- who has met ------------------------------------------------------------------------------ */

static bool has_met(const sm_world *world, int32_t rank) {
    /* Relaxed: a bit that is set at this moment may count as not set. */
    const uint64_t word =
        world->met == NULL ? 0 : __atomic_load_n(&world->met[rank / 64], __ATOMIC_RELAXED);
    return rank == world->rank || (word >> (rank % 64) & 1) != 0;
}

/* --- leaving one ------------------------------------------------------------------------------ */

/* Whether this rank saw and removed the traces of an earlier job itself. A rank that knows of them
 * from another rank's record has nothing to add. */
static bool is_of_an_earlier_job(const symmem_error_record *record) {
    return record->status == SYMMEM_PEER_LOST &&
           strstr(record->message, SM_MAY_BE_EARLIER) != NULL &&
           strstr(record->message, SM_FOR_EARLIER) == NULL;
}

/* Whether the rank itself lacks something. Wrong arguments and the failures of peers do not
 * count. */
static bool is_own_lack(const symmem_error_record *record) {
    const symmem_status status = record->status;
    /* Before the first group only failpoints' stages have names with a dot. */
    if (record->missing_count != 0 || strchr(record->stage, '.') != NULL ||
        (record->failed_rank >= 0 && record->failed_rank != record->rank))
        return false;
    return status == SYMMEM_OUT_OF_MEMORY || status == SYMMEM_NO_SPACE || status == SYMMEM_LIMIT ||
           status == SYMMEM_PERMISSION || status == SYMMEM_SYSTEM || status == SYMMEM_BACKEND ||
           status == SYMMEM_LOAD || status == SYMMEM_CORRUPT;
}

static bool is_there(const sm_world *world, int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    uint8_t first[1];
    size_t bytes = 0;
    sm_identity_key(world->prefix, rank, key, sizeof(key));
    const symmem_status status =
        symmem_store_get(world->store, key, first, sizeof(first), &bytes, SM_STORE_CLEAN_MS);
    return status == SYMMEM_OK || status == SYMMEM_OUT_OF_RANGE;
}

/* Removes what no rank needs any more, after this rank's member key is gone. Ranks that are there
 * may still want to read, and so may ranks that have not come. Those read this rank's record if it
 * left one, and otherwise the record of an earlier job. */
static void sweep_records(const sm_world *world, bool own_is_left) {
    uint64_t left[SYMMEM_MAX_WORLD_SIZE / 64] = {0}, needed[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    bool any = false, any_there = false, any_to_come = false;
    const uint64_t until_ns = sm_now_ns() + SM_LAST_LOOKS_NS; /* finalize does not wait */
    for (int32_t rank = 0; rank < world->size; rank++) {
        exit_record found;
        if (has_met(world, rank))
            continue;
        if (sm_now_ns() > until_ns)
            return;
        const bool said = read_of(world, rank, &found);
        const bool there = !said && is_there(world, rank);
        left[rank / 64] |= (uint64_t)said << (rank % 64);
        needed[rank / 64] |= (uint64_t)(said && tells_of_an_earlier_job(&found)) << (rank % 64);
        any = any || said;
        any_there = any_there || there;
        any_to_come = any_to_come || (!said && !there);
    }
    for (int32_t rank = 0; any && !any_there && rank < world->size; rank++) {
        const uint64_t may_go =
            own_is_left || !any_to_come ? left[rank / 64] : left[rank / 64] & ~needed[rank / 64];
        if ((may_go >> (rank % 64) & 1) != 0)
            remove_of(world, rank);
    }
    if (any && !any_there && !any_to_come)
        remove_of(world, world->rank);
}

void sm_exit_record_leave(const sm_world *world, const symmem_error_record *record) {
    int32_t unmet = 0;
    if (world->store == NULL || world->prefix[0] == '\0' || world->size < 2 ||
        world->size > SYMMEM_MAX_WORLD_SIZE)
        return;
    while (unmet < world->size && has_met(world, unmet))
        unmet++;
    if (unmet == world->size)
        return;
    SM_ATTEMPT(leaving);
    const bool leaves = record != NULL && (is_own_lack(record) || is_of_an_earlier_job(record));
    if (leaves) {
        char key[SYMMEM_STORE_KEY_MAX + 1];
        exit_record own;
        memset(&own, 0, sizeof(own)); /* sent as bytes */
        own.magic = EXIT_RECORD_MAGIC;
        own.rank = world->rank;
        own.made_s = sm_since_1970_s();
        if (world->identity != NULL)
            own.identity = *world->identity;
        sm_verdict_make(record, &own.verdict);
        key_of(world, world->rank, key, sizeof(key));
        (void)!symmem_store_set(world->store, key, &own, sizeof(own), SM_STORE_CLEAN_MS);
    }
    sweep_records(world, leaves);
}

void sm_exit_record_clear(const sm_world *world) {
    SM_ATTEMPT(clearing);
    exit_record found;
    if (read_of(world, world->rank, &found))
        remove_of(world, world->rank);
}

/* --- reading one ------------------------------------------------------------------------------ */

bool sm_exit_record_read(const sm_world *world, int32_t rank, sm_identity *identity_p,
                         bool *earlier_job_p) {
    SM_ATTEMPT(look);
    exit_record found;
    const bool is_read = read_of(world, rank, &found);
    const uint64_t now = sm_since_1970_s();
    if (!is_read || found.identity.pid <= 0 || found.made_s > now + TOLD_S ||
        found.made_s + TOLD_S < now)
        return false;
    found.identity.host[sizeof(found.identity.host) - 1] = '\0';
    *identity_p = found.identity;
    *earlier_job_p = tells_of_an_earlier_job(&found);
    return true;
}

void sm_exit_record_explain(const sm_world *world, int32_t global_rank, int32_t rank,
                            symmem_error_record *record) {
    SM_ATTEMPT(look);
    exit_record found;
    if (world->store != NULL && world->size > 1 && read_of(world, global_rank, &found)) {
        const size_t used = strlen(record->message);
        (void)snprintf(record->message + used, sizeof(record->message) - used,
                       "; rank %d finalized after %s in %.*s: %.*s", rank,
                       symmem_status_name((symmem_status)found.verdict.status),
                       (int)sizeof(found.verdict.operation) - 1, found.verdict.operation,
                       (int)sizeof(found.verdict.message) - 1, found.verdict.message);
    }
}
