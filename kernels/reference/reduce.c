/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes one element after the other and one source after the other. The code is written to be
 * read, not to be fast. */
#include "reduce.h"

#include <float.h>
#include <math.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "each operation rounds to its own type");

static bool is_float(symmem_dtype dtype) {
    return dtype == SYMMEM_FLOAT16 || dtype == SYMMEM_BFLOAT16 || dtype == SYMMEM_FLOAT32 ||
           dtype == SYMMEM_FLOAT64;
}

static size_t bytes_of(symmem_dtype dtype) {
    switch (dtype) {
    case SYMMEM_INT8:
    case SYMMEM_UINT8:
        return 1;
    case SYMMEM_INT16:
    case SYMMEM_UINT16:
    case SYMMEM_FLOAT16:
    case SYMMEM_BFLOAT16:
        return 2;
    case SYMMEM_INT32:
    case SYMMEM_UINT32:
    case SYMMEM_FLOAT32:
        return 4;
    case SYMMEM_INT64:
    case SYMMEM_UINT64:
    case SYMMEM_FLOAT64:
        return 8;
    default:
        return 0;
    }
}

size_t symmem_reference_element_bytes(symmem_dtype dtype, symmem_reduce_op op) {
    bool any_number = op == SYMMEM_SUM || op == SYMMEM_MIN || op == SYMMEM_MAX;
    if (!any_number && !(op == SYMMEM_AVG && is_float(dtype)))
        return 0;
    return bytes_of(dtype);
}

/* --- 16-bit floats ------------------------------------------------------------------ */

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float symmem_reference_from_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1f) /* infinity, NaN */
        return of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) { /* mantissa * 2^-24, exact */
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t symmem_reference_to_half(float value) {
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) /* rounds to 2^16 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* subnormal: adding 2^-1 leaves units of 2^-24, rounded */
        float shifted = of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (bits_of(shifted) - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

float symmem_reference_from_bfloat(uint16_t half) {
    return of_bits((uint32_t)half << 16);
}

uint16_t symmem_reference_to_bfloat(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* --- one element -------------------------------------------------------------------- */

/* One reduction. Elements are moved by memcpy, so any alignment works. */
typedef struct reduction {
    const void *const *srcs;
    int32_t src_count;
    symmem_dtype dtype;
    symmem_reduce_op op;
} reduction;

static const char *source(const reduction *r, int32_t k, size_t at) {
    return (const char *)r->srcs[k] + at;
}

static float load_float(const char *from, symmem_dtype dtype) {
    if (dtype == SYMMEM_FLOAT32) {
        float value;
        memcpy(&value, from, sizeof value);
        return value;
    }
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return dtype == SYMMEM_FLOAT16 ? symmem_reference_from_half(half)
                                   : symmem_reference_from_bfloat(half);
}

static void store_float(char *to, symmem_dtype dtype, float value) {
    if (dtype == SYMMEM_FLOAT32) {
        memcpy(to, &value, sizeof value);
        return;
    }
    uint16_t half = dtype == SYMMEM_FLOAT16 ? symmem_reference_to_half(value)
                                            : symmem_reference_to_bfloat(value);
    memcpy(to, &half, sizeof half);
}

static float combine_float(float a, float b, symmem_reduce_op op) {
    if (op == SYMMEM_SUM || op == SYMMEM_AVG)
        return a + b;
    if (isnan(a) || isnan(b))
        return NAN;
    if (op == SYMMEM_MIN)
        return b < a ? b : a;
    return b > a ? b : a;
}

static double combine_double(double a, double b, symmem_reduce_op op) {
    if (op == SYMMEM_SUM || op == SYMMEM_AVG)
        return a + b;
    if (isnan(a) || isnan(b))
        return (double)NAN;
    if (op == SYMMEM_MIN)
        return b < a ? b : a;
    return b > a ? b : a;
}

/* Integers of every width are processed as 64 bits. The bytes are little-endian, as on all
 * supported machines. */
static uint64_t load_integer(const char *from, symmem_dtype dtype) {
    size_t bytes = bytes_of(dtype);
    uint64_t value = 0;
    memcpy(&value, from, bytes);
    bool is_signed = dtype == SYMMEM_INT8 || dtype == SYMMEM_INT16 || dtype == SYMMEM_INT32;
    uint64_t sign = 1ull << (8 * bytes - 1);
    return is_signed ? (value ^ sign) - sign : value;
}

/* Sums wrap. */
static void store_integer(char *to, symmem_dtype dtype, uint64_t value) {
    memcpy(to, &value, bytes_of(dtype));
}

static uint64_t combine_integer(uint64_t a, uint64_t b, symmem_dtype dtype, symmem_reduce_op op) {
    if (op == SYMMEM_SUM)
        return a + b;
    bool less = dtype == SYMMEM_UINT64 ? b < a : (int64_t)b < (int64_t)a;
    bool greater = dtype == SYMMEM_UINT64 ? b > a : (int64_t)b > (int64_t)a;
    return (op == SYMMEM_MIN ? less : greater) ? b : a;
}

static void reduce_float(const reduction *r, size_t at, char *to) {
    float sum = load_float(source(r, 0, at), r->dtype);
    for (int32_t k = 1; k < r->src_count; k++)
        sum = combine_float(sum, load_float(source(r, k, at), r->dtype), r->op);
    if (r->op == SYMMEM_AVG)
        sum /= (float)r->src_count;
    store_float(to, r->dtype, isnan(sum) ? of_bits(0x7fc00000u) : sum);
}

static void reduce_double(const reduction *r, size_t at, char *to) {
    double sum;
    memcpy(&sum, source(r, 0, at), sizeof sum);
    for (int32_t k = 1; k < r->src_count; k++) {
        double next;
        memcpy(&next, source(r, k, at), sizeof next);
        sum = combine_double(sum, next, r->op);
    }
    if (r->op == SYMMEM_AVG)
        sum /= r->src_count;
    uint64_t quiet_nan = 0x7ff8000000000000u;
    if (isnan(sum))
        memcpy(&sum, &quiet_nan, sizeof sum);
    memcpy(to, &sum, sizeof sum);
}

static void reduce_integer(const reduction *r, size_t at, char *to) {
    uint64_t sum = load_integer(source(r, 0, at), r->dtype);
    for (int32_t k = 1; k < r->src_count; k++)
        sum = combine_integer(sum, load_integer(source(r, k, at), r->dtype), r->dtype, r->op);
    store_integer(to, r->dtype, sum);
}

bool symmem_reference_reduce(void *dst, const void *const *srcs, int32_t src_count, size_t count,
                             symmem_dtype dtype, symmem_reduce_op op) {
    size_t bytes = symmem_reference_element_bytes(dtype, op);
    if (bytes == 0)
        return false;
    if (src_count == 1) {
        memmove(dst, srcs[0], count * bytes);
        return true;
    }
    reduction r = {.srcs = srcs, .src_count = src_count, .dtype = dtype, .op = op};
    void (*reduce)(const reduction *, size_t, char *) = reduce_float;
    if (dtype == SYMMEM_FLOAT64)
        reduce = reduce_double;
    else if (!is_float(dtype))
        reduce = reduce_integer;
    for (size_t i = 0; i < count; i++)
        reduce(&r, i * bytes, (char *)dst + i * bytes);
    return true;
}
