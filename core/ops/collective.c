/* SPDX-License-Identifier: BSD-3-Clause */
/* The way of every collective operation from checked arguments to the backend. */
#include "ops/collective.h"
#include "ops/repeat.h"
#include "backend/query.h"
#include "backend/registry.h"
#include "backend/table.h"
#include "rendezvous/handle.h"
#include "rendezvous/link_poison.h"

#include <string.h>

static bool is_float(symmem_dtype dtype) {
    return dtype == SYMMEM_FLOAT16 || dtype == SYMMEM_BFLOAT16 || dtype == SYMMEM_FLOAT32 ||
           dtype == SYMMEM_FLOAT64;
}

bool symmem_reduce_supported(symmem_dtype dtype, symmem_reduce_op op) {
    if (symmem_dtype_size(dtype) == 0 || (unsigned)op >= SYMMEM_REDUCE_OP_COUNT)
        return false;
    return op != SYMMEM_AVG || is_float(dtype);
}

/* --- checks --------------------------------------------------------------------------------- */

/* Whether the backend has a way of its own for those without direct access to each other. */
static bool goes_apart(const sm_link *link, symmem_call_kind kind) {
    return kind >= SYMMEM_CALL_ONE_SHOT_ALL_REDUCE && kind <= SYMMEM_CALL_ALL_TO_ALL &&
           (link->context->backend->capabilities & SYMMEM_CAP_COLLECTIVES_APART) != 0;
}

static symmem_status check_reach(const sm_link *link, symmem_call_kind kind, const char *name) {
    if (link->within_direct_access || goes_apart(link, kind))
        return SYMMEM_OK;
    int32_t rank = 0;
    while (link->mapping->buffers[rank] != NULL)
        rank++;
    (void)sm_fail(SYMMEM_UNREACHABLE, name, "", "no direct access to rank %d", rank);
    return sm_error_failed_rank(rank);
}

symmem_status sm_collective_begin(sm_collective_op *op, const char *name, symmem_handle *handle,
                                  symmem_call_kind kind, int32_t channel, uint32_t timeout_ms,
                                  const symmem_stream *stream) {
    memset(op, 0, sizeof *op);
    symmem_status status = sm_handle_check(handle, name);
    if (status != SYMMEM_OK)
        return status;
    op->name = name;
    op->handle = handle;
    op->link = handle->link;
    op->stream = stream;
    op->channel = channel;
    op->timeout_ms = sm_context_timeout(handle->link->context, timeout_ms);
    op->call.size = sizeof op->call;
    op->call.name = name;
    op->call.kind = kind;
    bool composed =
        kind >= SYMMEM_CALL_LOW_CONTENTION_ALL_GATHER && kind != SYMMEM_CALL_ALL_TO_ALL_V;
    if (!composed && !sm_backend_has(op->link->context, SYMMEM_CAP_COLLECTIVES)) {
        return sm_fail(SYMMEM_UNSUPPORTED, name, "", "the backend has no collectives");
    }
    if (kind == SYMMEM_CALL_ALL_TO_ALL_V)
        status = sm_need_capability(op->link->context, SYMMEM_CAP_SPLITS, name,
                                    "collectives with splits in memory");
    if (kind >= SYMMEM_CALL_REDUCE_SCATTER_V)
        status = sm_need_capability(op->link->context, SYMMEM_CAP_TILES, name,
                                    "reductions of a piece of all ranks' memory");
    if (status == SYMMEM_OK)
        status = sm_signal_check_channel(op->link, channel, name);
    if (status == SYMMEM_OK)
        status = sm_stream_fits(op->link->context, stream, op->link->device, name);
    if (status == SYMMEM_OK)
        status = sm_link_refuse_poisoned(op->link, name);
    return status == SYMMEM_OK ? check_reach(op->link, kind, name) : status;
}

bool sm_collective_inside(const sm_collective_op *op, const sm_tensor *tensor) {
    const sm_link *link = op->link;
    uintptr_t begin = (uintptr_t)link->mapping->buffers[link->group->rank] + link->block_offset;
    uintptr_t at = (uintptr_t)tensor->data;
    return tensor->count == 0 || (at >= begin && at - begin < link->block_bytes);
}

bool sm_collective_is_of(const sm_link *link, const sm_tensor *tensor) {
    const uintptr_t begin = (uintptr_t)link->mapping->buffers[link->group->rank];
    const uintptr_t at = (uintptr_t)tensor->data;
    return at >= begin && at - begin <= link->buffer_bytes &&
           tensor->bytes <= link->buffer_bytes - (at - begin);
}

symmem_status sm_collective_symmetric(const sm_collective_op *op, const sm_tensor *tensor,
                                      size_t *offset_p) {
    const sm_link *link = op->link;
    *offset_p = link->block_offset;
    if (tensor->count == 0)
        return SYMMEM_OK; /* wherever it is */
    if (!sm_collective_inside(op, tensor)) {
        return sm_fail(SYMMEM_NOT_SYMMETRIC, op->name, "", "%s at %p is not in the handle's block",
                       tensor->what, (void *)tensor->data);
    }
    const char *base = (const char *)link->mapping->buffers[link->group->rank];
    size_t at = (size_t)(tensor->data - base) - link->block_offset;
    if (tensor->bytes > link->block_bytes - at) {
        (void)sm_fail(SYMMEM_OUT_OF_RANGE, op->name, "",
                      "%s of %zu bytes at byte %zu of a block of %zu", tensor->what, tensor->bytes,
                      at, link->block_bytes);
        return sm_error_sizes(link->block_bytes - at, tensor->bytes);
    }
    *offset_p += at;
    return SYMMEM_OK;
}

