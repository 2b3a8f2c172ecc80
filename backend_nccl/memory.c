/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is registered collectively: the window gives a pointer to every rank's part. */
#include "nccl_internal.h"

#include <cuda_runtime.h>
#include <stdlib.h>

/* In the room's only device file, once it exists: a kernel of one block that writes
 * ncclGetLsaPointer(window, 0, i) for each rank. Newer NCCL has a host call for it. */
cudaError_t symmem_nccl_resolve(ncclWindow_t window, int world_size, void **pointers,
                                cudaStream_t stream);

static void drop_allocation(nccl_allocation *allocation) {
    /* acq_rel; pairs with: itself */
    if (atomic_fetch_sub_explicit(&allocation->users, 1, memory_order_acq_rel) == 1) {
        (void)ncclMemFree(allocation->pointer);
        free(allocation);
    }
}

symmem_status nccl_memory_alloc(void *opaque, int32_t device, size_t bytes, symmem_memory *memory) {
    nccl_instance *instance = opaque;
    symmem_status status = SYMMEM_OK;
    int before = 0;
    nccl_allocation *allocation = calloc(1, sizeof *allocation);

    if (allocation == NULL) {
        return instance->host->fail(instance->host, SYMMEM_OUT_OF_MEMORY, 0, "alloc", "memory");
    }
    (void)cudaGetDevice(&before);
    (void)cudaSetDevice(device);
    ncclResult_t result = ncclMemAlloc(&allocation->pointer, bytes);
    if (result != ncclSuccess) {
        status = nccl_fail(instance, result, "alloc");
    } else if (cudaMemset(allocation->pointer, 0, bytes) != cudaSuccess ||
               cudaDeviceSynchronize() != cudaSuccess) {
        (void)ncclMemFree(allocation->pointer);
        status = instance->host->fail(instance->host, SYMMEM_BACKEND, 0, "alloc", "zeroing");
    }
    (void)cudaSetDevice(before);
    if (status != SYMMEM_OK) {
        free(allocation);
        return status;
    }
    atomic_init(&allocation->users, 1);
    allocation->device = device;
    *memory = (symmem_memory){
        .ptr = allocation->pointer, .bytes = bytes, .device = device, .priv = allocation};
    return SYMMEM_OK;
}

/* The last part of a window queues it: this may run while an exchange has NCCL's turn. */
static void release_window(nccl_window *window) {
    nccl_group *group = window->group;
    /* acq_rel; pairs with: itself */
    if (atomic_fetch_sub_explicit(&window->users, 1, memory_order_acq_rel) != 1) {
        return;
    }
    pthread_mutex_lock(&group->lock);
    window->next = group->retired;
    group->retired = window;
    pthread_mutex_unlock(&group->lock);
}

void nccl_drain_retired(nccl_group *group) {
    pthread_mutex_lock(&group->lock);
    nccl_window *window = group->retired;
    group->retired = NULL;
    pthread_mutex_unlock(&group->lock);
    while (window != NULL) {
        nccl_window *next = window->next;
        if (group->comm != NULL) { /* an aborted communicator took its windows along */
            (void)ncclCommWindowDeregister(group->comm, window->window);
        }
        drop_allocation(window->allocation);
        free(window);
        window = next;
        nccl_group_drop(group);
    }
}

void nccl_memory_release(void *opaque, symmem_memory *memory) {
    (void)opaque;
    if (memory->imported) {
        release_window(memory->priv);
    } else {
        drop_allocation(memory->priv);
    }
}

/* Registers under the deadline. A window that stays NULL after success means "not supported". */
static symmem_status register_window(nccl_instance *instance, nccl_window *window, size_t bytes,
                                     uint64_t deadline_ns) {
    ncclComm_t comm = window->group->comm;
    ncclResult_t result = ncclCommWindowRegister(comm, window->allocation->pointer, bytes,
                                                 &window->window, NCCL_WIN_DEFAULT);
    if (result == ncclInProgress || result == ncclSuccess) {
        result = nccl_wait(comm, deadline_ns);
    }
    if (result != ncclSuccess) {
        return nccl_fail(instance, result, "rendezvous");
    }
    if (window->window == NULL) {
        return instance->host->fail(instance->host, SYMMEM_UNREACHABLE, 0, "rendezvous",
                                    "NCCL made no symmetric window: some ranks cannot reach "
                                    "each other's memory");
    }
    return SYMMEM_OK;
}

