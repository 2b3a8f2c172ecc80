/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, and the operations on bytes that run on them. */
#include "cuda_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

CUstream cuda_exec_stream(const cuda_instance *instance, int32_t device, const symmem_exec *exec) {
    const cuda_stream *stream = exec->stream;
    return stream != NULL ? stream->native : instance->devices[device].stream;
}

/* Releases the references whose work is over. Runs outside every driver callback, because the last
 * release unmaps memory. A real backend needs a thread for this: the user may never call again. */
void cuda_collect(cuda_instance *instance) {
    cuda_pending *ready = NULL;

    pthread_mutex_lock(&instance->lock);
    for (cuda_pending **link = &instance->pending; *link != NULL;) {
        cuda_pending *pending = *link;
        if (cuEventQuery(pending->done) == CUDA_ERROR_NOT_READY) {
            link = &pending->next;
        } else { /* over, or the context is lost and nothing runs any more */
            *link = pending->next;
            pending->next = ready;
            ready = pending;
        }
    }
    pthread_mutex_unlock(&instance->lock);
    while (ready != NULL) {
        cuda_pending *pending = ready;
        ready = pending->next;
        for (int32_t i = 0; i < pending->ref_count; i++) {
            pending->refs[i].release(pending->refs[i].object);
        }
        (void)cuEventDestroy(pending->done);
        free(pending);
    }
}

static symmem_status keep_refs(cuda_instance *instance, CUstream native, const symmem_exec *exec,
                               const char *operation) {
    cuda_pending *pending = calloc(1, sizeof *pending);
    if (pending == NULL) {
        return instance->host->fail(instance->host, SYMMEM_OUT_OF_MEMORY, 0, operation, "refs");
    }
    CUresult result = cuEventCreate(&pending->done, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) {
        result = cuEventRecord(pending->done, native);
    }
    if (result != CUDA_SUCCESS) {
        free(pending);
        return cuda_fail(instance, result, operation);
    }
    pending->ref_count = exec->ref_count;
    for (int32_t i = 0; i < exec->ref_count; i++) {
        pending->refs[i] = exec->refs[i];
        exec->refs[i].retain(exec->refs[i].object);
    }
    pthread_mutex_lock(&instance->lock);
    pending->next = instance->pending;
    instance->pending = pending;
    pthread_mutex_unlock(&instance->lock);
    return SYMMEM_OK;
}

symmem_status cuda_exec_done(cuda_instance *instance, int32_t device, const symmem_exec *exec,
                             const char *operation) {
    CUstream native = cuda_exec_stream(instance, device, exec);
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;

    if (exec->stream == NULL) {
        CUresult result = cuStreamSynchronize(native);
        return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, operation);
    }
    CUresult result = cuStreamGetCaptureInfo(native, &capturing, NULL, &graph, NULL, NULL, NULL);
    if (result != CUDA_SUCCESS) {
        return cuda_fail(instance, result, operation);
    }
    if (capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return cuda_capture_refs(instance, graph, exec);
    }
    cuda_collect(instance);
    return keep_refs(instance, native, exec, operation);
}

symmem_status cuda_copy(void *opaque, int32_t device, void *dst, const void *src, size_t bytes,
                        const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    symmem_status status = cuda_enter(instance, device, "copy");
    if (status != SYMMEM_OK) {
        return status;
    }
    CUresult result = cuMemcpyAsync(cuda_address(dst), cuda_address(src), bytes,
                                    cuda_exec_stream(instance, device, exec));
    status = result == CUDA_SUCCESS ? cuda_exec_done(instance, device, exec, "copy")
                                    : cuda_fail(instance, result, "copy");
    cuda_leave();
    return status;
}

symmem_status cuda_memset32(void *opaque, int32_t device, void *dst, uint32_t value, size_t count,
                            const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    symmem_status status = cuda_enter(instance, device, "memset32");
    if (status != SYMMEM_OK) {
        return status;
    }
    CUresult result =
        cuMemsetD32Async(cuda_address(dst), value, count, cuda_exec_stream(instance, device, exec));
    status = result == CUDA_SUCCESS ? cuda_exec_done(instance, device, exec, "memset32")
                                    : cuda_fail(instance, result, "memset32");
    cuda_leave();
    return status;
}

symmem_status cuda_write_value32(void *opaque, int32_t device, void *dst, uint32_t value,
                                 const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    symmem_status status = cuda_enter(instance, device, "write_value32");
    if (status != SYMMEM_OK) {
        return status;
    }
    /* The default flag fences the stream's earlier work system-wide before the write. */
    CUresult result = cuStreamWriteValue32(cuda_exec_stream(instance, device, exec),
                                           cuda_address(dst), value, CU_STREAM_WRITE_VALUE_DEFAULT);
    status = result == CUDA_SUCCESS ? cuda_exec_done(instance, device, exec, "write_value32")
                                    : cuda_fail(instance, result, "write_value32");
    cuda_leave();
    return status;
}

/* --- streams ------------------------------------------------------------------------ */

