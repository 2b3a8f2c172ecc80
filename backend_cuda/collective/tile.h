/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of a piece of all ranks' buffers. */
#ifndef SYMMEM_BACKEND_CUDA_TILE_H
#define SYMMEM_BACKEND_CUDA_TILE_H

#include <symmem/backend.h>

symmem_status cuda_reduce_tile(void *instance, const symmem_peers *peers,
                               const symmem_tile_reduction *tile, const symmem_exec *exec);

#endif
