/* SPDX-License-Identifier: BSD-3-Clause */
/* What the host and the kernels of collective.cu share. Plain C and CUDA C++ alike. */
#ifndef SYMMEM_KERNELS_CUDA_COLLECTIVE_H
#define SYMMEM_KERNELS_CUDA_COLLECTIVE_H

#include "cuda/collective_plan.h"

#define SYMMEM_CUDA_COLLECTIVE_THREADS 512
#define SYMMEM_CUDA_WIDE_THREADS 1024
#define SYMMEM_CUDA_LL_THREADS 128
#define SYMMEM_CUDA_CHUNK_THREADS 544 /* of the common reductions; the last warp tells */
#define SYMMEM_CUDA_MAX_WORDS 256

/* What a kernel does of a collective. */
typedef enum symmem_cuda_algorithm {
    SYMMEM_CUDA_ONE_STEP,        /* as many blocks as one likes */
    SYMMEM_CUDA_ONE_BLOCK,       /* one block */
    SYMMEM_CUDA_PER_BLOCK,       /* meeting, the step, meeting; at most SYMMEM_CUDA_MAX_SYNC_BLOCKS */
    SYMMEM_CUDA_PER_BLOCK_AFTER_BARRIER, /* likewise, but ranks have met before */
    SYMMEM_CUDA_LL,        /* SYMMEM_CUDA_LL_THREADS in a block */
    SYMMEM_CUDA_LL_AFTER_BARRIER,  /* ranks have met before, for they compare their calls */
    SYMMEM_CUDA_CHUNKS,
    SYMMEM_CUDA_CHUNKS_AFTER_BARRIER, /* likewise */
} symmem_cuda_algorithm;

/* What an operation by lines needs to know of the channel's places, ll.cuh: bytes in a rank's
 * signal state. */
typedef struct symmem_cuda_ll_layout {
    uint32_t rounds_at, round_numbers_at;
    uint32_t source_bytes; /* from source to source */
    uint32_t parity_bytes; /* from one round to the next */
    uint32_t warps;        /* of the call */
    uint32_t units;        /* of a round: SYMMEM_CUDA_ROUND_UNITS or SYMMEM_CUDA_SHORT_UNITS */
    uint32_t linked;       /* by NVLink with all other ranks, as SYMMEM_CUDA_LINKED */
    uint32_t chunks_at;    /* chunks.cuh */
} symmem_cuda_ll_layout;

typedef struct symmem_cuda_collective_args {
    symmem_cuda_signal_args signal;
    symmem_cuda_job job;
    symmem_cuda_step step;
    symmem_cuda_ll_layout rounds; /* by lines */
    symmem_cuda_exchange exchange;   /* what two ranks move by lines */
    int32_t way;
    void *small_buffers[SYMMEM_CUDA_SMALL_RANKS]; /* the job's table, likewise */
} symmem_cuda_collective_args;

/* A sum or mean of few ranks of which the host has found that all addresses and sizes are multiples
 * of a unit, and that needs no comparing of calls. */
typedef struct symmem_cuda_fast_args {
    symmem_cuda_small_barrier small;
    uint32_t units;
    uint16_t op, targets;
    const char *from[SYMMEM_CUDA_SMALL_RANKS];
    char *to[SYMMEM_CUDA_SMALL_RANKS];
    symmem_cuda_signal_args signal; /* for when it is not as usual */
} symmem_cuda_fast_args;

/* Likewise by lines, or in chunks. */
typedef struct symmem_cuda_ll_args {
    symmem_cuda_small_barrier small;
    symmem_cuda_ll_layout rounds;
    uint32_t units;
    int32_t op;
    const char *from; /* what is pushed */
    const char *own;  /* what is added up here, if that is something else */
    char *to;
    symmem_cuda_signal_args signal; /* for when it is not as usual */
} symmem_cuda_ll_args;

/* What two ranks move, likewise: all in whole units. */
typedef struct symmem_cuda_moves_args {
    symmem_cuda_small_barrier small;
    symmem_cuda_ll_layout rounds;
    symmem_cuda_exchange exchange;
    symmem_cuda_signal_args signal; /* for when it is not as usual */
} symmem_cuda_moves_args;

/* `linked`: the own rank with all others. */
SYMMEM_CUDA_BOTH symmem_cuda_ll_layout symmem_cuda_ll_layout_of(symmem_cuda_ll_choice rounds,
                                                                int32_t world_size,
                                                                int32_t channel_count,
                                                                size_t block_bytes, int32_t channel,
                                                                bool linked) {
    symmem_cuda_ll_layout places;
    const size_t warps = symmem_cuda_ll_warps(world_size, block_bytes, channel);
    places.rounds_at =
        (uint32_t)symmem_cuda_rounds_at(world_size, channel_count, block_bytes, channel);
    places.round_numbers_at =
        (uint32_t)symmem_cuda_round_numbers_at(world_size, channel_count, block_bytes, channel);
    places.chunks_at = (uint32_t)symmem_cuda_chunks_at(world_size, channel_count, block_bytes);
    places.source_bytes = (uint32_t)(warps * SYMMEM_CUDA_ROUND_BYTES);
    places.parity_bytes = places.source_bytes * (uint32_t)(world_size - 1);
    places.warps = rounds.warps;
    places.units = rounds.units;
    places.linked = linked;
    return places;
}

/* Words of the host's to a place of the device's, as they are at the launch. */
typedef struct symmem_cuda_store_words_args {
    uint64_t *to;
    uint32_t count;
    uint64_t words[SYMMEM_CUDA_MAX_WORDS];
} symmem_cuda_store_words_args;

/* A copy that is a part of an operation. */
typedef struct symmem_cuda_composite_args {
    symmem_cuda_segment segment;
    const symmem_cuda_state *state; /* the operation's */
} symmem_cuda_composite_args;

#endif
