/* SPDX-License-Identifier: BSD-3-Clause */
/* The launches of operations that are called again and again. */
#ifndef SYMMEM_BACKEND_CUDA_PLAN_H
#define SYMMEM_BACKEND_CUDA_PLAN_H

#include "cuda/splits.h"
#include "signal/signal.h"

/* One kernel, ready but for what differs from call to call: the fault, the limit, the stream. */
typedef struct cuda_plan {
    symmem_collective call; /* all 0: a barrier */
    CUfunction kernel;      /* NULL: not made yet, or not one kernel */
    unsigned int blocks, threads;
    symmem_cuda_signal_args *signal; /* in `arguments` */
    union {
        symmem_cuda_signal_args signal;
        symmem_cuda_small_barrier_args small;
        symmem_cuda_collective_args collective;
        symmem_cuda_fast_args fast;
        symmem_cuda_ll_args ll;
        symmem_cuda_moves_args moves;
        symmem_cuda_splits_args splits;
    } arguments;
} cuda_plan;

/* Returns the place for the call's plan, or NULL if it has none: calls without a stream and in
 * captures, parts of other operations, calls that are compared, and those that carry splits.
 * `call`: NULL for a barrier. The channel's calls come one after the other. */
cuda_plan *cuda_plan_of(const symmem_peers *peers, int32_t channel, const symmem_collective *call,
                        const symmem_exec *exec);
/* Before each launch of an operation, and after each that succeeded. One with several kernels is
 * not planned. */
void cuda_plan_forget(cuda_launch *launch);
void cuda_plan_note(cuda_launch *launch, CUfunction kernel, unsigned int blocks,
                    unsigned int threads, const cuda_arguments *arguments);
/* Launches what a plan that is made has, with that place for a fault. */
CUresult cuda_plan_launch(const cuda_instance *instance, cuda_plan *plan, symmem_cuda_fault *fault,
                          const symmem_exec *exec);
/* Of all channels. */
void cuda_plans_free(cuda_peers *own, int32_t channel_count);

#endif
