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
    { #name, run_kernel < const args, name>, sizeof(args), SYMMEM_CUDA_NEAR_THREADS, nullptr }

static const fake_kernel kernels[] = {
    KERNEL(symmem_barrier, symmem_cuda_signal_args),
    NEAR_KERNEL(symmem_near_barrier, symmem_cuda_near_args),
    KERNEL(symmem_put_signal, symmem_cuda_signal_args),
    KERNEL(symmem_wait_signal, symmem_cuda_signal_args),
    KERNEL(symmem_show_words, symmem_cuda_show_args),
    KERNEL(symmem_move_part, symmem_cuda_part_args),
    KERNEL(symmem_multicast_store, symmem_multimem_store_args),
    KERNEL(symmem_multicast_reduce, symmem_multimem_reduce_args),
    KERNEL(symmem_collective_bytes, symmem_cuda_collective_args),
    KERNEL(symmem_collective_u8, symmem_cuda_collective_args),
    KERNEL(symmem_collective_i8, symmem_cuda_collective_args),
    KERNEL(symmem_collective_i16, symmem_cuda_collective_args),
    KERNEL(symmem_collective_u16, symmem_cuda_collective_args),
    KERNEL(symmem_collective_i32, symmem_cuda_collective_args),
    KERNEL(symmem_collective_u32, symmem_cuda_collective_args),
    KERNEL(symmem_collective_i64, symmem_cuda_collective_args),
    KERNEL(symmem_collective_u64, symmem_cuda_collective_args),
    KERNEL(symmem_collective_f16, symmem_cuda_collective_args),
    KERNEL(symmem_collective_bf16, symmem_cuda_collective_args),
    KERNEL(symmem_collective_f32, symmem_cuda_collective_args),
    KERNEL(symmem_collective_f64, symmem_cuda_collective_args),
    KERNEL(symmem_plain_lines_of_two_f16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_of_two_bf16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_of_two_f32, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_of_four_f16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_of_four_bf16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_of_four_f32, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_of_eight_f16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_of_eight_bf16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_of_eight_f32, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_of_two_f16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_of_two_bf16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_of_two_f32, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_of_four_f16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_of_four_bf16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_of_four_f32, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_of_eight_f16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_of_eight_bf16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_of_eight_f32, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_dealt_f16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_dealt_bf16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_dealt_f32, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_dealt_f16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_dealt_bf16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_short_dealt_f32, symmem_cuda_lines_args),
    KERNEL(symmem_plain_chunks_f16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_chunks_bf16, symmem_cuda_lines_args),
    KERNEL(symmem_plain_chunks_f32, symmem_cuda_lines_args),
    KERNEL(symmem_plain_lines_moves, symmem_cuda_moves_args),
    KERNEL(symmem_plain_lines_short_moves, symmem_cuda_moves_args),
    KERNEL(symmem_plain_chunks_moves, symmem_cuda_moves_args),
    NEAR_KERNEL(symmem_plain_blocks_of_two_f16, symmem_cuda_plain_args),
    NEAR_KERNEL(symmem_plain_blocks_of_two_bf16, symmem_cuda_plain_args),
    NEAR_KERNEL(symmem_plain_blocks_of_two_f32, symmem_cuda_plain_args),
    NEAR_KERNEL(symmem_plain_blocks_f16, symmem_cuda_plain_args),
    NEAR_KERNEL(symmem_plain_blocks_bf16, symmem_cuda_plain_args),
    NEAR_KERNEL(symmem_plain_blocks_f32, symmem_cuda_plain_args),
    NEAR_KERNEL(symmem_plain_wide_f16, symmem_cuda_plain_args),
    NEAR_KERNEL(symmem_plain_wide_bf16, symmem_cuda_plain_args),
    NEAR_KERNEL(symmem_plain_wide_f32, symmem_cuda_plain_args),
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
    KERNEL(symmem_local_u8, symmem_cuda_local_reduce),
    KERNEL(symmem_local_i8, symmem_cuda_local_reduce),
    KERNEL(symmem_local_i16, symmem_cuda_local_reduce),
    KERNEL(symmem_local_u16, symmem_cuda_local_reduce),
    KERNEL(symmem_local_i32, symmem_cuda_local_reduce),
    KERNEL(symmem_local_u32, symmem_cuda_local_reduce),
    KERNEL(symmem_local_i64, symmem_cuda_local_reduce),
    KERNEL(symmem_local_u64, symmem_cuda_local_reduce),
    KERNEL(symmem_local_f16, symmem_cuda_local_reduce),
    KERNEL(symmem_local_bf16, symmem_cuda_local_reduce),
    KERNEL(symmem_local_f32, symmem_cuda_local_reduce),
    KERNEL(symmem_local_f64, symmem_cuda_local_reduce),
};

const fake_kernel *fake_find_kernel(const char *name) {
    for (const fake_kernel &kernel : kernels)
        if (strcmp(kernel.name, name) == 0)
            return &kernel;
    return nullptr;
}
