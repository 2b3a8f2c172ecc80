/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/collectives.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/work.h"

#define LINE_BYTES 64
#define KEPT_BYTES ((size_t)16 << 10)

/* A run of elements and the shards of it that the ranks reduce. Shards are whole cache lines, so
 * that no two ranks write one line. */
typedef struct portion {
    size_t count;
    size_t shard;  /* elements of each rank; the last ones may have fewer */
    size_t offset; /* in the buffers, bytes */
    char *out;     /* where the results go; NULL: nowhere else */
} portion;

static portion part_of(const symmem_cpu_work *work, size_t count, size_t offset, char *out) {
    size_t ranks = (size_t)work->comm->world_size;
    size_t line = LINE_BYTES / (uint32_t)work->element; /* a power of two */
    size_t shard = count / ranks + (count % ranks != 0);
    shard = (shard + line - 1) & ~(line - 1);
    return (portion){.count = count, .shard = shard, .offset = offset, .out = out};
}

/* Bytes from the start of the part to the rank's shard, and bytes in the shard. */
static size_t shard_begin(const symmem_cpu_work *work, const portion *part, int32_t rank) {
    return symmem_cpu_min((size_t)rank * part->shard, part->count) * work->element;
}

static size_t shard_count(const portion *part, int32_t rank) {
    size_t begin = symmem_cpu_min((size_t)rank * part->shard, part->count);
    return symmem_cpu_min(part->shard, part->count - begin);
}

static size_t shard_bytes(const symmem_cpu_work *work, const portion *part, int32_t rank) {
    return shard_count(part, rank) * work->element;
}

static char *own_shard(const symmem_cpu_work *work, const portion *part) {
    const symmem_cpu_comm *comm = work->comm;
    return symmem_cpu_at(comm, comm->rank, part->offset + shard_begin(work, part, comm->rank));
}

static size_t part_count(const symmem_cpu_work *work, size_t whole) {
    return work->call->count / whole + (work->call->count % whole != 0);
}

/* --- in place: each rank writes its shard into every buffer ------------------------ */

static void push_shard(const symmem_cpu_work *work) {
    const symmem_collective *call = work->call;
    const symmem_cpu_comm *comm = work->comm;
    const portion all = part_of(work, call->count, call->offset, NULL);
    size_t offset = all.offset + shard_begin(work, &all, comm->rank);
    symmem_cpu_work_reduce(work, offset, NULL, shard_count(&all, comm->rank), NULL,
                           comm->world_size);
}

static symmem_status in_place(const symmem_cpu_work *work) {
    const symmem_collective *call = work->call;
    symmem_cpu_comm *comm = work->comm;
    symmem_status status = SYMMEM_OK;
    if (call->in != NULL) {
        status = comm->checking ? comm->barrier(comm) : SYMMEM_OK;
        if (status == SYMMEM_OK)
            symmem_cpu_copy(symmem_cpu_at(comm, comm->rank, call->offset), call->in,
                            call->count * work->element, work->streaming);
    }
    if (status == SYMMEM_OK)
        status = comm->barrier(comm);
    if (status != SYMMEM_OK)
        return status;
    /* it writes the same lines that it reads, so they are cached */
    symmem_cpu_work within_cache = *work;
    within_cache.streaming = false;
    push_shard(&within_cache);
    return comm->barrier(comm);
}

/* --- shared by the other two forms ------------------------------------------------- */

/* Reduces this rank's shard and also leaves the result in its own buffer for the others. `in`,
 * unless NULL, points to this rank's elements of the part. */
static void reduce_shard(const symmem_cpu_work *work, const portion *part, const char *in) {
    int32_t rank = work->comm->rank;
    size_t begin = shard_begin(work, part, rank);
    void *const dsts[2] = {own_shard(work, part), part->out + begin};
    symmem_cpu_work_reduce(work, part->offset + begin, in != NULL ? in + begin : NULL,
                           shard_count(part, rank), dsts, 2);
}

static void gather_shards(const symmem_cpu_work *work, const portion *part) {
    const symmem_cpu_comm *comm = work->comm;
    for (int32_t step = 1; step < comm->world_size; step++) {
        int32_t rank = (comm->rank + step) % comm->world_size;
        size_t begin = shard_begin(work, part, rank);
        symmem_cpu_copy(part->out + begin, symmem_cpu_at(comm, rank, part->offset + begin),
                        shard_bytes(work, part, rank), work->streaming);
    }
}

/* --- from the buffers to `out`, keeping the inputs --------------------------------- */

static portion kept_part(const symmem_cpu_work *work, size_t whole, size_t index) {
    const symmem_collective *call = work->call;
    size_t begin = index * whole;
    return part_of(work, symmem_cpu_min(whole, call->count - begin),
                   call->offset + begin * work->element, (char *)call->out + begin * work->element);
}

