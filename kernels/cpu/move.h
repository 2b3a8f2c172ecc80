/* SPDX-License-Identifier: BSD-3-Clause */
/* Helpers of the operations that only move bytes. */
#ifndef SYMMEM_KERNELS_CPU_MOVE_H
#define SYMMEM_KERNELS_CPU_MOVE_H

#include <string.h>

#include "cpu/comm.h"
#include "reference/reduce.h"

/* Returns the bytes of one element. */
static inline size_t symmem_cpu_width(const symmem_collective *call) {
    return symmem_reference_element_bytes(call->dtype, SYMMEM_SUM);
}

/* Returns the peer that this rank accesses in step 0 to n - 1. In each step every rank has another
 * peer. */
static inline int32_t symmem_cpu_peer_at_step(const symmem_cpu_comm *comm, int32_t step) {
    return (comm->rank + step) % comm->world_size;
}

/* A copy of no bytes may have NULL addresses. memcpy bypasses the cache by itself where that is
 * faster. */
static inline void symmem_cpu_move(void *dst, const void *src, size_t bytes) {
    if (bytes > 0 && dst != src)
        memcpy(dst, src, bytes);
}

#endif
