/* SPDX-License-Identifier: BSD-3-Clause */
/* The public reductions of tiles: checks of their arguments, and their composition of barriers and
 * the backend's reduction of a piece of all ranks' memory. */
#include "ops/compose.h"
#include "ops/matrix.h"
#include "rendezvous/handle.h"

/* One tile: rows of bytes, the first one at an address or an offset. */
typedef struct rows {
    uintptr_t at;
    size_t count, bytes, distance;
} rows;

/* One call's arguments, and what has been found out about them. */
typedef struct tile_call {
    sm_collective_op op;
    int32_t tile_count;
    const DLTensor *const *in_tiles;
    const int32_t *roots;
    const DLTensor *out_tile;
    symmem_reduce_op reduce;
    bool is_root;
    int32_t own; /* the tile that this rank is the root of */
    sm_tensor out;
    symmem_tile_reduction plan; /* rows 0: none */
} tile_call;

static symmem_status refuse(const tile_call *call, const sm_strided *tile, const char *what) {
    return sm_fail(SYMMEM_INVALID_ARGUMENT, call->op.name, "", "%s %s", tile->what, what);
}

/* --- one tile ------------------------------------------------------------------------------- */

static symmem_status read_tile(const tile_call *call, const DLTensor *from, const char *what,
                               sm_strided *tile) {
    symmem_status status = sm_strided_read(call->op.link->context, from, call->op.name, what, tile);
    if (status == SYMMEM_OK)
        status = sm_strided_ndim(tile, 2, 2, call->op.name);
    if (status != SYMMEM_OK || tile->count == 0)
        return status;
    if (tile->shape[1] > 1 && tile->strides[1] != 1)
        return refuse(call, tile, "has rows whose elements do not follow each other");
    if (tile->shape[0] > 1 && tile->strides[0] < tile->shape[1])
        return refuse(call, tile, "has rows that overlap");
    if (tile->shape[0] <= 1) /* the stride of one row means nothing */
        tile->strides[0] = tile->shape[1];
    return SYMMEM_OK;
}

static rows rows_of(const sm_strided *tile) {
    return (rows){.at = (uintptr_t)tile->data,
                  .count = tile->count == 0 ? 0 : (size_t)tile->shape[0],
                  .bytes = (size_t)tile->shape[1] * tile->element,
                  .distance = (size_t)tile->strides[0] * tile->element};
}

static uintptr_t end_of(const rows *r) {
    return r->at + (r->count - 1) * r->distance + r->bytes;
}

/* Whether [at, at + bytes) touches a row of b. */
static bool touches(uintptr_t at, size_t bytes, const rows *b) {
    if (at + bytes <= b->at || at >= end_of(b))
        return false;
    /* The last row of b that begins before the end: only that one can reach so far. */
    size_t last = (at + bytes - 1 - b->at) / b->distance;
    last = last < b->count ? last : b->count - 1;
    return b->at + last * b->distance + b->bytes > at;
}

static bool share_elements(const rows *a, const rows *b) {
    if (a->count == 0 || b->count == 0 || end_of(a) <= b->at || end_of(b) <= a->at)
        return false;
    for (size_t row = 0; row < a->count; row++)
        if (touches(a->at + row * a->distance, a->bytes, b))
            return true;
    return false;
}

/* --- all tiles ------------------------------------------------------------------------------ */

