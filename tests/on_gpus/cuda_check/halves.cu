// SPDX-License-Identifier: BSD-3-Clause
// The device's instructions for 16-bit floats against what those mean: every value either way.
#include "check.cuh"

#include "cuda/reduce_element.h"

static __device__ bool is_nan(float value) {
    return value != value;
}

static __global__ void from_halves(unsigned long long *wrong) {
    const uint16_t half = static_cast<uint16_t>(blockIdx.x * blockDim.x + threadIdx.x);
    const float plain = symmem_cuda_from_half_plain(half), quick = symmem_cuda_from_half(half);
    if (is_nan(plain) ? !is_nan(quick) : symmem_cuda_bits(plain) != symmem_cuda_bits(quick))
        atomicAdd(wrong, 1ull);
}

static __global__ void to_halves(unsigned long long *wrong) {
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    unsigned long long found = 0;
    for (uint64_t bits = blockIdx.x * blockDim.x + threadIdx.x; bits < 1ull << 32; bits += step) {
        const float value = symmem_cuda_float(static_cast<uint32_t>(bits));
        found += symmem_cuda_to_half_plain(value) != symmem_cuda_to_half(value);
    }
    if (found != 0)
        atomicAdd(wrong, found);
}

// Two numbers at once, each in either place; the other one is another number.
static __global__ void to_pairs(unsigned long long *wrong) {
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    unsigned long long found = 0;
    for (uint64_t bits = blockIdx.x * blockDim.x + threadIdx.x; bits < 1ull << 32; bits += step) {
        const float value = symmem_cuda_float(static_cast<uint32_t>(bits));
        const float other = symmem_cuda_float(static_cast<uint32_t>(bits) * 2654435761u);
        if (!symmem_cuda_are_numbers(value, other)) {
            found += !is_nan(value) && !is_nan(other);
            continue;
        }
        found += symmem_cuda_numbers_to_bfloats(value, other) !=
                 (symmem_cuda_to_bfloat(value) | static_cast<uint32_t>(symmem_cuda_to_bfloat(other))
                                                     << 16);
        found += symmem_cuda_numbers_to_halves(value, other) !=
                 (symmem_cuda_to_half_plain(value) |
                  static_cast<uint32_t>(symmem_cuda_to_half_plain(other)) << 16);
    }
    if (found != 0)
        atomicAdd(wrong, found);
}

void check_halves(check &c) {
    unsigned long long *wrong = nullptr, found[3] = {1, 1, 1};
    if (c.rank != 0)
        return;
    need(c, "counters",
         cudaMalloc(&wrong, sizeof found) == cudaSuccess &&
             cudaMemset(wrong, 0, sizeof found) == cudaSuccess);
    from_halves<<<256, 256, 0, c.stream>>>(wrong);
    to_halves<<<1024, 256, 0, c.stream>>>(wrong + 1);
    to_pairs<<<1024, 256, 0, c.stream>>>(wrong + 2);
    need(c, "kernels",
         cudaStreamSynchronize(c.stream) == cudaSuccess &&
             cudaMemcpy(found, wrong, sizeof found, cudaMemcpyDeviceToHost) == cudaSuccess);
    expect(c, "from float16", found[0] == 0, "%llu of 65536 differ", found[0]);
    expect(c, "to float16", found[1] == 0, "%llu of 2^32 differ", found[1]);
    expect(c, "pairs to 16 bits", found[2] == 0, "%llu of 2^32 differ", found[2]);
    (void)cudaFree(wrong);
}
