/* SPDX-License-Identifier: BSD-3-Clause */
/* Work of a device, enqueued by a function: products, strided copies, reductions, and what another
 * backend's library enqueues. */
#include <string.h>

#include "cuda/product.h"
#include "collective/work.h"
#include "signal/composite.h"
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "inflight/inflight.h"
#include "driver/pinned.h"
#include "driver/staging.h"
#include "inflight/chunk_wait.h"
#include "signal/signal.h"
#include "stream/foreign_capture.h"
#include "stream/graph.h"
#include "stream/stream.h"

#define MAX_BLOCKS 2048 /* more than a device runs at once */
#define LOOK_MS 20u

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

static cuda_needs needs_of(const cuda_work *work) {
    return (cuda_needs){.signal = work->signal.fault != NULL ? &work->signal : NULL,
                        .staging = work->staging};
}

/* Without `look`, until it is over. Else NOT_READY with *status_p says that it goes on alone. */
static CUresult wait_now(cuda_instance *instance, const cuda_work *work, const symmem_exec *exec,
                         CUstream native, symmem_status *status_p) {
    if (work->look == NULL)
        return work->signal.fault != NULL ? cuda_wait_idle(instance, native, 0, &work->signal)
                                          : cuda_wait_call(instance, native);
    const uint64_t end_ns =
        exec->timeout_ms == 0 ? 0 : cuda_now_ns() + exec->timeout_ms * CUDA_NS_PER_MS;
    CUresult result;
    while ((result = cuda_wait_idle(instance, native, LOOK_MS, NULL)) == CUDA_ERROR_NOT_READY) {
        *status_p = work->look(instance, work);
        if (*status_p == SYMMEM_OK && end_ns != 0 && cuda_now_ns() >= end_ns)
            *status_p = cuda_fail_timeout(instance, work->operation);
        if (*status_p != SYMMEM_OK)
            break;
    }
    return result;
}

/* Work that goes on keeps its stream, what it needs and the references. */
static void leave_now(cuda_instance *instance, cuda_work *work, const symmem_exec *exec,
                      cuda_private_stream *private_stream, cuda_pending *orphan) {
    const cuda_needs needs = needs_of(work);
    cuda_staging_give_up(work->staging);
    cuda_orphan(orphan, private_stream->native, exec, &needs, work->operation);
    cuda_private_stream_end(instance, work->device, private_stream);
}

static symmem_status run_work_now(cuda_instance *instance, cuda_work *work,
                                  const symmem_exec *exec) {
    cuda_private_stream *private_stream;
    symmem_status left = SYMMEM_OK;
    CUresult result = cuda_private_stream_take(instance, work->device, &private_stream);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, work->operation);
    cuda_pending *orphan = work->look != NULL ? cuda_orphan_make(instance, work->device) : NULL;
    symmem_status status = work->enqueue(instance, work, private_stream->native);
    if (status != SYMMEM_OK)
        give_up(work);
    result = wait_now(instance, work, exec, private_stream->native, &left);
    if (left != SYMMEM_OK) {
        leave_now(instance, work, exec, private_stream, orphan);
        return status == SYMMEM_OK ? left : status;
    }
    cuda_orphan_drop(orphan);
    cuda_staging_give(work->staging);
    cuda_private_stream_give(instance, work->device, private_stream);
    if (status == SYMMEM_OK && result != CUDA_SUCCESS)
        status = cuda_fail(instance, result, work->operation);
    return status == SYMMEM_OK ? tell(instance, work) : status;
}

/* `pending`: NULL if the stream captures. */
static symmem_status keep(cuda_instance *instance, cuuint64_t id, const cuda_work *work,
                          const symmem_exec *exec, cuda_pending *pending) {
    const cuda_needs needs = needs_of(work);
    if (exec->ref_count == 0 && needs.signal == NULL && needs.staging == NULL) {
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
    if (!*taken_p)
        cuda_staging_give(work->staging);
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
    status = exec->stream == NULL ? run_work_now(instance, work, exec)
                                  : run_work_on(instance, work, exec, &taken);
    if (!taken)
        cuda_small_block_give(work->signal.fault);
    cuda_leave(instance);
    return status;
}