/* No other rank reads this rank's shard of its own buffer before it holds results. The old contents
 * are kept here meanwhile. When a part's results are gathered, all ranks have gathered the part
 * before. */
static symmem_status by_kept_parts(const symmem_cpu_work *work, char kept[2][KEPT_BYTES]) {
    symmem_cpu_comm *comm = work->comm;
    portion now, before = {.count = 0};
    size_t whole = KEPT_BYTES / work->element * (size_t)comm->world_size;
    size_t parts = part_count(work, whole);
    symmem_status status = comm->barrier(comm);
    for (size_t i = 0; status == SYMMEM_OK && i < parts; i++, before = now) {
        now = kept_part(work, whole, i);
        memcpy(kept[i % 2], own_shard(work, &now), shard_bytes(work, &now, comm->rank));
        reduce_shard(work, &now, NULL);
        status = comm->barrier(comm);
        if (status != SYMMEM_OK)
            return status;
        if (i > 0)
            memcpy(own_shard(work, &before), kept[1 - i % 2],
                   shard_bytes(work, &before, comm->rank));
        gather_shards(work, &now);
    }
    if (status == SYMMEM_OK)
        status = comm->barrier(comm);
    if (status == SYMMEM_OK && parts > 0)
        memcpy(own_shard(work, &before), kept[1 - parts % 2],
               shard_bytes(work, &before, comm->rank));
    return status;
}

/* Allocates, because the caller's stack may be small. */
static symmem_status keeping_inputs(const symmem_cpu_work *work) {
    char(*kept)[KEPT_BYTES] = malloc(2 * sizeof *kept);
    if (kept == NULL)
        return SYMMEM_OUT_OF_MEMORY;
    symmem_status status = by_kept_parts(work, kept);
    free(kept);
    return status;
}

/* --- from `in` to `out` through the buffers ---------------------------------------- */

/* Alternates between three slots. */
static portion passing_part(const symmem_cpu_work *work, size_t whole, size_t index) {
    const symmem_collective *call = work->call;
    size_t begin = index * whole;
    return part_of(work, symmem_cpu_min(whole, call->count - begin),
                   call->offset + index % 3 * whole * work->element,
                   (char *)call->out + begin * work->element);
}

static const char *input_of(const symmem_cpu_work *work, size_t done) {
    return (const char *)work->call->in + done * work->element;
}

/* Copies the other ranks' shards. No other rank reads this rank's own shard. */
static void copy_in(const symmem_cpu_work *work, const portion *part, const char *in) {
    const symmem_cpu_comm *comm = work->comm;
    char *slot = symmem_cpu_at(comm, comm->rank, part->offset);
    size_t begin = shard_begin(work, part, comm->rank);
    size_t end = begin + shard_bytes(work, part, comm->rank), all = part->count * work->element;
    symmem_cpu_copy(slot, in, begin, false);
    symmem_cpu_copy(slot + end, in + end, all - end, false);
}

/* Each part costs one barrier. After it every rank's input of this part is ready, and so are all
 * results of the part before. Those are gathered while this part is reduced. A rank that copies
 * into a slot again has passed a barrier since all ranks gathered from it. */
static symmem_status by_parts(const symmem_cpu_work *work) {
    const symmem_collective *call = work->call;
    symmem_cpu_comm *comm = work->comm;
    portion now = {.count = 0}, before = {.count = 0};
    size_t whole = SYMMEM_CPU_PIECE_BYTES / work->element;
    if (call->count > call->in_row)
        whole = symmem_cpu_min(whole, call->in_row / 3);
    size_t parts = part_count(work, whole);
    symmem_status status = comm->checking ? comm->barrier(comm) : SYMMEM_OK;
    for (size_t i = 0; status == SYMMEM_OK && i <= parts; i++, before = now) {
        if (i < parts) {
            now = passing_part(work, whole, i);
            copy_in(work, &now, input_of(work, i * whole));
        }
        status = comm->barrier(comm);
        if (status == SYMMEM_OK && i < parts)
            reduce_shard(work, &now, input_of(work, i * whole));
        if (status == SYMMEM_OK && i > 0)
            gather_shards(work, &before);
    }
    return status == SYMMEM_OK ? comm->barrier(comm) : status;
}

symmem_status symmem_cpu_two_shot_all_reduce(const symmem_collective *call, symmem_cpu_comm *comm) {
    symmem_cpu_work work = symmem_cpu_work_of(call, comm);
    if (call->out == NULL)
        return in_place(&work);
    work.cached_count = 1; /* the shard that the others gather */
    work.streaming = call->count * work.element >= SYMMEM_CPU_LARGE_COPY_BYTES;
    return call->in == NULL ? keeping_inputs(&work) : by_parts(&work);
}
