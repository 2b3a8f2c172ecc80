/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of two_shot_all_reduce (SYMMEM_CALL_TWO_SHOT_ALL_REDUCE).
 *
 * What        the same values as one_shot_all_reduce. Each rank reduces one shard of the elements
 *             for all: less to read, and so what large sizes and large groups want.
 * Input       in_r lies at `offset` of rank r's buffer. With `in`, that is first copied there; with
 *             `in` and `out` both, it travels through `in_row` elements from `offset` on, of which
 *             min(count, 3) are enough, and which are undefined afterwards.
 * Output      out. NULL: in place, `offset` of every rank's buffer.
 * Fields      dtype, op, count, offset; in, out: see above; in_row: with both.
 * Checked     as for one_shot_all_reduce.
 * Before      as for one_shot_all_reduce, `in` making it the copy form.
 * After       a rank that returns has its results and may write its buffer and out again; all ranks
 *             have called. Where ranks write to each other's buffers they meet for that.
 * Aliasing    out overlaps no rank's input, or buffer part. With `in` and `out` both, they may be
 *             the same; else they are apart, and `in` is apart from every rank's buffer part.
 * Input kept  without `in` and with `out` the input is at the end as it was. Meanwhile the rank's
 *             own shard of it may hold results: no other operation may read it until then.
 * Determined  rank order, reference/reduce.h: equal bits on all ranks and in all runs, the same as
 *             one_shot_all_reduce's.
 * Failure     out and the ranks' buffer parts are undefined.
 * Source      PyTorch symm_mem::two_shot_all_reduce_ and two_shot_all_reduce_out, which take only
 *             float32, bfloat16 and sum; the latter only 2, 4 or 8 ranks, and it leaves results in
 *             its input.
 */
#ifndef SYMMEM_KERNELS_TWO_SHOT_ALL_REDUCE_H
#define SYMMEM_KERNELS_TWO_SHOT_ALL_REDUCE_H

#include "cpu/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

symmem_status symmem_cpu_two_shot_all_reduce(const symmem_collective *call, symmem_cpu_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
