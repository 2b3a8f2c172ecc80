/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of multimem_all_reduce (SYMMEM_CALL_MULTIMEM_ALL_REDUCE).
 *
 * What        in_r[i] = in_0[i] op in_1[i] op ... op in_(n-1)[i] for every rank r, in_r being
 *             `count` elements of `dtype` at `offset` of rank r's buffer, in place. Each rank does
 *             a part: it loads the reduced elements from the multicast address and stores them
 *             there.
 * Fields      dtype, op, count, offset, multicast.
 * Checked     by the core, before anything is written: channel, a multicast address, dtype and op,
 *             tensor in the handle's block. A backend answers UNSUPPORTED for a pair of dtype and
 *             op that its hardware cannot reduce.
 * Before      Barrier: every rank's input is ready.
 * After       Barrier: the results are in every buffer.
 * Aliasing    in place by nature.
 * Determined  An element is reduced once and stored everywhere, so all ranks have equal bits. The
 *             emulation reduces in rank order, reference/reduce.h. Hardware may take any order and
 *             may differ from the reference, see multimem_error.h. It never differs in min and max,
 *             nor where every partial sum is exact, as with integers.
 * Failure     The tensors are undefined.
 * Source      PyTorch symm_mem::multimem_all_reduce_, which takes float32, bfloat16 and sum.
 */
#ifndef SYMMEM_KERNELS_MULTIMEM_ALL_REDUCE_H
#define SYMMEM_KERNELS_MULTIMEM_ALL_REDUCE_H

#include <symmem/backend.h>

#endif
