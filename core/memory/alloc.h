/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocations, their blocks, and the caches of what rendezvous calls have made. */
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
    bool active;        /* persistent: in use; others: always true in the table */
    bool is_segment;    /* of a pool: users see only its blocks */
    sm_node blocks;     /* sm_block; an ordinary allocation has exactly one */
    sm_treap by_offset; /* the same blocks */
    sm_node retired;    /* dropped blocks that sm_block_find still pins */
    sm_node mappings;   /* sm_mapping cache; nothing is added once sm_allocation_live is false */
} sm_allocation;

/* A cache entry for the next rendezvous of a group: a mapping in its allocation, or a link in its
 * block. The first member of either. */
typedef struct sm_cached {
    sm_node node;           /* in the cache */
    sm_node of_group;       /* in the group's list of cache entries */
    sm_node of_context;     /* context->all_cached */
    sm_index_node by_group; /* context->cached */
    const sm_node *cache;
    uint64_t group_uid;
    bool is_link;
    void (*release)(struct sm_cached *cached); /* drops the cache's reference */
} sm_cached;

typedef struct sm_block {
    sm_node node;              /* allocation->blocks while live */
    sm_treap_node by_offset;   /* in its allocation's `by_offset` */
    sm_allocation *allocation; /* the block lives inside it: no count */
    size_t offset, bytes;
    size_t signal_pad_size;
    uint64_t ordinal;
    symmem_group *default_group; /* counted, or NULL */
    bool is_pool_block;
    void *range;   /* the range of its pool */
    bool retired;  /* dropped, but still pinned */
    int pins;      /* under context->lock: sm_block_find minus sm_block_release */
    sm_node links; /* sm_link cache; nothing is added once sm_block_live is false */
} sm_block;

void sm_allocation_retain(sm_allocation *allocation);
void sm_allocation_release(sm_allocation *allocation);
/* Makes an allocation without blocks and puts it into the table (for pool segments and alloc). The
 * caller gets a reference in addition to the table's. Answers CAPTURE during a capture. */
symmem_status sm_allocation_create(symmem_context *context, size_t bytes, int32_t device,
                                   const char *operation, sm_allocation **allocation_p);
/* Takes the allocation with all blocks and caches out of the table and drops the table's reference.
 * False, without a change, if another thread was first. context->lock NOT held. */
bool sm_allocation_drop(sm_allocation *allocation);
/* Whether it is in the table and in use. context->lock held. */
bool sm_allocation_live(const sm_allocation *allocation);
bool sm_block_live(const sm_block *block);
/* Returns the allocation in the table that covers ptr, or NULL; the second its live block.
 * context->lock held. */
sm_allocation *sm_allocation_covering(symmem_context *context, const void *ptr);
sm_block *sm_block_covering(const sm_allocation *allocation, const void *ptr);
/* Answers CAPTURE if a stream of the context captures. */
symmem_status sm_capture_check(symmem_context *context, const char *operation);
/* Returns the group's entry in the cache, or NULL. context->lock held. */
sm_cached *sm_cache_find(const symmem_context *context, const sm_node *cache, uint64_t group_uid);
/* Adds an entry for a live group that has none in the cache. context->lock held. */
void sm_cache_add(symmem_group *group, sm_node *cache, sm_cached *cached);
/* Takes an entry out of its cache, for the caller to release. context->lock held. */
void sm_cache_take(symmem_context *context, sm_cached *cached);
/* Releases all entries of the cache. context->lock NOT held. */
void sm_cache_drop(symmem_context *context, sm_node *cache);
/* Releases the cached links and mappings of a group that is destroyed. */
void sm_cache_drop_group(symmem_group *group);
/* Returns the persistent allocation of that id, active or not, or NULL. context->lock held. */
sm_allocation *sm_persistent_find(symmem_context *context, uint64_t alloc_id);
/* Makes a block of the allocation. context->lock held. */
symmem_status sm_block_create(sm_allocation *allocation, size_t offset, size_t bytes,
                              symmem_group *default_group, sm_block **block_p);
/* Hides the block from searches; sm_block_drop must follow. context->lock held. */
void sm_block_hide(sm_block *block);
void sm_block_drop(sm_block *block); /* drops its cached links, too; context->lock NOT held */
/* Finds the live block that covers ptr, pins it and retains its allocation. Answers NOT_SYMMETRIC
 * with a record if there is none. The block stays valid memory until sm_block_release, live or not:
 * check sm_block_live under context->lock before caching in it. */
symmem_status sm_block_find(symmem_context *context, const void *ptr, const char *operation,
                            sm_block **block_p);
/* Undoes sm_block_find: drops the pin and the allocation's reference. context->lock NOT held.
 * Releasing only the allocation is safe, too; the block's few bytes then stay until the allocation
 * ends. */
void sm_block_release(sm_block *block);
/* Returns the live allocation that covers ptr, retained, or NULL. Makes no record. */
sm_allocation *sm_allocation_find(symmem_context *context, const void *ptr);
void sm_pool_destroy_all(symmem_context *context);    /* by finalize */
void sm_pool_free_shells(symmem_context *context);    /* with the context's memory */
void sm_allocation_drop_all(symmem_context *context); /* by finalize */

#endif
