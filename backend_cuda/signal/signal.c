/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals and the barrier, by one small kernel each. */
#include <string.h>

#include "signal/signal.h"
#include "signal/composite.h"
#include "signal/plan.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "inflight/inflight.h"
#include "inflight/spare.h"
#include "signal/launch_timeout.h"
#include "driver/pinned.h"
#include "stream/foreign_capture.h"
#include "stream/graph.h"

size_t cuda_signal_bytes(void *opaque, int32_t world_size, int32_t channel_count,
                         size_t block_bytes) {
    (void)opaque;
    return symmem_cuda_signal_size(world_size, channel_count, block_bytes);
}

unsigned int cuda_barrier_threads(int32_t world_size) {
    unsigned int threads = ((unsigned int)world_size + 31) / 32 * 32;
    return threads < SYMMEM_CUDA_MAX_THREADS ? threads : SYMMEM_CUDA_MAX_THREADS;
}

CUresult cuda_launch_kernel(const cuda_instance *instance, CUfunction kernel, unsigned int blocks,
                            unsigned int threads, void *args, CUstream native) {
    void *arguments[] = {args};
    return instance->driver.LaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, native, arguments,
                                         NULL);
}

static CUresult enqueue_one(cuda_instance *instance, cuda_launch *launch, CUstream native) {
    const cuda_arguments args = {&launch->args, sizeof launch->args, &launch->args};
    const CUresult result =
        cuda_launch_kernel(instance, launch->kernel, 1, launch->threads, &launch->args, native);
    if (result == CUDA_SUCCESS)
        cuda_plan_note(launch, launch->kernel, 1, launch->threads, &args);
    return result;
}

bool cuda_small_barrier_of(const cuda_launch *launch, symmem_cuda_small_barrier *small) {
    const symmem_cuda_signal_args *args = &launch->args;
    const int32_t ranks = args->world_size, channels = args->channel_count, channel = args->channel;
    if (ranks > SYMMEM_CUDA_SMALL_RANKS || args->phase != SYMMEM_CUDA_ALONE ||
        launch->signal.call.kind != SYMMEM_CALL_NONE ||
        symmem_cuda_signal_size(ranks, channels, SYMMEM_CUDA_CHUNKED_BLOCK) > UINT32_MAX)
        return false;
    *small = (symmem_cuda_small_barrier){
        .rank = (uint32_t)args->rank,
        .ranks = (uint32_t)ranks,
        .arrivals_at = (uint32_t)symmem_cuda_arrival_at(ranks, channels, channel, 0),
        .epoch_at = (uint32_t)symmem_cuda_epoch_at(ranks, channels, channel),
        .blocks_at = (uint32_t)symmem_cuda_block_at(ranks, channels, channel, 0),
        .calls_at = (uint32_t)symmem_cuda_call_at(ranks, channels, channel, 0),
    };
    for (int32_t turn = 0; turn < ranks; turn++)
        small->signals[turn] = args->small[(args->rank + turn) % ranks];
    return true;
}

/* Its first kernels are enqueued and the rest will not follow. Neither those nor peers may wait for
 * the rest. */
static void give_up(const cuda_launch *launch) {
    const symmem_peers *peers = launch->signal.peers;
    const symmem_fault fault = {.operation = launch->signal.operation,
                                .status = SYMMEM_BACKEND,
                                .channel = launch->signal.channel,
                                .failed_rank = peers->rank};
    peers->host->signal_failed(peers, &fault, NULL);
}

/* Enqueues it and waits. *ended_p: the result of what was enqueued. *status_p: see
 * cuda_launch_wait. */
