/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: the communicators that a group of ranks has in common. */
#include <stdlib.h>

#include "nccl_internal.h"

symmem_status nccl_group_open(void *opaque, const symmem_exchange *exchange, int32_t device,
                              void **group_p) {
    cuda_instance *instance = opaque;
    nccl_group *group = calloc(1, sizeof *group);
    symmem_status status = group != NULL ? SYMMEM_OK : cuda_no_memory(instance, "rendezvous");
    status = exchange->agree(exchange, status, "nccl group");
    if (status == SYMMEM_OK)
        status = nccl_comm_make(instance, exchange, device, &group->comms[0]);
    if (status != SYMMEM_OK) {
        free(group);
        return status;
    }
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
    free(group);
}
