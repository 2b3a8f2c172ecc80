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

/* What a rank has found, and whether it could. */
typedef struct domain_record {
    int32_t status;
    nccl_domain domain;
} domain_record;

static domain_record look(cuda_instance *instance, const nccl_comm *comm,
                          const symmem_exchange *exchange) {
    domain_record own = {.status = cuda_enter(instance, comm->device, "rendezvous")};
    if (own.status != SYMMEM_OK)
        return own;
    own.status = nccl_domain_of(instance, comm->handle, exchange, &own.domain);
    cuda_leave(instance);
    return own;
}

/* Each rank has its own parameters of NCCL's. */
static symmem_status compare(const cuda_instance *instance, const symmem_exchange *exchange,
                             const domain_record *all) {
    const int32_t count = all[0].domain.count;
    for (int32_t r = 0; r < exchange->world_size; r++)
        if (all[r].status != SYMMEM_OK)
            return exchange->agree(exchange, (symmem_status)all[exchange->rank].status,
                                   "nccl domain");
    for (int32_t r = 0; r < exchange->world_size; r++)
        if (count < 1 || all[r].domain.count != count || exchange->world_size % count != 0 ||
            all[r].domain.first != r / count * count)
            return instance->host->fail(instance->host, SYMMEM_MISMATCH, 0, "rendezvous",
                                        "NCCL's load/store domains do not fit together: rank 0 is "
                                        "in one of %d, rank %d in one of %d from rank %d on "
                                        "(NCCL_LSA_TEAM_SIZE?)",
                                        (int)count, (int)r, (int)all[r].domain.count,
                                        (int)all[r].domain.first);
    return SYMMEM_OK;
}

symmem_status nccl_domain_find(cuda_instance *instance, const nccl_comm *comm,
                               const symmem_exchange *exchange, nccl_domain *domain) {
    domain_record all[SYMMEM_MAX_WORLD_SIZE];
    *domain = nccl_all_ranks(exchange);
    if (nccl_state_of(instance)->library.resolver != NCCL_RESOLVE_BY_HOST ||
        exchange->world_size == 1)
        return SYMMEM_OK;
    const domain_record own = look(instance, comm, exchange);
    symmem_status status = exchange->all_gather(exchange, &own, sizeof own, all);
    if (status == SYMMEM_OK)
        status = compare(instance, exchange, all);
    if (status == SYMMEM_OK)
        *domain = own.domain;
    return status;
}
