/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the host and the kernels of signal.cu share: the layout of a rank's signal state, the
 * arguments of a kernel, and the record of a failure. It compiles as C and as CUDA C++.
 *
 * A rank's signal state consists of words of 32 bits, which are 0 at the start:
 *   header   64 bytes; the first word is not 0 once the owner's state is poisoned
 *   links    [source]  SYMMEM_CUDA_LINKED: `source` has NVLink to all other ranks. Written before
 *                      the first operation and kept by a reset
 *   slots    [channel][source]  0 or 1: put by `source`, consumed by the owner
 *   arrivals [channel][source]  the epoch of the last barrier that `source` entered
 *   epochs   [channel]          the owner's count of barriers and of their equivalents; only the
 *                               owner accesses it
 *   calls    [channel][2]       the owner's calls in its last two barriers
 * Then, at a multiple of 64 bytes, come words of 64 bits:
 *   states   [channel]          the owner's composite operation; only the owner accesses it
 *   splits   [channel]          the owner's split table of an all-to-all, collective_plan.h
 *   blocks   [channel][block]   for kernels with a barrier per block: arrivals [source] and the
 *                               owner's epoch; for the first channels only
 *   numbers  [channel][warp]    the number of the owner's last LL round; only the owner accesses it
 *   rounds   [channel][parity][source][warp]  lines that `source` pushes, ll.cuh; only the owner
 *                               reads
 *   chunks   of the first channel, if two ranks share much memory, chunks.cuh
 *   parts    [channel]          the owner's table of splits.h, for the first channels only
 *   counts   [3][channel][rank] counted signals, counts.cuh: of each rank that have come, given to
 *                               each rank, and taken of those that came. The last two only the
 *                               owner accesses
 * Epochs and round numbers live here and never in an argument, so that a captured operation can be
 * replayed. They wrap, and epochs are compared by their difference. A line's flag is its round
 * number. The slot held the flag of two rounds before.
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
#define SYMMEM_CUDA_SMALL_BARRIER_THREADS                                                          \
    64 /* barrier_small.cuh needs at least two warps: one synchronizes, another polls */

/* In host memory that the device can write. `code` is a negated symmem_status; 0: no failure. */
typedef struct symmem_cuda_fault {
    uint32_t code;
    int32_t failed_rank;
    uint64_t elapsed_ns;
    uint32_t claimed; /* by the block that writes the record, because several may fail at once */
    /* MISMATCH of an all-to-all's splits: this rank's elements; `other` has the peer's */
    uint64_t actual;
    uint32_t missing[SYMMEM_CUDA_MAX_RANKS / 32];
    uint32_t other[SYMMEM_CUDA_CALL_WORDS];
} symmem_cuda_fault;

/* In host memory that the device can use. The host says what a waiting kernel cannot find out
 * itself. The device says that there is a fault, so that the host need not look at each operation's
 * every time. */
typedef struct symmem_cuda_control {
    uint32_t poisoned;                         /* this rank is poisoned, as its host knows */
    uint32_t gone[SYMMEM_CUDA_MAX_RANKS / 32]; /* bit r: the process of group rank r has ended */
    uint32_t failed; /* an operation of this rank has filled its fault since the host looked */
} symmem_cuda_control;

/* An operation of several kernels. The first barrier sets it, later kernels read it. */
typedef struct symmem_cuda_state {
    uint64_t start_ns;
    uint64_t failed; /* names the stream whose kernel failed; 0: no failure */
    /* For calls without a stream, until a reset. Their blocks do nothing if they find `stopped`.
     * `begun` counts blocks that have looked, and `ended` blocks that have finished. */
    uint32_t stopped, begun, ended;
    uint32_t reserved;
} symmem_cuda_state;

/* The bytes of a state that belong to its operation. */
#define SYMMEM_CUDA_STATE_OF_OPERATION offsetof(symmem_cuda_state, stopped)

#define SYMMEM_CUDA_NO_STREAM 1 /* names no stream */

