/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Vector stores, normal or bypassing the cache. The latter need addresses aligned to the vector,
 * and a stream_fence() before anything that publishes them. Sanitizers do not see such stores. So
 * sanitizer builds, and machines without such instructions, use normal stores.
 */
#ifndef SYMMEM_KERNELS_CPU_STREAM_H
#define SYMMEM_KERNELS_CPU_STREAM_H

#include "vector.h"

#define STREAM_LINE_BYTES 64 /* whole lines save the memory a read */

#if defined(__SSE2__) && (!defined(SYMMEM_INSTRUMENTED) || defined(SYMMEM_COVERAGE_BUILD))

#define CAN_STREAM true

INLINE void stream_fence(void) {
    _mm_sfence();
}

INLINE void stream_16(char *to, __m128i value) {
    _mm_stream_si128((__m128i *)(void *)to, value);
}

#if VECTOR_BYTES == 64
INLINE void stream_vec(char *to, vec value) {
    _mm512_stream_si512((void *)to, (__m512i)value);
}

INLINE void stream_half_vec(char *to, half_vec value) {
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)value);
}
#elif VECTOR_BYTES == 32
INLINE void stream_vec(char *to, vec value) {
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)value);
}

INLINE void stream_half_vec(char *to, half_vec value) {
    stream_16(to, (__m128i)value);
}
#else
INLINE void stream_vec(char *to, vec value) {
    stream_16(to, (__m128i)value);
}

INLINE void stream_half_vec(char *to, half_vec value) {
    _mm_stream_si64((long long *)(void *)to, (long long)value);
}
#endif

#else

#define CAN_STREAM false

INLINE void stream_fence(void) {}

INLINE void stream_vec(char *to, vec value) {
    *(vec_memory *)(void *)to = (vec_memory)value;
}

INLINE void stream_half_vec(char *to, half_vec value) {
    *(half_vec_memory *)(void *)to = (half_vec_memory)value;
}

#endif

INLINE void store_vec(char *to, vec value, bool past_cache) {
    if (past_cache)
        stream_vec(to, value);
    else
        *(vec_memory *)(void *)to = (vec_memory)value;
}

INLINE void store_half_vec(char *to, half_vec value, bool past_cache) {
    if (past_cache)
        stream_half_vec(to, value);
    else
        *(half_vec_memory *)(void *)to = (half_vec_memory)value;
}

#endif
