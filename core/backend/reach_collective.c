/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of ranks without pointers to each other, made of barriers, of copies by the group
 * reach, and of the backend's reduction of local memory. Each rank pulls what it needs; reductions
 * pass through memory of this rank's, in rank order, so that all ranks get the same bits.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/reach.h"
#include "backend/reach_collective.h"
#include "backend/query.h"

#define STAGE_BYTES ((size_t)256 << 10) /* of one rank's elements at a time */

typedef struct operation {
    void *instance;
    const sm_backend *backend;
    const symmem_peers *peers;
    const symmem_collective *call;
    const symmem_exec *exec;
    int32_t channel;
    uint64_t end_ns;
    size_t element;
    symmem_call_id id; /* of the first barrier */
    char *stage;       /* world_size pieces of STAGE_BYTES, and one for a result */
} operation;

/* --- parts ---------------------------------------------------------------------------------- */

static symmem_exec exec_of(const operation *work) {
    return (symmem_exec){.timeout_ms = sm_limit_ms(work->end_ns), .operation = work->call->name};
}

static symmem_status meet(operation *work) {
    symmem_exec exec = exec_of(work);
    exec.call = work->id;
    work->id = (symmem_call_id){.kind = SYMMEM_CALL_NONE};
    return work->backend->barrier(work->instance, work->peers, work->channel, &exec);
}

/* Peers wait for the rest, which does not come. */
static symmem_status give_up(const operation *work, symmem_status status, int32_t rank) {
    const symmem_fault fault = {.operation = work->call->name,
                                .status = status,
                                .channel = work->channel,
                                .failed_rank = rank};
    work->peers->host->signal_failed(work->peers, &fault, NULL);
    return status;
}

static symmem_place place_of(const operation *work, int32_t rank, size_t at) {
    return (symmem_place){
        .peers = work->peers, .peer = rank, .rank = work->peers->global_ranks[rank], .offset = at};
}

/* `offset` is from the start of the rank's allocation. */
static symmem_status get_bytes(const operation *work, int32_t rank, size_t offset, void *dst,
                               size_t bytes) {
    if (bytes == 0)
        return SYMMEM_OK;
    if (rank == work->peers->rank) {
        memmove(dst, (const char *)work->peers->buffers[rank] + offset, bytes);
        return SYMMEM_OK;
    }
    const symmem_exec exec = exec_of(work);
    const symmem_place from = place_of(work, rank, work->peers->buffer_offsets[rank] + offset);
    symmem_status status = work->backend->reach_get(work->instance, &from, dst, bytes, &exec);
    return status == SYMMEM_OK ? status : give_up(work, status, rank);
}

static symmem_status put_bytes(const operation *work, int32_t rank, size_t offset, const void *src,
                               size_t bytes) {
    if (bytes == 0)
        return SYMMEM_OK;
    if (rank == work->peers->rank) {
        memmove((char *)work->peers->buffers[rank] + offset, src, bytes);
        return SYMMEM_OK;
    }
    const symmem_exec exec = exec_of(work);
    const symmem_place to = place_of(work, rank, work->peers->buffer_offsets[rank] + offset);
    symmem_status status = work->backend->reach_put(work->instance, &to, src, bytes, &exec);
    return status == SYMMEM_OK ? status : give_up(work, status, rank);
}

/* --- moves ---------------------------------------------------------------------------------- */

static symmem_status all_gather(operation *work) {
    const symmem_collective *call = work->call;
    const size_t bytes = call->count * work->element, own = (size_t)work->peers->rank;
    symmem_status status = meet(work);
    for (int32_t r = 0; r < work->peers->world_size && status == SYMMEM_OK; r++)
        status = call->in == NULL ? get_bytes(work, r, call->offset,
                                              (char *)call->out + (size_t)r * bytes, bytes)
                                  : put_bytes(work, r, call->offset + own * bytes, call->in, bytes);
    return status == SYMMEM_OK ? meet(work) : status;
}

static symmem_status broadcast(operation *work) {
    const symmem_collective *call = work->call;
    char *own = (char *)work->peers->buffers[work->peers->rank] + call->offset;
    symmem_status status = meet(work);
    if (status == SYMMEM_OK && call->root != work->peers->rank)
        status = get_bytes(work, call->root, call->offset, own, call->count * work->element);
    return status == SYMMEM_OK ? meet(work) : status;
}

