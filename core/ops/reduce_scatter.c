/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduce-scatter: checks of its arguments. */
#include "ops/reduce.h"
#include "ops/repeat.h"

static symmem_status check_flat(const sm_collective_op *op, const sm_tensor *tensor) {
    if (tensor->ndim == 1)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, op->name, "", "%s has %d dimensions, not one",
                  tensor->what, (int)tensor->ndim);
    return sm_error_sizes(1, (uint64_t)tensor->ndim);
}

static symmem_status divide(const sm_collective_op *op, int64_t size, int64_t *part_p) {
    int64_t ranks = op->link->group->world_size;
    *part_p = size / ranks;
    if (size % ranks == 0)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, op->name, "",
                  "%lld elements are not divisible by %lld ranks", (long long)size,
                  (long long)ranks);
    return sm_error_sizes((uint64_t)(*part_p * ranks), (uint64_t)size);
}

/* out has the input's shape but for the dimension `split`, which is divided. */
static symmem_status check_split(const sm_reduction_call *call, int32_t split, int64_t *part_p) {
    const sm_tensor *in = &call->input, *out = &call->out;
    if (in->ndim == 0)
        return sm_reduction_unequal(&call->op, "dimensions of input", 1, 0);
    if (out->ndim != in->ndim)
        return sm_reduction_unequal(&call->op, "dimensions of out", (uint64_t)in->ndim,
                                    (uint64_t)out->ndim);
    symmem_status status = divide(&call->op, in->shape[split], part_p);
    for (int32_t d = 0; status == SYMMEM_OK && d < in->ndim; d++) {
        int64_t expected = d == split ? *part_p : in->shape[d];
        if (out->shape[d] != expected)
            status = sm_reduction_unequal(&call->op, "size of a dimension of out",
                                          (uint64_t)expected, (uint64_t)out->shape[d]);
    }
    return status;
}

/* --- directly ----------------------------------------------------------------------- */

static symmem_status scatter(sm_reduction_call *call, int64_t row) {
    sm_collective_op *op = &call->op;
    op->call.count = call->out.count;
    op->call.in_row = (size_t)row * (size_t)op->link->group->world_size;
    op->call.out_row = (size_t)row;
    op->call.out = call->out.data;
    symmem_status status = sm_collective_symmetric(op, &call->input, &op->call.offset);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(op, &call->out, op->call.offset, call->input.bytes);
    return status == SYMMEM_OK ? sm_collective_run(op, NULL, &call->out) : status;
}

symmem_status symmem_reduce_scatter_out(symmem_handle *handle, const DLTensor *input,
                                        symmem_reduce_op op, bool split_last_dim,
                                        const DLTensor *out, int32_t channel, uint32_t timeout_ms,
                                        symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_reduction_call call;
    symmem_status status;
    int64_t row = 0;
    sm_reduction reduction = sm_reduction_of("reduce_scatter_out", SYMMEM_CALL_REDUCE_SCATTER,
                                             handle, input, op, channel, timeout_ms, stream);
    sm_reduction_to(&reduction, out);
    reduction.split = split_last_dim;
    if (sm_repeat_run(&reduction, &status))
        return status;
    status = sm_reduction_begin(&reduction, &call);
    if (status == SYMMEM_OK && !split_last_dim)
        status = check_flat(&call.op, &call.input);
    if (status == SYMMEM_OK && !split_last_dim)
        status = check_flat(&call.op, &call.out);
    if (status == SYMMEM_OK)
        status = check_split(&call, call.input.ndim - 1, &row);
    call.op.detail = split_last_dim ? SM_FORM_SPLIT : SM_FORM_PLAIN;
    return status == SYMMEM_OK ? scatter(&call, row) : status;
}

/* --- with little contention --------------------------------------------------------- */

static symmem_status pull(sm_reduction_call *call) {
    sm_collective_op *op = &call->op;
    symmem_status status = sm_collective_symmetric(op, &call->input, &op->call.offset);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(op, &call->out, op->call.offset, call->input.bytes);
    return status == SYMMEM_OK ? sm_collective_run(op, NULL, &call->out) : status;
}

static symmem_status push(sm_reduction_call *call) {
    sm_collective_op *op = &call->op;
    size_t element = symmem_dtype_size(call->input.dtype);
    size_t bytes = call->input.bytes;
    if (op->handle->offset % element != 0)
        return sm_fail(SYMMEM_MISALIGNED, op->name, "",
                       "the handle's offset %zu is not aligned to elements of %zu bytes",
                       op->handle->offset, element);
    symmem_status status = sm_handle_bounds(op->handle, op->name, 0, bytes);
    op->call.offset = op->handle->offset;
    op->call.in = call->input.data;
    op->detail = SM_FORM_COPY;
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(op, &call->input, op->call.offset, bytes);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(op, &call->out, op->call.offset, bytes);
    if (status == SYMMEM_OK)
        status = sm_reduction_distinct(op, &call->input, &call->out, false);
    return status == SYMMEM_OK ? sm_collective_run(op, &call->input, &call->out) : status;
}

static symmem_status check_low_contention(const sm_reduction_call *call) {
    int64_t part;
    symmem_reduce_op op = call->op.call.op;
    if (op != SYMMEM_SUM && op != SYMMEM_AVG)
        return sm_fail(SYMMEM_UNSUPPORTED, call->op.name, "", "no %s, only sum and avg",
                       sm_reduce_op_name(op));
    return check_split(call, 0, &part);
}

symmem_status symmem_low_contention_reduce_scatter(symmem_handle *handle, const DLTensor *input,
                                                   symmem_reduce_op op, const DLTensor *out,
                                                   int32_t channel, uint32_t timeout_ms,
                                                   symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_reduction_call call;
    sm_reduction reduction =
        sm_reduction_of("low_contention_reduce_scatter", SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER,
                        handle, input, op, channel, timeout_ms, stream);
    sm_reduction_to(&reduction, out);
    symmem_status status = sm_reduction_begin(&reduction, &call);
    if (status == SYMMEM_OK)
        status = check_low_contention(&call);
    if (status != SYMMEM_OK)
        return status;
    call.op.call.count = call.out.count;
    call.op.call.out = call.out.data;
    return sm_collective_inside(&call.op, &call.input) ? pull(&call) : push(&call);
}
