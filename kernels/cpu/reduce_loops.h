/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loops of one instruction set. A file that includes this header is compiled for that set. It
 * exports the table at the end under a name of its own.
 */
#ifndef SYMMEM_KERNELS_CPU_REDUCE_LOOPS_H
#define SYMMEM_KERNELS_CPU_REDUCE_LOOPS_H

#include <string.h>

#include "half.h"
#include "reduce_table.h"
#include "stream.h"

#define AHEAD_BYTES ((size_t)2 << 10)

/* Returns the bytes that fill one register. 16-bit floats are twice as wide there. */
INLINE size_t step_bytes(symmem_dtype dtype) {
    return dtype == SYMMEM_FLOAT16 || dtype == SYMMEM_BFLOAT16 ? VECTOR_BYTES / 2 : VECTOR_BYTES;
}

INLINE vec load(const char *from, symmem_dtype dtype) {
    if (dtype == SYMMEM_FLOAT16)
        return from_half(load_half_vec(from));
    if (dtype == SYMMEM_BFLOAT16)
        return from_bfloat(load_half_vec(from));
    return load_vec(from);
}

INLINE void store(char *to, vec value, symmem_dtype dtype, bool past_cache) {
    if (dtype == SYMMEM_FLOAT16)
        store_half_vec(to, to_half(value), past_cache);
    else if (dtype == SYMMEM_BFLOAT16)
        store_half_vec(to, to_bfloat(value), past_cache);
    else
        store_vec(to, value, past_cache);
}

/* --- four registers at a time, enough to hide the latency of an addition ----------- */

typedef struct quad {
    vec a, b, c, d;
} quad;

INLINE quad load_quad(const char *from, symmem_dtype dtype) {
    size_t step = step_bytes(dtype);
    return (quad){load(from, dtype), load(from + step, dtype), load(from + 2 * step, dtype),
                  load(from + 3 * step, dtype)};
}

INLINE quad combine_quad(quad x, quad y, symmem_dtype dtype, symmem_reduce_op op) {
    return (quad){combine(x.a, y.a, dtype, op), combine(x.b, y.b, dtype, op),
                  combine(x.c, y.c, dtype, op), combine(x.d, y.d, dtype, op)};
}

INLINE quad finish_quad(quad x, int32_t src_count, symmem_dtype dtype, symmem_reduce_op op) {
    return (quad){finish(x.a, src_count, dtype, op), finish(x.b, src_count, dtype, op),
                  finish(x.c, src_count, dtype, op), finish(x.d, src_count, dtype, op)};
}

INLINE void store_quad(char *to, quad x, symmem_dtype dtype, bool past_cache) {
    size_t step = step_bytes(dtype);
    store(to, x.a, dtype, past_cache);
    store(to + step, x.b, dtype, past_cache);
    store(to + 2 * step, x.c, dtype, past_cache);
    store(to + 3 * step, x.d, dtype, past_cache);
}

INLINE void reduce_quad(const symmem_cpu_reduce_args *args, size_t at, int32_t src_count,
                        symmem_dtype dtype, symmem_reduce_op op, bool past_cache) {
    quad sum = load_quad((const char *)args->srcs[0] + at, dtype);
    for (int32_t k = 1; k < src_count; k++) {
        quad next = load_quad((const char *)args->srcs[k] + at, dtype);
        sum = combine_quad(sum, next, dtype, op);
    }
    sum = finish_quad(sum, src_count, dtype, op);
    for (int32_t k = 0; k < args->dst_count; k++) {
        char *to = (char *)args->dsts[k] + at;
        if (past_cache && k >= args->cached_count && (uintptr_t)to % VECTOR_BYTES == 0)
            store_quad(to, sum, dtype, true);
        else
            store_quad(to, sum, dtype, false);
    }
}

/* Prefetches what a quad will read AHEAD_BYTES from here. */
INLINE void read_ahead(const symmem_cpu_reduce_args *args, size_t at, size_t bytes,
                       int32_t src_count) {
    for (int32_t k = 0; k < src_count; k++)
        for (size_t line = 0; line < bytes; line += STREAM_LINE_BYTES)
            __builtin_prefetch((const char *)args->srcs[k] + at + AHEAD_BYTES + line, 0, 3);
}