static symmem_status resolve(nccl_instance *instance, nccl_window *window, symmem_memory *own,
                             symmem_memory *peers) {
    nccl_group *group = window->group;
    void **pointers = NULL;
    size_t bytes = sizeof(void *) * (size_t)group->world_size;

    if (cudaHostAlloc((void **)&pointers, bytes, cudaHostAllocDefault) != cudaSuccess) {
        return instance->host->fail(instance->host, SYMMEM_OUT_OF_MEMORY, 0, "rendezvous", "table");
    }
    cudaError_t error =
        symmem_nccl_resolve(window->window, group->world_size, pointers, cudaStreamPerThread);
    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(cudaStreamPerThread);
    }
    for (int32_t i = 0; error == cudaSuccess && i < group->world_size; i++) {
        peers[i] = (symmem_memory){
            /* NCCL maps the own part a second time; users must see the pointer they allocated. */
            .ptr = i == group->rank ? own->ptr : pointers[i],
            .bytes = own->bytes,
            .device = own->device,
            .imported = 1,
            .priv = window,
        };
    }
    (void)cudaFreeHost(pointers);
    if (error != cudaSuccess) {
        return instance->host->fail(instance->host, SYMMEM_BACKEND, 0, "rendezvous", "resolve: %s",
                                    cudaGetErrorString(error));
    }
    return SYMMEM_OK;
}

symmem_status nccl_memory_exchange(void *opaque, void *opaque_group, symmem_memory *own,
                                   const symmem_exchange *exchange, symmem_memory *peers) {
    nccl_instance *instance = opaque;
    nccl_group *group = opaque_group;
    symmem_status status = SYMMEM_OK;
    nccl_window *window = calloc(1, sizeof *window);

    if (group->comm == NULL) {
        status = instance->host->fail(instance->host, SYMMEM_PEER_LOST, 0, "rendezvous",
                                      "the group's communicator was given up");
    } else if (window == NULL) {
        status =
            instance->host->fail(instance->host, SYMMEM_OUT_OF_MEMORY, 0, "rendezvous", "window");
    } else if (own->device != group->device) {
        status = instance->host->fail(instance->host, SYMMEM_MISMATCH, 0, "rendezvous",
                                      "the group's communicator is on device %d, the memory on %d",
                                      group->device, own->device);
    }
    /* Whoever does not come to the registration would hang the others. */
    status = exchange->agree(exchange, status, "nccl window");
    if (status != SYMMEM_OK) {
        free(window);
        return status;
    }
    nccl_drain_retired(group);
    window->group = group;
    window->allocation = own->priv;
    atomic_init(&window->users, exchange->world_size);
    status = register_window(instance, window, own->bytes, exchange->deadline_ns);
    if (status == SYMMEM_TIMEOUT || status == SYMMEM_PEER_LOST) {
        /* NCCL's thread still owns window->window and only an abort of the communicator ends that:
         * the group is of no use from here on, which the table cannot say. See README.md. */
        (void)ncclCommAbort(group->comm);
        group->comm = NULL;
        free(window);
        return status;
    }
    if (status == SYMMEM_OK) {
        status = resolve(instance, window, own, peers);
        if (status != SYMMEM_OK) {
            (void)ncclCommWindowDeregister(group->comm, window->window);
        }
    }
    if (status != SYMMEM_OK) {
        free(window);
        return status;
    }
    /* relaxed: the caller's own references keep both above zero */
    atomic_fetch_add_explicit(&group->users, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&window->allocation->users, 1, memory_order_relaxed);
    return SYMMEM_OK;
}
