/* SPDX-License-Identifier: BSD-3-Clause */
/* The rendezvous call: finds the block and a cached link, or leads all ranks through the steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/rendezvous.h"
#include "backend/failure.h"
#include "backend/host.h"
#include "backend/query.h"
#include "memory/block.h"
#include "memory/group_explain.h"
#include "rendezvous/handle.h"
#include "rendezvous/link.h"
#include "rendezvous/rendezvous_map.h"
#include "rendezvous/rendezvous_multicast.h"
#include "rendezvous/rendezvous_record.h"

void sm_rendezvous_set_failure(sm_rendezvous *rendezvous, symmem_status status) {
    if (status == SYMMEM_OK || rendezvous->status != SYMMEM_OK)
        return;
    rendezvous->status = status;
    (void)sm_error_get(&rendezvous->failure);
}

bool sm_rendezvous_broke(const sm_rendezvous *rendezvous) {
    return sm_session_id(rendezvous->group->session) == 0;
}

symmem_status sm_rendezvous_agree(sm_rendezvous *rendezvous, const char *stage, symmem_status own) {
    /* Other steps may have failed, and been forgiven, since the note was taken. */
    if (own != SYMMEM_OK)
        (void)sm_error_raise(&rendezvous->failure);
    return sm_session_agree(rendezvous->group->session, SM_RENDEZVOUS, stage, own,
                            rendezvous->deadline_ns);
}

symmem_status sm_rendezvous_gather_bound(sm_rendezvous *rendezvous, const char *stage) {
    if (rendezvous->status != SYMMEM_OK)
        (void)sm_error_raise(&rendezvous->failure);
    return sm_session_agree_and_gather(
        rendezvous->group->session, SM_RENDEZVOUS, stage, rendezvous->status, &rendezvous->bound,
        sizeof rendezvous->bound, rendezvous->all_bound, rendezvous->deadline_ns);
}

void sm_rendezvous_point(sm_rendezvous *rendezvous, const char *name) {
    sm_rendezvous_set_failure(rendezvous,
                              sm_context_point(rendezvous->context, SM_RENDEZVOUS, name));
}

static sm_link *cached_link(sm_rendezvous *rendezvous) {
    sm_cached *found = NULL;
    sm_block *block = rendezvous->block;
    pthread_mutex_lock(&rendezvous->context->lock);
    if (block != NULL && sm_block_live(block))
        found = sm_cache_find(rendezvous->context, &block->links, rendezvous->group->uid);
    if (found != NULL)
        sm_link_retain(SM_CONTAINER(found, sm_link, cached));
    pthread_mutex_unlock(&rendezvous->context->lock);
    return found != NULL ? SM_CONTAINER(found, sm_link, cached) : NULL;
}

static sm_mapping *cached_mapping(sm_rendezvous *rendezvous) {
    pthread_mutex_lock(&rendezvous->context->lock);
    sm_cached *found = sm_cache_find(rendezvous->context, &rendezvous->allocation->mappings,
                                     rendezvous->group->uid);
    if (found != NULL)
        sm_mapping_retain(SM_CONTAINER(found, sm_mapping, cached));
    pthread_mutex_unlock(&rendezvous->context->lock);
    return found != NULL ? SM_CONTAINER(found, sm_mapping, cached) : NULL;
}

/* Copies what the later steps need of the block. The block is pinned, so it stays valid memory even
 * if it is freed. */
static void copy_block(sm_rendezvous *rendezvous, sm_block *block, const void *ptr) {
    rendezvous->allocation = block->allocation;
    rendezvous->block = block;
    rendezvous->block_ordinal = block->ordinal;
    rendezvous->block_offset = block->offset;
    rendezvous->block_bytes = block->bytes;
    rendezvous->signal_pad_size = block->signal_pad_size;
    rendezvous->pointer_offset =
        (size_t)((const char *)ptr - (const char *)block->allocation->memory.ptr);
}

