/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles: references, and queries that their link answers. */
#include <stdlib.h>

#include "rendezvous/rendezvous.h"
#include "rendezvous/handle.h"
#include "backend/query.h"
#include "rendezvous/link_poison.h"

symmem_status sm_handle_create(sm_link *link, size_t offset, symmem_handle **handle_p) {
    symmem_handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, SM_RENDEZVOUS, "commit", "no memory for a handle");
    atomic_init(&handle->references, 1);
    handle->link = link;
    handle->offset = offset;
    *handle_p = handle;
    return SYMMEM_OK;
}

symmem_status sm_handle_check(const symmem_handle *handle, const char *operation) {
    if (handle == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "handle is NULL");
    const symmem_group *group = handle->link->group;
    symmem_context *context = handle->link->context;
    if (__builtin_expect(sm_fork_is_parents(context->made_in), false)) {
        sm_call_is_of(group->rank, group->world_size, group->name);
        return sm_fork_refuse(operation);
    }
    sm_clock_use(context->clock);
    sm_call_is_of_in(group->rank, group->world_size, group->name, context->number,
                     context->failure_ops, context);
    /* Acquire pairs with: release in symmem_finalize */
    return atomic_load_explicit(&context->finalized, memory_order_acquire)
               ? sm_context_check(context, operation) /* which says it */
               : SYMMEM_OK;
}

static symmem_status check_output(const symmem_handle *handle, const void *output_p,
                                  const char *operation) {
    symmem_status status = sm_handle_check(handle, operation);
    if (status == SYMMEM_OK && output_p == NULL)
        status = sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "no place for the result");
    return status;
}

symmem_status sm_handle_rank_check(const symmem_handle *handle, const char *operation,
                                   int32_t rank) {
    int32_t world_size = handle->link->group->world_size;
    if (rank >= 0 && rank < world_size)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, operation, "", "rank %d is not in [0, %d)", rank,
                  world_size);
    return sm_error_sizes((uint64_t)world_size, (uint64_t)(int64_t)rank);
}

symmem_status symmem_handle_retain(symmem_handle *handle) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_handle_check(handle, "handle_retain");
    if (status != SYMMEM_OK)
        return status;
    /* The caller has a reference already, so nothing needs ordering here. */
    atomic_fetch_add_explicit(&handle->references, 1, memory_order_relaxed);
    return SYMMEM_OK;
}

void symmem_handle_release(symmem_handle *handle) {
    SM_PUBLIC_CALL;
    /* pairs with: itself, in the thread that drops the last reference */
    if (handle == NULL || sm_fork_is_parents(handle->link->context->made_in) ||
        atomic_fetch_sub_explicit(&handle->references, 1, memory_order_acq_rel) != 1)
        return;
    sm_link_release(handle->link);
    free(handle);
}

symmem_status symmem_handle_get_info(const symmem_handle *handle, symmem_handle_info *info_p) {
    SM_PUBLIC_CALL;
    symmem_status status = check_output(handle, info_p, "handle_get_info");
    if (status != SYMMEM_OK)
        return status;
    const sm_link *link = handle->link;
    sm_link_check_device(link);
    *info_p = (symmem_handle_info){
        .rank = link->peers.rank,
        .world_size = link->peers.world_size,
        .device = link->device,
        .channel_count = link->channel_count,
        .buffer_size = link->buffer_bytes,
        .block_size = link->block_bytes,
        .offset = handle->offset,
        .signal_pad_size = link->signal_pad_size,
        .multicast_ptr = link->multicast_address == NULL
                             ? NULL
                             : (char *)link->multicast_address + handle->offset,
        .world_within_direct_access = link->within_direct_access,
        .poisoned = atomic_load_explicit(&link->poisoned, memory_order_relaxed),
    };
    return SYMMEM_OK;
}

symmem_status symmem_handle_buffer_ptrs(const symmem_handle *handle, void *const **ptrs_p) {
    SM_PUBLIC_CALL;
    symmem_status status = check_output(handle, ptrs_p, "handle_buffer_ptrs");
    if (status == SYMMEM_OK)
        *ptrs_p = handle->link->mapping->buffers;
    return status;
}

symmem_status symmem_handle_signal_pad_ptrs(const symmem_handle *handle, void *const **ptrs_p) {
    SM_PUBLIC_CALL;
    symmem_status status = check_output(handle, ptrs_p, "handle_signal_pad_ptrs");
    if (status == SYMMEM_OK)
        *ptrs_p = handle->link->pads;
    return status;
}

symmem_status symmem_handle_buffer_ptrs_dev(const symmem_handle *handle, void **table_p) {
    SM_PUBLIC_CALL;
    symmem_status status = check_output(handle, table_p, "handle_buffer_ptrs_dev");
    if (status == SYMMEM_OK)
        *table_p = handle->link->buffers_dev;
    return status;
}

symmem_status symmem_handle_signal_pad_ptrs_dev(const symmem_handle *handle, void **table_p) {
    SM_PUBLIC_CALL;
    symmem_status status = check_output(handle, table_p, "handle_signal_pad_ptrs_dev");
    if (status == SYMMEM_OK)
        *table_p = handle->link->pads_dev;
    return status;
}

symmem_status symmem_handle_global_rank(const symmem_handle *handle, int32_t rank,
                                        int32_t *global_rank_p) {
    SM_PUBLIC_CALL;
    symmem_status status = check_output(handle, global_rank_p, "handle_global_rank");
    if (status == SYMMEM_OK)
        status = sm_handle_rank_check(handle, "handle_global_rank", rank);
    if (status == SYMMEM_OK)
        *global_rank_p = handle->link->group->global_ranks[rank];
    return status;
}

symmem_status symmem_handle_group_name(const symmem_handle *handle, const char **name_p) {
    SM_PUBLIC_CALL;
    symmem_status status = check_output(handle, name_p, "handle_group_name");
    if (status == SYMMEM_OK)
        *name_p = handle->link->group->name;
    return status;
}

symmem_status symmem_handle_status(const symmem_handle *handle, symmem_error_record *record_p) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_handle_check(handle, "handle_status");
    if (status != SYMMEM_OK)
        return status;
    sm_link *link = handle->link;
    sm_link_check_device(link);
    pthread_mutex_lock(&link->lock);
    /* Zero, that is OK, unless poisoned. */
    status = link->poison_record.status;
    if (status != SYMMEM_OK && record_p != NULL)
        *record_p = link->poison_record;
    pthread_mutex_unlock(&link->lock);
    return status;
}
