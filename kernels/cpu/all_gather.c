/* SPDX-License-Identifier: BSD-3-Clause */
#include "all_gather.h"

#include "cpu/move.h"

static void pull(const symmem_collective *call, const symmem_cpu_team *team, size_t bytes) {
    for (int32_t step = 0; step < team->world_size; step++) {
        int32_t rank = symmem_cpu_turn(team, step);
        symmem_cpu_move((char *)call->out + (size_t)rank * bytes,
                        symmem_cpu_at(team, rank, call->offset), bytes);
    }
}

static void push(const symmem_collective *call, const symmem_cpu_team *team, size_t bytes) {
    size_t chunk = call->offset + (size_t)team->rank * bytes;
    for (int32_t step = 0; step < team->world_size; step++)
        symmem_cpu_move(symmem_cpu_at(team, symmem_cpu_turn(team, step), chunk), call->in, bytes);
}

symmem_status symmem_cpu_all_gather(const symmem_collective *call, symmem_cpu_team *team) {
    size_t bytes = call->count * symmem_cpu_width(call);
    symmem_status status = team->meet(team);
    if (status != SYMMEM_OK)
        return status;
    if (bytes == 0)
        return team->meet(team); /* out may be NULL */
    if (call->in != NULL)
        push(call, team, bytes);
    else
        pull(call, team, bytes);
    return team->meet(team);
}
