/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators: made without blocking, under the caller's deadline. */
#include "nccl_internal.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <time.h>

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

ncclResult_t nccl_wait(ncclComm_t comm, uint64_t deadline_ns) {
    const struct timespec pause = {.tv_nsec = 200000};
    ncclResult_t state = ncclInProgress;

    for (;;) {
        ncclResult_t result = ncclCommGetAsyncError(comm, &state);
        if (result != ncclSuccess || state != ncclInProgress) {
            return result != ncclSuccess ? result : state;
        }
        if (deadline_ns != 0 && now_ns() >= deadline_ns) {
            return ncclInProgress;
        }
        /* A dead peer should end this wait within a second, but there is nobody to ask: see
         * README.md, peer_state of the exchange. */
        nanosleep(&pause, NULL);
    }
}

/* Rank 0's id to all. Every rank gathers, so that a failure of rank 0 is known everywhere. */
static symmem_status share_id(nccl_instance *instance, const symmem_exchange *exchange,
                              ncclUniqueId *id_p) {
    ncclUniqueId own = {{0}};
    ncclResult_t result = exchange->rank == 0 ? ncclGetUniqueId(&own) : ncclSuccess;
    symmem_status status = result == ncclSuccess ? SYMMEM_OK : nccl_fail(instance, result, "group");
    status = exchange->agree(exchange, status, "nccl id");
    if (status != SYMMEM_OK) {
        return status;
    }
    ncclUniqueId *all = calloc((size_t)exchange->world_size, sizeof *all);
    if (all == NULL) {
        status = instance->host->fail(instance->host, SYMMEM_OUT_OF_MEMORY, 0, "group", "ids");
    }
    status = exchange->agree(exchange, status, "nccl id memory");
    if (status == SYMMEM_OK) {
        status = exchange->all_gather(exchange, &own, sizeof own, all);
    }
    if (status == SYMMEM_OK) {
        *id_p = all[0];
    }
    free(all);
    return status;
}

static symmem_status open_comm(nccl_instance *instance, const symmem_exchange *exchange,
                               nccl_group *group, const ncclUniqueId *id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int before = 0;

    config.blocking = 0;
    (void)cudaGetDevice(&before);
    if (cudaSetDevice(group->device) != cudaSuccess) {
        return instance->host->fail(instance->host, SYMMEM_BACKEND, 0, "group", "device");
    }
    ncclResult_t result =
        ncclCommInitRankConfig(&group->comm, exchange->world_size, *id, exchange->rank, &config);
    if (result == ncclInProgress || result == ncclSuccess) {
        result = nccl_wait(group->comm, exchange->deadline_ns);
    }
    (void)cudaSetDevice(before);
    return result == ncclSuccess ? SYMMEM_OK : nccl_fail(instance, result, "group");
}

symmem_status nccl_group_open(void *opaque, const symmem_exchange *exchange, int32_t device,
                              void **group_p) {
    nccl_instance *instance = opaque;
    ncclUniqueId id;
    nccl_group *group = calloc(1, sizeof *group);
    symmem_status status = SYMMEM_OK;

    if (group == NULL) {
        status = instance->host->fail(instance->host, SYMMEM_OUT_OF_MEMORY, 0, "group", "group");
    }
    status = exchange->agree(exchange, status, "nccl memory");
    if (status != SYMMEM_OK) {
        free(group);
        return status;
    }
    atomic_init(&group->users, 1);
    pthread_mutex_init(&group->lock, NULL);
    group->device = device;
    group->rank = exchange->rank;
    group->world_size = exchange->world_size;
    status = share_id(instance, exchange, &id);
    if (status == SYMMEM_OK) {
        status = open_comm(instance, exchange, group, &id);
    }
    if (status != SYMMEM_OK) {
        nccl_group_drop(group);
        return status;
    }
    *group_p = group;
    return SYMMEM_OK;
}

/* Abort, not finalize and destroy: those wait for the peers. */
void nccl_group_drop(nccl_group *group) {
    /* acq_rel; pairs with: itself */
    if (atomic_fetch_sub_explicit(&group->users, 1, memory_order_acq_rel) == 1) {
        if (group->comm != NULL) {
            (void)ncclCommAbort(group->comm);
        }
        pthread_mutex_destroy(&group->lock);
        free(group);
    }
}

/* No exchange of this group can be running, so the turn is ours. */
void nccl_group_close(void *opaque, void *group) {
    (void)opaque;
    nccl_drain_retired(group);
    nccl_group_drop(group);
}
