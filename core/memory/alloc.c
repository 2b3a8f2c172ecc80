/* SPDX-License-Identifier: BSD-3-Clause */
/* Symmetric allocations: their life, and the public calls for them. */
#include "memory/join.h"

#include <stdlib.h>

#include "backend/heap.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "backend/registry.h"
#include "memory/block.h"

#define SIGNAL_PAD_LIMIT ((size_t)1 << 30)
#define LEAST_LIMIT_MS 1000u /* large memory may take longer to zero than signals */

/* --- life ------------------------------------------------------------------------------------- */

void sm_allocation_retain(sm_allocation *allocation) {
    /* Relaxed: the caller holds a reference or context->lock. */
    (void)atomic_fetch_add_explicit(&allocation->references, 1, memory_order_relaxed);
}

void sm_allocation_release(sm_allocation *allocation) {
    /* pairs with: the other holders' releases */
    if (atomic_fetch_sub_explicit(&allocation->references, 1, memory_order_acq_rel) != 1)
        return;
    symmem_context *context = allocation->context;
    sm_memory_release(context, &allocation->memory);
    while (!sm_list_empty(&allocation->retired)) {
        sm_block *block = SM_CONTAINER(allocation->retired.next, sm_block, node);
        sm_list_remove(&block->node);
        free(block);
    }
    free(allocation);
    sm_instance_release(context);
}

symmem_status sm_capture_check(symmem_context *context, const char *operation) {
    /* Acquire pairs with: the stream code's change of the count */
    int captures = atomic_load_explicit(&context->captures, memory_order_acquire);
    if (captures == 0)
        return SYMMEM_OK;
    return sm_context_fail(context, SYMMEM_CAPTURE, operation, "",
                           "%d streams of the context are capturing", captures);
}

/* The device may reach the zeroing late, and the caller gives no limit. */
static uint32_t limit_ms(const symmem_context *context) {
    const uint32_t default_ms = context->default_timeout_ms;
    return default_ms > LEAST_LIMIT_MS ? default_ms : LEAST_LIMIT_MS;
}

static symmem_status get_in_time(symmem_context *context, size_t bytes, int32_t device,
                                 symmem_memory *memory) {
    const uint32_t before_ms = sm_call_limit(limit_ms(context));
    symmem_status status = sm_memory_alloc(context, device, bytes, memory);
    (void)sm_call_limit(before_ms);
    return status;
}

/* Gets the backend's memory. The instance is entered. */
static symmem_status get_memory(symmem_context *context, size_t bytes, int32_t device,
                                const char *operation, symmem_memory *memory) {
    symmem_status status = get_in_time(context, bytes, device, memory);
    if (status != SYMMEM_OK)
        return sm_backend_failed(context, status, operation, "memory_alloc");
    if (memory->ptr && (uintptr_t)memory->ptr % SYMMEM_ALIGNMENT == 0)
        return SYMMEM_OK;
    sm_context_fail(context, SYMMEM_BACKEND, operation, "memory_alloc",
                    "backend '%s' gave memory at %p, which is not aligned to %d bytes",
                    context->backend->name, memory->ptr, SYMMEM_ALIGNMENT);
    sm_memory_release(context, memory);
    return SYMMEM_BACKEND;
}

/* Makes an allocation outside the table with one reference. The instance is entered and stays
 * so. */
static symmem_status make(symmem_context *context, size_t bytes, int32_t device,
                          const char *operation, sm_allocation **allocation_p) {
    sm_allocation *allocation = calloc(1, sizeof(*allocation));
    if (!allocation)
        return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, operation, "",
                               "no memory for an allocation's description");
    symmem_status status = get_memory(context, bytes, device, operation, &allocation->memory);
    if (status != SYMMEM_OK) {
        free(allocation);
        return status;
    }
    atomic_init(&allocation->references, 1);
    allocation->context = context;
    allocation->bytes = bytes;
    allocation->device = device;
    allocation->active = true;
    sm_list_init(&allocation->node);
    sm_list_init(&allocation->blocks);
    sm_list_init(&allocation->retired);
    sm_list_init(&allocation->mappings);
    *allocation_p = allocation;
    return SYMMEM_OK;
}