/* --- the remainder ----------------------------------------------------------------- */

/* Reduces `bytes` of less than one register through a buffer, so that nothing beyond them is
 * accessed. */
INLINE void reduce_part(const symmem_cpu_reduce_args *args, size_t at, size_t bytes,
                        int32_t src_count, symmem_dtype dtype, symmem_reduce_op op) {
    char part[VECTOR_BYTES] = {0};
    memcpy(part, (const char *)args->srcs[0] + at, bytes);
    vec sum = load(part, dtype);
    for (int32_t k = 1; k < src_count; k++) {
        memcpy(part, (const char *)args->srcs[k] + at, bytes);
        sum = combine(sum, load(part, dtype), dtype, op);
    }
    store(part, finish(sum, src_count, dtype, op), dtype, false);
    for (int32_t k = 0; k < args->dst_count; k++)
        memcpy((char *)args->dsts[k] + at, part, bytes);
}

/* Reduces one full register without the buffer. */
INLINE void reduce_one(const symmem_cpu_reduce_args *args, size_t at, int32_t src_count,
                       symmem_dtype dtype, symmem_reduce_op op) {
    vec sum = load((const char *)args->srcs[0] + at, dtype);
    for (int32_t k = 1; k < src_count; k++)
        sum = combine(sum, load((const char *)args->srcs[k] + at, dtype), dtype, op);
    sum = finish(sum, src_count, dtype, op);
    for (int32_t k = 0; k < args->dst_count; k++)
        store((char *)args->dsts[k] + at, sum, dtype, false);
}

INLINE void reduce_bytes(const symmem_cpu_reduce_args *args, size_t at, size_t end,
                         int32_t src_count, symmem_dtype dtype, symmem_reduce_op op) {
    size_t step = step_bytes(dtype);
    for (; end - at >= step; at += step)
        reduce_one(args, at, src_count, dtype, op);
    if (at < end)
        reduce_part(args, at, end - at, src_count, dtype, op);
}

/* --- the whole loop ---------------------------------------------------------------- */

/* Returns the bytes up to the first whole cache line, if lines bypass the cache. */
INLINE size_t lead_bytes(const symmem_cpu_reduce_args *args, size_t end, bool past_cache) {
    size_t bytes = past_cache ? -(uintptr_t)args->dsts[args->cached_count] % STREAM_LINE_BYTES : 0;
    return bytes < end ? bytes : end;
}

/* Addresses may decide which elements share a register and which stores bypass the cache. They do
 * not affect an element's result. Two sources are no special case, because that was no faster. */
INLINE void reduce(const symmem_cpu_reduce_args *args, symmem_dtype dtype, symmem_reduce_op op) {
    int32_t src_count = args->src_count;
    if (src_count == 1) {
        symmem_cpu_reduce_copy(args, element_bytes(dtype));
        return;
    }
    bool past_cache = args->streaming && CAN_STREAM && args->cached_count < args->dst_count;
    size_t quad_bytes = 4 * step_bytes(dtype), end = args->count * element_bytes(dtype);
    size_t at = 0, stop = lead_bytes(args, end, past_cache);
    for (;;) { /* The lead, the quads and the rest: the same code handles the first and the last. */
        reduce_bytes(args, at, stop, src_count, dtype, op);
        if (stop == end)
            break;
        for (at = stop; end - at >= quad_bytes; at += quad_bytes) {
            if (args->read_ahead && end - at >= quad_bytes + AHEAD_BYTES)
                read_ahead(args, at, quad_bytes, src_count);
            reduce_quad(args, at, src_count, dtype, op, past_cache);
        }
        stop = end;
    }
    if (past_cache)
        stream_fence();
}

/* --- one function for each pair ---------------------------------------------------- */

#define LOOP(name, dtype, op)                                                                      \
    static void name(const symmem_cpu_reduce_args *args) {                                         \
        reduce(args, dtype, op);                                                                   \
    }

