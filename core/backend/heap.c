/* SPDX-License-Identifier: BSD-3-Clause */
/* Cuts an engine's heap, and keeps pieces aside for as long as peers can write to them. */
#include "backend/heap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/lease.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "backend/registry.h"

/* --- the heap ------------------------------------------------------------------------------- */

static bool init_locks(sm_heap *heap) {
    if (pthread_mutex_init(&heap->lock, NULL) != 0)
        return false;
    if (pthread_mutex_init(&heap->sweep_lock, NULL) == 0)
        return true;
    (void)pthread_mutex_destroy(&heap->lock);
    return false;
}

symmem_status sm_heap_create(symmem_context *context, const symmem_memory *memory, size_t bytes) {
    sm_heap *heap = calloc(1, sizeof *heap);
    sm_piece *whole = calloc(1, sizeof *whole);
    if (!heap || !whole || !init_locks(heap)) {
        free(whole);
        free(heap);
        return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, "join", "heap",
                               "no memory for the description of a heap");
    }
    heap->context = context;
    heap->memory = *memory;
    heap->bytes = bytes;
    sm_list_init(&heap->pieces);
    sm_list_init(&heap->leases);
    sm_list_init(&heap->armed);
    whole->bytes = bytes;
    sm_list_add(&heap->pieces, &whole->node);
    sm_treap_add(&heap->gaps, &whole->gap, whole->bytes);
    /* release; pairs with: acquire in heap_of */
    atomic_store_explicit(&context->heap, heap, memory_order_release);
    return SYMMEM_OK;
}

static sm_heap *heap_of(const symmem_context *context) {
    /* acquire; pairs with: release in sm_heap_create */
    return atomic_load_explicit(&context->heap, memory_order_acquire);
}

size_t sm_heap_bytes(const symmem_context *context) {
    const sm_heap *heap = heap_of(context);
    return heap ? heap->bytes : 0;
}

bool sm_heap_progress(symmem_context *context) {
    /* acquire; pairs with: release in sm_context_use_backend */
    if (!atomic_load_explicit(&context->instance_open, memory_order_acquire) ||
        !context->backend->reach_progress)
        return false;
    SM_ATTEMPT(entering);
    if (sm_instance_enter(context, "progress") != SYMMEM_OK)
        return false;
    const bool joined = heap_of(context) != NULL;
    if (joined)
        context->backend->reach_progress(context->instance);
    sm_instance_release(context);
    return joined;
}

void sm_heap_destroy(symmem_context *context) {
    sm_heap *heap = heap_of(context);
    if (!heap)
        return;
    context->backend->world_close(context->instance, &heap->memory);
    sm_leases_free(heap);
    while (!sm_list_empty(&heap->pieces)) {
        sm_piece *piece = SM_CONTAINER(heap->pieces.next, sm_piece, node);
        sm_list_remove(&piece->node);
        free(piece);
    }
    (void)pthread_mutex_destroy(&heap->sweep_lock);
    (void)pthread_mutex_destroy(&heap->lock);
    free(heap);
    atomic_store_explicit(&context->heap, NULL, memory_order_relaxed);
}

/* --- pieces; heap->lock held ---------------------------------------------------------------- */

/* Cuts `bytes` off the front of a gap; false without memory for the rest's description. */
static bool cut(sm_heap *heap, sm_piece *piece, size_t bytes) {
    sm_piece *rest = piece->bytes == bytes ? NULL : calloc(1, sizeof *rest);
    if (piece->bytes != bytes && !rest)
        return false;
    sm_treap_remove(&heap->gaps, &piece->gap);
    piece->used = true;
    if (!rest)
        return true;
    rest->offset = piece->offset + bytes;
    rest->bytes = piece->bytes - bytes;
    piece->bytes = bytes;
    sm_list_add(piece->node.next, &rest->node); /* before the one that follows */
    sm_treap_add(&heap->gaps, &rest->gap, rest->bytes);
    return true;
}

static sm_piece *neighbor(const sm_heap *heap, sm_node *node) {
    sm_piece *piece = node == &heap->pieces ? NULL : SM_CONTAINER(node, sm_piece, node);
    return piece && !piece->used ? piece : NULL;
}