symmem_status sm_allocation_create(symmem_context *context, size_t bytes, int32_t device,
                                   const char *operation, sm_allocation **allocation_p) {
    sm_allocation *allocation = NULL;
    symmem_status status = sm_capture_check(context, operation);
    if (status == SYMMEM_OK)
        status = sm_context_point(context, operation, "alloc.before");
    if (status == SYMMEM_OK)
        status = sm_instance_enter(context, operation);
    if (status != SYMMEM_OK)
        return status;
    status = sm_join_alone(context, limit_ms(context));
    if (status == SYMMEM_OK)
        status = make(context, bytes, device, operation, &allocation);
    if (status != SYMMEM_OK) {
        sm_instance_release(context);
        return status;
    }
    status = sm_context_point(context, operation, "alloc.done");
    if (status == SYMMEM_OK) {
        (void)pthread_mutex_lock(&context->lock);
        status = sm_context_check(context, operation);
        if (status == SYMMEM_OK) {
            sm_allocation_retain(allocation); /* the table's */
            sm_treap_add(&context->by_address, &allocation->by_address,
                         (uintptr_t)allocation->memory.ptr);
            sm_list_add(&context->allocations, &allocation->node);
        }
        (void)pthread_mutex_unlock(&context->lock);
    }
    if (status != SYMMEM_OK) {
        sm_allocation_release(allocation); /* also leaves the instance */
        return status;
    }
    *allocation_p = allocation;
    return SYMMEM_OK;
}

static sm_block *first_block(sm_allocation *allocation) {
    sm_block *block = NULL;
    (void)pthread_mutex_lock(&allocation->context->lock);
    if (!sm_list_empty(&allocation->blocks)) {
        block = SM_CONTAINER(allocation->blocks.next, sm_block, node);
        sm_list_remove(&block->node); /* this thread's from here on */
    }
    (void)pthread_mutex_unlock(&allocation->context->lock);
    return block;
}

bool sm_allocation_drop(sm_allocation *allocation) {
    symmem_context *context = allocation->context;
    (void)pthread_mutex_lock(&context->lock);
    bool ours = !sm_list_empty(&allocation->node);
    sm_list_remove(&allocation->node);
    if (ours)
        sm_treap_remove(&context->by_address, &allocation->by_address);
    sm_treap_remove(&context->ids, &allocation->by_id);
    (void)pthread_mutex_unlock(&context->lock);
    if (!ours)
        return false;
    for (sm_block *block = first_block(allocation); block; block = first_block(allocation))
        sm_block_drop(block);
    sm_cache_drop(context, &allocation->mappings);
    sm_allocation_release(allocation);
    return true;
}

void sm_allocation_drop_all(symmem_context *context) {
    for (;;) {
        sm_allocation *allocation = NULL;
        (void)pthread_mutex_lock(&context->lock);
        if (!sm_list_empty(&context->allocations)) {
            allocation = SM_CONTAINER(context->allocations.next, sm_allocation, node);
            sm_allocation_retain(allocation);
        }
        (void)pthread_mutex_unlock(&context->lock);
        if (!allocation)
            return;
        (void)sm_allocation_drop(allocation);
        sm_allocation_release(allocation);
    }
}

sm_allocation *sm_allocation_find(symmem_context *context, const void *ptr) {
    (void)pthread_mutex_lock(&context->lock);
    sm_allocation *allocation = sm_allocation_covering(context, ptr);
    if (allocation && allocation->active)
        sm_allocation_retain(allocation);
    else
        allocation = NULL;
    (void)pthread_mutex_unlock(&context->lock);
    return allocation;
}

/* --- free ------------------------------------------------------------------------------------- */

/* Finds the allocation whose base is ptr, or reports the error. context->lock held. */
static symmem_status find_base(symmem_context *context, void *ptr, sm_allocation **allocation_p) {
    sm_allocation *allocation = sm_allocation_covering(context, ptr);
    if (!allocation || !allocation->active || !sm_block_covering(allocation, ptr))
        return sm_context_fail(context, SYMMEM_NOT_SYMMETRIC, "free", "",
                               "%p is not symmetric memory of this context", ptr);
    if (allocation->is_segment)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, "free", "",
                               "%p is a pool's block: free it with pool_free", ptr);
    if (ptr != allocation->memory.ptr) {
        sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, "free", "",
                        "%p lies inside the allocation at %p: only the base can be freed", ptr,
                        allocation->memory.ptr);
        return sm_error_sizes((uint64_t)(uintptr_t)allocation->memory.ptr,
                              (uint64_t)(uintptr_t)ptr);
    }
    sm_allocation_retain(allocation);
    *allocation_p = allocation;
    return SYMMEM_OK;
}

/* Ends the allocation for the user. False if another thread was first. */
static bool retire_allocation(symmem_context *context, sm_allocation *allocation) {
    if (allocation->alloc_id == 0)
        return sm_allocation_drop(allocation);
    (void)pthread_mutex_lock(&context->lock);
    bool ours = sm_allocation_live(allocation);
    allocation->active = false; /* kept for the next alloc, with rendezvous results */
    (void)pthread_mutex_unlock(&context->lock);
    return ours;
}

