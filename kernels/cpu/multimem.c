/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions by multicast, emulated: all buffers are within reach, no multicast address is needed.
 */
#include "multimem_all_reduce.h"
#include "multimem_one_shot_all_reduce.h"
#include "one_shot_all_reduce.h"

#include "cpu/move.h"
#include "cpu/reduce.h"

#define LINE_BYTES 64

/* This rank's part, in elements: whole cache lines, but for the end. */
static void own_part(const symmem_collective *call, const symmem_cpu_team *team, size_t *begin_p,
                     size_t *count_p) {
    size_t world_size = (size_t)team->world_size, line = LINE_BYTES / symmem_cpu_width(call);
    size_t part = call->count / world_size + (call->count % world_size != 0);
    part = (part + line - 1) / line * line;
    size_t begin = (size_t)team->rank * part;
    *begin_p = begin < call->count ? begin : call->count;
    size_t left = call->count - *begin_p;
    *count_p = left < part ? left : part;
}

static void reduce_part(const symmem_collective *call, const symmem_cpu_team *team) {
    void *places[SYMMEM_MAX_WORLD_SIZE];
    const void *srcs[SYMMEM_MAX_WORLD_SIZE];
    size_t begin, count;
    own_part(call, team, &begin, &count);
    if (count == 0)
        return;
    size_t offset = call->offset + begin * symmem_cpu_width(call);
    for (int32_t rank = 0; rank < team->world_size; rank++)
        srcs[rank] = places[rank] = symmem_cpu_at(team, rank, offset);
    const symmem_cpu_reduce_args args = {
        .dsts = places,
        .dst_count = team->world_size,
        .srcs = srcs,
        .src_count = team->world_size,
        .count = count,
    };
    symmem_cpu_reduce_find(call->dtype, call->op)(&args);
}

symmem_status symmem_cpu_multimem_all_reduce(const symmem_collective *call, symmem_cpu_team *team) {
    symmem_status status = team->meet(team);
    if (status != SYMMEM_OK)
        return status;
    reduce_part(call, team);
    return team->meet(team);
}

symmem_status symmem_cpu_multimem_one_shot(const symmem_collective *call, symmem_cpu_team *team) {
    if (call->kind == SYMMEM_CALL_MULTIMEM_ONE_SHOT_ALL_REDUCE || team->rank == call->root)
        return symmem_cpu_one_shot_all_reduce(call, team);
    symmem_status status = team->meet(team);
    return status == SYMMEM_OK ? team->meet(team) : status;
}
