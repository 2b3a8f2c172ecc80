/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/collectives.h"

#include "cpu/move.h"

/* Every rank pulls for itself, all at once. */
symmem_status symmem_cpu_broadcast(const symmem_collective *call, symmem_cpu_comm *comm) {
    symmem_status status = comm->barrier(comm);
    if (status != SYMMEM_OK)
        return status;
    if (comm->rank != call->root)
        symmem_cpu_move(symmem_cpu_at(comm, comm->rank, call->offset),
                        symmem_cpu_at(comm, call->root, call->offset),
                        call->count * symmem_cpu_width(call));
    return comm->barrier(comm);
}
