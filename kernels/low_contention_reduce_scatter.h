/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of low_contention_reduce_scatter (SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER).
 *
 * What        as the flat form of reduce_scatter: rank r gets the r-th of n equal parts, `count`
 *             elements, reduced. Meant for devices that move data with engines of their own while
 *             their processors compute: in step s rank r deals with rank (r - s) mod n, so that no
 *             two ranks want the same one, and each reduces only when all is there.
 * Pull form   the inputs lie at `offset` of the ranks' buffers; `in` is NULL. Where a device stages
 *             what it pulls is its own affair; on the CPU there is nothing to stage.
 * Push form   `in` lies anywhere. Part p goes to rank p's buffer, as the r-th of n parts of `count`
 *             elements from `offset` on, and is undefined afterwards.
 * Fields      dtype, op (sum or avg), count (of out), offset, out; push form: in.
 * Checked     by the core, before anything is written: op, dtype, channel, shapes, alignment,
 *             bounds.
 * Before      all ranks meet: inputs are there, and nobody uses the buffers any more.
 * After       pull: all ranks meet, and a rank that returns may write its input again. Push: the
 *             ranks have met after the last part was there. A rank that returns may write its own
 *             input and its own buffer; for a peer's it has to meet that once more, as every
 *             collective does first, but not every user: a put needs a barrier before it.
 * Aliasing    out overlaps no rank's input or buffer part, nor `in`; nor does `in` a buffer part.
 * Determined  rank order, reference/reduce.h: the bits of reduce_scatter.
 * Failure     out and, in the push form, the buffer parts are undefined.
 * Source      PyTorch _low_contention_reduce_scatter, which looks at the op only at the end.
 */
#ifndef SYMMEM_KERNELS_LOW_CONTENTION_REDUCE_SCATTER_H
#define SYMMEM_KERNELS_LOW_CONTENTION_REDUCE_SCATTER_H

#include "cpu/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

symmem_status symmem_cpu_low_contention_reduce_scatter(const symmem_collective *call,
                                                       symmem_cpu_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
