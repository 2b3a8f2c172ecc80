/* SPDX-License-Identifier: BSD-3-Clause */
/* What the host and the kernels of collective.cu share. It compiles as C and as CUDA C++. */
#ifndef SYMMEM_KERNELS_CUDA_COLLECTIVE_H
#define SYMMEM_KERNELS_CUDA_COLLECTIVE_H

#include "cuda/collective_plan.h"

#define SYMMEM_CUDA_COLLECTIVE_THREADS 512
#define SYMMEM_CUDA_WIDE_THREADS 1024
#define SYMMEM_CUDA_LL_THREADS 128
#define SYMMEM_CUDA_CHUNK_THREADS                                                                  \
    544 /* for the fast reductions; the last warp announces chunks                                 \
         */
#define SYMMEM_CUDA_MAX_WORDS 256

/* The algorithm by which a kernel runs a collective. */
typedef enum symmem_cuda_algorithm {
    SYMMEM_CUDA_ONE_STEP,  /* one step, with any number of blocks */
    SYMMEM_CUDA_ONE_BLOCK, /* all steps, in one block */
    /* barrier, one step, barrier in each block; at most SYMMEM_CUDA_MAX_SYNC_BLOCKS */
    SYMMEM_CUDA_PER_BLOCK,
    SYMMEM_CUDA_PER_BLOCK_AFTER_BARRIER, /* the same after a barrier kernel */
    SYMMEM_CUDA_LL,                      /* LL lines, SYMMEM_CUDA_LL_THREADS in a block */
    SYMMEM_CUDA_LL_AFTER_BARRIER, /* the same after a barrier kernel, which compares the calls */
    SYMMEM_CUDA_CHUNKS,
    SYMMEM_CUDA_CHUNKS_AFTER_BARRIER, /* the same after a barrier kernel */
} symmem_cuda_algorithm;

/* The layout of the channel's LL slots, ll.cuh, as bytes in a rank's signal state. */
typedef struct symmem_cuda_ll_layout {
    uint32_t rounds_at, round_numbers_at;
    uint32_t source_bytes; /* from source to source */
    uint32_t parity_bytes; /* from one round to the next */
    uint32_t warps;        /* of the call */
    uint32_t units;        /* of a round: SYMMEM_CUDA_ROUND_UNITS or SYMMEM_CUDA_SHORT_UNITS */
    uint32_t linked;       /* this rank has NVLink to all other ranks, as SYMMEM_CUDA_LINKED */
    uint32_t chunks_at;    /* chunks.cuh */
    uint32_t chunk_slots;  /* of a block */
    uint32_t chunks_ahead; /* how many are pushed before the one that is added */
} symmem_cuda_ll_layout;

typedef struct symmem_cuda_collective_args {
    symmem_cuda_signal_args signal;
    symmem_cuda_job job;
    symmem_cuda_step step;
    symmem_cuda_ll_layout rounds;  /* for LL */
    symmem_cuda_exchange exchange; /* what two ranks move by LL */
    int32_t algorithm;
    void *small_buffers[SYMMEM_CUDA_SMALL_RANKS]; /* the job's table, if it has few ranks */
} symmem_cuda_collective_args;

/* A sum or mean of few ranks for which the host has checked that all addresses and sizes are
 * multiples of a unit, and that calls are not compared. */
typedef struct symmem_cuda_fast_args {
    symmem_cuda_small_barrier small;
    uint32_t units;
    uint16_t op, targets;
    const char *from[SYMMEM_CUDA_SMALL_RANKS];
    char *to[SYMMEM_CUDA_SMALL_RANKS];
    symmem_cuda_signal_args signal; /* for the slow path */
} symmem_cuda_fast_args;

/* The same for LL, or for chunks. */
typedef struct symmem_cuda_ll_args {
    symmem_cuda_small_barrier small;
    symmem_cuda_ll_layout rounds;
    uint32_t units;
    int32_t op;
    const char *from; /* what is pushed */
    const char *own;  /* what is added here, if it is not `from` */
    char *to;
    symmem_cuda_signal_args signal; /* for the slow path */
} symmem_cuda_ll_args;

/* The same for what two ranks move, all in whole units. */
typedef struct symmem_cuda_moves_args {
    symmem_cuda_small_barrier small;
    symmem_cuda_ll_layout rounds;
    symmem_cuda_exchange exchange;
    symmem_cuda_signal_args signal; /* for the slow path */
} symmem_cuda_moves_args;

/* `linked`: this rank has NVLink to all others. */
SYMMEM_CUDA_BOTH symmem_cuda_ll_layout symmem_cuda_ll_layout_of(symmem_cuda_ll_choice rounds,
                                                                int32_t world_size,
                                                                int32_t channel_count,
                                                                size_t block_bytes, int32_t channel,
                                                                bool linked) {
    symmem_cuda_ll_layout layout;
    const size_t warps = symmem_cuda_ll_warps(world_size, block_bytes, channel);
    layout.rounds_at =
        (uint32_t)symmem_cuda_rounds_at(world_size, channel_count, block_bytes, channel);
    layout.round_numbers_at =
        (uint32_t)symmem_cuda_round_numbers_at(world_size, channel_count, block_bytes, channel);
    layout.chunks_at = (uint32_t)symmem_cuda_chunks_at(world_size, channel_count, block_bytes);
    layout.chunk_slots = symmem_cuda_chunk_slots(block_bytes);
    layout.chunks_ahead = 1;
    layout.source_bytes = (uint32_t)(warps * SYMMEM_CUDA_ROUND_BYTES);
    layout.parity_bytes = layout.source_bytes * (uint32_t)(world_size - 1);
    layout.warps = rounds.warps;
    layout.units = rounds.units;
    layout.linked = linked;
    return layout;
}

/* Where a block has many chunks, more of them are under way: announcing one takes as long as the
 * link has work. With few chunks that would only put off the additions. */
SYMMEM_CUDA_BOTH uint32_t symmem_cuda_chunks_ahead(size_t pair_bytes, uint32_t blocks,
                                                   uint32_t slots) {
    const size_t chunks = pair_bytes / SYMMEM_CUDA_CHUNK_BYTES / blocks;
    return chunks > 32 ? slots / 2 - 1 : 1;
}

/* Stores words of the host at an address of the device, with their values at the launch. */
typedef struct symmem_cuda_store_words_args {
    uint64_t *to;
    uint32_t count;
    uint64_t words[SYMMEM_CUDA_MAX_WORDS];
} symmem_cuda_store_words_args;

/* A copy that is a step of a composite operation. */
typedef struct symmem_cuda_composite_args {
    symmem_cuda_segment segment;
    const symmem_cuda_state *state; /* of the composite operation */
} symmem_cuda_composite_args;

#endif
