/* SPDX-License-Identifier: BSD-3-Clause */
/* What peers have of a heap's pieces, and how they give it back. */
#include "backend/lease.h"
#include "backend/query.h"

#include <stdlib.h>
#include <string.h>

#define FEW 64 /* leases, of which each look costs next to nothing */

/* What travels in a share. */
typedef struct ticket {
    uint64_t offset, lease_offset, bytes;
} ticket;
_Static_assert(sizeof(ticket) <= sizeof(((symmem_share *)NULL)->bytes), "it fits");

static ticket ticket_of(const symmem_share *share) {
    ticket read;
    memcpy(&read, share->bytes, sizeof read);
    return read;
}

/* --- the owner's side ----------------------------------------------------------------------- */

static void free_lease(sm_lease *lease) {
    free(lease->global_ranks);
    free(lease->identities);
    free(lease);
}

/* With all that it needs later, when it is too late to fail. */
static sm_lease *new_lease(int32_t world_size) {
    const size_t count = (size_t)world_size;
    sm_lease *lease = calloc(1, sizeof *lease);
    if (!lease)
        return NULL;
    lease->world_size = world_size;
    lease->global_ranks = calloc(count, sizeof *lease->global_ranks);
    lease->identities = calloc(count, sizeof *lease->identities);
    if (lease->global_ranks && lease->identities)
        return lease;
    free_lease(lease);
    return NULL;
}

symmem_status sm_lease_make(sm_heap *heap, sm_piece *piece, int32_t world_size,
                            symmem_share *share) {
    sm_lease *lease = new_lease(world_size);
    if (!lease)
        return sm_context_fail(heap->context, SYMMEM_OUT_OF_MEMORY, "rendezvous", "",
                               "no memory for a lease to %d ranks", world_size);
    (void)pthread_mutex_lock(&heap->lock);
    symmem_status status = sm_piece_cut(heap, (size_t)world_size * sizeof(uint32_t), &lease->words);
    if (status == SYMMEM_OK) {
        lease->piece = piece;
        piece->leases++;
        sm_list_add(&heap->leases, &lease->node);
        heap->lease_count++;
    }
    (void)pthread_mutex_unlock(&heap->lock);
    if (status != SYMMEM_OK) {
        free_lease(lease);
        return status;
    }
    const ticket told = {piece->offset, lease->words->offset, piece->bytes};
    memcpy(share->bytes, &told, sizeof told);
    share->kind = SYMMEM_SHARE_BYTES;
    share->mapped_bytes = piece->bytes;
    status = sm_piece_zero(heap, lease->words);
    if (status != SYMMEM_OK)
        sm_lease_unless_armed(heap, share);
    return status;
}

/* One that is under way. heap->lock held. */
static sm_lease *find_lease(const sm_heap *heap, const symmem_share *share) {
    const ticket told = ticket_of(share);
    for (sm_node *node = heap->leases.previous; node != &heap->leases; node = node->previous) {
        sm_lease *lease = SM_CONTAINER(node, sm_lease, node);
        if (lease->words->offset == told.lease_offset)
            return lease;
    }
    return NULL;
}

/* heap->lock held. */
static void end_lease(sm_heap *heap, sm_lease *lease) {
    sm_list_remove(&lease->node);
    heap->lease_count--;
    sm_piece_release(heap, lease->words);
    sm_piece_returned(heap, lease->piece);
    free_lease(lease);
}

void sm_lease_arm(sm_heap *heap, const symmem_share *share, const sm_holders *holders) {
    (void)pthread_mutex_lock(&heap->lock);
    sm_lease *lease = find_lease(heap, share);
    if (lease) {
        const size_t count = (size_t)lease->world_size;
        sm_list_remove(&lease->node);
        sm_list_add(&heap->armed, &lease->node);
        lease->rank = holders->rank;
        memcpy(lease->global_ranks, holders->global_ranks, count * sizeof *lease->global_ranks);
        memcpy(lease->identities, holders->identities, count * sizeof *lease->identities);
    }
    (void)pthread_mutex_unlock(&heap->lock);
}

void sm_lease_unless_armed(sm_heap *heap, const symmem_share *share) {
    (void)pthread_mutex_lock(&heap->lock);
    sm_lease *lease = find_lease(heap, share);
    if (lease)
        end_lease(heap, lease);
    (void)pthread_mutex_unlock(&heap->lock);
}

/* What the peers have written so far. */
static bool read_words(const sm_heap *heap, const sm_lease *lease, uint32_t *words) {
    const symmem_context *context = heap->context;
    char *from = (char *)heap->memory.ptr + lease->words->offset;
    const symmem_exec exec = {0};
    if ((context->backend->capabilities & SYMMEM_CAP_HOST_ACCESS) == 0)
        return context->backend->copy(
                   context->instance, heap->memory.device < 0 ? 0 : heap->memory.device, words,
                   from, (size_t)lease->world_size * sizeof *words, &exec) == SYMMEM_OK;
    for (int32_t r = 0; r < lease->world_size; r++)
        /* acquire; pairs with: the peer's word, behind its last use of the memory */
        words[r] = atomic_load_explicit((_Atomic uint32_t *)(void *)from + r, memory_order_acquire);
    return true;
}

