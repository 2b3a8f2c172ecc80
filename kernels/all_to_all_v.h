/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of all_to_all_v (SYMMEM_CALL_ALL_TO_ALL_V), which the entry run_splits runs.
 *
 * What        Rank r has `experts` parts for each rank. Part (p, e), for expert e of rank p, is
 *             copied to part (r, e) of rank p's out, row by row. Parts are numbered in one of two
 *             orders:
 *               by ranks    part (p, e) is number p * experts + e
 *               by experts  part (p, e) is number e * world_size + p
 *             If splits.by_experts is false, the input's parts are numbered by ranks and those of
 *             out by experts. If it is true, the other way around. In both the parts follow each
 *             other, with two exceptions. in_offsets says where the input's parts begin; it is
 *             there if and only if by_experts is true. If align is not 0, each expert's parts in
 *             out take a number of rows that is a multiple of align, and at least align; out is
 *             then ordered by experts. splits.out gets the number of rows of each part of out, then
 *             where each begins.
 * Fields      dtype (its size only), in (in this rank's buffer; NULL without elements), out, in_row
 *             (elements of a row), out_row (experts), splits. count and offset are 0, because
 *             inputs may differ in length and position. in_row, out_row and dtype are the same on
 *             all ranks, and so are align and by_experts.
 * Checked     by the core, before anything is written: channel, dtypes, shapes, places, overlaps.
 *             By the operation, each time that it runs: symmem_reference_check_splits. All ranks
 *             learn the result before anything is moved. If it is no success, every rank returns
 *             that status, nothing is written, and the channel stays usable.
 *             No word of a peer's becomes a place or a length unchecked. One that leads out of its
 *             rank's input or of out makes the operation CORRUPT. What else becomes of splits that
 *             change while the operation runs is undefined, within out.
 * Before      Barrier: every rank has its input and splits ready and has published the parts. Ranks
 *             then agree on the check.
 * After       A rank that returns may overwrite its input and splits: no rank reads them any more.
 *             Others may still be at it, so this is no barrier.
 * Aliasing    out and splits.out overlap neither each other nor what any rank reads.
 * Failure     out and splits.out are undefined, except after a check that failed.
 * Source      PyTorch symm_mem::all_to_all_vdev, all_to_all_vdev_2d (align: major_align) and
 *             all_to_all_vdev_2d_offset (in_offsets), which check less: there a split that does not
 *             fit is a device-side assertion, or writes beyond out.
 */
#ifndef SYMMEM_KERNELS_ALL_TO_ALL_V_H
#define SYMMEM_KERNELS_ALL_TO_ALL_V_H

#include <symmem/backend.h>

/* What is wrong with a rank's splits. */
typedef enum symmem_split_fault {
    SYMMEM_SPLIT_OK = 0,
    SYMMEM_SPLIT_NEGATIVE,        /* in_splits: INVALID_ARGUMENT; found: the split */
    SYMMEM_SPLIT_BEYOND,          /* in_splits: OUT_OF_RANGE; found: rows up to its end */
    SYMMEM_SPLIT_OFFSET_NEGATIVE, /* in_offsets: INVALID_ARGUMENT; found: the offset */
    SYMMEM_SPLIT_OFFSET_ORDER,    /* the same; allowed: the earlier part's end; found: the offset */
    SYMMEM_SPLIT_OFFSET_BEYOND,   /* in_offsets: OUT_OF_RANGE; found: rows up to the part's end */
    SYMMEM_SPLIT_OUT,             /* out: OUT_OF_RANGE; found: rows up to the last part's end */
    SYMMEM_SPLIT_FAULT_COUNT
} symmem_split_fault;

static inline symmem_status symmem_split_status(symmem_split_fault fault) {
    switch (fault) {
    case SYMMEM_SPLIT_OK:
        return SYMMEM_OK;
    case SYMMEM_SPLIT_NEGATIVE:
    case SYMMEM_SPLIT_OFFSET_NEGATIVE:
    case SYMMEM_SPLIT_OFFSET_ORDER:
        return SYMMEM_INVALID_ARGUMENT;
    default:
        return SYMMEM_OUT_OF_RANGE;
    }
}

/* The argument that is wrong, for symmem_fault's `stage`. */
static inline const char *symmem_split_stage(symmem_split_fault fault) {
    return fault == SYMMEM_SPLIT_OUT                                        ? "out"
           : fault == SYMMEM_SPLIT_NEGATIVE || fault == SYMMEM_SPLIT_BEYOND ? "in_splits"
                                                                            : "in_offsets";
}

/* The number of a part. */
static inline size_t symmem_split_index(bool by_experts, size_t ranks, size_t experts, size_t rank,
                                        size_t expert) {
    return by_experts ? expert * ranks + rank : rank * experts + expert;
}

#endif
