// SPDX-License-Identifier: BSD-3-Clause
// The kernels' own source, in blocks of one thread, which does all that blocks and threads share
// out. Several may run at once.
#define CUDA_ON_HOST_ALONE
#include "cuda_on_host.h"

#include "multimem_on_host.h"

#include "cuda/collective.cu"
#include "cuda/multimem.cu"

#include <cstring>

#include "kernels.h"

template <typename Args, void (*KERNEL)(Args)> static void run_kernel(const void *args) {
    gridDim.x = blockDim.x = 1;
    KERNEL(*static_cast<const Args *>(args));
}

#define KERNEL(name, args)                                                                         \
    { #name, run_kernel < const args, name>, sizeof(args), 1, nullptr }

#define NEAR_KERNEL(name, args)                                                                    \
    {                                                                                              \
#name, run_kernel < const args, name>, sizeof(args), SYMMEM_CUDA_SMALL_BARRIER_THREADS,    \
            nullptr                                                                                \
    }

// One for each of the types that it is made for.
#define OF_FLOATS(kernel, name, args)                                                              \
    kernel(name##_f16, args), kernel(name##_bf16, args), kernel(name##_f32, args)
#define OF_ALL(kernel, name, args)                                                                 \
    kernel(name##_u8, args), kernel(name##_i8, args), kernel(name##_i16, args),                    \
        kernel(name##_u16, args), kernel(name##_i32, args), kernel(name##_u32, args),              \
        kernel(name##_i64, args), kernel(name##_u64, args), OF_FLOATS(kernel, name, args),         \
        kernel(name##_f64, args)

static const fake_kernel kernels[] = {
    KERNEL(symmem_barrier, symmem_cuda_signal_args),
    NEAR_KERNEL(symmem_small_barrier, symmem_cuda_small_barrier_args),
    KERNEL(symmem_put_signal, symmem_cuda_signal_args),
    KERNEL(symmem_wait_signal, symmem_cuda_signal_args),
    KERNEL(symmem_wait_value, symmem_cuda_value_args),
    KERNEL(symmem_signal_count, symmem_cuda_counts_args),
    KERNEL(symmem_wait_counts, symmem_cuda_counts_args),
    KERNEL(symmem_store_words, symmem_cuda_store_words_args),
    KERNEL(symmem_composite_move, symmem_cuda_composite_args),
    KERNEL(symmem_all_to_all_v, symmem_cuda_splits_args),
    KERNEL(symmem_multicast_store, symmem_multimem_store_args),
    KERNEL(symmem_multicast_reduce, symmem_multimem_reduce_args),
    KERNEL(symmem_collective_bytes, symmem_cuda_collective_args),
    OF_ALL(KERNEL, symmem_collective, symmem_cuda_collective_args),
    OF_FLOATS(KERNEL, symmem_fast_ll_of_two, symmem_cuda_ll_args),
    OF_FLOATS(KERNEL, symmem_fast_ll_of_four, symmem_cuda_ll_args),
    OF_FLOATS(KERNEL, symmem_fast_ll_of_eight, symmem_cuda_ll_args),
    OF_FLOATS(KERNEL, symmem_fast_ll_short_of_two, symmem_cuda_ll_args),
    OF_FLOATS(KERNEL, symmem_fast_ll_short_of_four, symmem_cuda_ll_args),
    OF_FLOATS(KERNEL, symmem_fast_ll_short_of_eight, symmem_cuda_ll_args),
    OF_FLOATS(KERNEL, symmem_fast_ll_scatter, symmem_cuda_ll_args),
    OF_FLOATS(KERNEL, symmem_fast_ll_short_scatter, symmem_cuda_ll_args),
    OF_FLOATS(KERNEL, symmem_fast_chunks, symmem_cuda_ll_args),
    KERNEL(symmem_fast_ll_moves, symmem_cuda_moves_args),
    KERNEL(symmem_fast_ll_short_moves, symmem_cuda_moves_args),
    KERNEL(symmem_fast_chunks_moves, symmem_cuda_moves_args),
    OF_FLOATS(NEAR_KERNEL, symmem_fast_blocks_of_two, symmem_cuda_fast_args),
    OF_FLOATS(NEAR_KERNEL, symmem_fast_blocks, symmem_cuda_fast_args),
    OF_FLOATS(NEAR_KERNEL, symmem_fast_wide, symmem_cuda_fast_args),
    KERNEL(symmem_await_chunk, symmem_cuda_await),
    KERNEL(symmem_product_f32, symmem_cuda_product),
    KERNEL(symmem_product_f64, symmem_cuda_product),
    KERNEL(symmem_product_f16, symmem_cuda_product),
    KERNEL(symmem_product_bf16, symmem_cuda_product),
    KERNEL(symmem_product_i8, symmem_cuda_product),
    KERNEL(symmem_product_u8, symmem_cuda_product),
    KERNEL(symmem_finish_f32, symmem_cuda_product),
    KERNEL(symmem_finish_f64, symmem_cuda_product),
    KERNEL(symmem_copy_strided, symmem_cuda_strided),
    OF_ALL(KERNEL, symmem_local, symmem_cuda_local_reduce),
    OF_ALL(KERNEL, symmem_tile, symmem_cuda_tile),
};

const fake_kernel *fake_find_kernel(const char *name) {
    for (const fake_kernel &kernel : kernels)
        if (strcmp(kernel.name, name) == 0)
            return &kernel;
    return nullptr;
}