static symmem_status check_group(sm_rendezvous *rendezvous, symmem_group *group,
                                 const sm_block *block) {
    if (group == NULL && block != NULL)
        group = block->default_group; /* stays while the block does */
    if (group == NULL && rendezvous->status != SYMMEM_OK)
        return sm_error_raise(&rendezvous->failure);
    if (group == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, SM_RENDEZVOUS, "",
                       "no group given and the allocation has no default group");
    if (group->context != rendezvous->context)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, SM_RENDEZVOUS, "",
                       "the group belongs to another context");
    symmem_status status = sm_group_acquire(group, SM_RENDEZVOUS);
    if (status == SYMMEM_OK)
        rendezvous->group = group;
    return status;
}

/*
 * Finds the group and this rank's memory. Only an unusable group ends the call here. Every other
 * failure is sent to the other ranks, which are about to enter the call.
 */
static symmem_status locate(sm_rendezvous *rendezvous, void *ptr, symmem_group *group) {
    sm_block *block = NULL;
    symmem_status status = sm_block_find(rendezvous->context, ptr, SM_RENDEZVOUS, &block);
    sm_rendezvous_set_failure(rendezvous, status);
    if (block != NULL)
        copy_block(rendezvous, block, ptr);
    return check_group(rendezvous, group, block);
}

static symmem_status allocate_tables(sm_rendezvous *rendezvous) {
    size_t world_size = (size_t)rendezvous->group->world_size;
    rendezvous->records = calloc(world_size, sizeof *rendezvous->records);
    rendezvous->descriptors = calloc(3 * world_size, sizeof *rendezvous->descriptors);
    rendezvous->all_bound = calloc(world_size, sizeof *rendezvous->all_bound);
    if (rendezvous->records != NULL && rendezvous->descriptors != NULL &&
        rendezvous->all_bound != NULL)
        return SYMMEM_OK;
    return sm_fail(SYMMEM_OUT_OF_MEMORY, SM_RENDEZVOUS, "metadata", "no memory for %zu ranks",
                   world_size);
}

static void prepare(sm_rendezvous *rendezvous) {
    sm_rendezvous_set_failure(rendezvous, sm_capture_check(rendezvous->context, SM_RENDEZVOUS));
    if (rendezvous->status == SYMMEM_OK)
        sm_rendezvous_set_failure(rendezvous, sm_link_create(rendezvous, &rendezvous->link));
    if (rendezvous->status != SYMMEM_OK)
        return;
    rendezvous->mapping = cached_mapping(rendezvous);
    sm_rendezvous_prepare(rendezvous);
}

