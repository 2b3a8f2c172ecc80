/* SPDX-License-Identifier: BSD-3-Clause */
/* From a kind of collective to its implementation. */
#include "low_contention_reduce_scatter.h"
#include "one_shot_all_reduce.h"
#include "reduce_scatter.h"
#include "two_shot_all_reduce.h"

symmem_status symmem_cpu_collective(const symmem_collective *call, symmem_cpu_team *team) {
    switch (call->kind) {
    case SYMMEM_CALL_ONE_SHOT_ALL_REDUCE:
        return symmem_cpu_one_shot_all_reduce(call, team);
    case SYMMEM_CALL_TWO_SHOT_ALL_REDUCE:
        return symmem_cpu_two_shot_all_reduce(call, team);
    case SYMMEM_CALL_REDUCE_SCATTER:
        return symmem_cpu_reduce_scatter(call, team);
    case SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER:
        return symmem_cpu_low_contention_reduce_scatter(call, team);
    default:
        return SYMMEM_UNSUPPORTED;
    }
}
