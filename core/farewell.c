/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank leaves in the store that ends for a lack of its own (memory, descriptors, rights)
 * before all others have met it: to those it is one that did not come, and this says why. Ranks
 * that have met are told by notes, see session_cause.c, and leave nothing. The last rank that could
 * read it removes it; so does the next process of that rank.
 */
#include "bootstrap/session_internal.h"
#include "memory/group.h"

#include <stdio.h>
#include <string.h>

#define FAREWELL_MAGIC 0x45594253u /* "SBYE" */

typedef struct farewell {
    uint32_t magic;
    int32_t rank;
    sm_verdict verdict;
} farewell;

static void key_of(const symmem_context *context, int32_t rank, char *key, size_t capacity) {
    (void)snprintf(key, capacity, "%s/bye/%d", context->world_prefix, rank);
}

static bool read_of(const symmem_context *context, int32_t rank, farewell *found) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    size_t bytes = 0;
    key_of(context, rank, key, sizeof(key));
    return symmem_store_get(context->store, key, found, sizeof(*found), &bytes,
                            SM_STORE_CLEAN_MS) == SYMMEM_OK &&
           bytes == sizeof(*found) && found->magic == FAREWELL_MAGIC && found->rank == rank &&
           sm_status_known(found->verdict.status) && found->verdict.status != SYMMEM_OK;
}

static void remove_of(const symmem_context *context, int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    key_of(context, rank, key, sizeof(key));
    if (symmem_store_remove(context->store, key, SM_STORE_CLEAN_MS) != SYMMEM_OK)
        (void)!symmem_store_remove(context->store, key, SM_STORE_CLEAN_MS);
}

/* --- who has met ------------------------------------------------------------------------------ */

static bool has_met(const symmem_context *context, int32_t rank) {
    /* Relaxed: a bit that is just being set is one that is not yet. */
    const uint64_t word = __atomic_load_n(&context->met[rank / 64], __ATOMIC_RELAXED);
    return rank == context->rank || (word >> (rank % 64) & 1) != 0;
}

/* --- leaving one ------------------------------------------------------------------------------ */

/* It leaves a bring-up for what a process left that has ended. Who comes after it waits for it, and
 * may take that for what it is: left behind by an earlier job. */
static bool is_of_an_earlier_job(const symmem_error_record *record) {
    return record->status == SYMMEM_PEER_LOST && strstr(record->message, SM_MAY_BE_EARLIER) != NULL;
}

/* What the rank lacks, and no argument of its program's, nor what others have told. */
static bool is_own_lack(const symmem_error_record *record) {
    const symmem_status status = record->status;
    /* Before ranks meet only test points' stages have names with a dot. */
    if (record->missing_count != 0 || strchr(record->stage, '.') != NULL ||
        (record->failed_rank >= 0 && record->failed_rank != record->rank))
        return false;
    return status == SYMMEM_OUT_OF_MEMORY || status == SYMMEM_NO_SPACE || status == SYMMEM_LIMIT ||
           status == SYMMEM_PERMISSION || status == SYMMEM_SYSTEM || status == SYMMEM_BACKEND ||
           status == SYMMEM_LOAD || status == SYMMEM_CORRUPT;
}

static bool is_there(const symmem_context *context, int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    uint8_t first[1];
    size_t bytes = 0;
    sm_identity_key(context->world_prefix, rank, key, sizeof(key));
    const symmem_status status =
        symmem_store_get(context->store, key, first, sizeof(first), &bytes, SM_STORE_CLEAN_MS);
    return status == SYMMEM_OK || status == SYMMEM_OUT_OF_RANGE;
}

/* This rank's member key is gone. Who is there still may want to read, and who has not come. */
static void sweep(const symmem_context *context) {
    uint64_t left[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    bool any = false, any_there = false, any_to_come = false;
    const uint64_t until_ns = sm_now_ns() + SM_LAST_LOOKS_NS; /* finalize waits for nobody */
    for (int32_t rank = 0; rank < context->world_size; rank++) {
        farewell found;
        if (has_met(context, rank))
            continue;
        if (sm_now_ns() > until_ns)
            return;
        const bool said = read_of(context, rank, &found);
        const bool there = !said && is_there(context, rank);
        left[rank / 64] |= (uint64_t)said << (rank % 64);
        any = any || said;
        any_there = any_there || there;
        any_to_come = any_to_come || (!said && !there);
    }
    for (int32_t rank = 0; any && !any_there && rank < context->world_size; rank++)
        if ((left[rank / 64] >> (rank % 64) & 1) != 0)
            remove_of(context, rank);
    if (any && !any_there && !any_to_come)
        remove_of(context, context->rank);
}

void sm_farewell_leave(symmem_context *context, const symmem_error_record *record) {
    int32_t unmet = 0;
    if (context->store == NULL || context->world_prefix[0] == '\0' || context->world_size < 2 ||
        context->world_size > SYMMEM_MAX_WORLD_SIZE)
        return;
    while (unmet < context->world_size && has_met(context, unmet))
        unmet++;
    if (unmet == context->world_size)
        return;
    const symmem_error_record before = *sm_record();
    if (record != NULL && (is_own_lack(record) || is_of_an_earlier_job(record))) {
        char key[SYMMEM_STORE_KEY_MAX + 1];
        farewell own;
        memset(&own, 0, sizeof(own)); /* travels as bytes */
        own.magic = FAREWELL_MAGIC;
        own.rank = context->rank;
        sm_verdict_make(record, &own.verdict);
        key_of(context, context->rank, key, sizeof(key));
        (void)!symmem_store_set(context->store, key, &own, sizeof(own), SM_STORE_CLEAN_MS);
    }
    sweep(context);
    (void)sm_fail_record(&before);
}

void sm_farewell_of_none(const symmem_context_options *options, int32_t rank, int32_t world_size) {
    const symmem_error_record record = *sm_record();
    symmem_context none;
    if (options->store == NULL || rank < 0 || rank >= world_size ||
        world_size > SYMMEM_MAX_WORLD_SIZE)
        return;
    memset(&none, 0, sizeof(none)); /* as much of one as that takes */
    none.rank = rank;
    none.world_size = world_size;
    none.store = options->store;
    sm_copy_text(none.world_prefix, sizeof(none.world_prefix), SM_WORLD_PREFIX);
    sm_farewell_leave(&none, &record);
}

void sm_farewell_clear(symmem_context *context) {
    const symmem_error_record before = *sm_record();
    farewell found;
    if (read_of(context, context->rank, &found))
        remove_of(context, context->rank);
    (void)sm_fail_record(&before);
}

/* --- reading one ------------------------------------------------------------------------------ */

void sm_farewell_explain(const symmem_context *context, int32_t global_rank, int32_t rank,
                         symmem_error_record *record) {
    const symmem_error_record before = *sm_record();
    farewell found;
    if (context->store != NULL && context->world_size > 1 &&
        read_of(context, global_rank, &found)) {
        const size_t used = strlen(record->message);
        (void)snprintf(record->message + used, sizeof(record->message) - used,
                       "; rank %d finalized after %s in %.*s: %.*s", rank,
                       symmem_status_name((symmem_status)found.verdict.status),
                       (int)sizeof(found.verdict.operation) - 1, found.verdict.operation,
                       (int)sizeof(found.verdict.message) - 1, found.verdict.message);
    }
    (void)sm_fail_record(&before);
}
