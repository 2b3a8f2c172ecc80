/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exit records: why a rank ended before its peers met it. The rank lacked something (memory,
 * descriptors, rights), or a process left something that may be an earlier job's. A peer that waits
 * for the rank reads the record in the store, and stops waiting once the process has ended. Ranks
 * in a common group are told by messages, see session_cause.c. If all are, there is no record. The
 * last rank that can read the record removes it, and so does the next process of its rank.
 *
 * A rank that lacked something and goes on leaves a record, too, because its process may end
 * without a word. Its peers read it once the rank is missing. It removes the record at its end.
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
    uint64_t goes_on;     /* 1: the rank goes on after this failure; 0: it has ended */
    uint64_t made_s;      /* since 1970: all machines have the same */
    sm_identity identity; /* zeros: unknown */
    sm_verdict verdict;
} exit_record;
_Static_assert(sizeof(exit_record) <= 1024, "it fits a value of every store");

/* The value of the key that is there while any record of a rank that has ended is. */
typedef struct exit_mark {
    uint64_t earlier_s; /* when a record that tells of an earlier job was made, since 1970; or 0 */
} exit_mark;

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

#define MARK (-1) /* in a rank's place: that key */

static void key_of(const sm_world *world, int32_t rank, char *key, size_t capacity) {
    if (rank == MARK)
        (void)snprintf(key, capacity, "%s/exit/any", world->prefix);
    else
        (void)snprintf(key, capacity, "%s/exit/%d", world->prefix, rank);
}

static bool read_of(const sm_world *world, int32_t rank, exit_record *found) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    size_t bytes = 0;
    key_of(world, rank, key, sizeof(key));
    return symmem_store_get(world->store, key, found, sizeof(*found), &bytes,
                            sm_store_brief_ms(world->store)) == SYMMEM_OK &&
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
    if (symmem_store_remove(world->store, key, sm_store_brief_ms(world->store)) != SYMMEM_OK)
        (void)!symmem_store_remove(world->store, key, sm_store_brief_ms(world->store));
}

/* --- who has met ------------------------------------------------------------------------------ */

static bool is_in(const sm_world *world, const uint64_t *ranks, int32_t rank) {
    /* Relaxed: a bit that is set at this moment may count as not set. */
    const uint64_t word = ranks == NULL ? 0 : __atomic_load_n(&ranks[rank / 64], __ATOMIC_RELAXED);
    return rank == world->rank || (word >> (rank % 64) & 1) != 0;
}

static bool has_met(const sm_world *world, int32_t rank) {
    return is_in(world, world->met, rank);
}

static bool is_told(const sm_world *world, int32_t rank) {
    return is_in(world, world->told, rank);
}

/* --- leaving one ------------------------------------------------------------------------------ */

/* Whether this rank saw and removed the traces of an earlier job itself. A rank that knows of them
 * from another rank's record has nothing to add. */
static bool is_of_an_earlier_job(const symmem_error_record *record) {
    return record->status == SYMMEM_PEER_LOST &&
           strstr(record->message, SM_MAY_BE_EARLIER) != NULL &&
           strstr(record->message, SM_FOR_EARLIER) == NULL;
}

bool sm_exit_record_is_lack(const symmem_error_record *record) {
    const symmem_status status = record->status;
    /* Before the first group only failpoints' stages have names with a dot. */
    if (record->missing_count != 0 || strchr(record->stage, '.') != NULL ||
        (record->failed_rank >= 0 && record->failed_rank != record->rank))
        return false;
    return status == SYMMEM_OUT_OF_MEMORY || status == SYMMEM_NO_SPACE || status == SYMMEM_LIMIT ||
           status == SYMMEM_PERMISSION || status == SYMMEM_SYSTEM || status == SYMMEM_BACKEND ||
           status == SYMMEM_LOAD || status == SYMMEM_CORRUPT;
}

/* What is in the store, as a rank sees it that goes. */
typedef struct survey {
    uint64_t left[SYMMEM_MAX_WORLD_SIZE / 64], needed[SYMMEM_MAX_WORLD_SIZE / 64];
    bool any_there, any_to_come;
} survey;

/* Looks at all ranks if `marked`, because some have left a record. Without the mark only ranks that
 * this one has not met may have. A rank that was met and is not there has gone. Returns false if
 * there was no time for all. */
static bool look_at_records(const sm_world *world, bool marked, survey *seen) {
    const uint64_t until_ns = sm_now_ns() + SM_LAST_LOOKS_NS; /* finalize does not wait */
    memset(seen, 0, sizeof(*seen));
    for (int32_t rank = 0; rank < world->size; rank++) {
        exit_record found;
        const bool is_met = has_met(world, rank);
        if (rank == world->rank || (is_met && !marked))
            continue;
        if (sm_now_ns() > until_ns)
            return false;
        const bool said = read_of(world, rank, &found) && found.goes_on == 0;
        const bool there = !said && sm_member_has_key(world, rank);
        seen->left[rank / 64] |= (uint64_t)said << (rank % 64);
        seen->needed[rank / 64] |= (uint64_t)(said && tells_of_an_earlier_job(&found))
                                   << (rank % 64);
        seen->any_there = seen->any_there || there;
        seen->any_to_come = seen->any_to_come || (!is_met && !said && !there);
    }
    return true;
}

/* Removes what no rank needs any more, after this rank's member key is gone. Ranks that are there
 * may still want to read, and so may ranks that have not come. Those read this rank's record if it
 * left one, and otherwise the record of an earlier job. */