static void join_next(sm_heap *heap, sm_piece *left) {
    sm_piece *right = neighbor(heap, left->node.next);
    if (!right)
        return;
    left->bytes += right->bytes;
    sm_list_remove(&right->node);
    sm_treap_remove(&heap->gaps, &right->gap);
    free(right);
}

/* No rank uses it any more. */
static void give_back(sm_heap *heap, sm_piece *piece) {
    sm_piece *before = neighbor(heap, piece->node.previous);
    piece->used = piece->released = false;
    join_next(heap, piece);
    if (before) {
        sm_treap_remove(&heap->gaps, &before->gap);
        join_next(heap, before);
        piece = before;
    }
    sm_treap_add(&heap->gaps, &piece->gap, piece->bytes);
}

void sm_piece_release(sm_heap *heap, sm_piece *piece) {
    piece->released = true;
    if (piece->leases == 0)
        give_back(heap, piece);
}

void sm_piece_returned(sm_heap *heap, sm_piece *piece) {
    if (--piece->leases == 0 && piece->released)
        give_back(heap, piece);
}

/* The smallest gap that is large enough, after asking for what peers have given back if need be:
 * other threads may cut pieces and give them back meanwhile. */
static sm_piece *find_gap(sm_heap *heap, size_t bytes) {
    sm_treap_node *node = sm_treap_at_or_above(&heap->gaps, bytes);
    if (!node || heap->lease_count > heap->sweep_at) {
        sm_leases_sweep(heap, node == NULL);
        node = sm_treap_at_or_above(&heap->gaps, bytes);
    }
    return node ? SM_CONTAINER(node, sm_piece, gap) : NULL;
}

static symmem_status no_space(const sm_heap *heap, size_t bytes) {
    size_t largest = 0, kept = 0, kept_by = 0;
    for (const sm_node *node = heap->pieces.next; node != &heap->pieces; node = node->next) {
        const sm_piece *piece = SM_CONTAINER(node, sm_piece, node);
        if (!piece->used && piece->bytes > largest)
            largest = piece->bytes;
        if (piece->released) {
            kept += piece->bytes;
            kept_by++;
        }
    }
    (void)sm_context_fail(heap->context, SYMMEM_NO_SPACE, "alloc", "",
                          "%zu bytes asked for, the largest free piece of the heap of %zu bytes "
                          "has %zu; %zu pieces of %zu bytes are freed, but peers can reach them",
                          bytes, heap->bytes, largest, kept_by, kept);
    return sm_error_sizes(bytes, largest);
}

symmem_status sm_piece_cut(sm_heap *heap, size_t bytes, sm_piece **piece_p) {
    size_t rounded;
    if (!sm_round_up(bytes, SYMMEM_ALIGNMENT, &rounded))
        return no_space(heap, bytes);
    sm_piece *piece = find_gap(heap, rounded);
    if (!piece)
        return no_space(heap, bytes);
    if (!cut(heap, piece, rounded))
        return sm_context_fail(heap->context, SYMMEM_OUT_OF_MEMORY, "alloc", "",
                               "no memory for the description of a piece");
    *piece_p = piece;
    return SYMMEM_OK;
}

symmem_status sm_piece_zero(const sm_heap *heap, const sm_piece *piece) {
    const symmem_context *context = heap->context;
    const symmem_exec exec = {0};
    return context->backend->memset32(
        context->instance, heap->memory.device < 0 ? 0 : heap->memory.device,
        (char *)heap->memory.ptr + piece->offset, 0, piece->bytes / sizeof(uint32_t), &exec);
}

/* --- what the core asks for ----------------------------------------------------------------- */

static symmem_status not_joined(const symmem_context *context) {
    return sm_context_fail(context, SYMMEM_NOT_INITIALIZED, "alloc", "join",
                           "backend '%s' has its memory from an engine that starts on all ranks "
                           "together: symmem_join comes first",
                           context->backend->name);
}

