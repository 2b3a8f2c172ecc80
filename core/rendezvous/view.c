/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors over buffers and signal pads. */
#include <stdlib.h>

#include "rendezvous/tensor.h"
#include "backend/host.h"
#include "rendezvous/handle.h"

#define MAX_NDIM 8

/* A tensor with all that it points to. */
typedef struct view {
    DLManagedTensor tensor;
    int64_t shape[MAX_NDIM];
    int64_t strides[MAX_NDIM];
    symmem_handle *handle; /* counted */
} view;

/* The memory and the shape of a requested view. */
typedef struct view_request {
    symmem_handle *handle;
    const char *operation;
    int32_t rank;
    char *base; /* NULL: no direct access */
    size_t bytes;
    int32_t ndim;
    const int64_t *sizes;
    symmem_dtype dtype;
    int64_t storage_offset;
} view_request;

static void delete_view(DLManagedTensor *tensor) {
    SM_POINTED_CALL;
    if (tensor == NULL)
        return;
    view *owner = tensor->manager_ctx;
    if (sm_fork_is_parents(owner->handle->link->context->made_in))
        return;
    symmem_handle_release(owner->handle);
    free(owner);
}

static symmem_status invalid(const view_request *request, const char *why) {
    return sm_fail(SYMMEM_INVALID_ARGUMENT, request->operation, "", "%s", why);
}

static symmem_status check_form(const view_request *request) {
    if (symmem_dtype_size(request->dtype) == 0)
        return invalid(request, "unknown dtype");
    if (request->ndim < 0 || request->ndim > MAX_NDIM)
        return invalid(request, "ndim is not in [0, 8]");
    if (request->ndim > 0 && request->sizes == NULL)
        return invalid(request, "sizes is NULL");
    return SYMMEM_OK;
}

static symmem_status out_of_range(const view_request *request, const char *what, int64_t found) {
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, request->operation, "", "%s %lld is negative", what,
                  (long long)found);
    return sm_error_sizes(0, (uint64_t)found);
}

static symmem_status overflow(const view_request *request) {
    return sm_fail(SYMMEM_OVERFLOW, request->operation, "", "the size of the tensor overflows");
}

/* Computes the strides of a contiguous tensor and its number of elements. */
static symmem_status lay_out(const view_request *request, int64_t *strides, size_t *numel_p) {
    size_t stride = 1, numel = 1;
    if (request->storage_offset < 0)
        return out_of_range(request, "storage_offset", request->storage_offset);
    for (int32_t d = request->ndim - 1; d >= 0; d--) {
        int64_t size = request->sizes[d];
        if (size < 0)
            return out_of_range(request, "size", size);
        strides[d] = (int64_t)stride;
        /* An empty dimension counts as one, so that the strides have a meaning. */
        if (!sm_mul_size(stride, size == 0 ? 1 : (size_t)size, &stride))
            return overflow(request);
        numel = size == 0 ? 0 : numel;
    }
    *numel_p = numel == 0 ? 0 : stride;
    return SYMMEM_OK;
}

static symmem_status check_bounds(const view_request *request, size_t numel) {
    size_t element = symmem_dtype_size(request->dtype);
    size_t end = (size_t)request->storage_offset + numel; /* of two that are below half of all */
    if (!sm_mul(end, element, &end))
        return overflow(request);
    if (end > request->bytes) {
        (void)sm_fail(SYMMEM_OUT_OF_RANGE, request->operation, "",
                      "the tensor ends at byte %zu of %zu", end, request->bytes);
        return sm_error_sizes(request->bytes, end);
    }
    if ((uintptr_t)request->base % element != 0)
        return sm_fail(SYMMEM_MISALIGNED, request->operation, "",
                       "%p is not aligned to elements of %zu bytes", (void *)request->base,
                       element);
    return SYMMEM_OK;
}

