/* SPDX-License-Identifier: BSD-3-Clause */
/* What the reducing collectives share: one call's loop over pieces of all ranks' buffers. */
#ifndef SYMMEM_KERNELS_CPU_WORK_H
#define SYMMEM_KERNELS_CPU_WORK_H

#include "cpu/reduce.h"
#include "cpu/comm.h"

/* Pieces that are passed from rank to rank: some fit into the caches together, beside what they
 * come from and go to, and one takes much longer than a meeting and than it takes until a stream of
 * lines from another core is up to speed. (Measured with 2 MiB of second level: 512 KiB and 128 KiB
 * took a tenth and a quarter longer for a call of 512 KiB, and more in the worse runs.) */
#define SYMMEM_CPU_PIECE_BYTES ((size_t)256 << 10)
/* Results of more than this leave the caches before anybody reads them. */
#define SYMMEM_CPU_LARGE_BYTES ((size_t)8 << 20)
/* From so much on it is the same with all-reduces into another tensor than their input, but for
 * those by pieces: past the cache 8 MiB took 0.8 to 0.9 times as long, 4 MiB 0.8 to 1, and what the
 * ranks pass on stayed in the caches. */
#define SYMMEM_CPU_LARGE_COPY_BYTES ((size_t)4 << 20)
/* Up to so much is passed on from cache to cache, and never goes to memory. */
#define SYMMEM_CPU_CACHED_BYTES ((size_t)1 << 20)

typedef struct symmem_cpu_work {
    const symmem_collective *call;
    symmem_cpu_comm *comm;
    symmem_cpu_reduce_fn reduce;
    size_t element;       /* bytes */
    bool streaming;       /* the result goes past the cache, */
    int32_t cached_count; /* but for so many of the destinations, which others read next */
    bool read_ahead;      /* the others' elements are on their way from their caches */
} symmem_cpu_work;

symmem_cpu_work symmem_cpu_work_of(const symmem_collective *call, symmem_cpu_comm *comm);

/* Reduces `count` elements at byte `offset` of all buffers into each destination. `own` not NULL:
 * the own ones are there instead. dsts NULL: into where they came from, all of them. */
void symmem_cpu_work_reduce(const symmem_cpu_work *work, size_t offset, const void *own,
                            size_t count, void *const *dsts, int32_t dst_count);

static inline size_t symmem_cpu_min(size_t a, size_t b) {
    return a < b ? a : b;
}

#endif
