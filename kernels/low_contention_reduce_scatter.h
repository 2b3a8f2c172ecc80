/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of low_contention_reduce_scatter (SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER).
 *
 * What        as the flat form of reduce_scatter: rank r gets the r-th of n equal parts, `count`
 *             elements, reduced. It suits devices that move data with copy engines while their
 *             processors compute. In step s rank r accesses rank (r - s) mod n, so that no two
 *             ranks access the same one. Each rank reduces only when all parts have arrived.
 * Pull form   The inputs lie at `offset` of the ranks' buffers. `in` is NULL. A device chooses
 *             where to stage what it pulls. The CPU stages nothing.
 * Push form   `in` lies anywhere. Part p goes to rank p's buffer, as the r-th of n parts of `count`
 *             elements starting at `offset`, and is undefined afterwards.
 * Fields      dtype, op (sum or avg), count (of out), offset, out; push form: in.
 * Checked     by the core, before anything is written: op, dtype, channel, shapes, alignment,
 *             bounds.
 * Before      Barrier: inputs are ready, and no rank uses the buffers any more.
 * After       pull: after a barrier, a rank that returns may overwrite its input. push: the ranks
 *             have synchronized after the last part arrived. A rank that returns may overwrite its
 *             own input and its own buffer. Before it writes a peer's buffer it must synchronize
 *             with that peer once more. Every collective begins with such a barrier. A put by the
 *             user needs one.
 * Aliasing    out overlaps no rank's input or buffer part, nor `in`. `in` overlaps no buffer part.
 * Determined  rank order, reference/reduce.h: the bits of reduce_scatter.
 * Failure     out and, in the push form, the buffer parts are undefined.
 * Source      PyTorch _low_contention_reduce_scatter, which looks at the op only at the end.
 */
#ifndef SYMMEM_KERNELS_LOW_CONTENTION_REDUCE_SCATTER_H
#define SYMMEM_KERNELS_LOW_CONTENTION_REDUCE_SCATTER_H

#include <symmem/backend.h>

#endif
