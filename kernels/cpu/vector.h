/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One vector register of the instruction set that a file is compiled for, in the compiler's own
 * vector types, and the operations that reductions need. Everything is inlined. `dtype` and `op`
 * are constants at every use, so that their switches vanish.
 */
#ifndef SYMMEM_KERNELS_CPU_VECTOR_H
#define SYMMEM_KERNELS_CPU_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <symmem/handle.h>

#if defined(__AVX512BW__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

#define INLINE static inline __attribute__((always_inline))

/* vec holds VECTOR_BYTES of any type. A cast to another vector type keeps the bits. */
typedef uint64_t vec __attribute__((vector_size(VECTOR_BYTES)));
typedef uint8_t vec_u8 __attribute__((vector_size(VECTOR_BYTES)));
typedef int8_t vec_i8 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t vec_u16 __attribute__((vector_size(VECTOR_BYTES)));
typedef int16_t vec_i16 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vec_u32 __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vec_i32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t vec_u64 __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t vec_i64 __attribute__((vector_size(VECTOR_BYTES)));
typedef float vec_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef double vec_f64 __attribute__((vector_size(VECTOR_BYTES)));
/* Holds as many 16-bit elements as a vec has elements of 32 bits. */
typedef uint16_t half_vec __attribute__((vector_size(VECTOR_BYTES / 2)));

/* The same types in memory, at any address and of any type. */
typedef uint64_t vec_memory __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));
typedef uint16_t half_vec_memory
    __attribute__((vector_size(VECTOR_BYTES / 2), aligned(1), may_alias));

INLINE vec load_vec(const void *from) {
    return (vec) * (const vec_memory *)from;
}

INLINE half_vec load_half_vec(const void *from) {
    return (half_vec) * (const half_vec_memory *)from;
}

INLINE size_t element_bytes(symmem_dtype dtype) {
    switch (dtype) {
    case SYMMEM_INT8:
    case SYMMEM_UINT8:
        return 1;
    case SYMMEM_INT64:
    case SYMMEM_UINT64:
    case SYMMEM_FLOAT64:
        return 8;
    case SYMMEM_INT32:
    case SYMMEM_UINT32:
    case SYMMEM_FLOAT32:
        return 4;
    default:
        return 2;
    }
}

/* Selects bit by bit: b where the mask has ones, else a. */
INLINE vec pick(vec mask, vec b, vec a) {
    return (mask & b) | (~mask & a);
}

INLINE vec add(vec a, vec b, symmem_dtype dtype) {
    switch (dtype) {
    case SYMMEM_INT8:
    case SYMMEM_UINT8:
        return (vec)((vec_u8)a + (vec_u8)b);
    case SYMMEM_INT16:
    case SYMMEM_UINT16:
        return (vec)((vec_u16)a + (vec_u16)b);
    case SYMMEM_INT32:
    case SYMMEM_UINT32:
        return (vec)((vec_u32)a + (vec_u32)b);
    case SYMMEM_INT64:
    case SYMMEM_UINT64:
        return (vec)((vec_u64)a + (vec_u64)b);
    case SYMMEM_FLOAT64:
        return (vec)((vec_f64)a + (vec_f64)b);
    default: /* 16-bit floats have been converted to float32 */
        return (vec)((vec_f32)a + (vec_f32)b);
    }
}

/* All ones in the elements where a < b. */
INLINE vec less(vec a, vec b, symmem_dtype dtype) {
    switch (dtype) {
    case SYMMEM_INT8:
        return (vec)((vec_i8)a < (vec_i8)b);
    case SYMMEM_UINT8:
        return (vec)((vec_u8)a < (vec_u8)b);
    case SYMMEM_INT16:
        return (vec)((vec_i16)a < (vec_i16)b);
    case SYMMEM_UINT16:
        return (vec)((vec_u16)a < (vec_u16)b);
    case SYMMEM_INT32:
        return (vec)((vec_i32)a < (vec_i32)b);
    case SYMMEM_UINT32:
        return (vec)((vec_u32)a < (vec_u32)b);
    case SYMMEM_INT64:
        return (vec)((vec_i64)a < (vec_i64)b);
    case SYMMEM_UINT64:
        return (vec)((vec_u64)a < (vec_u64)b);
    case SYMMEM_FLOAT64:
        return (vec)((vec_f64)a < (vec_f64)b);
    default:
        return (vec)((vec_f32)a < (vec_f32)b);
    }
}

/* All ones in the elements that are a NaN. No integer is one. */
INLINE vec is_nan(vec a, symmem_dtype dtype) {
    switch (dtype) {
    case SYMMEM_FLOAT64:
        return (vec)((vec_f64)a != (vec_f64)a);
    case SYMMEM_FLOAT16:
    case SYMMEM_BFLOAT16:
    case SYMMEM_FLOAT32:
        return (vec)((vec_f32)a != (vec_f32)a);
    default:
        return (vec){0};
    }
}

/* Combines the accumulated a with the next source's b. A NaN stays, because no comparison with it
 * is true. */
INLINE vec combine(vec a, vec b, symmem_dtype dtype, symmem_reduce_op op) {
    if (op == SYMMEM_SUM || op == SYMMEM_AVG)
        return add(a, b, dtype);
    vec beats = op == SYMMEM_MIN ? less(b, a, dtype) : less(a, b, dtype);
    return pick(beats | is_nan(b, dtype), b, a);
}

/* Divides for avg, and makes every NaN canonical. */
INLINE vec finish(vec a, int32_t src_count, symmem_dtype dtype, symmem_reduce_op op) {
    if (op == SYMMEM_AVG && dtype == SYMMEM_FLOAT64)
        a = (vec)((vec_f64)a / (double)src_count);
    else if (op == SYMMEM_AVG)
        a = (vec)((vec_f32)a / (float)src_count);
    vec quiet_nan = dtype == SYMMEM_FLOAT64 ? (vec)((vec_u64){0} + 0x7ff8000000000000u)
                                            : (vec)((vec_u32){0} + 0x7fc00000u);
    return pick(is_nan(a, dtype), quiet_nan, a);
}

#endif
