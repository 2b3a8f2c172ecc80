/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps that fused operations are made of. */
#include "ops/fused.h"
#include "stream/stream.h"
#include "backend/host.h"
#include "backend/query.h"
#include "backend/registry.h"
#include "ops/matmul_args.h"
#include "rendezvous/handle.h"
#include "rendezvous/link_poison.h"
#include "stream/second_stream.h"

#define PLACE_ALIGNMENT 256

#include <stdlib.h>
#include <string.h>

/* --- checks --------------------------------------------------------------------------------- */

static symmem_status check_streams(sm_pipeline *pipeline, const symmem_stream *stream,
                                   const symmem_stream *second) {
    symmem_context *context = pipeline->link->context;
    const int32_t device = pipeline->link->device;
    symmem_status status = sm_stream_check(context, stream, device, pipeline->name);
    if (status == SYMMEM_OK)
        status = sm_stream_check(context, second, device, pipeline->name);
    if (status != SYMMEM_OK)
        return status;
    if (stream == NULL && second != NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, pipeline->name, "",
                       "a second stream without a first");
    pipeline->lanes[0] = stream;
    pipeline->lanes[1] = second;
    return SYMMEM_OK;
}

static symmem_status need_products(const sm_link *link, const char *name) {
    if (sm_backend_has(link->context, SYMMEM_CAP_MATMUL))
        return SYMMEM_OK;
    return sm_fail(SYMMEM_UNSUPPORTED, name, "", "the backend has no matrix product");
}

symmem_status sm_pipeline_check(sm_pipeline *pipeline, const char *name, symmem_handle *workspace,
                                int32_t channel, uint32_t timeout_ms, symmem_stream *stream,
                                symmem_stream *second) {
    sm_collective_op op;
    memset(pipeline, 0, sizeof *pipeline);
    symmem_status status = sm_handle_check(workspace, name);
    if (status == SYMMEM_OK)
        status = need_products(workspace->link, name);
    if (status == SYMMEM_OK)
        status = sm_collective_begin(&op, name, workspace, SYMMEM_CALL_NONE, channel, timeout_ms,
                                     stream);
    if (status != SYMMEM_OK)
        return status;
    sm_link *link = workspace->link;
    pipeline->name = name;
    pipeline->link = link;
    pipeline->offset = workspace->offset;
    pipeline->available = link->block_bytes - (workspace->offset - link->block_offset);
    pipeline->rank = link->group->rank;
    pipeline->world_size = link->group->world_size;
    pipeline->channel = channel;
    pipeline->timeout_ms = op.timeout_ms;
    pipeline->compares = link->context->check_collectives;
    status = sm_signal_check_channel(link, channel, name);
    return status == SYMMEM_OK ? check_streams(pipeline, stream, second) : status;
}

symmem_status sm_pipeline_fits(const sm_pipeline *pipeline, size_t bytes) {
    if (bytes <= pipeline->available)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, pipeline->name, "",
                  "the workspace has %zu bytes, %zu are needed", pipeline->available, bytes);
    return sm_error_sizes(bytes, pipeline->available);
}

size_t sm_pipeline_reserve(size_t *end_p, size_t bytes) {
    const size_t place = *end_p;
    if (!sm_add(place, bytes, end_p) || !sm_round_up(*end_p, PLACE_ALIGNMENT, end_p))
        *end_p = SIZE_MAX;
    return place;
}

char *sm_pipeline_at(const sm_pipeline *pipeline, int32_t rank) {
    return (char *)pipeline->link->mapping->buffers[rank] + pipeline->offset;
}

symmem_status sm_pipeline_disjoint(const sm_pipeline *pipeline, const sm_strided *tensor,
                                   size_t bytes) {
    sm_strided workspace = {.what = "the workspace", .extent = bytes};
    for (int32_t rank = 0; rank < pipeline->world_size; rank++) {
        workspace.data = sm_pipeline_at(pipeline, rank);
        symmem_status status = sm_strided_disjoint(tensor, &workspace, pipeline->name);
        if (status != SYMMEM_OK)
            return sm_error_failed_rank(rank);
    }
    return SYMMEM_OK;
}

/* --- the second lane ------------------------------------------------------------------------ */

