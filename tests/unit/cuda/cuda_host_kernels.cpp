// SPDX-License-Identifier: BSD-3-Clause
// The kernels, compiled for the CPU, and a launch that runs one at once, block after block.
#include "cuda_on_host.h"

#include "cuda/collective.cu"

#include "cuda_host_kernels.h"

// More than ranks. Each loop of a kernel strides: fewer than the device has will do.
static const unsigned int MOST_THREADS = 4;

struct host_launch {
    host_kernel kernel;
    const void *args;
    pthread_barrier_t between; // blocks: no thread is still in one when the next begins
};

struct host_thread {
    host_launch *launch;
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
        symmem_store_words(*static_cast<const symmem_cuda_store_words_args *>(launch.args));
        break;
    case HOST_COLLECTIVE_BYTES:
        symmem_collective_bytes(*collective);
        break;
    case HOST_COLLECTIVE_F32:
        symmem_collective_f32(*collective);
        break;
    case HOST_AWAIT_CHUNK:
        symmem_await_chunk(*static_cast<const symmem_cuda_await *>(launch.args));
        break;
    default:
        symmem_collective_bf16(*collective);
    }
}

// The same threads have one block after the other: to make threads takes longer than most blocks.
static void *run_thread(void *opaque) {
    const host_thread *thread = static_cast<const host_thread *>(opaque);
    threadIdx.x = thread->index;
    for (unsigned int block = 0; block < gridDim.x; block++) {
        if (thread->index == 0)
            blockIdx.x = block;
        pthread_barrier_wait(&thread->launch->between);
        call(*thread->launch);
        pthread_barrier_wait(&thread->launch->between);
    }
    return nullptr;
}

void host_launch_kernel(host_kernel kernel, unsigned int blocks, unsigned int threads,
                        const void *args) {
    host_launch launch = {kernel, args, {}};
    pthread_t handles[MOST_THREADS];
    host_thread states[MOST_THREADS];
    blockDim.x = threads < MOST_THREADS ? threads : MOST_THREADS;
    gridDim.x = blocks;
    pthread_barrier_init(&host_block, nullptr, blockDim.x);
    pthread_barrier_init(&launch.between, nullptr, blockDim.x);
    for (unsigned int i = 0; i < blockDim.x; i++) {
        states[i] = host_thread{&launch, i};
        pthread_create(&handles[i], nullptr, run_thread, &states[i]);
    }
    for (unsigned int i = 0; i < blockDim.x; i++)
        pthread_join(handles[i], nullptr);
    pthread_barrier_destroy(&launch.between);
    pthread_barrier_destroy(&host_block);
}

void host_fail_meanwhile(const uint64_t *failed) {
    host_fails_meanwhile = failed;
}
