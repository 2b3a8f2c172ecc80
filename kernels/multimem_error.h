/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How far a sum or average that hardware multicast loads may be from the exact one.
 *
 * Of n elements x_0 ... x_(n-1), with u = 2^-24 for float32 and the 16-bit floats, whose sums are
 * kept in float32, and u = 2^-53 for float64:
 *
 *     |sum - exact| <= (n - 1) * u * (|x_0| + ... + |x_(n-1)|) * (1 + n * u)
 *
 * whatever the order of the additions is, as long as no partial sum overflows. A 16-bit result is
 * that rounded once to its type: half a unit in its last place more. An average divides, with one
 * rounding more. Two ranks' results, or one and the reference, are so at most twice as far apart.
 * Infinities and NaNs among the elements decide the result as in the reference.
 *
 * Integer sums wrap and have no order; min and max are exact, but of two zeros of different sign
 * either may be the result.
 */
#ifndef SYMMEM_KERNELS_MULTIMEM_ERROR_H
#define SYMMEM_KERNELS_MULTIMEM_ERROR_H
#endif
