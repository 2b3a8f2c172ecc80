/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduces one element on the device, literally as reference/reduce.h says. Plain C, so that a
 * machine without a device can compare every function with the reference. It is compiled without
 * contraction of products and sums, and without flushing denormals.
 */
#ifndef SYMMEM_KERNELS_CUDA_REDUCE_ELEMENT_H
#define SYMMEM_KERNELS_CUDA_REDUCE_ELEMENT_H

#include <stdbool.h>
#include <string.h>

#include "cuda/signal.h"

/* The device does not see symmem_reduce_op. collective_job.h asserts that both are the same. */
enum { SYMMEM_CUDA_SUM, SYMMEM_CUDA_AVG, SYMMEM_CUDA_MIN, SYMMEM_CUDA_MAX };

SYMMEM_CUDA_BOTH uint32_t symmem_cuda_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

SYMMEM_CUDA_BOTH float symmem_cuda_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

SYMMEM_CUDA_BOTH double symmem_cuda_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* --- 16-bit floats ------------------------------------------------------------------ */

/* Converts float16 without instructions for it, on the host. */
SYMMEM_CUDA_BOTH float symmem_cuda_from_half_plain(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = ((uint32_t)half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1f) /* infinity, NaN */
        return symmem_cuda_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) /* mantissa * 2^-24, exact */
        return symmem_cuda_float(sign | symmem_cuda_bits((float)mantissa * 5.9604644775390625e-8f));
    return symmem_cuda_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

SYMMEM_CUDA_BOTH uint16_t symmem_cuda_to_half_plain(float value) {
    uint32_t bits = symmem_cuda_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) /* rounds to 2^16 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* subnormal: adding 2^-1 leaves units of 2^-24, rounded */
        float shifted = symmem_cuda_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (symmem_cuda_bits(shifted) - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

/* The device has instructions for this. The branches of the portable form, unrolled, would need
 * more registers and stack than a kernel has. Only NaNs differ: the instruction to float does
 * not keep the bits of a NaN, which no result needs, and the instruction to float16 is corrected
 * here. */
SYMMEM_CUDA_BOTH float symmem_cuda_from_half(uint16_t half) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
#else
    return symmem_cuda_from_half_plain(half);
#endif
}

SYMMEM_CUDA_BOTH uint16_t symmem_cuda_to_half(float value) {
#ifdef __CUDA_ARCH__
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    const uint32_t sign = symmem_cuda_bits(value) >> 16 & 0x8000u;
    return value != value ? (uint16_t)(sign | 0x7e00u) : half;
#else
    return symmem_cuda_to_half_plain(value);
#endif
}

SYMMEM_CUDA_BOTH float symmem_cuda_from_bfloat(uint16_t half) {
    return symmem_cuda_float((uint32_t)half << 16);
}

/* Adds slightly less than half a unit of the kept bits, or exactly half if they are odd, and
 * truncates. */
SYMMEM_CUDA_BOTH uint16_t symmem_cuda_to_bfloat(float value) {
    uint32_t bits = symmem_cuda_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Numbers that are no NaNs need less work, and one comparison checks two of them. */
SYMMEM_CUDA_BOTH bool symmem_cuda_are_numbers(float a, float b) {
    return a == a && b == b;
}

/* Converts two numbers to bfloat16, the first in the low bits. */
SYMMEM_CUDA_BOTH uint32_t symmem_cuda_numbers_to_bfloats(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
    return both;
#else
    const uint32_t low = symmem_cuda_bits(a), high = symmem_cuda_bits(b);
    return (low + 0x7fffu + (low >> 16 & 1u)) >> 16 |
           ((high + 0x7fffu + (high >> 16 & 1u)) & 0xffff0000u);
#endif
}

SYMMEM_CUDA_BOTH uint32_t symmem_cuda_numbers_to_halves(float a, float b) {
#ifdef __CUDA_ARCH__
    uint16_t low, high;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(low) : "f"(a));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(high) : "f"(b));
    return low | (uint32_t)high << 16;
#else
    return symmem_cuda_to_half_plain(a) | (uint32_t)symmem_cuda_to_half_plain(b) << 16;
#endif
}

/* --- two elements to one ------------------------------------------------------------ */

/* Also for float16 and bfloat16. Among equals, as -0.0 and +0.0 are, the first stays. */
SYMMEM_CUDA_BOTH float symmem_cuda_combine_float(float a, float b, int32_t op) {
    if (op == SYMMEM_CUDA_SUM || op == SYMMEM_CUDA_AVG)
        return a + b;
    if (a != a || b != b)
        return symmem_cuda_float(0x7fc00000u);
    if (op == SYMMEM_CUDA_MIN)
        return b < a ? b : a;
    return b > a ? b : a;
}

SYMMEM_CUDA_BOTH double symmem_cuda_combine_double(double a, double b, int32_t op) {
    if (op == SYMMEM_CUDA_SUM || op == SYMMEM_CUDA_AVG)
        return a + b;
    if (a != a || b != b)
        return symmem_cuda_double(0x7ff8000000000000u);
    if (op == SYMMEM_CUDA_MIN)
        return b < a ? b : a;
    return b > a ? b : a;
}

/* Integers of every width are extended to 64 bits and truncated again, so sums wrap. */
SYMMEM_CUDA_BOTH int64_t symmem_cuda_combine_signed(int64_t a, int64_t b, int32_t op) {
    if (op == SYMMEM_CUDA_SUM)
        return (int64_t)((uint64_t)a + (uint64_t)b);
    if (op == SYMMEM_CUDA_MIN)
        return b < a ? b : a;
    return b > a ? b : a;
}

SYMMEM_CUDA_BOTH uint64_t symmem_cuda_combine_unsigned(uint64_t a, uint64_t b, int32_t op) {
    if (op == SYMMEM_CUDA_SUM)
        return a + b;
    if (op == SYMMEM_CUDA_MIN)
        return b < a ? b : a;
    return b > a ? b : a;
}

/* --- finishing the result of several sources --------------------------------------- */

/* Makes every NaN the one that all ranks agree on. */
SYMMEM_CUDA_BOTH float symmem_cuda_finish_float(float sum, int32_t src_count, int32_t op) {
    if (op == SYMMEM_CUDA_AVG)
        sum /= (float)src_count;
    return sum != sum ? symmem_cuda_float(0x7fc00000u) : sum;
}

SYMMEM_CUDA_BOTH double symmem_cuda_finish_double(double sum, int32_t src_count, int32_t op) {
    if (op == SYMMEM_CUDA_AVG)
        sum /= (double)src_count;
    return sum != sum ? symmem_cuda_double(0x7ff8000000000000u) : sum;
}

#endif
