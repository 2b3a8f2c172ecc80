/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks, pointer lookup, and the caches of what rendezvous have made.
 *
 * A cached object is always taken out of its list under context->lock and released after it: its
 * last release may call the backend.
 */
#include "objects.h"

#include <stdlib.h>

/* --- lookup; context->lock held --------------------------------------------------------------- */

sm_allocation *sm_allocation_covering(symmem_context *context, const void *ptr) {
    sm_allocation *found = sm_places_find(&context->places, (uintptr_t)ptr);
    bool covers = found && (uintptr_t)ptr - (uintptr_t)found->memory.ptr < found->bytes;
    return covers ? found : NULL;
}

sm_block *sm_block_covering(const sm_allocation *allocation, const void *ptr) {
    size_t offset = (uintptr_t)ptr - (uintptr_t)allocation->memory.ptr;
    sm_block *found = sm_places_find(&allocation->by_offset, offset);
    return found && offset - found->offset < found->bytes ? found : NULL;
}

bool sm_allocation_live(const sm_allocation *allocation) {
    return !sm_list_empty(&allocation->node) && allocation->active;
}

bool sm_block_live(const sm_block *block) {
    return !sm_list_empty(&block->node) && !block->retired && sm_allocation_live(block->allocation);
}

sm_node *sm_allocations_from(symmem_context *context, sm_allocation *at) {
    return at && !sm_list_empty(&at->node) ? &at->node : context->allocations.next;
}

void sm_allocation_retain_at(const sm_allocation *before, sm_allocation *at) {
    if (at && at != before)
        sm_allocation_retain(at);
}

void sm_allocation_release_at(sm_allocation *before, const sm_allocation *at) {
    if (before && before != at)
        sm_allocation_release(before);
}

/* --- blocks ------------------------------------------------------------------------- */

symmem_status sm_block_create(sm_allocation *allocation, size_t offset, size_t bytes,
                              symmem_group *default_group, sm_block **block_p) {
    symmem_context *context = allocation->context;
    sm_block *block = calloc(1, sizeof(*block));
    if (!block || !sm_places_add(&allocation->by_offset, offset, block)) {
        free(block);
        return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, "alloc", "block",
                               "no memory for a block's description");
    }
    if (default_group)
        sm_group_retain(default_group);
    block->allocation = allocation;
    block->offset = offset;
    block->bytes = bytes;
    block->signal_pad_size = context->signal_pad_size;
    block->ordinal = ++context->next_ordinal;
    if (allocation->ordinal == 0)
        allocation->ordinal = block->ordinal;
    block->default_group = default_group;
    block->is_pool_block = allocation->is_segment;
    sm_list_init(&block->links);
    sm_list_add(&allocation->blocks, &block->node);
    *block_p = block;
    return SYMMEM_OK;
}

void sm_block_hide(sm_block *block) {
    sm_list_remove(&block->node);
    sm_places_remove(&block->allocation->by_offset, block->offset, block);
}

void sm_block_drop(sm_block *block) {
    symmem_context *context = block->allocation->context;
    (void)pthread_mutex_lock(&context->lock);
    sm_block_hide(block);
    (void)pthread_mutex_unlock(&context->lock);
    sm_cache_drop(context, &block->links);
    (void)pthread_mutex_lock(&context->lock);
    symmem_group *group = block->default_group;
    block->default_group = NULL;
    if (block->pins == 0) {
        free(block);
    } else {
        block->retired = true;
        sm_list_add(&block->allocation->retired, &block->node);
    }
    (void)pthread_mutex_unlock(&context->lock);
    if (group)
        sm_group_release(group);
}

symmem_status sm_block_find(symmem_context *context, const void *ptr, const char *operation,
                            sm_block **block_p) {
    sm_block *block = NULL;
    (void)pthread_mutex_lock(&context->lock);
    sm_allocation *allocation = sm_allocation_covering(context, ptr);
    if (allocation && allocation->active)
        block = sm_block_covering(allocation, ptr);
    if (block) {
        sm_allocation_retain(allocation);
        block->pins++;
    }
    (void)pthread_mutex_unlock(&context->lock);
    if (!block)
        return sm_context_fail(context, SYMMEM_NOT_SYMMETRIC, operation, "",
                               "%p is not symmetric memory of this context", ptr);
    *block_p = block;
    return SYMMEM_OK;
}

void sm_block_release(sm_block *block) {
    sm_allocation *allocation = block->allocation;
    symmem_context *context = allocation->context;
    (void)pthread_mutex_lock(&context->lock);
    block->pins--;
    if (block->pins == 0 && block->retired) {
        sm_list_remove(&block->node);
        free(block);
    }
    (void)pthread_mutex_unlock(&context->lock);
    sm_allocation_release(allocation);
}

/* --- caches ------------------------------------------------------------------------- */

sm_cached *sm_cache_find(const sm_node *cache, uint64_t group_uid) {
    for (sm_node *node = cache->next; node != cache; node = node->next) {
        sm_cached *cached = SM_CONTAINER(node, sm_cached, node);
        if (cached->group_uid == group_uid)
            return cached;
    }
    return NULL;
}

static sm_cached *take_first(symmem_context *context, sm_node *cache) {
    sm_cached *first = NULL;
    (void)pthread_mutex_lock(&context->lock);
    if (!sm_list_empty(cache)) {
        first = SM_CONTAINER(cache->next, sm_cached, node);
        sm_list_remove(&first->node);
    }
    (void)pthread_mutex_unlock(&context->lock);
    return first;
}

void sm_cache_drop(symmem_context *context, sm_node *cache) {
    for (sm_cached *cached = take_first(context, cache); cached;
         cached = take_first(context, cache))
        cached->release(cached);
}

/* Of the allocation or of one of its blocks. context->lock held. */
static sm_cached *find_in(sm_allocation *allocation, uint64_t group_uid) {
    sm_cached *found = NULL;
    for (sm_node *b = allocation->blocks.next; b != &allocation->blocks && !found; b = b->next)
        found = sm_cache_find(&SM_CONTAINER(b, sm_block, node)->links, group_uid);
    return found ? found : sm_cache_find(&allocation->mappings, group_uid);
}

/* The next cached object of the group, out of its cache. */
static sm_cached *take_group(symmem_context *context, uint64_t group_uid, sm_allocation **at) {
    sm_cached *found = NULL;
    sm_allocation *before = *at;
    (void)pthread_mutex_lock(&context->lock);
    for (sm_node *node = sm_allocations_from(context, *at); node != &context->allocations && !found;
         node = node->next) {
        *at = SM_CONTAINER(node, sm_allocation, node);
        found = find_in(*at, group_uid);
    }
    if (found)
        sm_list_remove(&found->node);
    sm_allocation_retain_at(before, *at);
    (void)pthread_mutex_unlock(&context->lock);
    sm_allocation_release_at(before, *at);
    return found;
}

void sm_cache_drop_group(symmem_context *context, uint64_t group_uid) {
    sm_allocation *at = NULL;
    for (sm_cached *cached = take_group(context, group_uid, &at); cached;
         cached = take_group(context, group_uid, &at))
        cached->release(cached);
    sm_allocation_release_at(at, NULL);
}
