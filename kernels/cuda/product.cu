// SPDX-License-Identifier: BSD-3-Clause
// What the fused operations need on one device: products, strided copies and reductions of its own
// memory, and waits for chunks of a product's input. product_loop.h defines the computations.
// collective.cu includes this file, so that there is one image.
#include "cuda/product.h"
#include "cuda/product_loop.h"

namespace {

// Waits until the chunk's word is set, with acquire. Returns a failure if the host or the clock
// ends the wait.
__device__ uint32_t await_chunk(const symmem_cuda_await &args, uint64_t start_ns) {
    for (;;) {
        for (int i = 0; i < LOOKS_BETWEEN_CHECKS; i++)
            if (load_acquire(args.word) != 0)
                return OK;
        uint32_t code = OK;
        if (load_volatile(&args.fault->missing[0]) != 0)
            code = NOT_INITIALIZED;
        else if (is_late(start_ns, args.timeout_ms))
            code = TIMEOUT;
        if (code != OK) // once more, because the clock may have advanced between two polls
            return load_acquire(args.word) != 0 ? static_cast<uint32_t>(OK) : code;
    }
}

} // namespace

// Called by one thread.
extern "C" __global__ void symmem_await_chunk(const __grid_constant__ symmem_cuda_await args) {
    if (threadIdx.x != 0)
        return;
    symmem_cuda_state *state = args.state;
    if (args.first) {
        store_state(&state->start_ns, now_ns());
        store_state(&state->failed, 0);
    }
    if (load_state(&state->failed) != 0)
        return;
    const uint32_t code = await_chunk(args, load_state(&state->start_ns));
    __threadfence_system();
    if (code == OK)
        return;
    store_state(&state->failed, 1);
    // If a graph was launched again before the host looked, the first failure stays.
    if (load_volatile(&args.fault->code) != OK)
        return;
    args.fault->actual = static_cast<uint64_t>(args.chunk);
    args.fault->elapsed_ns = elapsed_since(load_state(&state->start_ns));
    __threadfence_system();
    *static_cast<volatile uint32_t *>(&args.fault->code) = code;
    __threadfence_system();
}

#define KERNEL(name, type, ...)                                                                    \
    extern "C" __global__ void __launch_bounds__(SYMMEM_CUDA_PRODUCT_THREADS)                      \
        symmem_##name(const __grid_constant__ type args) {                                         \
        if (is_unbroken(args.failed))                                                              \
            __VA_ARGS__(args, own_lane(), all_lanes());                                            \
    }

KERNEL(product_f32, symmem_cuda_product, symmem_cuda_run_product<symmem_cuda_f32, float>)
KERNEL(product_f64, symmem_cuda_product, symmem_cuda_run_product<symmem_cuda_f64, double>)
KERNEL(product_f16, symmem_cuda_product, symmem_cuda_run_product<symmem_cuda_f16, float>)
KERNEL(product_bf16, symmem_cuda_product, symmem_cuda_run_product<symmem_cuda_bf16, float>)
KERNEL(product_i8, symmem_cuda_product, symmem_cuda_run_product<symmem_cuda_signed<int8_t>, float>)
KERNEL(product_u8, symmem_cuda_product,
       symmem_cuda_run_product<symmem_cuda_unsigned<uint8_t>, float>)
KERNEL(finish_f32, symmem_cuda_product, symmem_cuda_run_finish<float>)
KERNEL(finish_f64, symmem_cuda_product, symmem_cuda_run_finish<double>)
KERNEL(copy_strided, symmem_cuda_strided, symmem_cuda_run_strided)

#define REDUCE(name, ...)                                                                          \
    KERNEL(local_##name, symmem_cuda_local_reduce, symmem_cuda_run_local_reduce<__VA_ARGS__>)

REDUCE(u8, symmem_cuda_unsigned<uint8_t>)
REDUCE(i8, symmem_cuda_signed<int8_t>)
REDUCE(i16, symmem_cuda_signed<int16_t>)
REDUCE(u16, symmem_cuda_unsigned<uint16_t>)
REDUCE(i32, symmem_cuda_signed<int32_t>)
REDUCE(u32, symmem_cuda_unsigned<uint32_t>)
REDUCE(i64, symmem_cuda_signed<int64_t>)
REDUCE(u64, symmem_cuda_unsigned<uint64_t>)
REDUCE(f16, symmem_cuda_f16)
REDUCE(bf16, symmem_cuda_bf16)
REDUCE(f32, symmem_cuda_f32)
REDUCE(f64, symmem_cuda_f64)

#undef REDUCE
#undef KERNEL
