/* SPDX-License-Identifier: BSD-3-Clause */
/* The public multimem operations that make their own output. */
#include <stdlib.h>

#include "ops/multimem.h"
#include "ops/result_tensor.h"

symmem_status symmem_multimem_one_shot_all_reduce(symmem_handle *handle, const DLTensor *input,
                                                  symmem_reduce_op op, int32_t channel,
                                                  uint32_t timeout_ms, symmem_stream *stream,
                                                  DLManagedTensor **out_p) {
    SM_PUBLIC_CALL;
    static const char name[] = "multimem_one_shot_all_reduce";
    sm_collective_op call;
    sm_tensor in;
    DLManagedTensor *made = NULL;
    symmem_status status = sm_multimem_begin(
        &call, name, handle, SYMMEM_CALL_MULTIMEM_ONE_SHOT_ALL_REDUCE, channel, timeout_ms, stream);
    if (status == SYMMEM_OK && out_p == NULL)
        status = sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "out_p is NULL");
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call.link->context, input, name, "input", &in);
    if (status == SYMMEM_OK)
        status = sm_collective_reduction(&call, in.dtype, op);
    if (status == SYMMEM_OK)
        status = sm_multimem_symmetric(&call, &in);
    if (status == SYMMEM_OK)
        status = sm_result_create(&call, &in, &made);
    if (status != SYMMEM_OK)
        return status;
    status = sm_multimem_one_shot(&call, input, op, &made->dl_tensor, true);
    if (status == SYMMEM_OK)
        *out_p = made;
    else
        made->deleter(made);
    return status;
}

/* --- an all-gather into new symmetric memory ------------------------------------------ */

#define MAX_NDIM 8

/* A tensor over the whole of an allocation that goes when it goes. */
typedef struct gathered {
    DLManagedTensor tensor;
    DLManagedTensor *view; /* keeps the memory mapped */
    sm_allocation *allocation;
} gathered;

static void delete_gathered(DLManagedTensor *tensor) {
    SM_POINTED_CALL;
    if (tensor == NULL)
        return;
    gathered *owner = tensor->manager_ctx;
    if (owner->allocation != NULL) {
        if (sm_fork_is_parents(owner->allocation->context->made_in))
            return;
        (void)sm_allocation_drop(owner->allocation);
        sm_allocation_release(owner->allocation);
    }
    if (owner->view != NULL)
        owner->view->deleter(owner->view);
    free(owner);
}

static symmem_status allocate(const sm_collective_op *call, const sm_tensor *in, gathered **owner_p,
                              void **ptr_p) {
    symmem_context *context = call->link->context;
    size_t bytes;
    *ptr_p = NULL;
    *owner_p = calloc(1, sizeof **owner_p);
    if (*owner_p == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, call->name, "", "no memory for a tensor");
    (*owner_p)->tensor.manager_ctx = *owner_p;
    if (!sm_mul(in->bytes, (size_t)call->link->group->world_size, &bytes))
        return sm_fail(SYMMEM_OVERFLOW, call->name, "", "the size of the output overflows");
    symmem_status status =
        symmem_alloc(context, bytes > 0 ? bytes : 1, call->link->device, NULL, ptr_p);
    if (status == SYMMEM_OK)
        (*owner_p)->allocation = sm_allocation_find(context, *ptr_p);
    return status;
}

/* Collective. What this rank has not got, the other ranks are told by the rendezvous. */
static symmem_status rendezvous_result(const sm_collective_op *call, const sm_tensor *in,
                                       gathered **owner_p, symmem_handle **handle_p) {
    void *ptr;
    const symmem_status own = allocate(call, in, owner_p, &ptr);
    symmem_error_record record;
    (void)sm_error_get(&record);
    symmem_status status =
        sm_rendezvous_call(call->link->context, ptr, call->link->group, call->timeout_ms,
                           own == SYMMEM_OK ? NULL : &record, handle_p);
    if (own == SYMMEM_OK && status == SYMMEM_OK)
        return SYMMEM_OK;
    if (own == SYMMEM_OK)
        (void)sm_error_get(&record);
    sm_copy_text(record.operation, sizeof record.operation, call->name);
    (void)sm_error_raise(&record);
    return own != SYMMEM_OK ? own : status;
}

static symmem_status view_all(symmem_handle *handle, const sm_tensor *in, gathered *owner) {
    int64_t sizes[MAX_NDIM] = {1};
    int32_t ndim = in->ndim > 0 ? in->ndim : 1;
    for (int32_t d = 0; d < in->ndim; d++)
        sizes[d] = in->shape[d];
    sizes[0] *= handle->link->group->world_size;
    symmem_status status = symmem_get_remote_tensor(handle, handle->link->group->rank, ndim, sizes,
                                                    in->dtype, 0, &owner->view);
    if (status != SYMMEM_OK)
        return status;
    owner->tensor.dl_tensor = owner->view->dl_tensor;
    owner->tensor.manager_ctx = owner;
    owner->tensor.deleter = delete_gathered;
    return SYMMEM_OK;
}

static symmem_status begin(sm_collective_op *call, symmem_handle *handle, const DLTensor *input,
                           int32_t channel, uint32_t timeout_ms, const symmem_stream *stream,
                           sm_tensor *in) {
    static const char name[] = "low_contention_all_gather_ce_multicast";
    symmem_status status =
        sm_multimem_begin(call, name, handle, SYMMEM_CALL_LOW_CONTENTION_ALL_GATHER_CE_MULTICAST,
                          channel, timeout_ms, stream);
    if (status == SYMMEM_OK)
        status = sm_tensor_read(call->link->context, input, name, "input", in);
    if (status == SYMMEM_OK && in->ndim > MAX_NDIM)
        status = sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "input has more than 8 dimensions");
    /* An empty one's sides are in no size. */
    int64_t first;
    if (status == SYMMEM_OK && in->ndim > 0 &&
        __builtin_mul_overflow(in->shape[0], (int64_t)call->link->group->world_size, &first))
        status = sm_fail(SYMMEM_OVERFLOW, name, "", "the size of the output overflows");
    if (status == SYMMEM_OK)
        status = sm_collective_covers(call, in);
    return status == SYMMEM_OK ? sm_capture_check(handle->link->context, name) : status;
}

symmem_status symmem_low_contention_all_gather_ce_multicast(symmem_handle *handle,
                                                            const DLTensor *input, int32_t channel,
                                                            uint32_t timeout_ms,
                                                            symmem_stream *stream,
                                                            DLManagedTensor **out_p) {
    SM_PUBLIC_CALL;
    sm_collective_op call;
    sm_tensor in;
    symmem_handle *made = NULL;
    symmem_status status = begin(&call, handle, input, channel, timeout_ms, stream, &in);
    if (status == SYMMEM_OK && out_p == NULL)
        status = sm_fail(SYMMEM_INVALID_ARGUMENT, call.name, "", "out_p is NULL");
    if (status != SYMMEM_OK)
        return status;
    gathered *owner = NULL;
    status = rendezvous_result(&call, &in, &owner, &made);
    if (status == SYMMEM_OK)
        status = view_all(made, &in, owner);
    if (status == SYMMEM_OK)
        status = symmem_low_contention_all_gather_ce_multicast_out(
            made, input, &owner->tensor.dl_tensor, channel, timeout_ms, stream);
    symmem_handle_release(made);
    if (status == SYMMEM_OK)
        *out_p = &owner->tensor;
    else if (owner != NULL)
        delete_gathered(&owner->tensor);
    return status;
}
