/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's LSA teams (load/store accessible): runs of ranks that have pointers to each other's
 * memory, all of one size. From 2.29 on NCCL makes no windows on a communicator of several teams,
 * unless its network lets devices put data themselves. Then each window is registered with the
 * network too. So with these versions windows have a communicator for each team. A communicator of
 * all ranks says where the teams are.
 */
#include "nccl_internal.h"
#include "lsa_team.h"

symmem_status nccl_lsa_team_of(const cuda_instance *instance, ncclComm_t handle,
                               const symmem_exchange *exchange, nccl_lsa_team *lsa_team) {
    const int32_t rank = exchange->rank, world_size = exchange->world_size;
    const nccl_team team = nccl_state_of(instance)->library.TeamLsa(handle);
    const int32_t first = rank - team.rank;
    if (team.stride != 1 || team.rank_count < 1 || team.rank < 0 || first < 0 ||
        team.rank >= team.rank_count || first + team.rank_count > world_size)
        return instance->host->fail(instance->host, SYMMEM_BACKEND, 0, "rendezvous",
                                    "NCCL's load/store domain makes no sense: place %d of %d, "
                                    "stride %d",
                                    team.rank, team.rank_count, team.stride);
    *lsa_team = (nccl_lsa_team){first, team.rank_count};
    return SYMMEM_OK;
}

/* What a rank has found, and whether it could. */
typedef struct lsa_record {
    int32_t status;
    nccl_lsa_team lsa_team;
} lsa_record;

static lsa_record look(cuda_instance *instance, const nccl_comm *comm,
                       const symmem_exchange *exchange) {
    lsa_record own = {.status = cuda_enter(instance, comm->device, "rendezvous")};
    if (own.status != SYMMEM_OK)
        return own;
    own.status = nccl_lsa_team_of(instance, comm->handle, exchange, &own.lsa_team);
    cuda_leave(instance);
    return own;
}

/* Ranks may have different NCCL parameters. */
static symmem_status compare_teams(const cuda_instance *instance, const symmem_exchange *exchange,
                                   const lsa_record *all) {
    const int32_t count = all[0].lsa_team.count;
    for (int32_t r = 0; r < exchange->world_size; r++)
        if (all[r].status != SYMMEM_OK)
            return exchange->agree(exchange, (symmem_status)all[exchange->rank].status,
                                   "nccl domain");
    for (int32_t r = 0; r < exchange->world_size; r++)
        if (count < 1 || all[r].lsa_team.count != count || exchange->world_size % count != 0 ||
            all[r].lsa_team.first != r / count * count)
            return instance->host->fail(instance->host, SYMMEM_MISMATCH, 0, "rendezvous",
                                        "NCCL's load/store domains do not fit together: rank 0 is "
                                        "in one of %d, rank %d in one of %d from rank %d on "
                                        "(NCCL_LSA_TEAM_SIZE?)",
                                        (int)count, (int)r, (int)all[r].lsa_team.count,
                                        (int)all[r].lsa_team.first);
    return SYMMEM_OK;
}

symmem_status nccl_lsa_team_find(cuda_instance *instance, const nccl_comm *comm,
                                 const symmem_exchange *exchange, nccl_lsa_team *lsa_team) {
    lsa_record all[SYMMEM_MAX_WORLD_SIZE];
    *lsa_team = nccl_all_ranks(exchange);
    if (nccl_state_of(instance)->library.resolver != NCCL_RESOLVE_BY_HOST ||
        exchange->world_size == 1)
        return SYMMEM_OK;
    const lsa_record own = look(instance, comm, exchange);
    symmem_status status = exchange->all_gather(exchange, &own, sizeof own, all);
    if (status == SYMMEM_OK)
        status = compare_teams(instance, exchange, all);
    if (status == SYMMEM_OK)
        *lsa_team = own.lsa_team;
    return status;
}
