/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of two_shot_all_reduce (SYMMEM_CALL_TWO_SHOT_ALL_REDUCE).
 *
 * What        the same values as one_shot_all_reduce. Each rank reduces one shard of the elements
 *             for all ranks, so each reads less. This suits large sizes and large groups.
 * Input       in_r lies at `offset` of rank r's buffer. `in`, if given, is first copied there. With
 *             `in` and `out` both, the input travels through `in_row` elements starting at
 *             `offset`, of which min(count, 3) suffice, and which are undefined afterwards.
 * Output      out. NULL: in place, `offset` of every rank's buffer.
 * Fields      dtype, op, count, offset; in, out: see above; in_row: with both.
 * Checked     as for one_shot_all_reduce.
 * Before      as for one_shot_all_reduce, where `in` makes it the copy form.
 * After       A rank that returns has its results and may write its buffer and out again. All ranks
 *             have called. If ranks write to each other's buffers, a barrier ensures that.
 * Aliasing    out overlaps no rank's input or buffer part. `in` and `out` may be the same, or must
 *             not overlap. `in` overlaps no rank's buffer part.
 * Input kept  Without `in` and with `out`, the input has its old value at the end. Meanwhile the
 *             rank's own shard of it may hold results. No other operation may read it until then.
 * Determined  rank order, reference/reduce.h: equal bits on all ranks and in all runs, the same as
 *             one_shot_all_reduce's.
 * Failure     out and the ranks' buffer parts are undefined.
 * Source      PyTorch symm_mem::two_shot_all_reduce_ and two_shot_all_reduce_out, which take only
 *             float32, bfloat16 and sum. The latter takes only 2, 4 or 8 ranks and leaves results
 *             in its input.
 */
#ifndef SYMMEM_KERNELS_TWO_SHOT_ALL_REDUCE_H
#define SYMMEM_KERNELS_TWO_SHOT_ALL_REDUCE_H

#include <symmem/backend.h>

#endif
