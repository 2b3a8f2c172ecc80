/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pools: blocks in symmetric segments.
 *
 * A segment is cut into ranges in order of their offsets. Each range is free or in use, and two
 * free ranges never touch. A request takes the smallest free range that is large enough. Among
 * equal ones it takes the range that became free last, so equal calls give equal offsets on all
 * ranks. Free ranges are sorted by size, so the cost of a block depends neither on the number of
 * blocks in use nor on that of gaps. context->lock guards all of this.
 *
 * The shell lives until symmem_pool_destroy or, if the context was finalized first, as long as the
 * context's own memory. Destroying a pool that another thread has bound is an error of that caller.
 */
#include "memory/mapping.h"
#include "memory/pool.h"
#include "backend/device.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "backend/registry.h"
#include "memory/block.h"

#include <stdlib.h>

#define GRAIN_BYTES ((size_t)512)

typedef struct range {
    sm_node node;
    size_t offset, bytes; /* rounded */
    bool used;
    sm_treap_node gap; /* in pool->gaps while free */
    struct segment *segment;
    sm_block *block; /* NULL while in use: being freed */
} range;

typedef struct segment {
    sm_node node;
    symmem_pool *pool;
    sm_allocation *allocation; /* counted; NULL after finalize */
    sm_node ranges;
} segment;

struct symmem_pool {
    sm_node node; /* context->pools */
    symmem_context *context;
    int32_t device;
    size_t segment_bytes; /* rounded */
    sm_node segments;
    sm_treap gaps; /* free ranges of all segments, by size */
    symmem_pool_stats stats;
};

static _Thread_local symmem_pool *bound_pool;

/* --- ranges ------------------------------------------------------------------------- */

static void free_segment(segment *old) {
    while (!sm_list_empty(&old->ranges)) {
        range *first = SM_CONTAINER(old->ranges.next, range, node);
        sm_list_remove(&first->node);
        free(first);
    }
    free(old);
}

/* Makes a segment of one free range. */
static segment *new_segment(symmem_pool *pool, sm_allocation *allocation) {
    segment *made = calloc(1, sizeof(*made));
    range *whole = calloc(1, sizeof(*whole));
    if (!made || !whole) {
        free(whole);
        free(made);
        return NULL;
    }
    made->pool = pool;
    made->allocation = allocation;
    sm_list_init(&made->ranges);
    whole->segment = made;
    whole->bytes = allocation->bytes;
    sm_list_add(&made->ranges, &whole->node);
    sm_treap_add(&pool->gaps, &whole->gap, whole->bytes);
    return made;
}

static range *best_fit(const symmem_pool *pool, size_t bytes) {
    sm_treap_node *node = sm_treap_at_or_above(&pool->gaps, bytes);
    return node ? SM_CONTAINER(node, range, gap) : NULL;
}

/* Finds the range in use whose block covers ptr. */
static range *range_of(const symmem_pool *pool, const void *ptr) {
    const sm_allocation *allocation = sm_allocation_covering(pool->context, ptr);
    const sm_block *block = allocation ? sm_block_covering(allocation, ptr) : NULL;
    range *found = block ? block->range : NULL;
    return found && found->segment->pool == pool ? found : NULL;
}

/* Cuts `bytes` off the front of a free range, which then is no gap any more. False without
 * memory. */
static bool cut(range *whole, size_t bytes) {
    sm_treap *gaps = &whole->segment->pool->gaps;
    range *rest = whole->bytes == bytes ? NULL : calloc(1, sizeof(*rest));
    if (whole->bytes != bytes && !rest)
        return false;
    sm_treap_remove(gaps, &whole->gap);
    if (!rest)
        return true;
    rest->segment = whole->segment;
    rest->offset = whole->offset + bytes;
    rest->bytes = whole->bytes - bytes;
    whole->bytes = bytes;
    sm_list_add(whole->node.next, &rest->node); /* before the one that follows */
    sm_treap_add(gaps, &rest->gap, rest->bytes);
    return true;
}

/* Joins a range with the one after it, if that is free. */
static void join_next(range *left) {
    sm_node *next = left->node.next;
    if (next == &left->segment->ranges)
        return;
    range *right = SM_CONTAINER(next, range, node);
    if (right->used)
        return;
    left->bytes += right->bytes;
    sm_list_remove(&right->node);
    sm_treap_remove(&left->segment->pool->gaps, &right->gap);
    free(right);
}

