/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps of operations that the core composes of barriers and copies. The signal state of the
 * operation's channel says whether a step has failed. Later steps read it there, also in a graph.
 */
#include "cuda/collective.h"
#include "signal/composite.h"
#include "inflight/inflight.h"
#include "signal/signal.h"

#define BLOCK_BYTES ((size_t)32 << 10) /* the least for which another block pays */
#define MAX_BLOCKS 256                 /* enough to fill any device */

unsigned int cuda_blocks_for(size_t bytes) {
    size_t blocks = bytes / BLOCK_BYTES + 1;
    return (unsigned int)(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS);
}

symmem_cuda_state *cuda_state_of(const symmem_composite *composite) {
    const symmem_peers *peers = composite->peers;
    char *own = peers->signals[peers->rank];
    return (symmem_cuda_state *)(void *)(own + symmem_cuda_state_at(peers->world_size,
                                                                    peers->channel_count,
                                                                    composite->channel));
}

/* A first barrier's kernel does it itself. */
static bool is_begun_by_host(const symmem_exec *exec) {
    return exec->composite != NULL && exec->step == 0 && !exec->loose && !exec->first;
}

CUresult cuda_composite_begin(const cuda_instance *instance, const symmem_exec *exec,
                              CUstream native) {
    if (!is_begun_by_host(exec))
        return CUDA_SUCCESS;
    return instance->driver.MemsetD8Async((CUdeviceptr)(uintptr_t)cuda_state_of(exec->composite), 0,
                                          SYMMEM_CUDA_STATE_OF_OPERATION, native);
}

void cuda_composite_end_failed(cuda_instance *instance, cuda_pending *pending,
                               const symmem_exec *exec, const char *operation) {
    const cuda_needs needs = {.told = true};
    if (pending != NULL && is_begun_by_host(exec))
        (void)cuda_pending_add(pending, exec, &needs, operation);
    else
        cuda_pending_drop(instance, pending);
}

CUresult cuda_composite_move(const cuda_instance *instance, const symmem_exec *exec,
                             CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream native) {
    const cuda_device *device = &instance->devices[exec->composite->peers->device];
    symmem_cuda_composite_args args = {.segment = {.dst = (char *)(uintptr_t)dst,
                                                   .src = (const char *)(uintptr_t)src,
                                                   .bytes = bytes},
                                       .state = cuda_state_of(exec->composite)};
    return cuda_launch_kernel(instance, device->kernels.composite_move, cuda_blocks_for(bytes),
                              SYMMEM_CUDA_COLLECTIVE_THREADS, &args, native);
}
