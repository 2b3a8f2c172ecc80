/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks, pointer lookup, and the caches of what rendezvous calls have made. */
#ifndef SYMMEM_CORE_MEMORY_BLOCK_H
#define SYMMEM_CORE_MEMORY_BLOCK_H

#include "memory/alloc.h"

/* Whether it is in the table and in use. context->lock held. */
bool sm_allocation_live(const sm_allocation *allocation);
bool sm_block_live(const sm_block *block);
/* Returns the allocation in the table that covers ptr, or NULL; the second its live block.
 * context->lock held. */
sm_allocation *sm_allocation_covering(symmem_context *context, const void *ptr);
sm_block *sm_block_covering(const sm_allocation *allocation, const void *ptr);
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

#endif