/* Whether no peer can write any more. */
static bool is_over(const sm_heap *heap, const sm_lease *lease, bool dead) {
    uint32_t words[SYMMEM_MAX_WORLD_SIZE];
    const symmem_context *context = heap->context;
    if (!read_words(heap, lease, words))
        return false;
    for (int32_t r = 0; r < lease->world_size; r++) {
        if (r == lease->rank || words[r] != 0)
            continue;
        if (!dead || !context->liveness ||
            sm_liveness_ask_of(context->liveness, lease->global_ranks[r], &lease->identities[r]) !=
                SYMMEM_PEER_GONE)
            return false;
    }
    return true;
}

/* Moves all of `from` to the end of `to`. */
static void move_leases(sm_node *from, sm_node *to) {
    while (!sm_list_empty(from)) {
        sm_node *node = from->next;
        sm_list_remove(node);
        sm_list_add(to, node);
    }
}

/* Sorts leases that only the caller has. No lock of the heap's is held but sweep_lock: a copy gives
 * memory back, as any entry may. */
static void sort_leases(const sm_heap *heap, sm_node *armed, sm_node *over, bool dead) {
    for (sm_node *node = armed->next, *next; node != armed; node = next) {
        next = node->next;
        if (!is_over(heap, SM_CONTAINER(node, sm_lease, node), dead))
            continue;
        sm_list_remove(node);
        sm_list_add(over, node);
    }
}

void sm_leases_sweep(sm_heap *heap, bool dead) {
    const symmem_context *context = heap->context;
    sm_node armed, over;
    sm_list_init(&armed);
    sm_list_init(&over);
    (void)pthread_mutex_unlock(&heap->lock);
    (void)pthread_mutex_lock(&heap->sweep_lock);
    /* An engine that completes what it has queued gives memory back here. */
    if (context->backend->reach_progress)
        context->backend->reach_progress(context->instance);
    (void)pthread_mutex_lock(&heap->lock);
    move_leases(&heap->armed, &armed);
    (void)pthread_mutex_unlock(&heap->lock);
    sort_leases(heap, &armed, &over, dead);
    (void)pthread_mutex_lock(&heap->lock);
    move_leases(&armed, &heap->armed);
    while (!sm_list_empty(&over))
        end_lease(heap, SM_CONTAINER(over.next, sm_lease, node));
    heap->sweep_at = heap->lease_count < FEW ? 0 : 2 * heap->lease_count;
    (void)pthread_mutex_unlock(&heap->sweep_lock);
}

void sm_leases_free(sm_heap *heap) {
    move_leases(&heap->armed, &heap->leases);
    while (!sm_list_empty(&heap->leases)) {
        sm_lease *lease = SM_CONTAINER(heap->leases.next, sm_lease, node);
        sm_list_remove(&lease->node);
        free_lease(lease);
    }
}

/* --- the peer's side ------------------------------------------------------------------------ */

symmem_status sm_view_make(const sm_heap *heap, const symmem_share *share, int32_t rank,
                           int32_t own, size_t bytes, sm_view **view_p) {
    const ticket told = ticket_of(share);
    const size_t limit = heap->bytes;
    if (told.bytes < bytes || told.offset > limit || told.bytes > limit - told.offset ||
        told.lease_offset > limit)
        return sm_context_fail(heap->context, SYMMEM_CORRUPT, "rendezvous", "memory_map",
                               "what rank %d shares does not lie in its heap", rank);
    sm_view *view = calloc(1, sizeof *view);
    if (!view)
        return sm_context_fail(heap->context, SYMMEM_OUT_OF_MEMORY, "rendezvous", "memory_map",
                               "no memory for a view of rank %d", rank);
    view->rank = rank;
    view->offset = (size_t)told.offset;
    view->lease_offset = (size_t)told.lease_offset + (size_t)own * sizeof(uint32_t);
    *view_p = view;
    return SYMMEM_OK;
}

/* A failure is ignored: the owner then keeps the piece aside. */
static void tell(const sm_heap *heap, const sm_view *view) {
    const symmem_context *context = heap->context;
    const symmem_exec exec = {0};
    SM_ATTEMPT(telling);
    if (view->word) {
        (void)context->backend->write_value32(context->instance,
                                              heap->memory.device < 0 ? 0 : heap->memory.device,
                                              view->word, 1, &exec);
    } else {
        const symmem_place to = {.peer = -1, .rank = view->rank, .offset = view->lease_offset};
        (void)context->backend->reach_write_value32(context->instance, &to, 1, &exec);
    }
}

void sm_view_release(const sm_heap *heap, sm_view *view) {
    if (view->held)
        tell(heap, view);
    free(view);
}