/* Exchanges the records. All ranks get the same result, unless the exchange fails. */
static symmem_status exchange_metadata(sm_rendezvous *rendezvous) {
    prepare(rendezvous);
    sm_rendezvous_point(rendezvous, "rendezvous.metadata.before");
    sm_rdv_record_fill(rendezvous);
    symmem_status status = sm_session_all_gather(
        rendezvous->group->session, SM_RENDEZVOUS, "metadata", &rendezvous->own,
        sizeof rendezvous->own, rendezvous->records, true, rendezvous->deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    rendezvous->generation = sm_session_stamp(rendezvous->group->session);
    status = sm_rdv_records_check(rendezvous);
    if (status == SYMMEM_OK)
        sm_rendezvous_point(rendezvous, "rendezvous.metadata.after");
    return status;
}

static symmem_status exchange_descriptors(sm_rendezvous *rendezvous) {
    sm_rendezvous_point(rendezvous, "rendezvous.descriptors.before");
    symmem_status status = sm_rendezvous_descriptors(rendezvous);
    if (status != SYMMEM_OK && sm_rendezvous_broke(rendezvous))
        return status;
    sm_rendezvous_set_failure(rendezvous, status);
    sm_rendezvous_point(rendezvous, "rendezvous.descriptors.after");
    return SYMMEM_OK;
}

static symmem_status map(sm_rendezvous *rendezvous) {
    sm_rendezvous_point(rendezvous, "rendezvous.map.before");
    symmem_status status = sm_rendezvous_map(rendezvous);
    sm_rendezvous_point(rendezvous, "rendezvous.map.after");
    return status;
}

/* Keeps the results for later calls, unless the block was freed or the group destroyed meanwhile. A
 * mapping that another one has replaced serves only the links that use it. */
static void cache_results(sm_rendezvous *rendezvous) {
    sm_cached *replaced = NULL;
    pthread_mutex_lock(&rendezvous->context->lock);
    sm_block *block = rendezvous->block;
    if (sm_block_live(block) &&
        !atomic_load_explicit(&rendezvous->group->destroyed, memory_order_relaxed)) {
        sm_link_retain(rendezvous->link);
        sm_cache_add(rendezvous->group, &block->links, &rendezvous->link->cached);
        if (rendezvous->mapping_is_new) {
            sm_node *cache = &rendezvous->allocation->mappings;
            replaced = sm_cache_find(rendezvous->context, cache, rendezvous->group->uid);
            if (replaced != NULL)
                sm_cache_take(rendezvous->context, replaced);
            sm_mapping_retain(rendezvous->mapping);
            sm_cache_add(rendezvous->group, cache, &rendezvous->mapping->cached);
        }
    }
    pthread_mutex_unlock(&rendezvous->context->lock);
    if (replaced != NULL)
        replaced->release(replaced);
}

static symmem_status commit(sm_rendezvous *rendezvous, symmem_handle **handle_p) {
    symmem_handle *handle = NULL;
    if (rendezvous->status == SYMMEM_OK && !rendezvous->incomplete) {
        sm_rendezvous_set_failure(
            rendezvous, sm_handle_create(rendezvous->link, rendezvous->pointer_offset, &handle));
        if (handle != NULL)
            sm_link_retain(rendezvous->link);
    }
    sm_rendezvous_point(rendezvous, "rendezvous.commit.before");
    symmem_status status = sm_rendezvous_gather_bound(rendezvous, "commit");
    /* A rank that does not know the result does not know what the others keep, either. */
    if (handle != NULL && (status == SYMMEM_OK || sm_rendezvous_broke(rendezvous)))
        sm_rendezvous_lease(rendezvous);
    if (status == SYMMEM_OK && handle == NULL)
        status = sm_fail(SYMMEM_SYSTEM, SM_RENDEZVOUS, "descriptors", "a rank sent none");
    if (status != SYMMEM_OK) {
        symmem_handle_release(handle);
        return status;
    }
    sm_multicast_settle(rendezvous);
    sm_rendezvous_hold(rendezvous);
    cache_results(rendezvous);
    /* The other ranks would not learn of a failure here. */
    (void)sm_context_point(rendezvous->context, SM_RENDEZVOUS, "rendezvous.commit.after");
    *handle_p = handle;
    return SYMMEM_OK;
}

static symmem_status run_steps(sm_rendezvous *rendezvous, symmem_handle **handle_p) {
    symmem_status status = exchange_metadata(rendezvous);
    if (status == SYMMEM_OK)
        status = exchange_descriptors(rendezvous);
    if (status == SYMMEM_OK)
        status = map(rendezvous);
    if (status == SYMMEM_OK)
        status = commit(rendezvous, handle_p);
    sm_rendezvous_close_exports(rendezvous);
    return status;
}

static symmem_status make_handle(sm_rendezvous *rendezvous, sm_link *link,
                                 symmem_handle **handle_p) {
    symmem_status status = sm_handle_create(link, rendezvous->pointer_offset, handle_p);
    if (status != SYMMEM_OK)
        sm_link_release(link);
    return status;
}

/* Prints a notice if this rank cannot see the end of some peers: a wait for one of them may then
 * last for ever. */
static void tell_of_unseen(const sm_rendezvous *rendezvous) {
    const symmem_group *group = rendezvous->group;
    int32_t first = -1, count = 0;
    char text[256];
    for (int32_t r = 0; r < group->world_size; r++) {
        if (r == group->rank ||
            sm_liveness_sees(rendezvous->context->liveness, group->global_ranks[r]))
            continue;
        first = first < 0 ? r : first;
        count++;
    }
    if (count == 0)
        return;
    snprintf(
        text, sizeof text,
        "group %.63s: the end of %d of its ranks cannot be seen from rank %d (the first is "
        "rank %d: on another host, or in namespaces that hide it); waits for them need a limit",
        group->name, count, group->rank, first);
    sm_context_notice(rendezvous->context, text);
}

static symmem_status exchange_and_map(sm_rendezvous *rendezvous, symmem_handle **handle_p) {
    sm_rendezvous_point(rendezvous, "rendezvous.begin");
    symmem_status tables = allocate_tables(rendezvous);
    sm_rendezvous_set_failure(rendezvous, tables);
    symmem_status status =
        sm_group_enter(rendezvous->group, SM_RENDEZVOUS, rendezvous->deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    if (tables != SYMMEM_OK) { /* no memory for the others' records: only tells them */
        status = sm_rendezvous_agree(rendezvous, "metadata", tables);
        sm_group_leave(rendezvous->group);
        return status;
    }
    /* Another thread may have finished the same rendezvous while this one waited for the call
     * lock. */
    sm_link *link = cached_link(rendezvous);
    status =
        link != NULL ? make_handle(rendezvous, link, handle_p) : run_steps(rendezvous, handle_p);
    sm_group_leave(rendezvous->group);
    if (status == SYMMEM_OK && link == NULL)
        tell_of_unseen(rendezvous);
    return status;
}

/* Multicast may fail, which is not a failure of the call. */
static symmem_status attempt_exchange(sm_rendezvous *rendezvous, symmem_handle **handle_p) {
    SM_ATTEMPT(exchange);
    symmem_status status = exchange_and_map(rendezvous, handle_p);
    if (status != SYMMEM_OK)
        (void)sm_error_raise(&exchange.error);
    return status;
}

static void finish(sm_rendezvous *rendezvous) {
    if (rendezvous->link != NULL)
        sm_link_release(rendezvous->link);
    if (rendezvous->mapping != NULL)
        sm_mapping_release(rendezvous->mapping);
    if (rendezvous->group != NULL)
        sm_group_release(rendezvous->group);
    if (rendezvous->block != NULL)
        sm_block_release(rendezvous->block);
    free(rendezvous->records);
    free(rendezvous->descriptors);
    free(rendezvous->all_bound);
}

static symmem_status run(sm_rendezvous *rendezvous, void *ptr, symmem_group *group,
                         symmem_handle **handle_p) {
    symmem_status status = locate(rendezvous, ptr, group);
    if (status == SYMMEM_OK) {
        sm_link *link = cached_link(rendezvous);
        status = link != NULL ? make_handle(rendezvous, link, handle_p)
                              : attempt_exchange(rendezvous, handle_p);
    }
    if (status != SYMMEM_OK)
        (void)sm_error_elapsed(sm_now_ns() - rendezvous->begin_ns);
    finish(rendezvous);
    return status;
}

symmem_status symmem_rendezvous(symmem_context *context, void *ptr, symmem_group *group,
                                uint32_t timeout_ms, symmem_handle **handle_p) {
    SM_PUBLIC_CALL;
    return sm_rendezvous_call(context, ptr, group, timeout_ms, NULL, handle_p);
}

symmem_status sm_rendezvous_call(symmem_context *context, void *ptr, symmem_group *group,
                                 uint32_t timeout_ms, const symmem_error_record *own,
                                 symmem_handle **handle_p) {
    if (handle_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, SM_RENDEZVOUS, "", "handle_p is NULL");
    *handle_p = NULL;
    symmem_status status = sm_context_check(context, SM_RENDEZVOUS);
    if (status != SYMMEM_OK)
        return status;
    /* Takes no heap memory: a rank that has none still has to tell the others. */
    sm_rendezvous rendezvous;
    memset(&rendezvous, 0, sizeof rendezvous);
    rendezvous.context = context;
    rendezvous.data.fd = rendezvous.signals.fd = rendezvous.multicast.fd = -1;
    rendezvous.begin_ns = sm_now_ns();
    rendezvous.deadline_ns = sm_deadline_ns(sm_context_timeout(context, timeout_ms));

    if (own != NULL) {
        rendezvous.status = own->status;
        rendezvous.failure = *own;
    }

    /* Holds to the end of the call, because the backend may have much to release. */
    const uint64_t before_ns = sm_call_deadline(rendezvous.deadline_ns);
    status = run(&rendezvous, ptr, group, handle_p);
    if (status != SYMMEM_OK)
        sm_group_explain(context);
    else
        sm_context_forget_lack(context, false);
    (void)sm_call_deadline(before_ns);
    return status;
}
