/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the reducing collectives: one call's loop over pieces of all ranks' buffers. */
#ifndef SYMMEM_KERNELS_CPU_WORK_H
#define SYMMEM_KERNELS_CPU_WORK_H

#include "cpu/reduce.h"
#include "cpu/comm.h"

/* The size of a piece that is passed from rank to rank. Several pieces fit into the caches
 * together, with their sources and destinations. One takes much longer than a barrier, and than a
 * stream of lines from another core takes to reach full speed. (Measured with 2 MiB of second
 * level: 512 KiB and 128 KiB took a tenth and a quarter longer for a call of 512 KiB, and more in
 * the worse runs.) */
#define SYMMEM_CPU_PIECE_BYTES ((size_t)256 << 10)
/* A larger result leaves the caches before it is read. */
#define SYMMEM_CPU_LARGE_BYTES ((size_t)8 << 20)
/* From this size on the same holds for an all-reduce into another tensor than its input, except one
 * by pieces. Bypassing the cache, 8 MiB took 0.8 to 0.9 times as long and 4 MiB 0.8 to 1, and what
 * the ranks pass on stayed in the caches. */
#define SYMMEM_CPU_LARGE_COPY_BYTES ((size_t)4 << 20)
/* Up to this size data is passed from cache to cache and never goes to memory. */
#define SYMMEM_CPU_CACHED_BYTES ((size_t)1 << 20)

typedef struct symmem_cpu_work {
    const symmem_collective *call;
    symmem_cpu_comm *comm;
    symmem_cpu_reduce_fn reduce;
    size_t element;       /* bytes */
    bool streaming;       /* the result bypasses the cache, */
    int32_t cached_count; /* except this many destinations, which others read next */
    bool read_ahead;      /* prefetch the others' elements from their caches */
} symmem_cpu_work;

symmem_cpu_work symmem_cpu_work_of(const symmem_collective *call, symmem_cpu_comm *comm);

/* Reduces `count` elements at byte `offset` of all buffers into each destination. `own`, unless
 * NULL, replaces this rank's source. dsts NULL means that the sources are the destinations, all of
 * them. */
void symmem_cpu_work_reduce(const symmem_cpu_work *work, size_t offset, const void *own,
                            size_t count, void *const *dsts, int32_t dst_count);

static inline size_t symmem_cpu_min(size_t a, size_t b) {
    return a < b ? a : b;
}

#endif
