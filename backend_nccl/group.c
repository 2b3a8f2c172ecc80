/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: the communicators that a group of ranks has in common. */
#include <stdlib.h>

#include "nccl_internal.h"

/* Some with a communicator and some without would wait for each other in vain. */
static symmem_status compare(const cuda_instance *instance, const symmem_exchange *exchange,
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

/* The user's communicator is given back if it can have no windows. */
static symmem_status narrow(cuda_instance *instance, const symmem_exchange *exchange,
                            nccl_domain *domain, nccl_comm **comm_p) {
    symmem_status status = nccl_domain_find(instance, *comm_p, exchange, domain);
    if (status != SYMMEM_OK || domain->count == exchange->world_size)
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
    nccl_span *span = nccl_span_take(instance, exchange->group_uid);
    symmem_status status =
        group != NULL && span != NULL ? SYMMEM_OK : cuda_no_memory(instance, "rendezvous");
    if (status == SYMMEM_OK && exchange->communicator != NULL)
        status = nccl_comm_adopt(instance, exchange, &first);
    status = exchange->agree(exchange, status, "nccl group");
    if (status == SYMMEM_OK)
        status = compare(instance, exchange, &handed_in);
    if (status == SYMMEM_OK && handed_in)
        status = narrow(instance, exchange, &group->domain, &first);
    if (status == SYMMEM_OK && first == NULL)
        status =
            nccl_comm_make(instance, exchange, device, NCCL_FOR_WINDOWS, &group->domain, &first);
    if (status != SYMMEM_OK) {
        if (first != NULL)
            nccl_comm_leave(instance, first);
        nccl_span_leave(instance, span);
        free(group);
        return status;
    }
    group->comms[0] = first;
    group->span = span;
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
    nccl_span_leave(opaque, group->span);
    free(group);
}