static symmem_status make_stream(cuda_instance *instance, int32_t device, CUstream native,
                                 bool wrapped, void **stream_p) {
    cuda_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        return instance->host->fail(instance->host, SYMMEM_OUT_OF_MEMORY, 0, "stream", "stream");
    }
    CUresult result = cuMemHostAlloc((void **)&stream->fault, sizeof *stream->fault,
                                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result == CUDA_SUCCESS && !wrapped) {
        result = cuStreamCreate(&native, CU_STREAM_NON_BLOCKING);
    }
    if (result != CUDA_SUCCESS) {
        if (stream->fault != NULL) {
            (void)cuMemFreeHost(stream->fault);
        }
        free(stream);
        return cuda_fail(instance, result, "stream");
    }
    memset(stream->fault, 0, sizeof *stream->fault);
    stream->instance = instance;
    stream->native = native;
    stream->device = device;
    stream->wrapped = wrapped;
    pthread_mutex_lock(&instance->lock);
    stream->next = instance->streams;
    instance->streams = stream;
    pthread_mutex_unlock(&instance->lock);
    *stream_p = stream;
    return SYMMEM_OK;
}

symmem_status cuda_stream_create(void *opaque, int32_t device, void **stream_p) {
    symmem_status status = cuda_enter(opaque, device, "stream");
    if (status == SYMMEM_OK) {
        status = make_stream(opaque, device, NULL, false, stream_p);
        cuda_leave();
    }
    return status;
}

symmem_status cuda_stream_wrap(void *opaque, int32_t device, void *native, void **stream_p) {
    symmem_status status = cuda_enter(opaque, device, "stream");
    if (status == SYMMEM_OK) {
        status = make_stream(opaque, device, native, true, stream_p);
        cuda_leave();
    }
    return status;
}

/* Running work may still write stream->fault: a real backend frees that when an event says so. */
void cuda_stream_destroy(void *opaque, void *opaque_stream) {
    cuda_instance *instance = opaque;
    cuda_stream *stream = opaque_stream;

    pthread_mutex_lock(&instance->lock);
    for (cuda_stream **link = &instance->streams; *link != NULL; link = &(*link)->next) {
        if (*link == stream) {
            *link = stream->next;
            break;
        }
    }
    pthread_mutex_unlock(&instance->lock);
    if (cuda_enter(instance, stream->device, "stream") == SYMMEM_OK) {
        if (!stream->wrapped) {
            (void)cuStreamDestroy(stream->native);
        }
        (void)cuMemFreeHost(stream->fault);
        cuda_leave();
    }
    free(stream);
}

/* The driver's own wait has no deadline, so this asks again and again. */
static CUresult wait_idle(CUstream native, uint32_t timeout_ms) {
    const struct timespec pause = {.tv_nsec = 50000};
    uint64_t end_ms = now_ms() + timeout_ms;
    CUresult result;

    while ((result = cuStreamQuery(native)) == CUDA_ERROR_NOT_READY) {
        if (timeout_ms != 0 && now_ms() >= end_ms) {
            break;
        }
        nanosleep(&pause, NULL);
    }
    return result;
}

static symmem_status fail_wait(cuda_instance *instance, CUresult result, const char *operation) {
    if (result == CUDA_ERROR_NOT_READY) {
        return instance->host->fail(instance->host, SYMMEM_TIMEOUT, 0, operation,
                                    "the stream's work has not ended");
    }
    return cuda_fail(instance, result, operation);
}

symmem_status cuda_stream_synchronize(void *opaque, void *opaque_stream, uint32_t timeout_ms,
                                      symmem_error_record *record_p) {
    cuda_instance *instance = opaque;
    cuda_stream *stream = opaque_stream;
    symmem_status status = cuda_enter(instance, stream->device, "stream_synchronize");
    if (status != SYMMEM_OK) {
        return status;
    }
    CUresult result = wait_idle(stream->native, timeout_ms);
    cuda_leave();
    cuda_collect(instance);
    if (result != CUDA_SUCCESS) {
        return fail_wait(instance, result, "stream_synchronize");
    }
    /* acquire; pairs with: the kernel's release store of the code. The record would be the one that
     * host->signal_failed made; that needs the peers, which the fault slot has to name. */
    uint32_t code = atomic_exchange_explicit(&stream->fault->code, 0, memory_order_acquire);
    if (code != 0) {
        memset(record_p, 0, sizeof *record_p);
        record_p->status = (symmem_status)(-(int32_t)code);
        return record_p->status;
    }
    return SYMMEM_OK;
}

symmem_status cuda_stream_query(void *opaque, void *opaque_stream, bool *idle_p) {
    cuda_stream *stream = opaque_stream;
    CUresult result = cuStreamQuery(stream->native);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        return cuda_fail(opaque, result, "stream_query");
    }
    *idle_p = result == CUDA_SUCCESS;
    return SYMMEM_OK;
}

/* Only streams made or wrapped here: the driver cannot wait for others with a deadline. */
symmem_status cuda_device_synchronize(void *opaque, int32_t device, uint32_t timeout_ms) {
    cuda_instance *instance = opaque;
    uint64_t end_ms = now_ms() + timeout_ms;
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&instance->lock);
    for (cuda_stream *stream = instance->streams; stream != NULL && result == CUDA_SUCCESS;
         stream = stream->next) {
        if (stream->device == device) {
            uint64_t left_ms = end_ms > now_ms() ? end_ms - now_ms() : 1;
            result = wait_idle(stream->native, timeout_ms == 0 ? 0 : (uint32_t)left_ms);
        }
    }
    pthread_mutex_unlock(&instance->lock);
    return result == CUDA_SUCCESS ? SYMMEM_OK : fail_wait(instance, result, "device_synchronize");
}

symmem_status cuda_host_fn(void *opaque, void *opaque_stream, void (*fn)(void *arg), void *arg) {
    cuda_stream *stream = opaque_stream;
    CUresult result = cuLaunchHostFunc(stream->native, fn, arg);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(opaque, result, "host_fn");
}
