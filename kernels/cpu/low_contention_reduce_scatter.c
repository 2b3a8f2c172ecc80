/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/collectives.h"

#include "cpu/work.h"

static symmem_status pull_part(const symmem_cpu_work *work) {
    const symmem_collective *call = work->call;
    symmem_cpu_comm *comm = work->comm;
    size_t bytes = call->count * work->element;
    symmem_status status = comm->barrier(comm);
    if (status != SYMMEM_OK)
        return status;
    symmem_cpu_work_reduce(work, call->offset + (size_t)comm->rank * bytes, NULL, call->count,
                           &call->out, 1);
    return comm->barrier(comm);
}

static void push_parts(const symmem_cpu_work *work, size_t bytes) {
    const symmem_collective *call = work->call;
    const symmem_cpu_comm *comm = work->comm;
    for (int32_t step = 0; step < comm->world_size; step++) {
        int32_t rank = (comm->rank - step + comm->world_size) % comm->world_size;
        symmem_cpu_copy(symmem_cpu_at(comm, rank, call->offset + (size_t)comm->rank * bytes),
                        (const char *)call->in + (size_t)rank * bytes, bytes, work->streaming);
    }
}

/* Reduces the parts that were pushed to this rank. */
/* Not inlined. Otherwise its table lies on the stack of the other form, which has its own. */
__attribute__((noinline)) static void reduce_own(const symmem_cpu_work *work, size_t bytes) {
    const symmem_collective *call = work->call;
    const symmem_cpu_comm *comm = work->comm;
    const void *srcs[SYMMEM_MAX_WORLD_SIZE];
    for (int32_t rank = 0; rank < comm->world_size; rank++)
        srcs[rank] = symmem_cpu_at(comm, comm->rank, call->offset + (size_t)rank * bytes);
    const symmem_cpu_reduce_args args = {.dsts = &call->out,
                                         .dst_count = 1,
                                         .srcs = srcs,
                                         .src_count = comm->world_size,
                                         .count = call->count,
                                         .streaming = work->streaming};
    work->reduce(&args);
}

static symmem_status push_all(const symmem_cpu_work *work) {
    symmem_cpu_comm *comm = work->comm;
    size_t bytes = work->call->count * work->element;
    symmem_status status = comm->barrier(comm);
    if (status != SYMMEM_OK)
        return status;
    if (bytes > 0)
        push_parts(work, bytes);
    status = comm->barrier(comm);
    if (status == SYMMEM_OK && bytes > 0)
        reduce_own(work, bytes);
    return status;
}

symmem_status symmem_cpu_low_contention_reduce_scatter(const symmem_collective *call,
                                                       symmem_cpu_comm *comm) {
    const symmem_cpu_work work = symmem_cpu_work_of(call, comm);
    return call->in == NULL ? pull_part(&work) : push_all(&work);
}
