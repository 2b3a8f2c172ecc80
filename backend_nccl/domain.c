/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's load/store domains: runs of ranks that have pointers to each other's memory, all of one
 * size. From 2.29 on NCCL makes no windows on a communicator of several domains, unless its network
 * lets devices put data themselves, and then each window is registered with the network too. So
 * windows have a communicator for each domain there; where the domains are a communicator of all
 * ranks tells.
 */
#include "nccl_internal.h"

symmem_status nccl_domain_of(const cuda_instance *instance, ncclComm_t handle,
                             const symmem_exchange *exchange, nccl_domain *domain) {
    const int32_t rank = exchange->rank, world_size = exchange->world_size;
    const nccl_team team = nccl_state_of(instance)->library.TeamLsa(handle);
    const int32_t first = rank - team.rank;
    if (team.stride != 1 || team.rank_count < 1 || team.rank < 0 || first < 0 ||
        team.rank >= team.rank_count || first + team.rank_count > world_size)
        return instance->host->fail(instance->host, SYMMEM_BACKEND, 0, "rendezvous",
                                    "NCCL's load/store domain makes no sense: place %d of %d, "
                                    "stride %d",
                                    team.rank, team.rank_count, team.stride);
    *domain = (nccl_domain){first, team.rank_count};
    return SYMMEM_OK;
}

symmem_status nccl_domain_for_windows(cuda_instance *instance, const nccl_comm *comm,
                                      const symmem_exchange *exchange, nccl_domain *domain) {
    const nccl_library *library = &nccl_state_of(instance)->library;
    *domain = nccl_all_ranks(exchange);
    if (library->resolver != NCCL_RESOLVE_BY_HOST || exchange->world_size == 1)
        return SYMMEM_OK;
    symmem_status status = cuda_enter(instance, comm->device, "rendezvous");
    if (status != SYMMEM_OK)
        return status;
    status = nccl_domain_of(instance, comm->handle, exchange, domain);
    cuda_leave(instance);
    return status;
}