static CUresult enqueue_now(cuda_instance *instance, int32_t device, cuda_launch *launch,
                            const symmem_exec *exec, CUresult *ended_p, symmem_status *status_p) {
    cuda_private_stream *private_stream;
    CUresult result = cuda_private_stream_take(instance, device, &private_stream);
    if (result != CUDA_SUCCESS)
        return result;
    result = launch->enqueue(instance, launch, private_stream->native);
    if (result != CUDA_SUCCESS && launch->begun)
        give_up(launch);
    if (result == CUDA_SUCCESS || launch->begun)
        *ended_p = cuda_launch_wait(instance, device, launch, exec, private_stream, status_p);
    else /* a launch that failed before it ran left nothing behind */
        cuda_private_stream_give(instance, device, private_stream);
    return result;
}

static void set_fault(cuda_launch *launch, symmem_cuda_fault *fault) {
    launch->signal.fault = fault;
    launch->args.fault = fault;
}

static CUresult take_fault(const cuda_instance *instance, cuda_launch *launch) {
    void *block = NULL;
    const CUresult result = cuda_small_block_take(&instance->driver, &block);
    set_fault(launch, block);
    return result;
}

static symmem_status run_now(cuda_instance *instance, int32_t device, cuda_launch *launch,
                             const symmem_exec *exec) {
    const char *operation = launch->signal.operation;
    CUresult ended = CUDA_SUCCESS;
    symmem_status status = SYMMEM_OK;
    CUresult result = take_fault(instance, launch);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, operation);
    launch->orphan = cuda_orphan_make(instance, device);
    if (launch->orphan == NULL) {
        cuda_small_block_give(launch->signal.fault);
        return cuda_no_memory(instance, operation);
    }
    result = enqueue_now(instance, device, launch, exec, &ended, &status);
    cuda_orphan_drop(launch->orphan);
    if (result != CUDA_SUCCESS || (ended != CUDA_SUCCESS && ended != CUDA_ERROR_NOT_READY)) {
        cuda_forget_fault(instance, &launch->signal);
        if (ended == CUDA_SUCCESS) /* otherwise a kernel may write there that may still run */
            cuda_small_block_give(launch->signal.fault);
        return cuda_fail(instance, result != CUDA_SUCCESS ? result : ended, operation);
    }
    if (ended == CUDA_ERROR_NOT_READY)
        return status;
    symmem_error_record record;
    cuda_await_cause(instance, &launch->signal);
    status = cuda_take_fault(&launch->signal, &record);
    cuda_small_block_give(launch->signal.fault);
    return status;
}

/* Makes what the launch needs beside its kernels: an entry, unless the stream captures, and a place
 * for a fault, which is the entry's if there is one. */
static symmem_status make_entry(cuda_instance *instance, cuda_stream *stream, uint64_t capture,
                                cuda_launch *launch, cuda_pending **pending_p) {
    const char *operation = launch->signal.operation;
    CUresult result;
    if (capture != 0) {
        result = take_fault(instance, launch);
        return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, operation);
    }
    symmem_status status = cuda_pending_make(stream, operation, pending_p);
    if (status != SYMMEM_OK)
        return status;
    result = (*pending_p)->block == NULL ? cuda_spare_place_fault(*pending_p) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        set_fault(launch, (*pending_p)->block);
        return SYMMEM_OK;
    }
    cuda_pending_drop(instance, *pending_p);
    return cuda_fail(instance, result, operation);
}

/* `pending`: of this launch, NULL if the stream captures. Returns false if the caller does not own
 * what it needs any more. */
static bool end_failed(cuda_instance *instance, cuda_launch *launch, cuda_pending *pending,
                       const symmem_exec *exec) {
    const cuda_needs needs = {.signal = &launch->signal};
    if (launch->begun && pending == NULL) /* a part of it is in the program's graph */
        return false;
    if (launch->begun) { /* kernels end before their memory is reused */
        give_up(launch);
        return cuda_pending_rest(pending, exec, &needs, launch->signal.operation);
    }
    cuda_composite_end_failed(instance, pending, exec, launch->signal.operation);
    return true;
}

