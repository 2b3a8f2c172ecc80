/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local memory comes from the CUDA backend, because NCCL registers any allocation of the driver
 * that can be shared by descriptor. A window keeps its memory, because NCCL accesses it again when
 * the window is deregistered.
 */
#include <stdlib.h>

#include "nccl_internal.h"

symmem_status nccl_memory_alloc(void *opaque, int32_t device, size_t bytes, symmem_memory *memory) {
    cuda_instance *instance = opaque;
    nccl_allocation *allocation = calloc(1, sizeof *allocation);
    if (allocation == NULL)
        return cuda_no_memory(instance, "alloc");
    symmem_status status = cuda_memory_alloc(instance, device, bytes, &allocation->memory);
    if (status != SYMMEM_OK) {
        free(allocation);
        return status;
    }
    allocation->users = 1;
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    allocation->next = state->allocations;
    state->allocations = allocation;
    pthread_mutex_unlock(&state->lock);
    *memory = allocation->memory;
    memory->priv = allocation;
    return SYMMEM_OK;
}

/* The state's lock is held. */
static void delist(nccl_state *state, const nccl_allocation *allocation) {
    nccl_allocation **link = &state->allocations;
    while (*link != allocation)
        link = &(*link)->next;
    *link = allocation->next;
}

nccl_coll_comm *nccl_coll_comm_find(cuda_instance *instance, const void *address) {
    nccl_state *state = nccl_state_of(instance);
    nccl_coll_comm *coll = NULL;
    pthread_mutex_lock(&state->lock);
    for (const nccl_allocation *a = state->allocations; a != NULL; a = a->next)
        if ((uintptr_t)address - (uintptr_t)a->memory.ptr < a->memory.bytes)
            coll = a->coll;
    pthread_mutex_unlock(&state->lock);
    return coll;
}

void nccl_allocation_leave(cuda_instance *instance, nccl_allocation *allocation) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    bool last = --allocation->users == 0;
    if (last)
        delist(state, allocation);
    pthread_mutex_unlock(&state->lock);
    if (!last)
        return;
    nccl_coll_comm_leave(instance, allocation->coll);
    cuda_memory_release(instance, &allocation->memory);
    free(allocation);
}

/* The last use only retires a window. Deregistering it needs exclusive access to NCCL, and is
 * collective. */
static void leave_window(cuda_instance *instance, nccl_window *window) {
    nccl_state *state = nccl_state_of(instance);
    nccl_comm *comm = window->comm;
    pthread_mutex_lock(&state->lock);
    bool retired = --window->users == 0;
    pthread_mutex_unlock(&state->lock);
    if (retired)
        nccl_comm_leave(instance, comm);
}

void nccl_memory_release(void *opaque, symmem_memory *memory) {
    if (memory->imported)
        leave_window(opaque, memory->priv);
    else
        nccl_allocation_leave(opaque, memory->priv);
}
