/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors that an operation makes for its result. */
#include <stdlib.h>

#include "ops/reduce.h"
#include "ops/result_tensor.h"
#include "backend/host.h"

/* A tensor together with all that it points to. */
typedef struct result {
    DLManagedTensor tensor;
    sm_allocation *allocation; /* counted, NULL: no elements */
    int64_t sizes[];           /* shape, then strides */
} result;

/* Pending work keeps the memory by references of its own; after finalize this one is the last. */
static void delete_result(DLManagedTensor *tensor) {
    SM_POINTED_CALL;
    if (tensor == NULL)
        return;
    result *owner = tensor->manager_ctx;
    if (owner->allocation != NULL) {
        if (sm_fork_is_parents(owner->allocation->context->made_in))
            return;
        (void)sm_allocation_drop(owner->allocation);
        sm_allocation_release(owner->allocation);
    }
    free(owner);
}

static void fill_tensor(result *owner, const sm_tensor *like) {
    DLTensor *tensor = &owner->tensor.dl_tensor;
    tensor->ndim = like->ndim;
    tensor->dtype = sm_dtype_to_dl(like->dtype);
    tensor->shape = owner->sizes;
    tensor->strides = owner->sizes + like->ndim;
    int64_t stride = 1;
    for (int32_t d = like->ndim - 1; d >= 0; d--) {
        tensor->shape[d] = like->shape[d];
        tensor->strides[d] = stride;
        stride *= like->shape[d] == 0 ? 1 : like->shape[d];
    }
    owner->tensor.manager_ctx = owner;
    owner->tensor.deleter = delete_result;
}

symmem_status sm_result_create(const sm_collective_op *op, const sm_tensor *like,
                               DLManagedTensor **tensor_p) {
    symmem_context *context = op->link->context;
    symmem_device_info info = {0};
    symmem_status status =
        context->backend->device_info(context->instance, op->link->device, &info);
    if (status != SYMMEM_OK)
        return sm_backend_failed(context, status, op->name, "device_info");
    result *owner = calloc(1, sizeof *owner + 2 * (size_t)like->ndim * sizeof owner->sizes[0]);
    if (owner == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, op->name, "", "no memory for a tensor");
    /* An empty tensor has no block: it is no symmetric memory, counts no ordinal, and takes part in
     * no rendezvous. */
    status = like->count == 0 ? sm_capture_check(context, op->name)
                              : sm_allocation_create(context, like->bytes, op->link->device,
                                                     op->name, &owner->allocation);
    if (status != SYMMEM_OK) {
        free(owner);
        return status;
    }
    fill_tensor(owner, like);
    DLTensor *tensor = &owner->tensor.dl_tensor;
    tensor->data = owner->allocation != NULL ? owner->allocation->memory.ptr : NULL;
    tensor->device.device_type = (DLDeviceType)info.device_type;
    tensor->device.device_id = op->link->device;
    *tensor_p = &owner->tensor;
    return SYMMEM_OK;
}
