/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the host and the kernel of splits.cuh share: an all-to-all whose splits lie in memory.
 * kernels/all_to_all_v.h is its contract. It compiles as C and as CUDA C++.
 *
 * A rank's table has four words for its check, which are the fault, the number allowed, the number
 * found and the rows of its out. Two words for each of its parts follow: where the part begins, in
 * bytes from its buffer, and how many rows it has. Part (p, e) is number p * experts + e.
 */
#ifndef SYMMEM_KERNELS_CUDA_SPLITS_H
#define SYMMEM_KERNELS_CUDA_SPLITS_H

#include "cuda/collective.h"

#define SYMMEM_CUDA_SPLIT_THREADS 512
#define SYMMEM_CUDA_SPLIT_HEADER 4
/* Words of the tables of all ranks that a block can hold: eight ranks with 35 experts each. What
 * the kernel has in shared memory takes less than the 48 KiB that need no leave. */
#define SYMMEM_CUDA_SPLIT_SNAPSHOT 4608
/* Words of the parts that come to a rank with the experts of one piece, one expert at least. */
#define SYMMEM_CUDA_PIECE_WORDS (2 * SYMMEM_CUDA_MAX_RANKS)
#define SYMMEM_CUDA_SPLIT_ITEM 2048 /* bytes that a warp moves at a time */

/* How the ranks show each other their tables. It follows from values that are the same on all
 * ranks. */
typedef enum symmem_cuda_split_way {
    SYMMEM_CUDA_SPLIT_LINES,  /* by LL lines to all ranks, one short round of each block */
    SYMMEM_CUDA_SPLIT_TABLE,  /* in the signal state, before a barrier of each block */
    SYMMEM_CUDA_SPLIT_PIECES, /* some experts at a time, by one block */
} symmem_cuda_split_way;

typedef struct symmem_cuda_splits_job {
    const int64_t *splits, *offsets; /* offsets NULL: the parts follow each other, by ranks */
    int64_t *results;
    char *out;
    void *const *buffers;
    uint64_t base; /* where this rank's input begins in its buffer, in bytes */
    uint64_t in_rows, out_rows, align, row_bytes, buffer_bytes;
    uint64_t buffer_rows; /* that a buffer has room for */
    uint32_t experts;
    uint32_t element; /* bytes, a power of two */
    int32_t rank, ranks;
} symmem_cuda_splits_job;

typedef struct symmem_cuda_splits_args {
    symmem_cuda_signal_args signal;
    symmem_cuda_splits_job job;
    symmem_cuda_ll_layout rounds;
    uint64_t table_at;  /* in a rank's signal state */
    uint32_t piece;     /* experts that are published at a time */
    uint32_t line_rows; /* that the lines of a pair of ranks have room for */
    int32_t way;
    bool after_barrier; /* a barrier kernel has compared the calls */
    bool of_two;        /* two ranks whose data may go by lines: split_two.cuh */
    void *small_buffers[SYMMEM_CUDA_SMALL_RANKS];
} symmem_cuda_splits_args;

/* The result of a check: a symmem_split_fault of all_to_all_v.h. */
typedef struct symmem_cuda_split_check {
    uint64_t fault, allowed, found;
} symmem_cuda_split_check;

/* As in all_to_all_v.h, which the host compares. */
enum {
    SYMMEM_CUDA_SPLIT_OK,
    SYMMEM_CUDA_SPLIT_NEGATIVE,
    SYMMEM_CUDA_SPLIT_BEYOND,
    SYMMEM_CUDA_SPLIT_OFFSET_NEGATIVE,
    SYMMEM_CUDA_SPLIT_OFFSET_ORDER,
    SYMMEM_CUDA_SPLIT_OFFSET_BEYOND,
    SYMMEM_CUDA_SPLIT_OUT,
    SYMMEM_CUDA_SPLIT_FAULTS
};

SYMMEM_CUDA_BOTH size_t symmem_cuda_split_words(int32_t ranks, size_t experts) {
    return SYMMEM_CUDA_SPLIT_HEADER + 2 * (size_t)ranks * experts;
}

/* The channels that have a table for many experts in the signal state. */
#define SYMMEM_CUDA_PARTS_CHANNELS SYMMEM_CUDA_SYNC_BLOCK_CHANNELS

