/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: the communicators that a group of ranks shares. */
#include <stdlib.h>

#include "nccl_internal.h"
#include "group.h"
#include "coll_comm.h"
#include "comm.h"
#include "lsa_team.h"
#include "user_comm.h"

/* If some ranks handed in a communicator and others did not, they would wait for each other
 * forever. */
static symmem_status compare_groups(const cuda_instance *instance, const symmem_exchange *exchange,
                                    bool *handed_in_p) {
    const uint8_t own = exchange->communicator != NULL;
    uint8_t all[SYMMEM_MAX_WORLD_SIZE];
    symmem_status status = exchange->all_gather(exchange, &own, sizeof own, all);
    if (status != SYMMEM_OK)
        return status;
    for (int32_t r = 1; r < exchange->world_size; r++)
        if (all[r] != all[0])
            return instance->host->fail(instance->host, SYMMEM_MISMATCH, 0, "rendezvous",
                                        "rank %d handed in a communicator, rank %d did not",
                                        all[0] != 0 ? 0 : (int)r, all[0] != 0 ? (int)r : 0);
    *handed_in_p = own != 0;
    return SYMMEM_OK;
}

/* Gives the user's communicator back if it can have no windows. */
static symmem_status use_lsa_team(cuda_instance *instance, const symmem_exchange *exchange,
                                  nccl_lsa_team *lsa_team, nccl_comm **comm_p) {
    symmem_status status = nccl_lsa_team_find(instance, *comm_p, exchange, lsa_team);
    if (status != SYMMEM_OK || lsa_team->count == exchange->world_size)
        return status;
    nccl_comm_leave(instance, *comm_p);
    *comm_p = NULL;
    return SYMMEM_OK;
}

symmem_status nccl_group_open(void *opaque, const symmem_exchange *exchange, int32_t device,
                              void **group_p) {
    cuda_instance *instance = opaque;
    nccl_comm *first = NULL;
    bool handed_in = false;
    nccl_group *group = calloc(1, sizeof *group);
    nccl_coll_comm *coll = nccl_coll_comm_take(instance, exchange->group_uid);
    symmem_status status =
        group != NULL && coll != NULL ? SYMMEM_OK : cuda_no_memory(instance, "rendezvous");
    if (status == SYMMEM_OK && exchange->communicator != NULL)
        status = nccl_comm_adopt(instance, exchange, &first);
    status = exchange->agree(exchange, status, "nccl group");
    if (status == SYMMEM_OK)
        status = compare_groups(instance, exchange, &handed_in);
    if (status == SYMMEM_OK && handed_in)
        status = use_lsa_team(instance, exchange, &group->lsa_team, &first);
    if (status == SYMMEM_OK && first == NULL)
        status =
            nccl_comm_make(instance, exchange, device, NCCL_FOR_WINDOWS, &group->lsa_team, &first);
    if (status != SYMMEM_OK) {
        if (first != NULL)
            nccl_comm_leave(instance, first);
        nccl_coll_comm_leave(instance, coll);
        free(group);
        return status;
    }
    group->comms[0] = first;
    group->coll = coll;
    group->rank = exchange->rank;
    group->world_size = exchange->world_size;
    group->comm_count = 1;
    *group_p = group;
    return SYMMEM_OK;
}

/* Never waits for peers. Windows that handles still use keep their communicator. */
void nccl_group_close(void *opaque, void *opaque_group) {
    nccl_group *group = opaque_group;
    for (int32_t i = 0; i < group->comm_count; i++)
        nccl_comm_leave(opaque, group->comms[i]);
    nccl_coll_comm_leave(opaque, group->coll);
    free(group);
}
