/* SPDX-License-Identifier: BSD-3-Clause */
/* What the host and the kernels of collective.cu share. Plain C and CUDA C++ alike. */
#ifndef SYMMEM_KERNELS_CUDA_COLLECTIVE_H
#define SYMMEM_KERNELS_CUDA_COLLECTIVE_H

#include "cuda/collective_plan.h"

#define SYMMEM_CUDA_COLLECTIVE_THREADS 512
#define SYMMEM_CUDA_MAX_WORDS 256

/* One block that runs all steps, or as many as one likes that run a single one. */
typedef struct symmem_cuda_collective_args {
    symmem_cuda_signal_args signal;
    symmem_cuda_job job;
    symmem_cuda_step step;
    bool all_steps;
} symmem_cuda_collective_args;

/* Words of the host's to a place of the device's, as they are at the launch. */
typedef struct symmem_cuda_show_args {
    uint64_t *to;
    uint32_t count;
    uint64_t words[SYMMEM_CUDA_MAX_WORDS];
} symmem_cuda_show_args;

/* A copy that is a part of an operation. */
typedef struct symmem_cuda_part_args {
    symmem_cuda_segment segment;
    const symmem_cuda_state *state; /* the operation's */
} symmem_cuda_part_args;

#endif
