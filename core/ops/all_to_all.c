/* SPDX-License-Identifier: BSD-3-Clause */
/* The public all-to-alls: the checks of their arguments. Splits that the call is given outlive it.
 * What splits in memory hold is checked when the operation runs. */
#include "ops/collective.h"

#include <stdlib.h>

/* The splits of one call, for as long as it may run. */
typedef struct kept_splits {
    atomic_int references;
    size_t numbers[]; /* world_size of the input, world_size of the output */
} kept_splits;

static void retain_splits(void *object) {
    kept_splits *kept = object;
    /* relaxed: who retains has a reference already */
    atomic_fetch_add_explicit(&kept->references, 1, memory_order_relaxed);
}

static void release_splits(void *object) {
    kept_splits *kept = object;
    /* release, acquire: pairs with the other releases; the last one frees what all have read */
    if (atomic_fetch_sub_explicit(&kept->references, 1, memory_order_acq_rel) == 1)
        free(kept);
}

static symmem_status wrong_sum(const char *name, const sm_tensor *tensor, size_t sum) {
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, name, "",
                  "the splits of %s add up to %zu elements, it has %zu", tensor->what, sum,
                  tensor->count);
    return sm_error_sizes(tensor->count, sum);
}

/* What the user gave for one tensor, or equal parts. */
static symmem_status take_splits(const char *name, const sm_tensor *tensor, const size_t *given,
                                 int32_t world_size, size_t *numbers) {
    size_t sum = 0;
    if (given == NULL && tensor->count % (size_t)world_size != 0) {
        (void)sm_fail(SYMMEM_INVALID_ARGUMENT, name, "",
                      "%zu elements of %s cannot be cut into %d equal parts", tensor->count,
                      tensor->what, world_size);
        return sm_error_sizes((uint64_t)world_size, tensor->count);
    }
    for (int32_t rank = 0; rank < world_size; rank++) {
        numbers[rank] = given != NULL ? given[rank] : tensor->count / (size_t)world_size;
        if (!sm_add(sum, numbers[rank], &sum))
            return sm_fail(SYMMEM_OVERFLOW, name, "", "the sum of the splits of %s overflows",
                           tensor->what);
    }
    return sum == tensor->count ? SYMMEM_OK : wrong_sum(name, tensor, sum);
}

/* INVALID_ARGUMENT if out overlaps this rank's input, or a peer's block. This rank does not know
 * where in its block a peer's input lies. */
static symmem_status check_disjoint(const sm_collective_op *call, const sm_tensor *in,
                                    const sm_tensor *out) {
    symmem_status status = sm_tensor_disjoint(out, in, call->name);
    if (status != SYMMEM_OK || sm_collective_inside(call, out))
        return status;
    return sm_collective_disjoint(call, out, call->link->block_offset, call->link->block_bytes);
}

static symmem_status run_all_to_all(sm_collective_op *call, const sm_tensor *in,
                                    const size_t *in_splits, const sm_tensor *out,
                                    const size_t *out_splits) {
    size_t world_size = (size_t)call->link->group->world_size;
    kept_splits *kept = malloc(sizeof *kept + 2 * world_size * sizeof kept->numbers[0]);
    if (kept == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, call->name, "", "no memory for the splits");
    atomic_init(&kept->references, 1);
    symmem_status status =
        take_splits(call->name, in, in_splits, (int32_t)world_size, kept->numbers);
    if (status == SYMMEM_OK)
        status = take_splits(call->name, out, out_splits, (int32_t)world_size,
                             kept->numbers + world_size);
    if (status == SYMMEM_OK) {
        call->call.dtype = in->dtype;
        call->call.in = in->count > 0 ? in->data : NULL;
        call->call.out = out->data;
        call->call.in_splits = kept->numbers;
        call->call.out_splits = kept->numbers + world_size;
        call->keep = (symmem_ref){retain_splits, release_splits, kept};
        status = sm_collective_run(call, NULL, out);
    }
    release_splits(kept);
    return status;
}

symmem_status symmem_all_to_all_out(symmem_handle *handle, const DLTensor *input,
                                    const size_t *in_splits, const DLTensor *out,
                                    const size_t *out_splits, int32_t channel, uint32_t timeout_ms,
                                    symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char name[] = "all_to_all_out";
    sm_collective_op call;
    sm_tensor in, result;
    size_t offset; /* the ranks' need not be the same */
    symmem_status status = sm_collective_begin(&call, name, handle, SYMMEM_CALL_ALL_TO_ALL, channel,
                                               timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, input, name, "input", &in);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, out, name, "out", &result);
    if (status == SYMMEM_OK)
        status = sm_tensor_same_dtype(&in, &result, name);
    if (status == SYMMEM_OK)
        status = sm_collective_symmetric(&call, &in, &offset);
    if (status == SYMMEM_OK)
        status = check_disjoint(&call, &in, &result);
    return status == SYMMEM_OK ? run_all_to_all(&call, &in, in_splits, &result, out_splits)
                               : status;
}

