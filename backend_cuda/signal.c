/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals: one small kernel an operation, on the tables that peers_open makes. */
#include "cuda_internal.h"

#include <stdlib.h>
#include <string.h>

/* A slot and an inbox word for each (channel, source), and an epoch for each channel. */
size_t cuda_signal_bytes(void *opaque, int32_t world_size, int32_t channel_count) {
    (void)opaque;
    return sizeof(uint32_t) * (size_t)channel_count * (2 * (size_t)world_size + 1);
}

static CUresult fill_tables(const symmem_peers *peers, cuda_peers *priv) {
    size_t bytes = sizeof(void *) * (size_t)peers->world_size;
    CUresult result = cuMemAlloc(&priv->tables, 3 * bytes);
    if (result == CUDA_SUCCESS) {
        result = cuMemcpyHtoD(priv->tables, peers->buffers, bytes);
    }
    if (result == CUDA_SUCCESS) {
        result = cuMemcpyHtoD(priv->tables + bytes, peers->pads, bytes);
    }
    if (result == CUDA_SUCCESS) {
        result = cuMemcpyHtoD(priv->tables + 2 * bytes, peers->signals, bytes);
    }
    return result;
}

static void free_peers(cuda_peers *priv) {
    if (priv->tables != 0) {
        (void)cuMemFree(priv->tables);
    }
    if (priv->fault != NULL) {
        (void)cuMemFreeHost(priv->fault);
    }
    if (priv->abort != NULL) {
        (void)cuMemFreeHost(priv->abort);
    }
    free(priv);
}

symmem_status cuda_peers_open(void *opaque, symmem_peers *peers, void **buffers_dev_p,
                              void **pads_dev_p) {
    cuda_instance *instance = opaque;
    const unsigned int pinned = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    cuda_peers *priv = calloc(1, sizeof *priv);
    if (priv == NULL) {
        return instance->host->fail(instance->host, SYMMEM_OUT_OF_MEMORY, 0, "peers", "tables");
    }
    symmem_status status = cuda_enter(instance, peers->device, "peers");
    if (status != SYMMEM_OK) {
        free(priv);
        return status;
    }
    CUresult result = fill_tables(peers, priv);
    if (result == CUDA_SUCCESS) {
        result = cuMemHostAlloc((void **)&priv->fault, sizeof *priv->fault, pinned);
    }
    if (result == CUDA_SUCCESS) {
        memset(priv->fault, 0, sizeof *priv->fault);
        result = cuMemHostAlloc((void **)&priv->abort, sizeof *priv->abort, pinned);
    }
    if (result == CUDA_SUCCESS) {
        *priv->abort = 0;
        peers->priv = priv;
        *buffers_dev_p = (void *)(uintptr_t)priv->tables;
        *pads_dev_p =
            (void *)(uintptr_t)(priv->tables + sizeof(void *) * (size_t)peers->world_size);
    } else {
        status = cuda_fail(instance, result, "peers");
        free_peers(priv);
    }
    cuda_leave();
    return status;
}

void cuda_peers_close(void *opaque, symmem_peers *peers) {
    if (cuda_enter(opaque, peers->device, "peers") == SYMMEM_OK) {
        free_peers(peers->priv);
        cuda_leave();
    }
}

/* Faults of an operation without a stream: here the failure is seen at once. */
static symmem_status take_fault(const symmem_peers *peers, const char *operation) {
    cuda_peers *priv = peers->priv;
    /* acquire; pairs with: the kernel's release store of the code */
    uint32_t code = atomic_load_explicit(&priv->fault->code, memory_order_acquire);
    if (code == 0) {
        return SYMMEM_OK;
    }
    symmem_fault fault = {
        .operation = operation,
        .status = (symmem_status)(-(int32_t)code),
        .channel = priv->fault->channel,
        .failed_rank = priv->fault->failed_rank,
        .elapsed_ns = priv->fault->elapsed_ns,
    };
    memcpy(fault.missing, priv->fault->missing, sizeof fault.missing);
    symmem_error_record record;
    peers->host->signal_failed(peers, &fault, &record);
    atomic_store_explicit(&priv->fault->code, 0, memory_order_relaxed);
    return peers->host->fail(peers->host, record.status, record.system_errno, operation, "%s",
                             record.message);
}

static symmem_status launch(cuda_instance *instance, const symmem_peers *peers, CUfunction kernel,
                            const char *operation, int32_t peer, int32_t channel,
                            const symmem_exec *exec) {
    cuda_peers *priv = peers->priv;
    const cuda_stream *stream = exec->stream;
    CUdeviceptr signals = priv->tables + 2 * sizeof(void *) * (size_t)peers->world_size;
    /* In a graph the stream of the launch is not known yet, so the fault goes to the peers' slot.
     */
    void *fault = stream != NULL ? stream->fault : priv->fault;
    uint32_t *abort_word = priv->abort;
    int32_t rank = peers->rank, world_size = peers->world_size, channels = peers->channel_count;
    uint32_t timeout_ms = exec->timeout_ms;
    void *arguments[] = {&signals, &rank,  &world_size, &channels,  &peer,
                         &channel, &fault, &abort_word, &timeout_ms};

    symmem_status status = cuda_enter(instance, peers->device, operation);
    if (status != SYMMEM_OK) {
        return status;
    }
    CUresult result =
        cuLaunchKernel(kernel, 1, 1, 1, (unsigned int)world_size, 1, 1, 0,
                       cuda_exec_stream(instance, peers->device, exec), arguments, NULL);
    status = result == CUDA_SUCCESS ? cuda_exec_done(instance, peers->device, exec, operation)
                                    : cuda_fail(instance, result, operation);
    cuda_leave();
    if (status == SYMMEM_OK && exec->stream == NULL) {
        status = take_fault(peers, operation);
    }
    return status;
}

symmem_status cuda_barrier(void *opaque, const symmem_peers *peers, int32_t channel,
                           const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    return launch(instance, peers, instance->devices[peers->device].barrier_kernel, "barrier", -1,
                  channel, exec);
}

symmem_status cuda_put_signal(void *opaque, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    return launch(instance, peers, instance->devices[peers->device].put_kernel, "put_signal",
                  dst_rank, channel, exec);
}

symmem_status cuda_wait_signal(void *opaque, const symmem_peers *peers, int32_t src_rank,
                               int32_t channel, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    return launch(instance, peers, instance->devices[peers->device].wait_kernel, "wait_signal",
                  src_rank, channel, exec);
}

symmem_status cuda_signal_reset(void *opaque, const symmem_peers *peers) {
    cuda_instance *instance = opaque;
    cuda_peers *priv = peers->priv;
    CUstream stream = instance->devices[peers->device].stream;
    symmem_status status = cuda_enter(instance, peers->device, "reset");
    if (status != SYMMEM_OK) {
        return status;
    }
    CUresult result =
        cuMemsetD8Async(cuda_address(peers->signals[peers->rank]), 0, peers->signal_bytes, stream);
    if (result == CUDA_SUCCESS) {
        result = cuStreamSynchronize(stream);
    }
    cuda_leave();
    if (result != CUDA_SUCCESS) {
        return cuda_fail(instance, result, "reset");
    }
    *priv->abort = 0;
    atomic_store_explicit(&priv->fault->code, 0, memory_order_relaxed);
    return SYMMEM_OK;
}

/* Own kernels give up by the abort word; peers' would need a word in the signal state as well. */
void cuda_signal_poison(void *opaque, const symmem_peers *peers) {
    (void)opaque;
    __atomic_store_n(((cuda_peers *)peers->priv)->abort, 1u, __ATOMIC_RELEASE);
}
