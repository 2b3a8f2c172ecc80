/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks, pointer lookup, and the caches of what rendezvous calls have made.
 *
 * A cached object is always taken out of its list under context->lock and released after it,
 * because the last release may call the backend.
 */
#include "memory/mapping.h"
#include "memory/block.h"
#include "backend/query.h"

#include <stdlib.h>

/* --- lookup; context->lock held --------------------------------------------------------------- */

sm_allocation *sm_allocation_covering(symmem_context *context, const void *ptr) {
    sm_treap_node *node = sm_treap_at_or_below(&context->by_address, (uintptr_t)ptr);
    sm_allocation *found = node ? SM_CONTAINER(node, sm_allocation, by_address) : NULL;
    bool covers = found && (uintptr_t)ptr - (uintptr_t)found->memory.ptr < found->bytes;
    return covers ? found : NULL;
}

sm_block *sm_block_covering(const sm_allocation *allocation, const void *ptr) {
    size_t offset = (uintptr_t)ptr - (uintptr_t)allocation->memory.ptr;
    sm_treap_node *node = sm_treap_at_or_below(&allocation->by_offset, offset);
    sm_block *found = node ? SM_CONTAINER(node, sm_block, by_offset) : NULL;
    return found && offset - found->offset < found->bytes ? found : NULL;
}

bool sm_allocation_live(const sm_allocation *allocation) {
    return !sm_list_empty(&allocation->node) && allocation->active;
}

bool sm_block_live(const sm_block *block) {
    return !sm_list_empty(&block->node) && !block->retired && sm_allocation_live(block->allocation);
}

/* --- blocks ------------------------------------------------------------------------- */

symmem_status sm_block_create(sm_allocation *allocation, size_t offset, size_t bytes,
                              symmem_group *default_group, sm_block **block_p) {
    symmem_context *context = allocation->context;
    sm_block *block = calloc(1, sizeof(*block));
    if (!block)
        return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, "alloc", "block",
                               "no memory for a block's description");
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
    sm_treap_add(&allocation->by_offset, &block->by_offset, offset);
    *block_p = block;
    return SYMMEM_OK;
}

void sm_block_hide(sm_block *block) {
    sm_list_remove(&block->node);
    sm_treap_remove(&block->allocation->by_offset, &block->by_offset);
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

sm_cached *sm_cache_find(const symmem_context *context, const sm_node *cache, uint64_t group_uid) {
    const uint64_t key = sm_index_key(cache, group_uid);
    for (sm_index_node *node = sm_index_first(&context->cached, key); node != NULL;
         node = sm_index_next(node)) {
        sm_cached *cached = SM_CONTAINER(node, sm_cached, by_group);
        if (cached->cache == cache && cached->group_uid == group_uid)
            return cached;
    }
    return NULL;
}

void sm_cache_add(symmem_group *group, sm_node *cache, sm_cached *cached) {
    symmem_context *context = group->context;
    cached->cache = cache;
    cached->group_uid = group->uid;
    sm_list_add(cache, &cached->node);
    sm_list_add(&group->cached, &cached->of_group);
    sm_list_add(&context->all_cached, &cached->of_context);
    sm_index_add(&context->cached, &cached->by_group, sm_index_key(cache, group->uid));
}

void sm_cache_take(symmem_context *context, sm_cached *cached) {
    sm_list_remove(&cached->node);
    sm_list_remove(&cached->of_group);
    sm_list_remove(&cached->of_context);
    sm_index_remove(&context->cached, &cached->by_group);
}

void sm_cache_drop(symmem_context *context, sm_node *cache) {
    for (;;) {
        (void)pthread_mutex_lock(&context->lock);
        sm_cached *first = sm_list_empty(cache) ? NULL : SM_CONTAINER(cache->next, sm_cached, node);
        if (first != NULL)
            sm_cache_take(context, first);
        (void)pthread_mutex_unlock(&context->lock);
        if (first == NULL)
            return;
        first->release(first);
    }
}

void sm_cache_drop_group(symmem_group *group) {
    symmem_context *context = group->context;
    for (;;) {
        (void)pthread_mutex_lock(&context->lock);
        sm_cached *first = sm_list_empty(&group->cached)
                               ? NULL
                               : SM_CONTAINER(group->cached.next, sm_cached, of_group);
        if (first != NULL)
            sm_cache_take(context, first);
        (void)pthread_mutex_unlock(&context->lock);
        if (first == NULL)
            return;
        first->release(first);
    }
}
