/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the host and the kernels of signal.cu share: the layout of a rank's signal state, and the
 * form in which a kernel is started and tells of a failure. Plain C and CUDA C++ alike.
 *
 * A rank's signal state, words of 32 bits and 0 at the start:
 *   header   64 bytes; the first word is not 0 once the owner's state is poisoned
 *   links    [source]  SYMMEM_CUDA_LINKED: `source` is linked by NVLink with all other ranks. It is
 *                      written before the first operation and stays in a reset
 *   slots    [channel][source]  0 or 1: put by `source`, consumed by the owner
 *   arrivals [channel][source]  the epoch of the last barrier that `source` entered
 *   epochs   [channel]          the owner's own count of barriers, and of what stands for one;
 *                               nobody else touches it
 *   calls    [channel][2]       what the owner calls in its last two barriers
 * and behind those, at a multiple of 64 bytes, words of 64 bits:
 *   states   [channel]          of the owner's operation of several kernels; nobody else's
 *   split_tables   [channel]          what the owner shows of an all-to-all, collective_plan.h
 *   blocks   [channel][block]   of kernels whose blocks sync_ranks each for itself: arrivals [source] and
 *                               the owner's epoch; for the first channels only
 *   turns    [channel][warp]    the number of the owner's last round of lines; nobody else's
 *   rounds   [channel][parity][source][warp]  lines that `source` pushes, ll.cuh; likewise
 *   chunks   of the first channel, of two ranks whose memory is large: chunks.cuh
 * Epochs and turns live here and never in an argument, so that what was captured can be replayed.
 * They wrap; of epochs differences are compared. A line's flag is its turn, and where it lies there
 * was that of two turns before.
 */
#ifndef SYMMEM_KERNELS_CUDA_SIGNAL_H
#define SYMMEM_KERNELS_CUDA_SIGNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYMMEM_CUDA_HEADER_BYTES 64
#define SYMMEM_CUDA_MAX_RANKS 1024
#define SYMMEM_CUDA_CALL_WORDS 6 /* a symmem_call_id */
#define SYMMEM_CUDA_MAX_THREADS 1024
#define SYMMEM_CUDA_SMALL_RANKS 8 /* of a table that travels in a kernel's arguments */
#ifndef SYMMEM_CUDA_BARRIER_REGISTERS
#define SYMMEM_CUDA_BARRIER_REGISTERS 32
#endif
#define SYMMEM_CUDA_SMALL_BARRIER_THREADS                                                                   \
    64 /* of barrier_small.cuh at least: one warp meets, another one looks */

/* In host memory that the device can write. `code` is a symmem_status, negated; 0: no failure. */
typedef struct symmem_cuda_fault {
    uint32_t code;
    int32_t failed_rank;
    uint64_t elapsed_ns;
    uint32_t claimed; /* by the block that writes all this, for several may fail at once */
    uint64_t actual;  /* MISMATCH of an all-to-all's splits: the own elements, `other` has theirs */
    uint32_t missing[SYMMEM_CUDA_MAX_RANKS / 32];
    uint32_t other[SYMMEM_CUDA_CALL_WORDS];
} symmem_cuda_fault;

/* In host memory that the device can read: what a waiting kernel cannot find out itself. */
typedef struct symmem_cuda_control {
    uint32_t poisoned;                         /* of this rank, as its host knows it */
    uint32_t gone[SYMMEM_CUDA_MAX_RANKS / 32]; /* bit r: the process of group rank r has ended */
} symmem_cuda_control;

/* An operation of several kernels: the first meeting sets it, what follows looks at it. */
typedef struct symmem_cuda_state {
    uint64_t start_ns;
    uint64_t failed; /* by a kernel of the stream that this names; 0: not */
    /* Of calls without a stream, until a reset. Blocks of theirs that find `stopped` do nothing; of
     * others `begun` says that they have looked, and `ended` that they work no more. */
    uint32_t stopped, begun, ended;
    uint32_t reserved;
} symmem_cuda_state;

/* Bytes of a state that are its operation's. */
#define SYMMEM_CUDA_STATE_OF_OPERATION offsetof(symmem_cuda_state, stopped)

#define SYMMEM_CUDA_NO_STREAM 1 /* the name of none */

/* A barrier's place in an operation of several kernels. */
typedef enum symmem_cuda_phase {
    SYMMEM_CUDA_ALONE = 0,
    SYMMEM_CUDA_FIRST, /* of the operation's meetings */
    SYMMEM_CUDA_LATER, /* not run once the operation has failed; one limit for all of them */
    SYMMEM_CUDA_COMPOSITE_STEP,  /* as LATER, the first one too: the host has cleared the state before */
} symmem_cuda_phase;

typedef struct symmem_cuda_signal_args {
    void *const *signals; /* every rank's signal state; the device reads the table */
    symmem_cuda_fault *fault;
    const symmem_cuda_control *control;
    int32_t rank;
    int32_t world_size;
    int32_t channel_count;
    int32_t channel;
    int32_t peer;             /* put, wait */
    uint32_t timeout_ms;      /* 0: no limit */
    int32_t turn;             /* barrier: symmem_cuda_phase */
    symmem_cuda_state *state; /* PART: the operation's, which may be another channel's */
    uint64_t stream;          /* a name for it, not 0 */
    uint32_t call[SYMMEM_CUDA_CALL_WORDS];
    void *small[SYMMEM_CUDA_SMALL_RANKS]; /* what the table holds, if that is all of it */
} symmem_cuda_signal_args;

