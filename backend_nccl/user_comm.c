/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators that the user handed in. They are checked, used, and left to the user. */
#include <stdlib.h>

#include "nccl_internal.h"
#include "user_comm.h"
#include "error.h"

symmem_status nccl_communicator_check(void *opaque, void *communicator, int32_t rank,
                                      int32_t world_size) {
    const cuda_instance *instance = opaque;
    const nccl_library *library = &nccl_state_of(instance)->library;
    static const char operation[] = "group_set_communicator";
    int its_size = 0, its_rank = 0;
    ncclResult_t state = ncclSuccess;
    ncclResult_t result = library->CommGetAsyncError(communicator, &state);
    if (result == ncclSuccess)
        result = state;
    if (result == ncclSuccess)
        result = library->CommCount(communicator, &its_size);
    if (result == ncclSuccess)
        result = library->CommUserRank(communicator, &its_rank);
    if (result == ncclInProgress)
        return instance->host->fail(instance->host, SYMMEM_BUSY, 0, operation,
                                    "NCCL is at work on the communicator");
    if (result != ncclSuccess)
        return nccl_fail(instance, result, operation);
    if (its_size == world_size && its_rank == rank)
        return SYMMEM_OK;
    return instance->host->fail(instance->host, SYMMEM_INVALID_ARGUMENT, 0, operation,
                                "the communicator is rank %d of %d, the group's is %d of %d",
                                its_rank, its_size, (int)rank, (int)world_size);
}

/* It may have failed since it was handed in. */
symmem_status nccl_comm_adopt(cuda_instance *instance, const symmem_exchange *exchange,
                              nccl_comm **comm_p) {
    const nccl_library *library = &nccl_state_of(instance)->library;
    int device = -1;
    symmem_status status = nccl_communicator_check(instance, exchange->communicator, exchange->rank,
                                                   exchange->world_size);
    if (status != SYMMEM_OK)
        return status;
    ncclResult_t result = library->CommCuDevice(exchange->communicator, &device);
    if (result != ncclSuccess)
        return nccl_fail(instance, result, "rendezvous");
    if (device < 0 || device >= instance->device_count)
        return instance->host->fail(instance->host, SYMMEM_INVALID_ARGUMENT, 0, "rendezvous",
                                    "the communicator is of device %d of %d", device,
                                    (int)instance->device_count);
    nccl_comm *comm = calloc(1, sizeof *comm);
    if (comm == NULL)
        return cuda_no_memory(instance, "rendezvous");
    comm->users = 1;
    comm->is_users = true;
    comm->device = device;
    comm->ranks = nccl_all_ranks(exchange);
    comm->handle = exchange->communicator;
    *comm_p = comm;
    return SYMMEM_OK;
}
