/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/collectives.h"

#include <string.h>

#include "cpu/prefetch.h"
#include "cpu/work.h"

static symmem_status directly(const symmem_cpu_work *work) {
    const symmem_collective *call = work->call;
    symmem_status status = work->comm->barrier(work->comm);
    if (status != SYMMEM_OK)
        return status;
    symmem_cpu_work_reduce(work, call->offset, NULL, call->count, &call->out, 1);
    return work->comm->barrier(work->comm);
}

/* Reduces one piece, which travels through the slot at `offset`. */
static symmem_status pass_piece(const symmem_cpu_work *work, size_t offset, size_t done,
                                size_t count) {
    const symmem_collective *call = work->call;
    symmem_cpu_comm *comm = work->comm;
    const char *in = (const char *)call->in + done * work->element;
    void *out = (char *)call->out + done * work->element;
    symmem_cpu_copy_to_readers(symmem_cpu_at(comm, comm->rank, offset), in, count * work->element);
    symmem_status status = comm->barrier(comm);
    if (status == SYMMEM_OK)
        symmem_cpu_work_reduce(work, offset, in, count, &out, 1);
    return status;
}

/* Alternates between two slots. When a rank writes a slot again, all ranks have passed a barrier
 * since they read it. So a piece costs one barrier, and both slots stay in the cache. */
static symmem_status by_pieces(const symmem_cpu_work *work) {
    const symmem_collective *call = work->call;
    symmem_cpu_comm *comm = work->comm;
    size_t done = 0, piece = SYMMEM_CPU_PIECE_BYTES / work->element, slot = 0;
    if (call->count > call->in_row)
        piece = symmem_cpu_min(piece, call->in_row / 2);
    symmem_status status = comm->checking ? comm->barrier(comm) : SYMMEM_OK;
    do {
        size_t count = symmem_cpu_min(piece, call->count - done);
        if (status == SYMMEM_OK)
            status = pass_piece(work, call->offset + slot * piece * work->element, done, count);
        done += count;
        slot ^= 1;
    } while (status == SYMMEM_OK && done < call->count);
    return status == SYMMEM_OK ? comm->barrier(comm) : status;
}

/* Reduces a small input through the eager buffers, with one barrier. No rank reads another
 * rank's buffer. When a rank fills an eager buffer again, all ranks have passed a barrier since
 * they read it. This also works with checking, because no memory of the caller is written before
 * the barrier. */
/* Not inlined. Otherwise its table lies on the stack of the other forms, which have their own. */
__attribute__((noinline)) static symmem_status by_eager_buffers(const symmem_cpu_work *work,
                                                                size_t bytes) {
    const symmem_collective *call = work->call;
    symmem_cpu_comm *comm = work->comm;
    const void *srcs[SYMMEM_MAX_WORLD_SIZE];
    for (int32_t rank = 0; rank < comm->world_size; rank++)
        srcs[rank] = comm->eager_buffer(comm, rank);
    memcpy(comm->eager_buffer(comm, comm->rank), call->in, bytes);
    symmem_status status = comm->barrier(comm);
    if (status != SYMMEM_OK)
        return status;
    srcs[comm->rank] = call->in;
    work->reduce(&(symmem_cpu_reduce_args){.dsts = &call->out,
                                           .dst_count = 1,
                                           .srcs = srcs,
                                           .src_count = comm->world_size,
                                           .count = call->count});
    /* for the next operation */
    symmem_cpu_prefetch_for_write(comm->eager_buffer(comm, comm->rank), bytes);
    return SYMMEM_OK;
}

symmem_status symmem_cpu_one_shot_all_reduce(const symmem_collective *call, symmem_cpu_comm *comm) {
    symmem_cpu_work work = symmem_cpu_work_of(call, comm);
    size_t bytes = call->count * work.element;
    if (call->in == NULL) {
        work.streaming = bytes >= SYMMEM_CPU_LARGE_COPY_BYTES;
        return directly(&work);
    }
    work.read_ahead = bytes <= SYMMEM_CPU_CACHED_BYTES;
    return bytes <= comm->eager_bytes ? by_eager_buffers(&work, bytes) : by_pieces(&work);
}
