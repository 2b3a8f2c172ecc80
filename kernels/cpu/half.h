/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversion of vectors between 16-bit floats and float32. A NaN must be canonical before it is
 * rounded, see finish(). */
#ifndef SYMMEM_KERNELS_CPU_HALF_H
#define SYMMEM_KERNELS_CPU_HALF_H

#include "vector.h"

#if VECTOR_BYTES == 64

INLINE vec_u32 widen(half_vec half) {
    return (vec_u32)_mm512_cvtepu16_epi32((__m256i)half);
}

/* The upper 16 bits are zero. */
INLINE half_vec narrow(vec_u32 wide) {
    return (half_vec)_mm512_cvtepi32_epi16((__m512i)wide);
}

INLINE vec from_half(half_vec half) {
    return (vec)_mm512_cvtph_ps((__m256i)half);
}

INLINE half_vec to_half(vec value) {
    return (half_vec)_mm512_maskz_cvtps_ph((__mmask16)0xffff, (__m512)value, /* all lanes */
                                           _MM_FROUND_TO_NEAREST_INT);
}

#elif VECTOR_BYTES == 32

INLINE vec_u32 widen(half_vec half) {
    return (vec_u32)_mm256_cvtepu16_epi32((__m128i)half);
}

/* The upper 16 bits are zero. */
INLINE half_vec narrow(vec_u32 wide) {
    __m256i packed = _mm256_packus_epi32((__m256i)wide, (__m256i)wide);
    return (half_vec)_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}

INLINE vec from_half(half_vec half) {
    return (vec)_mm256_cvtph_ps((__m128i)half);
}

INLINE half_vec to_half(vec value) {
    return (half_vec)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
}

#else

#ifdef __SSE2__ /* for which the compiler splits the vectors */

INLINE vec_u32 widen(half_vec half) {
    return (vec_u32)_mm_unpacklo_epi16(_mm_cvtsi64_si128((long long)half), _mm_setzero_si128());
}

/* With sign extension, saturation leaves 16 bits unchanged. */
INLINE half_vec narrow(vec_u32 wide) {
    __m128i extended = _mm_srai_epi32(_mm_slli_epi32((__m128i)wide, 16), 16);
    return (half_vec)_mm_cvtsi128_si64(_mm_packs_epi32(extended, extended));
}

#else

INLINE vec_u32 widen(half_vec half) {
    return __builtin_convertvector(half, vec_u32);
}

INLINE half_vec narrow(vec_u32 wide) {
    return __builtin_convertvector(wide, half_vec);
}

#endif

/* Shifting exponent and mantissa into place gives a float that is 2^-112 times too small. The
 * product is exact even for subnormals. Exponent 31 becomes 255. */
INLINE vec from_half(half_vec half) {
    vec_u32 bits = widen(half);
    vec_u32 sign = (bits & 0x8000u) << 16;
    vec_u32 small = (bits & 0x7fffu) << 13;
    vec_u32 scaled = (vec_u32)((vec_f32)small * 0x1p112f);
    vec special = (vec)((vec_i32)small >= 0x0f800000);
    return (vec)(sign | (vec_u32)pick(special, (vec)(small | 0x7f800000u), (vec)scaled));
}

/* The cases of the scalar reference, selected by masks. */
INLINE half_vec to_half(vec value) {
    vec_u32 bits = (vec_u32)value;
    vec_u32 sign = bits >> 16 & 0x8000u;
    vec_i32 magnitude = (vec_i32)(bits & 0x7fffffffu);
    vec_u32 odd = (vec_u32)magnitude >> 13 & 1u;
    vec_u32 normal = ((vec_u32)magnitude - 0x38000000u + 0xfffu + odd) >> 13;
    vec_u32 subnormal = (vec_u32)((vec_f32)magnitude + 0.5f) - 0x3f000000u;
    vec_u32 infinity = (vec_u32){0} + 0x7c00u, nan = (vec_u32){0} + 0x7e00u;
    vec result = pick((vec)(magnitude < 0x38800000), (vec)subnormal, (vec)normal);
    result = pick((vec)(magnitude >= 0x477ff000), (vec)infinity, result);
    result = pick((vec)(magnitude > 0x7f800000), (vec)nan, result);
    return narrow((vec_u32)result | sign);
}

#endif

INLINE vec from_bfloat(half_vec half) {
    return (vec)(widen(half) << 16);
}

/* Adds slightly less than half a unit of the kept bits, or exactly half if they are odd, and
 * truncates. */
INLINE half_vec to_bfloat(vec value) {
    vec_u32 bits = (vec_u32)value;
    return narrow((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