SYMMEM_CUDA_BOTH symmem_cuda_split_way symmem_cuda_split_way_of(int32_t ranks, size_t experts,
                                                                int32_t channel,
                                                                size_t block_bytes) {
    const size_t most = SYMMEM_CUDA_SPLIT_SNAPSHOT;
    if (ranks > SYMMEM_CUDA_SMALL_RANKS || channel >= SYMMEM_CUDA_PARTS_CHANNELS ||
        experts > most || symmem_cuda_split_words(ranks, experts) > SYMMEM_CUDA_PARTS_WORDS ||
        symmem_cuda_split_words(ranks, experts) * (size_t)ranks > most)
        return SYMMEM_CUDA_SPLIT_PIECES;
    return symmem_cuda_split_words(ranks, experts) <= 2 * SYMMEM_CUDA_SHORT_UNITS &&
                   symmem_cuda_ll_warps(ranks, block_bytes, channel) > 0
               ? SYMMEM_CUDA_SPLIT_LINES
               : SYMMEM_CUDA_SPLIT_TABLE;
}

/* True for channels and ranks that have a table of SYMMEM_CUDA_PARTS_WORDS. Others have their split
 * table, which takes one expert. */
SYMMEM_CUDA_BOTH bool symmem_cuda_has_parts(int32_t ranks, int32_t channel) {
    return channel < SYMMEM_CUDA_PARTS_CHANNELS &&
           symmem_cuda_split_words(ranks, 1) <= SYMMEM_CUDA_PARTS_WORDS;
}

SYMMEM_CUDA_BOTH uint32_t symmem_cuda_split_piece(int32_t ranks, int32_t channel) {
    return symmem_cuda_has_parts(ranks, channel)
               ? (SYMMEM_CUDA_PARTS_WORDS - SYMMEM_CUDA_SPLIT_HEADER) / (2 * (uint32_t)ranks)
               : 1;
}

SYMMEM_CUDA_BOTH uint64_t symmem_cuda_add_capped(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Gets the next part of this rank's input, of `rows` rows, and places it. *end is where the parts
 * before it end. */
SYMMEM_CUDA_BOTH symmem_cuda_split_check symmem_cuda_place_own(const symmem_cuda_splits_job *job,
                                                               int64_t rows, int64_t offset,
                                                               uint64_t *end, uint64_t *begin) {
    const bool placed = job->offsets != NULL;
    symmem_cuda_split_check check = {SYMMEM_CUDA_SPLIT_OK, 0, 0};
    *begin = *end;
    if (rows < 0) {
        check.fault = SYMMEM_CUDA_SPLIT_NEGATIVE;
        check.found = (uint64_t)rows;
    }
    if (rows <= 0)
        return check;
    if (placed)
        *begin = (uint64_t)offset;
    if (placed && offset < 0) {
        check.fault = SYMMEM_CUDA_SPLIT_OFFSET_NEGATIVE;
        check.found = *begin;
    } else if (*begin < *end) {
        check.fault = SYMMEM_CUDA_SPLIT_OFFSET_ORDER;
        check.allowed = *end;
        check.found = *begin;
    } else {
        *end = *begin + (uint64_t)rows; /* both are less than 2^63 */
    }
    if (check.fault == SYMMEM_CUDA_SPLIT_OK && *end > job->in_rows) {
        check.fault = placed ? SYMMEM_CUDA_SPLIT_OFFSET_BEYOND : SYMMEM_CUDA_SPLIT_BEYOND;
        check.allowed = job->in_rows;
        check.found = *end;
    }
    return check;
}

/* Rows of out that an expert takes. */
SYMMEM_CUDA_BOTH uint64_t symmem_cuda_aligned_rows(uint64_t rows, uint64_t align) {
    if (align == 0)
        return rows;
    if (rows == 0)
        return align;
    const uint64_t beyond = align == 1 ? 0 : rows % align;
    return beyond == 0 ? rows : symmem_cuda_add_capped(rows, align - beyond);
}

/* True for a part of a peer's that lies in its buffer. */
SYMMEM_CUDA_BOTH bool symmem_cuda_part_can_be(const symmem_cuda_splits_job *job, uint64_t begin,
                                              uint64_t rows) {
    if (rows == 0)
        return true;
    return begin <= job->buffer_bytes && (begin & (job->element - 1)) == 0 &&
           rows <= job->buffer_rows && rows * job->row_bytes <= job->buffer_bytes - begin;
}

/* Fills what the kernel would have to divide for, which takes it longer than a peer's line. */
SYMMEM_CUDA_BOTH void symmem_cuda_set_row_limits(symmem_cuda_splits_args *args) {
    const uint64_t row = args->job.row_bytes, unit = SYMMEM_CUDA_LL_LINE_BYTES;
    const uint64_t line_bytes = (uint64_t)args->rounds.warps * SYMMEM_CUDA_ROUND_UNITS * unit;
    args->job.buffer_rows = row == 0 ? UINT64_MAX : args->job.buffer_bytes / row;
    args->line_rows = row == 0 ? UINT32_MAX : (uint32_t)(line_bytes / row);
}

#endif
