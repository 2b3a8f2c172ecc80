/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/collectives.h"

#include "cpu/work.h"

symmem_status symmem_cpu_reduce_scatter(const symmem_collective *call, symmem_cpu_comm *comm) {
    const symmem_cpu_work work = symmem_cpu_work_of(call, comm);
    size_t row_bytes = call->in_row * work.element;
    size_t offset = call->offset + (size_t)comm->rank * call->out_row * work.element;
    symmem_status status = comm->barrier(comm);
    if (status != SYMMEM_OK)
        return status;
    for (size_t done = 0; done < call->count; done += call->out_row, offset += row_bytes) {
        void *out = (char *)call->out + done * work.element;
        symmem_cpu_work_reduce(&work, offset, NULL, call->out_row, &out, 1);
    }
    return comm->barrier(comm);
}
