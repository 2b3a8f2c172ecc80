/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on bytes: copy, fill, and one word after a fence. */
#include <string.h>

#include "collective/copy.h"
#include "signal/composite.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "inflight/inflight.h"
#include "driver/staging.h"
#include "stream/foreign_capture.h"
#include "stream/graph.h"
#include "stream/stream.h"

/* What to do, in a form that all three share. */
typedef struct byte_op {
    const char *operation;
    CUresult (*enqueue)(const cuda_driver *driver, const struct byte_op *op, CUstream native);
    bool copies;
    CUdeviceptr dst, src;
    size_t count;
    uint32_t value;
    uint64_t wide;
} byte_op;

static CUresult enqueue_copy(const cuda_driver *driver, const byte_op *op, CUstream native) {
    return op->count == 0 ? CUDA_SUCCESS : driver->MemcpyAsync(op->dst, op->src, op->count, native);
}

static CUresult enqueue_fill(const cuda_driver *driver, const byte_op *op, CUstream native) {
    return op->count == 0 ? CUDA_SUCCESS
                          : driver->MemsetD32Async(op->dst, op->value, op->count, native);
}

/* The default flag makes the stream's earlier work visible system-wide before the write. */
static CUresult enqueue_write(const cuda_driver *driver, const byte_op *op, CUstream native) {
    return driver->StreamWriteValue32(native, op->dst, op->value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

static CUresult enqueue_wide_write(const cuda_driver *driver, const byte_op *op, CUstream native) {
    return driver->StreamWriteValue64(native, op->dst, op->wide, CU_STREAM_WRITE_VALUE_DEFAULT);
}

static symmem_status run_bytes_now(cuda_instance *instance, int32_t device, const byte_op *op) {
    cuda_private_stream *private_stream;
    CUresult result = cuda_private_stream_take(instance, device, &private_stream);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, op->operation);
    result = op->enqueue(&instance->driver, op, private_stream->native);
    if (result == CUDA_SUCCESS)
        result = cuda_wait_call(instance, private_stream->native);
    cuda_private_stream_give(instance, device, private_stream);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, op->operation);
}

/* What is enqueued uses its staging. What was captured without an entry keeps the staging forever,
 * because the graph may be the program's. */
void cuda_copy_end_failed(cuda_instance *instance, cuda_pending *pending, const symmem_exec *exec,
                          const cuda_needs *needs, const char *operation) {
    if (needs->staging == NULL)
        cuda_composite_end_failed(instance, pending, exec, operation);
    else if (pending != NULL && cuda_pending_rest(pending, exec, needs, operation))
        cuda_staging_give(needs->staging);
}

/* For a step of a composite operation, of which another step may have failed. Ordinary memory is
 * copied regardless, because a kernel does not see it. */
static bool checks_failed_first(const cuda_driver *driver, const byte_op *op,
                                const symmem_exec *exec) {
    return op->copies && op->count > 0 && exec->composite != NULL && exec->step > 0 &&
           !exec->loose && !cuda_is_ordinary(driver, op->dst) && !cuda_is_ordinary(driver, op->src);
}

static CUresult enqueue_bytes(cuda_instance *instance, const byte_op *op, const symmem_exec *exec,
                              bool capturing, cuda_staging **staging_p) {
    const cuda_driver *driver = &instance->driver;
    CUstream native = ((const cuda_stream *)exec->stream)->native;
    if (!op->copies)
        return op->enqueue(driver, op, native);
    CUresult result = cuda_composite_begin(instance, exec, native);
    if (result != CUDA_SUCCESS)
        return result;
    if (checks_failed_first(driver, op, exec))
        return cuda_composite_move(instance, exec, op->dst, op->src, op->count, native);
    return cuda_copy_enqueue(instance, native, capturing, op->dst, op->src, op->count, staging_p);
}

static symmem_status run_bytes_on(cuda_instance *instance, const byte_op *op,
                                  const symmem_exec *exec) {
    cuda_stream *stream = exec->stream;
    cuda_pending *pending = NULL;
    uint64_t id = 0;
    symmem_status status = cuda_capture_join(instance, exec, op->operation, &id);
    if (status == SYMMEM_OK && id == 0)
        status = cuda_pending_make(stream, op->operation, &pending);
    if (status != SYMMEM_OK)
        return status;
    cuda_needs needs = {.staging = NULL};
    CUresult result = enqueue_bytes(instance, op, exec, id != 0, &needs.staging);
    if (result != CUDA_SUCCESS) {
        if (id != 0)
            cuda_captured_rest(instance, id, exec);
        cuda_copy_end_failed(instance, pending, exec, &needs, op->operation);
        return cuda_fail(instance, result, op->operation);
    }
    if (exec->ref_count == 0 && needs.staging == NULL) {
        cuda_pending_drop(instance, pending);
        return SYMMEM_OK;
    }
    return id != 0 ? cuda_captured_add(instance, id, exec, &needs, op->operation)
                   : cuda_pending_add(pending, exec, &needs, op->operation);
}

static symmem_status run_bytes(cuda_instance *instance, int32_t device, const byte_op *op,
                               const symmem_exec *exec) {
    cuda_collect(instance);
    symmem_status status = cuda_enter(instance, device, op->operation);
    if (status != SYMMEM_OK)
        return status;
    status = exec->stream == NULL ? run_bytes_now(instance, device, op)
                                  : run_bytes_on(instance, op, exec);
    cuda_leave(instance);
    return status;
}

symmem_status cuda_copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                        const symmem_exec *exec) {
    const byte_op op = {.operation = "copy",
                        .enqueue = enqueue_copy,
                        .copies = true,
                        .dst = cuda_address(dst),
                        .src = cuda_address(src),
                        .count = bytes};
    return run_bytes(instance, device, &op, exec);
}

symmem_status cuda_memset32(void *instance, int32_t device, void *dst, uint32_t value, size_t count,
                            const symmem_exec *exec) {
    const byte_op op = {.operation = "memset32",
                        .enqueue = enqueue_fill,
                        .dst = cuda_address(dst),
                        .count = count,
                        .value = value};
    return run_bytes(instance, device, &op, exec);
}

symmem_status cuda_write_value32(void *instance, int32_t device, void *dst, uint32_t value,
                                 const symmem_exec *exec) {
    const byte_op op = {.operation = "write_value32",
                        .enqueue = enqueue_write,
                        .dst = cuda_address(dst),
                        .value = value};
    return run_bytes(instance, device, &op, exec);
}

symmem_status cuda_write_value64(void *instance, int32_t device, void *dst, uint64_t value,
                                 const symmem_exec *exec) {
    const byte_op op = {.operation = "write_value64",
                        .enqueue = enqueue_wide_write,
                        .dst = cuda_address(dst),
                        .wide = value};
    return run_bytes(instance, device, &op, exec);
}
