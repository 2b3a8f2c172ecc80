/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the fused operations are made of: steps on two lanes, which are the caller's stream and a
 * second one. Any failure of a step ends the operation on all ranks.
 */
#ifndef SYMMEM_CORE_FUSED_H
#define SYMMEM_CORE_FUSED_H

#include "ops/matrix.h"

typedef struct sm_pipeline {
    const char *name; /* the public call */
    sm_link *link;
    size_t offset;    /* of the workspace, from each rank's buffer */
    size_t available; /* its bytes */
    int32_t rank, world_size;
    int32_t channel;
    uint32_t timeout_ms;
    const symmem_stream *lanes[2]; /* both NULL: run now; the same twice: one after the other */
    symmem_matmul_fn fn;
    void *fn_arg;
    symmem_composite *composite; /* of the channel; NULL without a stream */
    uint32_t step;               /* the next step's */
    bool compares;               /* calls, in the first step: before that nothing may be written */
    bool met;                    /* there was a barrier */
    bool captured;
} sm_pipeline;

/* The two streams of a pipeline. The first has the barriers, the transfers and all that must follow
 * them. The second has the products that can overlap. */
enum { COMM = 0, COMPUTE = 1 };

/* NULL where only sizes are asked for, without a link. */
static inline symmem_context *sm_pipeline_context(const sm_pipeline *pipeline) {
    return pipeline->link != NULL ? pipeline->link->context : NULL;
}

/* Handle, capabilities, channel, streams, poison, direct access. */
symmem_status sm_pipeline_check(sm_pipeline *pipeline, const char *name, symmem_handle *workspace,
                                int32_t channel, uint32_t timeout_ms, symmem_stream *stream,
                                symmem_stream *second);
/* OUT_OF_RANGE unless the workspace has that many bytes. */
symmem_status sm_pipeline_fits(const sm_pipeline *pipeline, size_t bytes);
/* INVALID_ARGUMENT if the tensor has bytes in any rank's workspace. */
symmem_status sm_pipeline_disjoint(const sm_pipeline *pipeline, const sm_strided *tensor,
                                   size_t bytes);
/* Takes the context's second stream where the caller gave none, and passes the failpoint. On OK the
 * operation holds the channel until sm_pipeline_end, so that other threads see one call. If the
 * channel stays busy, nothing has begun and only this call fails. */
symmem_status sm_pipeline_begin(sm_pipeline *pipeline);
/* Poisons the handle everywhere if status is a failure, but not where the ranks found their calls
 * to differ before anything was done. Returns it. */
symmem_status sm_pipeline_end(sm_pipeline *pipeline, symmem_status status);

/* The workspace's next place, of so many bytes. *end_p becomes SIZE_MAX, and stays that, where
 * there cannot be so much memory. */
size_t sm_pipeline_reserve(size_t *end_p, size_t bytes);
/* Rank r's workspace. */
char *sm_pipeline_at(const sm_pipeline *pipeline, int32_t rank);

/* Steps, most with the lane's number. Unless calls are compared, those before and behind a failure
 * may run: whatever an operation writes is undefined then, and memory of this rank's. */
/* The barrier of the beginning, if calls are compared. */
symmem_status sm_pipeline_compare(sm_pipeline *pipeline, const symmem_call_id *id);
symmem_status sm_pipeline_barrier(sm_pipeline *pipeline);
/* What `to` does from here on comes after what `from` was given so far. */
symmem_status sm_pipeline_order(sm_pipeline *pipeline, int from, int to);
symmem_status sm_pipeline_copy(sm_pipeline *pipeline, int lane, void *dst, const void *src,
                               size_t bytes);
symmem_status sm_pipeline_copy_strided(sm_pipeline *pipeline, int lane,
                                       const symmem_strided_copy *copy);
symmem_status sm_pipeline_matmul(sm_pipeline *pipeline, int lane, const symmem_matmul *product);
symmem_status sm_pipeline_reduce(sm_pipeline *pipeline, int lane,
                                 const symmem_local_reduce *reduce);

/* How the pipeline's next step runs in that lane. */
symmem_exec sm_pipeline_exec(const sm_pipeline *pipeline, sm_refs *refs, const symmem_stream *lane);

/* That many bytes behind `at`; NULL stays NULL: what has no elements need not have memory. */
static inline char *sm_bytes_behind(const void *at, int64_t bytes) {
    return at == NULL ? NULL : (char *)(uintptr_t)at + bytes;
}

#endif
