/* SPDX-License-Identifier: BSD-3-Clause */
/* symmem_alloc, ordinary and persistent. */
#include "memory/mapping.h"
#include "memory/persistent.h"
#include "backend/device.h"
#include "backend/query.h"
#include "memory/block.h"

/* A request with checked arguments. */
typedef struct request {
    size_t bytes;
    int32_t device;
    uint64_t alloc_id;
    symmem_group *default_group; /* retained, or NULL */
} request;

static const char operation[] = "alloc";

sm_allocation *sm_persistent_find(symmem_context *context, uint64_t alloc_id) {
    sm_treap_node *node = sm_treap_at_or_below(&context->ids, alloc_id);
    sm_allocation *found = node ? SM_CONTAINER(node, sm_allocation, by_id) : NULL;
    return found && found->alloc_id == alloc_id ? found : NULL;
}

static symmem_status mismatch(symmem_context *context, const request *wanted,
                              const sm_allocation *found) {
    bool size = wanted->bytes != found->bytes;
    sm_context_fail(context, SYMMEM_MISMATCH, operation, "persistent",
                    "alloc_id %llu has %zu bytes on device %d; asked for: %zu on device %d",
                    (unsigned long long)wanted->alloc_id, found->bytes, (int)found->device,
                    wanted->bytes, (int)wanted->device);
    return sm_error_sizes(size ? found->bytes : (uint64_t)found->device,
                          size ? wanted->bytes : (uint64_t)wanted->device);
}

/* Looks for an allocation of that id, and sets *found_p, then *ptr_p or the error. Exchanges the
 * default group with the request's; the caller releases the old one. context->lock held. */
static symmem_status reactivate(symmem_context *context, request *wanted, bool *found_p,
                                void **ptr_p) {
    sm_allocation *found = sm_persistent_find(context, wanted->alloc_id);
    *found_p = found != NULL;
    if (!found)
        return SYMMEM_OK;
    if (found->active)
        return sm_context_fail(context, SYMMEM_BUSY, operation, "persistent",
                               "alloc_id %llu is active at %p",
                               (unsigned long long)wanted->alloc_id, found->memory.ptr);
    if (found->bytes != wanted->bytes || found->device != wanted->device)
        return mismatch(context, wanted, found);
    sm_block *block = SM_CONTAINER(found->blocks.next, sm_block, node);
    symmem_group *old = block->default_group;
    block->default_group = wanted->default_group;
    wanted->default_group = old;
    found->active = true;
    *ptr_p = found->memory.ptr;
    return SYMMEM_OK;
}

/* Gives a new allocation its block and id. context->lock held. */
static symmem_status furnish(symmem_context *context, const request *wanted,
                             sm_allocation *allocation) {
    sm_block *block = NULL;
    symmem_status status = sm_context_check(context, operation); /* finalized meanwhile? */
    if (status != SYMMEM_OK)
        return status;
    /* The id is looked up again: another thread may have been faster. */
    if (wanted->alloc_id != 0 && sm_persistent_find(context, wanted->alloc_id))
        return sm_context_fail(context, SYMMEM_BUSY, operation, "persistent",
                               "alloc_id %llu was allocated by another thread just now",
                               (unsigned long long)wanted->alloc_id);
    if (wanted->alloc_id != 0)
        sm_treap_add(&context->ids, &allocation->by_id, wanted->alloc_id);
    allocation->alloc_id = wanted->alloc_id;
    return sm_block_create(allocation, 0, allocation->bytes, wanted->default_group, &block);
}

static symmem_status allocate(symmem_context *context, const request *wanted, void **ptr_p) {
    sm_allocation *allocation = NULL;
    symmem_status status =
        sm_allocation_create(context, wanted->bytes, wanted->device, operation, &allocation);
    if (status != SYMMEM_OK)
        return status;
    void *ptr = allocation->memory.ptr;
    (void)pthread_mutex_lock(&context->lock);
    status = furnish(context, wanted, allocation);
    (void)pthread_mutex_unlock(&context->lock);
    if (status != SYMMEM_OK)
        (void)sm_allocation_drop(allocation);
    sm_allocation_release(allocation);
    if (status == SYMMEM_OK)
        *ptr_p = ptr;
    return status;
}

/* Checks all that concerns the arguments alone, in the header's order. */
static symmem_status check_persistent(symmem_context *context, size_t bytes, int32_t device,
                                      const symmem_alloc_options *options, const void *output,
                                      request *wanted) {
    size_t rounded = 0;
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!output)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "", "ptr_p is NULL");
    if (options && options->size != sizeof(*options)) {
        sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                        "options->size is %zu, not %zu", options->size, sizeof(*options));
        return sm_error_sizes(sizeof(*options), options->size);
    }
    if (bytes == 0)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "", "the size is 0");
    if (!sm_round_up(bytes, SYMMEM_ALIGNMENT, &rounded)) {
        sm_context_fail(context, SYMMEM_OVERFLOW, operation, "",
                        "%zu bytes overflow when rounded up to %d", bytes, SYMMEM_ALIGNMENT);
        return sm_error_sizes(0, bytes);
    }
    *wanted = (request){.bytes = bytes};
    status = sm_device_resolve(context, device, operation, &wanted->device);
    if (status == SYMMEM_OK)
        status = sm_capture_check(context, operation);
    if (status != SYMMEM_OK || !options)
        return status;
    wanted->alloc_id = options->alloc_id;
    if (!options->default_group)
        return SYMMEM_OK;
    status = sm_group_acquire(options->default_group, operation);
    if (status != SYMMEM_OK)
        return status;
    wanted->default_group = options->default_group;
    if (options->default_group->context == context)
        return SYMMEM_OK;
    sm_group_release(wanted->default_group);
    return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                           "the default group belongs to another context");
}

symmem_status symmem_alloc(symmem_context *context, size_t bytes, int32_t device,
                           const symmem_alloc_options *options, void **ptr_p) {
    SM_PUBLIC_CALL;
    request wanted = {0};
    bool found = false;
    symmem_status status = check_persistent(context, bytes, device, options, ptr_p, &wanted);
    if (status != SYMMEM_OK)
        return status;
    if (wanted.alloc_id != 0)
        status = sm_context_point(context, operation, "alloc.persistent");
    if (status == SYMMEM_OK && wanted.alloc_id != 0) {
        (void)pthread_mutex_lock(&context->lock);
        status = sm_context_check(context, operation);
        if (status == SYMMEM_OK)
            status = reactivate(context, &wanted, &found, ptr_p);
        (void)pthread_mutex_unlock(&context->lock);
    }
    if (status == SYMMEM_OK && !found)
        status = allocate(context, &wanted, ptr_p);
    if (wanted.default_group)
        sm_group_release(wanted.default_group);
    return status;
}
