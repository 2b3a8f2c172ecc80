/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/tile.h"
#include "cpu/float_mode.h"
#include "cpu/work.h"
#include "reference/reduce.h"

static void reduce_rows(const symmem_tile_reduction *tile, void *const *buffers, int32_t world_size,
                        symmem_cpu_reduce_fn reduce) {
    const size_t element = symmem_reference_element_bytes(tile->dtype, tile->op);
    const void *srcs[SYMMEM_MAX_WORLD_SIZE];
    void *dst = tile->dst;
    const symmem_cpu_reduce_args args = {
        .dsts = &dst,
        .dst_count = 1,
        .srcs = srcs,
        .src_count = world_size,
        .count = tile->row,
        .streaming = tile->row * element > SYMMEM_CPU_LARGE_BYTES,
    };
    for (size_t row = 0; row < tile->rows; row++) {
        const size_t at = tile->offset + row * tile->src_row * element;
        for (int32_t rank = 0; rank < world_size; rank++)
            srcs[rank] = (const char *)buffers[rank] + at;
        dst = (char *)tile->dst + row * tile->dst_row * element;
        reduce(&args);
    }
}

void symmem_cpu_reduce_tile(const symmem_tile_reduction *tile, void *const *buffers,
                            int32_t world_size, symmem_cpu_isa isa) {
    const uint64_t mode = symmem_cpu_float_begin();
    reduce_rows(tile, buffers, world_size, symmem_cpu_reduce_find(isa, tile->dtype, tile->op));
    symmem_cpu_float_end(mode);
}