/* --- with splits in memory ------------------------------------------------------------------ */

/* One call's arguments, and what has been found out about them. */
typedef struct v_call {
    sm_collective_op op; /* name, handle, kind: filled in first */
    const DLTensor *input, *in_splits, *out, *out_splits;
    bool has_offsets; /* in_splits has a second row of them */
    bool one_expert;
    sm_tensor in, splits, to, to_splits;
} v_call;

static symmem_status refuse_tensor(const v_call *call, const sm_tensor *tensor, const char *what) {
    return sm_fail(SYMMEM_INVALID_ARGUMENT, call->op.name, "", "%s %s", tensor->what, what);
}

static symmem_status read_tensors(v_call *call) {
    symmem_context *context = call->op.link->context;
    const char *name = call->op.name;
    symmem_status status = sm_tensor_read(context, call->input, name, "input", &call->in);
    if (status == SYMMEM_OK)
        status =
            sm_tensor_read(context, call->in_splits, name,
                           call->has_offsets ? "in_splits_offsets" : "in_splits", &call->splits);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(context, call->out, name, "out", &call->to);
    if (status == SYMMEM_OK)
        status =
            sm_tensor_read(context, call->out_splits, name, "out_splits_offsets", &call->to_splits);
    return status == SYMMEM_OK ? sm_tensor_same_dtype(&call->in, &call->to, name) : status;
}

/* Elements of a row; the number of rows is shape[0]. */
static symmem_status row_of(const v_call *call, const sm_tensor *tensor, size_t *row_p) {
    if (tensor->ndim == 0)
        return refuse_tensor(call, tensor, "has no rows");
    *row_p = 1;
    for (int32_t d = 1; d < tensor->ndim; d++)
        if (!sm_mul(*row_p, (size_t)tensor->shape[d], row_p))
            return sm_fail(SYMMEM_OVERFLOW, call->op.name, "", "a row of %s overflows",
                           tensor->what);
    return SYMMEM_OK;
}

static symmem_status check_rows(v_call *call) {
    size_t row, other;
    symmem_status status = row_of(call, &call->in, &row);
    if (status == SYMMEM_OK)
        status = row_of(call, &call->to, &other);
    if (status != SYMMEM_OK)
        return status;
    if (row != other) {
        (void)sm_fail(SYMMEM_INVALID_ARGUMENT, call->op.name, "",
                      "a row of out has %zu elements, one of input %zu", other, row);
        return sm_error_sizes(row, other);
    }
    call->op.call.in_row = row;
    call->op.call.splits.in_rows = (size_t)call->in.shape[0];
    call->op.call.splits.out_rows = (size_t)call->to.shape[0];
    return SYMMEM_OK;
}

/* Numbers of rows, in one row or with a second one of offsets. */
static symmem_status check_numbers(const v_call *call, const sm_tensor *tensor, bool has_offsets,
                                   size_t *parts_p) {
    if (tensor->dtype != SYMMEM_INT64)
        return refuse_tensor(call, tensor, "is not int64");
    if (tensor->ndim != (has_offsets ? 2 : 1) || (has_offsets && tensor->shape[0] != 2))
        return refuse_tensor(
            call, tensor, has_offsets ? "has not the shape (2, splits)" : "has not one dimension");
    *parts_p = (size_t)tensor->shape[tensor->ndim - 1];
    return SYMMEM_OK;
}

static symmem_status check_splits(v_call *call) {
    const size_t ranks = (size_t)call->op.link->group->world_size;
    symmem_splits *splits = &call->op.call.splits;
    size_t parts = 0, others = 0;
    symmem_status status = check_numbers(call, &call->splits, call->has_offsets, &parts);
    if (status == SYMMEM_OK)
        status = check_numbers(call, &call->to_splits, true, &others);
    if (status != SYMMEM_OK)
        return status;
    if (parts % ranks != 0 || parts != others || (call->one_expert && parts != ranks)) {
        (void)sm_fail(SYMMEM_INVALID_ARGUMENT, call->op.name, "",
                      "%zu splits and room for %zu among %zu ranks", parts, others, ranks);
        return sm_error_sizes(parts == others ? ranks : parts, others);
    }
    splits->experts = parts / ranks;
    call->op.call.out_row = splits->experts;
    if (splits->align > 0 && splits->experts > (size_t)INT64_MAX / splits->align)
        return sm_fail(SYMMEM_OVERFLOW, call->op.name, "", "the aligned experts' rows overflow");
    splits->in = (const int64_t *)(const void *)call->splits.data;
    splits->in_offsets = call->has_offsets ? splits->in + parts : NULL;
    splits->out = (int64_t *)(void *)call->to_splits.data;
    return SYMMEM_OK;
}