/* Where the part for each rank begins in this rank's allocation, for them to read. */
static void publish_parts(const operation *work) {
    const symmem_collective *call = work->call;
    const symmem_peers *peers = work->peers;
    uint64_t *parts = sm_reach_parts(peers, work->channel);
    const char *base = peers->buffers[peers->rank];
    uint64_t at = call->in == NULL ? 0 : (uint64_t)((const char *)call->in - base);
    for (int32_t r = 0; r < peers->world_size; r++) {
        parts[r] = at;
        at += call->in_splits[r] * work->element;
    }
}

static symmem_status get_part(const operation *work, int32_t rank, char *dst, size_t bytes) {
    const symmem_peers *peers = work->peers;
    const symmem_exec exec = exec_of(work);
    const size_t entry = (size_t)((char *)&sm_reach_parts(peers, work->channel)[peers->rank] -
                                  (char *)peers->signals[peers->rank]);
    const symmem_place from = place_of(work, rank, peers->signal_offsets[rank] + entry);
    uint64_t at = sm_reach_parts(peers, work->channel)[peers->rank];
    if (bytes == 0)
        return SYMMEM_OK;
    if (rank != peers->rank) {
        symmem_status status =
            work->backend->reach_get(work->instance, &from, &at, sizeof at, &exec);
        if (status != SYMMEM_OK)
            return give_up(work, status, rank);
    }
    /* Ranks whose splits differ are not found out: what they get may be anything of the block. */
    if (at > peers->buffer_bytes || bytes > peers->buffer_bytes - at)
        return give_up(work, SYMMEM_CORRUPT, rank);
    return get_bytes(work, rank, (size_t)at, dst, bytes);
}

static symmem_status all_to_all(operation *work) {
    const symmem_collective *call = work->call;
    char *out = call->out;
    publish_parts(work);
    symmem_status status = meet(work);
    for (int32_t r = 0; r < work->peers->world_size && status == SYMMEM_OK; r++) {
        const size_t bytes = call->out_splits[r] * work->element;
        status = get_part(work, r, out, bytes);
        out += bytes;
    }
    return status == SYMMEM_OK ? meet(work) : status;
}

/* --- reductions ----------------------------------------------------------------------------- */

/* `count` elements of every rank from `offset` on, which fit the stage, to dst. */
static symmem_status reduce_piece(const operation *work, size_t offset, size_t count, char *dst) {
    const symmem_exec exec = exec_of(work);
    const int32_t ranks = work->peers->world_size;
    symmem_status status = SYMMEM_OK;
    for (int32_t r = 0; r < ranks && status == SYMMEM_OK; r++)
        status = get_bytes(work, r, offset, work->stage + (size_t)r * STAGE_BYTES,
                           count * work->element);
    if (status != SYMMEM_OK)
        return status;
    const symmem_local_reduce reduce = {.size = sizeof reduce,
                                        .dtype = work->call->dtype,
                                        .op = work->call->op,
                                        .src_count = ranks,
                                        .count = count,
                                        .src = work->stage,
                                        .src_stride = STAGE_BYTES,
                                        .dst = dst};
    status = work->backend->reach_reduce_local(work->instance, work->peers->device, &reduce, &exec);
    return status == SYMMEM_OK ? status : give_up(work, status, -1);
}

static symmem_status reduce(const operation *work, size_t offset, size_t count, char *dst) {
    const size_t whole = STAGE_BYTES / work->element;
    symmem_status status = SYMMEM_OK;
    for (size_t done = 0; done < count && status == SYMMEM_OK; done += whole) {
        const size_t piece = count - done < whole ? count - done : whole;
        status =
            reduce_piece(work, offset + done * work->element, piece, dst + done * work->element);
    }
    return status;
}

static symmem_status from_buffers(operation *work) {
    symmem_status status = meet(work);
    if (status == SYMMEM_OK)
        status = reduce(work, work->call->offset, work->call->count, work->call->out);
    return status == SYMMEM_OK ? meet(work) : status;
}

