/* SPDX-License-Identifier: BSD-3-Clause */
#include "one_shot_all_reduce.h"

#include "cpu/work.h"

static symmem_status directly(const symmem_cpu_work *work) {
    const symmem_collective *call = work->call;
    symmem_status status = work->team->meet(work->team);
    if (status != SYMMEM_OK)
        return status;
    symmem_cpu_work_reduce(work, call->offset, call->count, &call->out, 1);
    return work->team->meet(work->team);
}

/* One piece, by way of the slot at `offset`. */
static symmem_status pass_piece(const symmem_cpu_work *work, size_t offset, size_t done,
                                size_t count) {
    const symmem_collective *call = work->call;
    symmem_cpu_team *team = work->team;
    void *out = (char *)call->out + done * work->element;
    symmem_cpu_copy(symmem_cpu_at(team, team->rank, offset),
                    (const char *)call->in + done * work->element, count * work->element, false);
    symmem_status status = team->meet(team);
    if (status == SYMMEM_OK)
        symmem_cpu_work_reduce(work, offset, count, &out, 1);
    return status;
}

/* Two slots by turns: a rank that comes to write one again has met all others since they read it.
 * So pieces cost one meeting each, and both slots stay in the cache. */
static symmem_status by_pieces(const symmem_cpu_work *work) {
    const symmem_collective *call = work->call;
    symmem_cpu_team *team = work->team;
    size_t done = 0, piece = SYMMEM_CPU_PIECE_BYTES / work->element, slot = 0;
    if (call->count > call->in_row)
        piece = symmem_cpu_min(piece, call->in_row / 2);
    symmem_status status = team->checking ? team->meet(team) : SYMMEM_OK;
    do {
        size_t count = symmem_cpu_min(piece, call->count - done);
        if (status == SYMMEM_OK)
            status = pass_piece(work, call->offset + slot * piece * work->element, done, count);
        done += count;
        slot ^= 1;
    } while (status == SYMMEM_OK && done < call->count);
    return status == SYMMEM_OK ? team->meet(team) : status;
}

symmem_status symmem_cpu_one_shot_all_reduce(const symmem_collective *call, symmem_cpu_team *team) {
    const symmem_cpu_work work = symmem_cpu_work_of(call, team);
    return call->in == NULL ? directly(&work) : by_pieces(&work);
}
