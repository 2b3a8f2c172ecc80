/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals and the barrier: one small kernel each. */
#include <string.h>

#include "cuda_internal.h"

size_t cuda_signal_bytes(void *opaque, int32_t world_size, int32_t channel_count) {
    (void)opaque;
    return symmem_cuda_signal_size(world_size, channel_count);
}

/* A kernel, and what the host keeps of it. */
typedef struct launch_op {
    CUfunction kernel;
    unsigned int threads;
    symmem_cuda_signal_args args;
    cuda_signal_op signal;
} launch_op;

static unsigned int barrier_threads(int32_t world_size) {
    unsigned int threads = ((unsigned int)world_size + 31) / 32 * 32;
    return threads < SYMMEM_CUDA_MAX_THREADS ? threads : SYMMEM_CUDA_MAX_THREADS;
}

static CUresult launch(cuda_instance *instance, launch_op *op, CUstream native) {
    void *arguments[] = {&op->args};
    return instance->driver.LaunchKernel(op->kernel, 1, 1, 1, op->threads, 1, 1, 0, native,
                                         arguments, NULL);
}

/* A launch that failed before it ran left nothing behind. */
static symmem_status run_now(cuda_instance *instance, int32_t device, launch_op *op) {
    const char *operation = op->signal.operation;
    cuda_lane *lane;
    CUresult result = cuda_lane_take(instance, device, &lane);
    if (result == CUDA_SUCCESS) {
        result = launch(instance, op, lane->native);
        if (result == CUDA_SUCCESS)
            result = cuda_wait_idle(instance, lane->native, 0, &op->signal);
        cuda_lane_give(instance, device, lane);
    }
    if (result != CUDA_SUCCESS) {
        cuda_piece_give(instance, op->signal.fault);
        return cuda_fail(instance, result, operation);
    }
    symmem_error_record record;
    symmem_status status = cuda_take_fault(&op->signal, &record);
    cuda_piece_give(instance, op->signal.fault);
    return status;
}

static symmem_status run_on(cuda_instance *instance, cuda_stream *stream, launch_op *op,
                            const symmem_exec *exec) {
    const char *operation = op->signal.operation;
    uint64_t id = 0;
    symmem_status status = cuda_capture_id(instance, stream, &id);
    if (status == SYMMEM_OK) {
        CUresult result = launch(instance, op, stream->native);
        if (result != CUDA_SUCCESS)
            status = cuda_fail(instance, result, operation);
    }
    if (status != SYMMEM_OK) {
        cuda_piece_give(instance, op->signal.fault);
        return status;
    }
    const cuda_needs needs = {.signal = &op->signal};
    status = id != 0 ? cuda_captured_add(instance, id, exec, &needs, operation)
                     : cuda_pending_add(stream, exec, &needs, operation);
    /* The kernel is on its way: it must not find its memory given to another. */
    if (status != SYMMEM_OK && id == 0 &&
        cuda_wait_idle(instance, stream->native, 0, &op->signal) == CUDA_SUCCESS)
        cuda_piece_give(instance, op->signal.fault);
    return status;
}

static symmem_status prepare(cuda_instance *instance, const symmem_peers *peers, int32_t peer,
                             int32_t channel, const symmem_exec *exec, launch_op *op) {
    const cuda_peers *own = peers->priv;
    void *fault;
    CUresult result = cuda_piece_take(instance, &fault);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, op->signal.operation);
    op->signal.peers = peers;
    op->signal.channel = channel;
    op->signal.call = exec->call;
    op->signal.fault = fault;
    op->args = (symmem_cuda_signal_args){
        .signals = (void *const *)(uintptr_t)(own->tables +
                                              2 * sizeof(void *) * (size_t)peers->world_size),
        .fault = fault,
        .control = own->control,
        .rank = peers->rank,
        .world_size = peers->world_size,
        .channel_count = peers->channel_count,
        .channel = channel,
        .peer = peer,
        .timeout_ms = exec->timeout_ms,
    };
    memcpy(op->args.call, &exec->call, sizeof op->args.call);
    return SYMMEM_OK;
}

static symmem_status run(cuda_instance *instance, const symmem_peers *peers, int32_t peer,
                         int32_t channel, const symmem_exec *exec, launch_op *op) {
    if (exec->operation != NULL)
        op->signal.operation = exec->operation;
    cuda_collect(instance);
    symmem_status status = cuda_enter(instance, peers->device, op->signal.operation);
    if (status != SYMMEM_OK)
        return status;
    status = prepare(instance, peers, peer, channel, exec, op);
    if (status == SYMMEM_OK)
        status = exec->stream == NULL ? run_now(instance, peers->device, op)
                                      : run_on(instance, exec->stream, op, exec);
    cuda_leave(instance);
    return status;
}

/* The functions are there once the device is open, which it is: memory came from it. */
symmem_status cuda_barrier(void *opaque, const symmem_peers *peers, int32_t channel,
                           const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    launch_op op = {.kernel = instance->devices[peers->device].barrier,
                    .threads = barrier_threads(peers->world_size),
                    .signal = {.operation = "barrier"}};
    return run(instance, peers, -1, channel, exec, &op);
}

symmem_status cuda_put_signal(void *opaque, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    launch_op op = {.kernel = instance->devices[peers->device].put_signal,
                    .threads = 32,
                    .signal = {.operation = "put_signal"}};
    return run(instance, peers, dst_rank, channel, exec, &op);
}

symmem_status cuda_wait_signal(void *opaque, const symmem_peers *peers, int32_t src_rank,
                               int32_t channel, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    launch_op op = {.kernel = instance->devices[peers->device].wait_signal,
                    .threads = 32,
                    .signal = {.operation = "wait_signal"}};
    return run(instance, peers, src_rank, channel, exec, &op);
}