static symmem_status capture_of(const sm_pipeline *pipeline, int lane, uint64_t *capture_p) {
    symmem_context *context = pipeline->link->context;
    *capture_p = 0;
    if (!sm_backend_has(context, SYMMEM_CAP_CAPTURE))
        return SYMMEM_OK;
    symmem_status status =
        context->backend->capture_id(context->instance, pipeline->lanes[lane]->native, capture_p);
    return status == SYMMEM_OK ? status
                               : sm_backend_failed(context, status, pipeline->name, "capture_id");
}

static symmem_status choose_second(sm_pipeline *pipeline) {
    symmem_context *context = pipeline->link->context;
    bool own = pipeline->lanes[1] == NULL;
    symmem_status status = SYMMEM_OK;
    uint64_t capture = 0, other = 0;
    if (own)
        status = sm_second_stream_get(context, pipeline->lanes[0], &pipeline->lanes[1]);
    if (status == SYMMEM_OK)
        status = capture_of(pipeline, 0, &capture);
    if (status == SYMMEM_OK)
        status = capture_of(pipeline, 1, &other);
    pipeline->captured = capture != 0;
    if (status != SYMMEM_OK || other == 0 || other == capture)
        return status;
    if (!own)
        return sm_context_fail(context, SYMMEM_CAPTURE, pipeline->name, "",
                               "the second stream takes part in another capture");
    pipeline->lanes[1] = pipeline->lanes[0];
    return SYMMEM_OK;
}

static sm_channel_op channel_of(const sm_pipeline *pipeline) {
    return (sm_channel_op){.name = pipeline->name,
                           .link = pipeline->link,
                           .channel = pipeline->channel,
                           .timeout_ms = pipeline->timeout_ms};
}

static symmem_status hold_channel(const sm_pipeline *pipeline) {
    const sm_channel_op op = channel_of(pipeline);
    return sm_channel_hold(&op, pipeline->lanes[0]);
}

static void let_go(const sm_pipeline *pipeline) {
    sm_channel_let_go(pipeline->link, pipeline->channel);
}

/* What comes before the first barrier is ordered with the channel's operations, too. One of them
 * may have poisoned the handle. */
static symmem_status follow(const sm_pipeline *pipeline) {
    const sm_channel_op op = channel_of(pipeline);
    symmem_status status = sm_link_refuse_poisoned(pipeline->link, pipeline->name);
    return status == SYMMEM_OK && pipeline->lanes[0] != NULL
               ? sm_channel_follow(&op, pipeline->lanes[0])
               : status;
}

symmem_status sm_pipeline_begin(sm_pipeline *pipeline) {
    symmem_context *context = pipeline->link->context;
    symmem_status status = sm_context_point(context, pipeline->name, "collective.before");
    if (status == SYMMEM_OK && pipeline->lanes[0] != NULL)
        status = choose_second(pipeline);
    if (status == SYMMEM_OK)
        status = hold_channel(pipeline);
    if (status != SYMMEM_OK)
        return status;
    status = follow(pipeline);
    if (status != SYMMEM_OK) {
        let_go(pipeline);
        return status;
    }
    if (pipeline->lanes[0] != NULL)
        pipeline->composite = sm_link_composite(pipeline->link, pipeline->channel);
    pthread_mutex_lock(&context->lock);
    pipeline->fn = context->matmul_fn;
    pipeline->fn_arg = context->matmul_arg;
    pthread_mutex_unlock(&context->lock);
    return SYMMEM_OK;
}

/* In place of the last barrier, which would: holds the link until what was enqueued is over, and
 * makes the channel's next operation, and a reset, come behind that. */
static void hold_rest(const sm_pipeline *pipeline) {
    symmem_context *context = pipeline->link->context;
    void *stream = pipeline->lanes[COMM]->native;
    symmem_ref ref;
    sm_link_ref(pipeline->link, &ref);
    const symmem_exec exec = {
        .stream = stream, .refs = &ref, .ref_count = 1, .operation = pipeline->name};
    if (context->backend->memset32(context->instance, pipeline->link->device,
                                   sm_pipeline_at(pipeline, pipeline->rank), 0, 0,
                                   &exec) != SYMMEM_OK)
        (void)sm_stream_drain(context, stream, pipeline->timeout_ms);
    const sm_channel_op op = channel_of(pipeline);
    sm_channel_mark(&op, pipeline->lanes[COMM]);
}

