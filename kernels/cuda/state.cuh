// SPDX-License-Identifier: BSD-3-Clause
// The words of an operation's state (symmem_cuda_state). The kernels that copy and those that
// multiply run on two streams of one operation. So one may fail while another one reads the state.
#ifndef SYMMEM_CUDA_STATE_CUH
#define SYMMEM_CUDA_STATE_CUH

#include <cstdint>

namespace {

#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has a CPU version
__device__ inline uint64_t load_state(const uint64_t *word) {
    uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

__device__ inline void store_state(uint64_t *word, uint64_t value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}
#endif

// All threads call, once in a kernel, and the block gets one answer. NULL: nothing can have failed.
__device__ inline bool is_unbroken(const uint64_t *failed) {
    __shared__ bool unbroken;
    if (threadIdx.x == 0)
        unbroken = failed == nullptr || load_state(failed) == 0;
    __syncthreads();
    return unbroken;
}

} // namespace

#endif
