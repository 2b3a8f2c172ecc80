/* SPDX-License-Identifier: BSD-3-Clause */
/* The reduction of a piece of all ranks' buffers, executed by one thread of many: `lane` of
 * `lanes`. CUDA C++, and C++ for the unit test. */
#ifndef SYMMEM_KERNELS_CUDA_TILE_LOOP_H
#define SYMMEM_KERNELS_CUDA_TILE_LOOP_H

#include "cuda/reduce_loop.h"
#include "cuda/tile.h"

SYMMEM_CUDA_BOTH symmem_cuda_job symmem_cuda_tile_job(const symmem_cuda_tile &tile) {
    symmem_cuda_job job;
    memset(&job, 0, sizeof job);
    job.op = tile.op;
    job.world_size = tile.ranks;
    job.element = static_cast<size_t>(tile.element);
    job.out = tile.dst;
    job.buffers = tile.ranks <= SYMMEM_CUDA_SMALL_RANKS ? tile.small_buffers : tile.buffers;
    return job;
}

/* Rows are dealt out to groups of lanes, of which there is a whole number. A row is reduced as a
 * collective's step is. */
template <typename Element>
SYMMEM_CUDA_CALLED void symmem_cuda_run_tile(const symmem_cuda_tile &tile, size_t lane,
                                             size_t lanes) {
    const symmem_cuda_job job = symmem_cuda_tile_job(tile);
    const bool together = tile.row_lanes == 0 || tile.row_lanes > lanes;
    const size_t group = together ? lanes : tile.row_lanes;
    symmem_cuda_step step;
    memset(&step, 0, sizeof step);
    step.kind = SYMMEM_CUDA_REDUCE;
    step.to = SYMMEM_CUDA_TO_OUT;
    step.count = step.row = step.row_step = tile.row;
    for (uint64_t row = lane / group; row < tile.rows; row += lanes / group) {
        step.offset = tile.offset + row * tile.src_row_bytes;
        step.at = row * tile.dst_row_bytes;
        symmem_cuda_run_reduce<Element>(job, step, lane % group, group);
    }
}

#endif