static void give_range(range *freed) {
    sm_treap *gaps = &freed->segment->pool->gaps;
    freed->used = false;
    join_next(freed);
    if (freed->node.previous != &freed->segment->ranges) {
        range *left = SM_CONTAINER(freed->node.previous, range, node);
        if (!left->used) {
            sm_treap_remove(gaps, &left->gap);
            join_next(left);
            freed = left;
        }
    }
    sm_treap_add(gaps, &freed->gap, freed->bytes);
}

/* --- blocks ------------------------------------------------------------------------- */

/* Takes a block. *ptr_p stays NULL if no range is large enough. context->lock held. */
static symmem_status take_block(symmem_pool *pool, size_t bytes, size_t rounded, void **ptr_p) {
    symmem_status status = sm_context_check(pool->context, "pool_alloc");
    if (status != SYMMEM_OK)
        return status;
    range *taken = best_fit(pool, rounded);
    if (!taken)
        return SYMMEM_OK;
    if (!cut(taken, rounded))
        return sm_context_fail(pool->context, SYMMEM_OUT_OF_MEMORY, "pool_alloc", "",
                               "no memory for a block's description");
    sm_allocation *allocation = taken->segment->allocation;
    status = sm_block_create(allocation, taken->offset, bytes, NULL, &taken->block);
    if (status != SYMMEM_OK) {
        give_range(taken);
        return status;
    }
    taken->used = true;
    taken->block->range = taken;
    pool->stats.block_count++;
    pool->stats.used_bytes += rounded;
    *ptr_p = (char *)allocation->memory.ptr + taken->offset;
    return SYMMEM_OK;
}

/* context->lock held. */
static symmem_status add_segment(symmem_pool *pool, sm_allocation *allocation) {
    symmem_status status = sm_context_check(pool->context, "pool_alloc"); /* finalized meanwhile? */
    if (status != SYMMEM_OK)
        return status;
    segment *made = new_segment(pool, allocation);
    if (!made)
        return sm_context_fail(pool->context, SYMMEM_OUT_OF_MEMORY, "pool_alloc", "",
                               "no memory for a segment's description");
    allocation->is_segment = true;
    sm_list_add(&pool->segments, &made->node);
    pool->stats.segment_count++;
    pool->stats.segment_bytes += allocation->bytes;
    return SYMMEM_OK;
}

/* Gets a segment and takes the block from it under one lock, before another thread can fill it. */
static symmem_status grow(symmem_pool *pool, size_t bytes, size_t rounded, void **ptr_p) {
    symmem_context *context = pool->context;
    sm_allocation *allocation = NULL;
    size_t wanted = rounded > pool->segment_bytes ? rounded : pool->segment_bytes;
    symmem_status status =
        sm_allocation_create(context, wanted, pool->device, "pool_alloc", &allocation);
    if (status != SYMMEM_OK)
        return status;
    (void)pthread_mutex_lock(&context->lock);
    status = add_segment(pool, allocation);
    bool added = status == SYMMEM_OK;
    if (added)
        status = take_block(pool, bytes, rounded, ptr_p);
    (void)pthread_mutex_unlock(&context->lock);
    if (!added) {
        (void)sm_allocation_drop(allocation);
        sm_allocation_release(allocation);
    }
    return status;
}

static symmem_status check_pool(const symmem_pool *pool, const char *operation) {
    if (!pool)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "pool is NULL");
    return sm_context_check(pool->context, operation);
}

symmem_status symmem_pool_alloc(symmem_pool *pool, size_t bytes, void **ptr_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "pool_alloc";
    size_t rounded = 0;
    void *ptr = NULL;
    symmem_status status = check_pool(pool, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!ptr_p || bytes == 0)
        return sm_context_fail(pool->context, SYMMEM_INVALID_ARGUMENT, operation, "",
                               ptr_p ? "the size is 0" : "ptr_p is NULL");
    if (!sm_round_up(bytes, GRAIN_BYTES, &rounded)) {
        sm_context_fail(pool->context, SYMMEM_OVERFLOW, operation, "",
                        "%zu bytes overflow when rounded up to %zu", bytes, GRAIN_BYTES);
        return sm_error_sizes(0, bytes);
    }
    status = sm_context_point(pool->context, operation, "pool.alloc");
    if (status != SYMMEM_OK)
        return status;
    (void)pthread_mutex_lock(&pool->context->lock);
    status = take_block(pool, bytes, rounded, &ptr);
    (void)pthread_mutex_unlock(&pool->context->lock);
    if (status == SYMMEM_OK && !ptr)
        status = grow(pool, bytes, rounded, &ptr);
    if (status == SYMMEM_OK)
        *ptr_p = ptr;
    return status;
}

