/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's view of all ranks' memory of one allocation, for one group. */
#include <stdlib.h>

#include "memory/mapping.h"

bool sm_memory_exists(const symmem_memory *memory) {
    return memory->ptr != NULL || memory->priv != NULL;
}

static void release_cached(sm_cached *cached) {
    sm_mapping_release(SM_CONTAINER(cached, sm_mapping, cached));
}

symmem_status sm_mapping_create(sm_allocation *allocation, const symmem_group *group,
                                sm_mapping **mapping_p) {
    size_t count = (size_t)group->world_size;
    sm_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping != NULL) {
        mapping->peers = calloc(count, sizeof *mapping->peers);
        mapping->buffers = calloc(count, sizeof *mapping->buffers);
    }
    if (mapping == NULL || mapping->peers == NULL || mapping->buffers == NULL) {
        if (mapping != NULL) {
            free(mapping->peers);
            free(mapping->buffers);
        }
        free(mapping);
        return sm_fail(SYMMEM_OUT_OF_MEMORY, SM_RENDEZVOUS, "map", "no memory for %zu peers",
                       count);
    }
    sm_list_init(&mapping->cached.node);
    mapping->cached.release = release_cached;
    atomic_init(&mapping->references, 1);
    sm_allocation_retain(allocation);
    mapping->allocation = allocation;
    mapping->rank = group->rank;
    mapping->world_size = group->world_size;
    *mapping_p = mapping;
    return SYMMEM_OK;
}

void sm_mapping_fill(sm_mapping *mapping) {
    for (int32_t r = 0; r < mapping->world_size; r++)
        mapping->buffers[r] =
            r == mapping->rank ? mapping->allocation->memory.ptr : mapping->peers[r].ptr;
}

void sm_mapping_retain(sm_mapping *mapping) {
    /* The caller has a reference already, so nothing needs ordering here. */
    atomic_fetch_add_explicit(&mapping->references, 1, memory_order_relaxed);
}

void sm_mapping_release(sm_mapping *mapping) {
    /* pairs with: itself, in the thread that drops the last reference */
    if (atomic_fetch_sub_explicit(&mapping->references, 1, memory_order_acq_rel) != 1)
        return;
    symmem_context *context = mapping->allocation->context;
    for (int32_t r = 0; r < mapping->world_size; r++) {
        /* This rank's own entry is in use only with a backend that registers memory
         * collectively. */
        if (sm_memory_exists(&mapping->peers[r]))
            context->backend->memory_release(context->instance, &mapping->peers[r]);
    }
    free(mapping->peers);
    free(mapping->buffers);
    sm_allocation_release(mapping->allocation);
    free(mapping);
}
