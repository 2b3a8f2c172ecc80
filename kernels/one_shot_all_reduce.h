/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of one_shot_all_reduce (SYMMEM_CALL_ONE_SHOT_ALL_REDUCE).
 *
 * What        out[i] = in_0[i] op in_1[i] op ... op in_(n-1)[i] on every rank, in_r being rank r's
 *             `count` elements of `dtype`. Each rank reads all of them.
 * Basic form  in_r lies at `offset` of rank r's buffer. `in` is NULL. The inputs stay as they are.
 * Copy form   in_r is rank r's `in`, anywhere. It travels through the buffers: `in_row` elements
 *             starting at `offset`, of which min(count, 2) suffice, and which are undefined
 *             afterwards. A small input may travel through memory of the implementation instead.
 * Fields      dtype, op, count, offset, out; copy form: in, in_row.
 * Checked     by the core, before anything is written: channel, dtype and op supported, input in
 *             the handle's block, out of the input's dtype and shape, both aligned to whole
 *             elements, count * element size in bounds; copy form: in and out outside of every
 *             rank's buffer part.
 * Before      Each rank's input is ready when that rank calls (SM-COLL-01). If ranks read each
 *             other's buffers, a barrier ensures that. The copy form without checking copies first
 *             and has its barrier after that. The last barrier of the buffer's previous user
 *             ensures that no peer still reads it. With checking a barrier also comes before the
 *             copy. No barrier is needed if the elements travel through memory of the
 *             implementation.
 * After       A rank that returns may overwrite its buffer, because ranks that read it have passed
 *             a barrier. Without a barrier, all ranks have called and read their inputs when one
 *             returns, but not all have their results.
 * Aliasing    basic: out overlaps no rank's input. Copy: out is `in` itself or does not overlap it.
 * Determined  rank order, reference/reduce.h: equal bits on all ranks and in all runs, the same as
 *             two_shot_all_reduce's.
 * Failure     out and, in the copy form, the buffer part are undefined.
 * Source      PyTorch symm_mem::one_shot_all_reduce and its _out, _copy and _copy_out forms, which
 *             take only float32, bfloat16 and sum, add bfloat16 in bfloat16 and read past a shorter
 *             local input.
 */
#ifndef SYMMEM_KERNELS_ONE_SHOT_ALL_REDUCE_H
#define SYMMEM_KERNELS_ONE_SHOT_ALL_REDUCE_H

#include <symmem/backend.h>

#endif
