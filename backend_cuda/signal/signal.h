/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals and the barrier, by one small kernel each. */
#ifndef SYMMEM_BACKEND_CUDA_SIGNAL_H
#define SYMMEM_BACKEND_CUDA_SIGNAL_H

#include "cuda_internal.h"

/* A signal operation or collective: kernels on a stream, and what the host keeps for them. */
typedef struct cuda_launch {
    symmem_cuda_signal_args args;
    cuda_signal_op signal; /* the caller sets the operation's name, the rest is filled in */
    CUresult (*enqueue)(cuda_instance *instance, struct cuda_launch *launch, CUstream native);
    CUfunction kernel;
    unsigned int threads;
    bool begun; /* set by enqueue: a kernel is enqueued, so a later failure is a fault */
    /* its kernels cannot be stopped: without a stream it is waited for, without a deadline */
    bool stays;
    cuda_pending *orphan;   /* without a stream: the entry in case it is abandoned */
    struct cuda_plan *plan; /* where its launch is kept, or is from (plan.h); NULL: nowhere */
} cuda_launch;

/* By which the device tells streams apart. */
static inline uint64_t cuda_stream_name(const void *stream) {
    return stream != NULL ? (uint64_t)(uintptr_t)stream : SYMMEM_CUDA_NO_STREAM;
}

/* A kernel's arguments, and where those of a signal operation are among them. */
typedef struct cuda_arguments {
    void *all;
    size_t bytes;
    symmem_cuda_signal_args *signal;
} cuda_arguments;
#define CUDA_ARGUMENTS(of) ((cuda_arguments){&(of), sizeof(of), &(of).signal})

/* Runs or enqueues it. */
symmem_status cuda_launch_run(cuda_instance *instance, const symmem_peers *peers, int32_t peer,
                              int32_t channel, const symmem_exec *exec, cuda_launch *launch);
/* Enqueues it again by a plan that is made. */
symmem_status cuda_launch_planned(cuda_instance *instance, const symmem_peers *peers,
                                  int32_t channel, const symmem_exec *exec, struct cuda_plan *plan,
                                  const char *operation);
CUresult cuda_launch_kernel(const cuda_instance *instance, CUfunction kernel, unsigned int blocks,
                            unsigned int threads, void *args, CUstream native);
unsigned int cuda_barrier_threads(int32_t world_size);
/* Fills the arguments of a kernel of barrier_small.cuh. Returns false if the launch cannot use
 * one. */
bool cuda_small_barrier_of(const cuda_launch *launch, symmem_cuda_small_barrier *small);
size_t cuda_signal_bytes(void *instance, int32_t world_size, int32_t channel_count,
                         size_t block_bytes);
symmem_status cuda_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                           const symmem_exec *exec);
symmem_status cuda_put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, const symmem_exec *exec);
symmem_status cuda_wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                               int32_t channel, const symmem_exec *exec);

#endif
