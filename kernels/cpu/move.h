/* SPDX-License-Identifier: BSD-3-Clause */
/* What the operations that only move bytes share. */
#ifndef SYMMEM_KERNELS_CPU_MOVE_H
#define SYMMEM_KERNELS_CPU_MOVE_H

#include <string.h>

#include "cpu/comm.h"
#include "reference/reduce.h"

/* Of one element. */
static inline size_t symmem_cpu_width(const symmem_collective *call) {
    return symmem_reference_element_bytes(call->dtype, SYMMEM_SUM);
}

/* The rank that `rank` turns to in that step, 0 to n - 1: another one for each rank. */
static inline int32_t symmem_cpu_peer_at_step(const symmem_cpu_comm *comm, int32_t step) {
    return (comm->rank + step) % comm->world_size;
}

/* No bytes may be nowhere. memcpy goes past the cache by itself where that pays off. */
static inline void symmem_cpu_move(void *dst, const void *src, size_t bytes) {
    if (bytes > 0 && dst != src)
        memcpy(dst, src, bytes);
}

#endif
