/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ops' inputs and outputs hold: elements of every type, with small whole numbers. */
#include "rank.h"

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

/* What a whole number's memory begins with, at any width. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low byte first");

void bench_store(symmem_dtype dtype, void *memory, size_t index, double value) {
    size_t bytes = symmem_dtype_size(dtype);
    void *element = (char *)memory + index * bytes;
    uint64_t whole = dtype == SYMMEM_FLOAT16    ? to_float16(value)
                     : dtype == SYMMEM_BFLOAT16 ? to_bfloat16(value)
                                                : (uint64_t)value;
    float single = (float)value;
    memcpy(element,
           dtype == SYMMEM_FLOAT64   ? (void *)&value
           : dtype == SYMMEM_FLOAT32 ? (void *)&single
                                     : (void *)&whole,
           bytes);
}

double bench_load(symmem_dtype dtype, const void *memory, size_t index) {
    size_t bytes = symmem_dtype_size(dtype);
    const void *element = (const char *)memory + index * bytes;
    uint64_t whole = 0;
    memcpy(&whole, element, bytes);
    switch (dtype) {
    case SYMMEM_FLOAT64:
        return *(const double *)element;
    case SYMMEM_FLOAT32:
        return (double)*(const float *)element;
    case SYMMEM_FLOAT16:
        return from_float16((uint16_t)whole);
    case SYMMEM_BFLOAT16:
        return from_bfloat16((uint16_t)whole);
    default:
        return (double)whole;
    }
}
