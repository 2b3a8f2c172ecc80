// SPDX-License-Identifier: BSD-3-Clause
// Stores to every rank's buffer and reductions over all buffers, through a multicast address. None
// of this has ever run on hardware, see multimem.h.
//
// Everything goes by lines of 16 bytes. The first and the last line may be partial. The
// instructions cannot store bytes or halves of a word, so those are stored rank by rank through the
// peers' unicast addresses. Loading a word of which only a half is needed does no harm. No two
// lanes access one byte.
#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has the instructions for the CPU
#include "cuda/multimem_access.cuh"
#endif
#include "cuda/multimem.h"
#include "cuda/state.cuh"

namespace {

using multimem::line;

constexpr uintptr_t LINE = SYMMEM_MULTIMEM_LINE;

__device__ uintptr_t address_of(const void *pointer) {
    return reinterpret_cast<uintptr_t>(pointer);
}

// Bytes `low` up to `high` of the line at address `at`.
struct part {
    uintptr_t at;
    size_t low, high;
};

__device__ part part_of(uintptr_t at, uintptr_t begin, uintptr_t end) {
    return {at, at < begin ? begin - at : 0, end - at < LINE ? end - at : LINE};
}

__device__ bool is_whole(const part &part) {
    return part.low == 0 && part.high == LINE;
}

__device__ unsigned char *bytes_of(line *line) {
    return reinterpret_cast<unsigned char *>(line->words);
}

// --- lines from and to one rank's memory --------------------------------------------------

// `from`: the address of the part's first byte.
__device__ line fetch(const part &part, const char *from) {
    if (is_whole(part) && address_of(from) % LINE == 0)
        return *reinterpret_cast<const line *>(from);
    line value = {};
    if (is_whole(part) && address_of(from) % 4 == 0) {
        for (size_t i = 0; i < LINE / 4; i++)
            value.words[i] = reinterpret_cast<const uint32_t *>(from)[i];
        return value;
    }
    for (size_t i = part.low; i < part.high; i++)
        bytes_of(&value)[i] = static_cast<unsigned char>(from[i - part.low]);
    return value;
}

// Elements have 2 bytes or more, because `to` is aligned to them.
__device__ void put(const part &part, line *value, char *to) {
    if (is_whole(part) && address_of(to) % LINE == 0) {
        *reinterpret_cast<line *>(to) = *value;
        return;
    }
    const uint16_t *halves = reinterpret_cast<const uint16_t *>(value->words);
    for (size_t i = part.low; i < part.high; i += 2)
        *reinterpret_cast<uint16_t *>(to + (i - part.low)) = halves[i / 2];
}

// --- lines to every rank -----------------------------------------------------------

__device__ void store_bytes_to_each(const symmem_multimem_address &to, uintptr_t at, line *value,
                                    size_t low, size_t high) {
    for (int32_t rank = 0; rank < to.world_size; rank++) {
        char *buffer = static_cast<char *>(to.buffers[rank]) + to.offset;
        for (size_t i = low; i < high; i++)
            buffer[at + i - address_of(to.multicast)] = static_cast<char>(bytes_of(value)[i]);
    }
}

__device__ void spread(const symmem_multimem_address &to, const part &part, line *value) {
    if (is_whole(part)) {
        multimem::store_line(reinterpret_cast<char *>(part.at), *value);
        return;
    }
    for (size_t word = part.low / 4 * 4; word < part.high; word += 4) {
        const size_t low = part.low > word ? part.low : word;
        const size_t high = part.high < word + 4 ? part.high : word + 4;
        if (high - low == 4)
            multimem::store_word(reinterpret_cast<char *>(part.at + word), value->words[word / 4]);
        else
            store_bytes_to_each(to, part.at, value, low, high);
    }
}

// --- reduced lines ------------------------------------------------------------------------

__device__ line load(const part &part, int32_t type, int32_t op) {
    const char *at = reinterpret_cast<const char *>(part.at);
    const size_t step = symmem_multimem_element(type) == 8 ? 8 : 4;
    line value = {};
    if (is_whole(part) && multimem::load_line(type, op, at, &value))
        return value;
    for (size_t i = part.low / step * step; i < part.high; i += step) {
        if (step == 8) {
            const uint64_t wide = multimem::load_64(type, op, at + i);
            value.words[i / 4] = static_cast<uint32_t>(wide);
            value.words[i / 4 + 1] = static_cast<uint32_t>(wide >> 32);
        } else {
            value.words[i / 4] = multimem::load_32(type, op, at + i);
        }
    }
    return value;
}

// Divides for an average, and makes every NaN the one that all ranks agree on.
__device__ void finish(line *value, int32_t type, int32_t op, int32_t world_size) {
    for (int i = 0; i < 4; i++) {
        uint32_t *word = &value->words[i];
        if (type == SYMMEM_MULTIMEM_F32) {
            *word = symmem_cuda_bits(
                symmem_cuda_finish_float(symmem_cuda_float(*word), world_size, op));
        } else if (type == SYMMEM_MULTIMEM_F16 || type == SYMMEM_MULTIMEM_BF16) {
            const bool brain = type == SYMMEM_MULTIMEM_BF16;
            uint32_t both = 0;
            for (int half = 0; half < 2; half++) {
                const uint16_t bits = static_cast<uint16_t>(*word >> (16 * half));
                const float sum = symmem_cuda_finish_float(brain ? symmem_cuda_from_bfloat(bits)
                                                                 : symmem_cuda_from_half(bits),
                                                           world_size, op);
                const uint32_t done = brain ? symmem_cuda_to_bfloat(sum) : symmem_cuda_to_half(sum);
                both |= done << (16 * half);
            }
            *word = both;
        }
    }
    for (int i = 0; i < 4 && type == SYMMEM_MULTIMEM_F64; i += 2) {
        uint64_t bits = value->words[i] | static_cast<uint64_t>(value->words[i + 1]) << 32;
        const double sum = symmem_cuda_finish_double(symmem_cuda_double(bits), world_size, op);
        memcpy(&bits, &sum, sizeof bits);
        value->words[i] = static_cast<uint32_t>(bits);
        value->words[i + 1] = static_cast<uint32_t>(bits >> 32);
    }
}

// --- all lines ----------------------------------------------------------------------------

__device__ uintptr_t first_line(uintptr_t begin) {
    return begin / LINE * LINE +
           (blockIdx.x * static_cast<uintptr_t>(blockDim.x) + threadIdx.x) * LINE;
}

__device__ uintptr_t stride() {
    return gridDim.x * static_cast<uintptr_t>(blockDim.x) * LINE;
}

__device__ bool goes_on(const symmem_cuda_state *state) {
    return is_unbroken(state == nullptr ? nullptr : &state->failed);
}

} // namespace

