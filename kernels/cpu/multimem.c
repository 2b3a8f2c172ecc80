/* SPDX-License-Identifier: BSD-3-Clause */
/* Emulated multicast. All buffers are mapped, so no multicast address is needed, and the loops of
 * the other operations do what the hardware would. */
#include "cpu/collectives.h"

symmem_status symmem_cpu_multimem_all_reduce(const symmem_collective *call, symmem_cpu_comm *comm) {
    return symmem_cpu_two_shot_all_reduce(call, comm);
}

symmem_status symmem_cpu_multimem_one_shot(const symmem_collective *call, symmem_cpu_comm *comm) {
    if (call->kind == SYMMEM_CALL_MULTIMEM_ONE_SHOT_ALL_REDUCE || comm->rank == call->root)
        return symmem_cpu_one_shot_all_reduce(call, comm);
    symmem_status status = comm->barrier(comm);
    return status == SYMMEM_OK ? comm->barrier(comm) : status;
}

symmem_status symmem_cpu_multimem_all_gather(const symmem_collective *call, symmem_cpu_comm *comm) {
    return symmem_cpu_all_gather(call, comm);
}
