/* SPDX-License-Identifier: BSD-3-Clause */
/* Small pieces of pinned memory, cut from slabs that live as long as the instance. */
#include "cuda_internal.h"

#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES 65536

_Static_assert(sizeof(symmem_cuda_fault) <= CUDA_PIECE_BYTES, "a fault is one piece");
_Static_assert(sizeof(symmem_cuda_control) <= CUDA_PIECE_BYTES, "a control word is one piece");

CUresult cuda_slab_add(cuda_instance *instance, size_t bytes, void **pinned_p) {
    cuda_slab *slab = calloc(1, sizeof *slab);
    if (slab == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = instance->driver.MemHostAlloc(
        &slab->pinned, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result != CUDA_SUCCESS) {
        free(slab);
        return result;
    }
    slab->next = instance->slabs;
    instance->slabs = slab;
    *pinned_p = slab->pinned;
    return CUDA_SUCCESS;
}

/* lock held */
static CUresult add_pieces(cuda_instance *instance) {
    void *pinned;
    CUresult result = cuda_slab_add(instance, SLAB_BYTES, &pinned);
    if (result != CUDA_SUCCESS)
        return result;
    for (size_t at = 0; at < SLAB_BYTES; at += CUDA_PIECE_BYTES) {
        cuda_piece *piece = (cuda_piece *)(void *)((char *)pinned + at);
        piece->next = instance->pieces;
        instance->pieces = piece;
    }
    return CUDA_SUCCESS;
}

CUresult cuda_piece_take(cuda_instance *instance, void **piece_p) {
    pthread_mutex_lock(&instance->lock);
    CUresult result = instance->pieces != NULL ? CUDA_SUCCESS : add_pieces(instance);
    if (result == CUDA_SUCCESS) {
        cuda_piece *piece = instance->pieces;
        instance->pieces = piece->next;
        memset(piece, 0, CUDA_PIECE_BYTES);
        *piece_p = piece;
    }
    pthread_mutex_unlock(&instance->lock);
    return result;
}

void cuda_piece_give(cuda_instance *instance, void *opaque) {
    cuda_piece *piece = opaque;
    if (piece == NULL)
        return;
    pthread_mutex_lock(&instance->lock);
    piece->next = instance->pieces;
    instance->pieces = piece;
    pthread_mutex_unlock(&instance->lock);
}

void cuda_slabs_free(cuda_instance *instance) {
    while (instance->slabs != NULL) {
        cuda_slab *slab = instance->slabs;
        instance->slabs = slab->next;
        (void)instance->driver.MemFreeHost(slab->pinned);
        free(slab);
    }
}
