/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of broadcast (SYMMEM_CALL_BROADCAST).
 *
 * What        The root's `count` elements at `offset` are copied to the same offset of every
 *             buffer.
 * Fields      dtype (its size only), count, offset, root.
 * Checked     by the core, before anything is written: channel, root, tensor in the handle's block.
 * Before      Barrier: the root's elements are ready, and no rank still reads what is overwritten.
 * After       Barrier: the root may write again. Either the root pushes or the other ranks pull.
 * Aliasing    in place by nature.
 * Failure     The tensors of all ranks but the root are undefined.
 * Source      PyTorch symm_mem::nvshmem_broadcast, which takes the group's name instead of a
 *             handle.
 */
#ifndef SYMMEM_KERNELS_BROADCAST_H
#define SYMMEM_KERNELS_BROADCAST_H

#include <symmem/backend.h>

#endif