/* The position of a barrier in an operation of several kernels. */
typedef enum symmem_cuda_phase {
    SYMMEM_CUDA_ALONE = 0,
    SYMMEM_CUDA_FIRST, /* the first barrier of the operation */
    SYMMEM_CUDA_LATER, /* skipped once the operation has failed; one limit for all barriers */
    /* as LATER, even for the first one, because the host has cleared the state */
    SYMMEM_CUDA_COMPOSITE_STEP,
} symmem_cuda_phase;

typedef struct symmem_cuda_signal_args {
    void *const *signals; /* every rank's signal state; the device reads the table */
    symmem_cuda_fault *fault;
    symmem_cuda_control *control;
    int32_t rank;
    int32_t world_size;
    int32_t channel_count;
    int32_t channel;
    int32_t peer;        /* put, wait */
    uint32_t timeout_ms; /* 0: no limit */
    int32_t phase;       /* barrier: symmem_cuda_phase */
    /* COMPOSITE_STEP: the operation's state, which may be another channel's */
    symmem_cuda_state *state;
    uint64_t stream; /* names the stream, not 0 */
    uint32_t call[SYMMEM_CUDA_CALL_WORDS];
    void *small[SYMMEM_CUDA_SMALL_RANKS]; /* the contents of the table, if all fits */
} symmem_cuda_signal_args;

/* The comparisons of a wait for a value, numbered as symmem_compare. */
enum {
    SYMMEM_CUDA_EQ,
    SYMMEM_CUDA_NE,
    SYMMEM_CUDA_GT,
    SYMMEM_CUDA_GE,
    SYMMEM_CUDA_LT,
    SYMMEM_CUDA_LE
};

/* A wait for the value of a word, in `signal` for the source, which is its peer. */
typedef struct symmem_cuda_value_args {
    symmem_cuda_signal_args signal;
    const void *word;
    uint64_t value;
    int32_t bytes; /* of the word: 4 or 8 */
    int32_t compare;
} symmem_cuda_value_args;

#define SYMMEM_CUDA_COUNT_PEERS 32

/* Counted signals, given or waited for: so many of each rank. */
typedef struct symmem_cuda_counts_args {
    symmem_cuda_signal_args signal;
    size_t counts_at; /* where the counts begin in a rank's signal state */
    int32_t list_count;
    struct {
        int32_t rank;
        uint32_t count;
    } list[SYMMEM_CUDA_COUNT_PEERS];
} symmem_cuda_counts_args;

/* A barrier of few ranks without comparing calls (barrier_small.cuh). The arguments occupy few
 * lines of the constant cache. Offsets are bytes in a rank's signal state. */
typedef struct symmem_cuda_small_barrier {
    uint32_t rank, ranks;
    uint32_t arrivals_at, epoch_at; /* of the first block: the channel's own */
    uint32_t blocks_at;             /* of the other blocks */
    uint32_t calls_at;
    /* every rank's, starting with this rank and wrapping around */
    char *signals[SYMMEM_CUDA_SMALL_RANKS];
} symmem_cuda_small_barrier;

typedef struct symmem_cuda_small_barrier_args {
    symmem_cuda_small_barrier small;
    symmem_cuda_signal_args signal; /* for the slow path */
} symmem_cuda_small_barrier_args;

/* Byte offsets in a rank's signal state. */
#ifdef __CUDACC__
#define SYMMEM_CUDA_BOTH static __host__ __device__ inline
#define SYMMEM_CUDA_CALLED static __host__ __device__ __noinline__ /* one copy in a kernel */
#else
#define SYMMEM_CUDA_BOTH static inline
#define SYMMEM_CUDA_CALLED static inline
#endif

/* Where the links end, and where a reset begins to clear. */
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

/* Alternates between two calls. A rank that writes one again has passed a barrier since all ranks
 * read it. */
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

/* Blocks that each have a barrier must all fit on the device at once, for several kernels on
 * several channels. */
