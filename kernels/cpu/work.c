/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/work.h"

#include "reference/reduce.h"

symmem_cpu_work symmem_cpu_work_of(const symmem_collective *call, symmem_cpu_comm *comm) {
    size_t element = symmem_reference_element_bytes(call->dtype, call->op);
    return (symmem_cpu_work){.call = call,
                             .comm = comm,
                             .reduce = symmem_cpu_reduce_find(comm->isa, call->dtype, call->op),
                             .element = element,
                             .streaming = call->count * element > SYMMEM_CPU_LARGE_BYTES};
}

void symmem_cpu_work_reduce(const symmem_cpu_work *work, size_t offset, const void *own,
                            size_t count, void *const *dsts, int32_t dst_count) {
    const void *srcs[SYMMEM_MAX_WORLD_SIZE];
    if (count == 0)
        return;
    for (int32_t rank = 0; rank < work->comm->world_size; rank++)
        srcs[rank] = symmem_cpu_at(work->comm, rank, offset);
    if (own != NULL)
        srcs[work->comm->rank] = own;
    const symmem_cpu_reduce_args args = {.dsts = dsts != NULL ? dsts : (void *const *)srcs,
                                         .dst_count = dst_count,
                                         .srcs = srcs,
                                         .src_count = work->comm->world_size,
                                         .count = count,
                                         .streaming = work->streaming,
                                         .cached_count = work->cached_count,
                                         .read_ahead = work->read_ahead};
    work->reduce(&args);
}