/* Wrapping sums are the same with and without sign. */
LOOP(sum_i8, SYMMEM_INT8, SYMMEM_SUM)
LOOP(sum_i16, SYMMEM_INT16, SYMMEM_SUM)
LOOP(sum_i32, SYMMEM_INT32, SYMMEM_SUM)
LOOP(sum_i64, SYMMEM_INT64, SYMMEM_SUM)
LOOP(sum_f16, SYMMEM_FLOAT16, SYMMEM_SUM)
LOOP(sum_bf16, SYMMEM_BFLOAT16, SYMMEM_SUM)
LOOP(sum_f32, SYMMEM_FLOAT32, SYMMEM_SUM)
LOOP(sum_f64, SYMMEM_FLOAT64, SYMMEM_SUM)
LOOP(avg_f16, SYMMEM_FLOAT16, SYMMEM_AVG)
LOOP(avg_bf16, SYMMEM_BFLOAT16, SYMMEM_AVG)
LOOP(avg_f32, SYMMEM_FLOAT32, SYMMEM_AVG)
LOOP(avg_f64, SYMMEM_FLOAT64, SYMMEM_AVG)
LOOP(min_u8, SYMMEM_UINT8, SYMMEM_MIN)
LOOP(min_i8, SYMMEM_INT8, SYMMEM_MIN)
LOOP(min_i16, SYMMEM_INT16, SYMMEM_MIN)
LOOP(min_u16, SYMMEM_UINT16, SYMMEM_MIN)
LOOP(min_i32, SYMMEM_INT32, SYMMEM_MIN)
LOOP(min_u32, SYMMEM_UINT32, SYMMEM_MIN)
LOOP(min_i64, SYMMEM_INT64, SYMMEM_MIN)
LOOP(min_u64, SYMMEM_UINT64, SYMMEM_MIN)
LOOP(min_f16, SYMMEM_FLOAT16, SYMMEM_MIN)
LOOP(min_bf16, SYMMEM_BFLOAT16, SYMMEM_MIN)
LOOP(min_f32, SYMMEM_FLOAT32, SYMMEM_MIN)
LOOP(min_f64, SYMMEM_FLOAT64, SYMMEM_MIN)
LOOP(max_u8, SYMMEM_UINT8, SYMMEM_MAX)
LOOP(max_i8, SYMMEM_INT8, SYMMEM_MAX)
LOOP(max_i16, SYMMEM_INT16, SYMMEM_MAX)
LOOP(max_u16, SYMMEM_UINT16, SYMMEM_MAX)
LOOP(max_i32, SYMMEM_INT32, SYMMEM_MAX)
LOOP(max_u32, SYMMEM_UINT32, SYMMEM_MAX)
LOOP(max_i64, SYMMEM_INT64, SYMMEM_MAX)
LOOP(max_u64, SYMMEM_UINT64, SYMMEM_MAX)
LOOP(max_f16, SYMMEM_FLOAT16, SYMMEM_MAX)
LOOP(max_bf16, SYMMEM_BFLOAT16, SYMMEM_MAX)
LOOP(max_f32, SYMMEM_FLOAT32, SYMMEM_MAX)
LOOP(max_f64, SYMMEM_FLOAT64, SYMMEM_MAX)

/* Indexed by dtype and op: sum, avg, min, max. */
static const symmem_cpu_reduce_fn loops[SYMMEM_DTYPE_COUNT][SYMMEM_REDUCE_OP_COUNT] = {
    [SYMMEM_UINT8] = {sum_i8, NULL, min_u8, max_u8},
    [SYMMEM_INT8] = {sum_i8, NULL, min_i8, max_i8},
    [SYMMEM_INT16] = {sum_i16, NULL, min_i16, max_i16},
    [SYMMEM_UINT16] = {sum_i16, NULL, min_u16, max_u16},
    [SYMMEM_INT32] = {sum_i32, NULL, min_i32, max_i32},
    [SYMMEM_UINT32] = {sum_i32, NULL, min_u32, max_u32},
    [SYMMEM_INT64] = {sum_i64, NULL, min_i64, max_i64},
    [SYMMEM_UINT64] = {sum_i64, NULL, min_u64, max_u64},
    [SYMMEM_FLOAT16] = {sum_f16, avg_f16, min_f16, max_f16},
    [SYMMEM_BFLOAT16] = {sum_bf16, avg_bf16, min_bf16, max_bf16},
    [SYMMEM_FLOAT32] = {sum_f32, avg_f32, min_f32, max_f32},
    [SYMMEM_FLOAT64] = {sum_f64, avg_f64, min_f64, max_f64},
};

#undef LOOP
#endif