#define SYMMEM_CUDA_MAX_SYNC_BLOCKS 64
#define SYMMEM_CUDA_SYNC_BLOCK_CHANNELS 4

SYMMEM_CUDA_BOTH size_t symmem_cuda_block_at(int32_t world_size, int32_t channel_count,
                                             int32_t channel, int32_t block) {
    return symmem_cuda_split_table_at(world_size, channel_count, channel_count) +
           sizeof(uint32_t) * ((size_t)world_size + 1) *
               ((size_t)channel * SYMMEM_CUDA_MAX_SYNC_BLOCKS + (size_t)block);
}

/* LL lines, which an all-reduce pushes in rounds. In a round a warp has a slot of a fixed size from
 * each source, for a fixed number of units of 16 data bytes. A short round has fewer units and less
 * work. */
#define SYMMEM_CUDA_LL_LINE_BYTES 16
#define SYMMEM_CUDA_ROUND_BYTES 1024
#define SYMMEM_CUDA_ROUND_UNITS 60
#define SYMMEM_CUDA_SHORT_UNITS 28
#define SYMMEM_CUDA_ROUND_CHANNELS 4
/* Two rounds of all sources. This limits the data in flight between two ranks, and so their speed.
 * The first channel has most, because this is memory of every handle. With two ranks it has more if
 * they share more memory than that, but not enough to fill a device
 * (backend_cuda/collective/collective.c). */
#define SYMMEM_CUDA_ROUNDS_FIRST ((size_t)3 << 19)
#define SYMMEM_CUDA_ROUNDS_LARGE ((size_t)2048 * 2 * SYMMEM_CUDA_ROUND_BYTES)
#define SYMMEM_CUDA_ROUNDS_OTHER ((size_t)1 << 16)
#define SYMMEM_CUDA_LARGE_BLOCK ((size_t)1 << 20) /* bytes of the memory that a handle shares */
#define SYMMEM_CUDA_LINKED 1

/* Returns the warps that have LL slots on the channel; 0: no LL there. */
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

/* Returns the bytes of a channel's round numbers and rounds. */
SYMMEM_CUDA_BOTH size_t symmem_cuda_ll_bytes(int32_t world_size, size_t block_bytes,
                                             int32_t channel) {
    const size_t warps = symmem_cuda_ll_warps(world_size, block_bytes, channel);
    return (sizeof(uint32_t) * warps + 127) / 128 * 128 +
           2 * SYMMEM_CUDA_ROUND_BYTES * ((size_t)world_size - 1) * warps;
}

