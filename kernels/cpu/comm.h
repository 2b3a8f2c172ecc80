/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a collective on the CPU needs of its rank's peers: their buffers, and a way to meet. It
 * allocates nothing, exchanges nothing and waits only in `meet`.
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
    size_t buffer_bytes; /* of each: what a peer says of its own is believed within them only */
    symmem_cpu_isa isa;  /* of the loops */
    bool checking;       /* the first meeting compares the ranks' calls */
    /* Release, then acquire: what any rank wrote before it meets is visible to all after it. Not
     * OK: the operation has failed, and no rank will meet again. */
    symmem_status (*barrier)(symmem_cpu_comm *comm);
    /* SYMMEM_CPU_SPLIT_TABLE_WORDS words that the rank shows its peers: one split_table for each rank and
     * channel. Only its rank writes it: before a meeting after which the peers read it, and not
     * before they all have met again. */
    uint64_t *(*split_table)(const symmem_cpu_comm *comm, int32_t rank);
    /* Fails the operation with MISMATCH, which poisons nothing: every rank has found so, and none
     * will meet again. Names a rank and what both have. */
    symmem_status (*mismatch)(symmem_cpu_comm *comm, int32_t rank, uint64_t own, uint64_t other);
    /* Optional. Fails the operation with CORRUPT: what `rank` shows cannot be. Poisons. */
    symmem_status (*corrupt)(symmem_cpu_comm *comm, int32_t rank, uint64_t value);
    /* Optional: a eager_buffer of eager_bytes bytes for each rank and channel, by way of which small
     * reductions need one meeting only. 0, the same on all ranks: there are none. eager_buffer() gives the
     * one that the rank shows its peers in its next meeting, aligned to 8 bytes. Only the rank
     * writes it, before that meeting; its peers read it after it, and before they meet again. So
     * there are two of each, for even and odd meetings: when a rank writes one again, all have met
     * since they read it. */
    size_t eager_bytes;
    void *(*eager_buffer)(const symmem_cpu_comm *comm, int32_t rank);
};

#define SYMMEM_CPU_SPLIT_TABLE_WORDS(world_size) ((size_t)(world_size) + 3)

/* Rank r's symmetric argument. */
static inline char *symmem_cpu_at(const symmem_cpu_comm *comm, int32_t rank, size_t offset) {
    return (char *)comm->buffers[rank] + offset;
}

/* Runs any kind that has a CPU implementation; UNSUPPORTED for others, with nothing done. */
symmem_status symmem_cpu_collective(const symmem_collective *call, symmem_cpu_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
