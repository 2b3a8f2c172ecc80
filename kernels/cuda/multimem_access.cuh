// SPDX-License-Identifier: BSD-3-Clause
// The instructions for a multicast address, one function each. No other code may access such an
// address. From sm_90 on. Relaxed and system-wide: the barriers before and after order them.
#ifndef SYMMEM_KERNELS_CUDA_MULTIMEM_ACCESS_CUH
#define SYMMEM_KERNELS_CUDA_MULTIMEM_ACCESS_CUH

#include "cuda/multimem.h"

namespace multimem {

struct alignas(SYMMEM_MULTIMEM_LINE) line {
    uint32_t words[SYMMEM_MULTIMEM_LINE / 4];
};

// Accesses through the multicast address and through the unicast address of the same memory are
// ordered only by this.
__device__ inline void fence() {
    asm volatile("fence.proxy.alias;" ::: "memory");
}

__device__ inline void store_word(char *at, uint32_t value) {
    asm volatile("multimem.st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

__device__ inline void store_line(char *at, const line &value) {
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at),
                 "f"(__uint_as_float(value.words[0])), "f"(__uint_as_float(value.words[1])),
                 "f"(__uint_as_float(value.words[2])), "f"(__uint_as_float(value.words[3]))
                 : "memory");
}

#define LOAD(name, instruction, result, type)                                                      \
    __device__ inline type name(const char *at) {                                                  \
        type value;                                                                                \
        asm volatile("multimem.ld_reduce.relaxed.sys.global." instruction " %0, [%1];"             \
                     : result(value)                                                               \
                     : "l"(at)                                                                     \
                     : "memory");                                                                  \
        return value;                                                                              \
    }

LOAD(add_f16, "add.acc::f32.f16x2", "=r", uint32_t)
LOAD(add_bf16, "add.acc::f32.bf16x2", "=r", uint32_t)
LOAD(add_f32, "add.f32", "=f", float)
LOAD(add_32, "add.u32", "=r", uint32_t)
LOAD(min_s32, "min.s32", "=r", int32_t)
LOAD(max_s32, "max.s32", "=r", int32_t)
LOAD(min_u32, "min.u32", "=r", uint32_t)
LOAD(max_u32, "max.u32", "=r", uint32_t)
LOAD(add_f64, "add.f64", "=d", double)
LOAD(add_64, "add.u64", "=l", uint64_t)
LOAD(min_s64, "min.s64", "=l", int64_t)
LOAD(max_s64, "max.s64", "=l", int64_t)
LOAD(min_u64, "min.u64", "=l", uint64_t)
LOAD(max_u64, "max.u64", "=l", uint64_t)

#undef LOAD

// A sum, also for an average.
__device__ inline uint32_t load_32(int32_t type, int32_t op, const char *at) {
    const bool least = op == SYMMEM_CUDA_MIN, most = op == SYMMEM_CUDA_MAX;
    if (type == SYMMEM_MULTIMEM_F16)
        return add_f16(at);
    if (type == SYMMEM_MULTIMEM_BF16)
        return add_bf16(at);
    if (type == SYMMEM_MULTIMEM_F32)
        return __float_as_uint(add_f32(at));
    if (type == SYMMEM_MULTIMEM_S32 && (least || most))
        return static_cast<uint32_t>(least ? min_s32(at) : max_s32(at));
    return least ? min_u32(at) : most ? max_u32(at) : add_32(at);
}

__device__ inline uint64_t load_64(int32_t type, int32_t op, const char *at) {
    const bool least = op == SYMMEM_CUDA_MIN, most = op == SYMMEM_CUDA_MAX;
    if (type == SYMMEM_MULTIMEM_F64)
        return static_cast<uint64_t>(__double_as_longlong(add_f64(at)));
    if (type == SYMMEM_MULTIMEM_S64 && (least || most))
        return static_cast<uint64_t>(least ? min_s64(at) : max_s64(at));
    return least ? min_u64(at) : most ? max_u64(at) : add_64(at);
}

// Sums of floats have an instruction for a whole line. Returns false if this pair has none.
__device__ inline bool load_line(int32_t type, int32_t op, const char *at, line *value) {
    uint32_t *words = value->words;
    if (op != SYMMEM_CUDA_SUM && op != SYMMEM_CUDA_AVG)
        return false;
    if (type == SYMMEM_MULTIMEM_F16) {
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "l"(at)
                     : "memory");
    } else if (type == SYMMEM_MULTIMEM_BF16) {
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "l"(at)
                     : "memory");
    } else if (type == SYMMEM_MULTIMEM_F32) {
        float sums[4];
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
                     : "l"(at)
                     : "memory");
        for (int i = 0; i < 4; i++)
            words[i] = __float_as_uint(sums[i]);
    } else {
        return false;
    }
    return true;
}

} // namespace multimem

#endif
