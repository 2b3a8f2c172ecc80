/* SPDX-License-Identifier: BSD-3-Clause */
/* Appends to a record that names a rank what that rank has reported as its failure. */
#include "bootstrap/exit_record.h"
#include "memory/group.h"
#include "memory/group_explain.h"
#include "backend/query.h"

#include <string.h>

#define LONG_AGO_NS 1u /* a deadline that has passed: try once */

static bool is_hearsay(symmem_status status) {
    return status == SYMMEM_PEER_LOST || status == SYMMEM_TIMEOUT || status == SYMMEM_POISONED;
}

/* Whether another rank does not do what this one does. It may have failed before. */
static bool is_peers_mismatch(const symmem_error_record *record) {
    return record->status == SYMMEM_MISMATCH && record->failed_rank >= 0 &&
           record->failed_rank != record->rank;
}

/* Whether this rank itself was late. That others left because of it explains nothing. */
static bool is_own(const symmem_error_record *record) {
    return record->status == SYMMEM_TIMEOUT && record->failed_rank >= 0 &&
           record->failed_rank == record->rank;
}

/* Asks a group, unless it is in use. `global_rank`: only that rank's report; -1: see
 * sm_session_explain. */
static void ask_group(symmem_group *group, int32_t global_rank, symmem_error_record *record) {
    int32_t rank = global_rank < 0 ? -1 : 0;
    if (sm_group_take(group, record->operation, LONG_AGO_NS) != SYMMEM_OK)
        return;
    while (rank >= 0 && rank < group->world_size && group->global_ranks[rank] != global_rank)
        rank++;
    if (group->session && rank < group->world_size)
        sm_session_explain(group->session, rank, record);
    sm_group_leave(group);
}

/* Returns the next live group after `before`, counted, or NULL. Releases `before`. */
static symmem_group *next_group(symmem_context *context, symmem_group *before) {
    symmem_group *found = NULL;
    (void)pthread_mutex_lock(&context->lock);
    for (sm_node *node = before ? before->node.next : context->groups.next;
         node != &context->groups && !found; node = node->next) {
        symmem_group *group = SM_CONTAINER(node, symmem_group, node);
        if (!atomic_load_explicit(&group->destroyed, memory_order_relaxed))
            found = group;
    }
    if (found)
        sm_group_retain(found);
    (void)pthread_mutex_unlock(&context->lock);
    if (before)
        sm_group_release(before); /* its shell stays until the context ends */
    return found;
}

/* Returns the only rank that the record names, in its group's numbers, or -1. */
static int32_t named_rank(const symmem_error_record *record) {
    if (record->failed_rank >= 0 || record->missing_count != 1)
        return record->failed_rank;
    int32_t rank = 0;
    while (!symmem_error_is_missing(record, rank))
        rank++;
    return rank;
}

/* Asks the groups for what ranks have told, and then the store for their exit records. */
static void ask_all(symmem_context *context, symmem_group *group, int32_t named,
                    symmem_error_record *record) {
    const size_t before = strlen(record->message);
    const sm_world world = sm_context_world(context);
    const int32_t global_rank = named >= 0 ? group->global_ranks[named] : -1;
    ask_group(group, -1, record);
    for (symmem_group *other = next_group(context, NULL); other; other = next_group(context, other))
        if (other != group && global_rank >= 0 && strlen(record->message) == before)
            ask_group(other, global_rank, record);
    if (global_rank >= 0 && strlen(record->message) == before)
        sm_exit_record_explain(&world, global_rank, named, record);
    /* Of several named ranks the first that has reported counts. */
    for (int32_t rank = 0; named < 0 && rank < group->world_size; rank++)
        if (symmem_error_is_missing(record, rank) && strlen(record->message) == before)
            sm_exit_record_explain(&world, group->global_ranks[rank], rank, record);
}

/* Of those that have ended, most have left in good order after one that was killed. */
#define LOOKS_AT_ENDED 16

/* A peer's poison says only that something failed there. If a rank of the group was killed, that
 * was the reason, or would have been. */
static void name_the_killed(symmem_context *context, const symmem_group *group,
                            symmem_error_record *record) {
    const sm_world world = sm_context_world(context);
    int32_t looks = LOOKS_AT_ENDED;
    sm_liveness_glance(context->liveness);
    for (int32_t rank = 0; rank < group->world_size && looks > 0; rank++) {
        const int32_t global_rank = group->global_ranks[rank];
        if (rank == group->rank || !sm_liveness_is_known_gone(context->liveness, global_rank, NULL))
            continue;
        looks--;
        if (!sm_member_has_key(&world, global_rank))
            continue;
        record->missing[rank / 64] |= 1ull << (rank % 64);
        record->missing_count++;
    }
}

/* A failure while asking is no failure of the call. */
static void add_reason(symmem_context *context, symmem_error_record *record) {
    SM_ATTEMPT(asking);
    symmem_group *group = NULL;
    const size_t before = strlen(record->message);
    const sm_world world = sm_context_world(context);
    if (symmem_group_find(context, record->group, &group) != SYMMEM_OK ||
        sm_group_acquire(group, record->operation) != SYMMEM_OK)
        return;
    int32_t named = named_rank(record);
    if (named >= group->world_size)
        named = -1;
    /* What a process noted before it ended comes before what others say of its end. */
    if (named >= 0 && record->status != SYMMEM_TIMEOUT && record->status != SYMMEM_POISONED)
        sm_exit_record_explain(&world, group->global_ranks[named], named, record);
    if (record->status != SYMMEM_MISMATCH && strlen(record->message) == before)
        ask_all(context, group, named, record);
    if (record->status == SYMMEM_POISONED && record->missing_count == 0 &&
        context->liveness != NULL)
        name_the_killed(context, group, record);
    sm_group_release(group);
}

void sm_group_explain(symmem_context *context) {
    symmem_error_record record;
    (void)sm_error_get(&record);
    if (record.group[0] == '\0' || (!is_hearsay(record.status) && !is_peers_mismatch(&record)) ||
        is_own(&record) || strstr(record.message, " after ") != NULL ||
        strstr(record.message, " failed with ") != NULL)
        return; /* nothing to add, or added already */
    add_reason(context, &record);
    (void)sm_error_raise(&record);
}

void sm_group_remark(symmem_group *group, const symmem_error_record *record) {
    SM_ATTEMPT(telling);
    if (!is_hearsay(record->status) && record->status != SYMMEM_NOT_INITIALIZED &&
        sm_group_take(group, record->operation, LONG_AGO_NS) == SYMMEM_OK) {
        if (group->session)
            sm_session_remark(group->session, record);
        sm_group_leave(group);
    }
}