/* A multiple of 128 from the aligned base, which the state's own offset is not. */
SYMMEM_CUDA_BOTH size_t symmem_cuda_round_numbers_at(int32_t world_size, int32_t channel_count,
                                                     size_t block_bytes, int32_t channel) {
    const int32_t spread = channel_count < SYMMEM_CUDA_SYNC_BLOCK_CHANNELS
                               ? channel_count
                               : SYMMEM_CUDA_SYNC_BLOCK_CHANNELS;
    size_t at = (symmem_cuda_block_at(world_size, channel_count, spread, 0) + 127) / 128 * 128;
    for (int32_t i = 0; i < channel; i++)
        at += symmem_cuda_ll_bytes(world_size, block_bytes, i);
    return at;
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_rounds_at(int32_t world_size, int32_t channel_count,
                                              size_t block_bytes, int32_t channel) {
    const size_t turns = sizeof(uint32_t) * symmem_cuda_ll_warps(world_size, block_bytes, channel);
    return symmem_cuda_round_numbers_at(world_size, channel_count, block_bytes, channel) +
           (turns + 127) / 128 * 128;
}

/* Chunks, which a large all-reduce of two ranks pushes. Each block has a fixed number of chunk
 * slots, and so has the peer's block of the same number. Before the slots each block has two words:
 * the number of the owner's last chunk, which only the owner accesses, and a line further the
 * number of the last chunk that has arrived. */
#define SYMMEM_CUDA_CHUNK_BLOCKS 128
#define SYMMEM_CUDA_CHUNK_BYTES ((size_t)32 << 10)
#define SYMMEM_CUDA_CHUNK_LINE 128
#define SYMMEM_CUDA_CHUNKED_BLOCK ((size_t)8 << 20) /* smaller memory has no chunks */
/* Memory from this size on has slots for more chunks under way. They take 32 MiB instead of 16. */
#define SYMMEM_CUDA_MANY_CHUNKS_BLOCK ((size_t)128 << 20)
#define SYMMEM_CUDA_CHUNK_SLOTS_MOST 8
/* The table of an all-to-all with splits in memory, splits.h; for the first channels only. */
#define SYMMEM_CUDA_PARTS_WORDS 1024

SYMMEM_CUDA_BOTH size_t symmem_cuda_chunks_at(int32_t world_size, int32_t channel_count,
                                              size_t block_bytes) {
    const int32_t channels =
        channel_count < SYMMEM_CUDA_ROUND_CHANNELS ? channel_count : SYMMEM_CUDA_ROUND_CHANNELS;
    return symmem_cuda_round_numbers_at(world_size, channel_count, block_bytes, channels);
}

SYMMEM_CUDA_BOTH bool symmem_cuda_has_chunks(int32_t world_size, size_t block_bytes) {
    return world_size == 2 && block_bytes >= SYMMEM_CUDA_CHUNKED_BLOCK;
}

/* The chunk slots of a block, a power of two because numbers of chunks wrap. */
SYMMEM_CUDA_BOTH uint32_t symmem_cuda_chunk_slots(size_t block_bytes) {
    return block_bytes >= SYMMEM_CUDA_MANY_CHUNKS_BLOCK ? SYMMEM_CUDA_CHUNK_SLOTS_MOST : 4;
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_parts_at(int32_t world_size, int32_t channel_count,
                                             size_t block_bytes, int32_t channel) {
    const size_t of_block =
        2 * SYMMEM_CUDA_CHUNK_LINE + symmem_cuda_chunk_slots(block_bytes) * SYMMEM_CUDA_CHUNK_BYTES;
    return symmem_cuda_chunks_at(world_size, channel_count, block_bytes) +
           (symmem_cuda_has_chunks(world_size, block_bytes) ? SYMMEM_CUDA_CHUNK_BLOCKS * of_block
                                                            : 0) +
           sizeof(uint64_t) * SYMMEM_CUDA_PARTS_WORDS * (size_t)channel;
}

/* Counted signals, behind all else. */
SYMMEM_CUDA_BOTH size_t symmem_cuda_counts_at(int32_t world_size, int32_t channel_count,
                                              size_t block_bytes) {
    const int32_t channels = channel_count < SYMMEM_CUDA_SYNC_BLOCK_CHANNELS
                                 ? channel_count
                                 : SYMMEM_CUDA_SYNC_BLOCK_CHANNELS;
    const size_t end = symmem_cuda_parts_at(world_size, channel_count, block_bytes, channels);
    return (end + 63) / 64 * 64;
}

enum { SYMMEM_CUDA_CAME, SYMMEM_CUDA_GIVEN, SYMMEM_CUDA_TAKEN, SYMMEM_CUDA_COUNT_TABLES };

SYMMEM_CUDA_BOTH size_t symmem_cuda_count_at(size_t counts_at, int32_t world_size,
                                             int32_t channel_count, int32_t which, int32_t channel,
                                             int32_t rank) {
    const size_t row = (size_t)which * (size_t)channel_count + (size_t)channel;
    return counts_at + sizeof(uint32_t) * (row * (size_t)world_size + (size_t)rank);
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_signal_size(int32_t world_size, int32_t channel_count,
                                                size_t block_bytes) {
    return symmem_cuda_count_at(symmem_cuda_counts_at(world_size, channel_count, block_bytes),
                                world_size, channel_count, SYMMEM_CUDA_COUNT_TABLES, 0, 0);
}

#endif
