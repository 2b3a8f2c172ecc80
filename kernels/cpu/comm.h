/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a collective on the CPU needs from the backend: the peers' buffers and a barrier.
 * Collectives allocate nothing, exchange nothing, and wait only in `barrier`.
 */
#ifndef SYMMEM_KERNELS_CPU_COMM_H
#define SYMMEM_KERNELS_CPU_COMM_H

#include <symmem/backend.h>

#include "reduce.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmem_cpu_comm symmem_cpu_comm;
struct symmem_cpu_comm {
    int32_t rank;
    int32_t world_size;
    void *const *buffers;
    size_t buffer_bytes; /* of each buffer; what a peer publishes is accepted only within this */
    symmem_cpu_isa isa;  /* instruction set of the loops */
    bool checking;       /* the first barrier compares the ranks' calls */
    /* Release, then acquire: everything that any rank wrote before it is visible to all ranks after
     * it. A status other than OK means that the operation failed and no rank enters another
     * barrier. */
    symmem_status (*barrier)(symmem_cpu_comm *comm);
    /* Returns rank's split table of SYMMEM_CPU_SPLIT_TABLE_WORDS words. There is one for each rank
     * and channel. Only its rank writes it, before a barrier. The peers read it after that barrier
     * and before the next one. */
    uint64_t *(*split_table)(const symmem_cpu_comm *comm, int32_t rank);
    /* Fails the operation with MISMATCH, which poisons nothing. Every rank has found the
     * mismatch, and no rank enters another barrier. The arguments name a rank and the values of
     * both ranks. */
    symmem_status (*mismatch)(symmem_cpu_comm *comm, int32_t rank, uint64_t own, uint64_t other);
    /* Optional. Fails the operation with CORRUPT, because `rank` published an invalid value.
     * Poisons. */
    symmem_status (*corrupt)(symmem_cpu_comm *comm, int32_t rank, uint64_t value);
    /* Optional: an eager buffer of eager_bytes bytes for each rank and channel, through which small
     * reductions need only one barrier. eager_bytes is the same on all ranks; 0 means none.
     * eager_buffer() returns the one that the rank publishes in its next barrier, aligned to 8
     * bytes. Only its rank writes it, before that barrier. The peers read it after that barrier and
     * before the next one. So each rank has two, for even and odd barriers. When a rank writes one
     * again, all ranks have passed a barrier since they read it. */
    size_t eager_bytes;
    void *(*eager_buffer)(const symmem_cpu_comm *comm, int32_t rank);
    /* Optional. Fails an all_to_all_v with `status`, which poisons nothing. Every rank has found
     * that `rank` has wrong splits, and no rank enters another barrier. symmem_fault says what the
     * other arguments are. */
    symmem_status (*wrong_splits)(symmem_cpu_comm *comm, int32_t rank, symmem_status status,
                                  const char *stage, uint64_t allowed, uint64_t found);
};

/* Of all_to_all_v four words for the check, and two for each rank. */
#define SYMMEM_CPU_SPLIT_TABLE_WORDS(world_size) (2 * (size_t)(world_size) + 4)

/* Returns the address of rank's symmetric argument. */
static inline char *symmem_cpu_at(const symmem_cpu_comm *comm, int32_t rank, size_t offset) {
    return (char *)comm->buffers[rank] + offset;
}

/* Runs any kind that has a CPU implementation. Returns UNSUPPORTED for others, with nothing
 * done. */
symmem_status symmem_cpu_collective(const symmem_collective *call, symmem_cpu_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
