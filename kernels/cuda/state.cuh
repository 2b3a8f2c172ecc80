// SPDX-License-Identifier: BSD-3-Clause
// Words of an operation's state (symmem_cuda_state). What copies and what multiplies are kernels of
// two streams and of one operation, so one may fail while another one looks.
#ifndef SYMMEM_CUDA_STATE_CUH
#define SYMMEM_CUDA_STATE_CUH

#include <cstdint>

namespace {

#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has others for the CPU
__device__ inline uint64_t load_state(const uint64_t *word) {
    uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

__device__ inline void store_state(uint64_t *word, uint64_t value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}
#endif

// All threads call, once in a kernel; one answer for the block. NULL: there is nothing that can
// fail.
__device__ inline bool is_unbroken(const uint64_t *failed) {
    __shared__ bool unbroken;
    if (threadIdx.x == 0)
        unbroken = failed == nullptr || load_state(failed) == 0;
    __syncthreads();
    return unbroken;
}

} // namespace

#endif