extern "C" __global__ void __launch_bounds__(SYMMEM_MULTIMEM_THREADS)
    symmem_multicast_store(const __grid_constant__ symmem_multimem_store_args args) {
    const uintptr_t begin = address_of(args.to.multicast), end = begin + args.bytes;
    if (!goes_on(args.state))
        return;
    multimem::fence();
    for (uintptr_t at = first_line(begin); at < end; at += stride()) {
        const part part = part_of(at, begin, end);
        line value = fetch(part, args.from + (at + part.low - begin));
        spread(args.to, part, &value);
    }
    multimem::fence();
}

extern "C" __global__ void __launch_bounds__(SYMMEM_MULTIMEM_THREADS)
    symmem_multicast_reduce(const __grid_constant__ symmem_multimem_reduce_args args) {
    const uintptr_t begin = address_of(args.from.multicast);
    const uintptr_t end = begin + args.count * symmem_multimem_element(args.type);
    if (!goes_on(args.state))
        return;
    multimem::fence();
    for (uintptr_t at = first_line(begin); at < end; at += stride()) {
        const part part = part_of(at, begin, end);
        line value = load(part, args.type, args.op);
        finish(&value, args.type, args.op, args.from.world_size);
        if (args.to != nullptr)
            put(part, &value, args.to + (at + part.low - begin));
        else
            spread(args.from, part, &value);
    }
    multimem::fence();
}