symmem_status symmem_free(symmem_context *context, void *ptr) {
    SM_PUBLIC_CALL;
    sm_allocation *allocation = NULL;
    symmem_status status = sm_context_check(context, "free");
    if (status != SYMMEM_OK || !ptr)
        return status;
    (void)pthread_mutex_lock(&context->lock);
    status = find_base(context, ptr, &allocation);
    (void)pthread_mutex_unlock(&context->lock);
    if (status != SYMMEM_OK)
        return status;
    status = sm_context_point(context, "free", "free.before");
    if (status == SYMMEM_OK && sm_backend_has(context, SYMMEM_CAP_STREAMS)) {
        status = context->backend->device_synchronize(context->instance, allocation->device,
                                                      context->default_timeout_ms);
        if (status != SYMMEM_OK)
            status = sm_backend_failed(context, status, "free", "device_synchronize");
    }
    if (status == SYMMEM_OK && !retire_allocation(context, allocation))
        status = sm_context_fail(context, SYMMEM_NOT_SYMMETRIC, "free", "",
                                 "%p was freed by another thread", ptr);
    sm_allocation_release(allocation);
    if (status == SYMMEM_OK)
        sm_context_observe(context, "free.done");
    return status;
}

/* --- queries ---------------------------------------------------------------------------------- */

static symmem_status query(symmem_context *context, const void *ptr, const char *operation,
                           const void *output, symmem_alloc_info *info) {
    sm_block *block = NULL;
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!output)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                               "the output pointer is NULL");
    status = sm_block_find(context, ptr, operation, &block);
    if (status != SYMMEM_OK)
        return status;
    const sm_allocation *allocation = block->allocation;
    *info = (symmem_alloc_info){
        .base = (char *)allocation->memory.ptr + block->offset,
        .bytes = block->bytes,
        .device = allocation->device,
        .is_pool_block = block->is_pool_block,
        .alloc_id = allocation->alloc_id,
        .ordinal = block->ordinal,
        .signal_pad_size = block->signal_pad_size,
    };
    sm_block_release(block);
    return SYMMEM_OK;
}

symmem_status symmem_alloc_query(symmem_context *context, const void *ptr,
                                 symmem_alloc_info *info_p) {
    SM_PUBLIC_CALL;
    symmem_alloc_info info = {0};
    symmem_status status = query(context, ptr, "alloc_query", info_p, &info);
    if (status == SYMMEM_OK)
        *info_p = info;
    return status;
}

symmem_status symmem_alloc_size(symmem_context *context, const void *ptr, size_t *bytes_p) {
    SM_PUBLIC_CALL;
    symmem_alloc_info info = {0};
    symmem_status status = query(context, ptr, "alloc_size", bytes_p, &info);
    if (status == SYMMEM_OK)
        *bytes_p = info.bytes;
    return status;
}

symmem_status symmem_is_symmetric(symmem_context *context, const void *ptr, bool *symmetric_p) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_context_check(context, "is_symmetric");
    if (status != SYMMEM_OK)
        return status;
    if (!symmetric_p)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, "is_symmetric", "",
                               "symmetric_p is NULL");
    (void)pthread_mutex_lock(&context->lock);
    const sm_allocation *allocation = sm_allocation_covering(context, ptr);
    *symmetric_p = allocation && allocation->active && sm_block_covering(allocation, ptr);
    (void)pthread_mutex_unlock(&context->lock);
    return SYMMEM_OK;
}

symmem_status symmem_set_signal_pad_size(symmem_context *context, size_t bytes) {
    SM_PUBLIC_CALL;
    static const char operation[] = "set_signal_pad_size";
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (bytes % 4 != 0)
        status = sm_context_fail(context, SYMMEM_MISALIGNED, operation, "",
                                 "%zu bytes is no multiple of 4", bytes);
    else if (bytes > SIGNAL_PAD_LIMIT)
        status = sm_context_fail(context, SYMMEM_OUT_OF_RANGE, operation, "",
                                 "%zu bytes is more than %zu", bytes, SIGNAL_PAD_LIMIT);
    if (status != SYMMEM_OK) {
        (void)sm_error_sizes(bytes % 4 != 0 ? 4 : SIGNAL_PAD_LIMIT, bytes);
        return status;
    }
    (void)pthread_mutex_lock(&context->lock);
    context->signal_pad_size = bytes ? bytes : SYMMEM_DEFAULT_SIGNAL_PAD_SIZE;
    (void)pthread_mutex_unlock(&context->lock);
    return SYMMEM_OK;
}

symmem_status symmem_get_signal_pad_size(symmem_context *context, size_t *bytes_p) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_context_check(context, "get_signal_pad_size");
    if (status != SYMMEM_OK)
        return status;
    if (!bytes_p)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, "get_signal_pad_size", "",
                               "bytes_p is NULL");
    (void)pthread_mutex_lock(&context->lock);
    *bytes_p = context->signal_pad_size;
    (void)pthread_mutex_unlock(&context->lock);
    return SYMMEM_OK;
}