/* INVALID_ARGUMENT if an output overlaps another argument, or a peer's block. This rank does not
 * know where in its block a peer's input lies. */
static symmem_status check_output(const v_call *call, const sm_tensor *output) {
    const sm_collective_op *op = &call->op;
    symmem_status status = sm_tensor_disjoint(output, &call->in, op->name);
    if (status == SYMMEM_OK)
        status = sm_tensor_disjoint(output, &call->splits, op->name);
    if (status != SYMMEM_OK || sm_collective_inside(op, output))
        return status;
    return sm_collective_disjoint(op, output, op->link->block_offset, op->link->block_bytes);
}

static symmem_status check_places(const v_call *call) {
    size_t offset; /* the ranks' need not be the same */
    symmem_status status = sm_collective_symmetric(&call->op, &call->in, &offset);
    if (status == SYMMEM_OK)
        status = check_output(call, &call->to);
    if (status == SYMMEM_OK)
        status = check_output(call, &call->to_splits);
    return status == SYMMEM_OK ? sm_tensor_disjoint(&call->to, &call->to_splits, call->op.name)
                               : status;
}

static symmem_status run(v_call *call) {
    symmem_collective *collective = &call->op.call;
    collective->dtype = call->in.dtype;
    collective->in = call->in.count > 0 ? call->in.data : NULL;
    collective->out = call->to.data;
    call->op.more = &call->to_splits;
    call->op.detail = sm_collective_mix(
        collective->splits.align, (uint64_t)collective->splits.by_experts << 1 | call->has_offsets);
    return sm_collective_run(&call->op, &call->splits, &call->to);
}

/* Checks everything and runs it. align: 0 for none; negative: refused. */
static symmem_status all_to_all_v(v_call *call, const char *name, symmem_handle *handle,
                                  int64_t align, int32_t channel, uint32_t timeout_ms,
                                  const symmem_stream *stream) {
    symmem_status status = sm_collective_begin(&call->op, name, handle, SYMMEM_CALL_ALL_TO_ALL_V,
                                               channel, timeout_ms, stream);
    if (status != SYMMEM_OK)
        return status;
    if (align < 0)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "major_align is less than 1");
    call->op.call.splits.align = (size_t)align;
    call->op.call.splits.by_experts = call->has_offsets;
    status = read_tensors(call);
    if (status == SYMMEM_OK)
        status = check_rows(call);
    if (status == SYMMEM_OK)
        status = check_splits(call);
    if (status == SYMMEM_OK)
        status = check_places(call);
    return status == SYMMEM_OK ? run(call) : status;
}

symmem_status symmem_all_to_all_v(symmem_handle *handle, const DLTensor *input,
                                  const DLTensor *in_splits, const DLTensor *out,
                                  const DLTensor *out_splits_offsets, int32_t channel,
                                  uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    v_call call = {.input = input,
                   .in_splits = in_splits,
                   .out = out,
                   .out_splits = out_splits_offsets,
                   .one_expert = true};
    return all_to_all_v(&call, "all_to_all_v", handle, 0, channel, timeout_ms, stream);
}

symmem_status symmem_all_to_all_v_2d(symmem_handle *handle, const DLTensor *input,
                                     const DLTensor *in_splits, int64_t major_align,
                                     const DLTensor *out, const DLTensor *out_splits_offsets,
                                     int32_t channel, uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    v_call call = {
        .input = input, .in_splits = in_splits, .out = out, .out_splits = out_splits_offsets};
    return all_to_all_v(&call, "all_to_all_v_2d", handle, major_align >= 1 ? major_align : -1,
                        channel, timeout_ms, stream);
}

symmem_status symmem_all_to_all_v_2d_offset(symmem_handle *handle, const DLTensor *input,
                                            const DLTensor *in_splits_offsets, const DLTensor *out,
                                            const DLTensor *out_splits_offsets, int32_t channel,
                                            uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    v_call call = {.input = input,
                   .in_splits = in_splits_offsets,
                   .out = out,
                   .out_splits = out_splits_offsets,
                   .has_offsets = true};
    return all_to_all_v(&call, "all_to_all_v_2d_offset", handle, 0, channel, timeout_ms, stream);
}
