/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the NCCL skeleton share. See README.md: a check of shapes, not a backend. */
#ifndef SYMMEM_NCCL_INTERNAL_H
#define SYMMEM_NCCL_INTERNAL_H

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <symmem/backend.h>

typedef struct nccl_instance {
    const symmem_host *host;
} nccl_instance;

/*
 * One communicator. It outlives group_close while windows of it are mapped, because a window can
 * only be given back with its communicator. One call at a time: a second one while NCCL works in
 * the background is refused, so a release queues its window and the next owner of the turn does it.
 */
typedef struct nccl_group {
    _Atomic int32_t users; /* the group itself and each window */
    ncclComm_t comm;
    int32_t device;
    int32_t rank;
    int32_t world_size;
    pthread_mutex_t lock; /* of `retired` only, never held during a call of NCCL */
    struct nccl_window *retired;
} nccl_group;

/* Own memory; given back once the user and all windows on it are gone. */
typedef struct nccl_allocation {
    _Atomic int32_t users;
    void *pointer;
    int32_t device;
} nccl_allocation;

/* One registration. NCCL writes `window` from a thread of its own, so it may not move. */
typedef struct nccl_window {
    struct nccl_window *next;
    nccl_group *group;
    nccl_allocation *allocation;
    _Atomic int32_t users; /* entries of peers[] that are still there */
    ncclWindow_t window;
} nccl_window;

/* symmem_memory.priv: an allocation for own memory, a window for an entry of peers[]. */

symmem_status nccl_fail(const nccl_instance *instance, ncclResult_t result, const char *operation);

/* group.c */
symmem_status nccl_group_open(void *instance, const symmem_exchange *exchange, int32_t device,
                              void **group_p);
void nccl_group_close(void *instance, void *group);
void nccl_group_drop(nccl_group *group);
/* Waits, until the deadline, for what NCCL does in the background; ncclInProgress: too late. */
ncclResult_t nccl_wait(ncclComm_t comm, uint64_t deadline_ns);

/* memory.c */
symmem_status nccl_memory_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory);
void nccl_memory_release(void *instance, symmem_memory *memory);
symmem_status nccl_memory_exchange(void *instance, void *group, symmem_memory *own,
                                   const symmem_exchange *exchange, symmem_memory *peers);
/* Gives back the windows that were released since the last call. The caller has NCCL's turn. */
void nccl_drain_retired(nccl_group *group);

#endif
