/* SPDX-License-Identifier: BSD-3-Clause */
/* One-shot and two-shot all-reduce: checks of their arguments. */
#include "ops/repeat.h"
#include "ops/result_tensor.h"

/* --- what all reductions share ------------------------------------------------------ */

/* A backend tells forms apart by which pointers there are. So that all ranks have the same form, an
 * empty tensor without data gets an address as well. */
static void give_address(const sm_collective_op *op, sm_tensor *tensor) {
    const sm_link *link = op->link;
    if (tensor->data == NULL)
        tensor->data = (char *)link->mapping->buffers[link->group->rank] + link->block_offset;
}

symmem_status sm_reduction_begin(const sm_reduction *reduction, sm_reduction_call *call) {
    const char *name = reduction->name;
    symmem_status status =
        sm_collective_begin(&call->op, name, reduction->handle, reduction->kind, reduction->channel,
                            reduction->timeout_ms, reduction->stream);
    if (status == SYMMEM_OK)
        status =
            sm_tensor_read(call->op.link->context, reduction->input, name, "input", &call->input);
    if (status == SYMMEM_OK && reduction->has_buffer)
        status = sm_tensor_read(call->op.link->context, reduction->buffer, name, "buffer",
                                &call->buffer);
    if (status == SYMMEM_OK && reduction->has_buffer)
        status = sm_tensor_same_dtype(&call->buffer, &call->input, name);
    if (status == SYMMEM_OK && reduction->has_out)
        status = sm_tensor_read(call->op.link->context, reduction->out, name, "out", &call->out);
    if (status == SYMMEM_OK && reduction->has_out)
        status = sm_tensor_same_dtype(&call->input, &call->out, name);
    if (status == SYMMEM_OK)
        status = sm_collective_reduction(&call->op, call->input.dtype, reduction->op);
    if (status != SYMMEM_OK)
        return status;
    give_address(&call->op, &call->input);
    if (reduction->has_out)
        give_address(&call->op, &call->out);
    call->op.call.count = call->input.count;
    call->op.reduction = reduction->is_kept ? reduction : NULL;
    return SYMMEM_OK;
}

symmem_status sm_reduction_unequal(const sm_collective_op *op, const char *what, uint64_t expected,
                                   uint64_t actual) {
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, op->name, "", "%s: %llu, not %llu", what,
                  (unsigned long long)actual, (unsigned long long)expected);
    return sm_error_sizes(expected, actual);
}

symmem_status sm_reduction_distinct(const sm_collective_op *op, const sm_tensor *a,
                                    const sm_tensor *b, bool same_allowed) {
    uintptr_t first = (uintptr_t)a->data, second = (uintptr_t)b->data;
    if (first == second && a->bytes == b->bytes && same_allowed)
        return SYMMEM_OK;
    if (first >= second + b->bytes || second >= first + a->bytes)
        return SYMMEM_OK;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, op->name, "", "%s and %s overlap", a->what, b->what);
}

/* --- one-shot ----------------------------------------------------------------------- */

/* All that can be said of the call before there is an out. */
static symmem_status one_shot_source(sm_reduction_call *call, bool has_buffer) {
    sm_collective_op *op = &call->op;
    if (!has_buffer)
        return sm_collective_symmetric(op, &call->input, &op->call.offset);
    if (call->buffer.count != call->input.count)
        return sm_reduction_unequal(op, "elements of the input, which the buffer lacks or exceeds",
                                    call->buffer.count, call->input.count);
    symmem_status status = sm_collective_symmetric(op, &call->buffer, &op->call.offset);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(op, &call->input, op->call.offset, call->buffer.bytes);
    return status == SYMMEM_OK ? sm_collective_covers(op, &call->input) : status;
}

static symmem_status one_shot_plain(sm_reduction_call *call) {
    sm_collective_op *op = &call->op;
    symmem_status status =
        sm_collective_disjoint(op, &call->out, op->call.offset, call->input.bytes);
    op->call.out = call->out.data;
    return status == SYMMEM_OK ? sm_collective_run(op, NULL, &call->out) : status;
}

static symmem_status one_shot_copy(sm_reduction_call *call) {
    sm_collective_op *op = &call->op;
    symmem_status status =
        sm_collective_disjoint(op, &call->out, op->call.offset, call->buffer.bytes);
    if (status == SYMMEM_OK)
        status = sm_reduction_distinct(op, &call->input, &call->out, true);
    op->call.in = call->input.data;
    op->call.out = call->out.data;
    op->call.in_row = call->input.count;
    op->detail = SM_FORM_COPY;
    return status == SYMMEM_OK ? sm_collective_run(op, &call->input, &call->out) : status;
}

static symmem_status one_shot(sm_reduction *reduction) {
    sm_reduction_call call;
    symmem_status status;
    if (sm_repeat_run(reduction, &status))
        return status;
    status = sm_reduction_begin(reduction, &call);
    if (status == SYMMEM_OK)
        status = sm_tensor_alike(&call.input, &call.out, reduction->name);
    if (status == SYMMEM_OK)
        status = one_shot_source(&call, reduction->has_buffer);
    if (status != SYMMEM_OK)
        return status;
    return reduction->has_buffer ? one_shot_copy(&call) : one_shot_plain(&call);
}

