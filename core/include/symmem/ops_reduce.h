/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions, all collective. See ops.h for what holds for all of them. [SM-REDUCE] */
#ifndef SYMMEM_OPS_REDUCE_H
#define SYMMEM_OPS_REDUCE_H

#include <symmem/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- all-reduce: every rank gets the reduction of all inputs ------------------------------------
 * All forms give the same bits. */

/*
 * Chooses among the forms below by size and world size, see symmem_set_all_reduce_table. output has
 * the input's shape and dtype, and either is the input itself (in place) or overlaps it nowhere.
 * Each may be symmetric or not, on every rank alike:
 *   input symmetric    the input stays as it is unless it is the output; output is the input, or
 *                      overlaps no rank's input
 *   only output so     every rank's output is used as the way there
 *   neither            the handle's block, from the handle's place to its end, is the way there:
 *                      what it holds is lost. It may be smaller than the tensors, of at least 3
 *                      elements (or as many as they have), else OUT_OF_RANGE; from 2 MiB on it
 *                      makes no difference.
 * Contracts: kernels/one_shot_all_reduce.h, kernels/two_shot_all_reduce.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_all_reduce(
    symmem_handle *handle, const DLTensor *input, symmem_reduce_op op, const DLTensor *output,
    int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

typedef enum symmem_all_reduce_algorithm {
    SYMMEM_ALL_REDUCE_ONE_SHOT = 0, /* every rank reduces everything */
    SYMMEM_ALL_REDUCE_TWO_SHOT,     /* each rank reduces a part for all */
    SYMMEM_ALL_REDUCE_ALGORITHM_COUNT
} symmem_all_reduce_algorithm;

/* One line: what it says holds for inputs that fit all three of its conditions. */
typedef struct symmem_all_reduce_entry {
    int32_t symmetric;      /* 1 for symmetric inputs, 0 for others, -1 for both */
    int32_t max_world_size; /* of groups up to this size; 0: of any */
    uint64_t max_bytes;     /* of inputs up to this size; UINT64_MAX: of any */
    symmem_all_reduce_algorithm algorithm;
} symmem_all_reduce_entry;

#define SYMMEM_ALL_REDUCE_MAX_ENTRIES 64

/*
 * Local. Replaces the table of symmem_all_reduce in this context: the first entry that fits
 * decides, and two-shot where none does. Where an output is symmetric only two-shot will do. All
 * ranks need the same table; a context with check_collectives answers MISMATCH where they differ.
 * NULL with count 0: the one that is built in. Any thread; calls that have begun keep the old one.
 * A context begins with the table in the environment variable SYMMEM_ALL_REDUCE_TABLE, if it is
 * set: SYMMETRIC:MAX_WORLD_SIZE:MAX_BYTES:ALGORITHM[,...], the entry's members in decimal, "any"
 * for UINT64_MAX, and one_shot or two_shot. symmem-bench --tune measures and prints one. Errors:
 * INVALID_ARGUMENT (an unknown algorithm, symmetric outside -1..1, negative max_world_size, NULL),
 * OUT_OF_RANGE (too many).
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_set_all_reduce_table(
    symmem_context *context, const symmem_all_reduce_entry *entries, int32_t count);

/*
 * Every rank reads all inputs and reduces them itself: least latency for small sizes. input is
 * symmetric; out has its shape and dtype and must overlap no rank's input. Contract:
 * kernels/one_shot_all_reduce.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_one_shot_all_reduce_out(
    symmem_handle *handle, const DLTensor *input, symmem_reduce_op op, const DLTensor *out,
    int32_t channel, uint32_t timeout_ms, symmem_stream *stream);
/* The input may be anywhere and travels through `buffer`, which is symmetric, of the input's dtype
 * and number of elements, and undefined afterwards. out may be the input itself; else the three
 * overlap nowhere. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_one_shot_all_reduce_copy_out(
    symmem_handle *handle, const DLTensor *buffer, const DLTensor *input, symmem_reduce_op op,
    const DLTensor *out, int32_t channel, uint32_t timeout_ms, symmem_stream *stream);
/*
 * Both once more with an out of their own, of the input's shape, on the handle's device. It is new
 * memory of the context, not symmetric; the tensor's deleter gives it back, once, on any thread,
 * while work on it is pending or after the context was finalized, too. As symmem_alloc, they are
 * CAPTURE while a stream of the context captures: a graph needs memory that outlives it, so use the
 * _out forms there. *out_p is written on success only.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_one_shot_all_reduce(
    symmem_handle *handle, const DLTensor *input, symmem_reduce_op op, int32_t channel,
    uint32_t timeout_ms, symmem_stream *stream, DLManagedTensor **out_p);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_one_shot_all_reduce_copy(
    symmem_handle *handle, const DLTensor *buffer, const DLTensor *input, symmem_reduce_op op,
    int32_t channel, uint32_t timeout_ms, symmem_stream *stream, DLManagedTensor **out_p);

/*
 * Each rank reduces a part for all. input is symmetric and becomes the result on every rank.
 * Contract: kernels/two_shot_all_reduce.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status
symmem_two_shot_all_reduce(symmem_handle *handle, const DLTensor *input, symmem_reduce_op op,
                           int32_t channel, uint32_t timeout_ms, symmem_stream *stream);
/* With the result in out, which has the input's shape and dtype and must overlap no rank's input.
 * The inputs are at the end as they were, but may not be read by others meanwhile. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_two_shot_all_reduce_out(
    symmem_handle *handle, const DLTensor *input, symmem_reduce_op op, const DLTensor *out,
    int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

/* --- reduce-scatter: rank r gets part r of that reduction ------------------------------------ */

/*
 * input is symmetric, out anywhere, overlapping no rank's input. Without split_last_dim both have
 * one dimension; out is part r of the world_size equal ones of the input. With it they have the
 * same dimensions but for the last one, out's is the input's divided by the world size, and out is
 * columns [r * that, (r + 1) * that). INVALID_ARGUMENT with both numbers where that does not divide
 * or fit. Any world size. Contract: kernels/reduce_scatter.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_reduce_scatter_out(
    symmem_handle *handle, const DLTensor *input, symmem_reduce_op op, bool split_last_dim,
    const DLTensor *out, int32_t channel, uint32_t timeout_ms, symmem_stream *stream);
/*
 * Splits the first dimension, for inputs on their way between devices whose processors have other
 * work: SUM and AVG only, others are UNSUPPORTED. out has the input's shape but for the first
 * dimension, divided by the world size. A symmetric input is pulled from; one that is not is pushed
 * through the handle's block, from the handle's place on, which has to be as large as the input
 * (OUT_OF_RANGE), aligned to elements (MISALIGNED), and is undefined afterwards; until the next
 * barrier or collective only its own rank may write it. On every rank alike. out overlaps neither
 * this rank's input nor what is used of any rank's block. Contract:
 * kernels/low_contention_reduce_scatter.h.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_low_contention_reduce_scatter(
    symmem_handle *handle, const DLTensor *input, symmem_reduce_op op, const DLTensor *out,
    int32_t channel, uint32_t timeout_ms, symmem_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