symmem_status sm_collective_disjoint(const sm_collective_op *op, const sm_tensor *tensor,
                                     size_t offset, size_t bytes) {
    uintptr_t begin = (uintptr_t)tensor->data, end = begin + tensor->bytes;
    for (int32_t rank = 0; rank < op->link->group->world_size; rank++) {
        uintptr_t other = (uintptr_t)op->link->mapping->buffers[rank] + offset;
        if (op->link->mapping->buffers[rank] == NULL) /* elsewhere */
            continue;
        if (begin < other + bytes && other < end) {
            (void)sm_fail(SYMMEM_INVALID_ARGUMENT, op->name, "",
                          "%s overlaps the symmetric argument of rank %d", tensor->what, rank);
            return sm_error_failed_rank(rank);
        }
    }
    return SYMMEM_OK;
}

symmem_status sm_collective_disjoint_or_chunk(const sm_collective_op *op, const sm_tensor *in,
                                              size_t offset, size_t bytes) {
    int32_t rank = op->link->group->rank;
    const char *chunk = (const char *)op->link->mapping->buffers[rank] + offset;
    if (in->data == chunk + (size_t)rank * in->bytes)
        return SYMMEM_OK;
    return sm_collective_disjoint(op, in, offset, bytes);
}

symmem_status sm_collective_reduction(sm_collective_op *op, symmem_dtype dtype,
                                      symmem_reduce_op reduce_op) {
    if ((unsigned)reduce_op >= SYMMEM_REDUCE_OP_COUNT)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, op->name, "", "unknown operation %d",
                       (int)reduce_op);
    if (!symmem_reduce_supported(dtype, reduce_op))
        return sm_fail(SYMMEM_UNSUPPORTED, op->name, "", "no %s of %s",
                       sm_reduce_op_name(reduce_op), symmem_dtype_name(dtype));
    op->call.dtype = dtype;
    op->call.op = reduce_op;
    return SYMMEM_OK;
}

/* --- running -------------------------------------------------------------------------------- */

uint64_t sm_collective_mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Zero if calls are not compared. */
static symmem_call_id collective_call_id(const sm_collective_op *op) {
    const symmem_collective *call = &op->call;
    if (!op->link->context->check_collectives)
        return (symmem_call_id){.kind = SYMMEM_CALL_NONE};
    uint64_t detail = sm_collective_mix(op->detail, call->offset);
    detail = sm_collective_mix(detail, (uint64_t)(int64_t)call->root);
    detail = sm_collective_mix(detail, call->in_row);
    detail = sm_collective_mix(detail, call->out_row);
    return (symmem_call_id){.kind = (uint32_t)call->kind,
                            .dtype = (uint16_t)call->dtype,
                            .op = (uint16_t)call->op,
                            .count = call->count,
                            .detail = detail};
}

static symmem_status cover_tensor(const sm_collective_op *op, sm_refs *refs,
                                  const sm_tensor *tensor) {
    if (tensor == NULL || tensor->count == 0 || sm_collective_is_of(op->link, tensor))
        return SYMMEM_OK;
    return sm_refs_cover(refs, op->link->context, op->name, tensor->data, tensor->bytes);
}

symmem_status sm_collective_covers(const sm_collective_op *op, const sm_tensor *tensor) {
    sm_refs refs;
    int32_t device;
    sm_refs_init(&refs, NULL);
    symmem_status status = cover_tensor(op, &refs, tensor);
    if (status == SYMMEM_OK)
        status = sm_refs_device(&refs, op->link->context, op->name, op->link->device, &device);
    sm_refs_finish(&refs);
    return status;
}

symmem_status sm_collective_run(sm_collective_op *op, const sm_tensor *in, const sm_tensor *out) {
    sm_refs refs;
    int32_t device;
    /* Forms are told apart by it, and an empty tensor's address is not the same on all ranks. */
    if (op->call.count == 0 && op->call.in_splits == NULL && op->call.splits.in == NULL)
        op->call.in = NULL;
    sm_refs_init(&refs, op->link);
    symmem_status status = sm_context_point(op->link->context, op->name, "collective.before");
    if (status == SYMMEM_OK)
        status = cover_tensor(op, &refs, in);
    if (status == SYMMEM_OK)
        status = cover_tensor(op, &refs, out);
    if (status == SYMMEM_OK)
        status = cover_tensor(op, &refs, op->more);
    if (status == SYMMEM_OK)
        status = sm_refs_device(&refs, op->link->context, op->name, op->link->device, &device);
    if (op->keep.object != NULL)
        refs.refs[refs.count++] = op->keep;
    if (status == SYMMEM_OK) {
        const sm_channel_op signal = {
            .kind = op->compose != NULL ? SM_COMPOSED : SM_COLLECTIVE,
            .name = op->name,
            .begin_point = "collective.begin",
            .done_point = "collective.done",
            .link = op->link,
            .channel = op->channel,
            .timeout_ms = op->timeout_ms,
            .refs = refs.refs,
            .ref_count = refs.count,
            .id = collective_call_id(op),
            .collective = &op->call,
            .compose = op->compose,
            .plan = op->plan,
        };
        status = sm_channel_submit(&signal, op->stream);
        if (status == SYMMEM_OK && op->reduction != NULL)
            sm_repeat_keep(op, in, out, &signal.id);
    }
    sm_refs_finish(&refs);
    return status;
}
