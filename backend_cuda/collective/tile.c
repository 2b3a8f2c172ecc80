/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of a piece of all ranks' buffers: one kernel, which waits for no rank. */
#include <string.h>

#include "cuda/tile.h"
#include "collective/collective.h"
#include "collective/tile.h"
#include "collective/work.h"
#include "driver/error.h"
#include "signal/signal.h"

typedef struct tile_work {
    cuda_work work; /* first, because enqueue gets it */
    symmem_cuda_tile args;
    symmem_dtype dtype;
} tile_work;

static symmem_status enqueue_tile(cuda_instance *instance, cuda_work *work, CUstream native) {
    tile_work *tile = (tile_work *)work;
    symmem_cuda_tile *args = &tile->args;
    const uint64_t row_units = (args->row * (uint64_t)args->element + 15) / 16;
    args->failed = work->failed;
    return cuda_work_launch(
        instance, work, instance->devices[work->device].kernels.tile[tile->dtype],
        args->row_lanes == 0 ? row_units : args->rows * args->row_lanes, args, native);
}

symmem_status cuda_reduce_tile(void *opaque, const symmem_peers *peers,
                               const symmem_tile_reduction *tile, const symmem_exec *exec) {
    const cuda_peers *own = peers->priv;
    const size_t element = cuda_element_bytes(tile->dtype);
    tile_work work = {
        .work = {.operation = exec->operation != NULL ? exec->operation : "reduce_tile",
                 .enqueue = enqueue_tile,
                 .device = peers->device},
        .args = {.buffers = (void *const *)(uintptr_t)own->tables,
                 .dst = tile->dst,
                 .offset = tile->offset,
                 .rows = tile->rows,
                 .row = tile->row,
                 .src_row_bytes = tile->src_row * element,
                 .dst_row_bytes = tile->dst_row * element,
                 .ranks = peers->world_size,
                 .op = (int32_t)tile->op,
                 .element = (int32_t)element,
                 .row_lanes = symmem_cuda_row_lanes(tile->rows, tile->row * element)},
        .dtype = tile->dtype,
    };
    if (peers->world_size <= SYMMEM_CUDA_SMALL_RANKS)
        memcpy(work.args.small_buffers, peers->buffers, sizeof(void *) * (size_t)peers->world_size);
    symmem_status status = cuda_failpoint(opaque, "cuda.reduce_tile");
    return status == SYMMEM_OK ? cuda_work_run(opaque, &work.work, exec) : status;
}
