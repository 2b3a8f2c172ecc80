/* SPDX-License-Identifier: BSD-3-Clause */
#include "one_shot_all_reduce.h"

#include "cpu/reduce.h"

static void reduce_all(const symmem_collective *call, const symmem_cpu_team *team) {
    const void *srcs[SYMMEM_MAX_WORLD_SIZE];
    for (int32_t rank = 0; rank < team->world_size; rank++)
        srcs[rank] = symmem_cpu_at(team, rank, call->offset);
    const symmem_cpu_reduce_args args = {
        .dsts = &call->out,
        .dst_count = 1,
        .srcs = srcs,
        .src_count = team->world_size,
        .count = call->count,
    };
    symmem_cpu_reduce_find(call->dtype, call->op)(&args);
}

symmem_status symmem_cpu_one_shot_all_reduce(const symmem_collective *call, symmem_cpu_team *team) {
    symmem_status status = team->meet(team);
    if (status != SYMMEM_OK)
        return status;
    reduce_all(call, team);
    return team->meet(team);
}
