/* SPDX-License-Identifier: BSD-3-Clause */
/* What the host and the kernels of tile.cu share: the reduction of a piece of all ranks' buffers.
 * It compiles as C and as CUDA C++. */
#ifndef SYMMEM_KERNELS_CUDA_TILE_H
#define SYMMEM_KERNELS_CUDA_TILE_H

#include "cuda/collective.h"
#include "cuda/product.h"

typedef struct symmem_cuda_tile {
    const uint64_t *failed;                       /* as in product.h */
    void *const *buffers;                         /* the device's table */
    void *small_buffers[SYMMEM_CUDA_SMALL_RANKS]; /* the same, if there are few ranks */
    char *dst;
    uint64_t offset;        /* bytes, in the buffers */
    uint64_t rows, row;     /* elements of a row */
    uint64_t src_row_bytes; /* from row to row */
    uint64_t dst_row_bytes;
    int32_t ranks;
    int32_t op;
    int32_t element;    /* bytes */
    uint32_t row_lanes; /* threads that share a row, a power of two; 0: all, for one row */
} symmem_cuda_tile;

/* Returns the threads that share a row, so that each has about one unit of it. */
static inline uint32_t symmem_cuda_row_lanes(uint64_t rows, uint64_t row_bytes) {
    uint32_t lanes = 1;
    if (rows == 1)
        return 0;
    while (lanes < SYMMEM_CUDA_PRODUCT_THREADS && lanes * 16u < row_bytes)
        lanes *= 2;
    return lanes;
}

#endif
