/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The multicast load-reduce: in rank order, so that every rank gets the same bits. 16-bit floats
 * are summed in float32 and rounded once. A NaN in any rank's element makes the result a NaN.
 */
#include <math.h>
#include <string.h>

#include "shm.h"

static bool is_float(symmem_dtype dtype) {
    return dtype == SYMMEM_FLOAT16 || dtype == SYMMEM_BFLOAT16 || dtype == SYMMEM_FLOAT32 ||
           dtype == SYMMEM_FLOAT64;
}

static size_t element_bytes_of(symmem_dtype dtype) {
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

size_t shm_reduce_element_bytes(symmem_dtype dtype, symmem_reduce_op op) {
    bool any_number = op == SYMMEM_SUM || op == SYMMEM_MIN || op == SYMMEM_MAX;
    if (!any_number && !(op == SYMMEM_AVG && is_float(dtype)))
        return 0;
    return element_bytes_of(dtype);
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

static float from_half(uint16_t half) {
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

/* To nearest, ties to even. */
static uint16_t to_half(float value) {
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

static float from_bfloat(uint16_t half) {
    return of_bits((uint32_t)half << 16);
}

static uint16_t to_bfloat(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* --- one element -------------------------------------------------------------------- */

/* Elements are moved by memcpy: any alignment will do. */
static float load_float(const char *from, symmem_dtype dtype) {
    if (dtype == SYMMEM_FLOAT32) {
        float value;
        memcpy(&value, from, sizeof value);
        return value;
    }
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return dtype == SYMMEM_FLOAT16 ? from_half(half) : from_bfloat(half);
}

static void store_float(char *to, symmem_dtype dtype, float value) {
    if (dtype == SYMMEM_FLOAT32) {
        memcpy(to, &value, sizeof value);
        return;
    }
    uint16_t half = dtype == SYMMEM_FLOAT16 ? to_half(value) : to_bfloat(value);
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

/* Integers of every width are worked on as 64 bits; little-endian, as all our machines are. */
static uint64_t load_integer(const char *from, symmem_dtype dtype) {
    size_t bytes = element_bytes_of(dtype);
    uint64_t value = 0;
    memcpy(&value, from, bytes);
    bool is_signed = dtype == SYMMEM_INT8 || dtype == SYMMEM_INT16 || dtype == SYMMEM_INT32;
    uint64_t sign = 1ull << (8 * bytes - 1);
    return is_signed ? (value ^ sign) - sign : value;
}

/* Sums wrap. */
static void store_integer(char *to, symmem_dtype dtype, uint64_t value) {
    memcpy(to, &value, element_bytes_of(dtype));
}

static uint64_t combine_integer(uint64_t a, uint64_t b, symmem_dtype dtype, symmem_reduce_op op) {
    if (op == SYMMEM_SUM)
        return a + b;
    bool less = dtype == SYMMEM_UINT64 ? b < a : (int64_t)b < (int64_t)a;
    return less == (op == SYMMEM_MIN) ? b : a;
}

/* --- all elements ------------------------------------------------------------------- */

static void reduce_float(const shm_op *op, const char *const *from, size_t at, char *to) {
    symmem_dtype dtype = op->u.reduce.dtype;
    int32_t world_size = op->u.reduce.peers->world_size;
    float sum = load_float(from[0] + at, dtype);
    for (int32_t rank = 1; rank < world_size; rank++)
        sum = combine_float(sum, load_float(from[rank] + at, dtype), op->u.reduce.op);
    if (op->u.reduce.op == SYMMEM_AVG)
        sum /= (float)world_size;
    store_float(to + at, dtype, sum);
}

static void reduce_double(const shm_op *op, const char *const *from, size_t at, char *to) {
    int32_t world_size = op->u.reduce.peers->world_size;
    double sum;
    memcpy(&sum, from[0] + at, sizeof sum);
    for (int32_t rank = 1; rank < world_size; rank++) {
        double next;
        memcpy(&next, from[rank] + at, sizeof next);
        sum = combine_double(sum, next, op->u.reduce.op);
    }
    if (op->u.reduce.op == SYMMEM_AVG)
        sum /= world_size;
    memcpy(to + at, &sum, sizeof sum);
}

static void reduce_integer(const shm_op *op, const char *const *from, size_t at, char *to) {
    symmem_dtype dtype = op->u.reduce.dtype;
    uint64_t sum = load_integer(from[0] + at, dtype);
    for (int32_t rank = 1; rank < op->u.reduce.peers->world_size; rank++)
        sum = combine_integer(sum, load_integer(from[rank] + at, dtype), dtype, op->u.reduce.op);
    store_integer(to + at, dtype, sum);
}

symmem_status shm_run_reduce(const shm_op *op, symmem_error_record *record_p) {
    symmem_status status = shm_op_point(op, "shm.reduce", "multimem_ld_reduce", record_p);
    if (status != SYMMEM_OK)
        return status;
    const symmem_peers *peers = op->u.reduce.peers;
    symmem_dtype dtype = op->u.reduce.dtype;
    size_t element_bytes = shm_reduce_element_bytes(dtype, op->u.reduce.op);
    const char *from[SYMMEM_MAX_WORLD_SIZE];
    for (int32_t rank = 0; rank < peers->world_size; rank++)
        from[rank] = (const char *)peers->buffers[rank] + op->u.reduce.offset;
    void (*reduce)(const shm_op *, const char *const *, size_t, char *) = reduce_float;
    if (dtype == SYMMEM_FLOAT64)
        reduce = reduce_double;
    else if (!is_float(dtype))
        reduce = reduce_integer;
    for (size_t i = 0; i < op->u.reduce.count; i++)
        reduce(op, from, i * element_bytes, op->u.reduce.dst);
    return SYMMEM_OK;
}
