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
/* Answers CAPTURE if a stream of the context captures. */
symmem_status sm_capture_check(symmem_context *context, const char *operation);
/* Returns the live allocation that covers ptr, retained, or NULL. Makes no record. */
sm_allocation *sm_allocation_find(symmem_context *context, const void *ptr);
void sm_allocation_drop_all(symmem_context *context); /* by finalize */

#endif