static void give_up(sm_pipeline *pipeline) {
    symmem_error_record error;
    (void)sm_error_get(&error);
    SM_ATTEMPT(ending);
    uint64_t capture = 0;
    symmem_status asked =
        pipeline->lanes[0] != NULL ? capture_of(pipeline, 0, &capture) : SYMMEM_OK;
    /* Captured work has not run, so peers wait for nothing. After a failed barrier this call
     * changes nothing. */
    if (asked == SYMMEM_OK && capture == 0)
        sm_link_poison_and_tell(pipeline->link, &error);
    /* What was enqueued ends by itself; a capture would otherwise stay forked. */
    symmem_status joined = sm_pipeline_order(pipeline, COMPUTE, COMM);
    if (joined != SYMMEM_OK && pipeline->lanes[COMPUTE] != NULL && capture == 0)
        (void)sm_stream_drain(pipeline->link->context, pipeline->lanes[COMPUTE]->native,
                              pipeline->timeout_ms); /* its products hold nothing themselves */
    if (pipeline->lanes[COMM] != NULL && capture == 0)
        hold_rest(pipeline);
}

symmem_status sm_pipeline_end(sm_pipeline *pipeline, symmem_status status) {
    if (status != SYMMEM_OK && (status != SYMMEM_MISMATCH || pipeline->step != 0))
        give_up(pipeline);
    let_go(pipeline);
    return status;
}

/* --- steps ---------------------------------------------------------------------------------- */

static void *native(const sm_pipeline *pipeline, int lane) {
    return pipeline->lanes[lane] != NULL ? pipeline->lanes[lane]->native : NULL;
}

/* A step that is done, or enqueued, counts. */
static symmem_status taken(sm_pipeline *pipeline, symmem_status status) {
    if (status == SYMMEM_OK)
        pipeline->step++;
    return status;
}

static symmem_status run_barrier(sm_pipeline *pipeline, const symmem_call_id *id) {
    sm_link *link = pipeline->link;
    symmem_ref ref;
    sm_link_ref(link, &ref);
    sm_channel_op signal = {
        .kind = SM_BARRIER,
        .name = pipeline->name,
        .begin_point = "collective.begin",
        .done_point = "collective.done",
        .link = link,
        .channel = pipeline->channel,
        .timeout_ms = pipeline->timeout_ms,
        .refs = &ref,
        .ref_count = 1,
        .composite = pipeline->composite,
        .step = pipeline->step,
        .loose = !pipeline->compares,
        .first = !pipeline->met,
        .is_held = true,
    };
    if (id != NULL)
        signal.id = *id;
    else if (pipeline->compares)
        signal.id.kind = SYMMEM_CALL_BARRIER;
    pipeline->met = true;
    return taken(pipeline, sm_channel_submit(&signal, pipeline->lanes[COMM]));
}

symmem_status sm_pipeline_compare(sm_pipeline *pipeline, const symmem_call_id *id) {
    return pipeline->compares ? run_barrier(pipeline, id) : SYMMEM_OK;
}

symmem_status sm_pipeline_barrier(sm_pipeline *pipeline) {
    return run_barrier(pipeline, NULL);
}

symmem_status sm_pipeline_order(sm_pipeline *pipeline, int from, int to) {
    symmem_context *context = pipeline->link->context;
    const sm_backend *backend = context->backend;
    void *event = NULL;
    if (native(pipeline, from) == native(pipeline, to))
        return SYMMEM_OK;
    symmem_status status = backend->event_create(context->instance, pipeline->link->device, &event);
    if (status != SYMMEM_OK)
        return sm_backend_failed(context, status, pipeline->name, "event_create");
    status = backend->event_record(context->instance, event, native(pipeline, from));
    if (status == SYMMEM_OK)
        status = backend->stream_wait_event(context->instance, native(pipeline, to), event);
    backend->event_destroy(context->instance, event);
    return status == SYMMEM_OK ? status
                               : sm_backend_failed(context, status, pipeline->name, "order");
}

