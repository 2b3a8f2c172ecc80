/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses a collective's algorithm from measured thresholds. */
#include "collective/algorithm.h"

/* The bytes up to which each algorithm is the fastest, as measured. Those of LL and of chunks are
 * in collective_plan.h, because they also depend on the form and on the memory that ranks share. */
typedef struct thresholds {
    size_t few_steps;  /* of each step, if there are few: one block runs all of them */
    size_t many_steps; /* the same if there are many */
    size_t few_blocks; /* of all blocks: half of them suffice, and leave room for other kernels */
    size_t per_block; /* of all blocks: beyond this, barriers do not matter, and more blocks help */
} thresholds;

#define KIB(count) ((size_t)(count) << 10)
#define MIB(count) ((size_t)(count) << 20)
static const thresholds of_two_ranks = {KIB(64), MIB(1), MIB(4), MIB(512)};
static const thresholds of_more_ranks = {KIB(64), MIB(1), MIB(4), MIB(32)};

#define MANY_STEPS 16
#define MOST_STEPS 256
/* The bytes for which each block has one pass, in a kernel with a barrier per block. */
#define BYTES_PER_BLOCK ((size_t)SYMMEM_CUDA_COLLECTIVE_THREADS * 16)
#define MAX_BLOCKS_ALL_RANKS 128 /* limited, because ranks may share a device */

static const thresholds *thresholds_of(const symmem_cuda_job *job) {
    return job->world_size == 2 ? &of_two_ranks : &of_more_ranks;
}

/* Very many steps would fill the stream's queue, and the call would wait. It uses the steps of the
 * first rank, whose shards are the longest, because all ranks must choose alike if they compare
 * their calls. */
static bool is_for_one_block(const symmem_cuda_job *job, size_t part_bytes) {
    const thresholds *limits = thresholds_of(job);
    symmem_cuda_job first = *job;
    symmem_cuda_cursor place = {0};
    symmem_cuda_step step;
    size_t most = 0;
    int32_t steps = 0;
    first.rank = 0;
    while (steps <= MOST_STEPS && symmem_cuda_next(&first, &place, &step)) {
        size_t bytes = symmem_cuda_step_bytes(job, &step, part_bytes);
        most = bytes > most ? bytes : most;
        steps++;
    }
    return steps > MOST_STEPS ||
           most <= (steps > MANY_STEPS ? limits->many_steps : limits->few_steps);
}

/* The data of all blocks of a rank, from values that are the same on all ranks. */
static size_t largest_segment_bytes(const symmem_cuda_job *job) {
    size_t bytes = job->count * job->element, ranks = (size_t)job->world_size;
    if (job->form == SYMMEM_CUDA_IN_PLACE)
        return bytes / ranks;
    bool gathers = job->form == SYMMEM_CUDA_GATHER_PULL || job->form == SYMMEM_CUDA_GATHER_PUSH;
    return gathers ? bytes * ranks : bytes;
}

/* The number of blocks that each have a barrier, the same on all ranks. 0: this algorithm is not
 * used. */
static unsigned int per_block_count(const symmem_cuda_job *job, int32_t channel) {
    const thresholds *limits = thresholds_of(job);
    size_t bytes = largest_segment_bytes(job),
           blocks = (bytes + BYTES_PER_BLOCK - 1) / BYTES_PER_BLOCK;
    size_t most = MAX_BLOCKS_ALL_RANKS / (size_t)job->world_size;
    if (channel >= SYMMEM_CUDA_SYNC_BLOCK_CHANNELS || bytes > limits->per_block ||
        !symmem_cuda_has_one_step(job->form))
        return 0;
    size_t places =
        bytes <= limits->few_blocks ? SYMMEM_CUDA_MAX_SYNC_BLOCKS / 2 : SYMMEM_CUDA_MAX_SYNC_BLOCKS;
    most = most < 1 ? 1 : most > places ? places : most;
    return (unsigned int)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* A block waits for the peer's block of its number and for no other. So two operations that ranks
 * begin in different orders both make progress as long as neither fills its device. Then some
 * blocks of the second one have room, and after them the next. The general kernels use at most 128
 * registers a thread. So four blocks of 128 threads fit on a multiprocessor. An H100 and an H200
 * have 132 multiprocessors. */
_Static_assert(SYMMEM_CUDA_ROUNDS_LARGE / (2 * SYMMEM_CUDA_ROUND_BYTES) /
                       (SYMMEM_CUDA_LL_THREADS / 32) <
                   4 * 132,
               "an operation by lines leaves room for another one");

/* The first that fits is the fastest. */
cuda_choice cuda_choose(const symmem_cuda_job *job, const symmem_cuda_terms *terms,
                        size_t part_bytes) {
    const unsigned int warps = SYMMEM_CUDA_LL_THREADS / 32;
    const symmem_cuda_ll_choice rounds = symmem_cuda_ll_choice_of(job, terms);
    if (rounds.warps > 0)
        return (cuda_choice){SYMMEM_CUDA_LL, (rounds.warps + warps - 1) / warps, rounds};
    const unsigned int chunked = symmem_cuda_chunk_blocks(job, terms);
    if (chunked > 0)
        return (cuda_choice){SYMMEM_CUDA_CHUNKS, chunked, {0, 0}};
    const bool is_small = is_for_one_block(job, part_bytes);
    const unsigned int blocks =
        is_small && job->checking ? 0 : per_block_count(job, terms->channel);
    if (blocks > 0)
        return (cuda_choice){SYMMEM_CUDA_PER_BLOCK, blocks, {0, 0}};
    return is_small ? (cuda_choice){SYMMEM_CUDA_ONE_BLOCK, 1, {0, 0}}
                    : (cuda_choice){SYMMEM_CUDA_ONE_STEP, 0, {0, 0}};
}
