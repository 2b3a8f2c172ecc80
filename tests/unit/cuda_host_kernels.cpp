// SPDX-License-Identifier: BSD-3-Clause
// The kernels, compiled for the CPU, and a launch that runs one at once, block after block.
#include "cuda_on_host.h"

#include "cuda/collective.cu"

#include "cuda_host_kernels.h"

static const unsigned int MOST_THREADS = 6; // every loop of a kernel's strides: fewer will do

struct host_launch {
    host_kernel kernel;
    const void *args;
};

struct host_thread {
    const host_launch *launch;
    unsigned int index;
};

static void call(const host_launch &launch) {
    const symmem_cuda_collective_args *collective =
        static_cast<const symmem_cuda_collective_args *>(launch.args);
    switch (launch.kernel) {
    case HOST_BARRIER:
        symmem_barrier(*static_cast<const symmem_cuda_signal_args *>(launch.args));
        break;
    case HOST_SHOW_WORDS:
        symmem_show_words(*static_cast<const symmem_cuda_show_args *>(launch.args));
        break;
    case HOST_COLLECTIVE_BYTES:
        symmem_collective_bytes(*collective);
        break;
    case HOST_COLLECTIVE_F32:
        symmem_collective_f32(*collective);
        break;
    default:
        symmem_collective_bf16(*collective);
    }
}

static void *run_thread(void *opaque) {
    const host_thread *thread = static_cast<const host_thread *>(opaque);
    threadIdx.x = thread->index;
    call(*thread->launch);
    return nullptr;
}

void host_launch_kernel(host_kernel kernel, unsigned int blocks, unsigned int threads,
                        const void *args) {
    const host_launch launch = {kernel, args};
    pthread_t handles[MOST_THREADS];
    host_thread states[MOST_THREADS];
    blockDim.x = threads < MOST_THREADS ? threads : MOST_THREADS;
    gridDim.x = blocks;
    pthread_barrier_init(&host_block, nullptr, blockDim.x);
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        for (unsigned int i = 0; i < blockDim.x; i++) {
            states[i] = host_thread{&launch, i};
            pthread_create(&handles[i], nullptr, run_thread, &states[i]);
        }
        for (unsigned int i = 0; i < blockDim.x; i++)
            pthread_join(handles[i], nullptr);
    }
    pthread_barrier_destroy(&host_block);
}
