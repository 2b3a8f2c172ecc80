/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of every reducing operation, element by element, and a scalar loop that implements
 * it literally. Faster implementations must give the same bits.
 *
 * - The elements at one index are combined in the order srcs[0], srcs[1], ... So every rank that
 * lists the sources in the same order gets the same bits.
 * - float32 and float64 are added in their own type. float16 and bfloat16 are added in float32 and
 * the result is rounded once at the end. All rounding is to nearest, ties to even. Infinities and
 *   denormals are kept.
 * - avg is the sum divided once by src_count, in the type of the sum. It exists for floats only.
 * - Integer sums wrap.
 * - min and max treat -0.0 and +0.0 as equal and keep the earlier source's among equals. A NaN in
 * any source makes the result a NaN.
 * - A result that is a NaN is the quiet NaN with positive sign and no payload, whatever NaNs or
 *   infinities it came from. So ranks agree on its bits on any machine. (The public API promises
 * less: a NaN, and the same on all ranks.)
 * - With one source every op is a copy of the bits. Even a signaling NaN is unchanged.
 *
 * The scalar loop needs the floating-point environment with which a program starts, which rounds to
 * nearest and keeps denormals. The collectives set it themselves, cpu/float_mode.h.
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

/* Returns the bytes of one element, or 0 if the pair of dtype and op is unsupported or unknown. */
size_t symmem_reference_element_bytes(symmem_dtype dtype, symmem_reduce_op op);

/*
 * Reduces `count` elements of each of the src_count (at least 1) sources into dst. dst is one of
 * the sources or overlaps none. Any address works. Returns false, without writing, if the pair of
 * dtype and op is unsupported.
 */
bool symmem_reference_reduce(void *dst, const void *const *srcs, int32_t src_count, size_t count,
                             symmem_dtype dtype, symmem_reduce_op op);

/* 16-bit floats convert to float32 exactly, and back to nearest, ties to even. */
float symmem_reference_from_half(uint16_t half);
uint16_t symmem_reference_to_half(float value);
float symmem_reference_from_bfloat(uint16_t half);
uint16_t symmem_reference_to_bfloat(float value);

#ifdef __cplusplus
}
#endif
#endif