/* The memory that a step uses: the workspace, and what else the pointers lie in. */
static symmem_status cover_step(const sm_pipeline *pipeline, sm_refs *refs, const void *first,
                                const void *second) {
    sm_refs_init(refs, pipeline->link);
    symmem_status status = sm_refs_cover(refs, pipeline->link->context, pipeline->name, first, 0);
    if (status == SYMMEM_OK)
        status = sm_refs_cover(refs, pipeline->link->context, pipeline->name, second, 0);
    return status;
}

/* A note of a step that is over takes its time on a device, between two steps. The link, and with
 * it the workspace, is held by the last barrier, which comes when all steps are over. */
static void leave_to_barrier(const sm_pipeline *pipeline, sm_refs *refs, symmem_exec *exec) {
    const void *link = pipeline->link, *workspace = pipeline->link->mapping->allocation;
    exec->ref_count = 0;
    for (int32_t i = 0; i < refs->count; i++)
        if (refs->refs[i].object != link && refs->refs[i].object != workspace)
            refs->refs[exec->ref_count++] = refs->refs[i];
}

symmem_exec sm_pipeline_exec(const sm_pipeline *pipeline, sm_refs *refs,
                             const symmem_stream *lane) {
    symmem_exec exec = sm_refs_exec(refs, lane);
    exec.operation = pipeline->name;
    exec.composite = pipeline->composite;
    exec.step = pipeline->step;
    exec.loose = !pipeline->compares;
    if (lane != NULL && exec.loose && !pipeline->captured)
        leave_to_barrier(pipeline, refs, &exec);
    return exec;
}

static symmem_status finish(sm_pipeline *pipeline, sm_refs *refs, symmem_status status,
                            const char *entry) {
    sm_refs_finish(refs);
    if (status == SYMMEM_OK)
        return taken(pipeline, status);
    return sm_backend_failed(pipeline->link->context, status, pipeline->name, entry);
}

symmem_status sm_pipeline_copy(sm_pipeline *pipeline, int lane, void *dst, const void *src,
                               size_t bytes) {
    symmem_context *context = pipeline->link->context;
    sm_refs refs;
    if (bytes == 0)
        return SYMMEM_OK;
    symmem_status status = cover_step(pipeline, &refs, dst, src);
    if (status == SYMMEM_OK) {
        const symmem_exec exec = sm_pipeline_exec(pipeline, &refs, pipeline->lanes[lane]);
        status = context->backend->copy(context->instance, pipeline->link->device, dst, src, bytes,
                                        &exec);
    }
    return finish(pipeline, &refs, status, "copy");
}

symmem_status sm_pipeline_copy_strided(sm_pipeline *pipeline, int lane,
                                       const symmem_strided_copy *copy) {
    symmem_context *context = pipeline->link->context;
    sm_refs refs;
    symmem_status status = cover_step(pipeline, &refs, copy->dst, copy->src);
    if (status == SYMMEM_OK) {
        const symmem_exec exec = sm_pipeline_exec(pipeline, &refs, pipeline->lanes[lane]);
        status =
            context->backend->copy_strided(context->instance, pipeline->link->device, copy, &exec);
    }
    return finish(pipeline, &refs, status, "copy_strided");
}

symmem_status sm_pipeline_reduce(sm_pipeline *pipeline, int lane,
                                 const symmem_local_reduce *reduce) {
    symmem_context *context = pipeline->link->context;
    sm_refs refs;
    if (reduce->count == 0)
        return SYMMEM_OK;
    symmem_status status = cover_step(pipeline, &refs, reduce->dst, NULL);
    if (status == SYMMEM_OK) {
        const symmem_exec exec = sm_pipeline_exec(pipeline, &refs, pipeline->lanes[lane]);
        status = context->backend->reduce_local(context->instance, pipeline->link->device, reduce,
                                                &exec);
    }
    return finish(pipeline, &refs, status, "reduce_local");
}

symmem_status sm_pipeline_matmul(sm_pipeline *pipeline, int lane, const symmem_matmul *product) {
    symmem_matmul with_fn = *product;
    with_fn.fn = pipeline->fn;
    with_fn.fn_arg = pipeline->fn_arg;
    return taken(pipeline, sm_product_run(pipeline->link->context, pipeline->name, pipeline,
                                          &with_fn, 0, pipeline->lanes[lane]));
}
