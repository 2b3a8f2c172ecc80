/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of reduce_scatter (SYMMEM_CALL_REDUCE_SCATTER).
 *
 * What        Rank r gets the r-th of n equal parts of the ranks' inputs, reduced. The inputs are
 *             rows of `in_row` elements at `offset` of each rank's buffer. `out` gets elements
 *             [r * out_row, (r + 1) * out_row) of each row, in_row being n * out_row. One row is
 *             the flat form. With more rows the last dimension is split.
 * Fields      dtype, op, count (of out, a multiple of out_row), offset, out, in_row, out_row.
 * Checked     by the core, before anything is written: channel, dtype and op supported, input in
 *             the handle's block, matching shapes, divisible by n, both aligned to whole elements.
 * Before      Barrier: every rank's input is ready.
 * After       Barrier: a rank that returns may overwrite its input.
 * Aliasing    out overlaps no rank's input. The inputs stay as they are.
 * Determined  rank order, reference/reduce.h: the bits of an all-reduce.
 * Failure     out is undefined.
 * Source      PyTorch symm_mem::reduce_scatter_out, which takes only 2, 4 or 8 ranks, float32,
 *             bfloat16 and sum, wants parts of whole vectors, and does not look at out's alignment.
 */
#ifndef SYMMEM_KERNELS_REDUCE_SCATTER_H
#define SYMMEM_KERNELS_REDUCE_SCATTER_H

#include <symmem/backend.h>

#endif