/* Finds the range whose block begins at ptr and takes the block out of every list. context->lock
 * held. */
static symmem_status detach(symmem_pool *pool, void *ptr, range **range_p, sm_block **block_p) {
    symmem_status status = sm_context_check(pool->context, "pool_free");
    if (status != SYMMEM_OK)
        return status;
    range *found = range_of(pool, ptr);
    if (!found)
        return sm_context_fail(pool->context, SYMMEM_NOT_SYMMETRIC, "pool_free", "",
                               "%p is no block of this pool", ptr);
    char *base = (char *)found->segment->allocation->memory.ptr + found->offset;
    if (base != ptr)
        return sm_context_fail(pool->context, SYMMEM_INVALID_ARGUMENT, "pool_free", "",
                               "%p lies inside the block at %p", ptr, (void *)base);
    *range_p = found;
    *block_p = found->block;
    found->block = NULL;
    sm_block_hide(*block_p);
    sm_allocation_retain(found->segment->allocation);
    return SYMMEM_OK;
}

symmem_status symmem_pool_free(symmem_pool *pool, void *ptr) {
    SM_PUBLIC_CALL;
    range *freed = NULL;
    sm_block *block = NULL;
    symmem_status status = check_pool(pool, "pool_free");
    if (status != SYMMEM_OK || !ptr)
        return status;
    symmem_context *context = pool->context;
    status = sm_context_point(context, "pool_free", "pool.free");
    if (status != SYMMEM_OK)
        return status;
    (void)pthread_mutex_lock(&context->lock);
    status = detach(pool, ptr, &freed, &block);
    (void)pthread_mutex_unlock(&context->lock);
    if (status != SYMMEM_OK)
        return status;
    sm_allocation *allocation = block->allocation;
    sm_context_retain(context); /* a concurrent finalize and free leave the shell to this call */
    sm_block_drop(block);       /* before the range can be used again */
    (void)pthread_mutex_lock(&context->lock);
    pool->stats.block_count--;
    pool->stats.used_bytes -= freed->bytes;
    give_range(freed);
    (void)pthread_mutex_unlock(&context->lock);
    sm_allocation_release(allocation);
    sm_context_release(context);
    return SYMMEM_OK;
}

symmem_status symmem_pool_get_stats(symmem_pool *pool, symmem_pool_stats *stats_p) {
    SM_PUBLIC_CALL;
    symmem_status status = check_pool(pool, "pool_get_stats");
    if (status != SYMMEM_OK)
        return status;
    if (!stats_p)
        return sm_context_fail(pool->context, SYMMEM_INVALID_ARGUMENT, "pool_get_stats", "",
                               "stats_p is NULL");
    (void)pthread_mutex_lock(&pool->context->lock);
    *stats_p = pool->stats;
    (void)pthread_mutex_unlock(&pool->context->lock);
    return SYMMEM_OK;
}

/* --- begin and end ------------------------------------------------------------------ */

symmem_status symmem_pool_create(symmem_context *context, int32_t device, size_t segment_bytes,
                                 symmem_pool **pool_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "pool_create";
    size_t rounded = 0;
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!pool_p || segment_bytes == 0)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                               pool_p ? "segment_bytes is 0" : "pool_p is NULL");
    if (!sm_round_up(segment_bytes, SYMMEM_ALIGNMENT, &rounded))
        return sm_context_fail(context, SYMMEM_OVERFLOW, operation, "",
                               "%zu bytes overflow when rounded up to %d", segment_bytes,
                               SYMMEM_ALIGNMENT);
    status = sm_device_resolve(context, device, operation, &device);
    if (status != SYMMEM_OK)
        return status;
    if (!sm_backend_has(context, SYMMEM_CAP_POOL))
        return sm_context_fail(context, SYMMEM_UNSUPPORTED, operation, "",
                               "backend '%s' has no pools", context->backend->name);
    status = sm_context_point(context, operation, "pool.create");
    if (status != SYMMEM_OK)
        return status;
    symmem_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, operation, "",
                               "no memory for a pool's description");
    pool->context = context;
    pool->device = device;
    pool->segment_bytes = rounded;
    sm_list_init(&pool->segments);
    (void)pthread_mutex_lock(&context->lock);
    status = sm_context_check(context, operation);
    if (status == SYMMEM_OK)
        sm_list_add(&context->pools, &pool->node);
    (void)pthread_mutex_unlock(&context->lock);
    if (status != SYMMEM_OK) {
        free(pool);
        return status;
    }
    *pool_p = pool;
    return SYMMEM_OK;
}

