/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local memory comes from the CUDA backend, because NCCL registers any allocation of the driver
 * that can be shared by descriptor. A window keeps its memory, because NCCL accesses it again when
 * the window is deregistered.
 */
#include <stdlib.h>

#include "nccl_internal.h"
#include "memory.h"
#include "coll_comm.h"
#include "comm.h"

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
    sm_treap_add(&state->allocations, &allocation->by_address, (uintptr_t)allocation->memory.ptr);
    pthread_mutex_unlock(&state->lock);
    *memory = allocation->memory;
    memory->priv = allocation;
    return SYMMEM_OK;
}

static const nccl_allocation *allocation_of(const sm_treap_node *node) {
    return (const nccl_allocation *)((const char *)node - offsetof(nccl_allocation, by_address));
}

nccl_coll_comm *nccl_coll_comm_find(cuda_instance *instance, const void *address) {
    nccl_state *state = nccl_state_of(instance);
    nccl_coll_comm *coll = NULL;
    pthread_mutex_lock(&state->lock);
    const sm_treap_node *node = sm_treap_at_or_below(&state->allocations, (uintptr_t)address);
    if (node != NULL) {
        const nccl_allocation *allocation = allocation_of(node);
        if ((uintptr_t)address - (uintptr_t)allocation->memory.ptr < allocation->memory.bytes)
            coll = allocation->coll;
    }
    pthread_mutex_unlock(&state->lock);
    return coll;
}

void nccl_allocation_leave(cuda_instance *instance, nccl_allocation *allocation) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    bool last = --allocation->users == 0;
    if (last)
        sm_treap_remove(&state->allocations, &allocation->by_address);
    pthread_mutex_unlock(&state->lock);
    if (!last)
        return;
    nccl_coll_comm_leave(instance, allocation->coll);
    cuda_memory_release(instance, &allocation->memory);
    free(allocation);
}

void nccl_window_enlist(cuda_instance *instance, nccl_window *window) {
    nccl_state *state = nccl_state_of(instance);
    nccl_allocation *allocation = window->allocation;
    nccl_comm *comm = window->comm;
    pthread_mutex_lock(&state->lock);
    allocation->users++;
    window->next_of_memory = allocation->windows;
    if (allocation->windows != NULL)
        allocation->windows->before_of_memory = window;
    allocation->windows = window;
    window->next = comm->windows;
    if (comm->windows != NULL)
        comm->windows->before = window;
    comm->windows = window;
    pthread_mutex_unlock(&state->lock);
}

/* The state's lock is held. */
static void delist_window(nccl_window *window) {
    nccl_window *next = window->next, *before = window->before;
    *(before != NULL ? &before->next : &window->comm->windows) = next;
    if (next != NULL)
        next->before = before;
    next = window->next_of_memory;
    before = window->before_of_memory;
    *(before != NULL ? &before->next_of_memory : &window->allocation->windows) = next;
    if (next != NULL)
        next->before_of_memory = before;
    sm_treap_remove(&window->comm->retired, &window->retired);
}

void nccl_window_free(cuda_instance *instance, nccl_window *window) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    delist_window(window);
    pthread_mutex_unlock(&state->lock);
    nccl_allocation_leave(instance, window->allocation);
    free(window);
}

/* The last use only retires a window. Deregistering it needs exclusive access to NCCL, and is
 * collective. */
static void leave_window(cuda_instance *instance, nccl_window *window) {
    nccl_state *state = nccl_state_of(instance);
    nccl_comm *comm = window->comm;
    pthread_mutex_lock(&state->lock);
    bool retired = --window->users == 0;
    if (retired)
        sm_treap_add(&comm->retired, &window->retired, window->serial);
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
