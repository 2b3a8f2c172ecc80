/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of a piece of all ranks' buffers, as operations of a stream. */
#ifndef SYMMEM_BACKEND_SHM_TILE_H
#define SYMMEM_BACKEND_SHM_TILE_H

#include "shm.h"

symmem_status shm_reduce_tile(void *instance, const symmem_peers *peers,
                              const symmem_tile_reduction *tile, const symmem_exec *exec);

#endif
