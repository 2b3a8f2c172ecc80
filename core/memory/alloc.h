/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocations, their blocks, and the caches of what rendezvous have made. */
#ifndef SYMMEM_CORE_ALLOC_H
#define SYMMEM_CORE_ALLOC_H

#include "backend/context.h"

typedef struct sm_allocation {
    sm_node node; /* context->allocations while in the table */
    sm_treap_node by_address, by_id;
    atomic_int references;
    symmem_context *context; /* an instance user */
    symmem_memory memory;
    size_t bytes;
    int32_t device;
    uint64_t alloc_id, ordinal;
    bool active;        /* persistent: handed out; others: always true in the table */
    bool is_segment;    /* of a pool: users see its blocks only */
    sm_node blocks;     /* sm_block; an ordinary allocation has exactly one */
    sm_treap by_offset; /* the same */
    sm_node retired;    /* dropped blocks that a sm_block_find still pins */
    sm_node mappings;   /* sm_mapping cache; nothing is added once sm_allocation_live is false */
} sm_allocation;

/* Kept for the next rendezvous of a group: peers' views in their allocation, a link in its block.
 * The first member of either. */
typedef struct sm_cached {
    sm_node node;           /* of the cache while it is in there */
    sm_node of_group;       /* of all that the group has cached */
    sm_node of_context;     /* context->all_cached */
    sm_index_node by_group; /* context->cached */
    const sm_node *cache;
    uint64_t group_uid;
    bool is_link;
    void (*release)(struct sm_cached *cached); /* the cache's reference */
} sm_cached;

typedef struct sm_block {
    sm_node node;              /* allocation->blocks while live */
    sm_treap_node by_offset;   /* of its allocation's `by_offset` */
    sm_allocation *allocation; /* the block lives inside it: no count */
    size_t offset, bytes;
    size_t signal_pad_size;
    uint64_t ordinal;
    symmem_group *default_group; /* counted, or NULL */
    bool is_pool_block;
    void *range;   /* of the pool that it is from */
    bool retired;  /* dropped, but still pinned */
    int pins;      /* under context->lock: sm_block_find minus sm_block_release */
    sm_node links; /* sm_link cache; nothing is added once sm_block_live is false */
} sm_block;

void sm_allocation_retain(sm_allocation *allocation);
void sm_allocation_release(sm_allocation *allocation);
/* Makes an allocation with no block and puts it into the table (pool segments, alloc). The caller
 * gets a reference beside the table's. CAPTURE while capturing. */
symmem_status sm_allocation_create(symmem_context *context, size_t bytes, int32_t device,
                                   const char *operation, sm_allocation **allocation_p);
/* Takes it out of the table with all blocks and caches, drops the table's reference. False (and
 * nothing done) if another thread was first. context->lock NOT held. */
bool sm_allocation_drop(sm_allocation *allocation);
/* context->lock held: still in the table, still handed out. */
bool sm_allocation_live(const sm_allocation *allocation);
bool sm_block_live(const sm_block *block);
/* context->lock held: the allocation in the table that covers ptr, or NULL; its live block. */
sm_allocation *sm_allocation_covering(symmem_context *context, const void *ptr);
sm_block *sm_block_covering(const sm_allocation *allocation, const void *ptr);
/* CAPTURE if a stream of the context captures. */
symmem_status sm_capture_check(symmem_context *context, const char *operation);
/* context->lock held. What a group has in the cache, or NULL. */
sm_cached *sm_cache_find(const symmem_context *context, const sm_node *cache, uint64_t group_uid);
/* context->lock held. The group is live, and has nothing there. */
void sm_cache_add(symmem_group *group, sm_node *cache, sm_cached *cached);
/* context->lock held. Out of its cache, for the caller to release. */
void sm_cache_take(symmem_context *context, sm_cached *cached);
/* Releases all that is in the cache. context->lock NOT held. */
void sm_cache_drop(symmem_context *context, sm_node *cache);
/* Releases the cached links and mappings that belong to a group (group destroy). */
void sm_cache_drop_group(symmem_group *group);
/* context->lock held: the persistent allocation of that id, active or not, or NULL. */
sm_allocation *sm_persistent_find(symmem_context *context, uint64_t alloc_id);
/* context->lock held. A block of the allocation; sm_block_drop also drops its cached links. */
symmem_status sm_block_create(sm_allocation *allocation, size_t offset, size_t bytes,
                              symmem_group *default_group, sm_block **block_p);
/* context->lock held: it is found no more, and sm_block_drop is to follow. */
void sm_block_hide(sm_block *block);
void sm_block_drop(sm_block *block); /* context->lock NOT held */
/* The live block that covers ptr, pinned, its allocation retained; NOT_SYMMETRIC with a record
 * otherwise. The block stays valid memory until sm_block_release, live or not: check sm_block_live
 * under context->lock before caching in it. */
symmem_status sm_block_find(symmem_context *context, const void *ptr, const char *operation,
                            sm_block **block_p);
/* Undoes sm_block_find: the pin and the allocation's reference. (Only releasing the allocation is
 * safe too; the block's few bytes then stay until the allocation ends.) context->lock NOT held. */
void sm_block_release(sm_block *block);
/* The live allocation that covers ptr, retained, or NULL. No record. */
sm_allocation *sm_allocation_find(symmem_context *context, const void *ptr);
void sm_pool_destroy_all(symmem_context *context);    /* by finalize */
void sm_pool_free_shells(symmem_context *context);    /* with the context's memory */
void sm_allocation_drop_all(symmem_context *context); /* by finalize */

#endif