/* By as much at a time as the buffers have room for. */
static symmem_status through_buffers(operation *work) {
    const symmem_collective *call = work->call;
    const size_t element = work->element;
    symmem_status status = meet(work);
    for (size_t done = 0; done < call->count && status == SYMMEM_OK; done += call->in_row) {
        const size_t left = call->count - done, piece = left < call->in_row ? left : call->in_row;
        status = put_bytes(work, work->peers->rank, call->offset,
                           (const char *)call->in + done * element, piece * element);
        if (status == SYMMEM_OK)
            status = meet(work);
        if (status == SYMMEM_OK)
            status = reduce(work, call->offset, piece, (char *)call->out + done * element);
        if (status == SYMMEM_OK)
            status = meet(work);
    }
    return status;
}

/* No rank writes what another one still reads. */
static symmem_status in_place(operation *work) {
    const symmem_collective *call = work->call;
    const size_t whole = STAGE_BYTES / work->element;
    char *result = work->stage + (size_t)work->peers->world_size * STAGE_BYTES;
    symmem_status status = meet(work);
    if (status == SYMMEM_OK && call->in != NULL) {
        status =
            put_bytes(work, work->peers->rank, call->offset, call->in, call->count * work->element);
        if (status == SYMMEM_OK)
            status = meet(work);
    }
    for (size_t done = 0; done < call->count && status == SYMMEM_OK; done += whole) {
        const size_t piece = call->count - done < whole ? call->count - done : whole;
        const size_t at = call->offset + done * work->element;
        status = reduce_piece(work, at, piece, result);
        if (status == SYMMEM_OK)
            status = meet(work);
        if (status == SYMMEM_OK)
            status = put_bytes(work, work->peers->rank, at, result, piece * work->element);
    }
    return status == SYMMEM_OK ? meet(work) : status;
}

static symmem_status reduce_scatter(operation *work) {
    const symmem_collective *call = work->call;
    const size_t own = (size_t)work->peers->rank * call->out_row;
    const size_t rows = call->count == 0 ? 0 : call->count / call->out_row;
    symmem_status status = meet(work);
    for (size_t row = 0; row < rows && status == SYMMEM_OK; row++)
        status = reduce(work, call->offset + (row * call->in_row + own) * work->element,
                        call->out_row, (char *)call->out + row * call->out_row * work->element);
    return status == SYMMEM_OK ? meet(work) : status;
}

/* --- the entry ------------------------------------------------------------------------------ */

static symmem_status run_kind(operation *work) {
    const symmem_collective *call = work->call;
    switch (call->kind) {
    case SYMMEM_CALL_ALL_GATHER:
        return all_gather(work);
    case SYMMEM_CALL_BROADCAST:
        return broadcast(work);
    case SYMMEM_CALL_ALL_TO_ALL:
        return all_to_all(work);
    case SYMMEM_CALL_REDUCE_SCATTER:
        return reduce_scatter(work);
    default: /* the two all-reduces: the same bits */
        if (call->out == NULL)
            return in_place(work);
        return call->in == NULL ? from_buffers(work) : through_buffers(work);
    }
}

static symmem_status collective_apart(void *instance, const symmem_peers *peers, int32_t channel,
                                      const symmem_collective *call, const symmem_exec *exec) {
    const symmem_context *context = peers->host->self;
    const bool reduces = call->kind == SYMMEM_CALL_ONE_SHOT_ALL_REDUCE ||
                         call->kind == SYMMEM_CALL_TWO_SHOT_ALL_REDUCE ||
                         call->kind == SYMMEM_CALL_REDUCE_SCATTER;
    operation work = {.instance = instance,
                      .backend = context->backend,
                      .peers = peers,
                      .call = call,
                      .exec = exec,
                      .channel = channel,
                      .end_ns = sm_deadline_ns(exec->timeout_ms),
                      .element = symmem_dtype_size(call->dtype),
                      .id = exec->call};
    if (reduces) {
        work.stage = malloc(((size_t)peers->world_size + 1) * STAGE_BYTES);
        if (work.stage == NULL)
            return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, call->name, "",
                                   "no memory for the elements of %d ranks", peers->world_size);
    }
    symmem_status status = run_kind(&work);
    free(work.stage);
    return status;
}

/* Never called: it takes pointers between all ranks, and these have none. */
static symmem_status collective(void *instance, const symmem_peers *peers, int32_t channel,
                                const symmem_collective *call, const symmem_exec *exec) {
    return collective_apart(instance, peers, channel, call, exec);
}

void sm_reach_collectives(sm_backend *backend) {
    backend->collective = collective;
    backend->collective_apart = collective_apart;
}
