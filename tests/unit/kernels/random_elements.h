/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements of any dtype, the same in all runs. Include it in one file of a program. */
#ifndef UNIT_RANDOM_ELEMENTS_H
#define UNIT_RANDOM_ELEMENTS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "reference/reduce.h"
#ifdef __cplusplus
}
#endif

static uint64_t random_state = 1;

static uint64_t random_bits(void) {
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Bits of a float's exponent; 0 for integers. */
static int exponent_bits(symmem_dtype dtype) {
    return dtype == SYMMEM_FLOAT16                               ? 5
           : dtype == SYMMEM_BFLOAT16 || dtype == SYMMEM_FLOAT32 ? 8
           : dtype == SYMMEM_FLOAT64                             ? 11
                                                                 : 0;
}

/* Any bits; of the floats a third are near one, so that sums round, and a third are near an end of
 * the exponents: zeros, denormals, the largest, infinities, NaNs. */
static uint64_t random_element(symmem_dtype dtype) {
    uint64_t bits = random_bits();
    const int exponent = exponent_bits(dtype);
    const int width = (int)symmem_reference_element_bytes(dtype, SYMMEM_SUM) * 8;
    const unsigned kind = bits & 15;
    bits = random_bits();
    if (exponent == 0 || kind < 5)
        return bits;
    const int mantissa = width - 1 - exponent;
    const uint64_t sign = bits & 1ull << (width - 1), fraction = bits & ((1ull << mantissa) - 1);
    const uint64_t most = (1ull << exponent) - 1, low = bits >> 60;
    if (kind < 11)
        return sign | (most / 2 - 4 + low % 8) << mantissa | fraction;
    const uint64_t place = low & 1 ? most - (low >> 1 & 1) : low >> 1 & 1;
    return sign | place << mantissa | (low & 8 ? fraction : low & 4 ? 1 : 0);
}

#endif