static void sweep_records(const sm_world *world, bool marked, bool own_is_left) {
    survey seen;
    if (!look_at_records(world, marked, &seen) || seen.any_there)
        return;
    bool all_gone = !own_is_left || !seen.any_to_come;
    for (int32_t rank = 0; rank < world->size; rank++) {
        const uint64_t left = seen.left[rank / 64] >> (rank % 64) & 1;
        const uint64_t needed = seen.needed[rank / 64] >> (rank % 64) & 1;
        if (left != 0 && (own_is_left || !seen.any_to_come || needed == 0))
            remove_of(world, rank);
        else
            all_gone = all_gone && left == 0;
    }
    if (own_is_left && !seen.any_to_come)
        remove_of(world, world->rank);
    if (marked && all_gone)
        remove_of(world, MARK);
}

static void write_own(const sm_world *world, const symmem_error_record *record, bool goes_on) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    exit_record own;
    memset(&own, 0, sizeof(own)); /* sent as bytes */
    own.magic = EXIT_RECORD_MAGIC;
    own.rank = world->rank;
    own.goes_on = goes_on;
    own.made_s = sm_since_1970_s();
    if (world->identity != NULL)
        own.identity = *world->identity;
    sm_verdict_make(record, &own.verdict);
    key_of(world, world->rank, key, sizeof(key));
    (void)!symmem_store_set(world->store, key, &own, sizeof(own), sm_store_brief_ms(world->store));
}

static bool read_mark(const sm_world *world, exit_mark *mark_p) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    size_t bytes = 0;
    memset(mark_p, 0, sizeof(*mark_p));
    key_of(world, MARK, key, sizeof(key));
    return symmem_store_get(world->store, key, mark_p, sizeof(*mark_p), &bytes,
                            sm_store_brief_ms(world->store)) == SYMMEM_OK;
}

static void write_mark(const sm_world *world, bool tells_of_an_earlier_job) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    exit_mark mark;
    (void)read_mark(world, &mark);
    if (tells_of_an_earlier_job)
        mark.earlier_s = sm_since_1970_s();
    key_of(world, MARK, key, sizeof(key));
    (void)!symmem_store_set(world->store, key, &mark, sizeof(mark),
                            sm_store_brief_ms(world->store));
}

void sm_exit_record_mark_earlier(const sm_world *world) {
    SM_ATTEMPT(marking);
    write_mark(world, true);
}

/* First the mark: a rank that sees none leaves records where they are. */
static void leave_own(const sm_world *world, const symmem_error_record *record) {
    write_mark(world, is_of_an_earlier_job(record));
    write_own(world, record, false);
}

static bool all_have(bool (*has)(const sm_world *world, int32_t rank), const sm_world *world) {
    int32_t rank = 0;
    while (rank < world->size && has(world, rank))
        rank++;
    return rank == world->size;
}

void sm_exit_record_leave(const sm_world *world, const symmem_error_record *record) {
    if (world->store == NULL || world->prefix[0] == '\0' || world->size < 2 ||
        world->size > SYMMEM_MAX_WORLD_SIZE)
        return;
    SM_ATTEMPT(leaving);
    const bool all_met = all_have(has_met, world);
    const bool leaves =
        record != NULL && ((sm_exit_record_is_lack(record) && !all_have(is_told, world)) ||
                           (!all_met && is_of_an_earlier_job(record)));
    if (leaves)
        leave_own(world, record);
    exit_mark mark;
    const bool marked = leaves || read_mark(world, &mark);
    if (marked)
        sweep_records(world, marked, leaves);
}

void sm_exit_record_note(const sm_world *world, const symmem_error_record *record) {
    SM_ATTEMPT(noting);
    write_own(world, record, true);
}

void sm_exit_record_clear(const sm_world *world) {
    SM_ATTEMPT(clearing);
    exit_record found;
    if (read_of(world, world->rank, &found))
        remove_of(world, world->rank);
}

/* --- reading one ------------------------------------------------------------------------------ */

static bool is_recent(uint64_t made_s) {
    const uint64_t now = sm_since_1970_s();
    return made_s <= now + TOLD_S && made_s + TOLD_S >= now;
}

bool sm_exit_record_any_earlier(const sm_world *world) {
    SM_ATTEMPT(look);
    exit_mark mark;
    return read_mark(world, &mark) && is_recent(mark.earlier_s);
}

bool sm_exit_record_read(const sm_world *world, int32_t rank, sm_identity *identity_p,
                         bool *earlier_job_p) {
    SM_ATTEMPT(look);
    exit_record found;
    const bool is_read = read_of(world, rank, &found);
    if (!is_read || found.goes_on != 0 || found.identity.pid <= 0 || !is_recent(found.made_s))
        return false;
    found.identity.host[sizeof(found.identity.host) - 1] = '\0';
    *identity_p = found.identity;
    *earlier_job_p = tells_of_an_earlier_job(&found);
    return true;
}

/* A lack is no cause if its rank has gone on for long, or is only late. */
static bool is_cause_of(const exit_record *found, symmem_status status) {
    return found->goes_on == 0 ||
           ((status == SYMMEM_PEER_LOST || status == SYMMEM_MISMATCH) && is_recent(found->made_s));
}

void sm_exit_record_explain(const sm_world *world, int32_t global_rank, int32_t rank,
                            symmem_error_record *record) {
    SM_ATTEMPT(look);
    exit_record found;
    if (world->store != NULL && world->size > 1 && read_of(world, global_rank, &found) &&
        is_cause_of(&found, record->status)) {
        const size_t used = strlen(record->message);
        (void)snprintf(record->message + used, sizeof(record->message) - used,
                       "; rank %d %s %s in %.*s: %.*s", rank,
                       found.goes_on == 0 ? "finalized after" : "failed with",
                       symmem_status_name((symmem_status)found.verdict.status),
                       (int)sizeof(found.verdict.operation) - 1, found.verdict.operation,
                       (int)sizeof(found.verdict.message) - 1, found.verdict.message);
    }
}
