/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of multimem_one_shot_all_reduce (SYMMEM_CALL_MULTIMEM_ONE_SHOT_ALL_REDUCE) and
 * multimem_one_shot_reduce (SYMMEM_CALL_MULTIMEM_ONE_SHOT_REDUCE).
 *
 * What        out[i] = in_0[i] op in_1[i] op ... op in_(n-1)[i], in_r being `count` elements of
 *             `dtype` at `offset` of rank r's buffer, loaded reduced from the multicast address.
 *             The first writes out on every rank, the second on `root` only. Inputs stay as they
 *             are.
 * Fields      dtype, op, count, offset, multicast, out, root (of the second; its out is NULL on the
 *             other ranks).
 * Checked     by the core, before anything is written: channel, root, a multicast address, dtype
 *             and op, input in the handle's block, dtype and shape of out if there is one. A
 *             backend answers UNSUPPORTED for a pair that its hardware cannot reduce.
 * Before      Barrier: every rank's input is ready.
 * After       Barrier: a rank that returns may overwrite its input.
 * Aliasing    out overlaps no rank's input.
 * Determined  The emulation reduces in rank order, reference/reduce.h. Hardware may differ from
 *             that, see multimem_error.h. Because each rank loads by itself, hardware may also
 *             differ between ranks.
 * Failure     out is undefined.
 * Source      PyTorch symm_mem::multimem_one_shot_all_reduce, its _out and
 *             multimem_one_shot_reduce_out, which take float32, bfloat16 and sum, and want an out
 *             of the right dtype on ranks that do not write it.
 */
#ifndef SYMMEM_KERNELS_MULTIMEM_ONE_SHOT_ALL_REDUCE_H
#define SYMMEM_KERNELS_MULTIMEM_ONE_SHOT_ALL_REDUCE_H

#include <symmem/backend.h>

#endif
