/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ops' inputs and outputs hold: elements of every type, with small whole numbers. */
#include "rank.h"

#include <string.h>

double bench_pattern(int rank, size_t index) {
    return (double)((index * 7 + (size_t)rank * 3) % 13);
}

double bench_summed(const bench_rank *self, size_t index) {
    double sum = 0;
    for (int rank = 0; rank < self->ranks; rank++)
        sum += bench_pattern(rank, index);
    return sum;
}

double bench_gathered(const bench_rank *self, size_t index) {
    return bench_pattern((int)(index / self->count), index % self->count);
}

/* The upper half of a float32. */
static uint16_t to_bfloat16(double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double from_bfloat16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float single;
    memcpy(&single, &bits, sizeof single);
    return (double)single;
}

/* Whole numbers from 0 to 2048, as they are normal numbers of float16. */
static uint16_t to_float16(double value) {
    uint32_t whole = (uint32_t)value, exponent = 0;
    if (whole == 0)
        return 0;
    while (whole >> (exponent + 1) != 0)
        exponent++;
    uint32_t mantissa = exponent <= 10 ? whole << (10 - exponent) : whole >> (exponent - 10);
    return (uint16_t)((exponent + 15) << 10 | (mantissa & 0x3ff));
}

static double from_float16(uint16_t half) {
    int exponent = (half >> 10 & 0x1f) - 25;
    double value = (half & 0x3ff) + 1024.0;
    if (half == 0)
        return 0;
    for (; exponent > 0; exponent--)
        value *= 2;
    for (; exponent < 0; exponent++)
        value /= 2;
    return value;
}

void bench_store(symmem_dtype dtype, void *memory, size_t index, double value) {
    switch (dtype) {
    case SYMMEM_FLOAT64:
        ((double *)memory)[index] = value;
        break;
    case SYMMEM_FLOAT32:
        ((float *)memory)[index] = (float)value;
        break;
    case SYMMEM_FLOAT16:
        ((uint16_t *)memory)[index] = to_float16(value);
        break;
    case SYMMEM_BFLOAT16:
        ((uint16_t *)memory)[index] = to_bfloat16(value);
        break;
    default:
        switch (symmem_dtype_size(dtype)) {
        case 1:
            ((uint8_t *)memory)[index] = (uint8_t)value;
            break;
        case 2:
            ((uint16_t *)memory)[index] = (uint16_t)value;
            break;
        case 4:
            ((uint32_t *)memory)[index] = (uint32_t)value;
            break;
        default:
            ((uint64_t *)memory)[index] = (uint64_t)value;
            break;
        }
    }
}

double bench_load(symmem_dtype dtype, const void *memory, size_t index) {
    switch (dtype) {
    case SYMMEM_FLOAT64:
        return ((const double *)memory)[index];
    case SYMMEM_FLOAT32:
        return (double)((const float *)memory)[index];
    case SYMMEM_FLOAT16:
        return from_float16(((const uint16_t *)memory)[index]);
    case SYMMEM_BFLOAT16:
        return from_bfloat16(((const uint16_t *)memory)[index]);
    default:
        switch (symmem_dtype_size(dtype)) {
        case 1:
            return (double)((const uint8_t *)memory)[index];
        case 2:
            return (double)((const uint16_t *)memory)[index];
        case 4:
            return (double)((const uint32_t *)memory)[index];
        default:
            return (double)((const uint64_t *)memory)[index];
        }
    }
}
