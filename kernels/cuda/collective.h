/* SPDX-License-Identifier: BSD-3-Clause */
/* What the host and the kernels of collective.cu share. Plain C and CUDA C++ alike. */
#ifndef SYMMEM_KERNELS_CUDA_COLLECTIVE_H
#define SYMMEM_KERNELS_CUDA_COLLECTIVE_H

#include "cuda/collective_plan.h"

#define SYMMEM_CUDA_COLLECTIVE_THREADS 512
#define SYMMEM_CUDA_WIDE_THREADS 1024
#define SYMMEM_CUDA_LINE_THREADS 128
#define SYMMEM_CUDA_CHUNK_THREADS 544 /* of the common reductions; the last warp tells */
#define SYMMEM_CUDA_MAX_WORDS 256

/* What a kernel does of a collective. */
typedef enum symmem_cuda_way {
    SYMMEM_CUDA_ONE_STEP,        /* as many blocks as one likes */
    SYMMEM_CUDA_ALL_STEPS,       /* one block */
    SYMMEM_CUDA_IN_BLOCKS,       /* meeting, the step, meeting; at most SYMMEM_CUDA_SPREAD_BLOCKS */
    SYMMEM_CUDA_IN_BLOCKS_AFTER, /* likewise, but ranks have met before */
    SYMMEM_CUDA_BY_LINES,        /* SYMMEM_CUDA_LINE_THREADS in a block */
    SYMMEM_CUDA_BY_LINES_AFTER,  /* ranks have met before, for they compare their calls */
    SYMMEM_CUDA_BY_CHUNKS,
    SYMMEM_CUDA_BY_CHUNKS_AFTER, /* likewise */
} symmem_cuda_way;

/* What an operation by lines needs to know of the channel's places, rounds.cuh: bytes in a rank's
 * signal state. */
typedef struct symmem_cuda_round_places {
    uint32_t rounds_at, turns_at;
    uint32_t source_bytes; /* from source to source */
    uint32_t parity_bytes; /* from one round to the next */
    uint32_t warps;        /* of the call */
    uint32_t units;        /* of a round: SYMMEM_CUDA_ROUND_UNITS or SYMMEM_CUDA_SHORT_UNITS */
    uint32_t linked;       /* by NVLink with all other ranks, as SYMMEM_CUDA_LINKED */
    uint32_t chunks_at;    /* chunks.cuh */
} symmem_cuda_round_places;

typedef struct symmem_cuda_collective_args {
    symmem_cuda_signal_args signal;
    symmem_cuda_job job;
    symmem_cuda_step step;
    symmem_cuda_round_places rounds; /* by lines */
    symmem_cuda_exchange exchange;   /* what two ranks move by lines */
    int32_t way;
    void *near_buffers[SYMMEM_CUDA_NEAR_RANKS]; /* the job's table, likewise */
} symmem_cuda_collective_args;

/* A sum or mean of few ranks of which the host has found that all addresses and sizes are multiples
 * of a unit, and that needs no comparing of calls. */
typedef struct symmem_cuda_plain_args {
    symmem_cuda_near near;
    uint32_t units;
    uint16_t op, targets;
    const char *from[SYMMEM_CUDA_NEAR_RANKS];
    char *to[SYMMEM_CUDA_NEAR_RANKS];
    symmem_cuda_signal_args signal; /* for when it is not as usual */
} symmem_cuda_plain_args;

/* Likewise by lines, or in chunks. */
typedef struct symmem_cuda_lines_args {
    symmem_cuda_near near;
    symmem_cuda_round_places rounds;
    uint32_t units;
    int32_t op;
    const char *from; /* what is pushed */
    const char *own;  /* what is added up here, if that is something else */
    char *to;
    symmem_cuda_signal_args signal; /* for when it is not as usual */
} symmem_cuda_lines_args;

/* What two ranks move, likewise: all in whole units. */
typedef struct symmem_cuda_moves_args {
    symmem_cuda_near near;
    symmem_cuda_round_places rounds;
    symmem_cuda_exchange exchange;
    symmem_cuda_signal_args signal; /* for when it is not as usual */
} symmem_cuda_moves_args;

/* `linked`: the own rank with all others. */
SYMMEM_CUDA_BOTH symmem_cuda_round_places symmem_cuda_places_of(symmem_cuda_rounds rounds,
                                                                int32_t world_size,
                                                                int32_t channel_count,
                                                                size_t block_bytes, int32_t channel,
                                                                bool linked) {
    symmem_cuda_round_places places;
    const size_t warps = symmem_cuda_line_warps(world_size, block_bytes, channel);
    places.rounds_at =
        (uint32_t)symmem_cuda_rounds_at(world_size, channel_count, block_bytes, channel);
    places.turns_at =
        (uint32_t)symmem_cuda_turns_at(world_size, channel_count, block_bytes, channel);
    places.chunks_at = (uint32_t)symmem_cuda_chunks_at(world_size, channel_count, block_bytes);
    places.source_bytes = (uint32_t)(warps * SYMMEM_CUDA_ROUND_BYTES);
    places.parity_bytes = places.source_bytes * (uint32_t)(world_size - 1);
    places.warps = rounds.warps;
    places.units = rounds.units;
    places.linked = linked;
    return places;
}

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
