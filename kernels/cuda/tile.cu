// SPDX-License-Identifier: BSD-3-Clause
// Reductions of a piece of all ranks' buffers, which wait for no rank. tile_loop.h defines the
// computation. collective.cu includes this file, so that there is one image.
#include "cuda/tile.h"
#include "cuda/tile_loop.h"

#define TILE(name, ...)                                                                            \
    extern "C" __global__ void __launch_bounds__(SYMMEM_CUDA_PRODUCT_THREADS)                      \
        symmem_tile_##name(const __grid_constant__ symmem_cuda_tile args) {                        \
        if (is_unbroken(args.failed))                                                              \
            symmem_cuda_run_tile<__VA_ARGS__>(args, own_lane(), all_lanes());                      \
    }

TILE(u8, symmem_cuda_unsigned<uint8_t>)
TILE(i8, symmem_cuda_signed<int8_t>)
TILE(i16, symmem_cuda_signed<int16_t>)
TILE(u16, symmem_cuda_unsigned<uint16_t>)
TILE(i32, symmem_cuda_signed<int32_t>)
TILE(u32, symmem_cuda_unsigned<uint32_t>)
TILE(i64, symmem_cuda_signed<int64_t>)
TILE(u64, symmem_cuda_unsigned<uint64_t>)
TILE(f16, symmem_cuda_f16)
TILE(bf16, symmem_cuda_bf16)
TILE(f32, symmem_cuda_f32)
TILE(f64, symmem_cuda_f64)

#undef TILE
