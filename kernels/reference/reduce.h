/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a reduction computes, element by element: the contract of every reducing operation, and a
 * scalar loop that follows it word for word. Faster ones must give the same bits.
 *
 * - The elements at one index are combined in the order srcs[0], srcs[1], ...: so every rank
 *   that lists the sources in one order gets the same bits.
 * - float32 and float64 are added in their own type, float16 and bfloat16 in float32, the result
 *   rounded once at the end; all to nearest, ties to even. Infinities and denormals are kept.
 * - avg is the sum divided once by src_count, in the type of the sum; for floats only.
 * - Integer sums wrap.
 * - min and max: -0.0 and +0.0 are equal; of equals the earlier source's stays. A NaN in any source
 *   makes the result a NaN.
 * - A result that is a NaN is the quiet NaN with positive sign and no payload, whatever NaNs or
 *   infinities it came from: ranks agree on its bits whatever their machines make of a NaN. (Users
 *   are promised less, that it is a NaN and the same on all ranks.)
 * - With one source every op is a copy of the bits: even a signaling NaN stays as it is.
 *
 * The floating-point environment of the scalar loop must be the one a program starts with: rounding
 * to nearest, denormals kept. The collectives see to that themselves, cpu/float_mode.h.
 */
#ifndef SYMMEM_KERNELS_REFERENCE_REDUCE_H
#define SYMMEM_KERNELS_REFERENCE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <symmem/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of one element; 0 if op cannot be done with dtype, or one of them is unknown. */
size_t symmem_reference_element_bytes(symmem_dtype dtype, symmem_reduce_op op);

/*
 * Reduces `count` elements of each of the src_count (at least 1) sources into dst, which may be one
 * of them; else they do not overlap it. Any address will do. False if the pair of dtype and op is
 * unsupported; nothing is written then.
 */
bool symmem_reference_reduce(void *dst, const void *const *srcs, int32_t src_count, size_t count,
                             symmem_dtype dtype, symmem_reduce_op op);

/* 16-bit floats: exact to float32, and back to nearest, ties to even. */
float symmem_reference_from_half(uint16_t half);
uint16_t symmem_reference_to_half(float value);
float symmem_reference_from_bfloat(uint16_t half);
uint16_t symmem_reference_to_bfloat(float value);

#ifdef __cplusplus
}
#endif
#endif