static symmem_status run_on(cuda_instance *instance, cuda_stream *stream, cuda_launch *launch,
                            const symmem_exec *exec) {
    const char *operation = launch->signal.operation;
    const cuda_needs needs = {.signal = &launch->signal, .end_p = exec->end_p};
    cuda_pending *pending = NULL;
    uint64_t id = 0;
    cuda_trim(stream);
    symmem_status status = cuda_capture_join(instance, exec, operation, &id);
    if (status == SYMMEM_OK)
        status = make_entry(instance, stream, id, launch, &pending);
    if (status != SYMMEM_OK)
        return status;
    CUresult result = cuda_composite_begin(instance, exec, stream->native);
    if (result == CUDA_SUCCESS)
        result = launch->enqueue(instance, launch, stream->native);
    if (result == CUDA_SUCCESS)
        return id != 0 ? cuda_captured_add(instance, id, exec, &needs, operation)
                       : cuda_pending_add(pending, exec, &needs, operation);
    if (id != 0)
        cuda_captured_rest(instance, id, exec);
    if (end_failed(instance, launch, pending, exec) && id != 0)
        cuda_small_block_give(launch->signal.fault);
    return cuda_fail(instance, result, operation);
}

static void prepare(const symmem_peers *peers, int32_t peer, int32_t channel,
                    const symmem_exec *exec, cuda_launch *launch) {
    const cuda_peers *own = peers->priv;
    launch->signal.peers = peers;
    launch->signal.channel = channel;
    launch->signal.call = exec->call;
    launch->args = (symmem_cuda_signal_args){
        .signals = (void *const *)(uintptr_t)(own->tables +
                                              2 * sizeof(void *) * (size_t)peers->world_size),
        .control = own->control,
        .rank = peers->rank,
        .world_size = peers->world_size,
        .channel_count = peers->channel_count,
        .channel = channel,
        .peer = peer,
        .timeout_ms = exec->timeout_ms,
        .stream = cuda_stream_name(exec->stream),
    };
    memcpy(launch->args.call, &exec->call, sizeof launch->args.call);
    if (peers->world_size <= SYMMEM_CUDA_SMALL_RANKS)
        memcpy(launch->args.small, peers->signals, sizeof(void *) * (size_t)peers->world_size);
    if (exec->stream != NULL && exec->composite != NULL) {
        launch->args.phase = exec->first ? SYMMEM_CUDA_FIRST : SYMMEM_CUDA_COMPOSITE_STEP;
        launch->args.state = cuda_state_of(exec->composite);
    }
}

/* Whether the call only launches and marks, in no capture. No capture mode forbids that, but the
 * default streams' work may break another stream's capture. */
static bool only_enqueues(const symmem_exec *exec) {
    const cuda_stream *stream = exec->stream;
    return stream != NULL && exec->capture_known && exec->capture == 0 && exec->composite == NULL &&
           !cuda_is_default_stream(stream->native);
}

static symmem_status run(cuda_instance *instance, const symmem_peers *peers,
                         const symmem_exec *exec, cuda_launch *launch) {
    const bool is_there = only_enqueues(exec) && cuda_is_entered(instance, peers->device);
    symmem_status status =
        is_there ? SYMMEM_OK : cuda_enter(instance, peers->device, launch->signal.operation);
    if (status != SYMMEM_OK)
        return status;
    status = exec->stream == NULL ? run_now(instance, peers->device, launch, exec)
                                  : run_on(instance, exec->stream, launch, exec);
    if (!is_there)
        cuda_leave(instance);
    return status;
}

symmem_status cuda_launch_run(cuda_instance *instance, const symmem_peers *peers, int32_t peer,
                              int32_t channel, const symmem_exec *exec, cuda_launch *launch) {
    if (exec->operation != NULL)
        launch->signal.operation = exec->operation;
    prepare(peers, peer, channel, exec, launch);
    return run(instance, peers, exec, launch);
}

