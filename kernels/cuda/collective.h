/* SPDX-License-Identifier: BSD-3-Clause */
/* What the host and the kernels of collective.cu share. Plain C and CUDA C++ alike. */
#ifndef SYMMEM_KERNELS_CUDA_COLLECTIVE_H
#define SYMMEM_KERNELS_CUDA_COLLECTIVE_H

#include "cuda/collective_plan.h"

#define SYMMEM_CUDA_COLLECTIVE_THREADS 512
#define SYMMEM_CUDA_WIDE_THREADS 1024
#define SYMMEM_CUDA_MAX_WORDS 256

/* What a kernel does of a collective. */
typedef enum symmem_cuda_way {
    SYMMEM_CUDA_ONE_STEP,        /* as many blocks as one likes */
    SYMMEM_CUDA_ALL_STEPS,       /* one block */
    SYMMEM_CUDA_IN_BLOCKS,       /* meeting, the step, meeting; at most SYMMEM_CUDA_SPREAD_BLOCKS */
    SYMMEM_CUDA_IN_BLOCKS_AFTER, /* likewise, but ranks have met before */
    SYMMEM_CUDA_BY_LINES,        /* symmem_cuda_line_blocks at most; one, if calls are compared */
    SYMMEM_CUDA_BY_LINES_AFTER,
} symmem_cuda_way;

typedef struct symmem_cuda_collective_args {
    symmem_cuda_signal_args signal;
    symmem_cuda_job job;
    symmem_cuda_step step;
    int32_t way;
    void *near_buffers[SYMMEM_CUDA_NEAR_RANKS]; /* the job's table, likewise */
} symmem_cuda_collective_args;

/* A sum or mean of few ranks of which the host has found that all addresses and sizes are multiples
 * of a line's data, or of a unit, and that needs no comparing of calls. */
typedef struct symmem_cuda_plain_args {
    symmem_cuda_near near;
    uint32_t units;                           /* or lines */
    uint32_t lines_at;                        /* the channel's lines in a rank's signal state */
    uint16_t op, targets;                     /* targets: of units */
    uint32_t meets_after;                     /* lines */
    const char *from[SYMMEM_CUDA_NEAR_RANKS]; /* of lines only the own one, in place 0 */
    char *to[SYMMEM_CUDA_NEAR_RANKS];         /* of lines only one */
    symmem_cuda_signal_args signal;           /* for when it is not as usual */
} symmem_cuda_plain_args;

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
