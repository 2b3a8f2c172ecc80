/* SPDX-License-Identifier: BSD-3-Clause */
/* Fills of flat uint32 tensors. */
#include "rendezvous/tensor.h"
#include "stream/channel.h"
#include "backend/device.h"
#include "backend/host.h"
#include "backend/query.h"
#include "backend/table.h"

/* What a call is given. */
typedef struct fill {
    const char *operation;
    const DLTensor *tensor;
    size_t word; /* bytes of one */
    int64_t offset, value, count;
} fill;

static symmem_status refuse(const char *operation, const char *why) {
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "tensor %s", why);
}

static symmem_status check_tensor(symmem_context *context, const DLTensor *tensor,
                                  const char *operation, size_t word, char **data_p) {
    symmem_status status = sm_tensor_form(context, tensor, operation, "tensor");
    if (status != SYMMEM_OK)
        return status;
    if (tensor->dtype.code != kDLUInt || tensor->dtype.bits != 8 * word || tensor->dtype.lanes != 1)
        return refuse(operation, word == 8 ? "is not of uint64" : "is not of uint32");
    if (tensor->ndim != 1)
        return refuse(operation, "is not of one dimension");
    if (tensor->strides != NULL && tensor->strides[0] != 1)
        return refuse(operation, "is not contiguous");
    if (tensor->data == NULL)
        return refuse(operation, "has no data");
    if (tensor->shape[0] < 0)
        return refuse(operation, "has a negative size");
    if (tensor->shape[0] > PTRDIFF_MAX / (int64_t)word)
        return sm_fail(SYMMEM_OVERFLOW, operation, "", "the size of the tensor overflows");
    return sm_tensor_locate(tensor, operation, "tensor", word, (size_t)tensor->shape[0] * word,
                            data_p);
}

static symmem_status out_of_range(const char *operation, const char *what, int64_t found,
                                  int64_t limit) {
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, operation, "", "%s is %lld, limit %lld", what,
                  (long long)found, (long long)limit);
    return sm_error_sizes((uint64_t)limit, (uint64_t)found);
}

static symmem_status check_range(const fill *call) {
    const char *operation = call->operation;
    const DLTensor *tensor = call->tensor;
    const int64_t offset = call->offset, value = call->value, count = call->count;
    if (offset < 0)
        return out_of_range(operation, "offset", offset, 0);
    if (count <= 0)
        return out_of_range(operation, "count", count, 1);
    if (value < 0 || value > UINT32_MAX)
        return out_of_range(operation, "value", value, UINT32_MAX);
    if (offset > tensor->shape[0] || count > tensor->shape[0] - offset) {
        (void)sm_fail(SYMMEM_OUT_OF_RANGE, operation, "",
                      "offset %lld + count %lld is beyond the %lld elements", (long long)offset,
                      (long long)count, (long long)tensor->shape[0]);
        return sm_error_sizes((uint64_t)tensor->shape[0], (uint64_t)offset + (uint64_t)count);
    }
    return SYMMEM_OK;
}

/* Finds the device of the work and the memory that it needs. */
static symmem_status prepare(symmem_context *context, sm_refs *refs, const char *operation,
                             const void *dst, size_t bytes, const symmem_stream *stream,
                             int32_t *device_p) {
    symmem_status status = sm_context_point(context, operation, "fill.before");
    if (status == SYMMEM_OK)
        status = sm_refs_cover(refs, context, operation, dst, bytes);
    if (status == SYMMEM_OK)
        status = sm_refs_stream(refs, context, operation, stream);
    if (status != SYMMEM_OK)
        return status;
    return sm_device_resolve(context, stream != NULL ? stream->device : refs->device, operation,
                             device_p);
}

static symmem_status check_all(symmem_context *context, const fill *call,
                               const symmem_stream *stream, char **dst_p) {
    char *data = NULL;
    symmem_status status = sm_context_check(context, call->operation);
    if (status == SYMMEM_OK)
        status = check_tensor(context, call->tensor, call->operation, call->word, &data);
    if (status == SYMMEM_OK)
        status = check_range(call);
    if (status == SYMMEM_OK)
        status = sm_stream_check(context, stream, -1, call->operation);
    if (status == SYMMEM_OK)
        *dst_p = data + (size_t)call->offset * call->word;
    return status;
}

symmem_status symmem_memset32(symmem_context *context, const DLTensor *tensor, int64_t offset,
                              int64_t value, int64_t count, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    char *dst;
    int32_t device;
    const fill call = {"memset32", tensor, sizeof(uint32_t), offset, value, count};
    symmem_status status = check_all(context, &call, stream, &dst);
    if (status != SYMMEM_OK)
        return status;
    sm_refs refs;
    sm_refs_init(&refs, NULL);
    status =
        prepare(context, &refs, "memset32", dst, (size_t)count * sizeof(uint32_t), stream, &device);
    if (status == SYMMEM_OK) {
        symmem_exec exec = sm_refs_exec(&refs, stream);
        status = context->backend->memset32(context->instance, device, dst, (uint32_t)value,
                                            (size_t)count, &exec);
        if (status != SYMMEM_OK)
            status = sm_backend_failed(context, status, "memset32", "memset32");
    }
    sm_refs_finish(&refs);
    return status;
}

symmem_status symmem_stream_write_value32(symmem_context *context, const DLTensor *tensor,
                                          int64_t offset, int64_t value, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    char *dst;
    int32_t device;
    const fill call = {"stream_write_value32", tensor, sizeof(uint32_t), offset, value, 1};
    symmem_status status = check_all(context, &call, stream, &dst);
    if (status != SYMMEM_OK)
        return status;
    sm_refs refs;
    sm_refs_init(&refs, NULL);
    status =
        prepare(context, &refs, "stream_write_value32", dst, sizeof(uint32_t), stream, &device);
    if (status == SYMMEM_OK) {
        symmem_exec exec = sm_refs_exec(&refs, stream);
        status =
            context->backend->write_value32(context->instance, device, dst, (uint32_t)value, &exec);
        if (status != SYMMEM_OK)
            status = sm_backend_failed(context, status, "stream_write_value32", "write_value32");
    }
    sm_refs_finish(&refs);
    return status;
}

symmem_status symmem_stream_write_value64(symmem_context *context, const DLTensor *tensor,
                                          int64_t offset, uint64_t value, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char operation[] = "stream_write_value64";
    const fill call = {operation, tensor, sizeof value, offset, 0, 1};
    char *dst;
    int32_t device;
    symmem_status status = sm_context_check(context, operation);
    if (status == SYMMEM_OK)
        status = sm_need_capability(context, SYMMEM_CAP_VALUES, operation, "words of 64 bits");
    if (status == SYMMEM_OK)
        status = check_all(context, &call, stream, &dst);
    if (status != SYMMEM_OK)
        return status;
    sm_refs refs;
    sm_refs_init(&refs, NULL);
    status = prepare(context, &refs, operation, dst, sizeof value, stream, &device);
    if (status == SYMMEM_OK) {
        symmem_exec exec = sm_refs_exec(&refs, stream);
        status = context->backend->write_value64(context->instance, device, dst, value, &exec);
        if (status != SYMMEM_OK)
            status = sm_backend_failed(context, status, operation, "write_value64");
    }
    sm_refs_finish(&refs);
    return status;
}
