/* SPDX-License-Identifier: BSD-3-Clause */
/* Pieces of a heap that peers can reach, and views of theirs. Between heap.c and lease.c. */
#ifndef SYMMEM_CORE_LEASE_H
#define SYMMEM_CORE_LEASE_H

#include "backend/heap.h"

typedef struct sm_piece {
    sm_node node;      /* heap->pieces, in the order of their offsets */
    sm_treap_node gap; /* heap->gaps unless it is used */
    size_t offset, bytes;
    int32_t leases;      /* that are under way or armed */
    bool used, released; /* released: its owner has given it up, and peers have not */
} sm_piece;

struct sm_heap {
    symmem_context *context; /* which has it: not counted */
    pthread_mutex_t lock;
    symmem_memory memory; /* as the engine gave it */
    size_t bytes;         /* of each rank's heap; a multiple of SYMMEM_ALIGNMENT */
    sm_node pieces;
    sm_treap gaps;
    sm_node leases;               /* under way */
    sm_node armed;                /* the peers have them, or may have; who sweeps takes them out */
    size_t lease_count, sweep_at; /* sweep when there are more */
    /* One thread sweeps at a time, in entries of the backend's, which may give memory back: that
     * takes only `lock`. Comes before `lock`. */
    pthread_mutex_t sweep_lock;
};

/* One share of a piece, for the ranks of one group. */
typedef struct sm_lease {
    sm_node node;
    sm_piece *piece, *words; /* words: one for each rank of the group, 1 once it needs it no more */
    int32_t rank, world_size;
    int32_t *global_ranks;
    sm_identity *identities;
} sm_lease;

/* A peer's piece, as this rank reaches it. */
typedef struct sm_view {
    int32_t rank; /* whose, in the context */
    size_t offset, lease_offset;
    void *word; /* this rank's word of the lease, where it has an address */
    bool held;  /* given back by that word */
} sm_view;

/* heap.c; with heap->lock. */
symmem_status sm_piece_cut(sm_heap *heap, size_t bytes, sm_piece **piece_p);
void sm_piece_release(sm_heap *heap, sm_piece *piece);
void sm_piece_returned(sm_heap *heap, sm_piece *piece); /* one of its leases is over */
/* Without. */
symmem_status sm_piece_zero(const sm_heap *heap, const sm_piece *piece);

/* lease.c; without heap->lock unless it says so. */
symmem_status sm_lease_make(sm_heap *heap, sm_piece *piece, int32_t world_size,
                            symmem_share *share);
void sm_lease_arm(sm_heap *heap, const symmem_share *share, const sm_holders *holders);
void sm_lease_unless_armed(sm_heap *heap, const symmem_share *share);
/* With heap->lock, which is released meanwhile. Ends those that all peers have given back; `dead`:
 * or have ended. */
void sm_leases_sweep(sm_heap *heap, bool dead);
void sm_leases_free(sm_heap *heap);
symmem_status sm_view_make(const sm_heap *heap, const symmem_share *share, int32_t rank,
                           int32_t own, size_t bytes, sm_view **view_p);
void sm_view_release(const sm_heap *heap, sm_view *view);

#endif
