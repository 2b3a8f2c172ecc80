/* SPDX-License-Identifier: BSD-3-Clause */
/* Converts the core's description of a collective to the device's. For the host. */
#ifndef SYMMEM_KERNELS_CUDA_COLLECTIVE_JOB_H
#define SYMMEM_KERNELS_CUDA_COLLECTIVE_JOB_H

#include <assert.h>
#include <string.h>

#include <symmem/backend.h>

#include "cuda/collective_plan.h"
#include "cuda/reduce_element.h"

static_assert((int)SYMMEM_CUDA_SUM == (int)SYMMEM_SUM, "one order of operations");
static_assert((int)SYMMEM_CUDA_AVG == (int)SYMMEM_AVG, "one order of operations");
static_assert((int)SYMMEM_CUDA_MIN == (int)SYMMEM_MIN, "one order of operations");
static_assert((int)SYMMEM_CUDA_MAX == (int)SYMMEM_MAX, "one order of operations");

static inline symmem_cuda_form symmem_cuda_one_shot_form(const symmem_collective *call) {
    return call->in == NULL ? SYMMEM_CUDA_ONE_SHOT : SYMMEM_CUDA_ONE_SHOT_COPY;
}

static inline symmem_cuda_form symmem_cuda_two_shot_form(const symmem_collective *call) {
    if (call->out == NULL)
        return call->in == NULL ? SYMMEM_CUDA_IN_PLACE : SYMMEM_CUDA_COPY_IN_PLACE;
    return call->in == NULL ? SYMMEM_CUDA_TWO_SHOT : SYMMEM_CUDA_TWO_SHOT_COPY;
}

static inline symmem_cuda_form symmem_cuda_form_of(const symmem_collective *call) {
    switch (call->kind) {
    case SYMMEM_CALL_ONE_SHOT_ALL_REDUCE:
        return symmem_cuda_one_shot_form(call);
    case SYMMEM_CALL_TWO_SHOT_ALL_REDUCE:
        return symmem_cuda_two_shot_form(call);
    case SYMMEM_CALL_REDUCE_SCATTER:
        return SYMMEM_CUDA_REDUCE_SCATTER;
    case SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER:
        return call->in == NULL ? SYMMEM_CUDA_REDUCE_SCATTER : SYMMEM_CUDA_PUSH_SCATTER;
    case SYMMEM_CALL_ALL_GATHER:
        return call->in == NULL ? SYMMEM_CUDA_GATHER_PULL : SYMMEM_CUDA_GATHER_PUSH;
    case SYMMEM_CALL_BROADCAST:
        return SYMMEM_CUDA_BROADCAST;
    case SYMMEM_CALL_ALL_TO_ALL:
        return SYMMEM_CUDA_ALL_TO_ALL;
    default:
        return SYMMEM_CUDA_NOTHING;
    }
}

/* True for the kinds that the device implements. */
static inline bool symmem_cuda_supports(symmem_call_kind kind) {
    return (kind >= SYMMEM_CALL_ONE_SHOT_ALL_REDUCE && kind <= SYMMEM_CALL_ALL_TO_ALL) ||
           kind == SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER;
}

/* Fills everything but the tables of pointers, the split table and the limits by which it is
 * checked. */
static inline symmem_cuda_job symmem_cuda_job_of(const symmem_collective *call, int32_t rank,
                                                 int32_t world_size, size_t element,
                                                 bool checking) {
    symmem_cuda_job job;
    memset(&job, 0, sizeof job);
    job.form = (int32_t)symmem_cuda_form_of(call);
    if (call->count == 0 && job.form != SYMMEM_CUDA_ALL_TO_ALL)
        job.form = SYMMEM_CUDA_NOTHING;
    job.op = (int32_t)call->op;
    job.rank = rank;
    job.world_size = world_size;
    job.root = call->root;
    job.checking = checking;
    job.element = element;
    job.count = call->count;
    job.offset = call->offset;
    job.in_row = call->in_row;
    job.out_row = call->out_row;
    job.in = (const char *)call->in;
    job.out = (char *)call->out;
    if (call->kind == SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER)
        job.in_row = job.out_row = call->count; /* one row */
    return job;
}

/* Estimates the bytes that a step moves, for an all-to-all the largest split. */
static inline size_t symmem_cuda_step_bytes(const symmem_cuda_job *job,
                                            const symmem_cuda_step *step, size_t parts) {
    size_t bytes = step->count * job->element;
    if (step->kind == SYMMEM_CUDA_SYNC || step->kind == SYMMEM_CUDA_AGREE)
        return 0;
    if (step->kind == SYMMEM_CUDA_REDUCE)
        return bytes * (size_t)job->world_size;
    if (step->kind == SYMMEM_CUDA_MOVE && step->route == SYMMEM_CUDA_FETCH_PARTS)
        return parts;
    bool all = step->route == SYMMEM_CUDA_GATHER || step->route == SYMMEM_CUDA_PUSH ||
               step->route == SYMMEM_CUDA_SCATTER;
    return step->kind == SYMMEM_CUDA_MOVE && all ? bytes * (size_t)job->world_size : bytes;
}

/* Fills this rank's split table of an all-to-all. `own` is the base of its buffer. */
static inline void symmem_cuda_fill_split_table(const symmem_cuda_job *job,
                                                const symmem_collective *call, const void *own,
                                                uint64_t *words) {
    uint64_t *rooms = words + job->world_size + 3;
    memset(words, 0, sizeof *words * SYMMEM_CUDA_SPLIT_TABLE_WORDS(job->world_size));
    if (call->in != NULL)
        words[0] = (uint64_t)(job->in - (const char *)own);
    for (int32_t rank = 0; rank < job->world_size; rank++) {
        words[rank + 1] = words[rank] + call->in_splits[rank] * job->element;
        rooms[rank + 1] = rooms[rank] + call->out_splits[rank] * job->element;
    }
}

#endif
