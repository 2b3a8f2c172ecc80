/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parts of operations that the core composes of barriers and copies. Whether one has failed stands
 * in the signal state of the operation's channel, where the parts that follow look, also in a
 * graph.
 */
#include "cuda/collective.h"
#include "cuda_internal.h"

symmem_cuda_state *cuda_state_of(const symmem_whole *whole) {
    const symmem_peers *peers = whole->peers;
    char *own = peers->signals[peers->rank];
    return (symmem_cuda_state *)(void *)(own + symmem_cuda_state_at(peers->world_size,
                                                                    peers->channel_count,
                                                                    whole->channel));
}

/* A first barrier's kernel does it itself. */
static bool is_begun_by_host(const symmem_exec *exec) {
    return exec->whole != NULL && exec->part == 0 && !exec->loose && !exec->first;
}

CUresult cuda_part_begin(const cuda_instance *instance, const symmem_exec *exec, CUstream native) {
    if (!is_begun_by_host(exec))
        return CUDA_SUCCESS;
    return instance->driver.MemsetD8Async((CUdeviceptr)(uintptr_t)cuda_state_of(exec->whole), 0,
                                          SYMMEM_CUDA_STATE_OF_OPERATION, native);
}

void cuda_part_end_failed(cuda_instance *instance, cuda_pending *pending, const symmem_exec *exec,
                          const char *operation) {
    const cuda_needs needs = {.told = true};
    if (pending != NULL && is_begun_by_host(exec))
        (void)cuda_pending_add(pending, exec, &needs, operation);
    else
        cuda_pending_drop(instance, pending);
}

CUresult cuda_part_move(const cuda_instance *instance, const symmem_exec *exec, CUdeviceptr dst,
                        CUdeviceptr src, size_t bytes, CUstream native) {
    const cuda_device *device = &instance->devices[exec->whole->peers->device];
    symmem_cuda_part_args args = {.segment = {.dst = (char *)(uintptr_t)dst,
                                              .src = (const char *)(uintptr_t)src,
                                              .bytes = bytes},
                                  .state = cuda_state_of(exec->whole)};
    return cuda_launch_kernel(instance, device->kernels.move_part, cuda_blocks_for(bytes),
                              SYMMEM_CUDA_COLLECTIVE_THREADS, &args, native);
}
