/* SPDX-License-Identifier: BSD-3-Clause */
/* Dispatches a collective to its implementation. */
#include "cpu/collectives.h"
#include "cpu/float_mode.h"

static symmem_status dispatch(const symmem_collective *call, symmem_cpu_comm *comm) {
    switch (call->kind) {
    case SYMMEM_CALL_ONE_SHOT_ALL_REDUCE:
        return symmem_cpu_one_shot_all_reduce(call, comm);
    case SYMMEM_CALL_TWO_SHOT_ALL_REDUCE:
        return symmem_cpu_two_shot_all_reduce(call, comm);
    case SYMMEM_CALL_REDUCE_SCATTER:
        return symmem_cpu_reduce_scatter(call, comm);
    case SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER:
        return symmem_cpu_low_contention_reduce_scatter(call, comm);
    case SYMMEM_CALL_ALL_GATHER:
        return symmem_cpu_all_gather(call, comm);
    case SYMMEM_CALL_BROADCAST:
        return symmem_cpu_broadcast(call, comm);
    case SYMMEM_CALL_ALL_TO_ALL:
        return symmem_cpu_all_to_all(call, comm);
    case SYMMEM_CALL_ALL_TO_ALL_V:
        return symmem_cpu_all_to_all_v(call, comm);
    case SYMMEM_CALL_MULTIMEM_ALL_REDUCE:
        return symmem_cpu_multimem_all_reduce(call, comm);
    case SYMMEM_CALL_MULTIMEM_ONE_SHOT_ALL_REDUCE:
    case SYMMEM_CALL_MULTIMEM_ONE_SHOT_REDUCE:
        return symmem_cpu_multimem_one_shot(call, comm);
    case SYMMEM_CALL_MULTIMEM_ALL_GATHER:
        return symmem_cpu_multimem_all_gather(call, comm);
    default:
        return SYMMEM_UNSUPPORTED;
    }
}

symmem_status symmem_cpu_collective(const symmem_collective *call, symmem_cpu_comm *comm) {
    uint64_t mode = symmem_cpu_float_begin();
    symmem_status status = dispatch(call, comm);
    symmem_cpu_float_end(mode);
    return status;
}
