/* SPDX-License-Identifier: BSD-3-Clause */
#include "broadcast.h"

#include "cpu/move.h"

/* Every rank fetches for itself, all at once. */
symmem_status symmem_cpu_broadcast(const symmem_collective *call, symmem_cpu_team *team) {
    symmem_status status = team->meet(team);
    if (status != SYMMEM_OK)
        return status;
    if (team->rank != call->root)
        symmem_cpu_move(symmem_cpu_at(team, team->rank, call->offset),
                        symmem_cpu_at(team, call->root, call->offset),
                        call->count * symmem_cpu_width(call));
    return team->meet(team);
}
