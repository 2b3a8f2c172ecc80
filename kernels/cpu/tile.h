/* SPDX-License-Identifier: BSD-3-Clause */
/* The reduction of a piece of all ranks' buffers, on the CPU. */
#ifndef SYMMEM_KERNELS_CPU_TILE_H
#define SYMMEM_KERNELS_CPU_TILE_H

#include <symmem/backend.h>

#include "reduce.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Does what the entry reduce_tile has to do. buffers: of all ranks. */
void symmem_cpu_reduce_tile(const symmem_tile_reduction *tile, void *const *buffers,
                            int32_t world_size, symmem_cpu_isa isa);

#ifdef __cplusplus
}
#endif
#endif
