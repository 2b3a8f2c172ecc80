// SPDX-License-Identifier: BSD-3-Clause
// The kernels, compiled for the CPU with warps as the device's.
#define CUDA_ON_HOST_WARPS
#include "cuda_on_host.h"

#include "cuda/collective.cu"

#include "cuda_warp_kernels.h"

template <typename Args, void (*KERNEL)(Args)> static void call(const void *args) {
    KERNEL(*static_cast<const Args *>(args));
}

static void (*const kernels[])(const void *args) = {
    call<const symmem_cuda_signal_args, symmem_barrier>,
    call<const symmem_cuda_small_barrier_args, symmem_small_barrier>,
    call<const symmem_cuda_collective_args, symmem_collective_f32>,
    call<const symmem_cuda_collective_args, symmem_collective_bytes>,
    call<const symmem_cuda_ll_args, symmem_fast_ll_of_two_f32>,
    call<const symmem_cuda_ll_args, symmem_fast_ll_of_four_f32>,
    call<const symmem_cuda_ll_args, symmem_fast_ll_of_eight_f32>,
    call<const symmem_cuda_ll_args, symmem_fast_ll_short_of_two_f32>,
    call<const symmem_cuda_ll_args, symmem_fast_ll_short_of_four_f32>,
    call<const symmem_cuda_ll_args, symmem_fast_ll_short_of_eight_f32>,
    call<const symmem_cuda_ll_args, symmem_fast_ll_scatter_f32>,
    call<const symmem_cuda_ll_args, symmem_fast_ll_short_scatter_f32>,
    call<const symmem_cuda_moves_args, symmem_fast_ll_moves>,
    call<const symmem_cuda_moves_args, symmem_fast_ll_short_moves>,
    call<const symmem_cuda_ll_args, symmem_fast_chunks_f32>,
    call<const symmem_cuda_moves_args, symmem_fast_chunks_moves>,
    call<const symmem_cuda_fast_args, symmem_fast_blocks_of_two_f32>,
    call<const symmem_cuda_fast_args, symmem_fast_blocks_f32>,
    call<const symmem_cuda_fast_args, symmem_fast_wide_f32>,
    call<const symmem_cuda_splits_args, symmem_all_to_all_v>,
};

void warp_launch(warp_kernel kernel, unsigned int blocks, unsigned int warps, const void *args) {
    host_run(blocks, warps, [&] { kernels[kernel](args); });
}

void warp_when_ready(void (*function)()) {
    host_ready = function;
}

void warp_trap(uint32_t *word, uint32_t look) {
    host_trap = word;
    host_looks_left = look;
}
