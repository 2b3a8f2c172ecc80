// SPDX-License-Identifier: BSD-3-Clause
// Lines: data that carry their own word of arrival. Two words of 64 bits, of which each has 32 bits
// of data and, above them, 32 of flag, and is written and read as a whole: whoever finds the flag
// that it waits for has the data. So they need no order, and no meeting after them.
#ifndef SYMMEM_KERNELS_CUDA_LINES_CUH
#define SYMMEM_KERNELS_CUDA_LINES_CUH

#include "cuda/signal.h"

namespace symmem {

struct line {
    uint64_t low, high;
};
static_assert(sizeof(line) == SYMMEM_CUDA_LINE_SIZE, "lines as signal.h places them");

__device__ inline line make_line(uint64_t data, uint32_t flag) {
    const uint64_t above = static_cast<uint64_t>(flag) << 32;
    return {above | static_cast<uint32_t>(data), above | data >> 32};
}

__device__ inline bool is_full(const line &found, uint32_t flag) {
    return found.low >> 32 == flag && found.high >> 32 == flag;
}

__device__ inline uint64_t data_of(const line &found) {
    return found.high << 32 | static_cast<uint32_t>(found.low);
}

#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has others for the CPU
__device__ inline void store_line(line *to, const line &value) {
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};"
                 :
                 : "l"(to), "l"(value.low), "l"(value.high)
                 : "memory");
}

__device__ inline line load_line(const line *from) {
    line found;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(found.low), "=l"(found.high)
                 : "l"(from)
                 : "memory");
    return found;
}

// Of a wide line the warp's lanes store and load their parts at once (rounds.cuh).
template <bool WIDE> __device__ inline void store_line_of(line *to, const line &value, uint32_t) {
    store_line(to, value);
}

// *full: no longer, unless the flag is there; of a wide line the lane knows that has it.
template <bool WIDE>
__device__ inline line load_line_of(const line *from, uint32_t lane, uint32_t flag, bool *full) {
    const line found = load_line(from);
    *full = *full && (WIDE ? lane % 8 != 7 || found.high == flag : is_full(found, flag));
    return found;
}
#endif

} // namespace symmem

#endif
