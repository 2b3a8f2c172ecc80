/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives: the CPU kernels on the emulation's peers, with its barrier. */
#ifndef SYMMEM_BACKEND_SHM_COLLECTIVE_H
#define SYMMEM_BACKEND_SHM_COLLECTIVE_H

#include "shm.h"

symmem_status shm_collective(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_collective *call, const symmem_exec *exec);
symmem_status shm_reduce_tile(void *instance, const symmem_peers *peers,
                              const symmem_tile_reduction *tile, const symmem_exec *exec);

#endif
