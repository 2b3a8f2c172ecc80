/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contract of broadcast (SYMMEM_CALL_BROADCAST).
 *
 * What        The root's `count` elements at `offset` are at that place of every rank's buffer.
 * Fields      dtype (its size only), count, offset, root.
 * Checked     by the core, before anything is written: channel, root, tensor in the handle's block.
 * Before      all ranks meet: the root's elements are there, and nobody reads what will be
 *             overwritten.
 * After       all ranks meet: the root may write again. Who moves the bytes is open: the root may
 *             write them or the others read them.
 * Aliasing    in place by nature.
 * Failure     the tensors of all ranks but the root are undefined.
 * Source      PyTorch symm_mem::nvshmem_broadcast, which takes the group's name for the handle.
 */
#ifndef SYMMEM_KERNELS_BROADCAST_H
#define SYMMEM_KERNELS_BROADCAST_H

#include "cpu/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

symmem_status symmem_cpu_broadcast(const symmem_collective *call, symmem_cpu_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
