/* SPDX-License-Identifier: BSD-3-Clause */
/* The two multicast operations: checks before the backend. */
#include <stdio.h>

#include "ops/collective.h"
#include "ops/multicast.h"
#include "backend/host.h"
#include "rendezvous/handle.h"

symmem_status sm_link_no_multicast(const sm_link *link, const char *operation) {
    char why[80] = "";
    if (link->multicast_failed >= 0)
        (void)snprintf(why, sizeof why, ": setting it up failed on rank %d with %s",
                       link->multicast_failed, symmem_status_name(link->multicast_failure));
    (void)sm_fail(SYMMEM_UNSUPPORTED, operation, "", "the handle has no multicast pointer%s", why);
    return sm_error_failed_rank(link->multicast_failed);
}

static symmem_status check_multicast(symmem_handle *handle, const char *operation,
                                     const void *local, size_t offset, size_t bytes,
                                     const symmem_stream *stream, char **address_p) {
    const sm_link *link = handle->link;
    if (link->multicast_address == NULL)
        return sm_link_no_multicast(link, operation);
    symmem_status status = sm_handle_bounds(handle, operation, offset, bytes);
    if (status != SYMMEM_OK)
        return status;
    if (local == NULL && bytes > 0)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "local pointer is NULL");
    status = sm_stream_check(link->context, stream, link->device, operation);
    if (status == SYMMEM_OK)
        *address_p = (char *)link->multicast_address + handle->offset + offset;
    return status == SYMMEM_OK ? sm_context_point(link->context, operation, "multimem.before")
                               : status;
}

static symmem_status cover_local(sm_refs *refs, const sm_link *link, const char *operation,
                                 const void *local, size_t bytes) {
    int32_t device;
    symmem_status status = sm_refs_cover(refs, link->context, operation, local, bytes);
    if (status == SYMMEM_OK && bytes > 0)
        status = sm_refs_device(refs, link->context, operation, link->device, &device);
    return status;
}

symmem_status sm_multimem_store(symmem_handle *handle, const char *operation, size_t offset,
                                const void *src, size_t bytes, symmem_stream *stream) {
    char *address = NULL;
    symmem_status status = sm_handle_check(handle, operation);
    if (status == SYMMEM_OK)
        status = check_multicast(handle, operation, src, offset, bytes, stream, &address);
    if (status != SYMMEM_OK)
        return status;
    sm_link *link = handle->link;
    sm_refs refs;
    sm_refs_init(&refs, link);
    status = cover_local(&refs, link, operation, src, bytes);
    if (status == SYMMEM_OK) {
        symmem_exec exec = sm_refs_exec(&refs, stream);
        exec.operation = operation;
        status = link->context->backend->multimem_store(link->context->instance, &link->peers,
                                                        address, src, bytes, &exec);
        if (status != SYMMEM_OK)
            status = sm_backend_failed(link->context, status, operation, "multimem_store");
    }
    sm_refs_finish(&refs);
    return status;
}

symmem_status symmem_multimem_store(symmem_handle *handle, size_t offset, const void *src,
                                    size_t bytes, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    return sm_multimem_store(handle, "multimem_store", offset, src, bytes, stream);
}

static symmem_status check_elements(const char *operation, size_t count, symmem_dtype dtype,
                                    symmem_reduce_op op, size_t *bytes_p) {
    size_t element = symmem_dtype_size(dtype);
    if (element == 0)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "unknown dtype %d", (int)dtype);
    if ((int)op < 0 || op >= SYMMEM_REDUCE_OP_COUNT)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "unknown operation %d", (int)op);
    if (!sm_mul(count, element, bytes_p))
        return sm_fail(SYMMEM_OVERFLOW, operation, "", "%zu elements of %zu bytes overflow", count,
                       element);
    return SYMMEM_OK;
}

symmem_status symmem_multimem_ld_reduce(symmem_handle *handle, size_t offset, void *dst,
                                        size_t count, symmem_dtype dtype, symmem_reduce_op op,
                                        symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char operation[] = "multimem_ld_reduce";
    char *address = NULL;
    size_t bytes;
    symmem_status status = sm_handle_check(handle, operation);
    if (status == SYMMEM_OK)
        status = check_elements(operation, count, dtype, op, &bytes);
    if (status == SYMMEM_OK)
        status = check_multicast(handle, operation, dst, offset, bytes, stream, &address);
    if (status != SYMMEM_OK)
        return status;
    size_t element = symmem_dtype_size(dtype);
    if ((uintptr_t)address % element != 0 || (uintptr_t)dst % element != 0)
        return sm_fail(SYMMEM_MISALIGNED, operation, "", "source %p or destination %p, element %zu",
                       (void *)address, dst, element);
    sm_link *link = handle->link;
    sm_refs refs;
    sm_refs_init(&refs, link);
    status = cover_local(&refs, link, operation, dst, bytes);
    if (status == SYMMEM_OK) {
        symmem_exec exec = sm_refs_exec(&refs, stream);
        status = link->context->backend->multimem_ld_reduce(link->context->instance, &link->peers,
                                                            address, dst, count, dtype, op, &exec);
        if (status != SYMMEM_OK)
            status = sm_backend_failed(link->context, status, operation, operation);
    }
    sm_refs_finish(&refs);
    return status;
}