static symmem_status check_roots(tile_call *call) {
    const int32_t ranks = call->op.link->group->world_size, own = call->op.link->group->rank;
    uint64_t seen[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    if (call->tile_count < 0) {
        (void)sm_fail(SYMMEM_OUT_OF_RANGE, call->op.name, "", "%d tiles", (int)call->tile_count);
        return sm_error_sizes((uint64_t)ranks, (uint64_t)(int64_t)call->tile_count);
    }
    if (call->tile_count > 0 && (call->in_tiles == NULL || call->roots == NULL))
        return sm_fail(SYMMEM_INVALID_ARGUMENT, call->op.name, "", "in_tiles or roots is NULL");
    for (int32_t i = 0; i < call->tile_count; i++) {
        const int32_t root = call->roots[i];
        symmem_status status = sm_handle_rank_check(call->op.handle, call->op.name, root);
        if (status != SYMMEM_OK)
            return status;
        if (seen[root / 64] >> root % 64 & 1)
            return sm_fail(SYMMEM_INVALID_ARGUMENT, call->op.name, "", "rank %d is a root twice",
                           (int)root);
        seen[root / 64] |= (uint64_t)1 << root % 64;
        call->is_root = call->is_root || root == own;
        call->own = root == own ? i : call->own;
    }
    return SYMMEM_OK;
}

/* Its place goes into the call's id, and into the plan if it is this rank's. */
static symmem_status take_tile(tile_call *call, int32_t i, const sm_strided *tile) {
    sm_collective_op *op = &call->op;
    const sm_tensor flat = {.what = tile->what,
                            .data = tile->data,
                            .dtype = tile->dtype,
                            .count = tile->count,
                            .bytes = tile->extent};
    size_t offset;
    if (i > 0 && tile->dtype != op->call.dtype)
        return refuse(call, tile, "is of another dtype than the first one");
    symmem_status status = sm_collective_symmetric(op, &flat, &offset);
    if (status != SYMMEM_OK)
        return status;
    op->call.dtype = tile->dtype;
    op->call.count += tile->count;
    op->detail = sm_collective_mix(op->detail, offset);
    op->detail = sm_collective_mix(op->detail, (uint64_t)tile->shape[0]);
    op->detail = sm_collective_mix(op->detail, (uint64_t)tile->shape[1]);
    op->detail = sm_collective_mix(op->detail, tile->count == 0 ? 0 : (uint64_t)tile->strides[0]);
    op->detail = sm_collective_mix(op->detail, (uint64_t)call->roots[i]);
    if (call->is_root && i == call->own)
        call->plan = (symmem_tile_reduction){.size = sizeof call->plan,
                                             .offset = offset,
                                             .rows = tile->count == 0 ? 0 : (size_t)tile->shape[0],
                                             .row = (size_t)tile->shape[1],
                                             .src_row = (size_t)tile->strides[0]};
    return SYMMEM_OK;
}

static symmem_status read_tiles(tile_call *call) {
    sm_strided tile;
    symmem_status status = SYMMEM_OK;
    call->op.call.dtype = SYMMEM_FLOAT32; /* of no tiles */
    for (int32_t i = 0; i < call->tile_count && status == SYMMEM_OK; i++) {
        status = read_tile(call, call->in_tiles[i], "in_tile", &tile);
        if (status == SYMMEM_OK)
            status = take_tile(call, i, &tile);
    }
    return status == SYMMEM_OK
               ? sm_collective_reduction(&call->op, call->op.call.dtype, call->reduce)
               : status;
}

/* --- the result ----------------------------------------------------------------------------- */

/* Whether out is this rank's own tile, row by row. */
static bool is_in_place(const rows *out, const rows *tile) {
    return out->at == tile->at && (out->count == 1 || out->distance == tile->distance);
}

/* Each rank's tile i lies where this rank's does. */
static symmem_status check_apart(const tile_call *call, const rows *out, int32_t i) {
    const sm_link *link = call->op.link;
    const int32_t own = link->group->rank;
    sm_strided tile;
    symmem_status status = read_tile(call, call->in_tiles[i], "in_tile", &tile);
    if (status != SYMMEM_OK)
        return status;
    const rows here = rows_of(&tile);
    for (int32_t rank = 0; rank < link->group->world_size; rank++) {
        rows there = here;
        there.at +=
            (uintptr_t)link->mapping->buffers[rank] - (uintptr_t)link->mapping->buffers[own];
        if (!share_elements(out, &there) ||
            (rank == own && i == call->own && is_in_place(out, &there)))
            continue;
        (void)sm_fail(SYMMEM_INVALID_ARGUMENT, call->op.name, "",
                      "out_tile overlaps a tile of rank %d", (int)rank);
        return sm_error_failed_rank(rank);
    }
    return SYMMEM_OK;
}

/* Rows without gaps on both sides are one. */
static void join_rows(symmem_tile_reduction *plan) {
    if (plan->rows > 1 && plan->src_row == plan->row && plan->dst_row == plan->row) {
        plan->row *= plan->rows;
        plan->rows = 1;
    }
    if (plan->rows == 1)
        plan->src_row = plan->dst_row = plan->row;
}

static symmem_status read_out(tile_call *call) {
    sm_strided out, tile;
    symmem_status status = read_tile(call, call->out_tile, "out_tile", &out);
    if (status == SYMMEM_OK)
        status = read_tile(call, call->in_tiles[call->own], "in_tile", &tile);
    if (status == SYMMEM_OK)
        status = sm_strided_shape(&out, 2, tile.shape, call->op.name);
    if (status != SYMMEM_OK)
        return status;
    if (out.dtype != tile.dtype)
        return refuse(call, &out, "is of another dtype than its tile");
    const rows to = rows_of(&out);
    for (int32_t i = 0; i < call->tile_count && status == SYMMEM_OK; i++)
        status = check_apart(call, &to, i);
    call->plan.dtype = out.dtype;
    call->plan.op = call->reduce;
    call->plan.dst = out.data;
    call->plan.dst_row = (size_t)out.strides[0];
    call->out = (sm_tensor){.what = "out_tile",
                            .data = out.data,
                            .dtype = out.dtype,
                            .count = out.count,
                            .bytes = out.extent};
    join_rows(&call->plan);
    return status;
}

/* --- the calls ------------------------------------------------------------------------------ */

static symmem_status reduce_in_steps(const sm_channel_op *op, const symmem_exec *exec,
                                     bool capturing) {
    sm_parts parts;
    sm_parts_begin(&parts, op, exec, capturing);
    symmem_status status = sm_parts_barrier(&parts);
    if (status == SYMMEM_OK)
        status = sm_parts_reduce(&parts, op->plan);
    return status == SYMMEM_OK ? sm_parts_barrier(&parts) : status;
}

static symmem_status reduce_tiles(tile_call *call, const char *name, symmem_handle *handle,
                                  symmem_call_kind kind, int32_t channel, uint32_t timeout_ms,
                                  const symmem_stream *stream) {
    symmem_status status =
        sm_collective_begin(&call->op, name, handle, kind, channel, timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = check_roots(call);
    if (status == SYMMEM_OK)
        status = read_tiles(call);
    if (status == SYMMEM_OK && call->is_root)
        status = read_out(call);
    if (status != SYMMEM_OK)
        return status;
    call->op.compose = reduce_in_steps;
    call->op.plan = &call->plan;
    return sm_collective_run(&call->op, NULL, call->is_root ? &call->out : NULL);
}

symmem_status symmem_tile_reduce(symmem_handle *handle, const DLTensor *in_tile,
                                 symmem_reduce_op op, int32_t root, const DLTensor *out_tile,
                                 int32_t channel, uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    tile_call call = {
        .tile_count = 1, .in_tiles = &in_tile, .roots = &root, .out_tile = out_tile, .reduce = op};
    return reduce_tiles(&call, "tile_reduce", handle, SYMMEM_CALL_TILE_REDUCE, channel, timeout_ms,
                        stream);
}

symmem_status symmem_multi_root_tile_reduce(symmem_handle *handle, int32_t tile_count,
                                            const DLTensor *const *in_tiles, const int32_t *roots,
                                            symmem_reduce_op op, const DLTensor *out_tile,
                                            int32_t channel, uint32_t timeout_ms,
                                            symmem_stream *stream) {
    SM_PUBLIC_CALL;
    tile_call call = {.tile_count = tile_count,
                      .in_tiles = in_tiles,
                      .roots = roots,
                      .out_tile = out_tile,
                      .reduce = op};
    return reduce_tiles(&call, "multi_root_tile_reduce", handle, SYMMEM_CALL_MULTI_ROOT_TILE_REDUCE,
                        channel, timeout_ms, stream);
}