/* With an out of its own. */
static symmem_status one_shot_made(const sm_reduction *reduction, DLManagedTensor **out_p) {
    sm_reduction_call call;
    DLManagedTensor *made = NULL;
    symmem_status status = sm_reduction_begin(reduction, &call);
    if (status == SYMMEM_OK && out_p == NULL)
        status = sm_fail(SYMMEM_INVALID_ARGUMENT, reduction->name, "", "out_p is NULL");
    if (status == SYMMEM_OK)
        status = one_shot_source(&call, reduction->has_buffer);
    if (status == SYMMEM_OK)
        status = sm_result_create(&call.op, &call.input, &made);
    if (status != SYMMEM_OK)
        return status;
    status =
        sm_tensor_read(call.op.link->context, &made->dl_tensor, reduction->name, "out", &call.out);
    give_address(&call.op, &call.out);
    if (status == SYMMEM_OK)
        status = reduction->has_buffer ? one_shot_copy(&call) : one_shot_plain(&call);
    if (status == SYMMEM_OK)
        *out_p = made;
    else
        made->deleter(made);
    return status;
}

symmem_status symmem_one_shot_all_reduce_out(symmem_handle *handle, const DLTensor *input,
                                             symmem_reduce_op op, const DLTensor *out,
                                             int32_t channel, uint32_t timeout_ms,
                                             symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_reduction reduction =
        sm_reduction_of("one_shot_all_reduce_out", SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, handle, input,
                        op, channel, timeout_ms, stream);
    sm_reduction_to(&reduction, out);
    return one_shot(&reduction);
}

symmem_status symmem_one_shot_all_reduce_copy_out(symmem_handle *handle, const DLTensor *buffer,
                                                  const DLTensor *input, symmem_reduce_op op,
                                                  const DLTensor *out, int32_t channel,
                                                  uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_reduction reduction =
        sm_reduction_of("one_shot_all_reduce_copy_out", SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, handle,
                        input, op, channel, timeout_ms, stream);
    sm_reduction_by(&reduction, buffer);
    sm_reduction_to(&reduction, out);
    return one_shot(&reduction);
}

symmem_status symmem_one_shot_all_reduce(symmem_handle *handle, const DLTensor *input,
                                         symmem_reduce_op op, int32_t channel, uint32_t timeout_ms,
                                         symmem_stream *stream, DLManagedTensor **out_p) {
    SM_PUBLIC_CALL;
    const sm_reduction reduction =
        sm_reduction_of("one_shot_all_reduce", SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, handle, input, op,
                        channel, timeout_ms, stream);
    return one_shot_made(&reduction, out_p);
}

symmem_status symmem_one_shot_all_reduce_copy(symmem_handle *handle, const DLTensor *buffer,
                                              const DLTensor *input, symmem_reduce_op op,
                                              int32_t channel, uint32_t timeout_ms,
                                              symmem_stream *stream, DLManagedTensor **out_p) {
    SM_PUBLIC_CALL;
    sm_reduction reduction =
        sm_reduction_of("one_shot_all_reduce_copy", SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, handle, input,
                        op, channel, timeout_ms, stream);
    sm_reduction_by(&reduction, buffer);
    return one_shot_made(&reduction, out_p);
}

/* --- two-shot ----------------------------------------------------------------------- */

symmem_status symmem_two_shot_all_reduce(symmem_handle *handle, const DLTensor *input,
                                         symmem_reduce_op op, int32_t channel, uint32_t timeout_ms,
                                         symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_reduction_call call;
    symmem_status status;
    sm_reduction reduction = sm_reduction_of("two_shot_all_reduce", SYMMEM_CALL_TWO_SHOT_ALL_REDUCE,
                                             handle, input, op, channel, timeout_ms, stream);
    if (sm_repeat_run(&reduction, &status))
        return status;
    status = sm_reduction_begin(&reduction, &call);
    if (status == SYMMEM_OK)
        status = sm_collective_symmetric(&call.op, &call.input, &call.op.call.offset);
    call.op.detail = SM_FORM_IN_PLACE;
    return status == SYMMEM_OK ? sm_collective_run(&call.op, NULL, NULL) : status;
}

symmem_status symmem_two_shot_all_reduce_out(symmem_handle *handle, const DLTensor *input,
                                             symmem_reduce_op op, const DLTensor *out,
                                             int32_t channel, uint32_t timeout_ms,
                                             symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_reduction_call call;
    symmem_status status;
    sm_reduction reduction =
        sm_reduction_of("two_shot_all_reduce_out", SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, handle, input,
                        op, channel, timeout_ms, stream);
    sm_reduction_to(&reduction, out);
    if (sm_repeat_run(&reduction, &status))
        return status;
    status = sm_reduction_begin(&reduction, &call);
    if (status == SYMMEM_OK)
        status = sm_tensor_alike(&call.input, &call.out, reduction.name);
    if (status == SYMMEM_OK)
        status = sm_collective_symmetric(&call.op, &call.input, &call.op.call.offset);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(&call.op, &call.out, call.op.call.offset, call.input.bytes);
    if (status != SYMMEM_OK)
        return status;
    call.op.call.out = call.out.data;
    return sm_collective_run(&call.op, NULL, &call.out);
}
