// SPDX-License-Identifier: BSD-3-Clause
// What kernels/cuda/multimem_access.cuh has for the device: the same functions for the CPU, on the
// memory that is bound to the fake driver's multicast objects.
#ifndef FAKE_CUDA_MULTIMEM_ON_HOST_H
#define FAKE_CUDA_MULTIMEM_ON_HOST_H

#include <cstring>

#include "cuda/multimem.h"

extern "C" int fake_multicast_find(const void *address, size_t bytes, char **places);

namespace multimem {

struct alignas(SYMMEM_MULTIMEM_LINE) line {
    uint32_t words[SYMMEM_MULTIMEM_LINE / 4];
};

constexpr int MOST_PLACES = 64;

static inline void fence() {}

template <typename Word> static void store(char *at, const Word &value) {
    char *places[MOST_PLACES];
    const int count = fake_multicast_find(at, sizeof value, places);
    for (int i = 0; i < count; i++)
        memcpy(places[i], &value, sizeof value);
}

static inline void store_word(char *at, uint32_t value) {
    store(at, value);
}

static inline void store_line(char *at, const line &value) {
    store(at, value);
}

static inline uint16_t half_sum(int32_t type, const uint16_t *halves, int count) {
    float sum = 0;
    for (int i = 0; i < count; i++) {
        const float next = type == SYMMEM_MULTIMEM_F16 ? symmem_cuda_from_half(halves[i])
                                                       : symmem_cuda_from_bfloat(halves[i]);
        sum = i == 0 ? next : sum + next;
    }
    return type == SYMMEM_MULTIMEM_F16 ? symmem_cuda_to_half(sum) : symmem_cuda_to_bfloat(sum);
}

static inline uint32_t load_32(int32_t type, int32_t op, const char *at) {
    char *places[MOST_PLACES];
    uint32_t words[MOST_PLACES] = {};
    const int count = fake_multicast_find(at, 4, places);
    for (int i = 0; i < count; i++)
        memcpy(&words[i], places[i], 4);
    if (type == SYMMEM_MULTIMEM_F16 || type == SYMMEM_MULTIMEM_BF16) {
        uint16_t low[MOST_PLACES], high[MOST_PLACES];
        for (int i = 0; i < count; i++) {
            low[i] = static_cast<uint16_t>(words[i]);
            high[i] = static_cast<uint16_t>(words[i] >> 16);
        }
        return half_sum(type, low, count) | static_cast<uint32_t>(half_sum(type, high, count))
                                                << 16;
    }
    uint32_t value = words[0];
    for (int i = 1; i < count; i++) {
        if (type == SYMMEM_MULTIMEM_F32)
            value = symmem_cuda_bits(symmem_cuda_float(value) + symmem_cuda_float(words[i]));
        else if (type == SYMMEM_MULTIMEM_S32)
            value = static_cast<uint32_t>(symmem_cuda_combine_signed(
                static_cast<int32_t>(value), static_cast<int32_t>(words[i]), op));
        else
            value = static_cast<uint32_t>(symmem_cuda_combine_unsigned(value, words[i], op));
    }
    return value;
}

static inline uint64_t load_64(int32_t type, int32_t op, const char *at) {
    char *places[MOST_PLACES];
    const int count = fake_multicast_find(at, 8, places);
    uint64_t value = 0;
    for (int i = 0; i < count; i++) {
        uint64_t next;
        memcpy(&next, places[i], 8);
        if (i == 0) {
            value = next;
        } else if (type == SYMMEM_MULTIMEM_F64) {
            const double sum = symmem_cuda_double(value) + symmem_cuda_double(next);
            memcpy(&value, &sum, 8);
        } else if (type == SYMMEM_MULTIMEM_S64) {
            value = static_cast<uint64_t>(symmem_cuda_combine_signed(
                static_cast<int64_t>(value), static_cast<int64_t>(next), op));
        } else {
            value = symmem_cuda_combine_unsigned(value, next, op);
        }
    }
    return value;
}

static inline bool load_line(int32_t type, int32_t op, const char *at, line *value) {
    if (op != SYMMEM_CUDA_SUM && op != SYMMEM_CUDA_AVG)
        return false;
    if (type != SYMMEM_MULTIMEM_F16 && type != SYMMEM_MULTIMEM_BF16 && type != SYMMEM_MULTIMEM_F32)
        return false;
    for (int i = 0; i < SYMMEM_MULTIMEM_LINE / 4; i++)
        value->words[i] = load_32(type, op, at + 4 * i);
    return true;
}

} // namespace multimem

#endif