/* Takes the next segment's allocation that the pool still holds. The pool's reference becomes the
 * caller's. */
static sm_allocation *take_allocation(symmem_pool *pool) {
    sm_allocation *allocation = NULL;
    (void)pthread_mutex_lock(&pool->context->lock);
    if (!sm_list_empty(&pool->segments)) {
        segment *first = SM_CONTAINER(pool->segments.next, segment, node);
        allocation = first->allocation;
        first->allocation = NULL;
        sm_list_remove(&first->node); /* behind the segments that still have one */
        sm_list_add(&pool->segments, &first->node);
    }
    (void)pthread_mutex_unlock(&pool->context->lock);
    return allocation;
}

static void drop_segments(symmem_pool *pool) {
    if (bound_pool == pool)
        bound_pool = NULL;
    for (sm_allocation *allocation = take_allocation(pool); allocation;
         allocation = take_allocation(pool)) {
        (void)sm_allocation_drop(allocation);
        sm_allocation_release(allocation);
    }
}

static void free_pool_shell(symmem_pool *pool) {
    while (!sm_list_empty(&pool->segments)) {
        segment *first = SM_CONTAINER(pool->segments.next, segment, node);
        sm_list_remove(&first->node);
        free_segment(first);
    }
    free(pool);
}

symmem_status symmem_pool_destroy(symmem_pool *pool) {
    SM_PUBLIC_CALL;
    if (!pool)
        return SYMMEM_OK;
    symmem_status status = check_pool(pool, "pool_destroy");
    if (status != SYMMEM_OK)
        return status;
    symmem_context *context = pool->context;
    status = sm_context_point(context, "pool_destroy", "pool.destroy");
    if (status != SYMMEM_OK)
        return status;
    (void)pthread_mutex_lock(&context->lock);
    status = sm_context_check(context, "pool_destroy");
    size_t blocks = pool->stats.block_count;
    if (status == SYMMEM_OK && blocks == 0)
        sm_list_remove(&pool->node);
    (void)pthread_mutex_unlock(&context->lock);
    if (status != SYMMEM_OK)
        return status;
    if (blocks != 0) {
        sm_context_fail(context, SYMMEM_BUSY, "pool_destroy", "", "%zu blocks are handed out",
                        blocks);
        return sm_error_sizes(0, blocks);
    }
    drop_segments(pool);
    free_pool_shell(pool);
    return SYMMEM_OK;
}

void sm_pool_destroy_all(symmem_context *context) {
    /* Nothing changes this list after finalize: no lock for the walk. */
    for (sm_node *node = context->pools.next; node != &context->pools; node = node->next)
        drop_segments(SM_CONTAINER(node, symmem_pool, node));
}

void sm_pool_free_shells(symmem_context *context) {
    while (!sm_list_empty(&context->pools)) {
        symmem_pool *pool = SM_CONTAINER(context->pools.next, symmem_pool, node);
        sm_list_remove(&pool->node);
        free_pool_shell(pool);
    }
}

/* --- the two functions for pluggable allocators ------------------------------------- */

void symmem_pool_bind(symmem_pool *pool) {
    SM_PUBLIC_CALL;
    bound_pool = pool;
}

static symmem_status check_bound(const char *operation, int device) {
    if (!bound_pool)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "",
                       "this thread has no pool: symmem_pool_bind");
    if (device == bound_pool->device)
        return SYMMEM_OK;
    sm_context_fail(bound_pool->context, SYMMEM_INVALID_ARGUMENT, operation, "",
                    "the bound pool is on device %d, not %d", (int)bound_pool->device, device);
    return sm_error_sizes((uint64_t)bound_pool->device, (uint64_t)device);
}

void *symmem_pool_malloc(size_t size, int device, void *stream) {
    SM_PUBLIC_CALL;
    (void)stream;
    void *ptr = NULL;
    if (check_bound("pool_malloc", device) != SYMMEM_OK)
        return NULL;
    if (symmem_pool_alloc(bound_pool, size, &ptr) != SYMMEM_OK)
        return NULL;
    return ptr;
}

void symmem_pool_mfree(void *ptr, size_t size, int device, void *stream) {
    SM_PUBLIC_CALL;
    (void)size;
    (void)stream;
    if (!ptr || check_bound("pool_mfree", device) != SYMMEM_OK)
        return;
    symmem_status status = symmem_pool_free(bound_pool, ptr);
    (void)status; /* the record tells */
}
