/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/collectives.h"

#include "cpu/move.h"

static void pull_chunks(const symmem_collective *call, const symmem_cpu_comm *comm, size_t bytes) {
    for (int32_t step = 0; step < comm->world_size; step++) {
        int32_t rank = symmem_cpu_peer_at_step(comm, step);
        symmem_cpu_move((char *)call->out + (size_t)rank * bytes,
                        symmem_cpu_at(comm, rank, call->offset), bytes);
    }
}

static void push_chunk(const symmem_collective *call, const symmem_cpu_comm *comm, size_t bytes) {
    size_t chunk = call->offset + (size_t)comm->rank * bytes;
    for (int32_t step = 0; step < comm->world_size; step++)
        symmem_cpu_move(symmem_cpu_at(comm, symmem_cpu_peer_at_step(comm, step), chunk), call->in,
                        bytes);
}

symmem_status symmem_cpu_all_gather(const symmem_collective *call, symmem_cpu_comm *comm) {
    size_t bytes = call->count * symmem_cpu_width(call);
    symmem_status status = comm->barrier(comm);
    if (status != SYMMEM_OK)
        return status;
    if (bytes == 0)
        return comm->barrier(comm); /* out may be NULL */
    if (call->in != NULL)
        push_chunk(call, comm, bytes);
    else
        pull_chunks(call, comm, bytes);
    return comm->barrier(comm);
}