static symmem_status make_view(const view_request *request, const int64_t *strides,
                               DLManagedTensor **tensor_p) {
    const sm_link *link = request->handle->link;
    symmem_device_info info = {0};
    symmem_status status =
        link->context->backend->device_info(link->context->instance, link->device, &info);
    if (status != SYMMEM_OK)
        return sm_backend_failed(link->context, status, request->operation, "device_info");
    view *owner = calloc(1, sizeof *owner);
    if (owner == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, request->operation, "", "no memory for a tensor");
    status = symmem_handle_retain(request->handle);
    if (status != SYMMEM_OK) {
        free(owner);
        return status;
    }
    owner->handle = request->handle;
    for (int32_t d = 0; d < request->ndim; d++) {
        owner->shape[d] = request->sizes[d];
        owner->strides[d] = strides[d];
    }
    DLTensor *tensor = &owner->tensor.dl_tensor;
    tensor->data =
        request->base + (size_t)request->storage_offset * symmem_dtype_size(request->dtype);
    tensor->device.device_type = (DLDeviceType)info.device_type;
    tensor->device.device_id = link->device;
    tensor->ndim = request->ndim;
    tensor->dtype = sm_dtype_to_dl(request->dtype);
    tensor->shape = owner->shape;
    tensor->strides = owner->strides;
    owner->tensor.manager_ctx = owner;
    owner->tensor.deleter = delete_view;
    *tensor_p = &owner->tensor;
    return SYMMEM_OK;
}

static symmem_status take_view(const view_request *request, DLManagedTensor **tensor_p) {
    int64_t strides[MAX_NDIM];
    size_t numel = 0;
    symmem_status status = lay_out(request, strides, &numel);
    if (status != SYMMEM_OK)
        return status;
    if (request->base == NULL) {
        (void)sm_fail(SYMMEM_UNREACHABLE, request->operation, "", "no direct access to rank %d",
                      request->rank);
        return sm_error_failed_rank(request->rank);
    }
    status = check_bounds(request, numel);
    return status == SYMMEM_OK ? make_view(request, strides, tensor_p) : status;
}

/* Checks what does not depend on the memory. */
static symmem_status check_request(const view_request *request, DLManagedTensor **tensor_p) {
    symmem_status status = sm_handle_check(request->handle, request->operation);
    if (status != SYMMEM_OK)
        return status;
    if (tensor_p == NULL)
        return invalid(request, "tensor_p is NULL");
    status = sm_handle_rank_check(request->handle, request->operation, request->rank);
    return status == SYMMEM_OK ? check_form(request) : status;
}

symmem_status symmem_get_buffer(symmem_handle *handle, int32_t rank, int32_t ndim,
                                const int64_t *sizes, symmem_dtype dtype, int64_t storage_offset,
                                DLManagedTensor **tensor_p) {
    SM_PUBLIC_CALL;
    view_request request = {.handle = handle,
                            .operation = "get_buffer",
                            .rank = rank,
                            .ndim = ndim,
                            .sizes = sizes,
                            .dtype = dtype,
                            .storage_offset = storage_offset};
    symmem_status status = check_request(&request, tensor_p);
    if (status != SYMMEM_OK)
        return status;
    request.base = handle->link->mapping->buffers[rank];
    request.bytes = handle->link->buffer_bytes;
    return take_view(&request, tensor_p);
}

symmem_status symmem_get_remote_tensor(symmem_handle *handle, int32_t rank, int32_t ndim,
                                       const int64_t *sizes, symmem_dtype dtype,
                                       int64_t storage_offset, DLManagedTensor **tensor_p) {
    SM_PUBLIC_CALL;
    view_request request = {.handle = handle,
                            .operation = "get_remote_tensor",
                            .rank = rank,
                            .ndim = ndim,
                            .sizes = sizes,
                            .dtype = dtype,
                            .storage_offset = storage_offset};
    symmem_status status = check_request(&request, tensor_p);
    if (status != SYMMEM_OK)
        return status;
    const sm_link *link = handle->link;
    request.base = link->mapping->buffers[rank];
    if (request.base != NULL)
        request.base += handle->offset;
    request.bytes = link->block_bytes - (handle->offset - link->block_offset);
    return take_view(&request, tensor_p);
}

symmem_status symmem_get_signal_pad(symmem_handle *handle, int32_t rank, int32_t ndim,
                                    const int64_t *sizes, symmem_dtype dtype,
                                    int64_t storage_offset, DLManagedTensor **tensor_p) {
    SM_PUBLIC_CALL;
    view_request request = {.handle = handle,
                            .operation = "get_signal_pad",
                            .rank = rank,
                            .ndim = ndim,
                            .sizes = sizes,
                            .dtype = dtype,
                            .storage_offset = storage_offset};
    symmem_status status = check_request(&request, tensor_p);
    if (status != SYMMEM_OK)
        return status;
    const sm_link *link = handle->link;
    int64_t whole = (int64_t)(link->signal_pad_size / symmem_dtype_size(dtype));
    if (ndim == 0) {
        request.ndim = 1;
        request.sizes = &whole;
    }
    request.base = link->pads[rank];
    request.bytes = link->signal_pad_size;
    return take_view(&request, tensor_p);
}