/* The context is current. Nothing but the launch and its mark. */
static symmem_status launch_again(cuda_instance *instance, const symmem_exec *exec,
                                  cuda_pending *pending, cuda_plan *plan) {
    const char *operation = pending->signal.operation;
    CUresult result = pending->block == NULL ? cuda_spare_place_fault(pending) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = cuda_plan_launch(instance, plan, pending->block, exec);
    if (result != CUDA_SUCCESS) {
        cuda_pending_drop(instance, pending);
        return cuda_fail(instance, result, operation);
    }
    pending->signal.fault = pending->block;
    const cuda_needs needs = {.signal = &pending->signal, .end_p = exec->end_p};
    return cuda_pending_add(pending, exec, &needs, operation);
}

symmem_status cuda_launch_planned(cuda_instance *instance, const symmem_peers *peers,
                                  int32_t channel, const symmem_exec *exec, cuda_plan *plan,
                                  const char *operation) {
    cuda_stream *stream = exec->stream;
    cuda_pending *pending;
    if (exec->operation != NULL)
        operation = exec->operation;
    const bool is_there = only_enqueues(exec) && cuda_is_entered(instance, peers->device);
    symmem_status status = is_there ? SYMMEM_OK : cuda_enter(instance, peers->device, operation);
    if (status != SYMMEM_OK)
        return status;
    if (atomic_load_explicit(&stream->crowded, memory_order_relaxed))
        cuda_trim(stream);
    status = cuda_pending_make(stream, operation, &pending);
    if (status == SYMMEM_OK) {
        pending->signal.peers = peers; /* the rest is zero */
        pending->signal.channel = channel;
        pending->signal.operation = operation;
        status = launch_again(instance, exec, pending, plan);
    }
    if (!is_there)
        cuda_leave(instance);
    return status;
}

static CUresult enqueue_barrier(cuda_instance *instance, cuda_launch *launch, CUstream native) {
    symmem_cuda_small_barrier_args args = {.signal = launch->args};
    const cuda_kernels *kernels = &instance->devices[launch->signal.peers->device].kernels;
    if (kernels->small_barrier == NULL || !cuda_small_barrier_of(launch, &args.small))
        return enqueue_one(instance, launch, native);
    const unsigned int threads = SYMMEM_CUDA_SMALL_BARRIER_THREADS;
    const CUresult result =
        cuda_launch_kernel(instance, kernels->small_barrier, 1, threads, &args, native);
    if (result == CUDA_SUCCESS)
        cuda_plan_note(launch, kernels->small_barrier, 1, threads, &CUDA_ARGUMENTS(args));
    return result;
}

/* The functions are loaded once the device is open. It is open, because memory came from it. */
symmem_status cuda_barrier(void *opaque, const symmem_peers *peers, int32_t channel,
                           const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    cuda_plan *plan = cuda_plan_of(peers, channel, NULL, exec);
    if (plan != NULL && plan->kernel != NULL)
        return cuda_launch_planned(instance, peers, channel, exec, plan, "barrier");
    cuda_launch launch = {.plan = plan,
                          .enqueue = enqueue_barrier,
                          .kernel = instance->devices[peers->device].kernels.barrier,
                          .threads = cuda_barrier_threads(peers->world_size),
                          .signal = {.operation = "barrier"}};
    return cuda_launch_run(instance, peers, -1, channel, exec, &launch);
}

symmem_status cuda_put_signal(void *opaque, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    cuda_launch launch = {.enqueue = enqueue_one,
                          .kernel = instance->devices[peers->device].kernels.put_signal,
                          .threads = 32,
                          .signal = {.operation = "put_signal"}};
    return cuda_launch_run(instance, peers, dst_rank, channel, exec, &launch);
}

symmem_status cuda_wait_signal(void *opaque, const symmem_peers *peers, int32_t src_rank,
                               int32_t channel, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    cuda_launch launch = {.enqueue = enqueue_one,
                          .kernel = instance->devices[peers->device].kernels.wait_signal,
                          .threads = 32,
                          .signal = {.operation = "wait_signal"}};
    return cuda_launch_run(instance, peers, src_rank, channel, exec, &launch);
}