/* From the heap. The lock is not held while the device zeroes. */
static symmem_status alloc_piece(sm_heap *heap, int32_t device, size_t bytes,
                                 symmem_memory *memory) {
    sm_piece *piece = NULL;
    if (heap->memory.device >= 0 && device != heap->memory.device)
        return sm_context_fail(heap->context, SYMMEM_INVALID_ARGUMENT, "alloc", "",
                               "memory of device %d, but the heap is of device %d", device,
                               heap->memory.device);
    (void)pthread_mutex_lock(&heap->lock);
    symmem_status status = sm_piece_cut(heap, bytes, &piece);
    (void)pthread_mutex_unlock(&heap->lock);
    if (status != SYMMEM_OK)
        return status;
    *memory = (symmem_memory){.ptr = (char *)heap->memory.ptr + piece->offset,
                              .bytes = bytes,
                              .device = device,
                              .priv = piece};
    status = sm_piece_zero(heap, piece);
    if (status != SYMMEM_OK) {
        sm_memory_release(heap->context, memory);
        *memory = (symmem_memory){0};
    }
    return status;
}

symmem_status sm_memory_alloc(symmem_context *context, int32_t device, size_t bytes,
                              symmem_memory *memory) {
    if (!context->backend->world_open)
        return context->backend->memory_alloc(context->instance, device, bytes, memory);
    sm_heap *heap = heap_of(context);
    return heap ? alloc_piece(heap, device, bytes, memory) : not_joined(context);
}

void sm_memory_release(symmem_context *context, symmem_memory *memory) {
    sm_heap *heap = heap_of(context);
    if (!heap) {
        context->backend->memory_release(context->instance, memory);
        return;
    }
    if (memory->imported) {
        sm_view_release(heap, memory->priv);
        return;
    }
    (void)pthread_mutex_lock(&heap->lock);
    sm_piece_release(heap, memory->priv);
    (void)pthread_mutex_unlock(&heap->lock);
}

symmem_status sm_memory_share(symmem_context *context, symmem_memory *memory, int32_t world_size,
                              symmem_share *share) {
    sm_heap *heap = heap_of(context);
    if (!heap)
        return context->backend->memory_share(context->instance, memory, share);
    return sm_lease_make(heap, memory->priv, world_size, share);
}

void sm_memory_unshare(symmem_context *context, symmem_share *share) {
    sm_heap *heap = heap_of(context);
    if (heap)
        sm_lease_unless_armed(heap, share);
    else
        context->backend->memory_unshare(context->instance, share);
}

symmem_status sm_memory_map(symmem_context *context, int32_t device, const symmem_share *share,
                            size_t bytes, int32_t rank, int32_t own, symmem_memory *memory) {
    sm_heap *heap = heap_of(context);
    if (!heap)
        return context->backend->memory_map(context->instance, device, share, bytes, memory);
    char *base = NULL;
    sm_view *view = NULL;
    symmem_status status = sm_view_make(heap, share, rank, own, bytes, &view);
    if (status != SYMMEM_OK)
        return status;
    if (context->backend->world_address)
        base = context->backend->world_address(context->instance, &heap->memory, rank);
    if (!base && !context->backend->reach_put) {
        free(view);
        return sm_context_fail(context, SYMMEM_UNREACHABLE, "rendezvous", "memory_map",
                               "the backend has neither an address nor a way to the heap of rank "
                               "%d",
                               rank);
    }
    view->word = base ? base + view->lease_offset : NULL;
    *memory = (symmem_memory){.ptr = base ? base + view->offset : NULL,
                              .bytes = bytes,
                              .device = device,
                              .imported = 1,
                              .priv = view};
    return SYMMEM_OK;
}

void sm_memory_lease(symmem_context *context, const symmem_share *share,
                     const sm_holders *holders) {
    sm_heap *heap = heap_of(context);
    if (heap && share->kind != SYMMEM_SHARE_NONE)
        sm_lease_arm(heap, share, holders);
}

void sm_memory_hold(const symmem_context *context, symmem_memory *memory) {
    if (heap_of(context) && memory->imported)
        ((sm_view *)memory->priv)->held = true;
}

size_t sm_memory_offset(const symmem_memory *memory) {
    if (!memory->priv)
        return 0;
    return memory->imported ? ((const sm_view *)memory->priv)->offset
                            : ((const sm_piece *)memory->priv)->offset;
}