/* A meeting of few ranks, of calls that nobody compares (barrier_small.cuh): what it takes, in few
 * lines of the constants' cache. Places are bytes in a rank's signal state. */
typedef struct symmem_cuda_small_barrier {
    uint32_t rank, ranks;
    uint32_t arrivals_at, epoch_at; /* of the first block: the channel's own */
    uint32_t blocks_at;             /* of the others */
    uint32_t calls_at;
    char *signals[SYMMEM_CUDA_SMALL_RANKS]; /* every rank's, from the own one on, round about */
} symmem_cuda_small_barrier;

typedef struct symmem_cuda_small_barrier_args {
    symmem_cuda_small_barrier small;
    symmem_cuda_signal_args signal; /* for when it is not as usual */
} symmem_cuda_small_barrier_args;

/* Byte offsets in a rank's signal state. */
#ifdef __CUDACC__
#define SYMMEM_CUDA_BOTH static __host__ __device__ inline
#define SYMMEM_CUDA_CALLED static __host__ __device__ __noinline__ /* one copy in a kernel */
#else
#define SYMMEM_CUDA_BOTH static inline
#define SYMMEM_CUDA_CALLED static inline
#endif

/* Where the links end, and what a reset clears begins again. */
SYMMEM_CUDA_BOTH size_t symmem_cuda_links_end(int32_t world_size) {
    return SYMMEM_CUDA_HEADER_BYTES + (sizeof(uint32_t) * (size_t)world_size + 63) / 64 * 64;
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_slot_at(int32_t world_size, int32_t channel, int32_t source) {
    return symmem_cuda_links_end(world_size) +
           sizeof(uint32_t) * ((size_t)channel * (size_t)world_size + (size_t)source);
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_arrival_at(int32_t world_size, int32_t channel_count,
                                               int32_t channel, int32_t source) {
    return symmem_cuda_slot_at(world_size, channel_count + channel, source);
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_epoch_at(int32_t world_size, int32_t channel_count,
                                             int32_t channel) {
    return symmem_cuda_slot_at(world_size, 2 * channel_count, 0) +
           sizeof(uint32_t) * (size_t)channel;
}

/* Two calls by turns: who writes the one again has met everybody since, and so after they read it.
 */
SYMMEM_CUDA_BOTH size_t symmem_cuda_call_at(int32_t world_size, int32_t channel_count,
                                            int32_t channel, uint32_t epoch) {
    return symmem_cuda_epoch_at(world_size, channel_count, channel_count) +
           sizeof(uint32_t) * SYMMEM_CUDA_CALL_WORDS * (2 * (size_t)channel + epoch % 2);
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_state_at(int32_t world_size, int32_t channel_count,
                                             int32_t channel) {
    size_t words = symmem_cuda_call_at(world_size, channel_count, channel_count, 0);
    return (words + 63) / 64 * 64 + sizeof(symmem_cuda_state) * (size_t)channel;
}

#define SYMMEM_CUDA_SPLIT_TABLE_WORDS(world_size) (2 * (size_t)(world_size) + 4)

SYMMEM_CUDA_BOTH size_t symmem_cuda_split_table_at(int32_t world_size, int32_t channel_count,
                                             int32_t channel) {
    return symmem_cuda_state_at(world_size, channel_count, channel_count) +
           sizeof(uint64_t) * SYMMEM_CUDA_SPLIT_TABLE_WORDS(world_size) * (size_t)channel;
}

/* Blocks that sync_ranks each for itself must all fit on the device at once, in several kernels on
 * several channels. */
#define SYMMEM_CUDA_MAX_SYNC_BLOCKS 64
#define SYMMEM_CUDA_SYNC_BLOCK_CHANNELS 4

SYMMEM_CUDA_BOTH size_t symmem_cuda_block_at(int32_t world_size, int32_t channel_count,
                                             int32_t channel, int32_t block) {
    return symmem_cuda_split_table_at(world_size, channel_count, channel_count) +
           sizeof(uint32_t) * ((size_t)world_size + 1) *
               ((size_t)channel * SYMMEM_CUDA_MAX_SYNC_BLOCKS + (size_t)block);
}

/* Lines: what an all-reduce pushes in rounds. In one a warp has a place of so many bytes from each
 * source, for so many units of 16 bytes of data; in a short one for fewer, and less to do. */
#define SYMMEM_CUDA_LL_LINE_BYTES 16
#define SYMMEM_CUDA_ROUND_BYTES 1024
#define SYMMEM_CUDA_ROUND_UNITS 60
#define SYMMEM_CUDA_SHORT_UNITS 28
#define SYMMEM_CUDA_ROUND_CHANNELS 4
/* Of all sources' two rounds: what is under way between two ranks at a time, and so their speed.
 * The first channel has most, for all of it is memory of each handle; of two ranks it has more
 * where the memory that is shared is larger than that, but not as much as would fill a device
 * (backend_cuda/collective/collective.c). */
#define SYMMEM_CUDA_ROUNDS_FIRST ((size_t)3 << 19)
#define SYMMEM_CUDA_ROUNDS_LARGE ((size_t)2048 * 2 * SYMMEM_CUDA_ROUND_BYTES)
#define SYMMEM_CUDA_ROUNDS_OTHER ((size_t)1 << 16)
#define SYMMEM_CUDA_LARGE_BLOCK ((size_t)1 << 20) /* bytes of the memory that a handle shares */
#define SYMMEM_CUDA_LINKED 1

/* Warps that have places on the channel; 0: there are no lines. */
SYMMEM_CUDA_BOTH size_t symmem_cuda_ll_warps(int32_t world_size, size_t block_bytes,
                                               int32_t channel) {
    const bool large = world_size == 2 && block_bytes >= SYMMEM_CUDA_LARGE_BLOCK;
    const size_t bytes = channel != 0 ? SYMMEM_CUDA_ROUNDS_OTHER
                         : large      ? SYMMEM_CUDA_ROUNDS_LARGE
                                      : SYMMEM_CUDA_ROUNDS_FIRST;
    if (world_size < 2 || channel >= SYMMEM_CUDA_ROUND_CHANNELS)
        return 0;
    return bytes / (2 * SYMMEM_CUDA_ROUND_BYTES * ((size_t)world_size - 1));
}

/* Bytes of a channel's turns and rounds. */
SYMMEM_CUDA_BOTH size_t symmem_cuda_ll_bytes(int32_t world_size, size_t block_bytes,
                                                int32_t channel) {
    const size_t warps = symmem_cuda_ll_warps(world_size, block_bytes, channel);
    return (sizeof(uint32_t) * warps + 127) / 128 * 128 +
           2 * SYMMEM_CUDA_ROUND_BYTES * ((size_t)world_size - 1) * warps;
}

/* A multiple of 128, as the state's place is not: what it is added to is. */
SYMMEM_CUDA_BOTH size_t symmem_cuda_round_numbers_at(int32_t world_size, int32_t channel_count,
                                             size_t block_bytes, int32_t channel) {
    const int32_t spread =
        channel_count < SYMMEM_CUDA_SYNC_BLOCK_CHANNELS ? channel_count : SYMMEM_CUDA_SYNC_BLOCK_CHANNELS;
    size_t at = (symmem_cuda_block_at(world_size, channel_count, spread, 0) + 127) / 128 * 128;
    for (int32_t i = 0; i < channel; i++)
        at += symmem_cuda_ll_bytes(world_size, block_bytes, i);
    return at;
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_rounds_at(int32_t world_size, int32_t channel_count,
                                              size_t block_bytes, int32_t channel) {
    const size_t turns =
        sizeof(uint32_t) * symmem_cuda_ll_warps(world_size, block_bytes, channel);
    return symmem_cuda_round_numbers_at(world_size, channel_count, block_bytes, channel) +
           (turns + 127) / 128 * 128;
}

/* Chunks: what a large all-reduce of two ranks pushes. Each block has so many places for them, and
 * the peer's blocks as many here. In front of the places, for each block: the number of the owner's
 * last chunk, nobody else's; and, a line apart, that of the last one that has come. */
#define SYMMEM_CUDA_CHUNK_BLOCKS 128
#define SYMMEM_CUDA_CHUNK_BYTES ((size_t)32 << 10)
#define SYMMEM_CUDA_CHUNK_SLOTS 4
#define SYMMEM_CUDA_CHUNK_LINE 128
#define SYMMEM_CUDA_CHUNKED_BLOCK ((size_t)8 << 20) /* of smaller memory there are none */

SYMMEM_CUDA_BOTH size_t symmem_cuda_chunks_at(int32_t world_size, int32_t channel_count,
                                              size_t block_bytes) {
    const int32_t channels =
        channel_count < SYMMEM_CUDA_ROUND_CHANNELS ? channel_count : SYMMEM_CUDA_ROUND_CHANNELS;
    return symmem_cuda_round_numbers_at(world_size, channel_count, block_bytes, channels);
}

SYMMEM_CUDA_BOTH bool symmem_cuda_has_chunks(int32_t world_size, size_t block_bytes) {
    return world_size == 2 && block_bytes >= SYMMEM_CUDA_CHUNKED_BLOCK;
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_signal_size(int32_t world_size, int32_t channel_count,
                                                size_t block_bytes) {
    const size_t of_block =
        2 * SYMMEM_CUDA_CHUNK_LINE + SYMMEM_CUDA_CHUNK_SLOTS * SYMMEM_CUDA_CHUNK_BYTES;
    return symmem_cuda_chunks_at(world_size, channel_count, block_bytes) +
           (symmem_cuda_has_chunks(world_size, block_bytes) ? SYMMEM_CUDA_CHUNK_BLOCKS * of_block
                                                            : 0);
}

#endif
