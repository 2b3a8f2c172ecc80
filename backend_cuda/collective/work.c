/* SPDX-License-Identifier: BSD-3-Clause */
/* Work of a device that knows no peers: products, strided copies, reductions. */
#include <stddef.h>
#include <string.h>

#include "cuda/product.h"
#include "cuda_internal.h"

#define MAX_BLOCKS 2048 /* more than a device runs at once */

typedef struct kernel_name {
    const char *name;
    size_t offset;
} kernel_name;

#define NAMED(name, member)                                                                        \
    { "symmem_" name, offsetof(cuda_local_kernels, member) }

static const kernel_name names[] = {
    NAMED("product_f32", product[SYMMEM_FLOAT32]),
    NAMED("product_f64", product[SYMMEM_FLOAT64]),
    NAMED("product_f16", product[SYMMEM_FLOAT16]),
    NAMED("product_bf16", product[SYMMEM_BFLOAT16]),
    NAMED("product_i8", product[SYMMEM_INT8]),
    NAMED("product_u8", product[SYMMEM_UINT8]),
    NAMED("finish_f32", finish),
    NAMED("finish_f64", finish_double),
    NAMED("await_chunk", await_chunk),
    NAMED("copy_strided", copy_strided),
    NAMED("local_u8", reduce[SYMMEM_UINT8]),
    NAMED("local_i8", reduce[SYMMEM_INT8]),
    NAMED("local_i16", reduce[SYMMEM_INT16]),
    NAMED("local_u16", reduce[SYMMEM_UINT16]),
    NAMED("local_i32", reduce[SYMMEM_INT32]),
    NAMED("local_u32", reduce[SYMMEM_UINT32]),
    NAMED("local_i64", reduce[SYMMEM_INT64]),
    NAMED("local_u64", reduce[SYMMEM_UINT64]),
    NAMED("local_f16", reduce[SYMMEM_FLOAT16]),
    NAMED("local_bf16", reduce[SYMMEM_BFLOAT16]),
    NAMED("local_f32", reduce[SYMMEM_FLOAT32]),
    NAMED("local_f64", reduce[SYMMEM_FLOAT64]),
};

CUresult cuda_local_load(const cuda_driver *driver, CUmodule module, cuda_local_kernels *local) {
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; result == CUDA_SUCCESS && i < sizeof names / sizeof names[0]; i++) {
        CUfunction *function = (CUfunction *)(void *)((char *)local + names[i].offset);
        result = driver->ModuleGetFunction(function, module, names[i].name);
        if (result == CUDA_SUCCESS && driver->FuncLoad != NULL)
            result = driver->FuncLoad(*function);
    }
    return result;
}

symmem_status cuda_work_launch(cuda_instance *instance, const cuda_work *work, CUfunction kernel,
                               uint64_t count, void *args, CUstream native) {
    uint64_t blocks = (count + SYMMEM_CUDA_PRODUCT_THREADS - 1) / SYMMEM_CUDA_PRODUCT_THREADS;
    if (blocks == 0)
        return SYMMEM_OK;
    CUresult result = cuda_launch_kernel(instance, kernel,
                                         (unsigned int)(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS),
                                         SYMMEM_CUDA_PRODUCT_THREADS, args, native);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, work->operation);
}

/* Fills the thread's record with the failure that the device reported, if any. */
static symmem_status tell(const cuda_instance *instance, const cuda_work *work) {
    symmem_error_record record;
    if (work->signal.fault == NULL)
        return SYMMEM_OK;
    symmem_status status = cuda_take_fault(&work->signal, &record);
    return status == SYMMEM_OK ? status
                               : instance->host->fail(instance->host, status, 0, work->operation,
                                                      "%s", record.message);
}

/* After a failure: a part may be in flight, and what it waits for may never come. */
static void give_up(const cuda_work *work) {
    if (work->signal.fault != NULL)
        cuda_cancel_chunk_waits(&work->signal);
}

static symmem_status run_work_now(cuda_instance *instance, cuda_work *work) {
    cuda_private_stream *private_stream;
    CUresult result = cuda_private_stream_take(instance, work->device, &private_stream);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, work->operation);
    symmem_status status = work->enqueue(instance, work, private_stream->native);
    if (status != SYMMEM_OK)
        give_up(work);
    result = work->signal.fault != NULL
                 ? cuda_wait_idle(instance, private_stream->native, 0, &work->signal)
                 : cuda_wait_call(instance, private_stream->native);
    cuda_private_stream_give(instance, work->device, private_stream);
    if (status == SYMMEM_OK && result != CUDA_SUCCESS)
        status = cuda_fail(instance, result, work->operation);
    return status == SYMMEM_OK ? tell(instance, work) : status;
}

static cuda_needs needs_of(const cuda_work *work) {
    return (cuda_needs){.signal = work->signal.fault != NULL ? &work->signal : NULL};
}

/* `pending`: NULL if the stream captures. */
static symmem_status keep(cuda_instance *instance, cuuint64_t id, const cuda_work *work,
                          const symmem_exec *exec, cuda_pending *pending) {
    const cuda_needs needs = needs_of(work);
    if (exec->ref_count == 0 && needs.signal == NULL) {
        cuda_pending_drop(instance, pending);
        return SYMMEM_OK;
    }
    return id != 0 ? cuda_captured_add(instance, id, exec, &needs, work->operation)
                   : cuda_pending_add(pending, exec, &needs, work->operation);
}

/* taken_p: the stream owns the fault now, or it is lost, because a kernel may still write there. */
static symmem_status run_work_on(cuda_instance *instance, cuda_work *work, const symmem_exec *exec,
                                 bool *taken_p) {
    cuda_stream *stream = exec->stream;
    cuda_pending *pending = NULL;
    uint64_t id = 0;
    symmem_status status = cuda_capture_join(instance, exec, work->operation, &id);
    if (status == SYMMEM_OK && id == 0)
        status = cuda_pending_make(stream, work->operation, &pending);
    if (status != SYMMEM_OK)
        return status;
    work->capturing = id != 0;
    CUresult result = cuda_composite_begin(instance, exec, stream->native);
    status = result == CUDA_SUCCESS ? work->enqueue(instance, work, stream->native)
                                    : cuda_fail(instance, result, work->operation);
    *taken_p = true;
    if (status == SYMMEM_OK)
        return keep(instance, id, work, exec, pending);
    /* what is captured keeps the fault forever, because its graph may be the program's */
    if (id != 0) {
        cuda_captured_rest(instance, id, exec);
        return status;
    }
    /* Work in flight must not outlive memory that no entry keeps for it. */
    const cuda_needs needs = needs_of(work);
    give_up(work);
    *taken_p = !cuda_pending_rest(pending, exec, &needs, work->operation);
    return status;
}

symmem_status cuda_work_run(cuda_instance *instance, cuda_work *work, const symmem_exec *exec) {
    bool taken = false;
    cuda_collect(instance);
    symmem_status status = cuda_enter(instance, work->device, work->operation);
    if (status != SYMMEM_OK)
        return status;
    if (exec->stream != NULL && exec->composite != NULL && !exec->loose)
        work->failed = &cuda_state_of(exec->composite)->failed;
    status = exec->stream == NULL ? run_work_now(instance, work)
                                  : run_work_on(instance, work, exec, &taken);
    if (!taken)
        cuda_small_block_give(work->signal.fault);
    cuda_leave(instance);
    return status;
}
