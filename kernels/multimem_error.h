/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The error bound of a sum or average that hardware multicast loads.
 *
 * For n elements x_0 ... x_(n-1), u is 2^-24 for float32 and for the 16-bit floats, whose sums are
 * kept in float32. For float64 u is 2^-53. Then
 *
 *     |sum - exact| <= (n - 1) * u * (|x_0| + ... + |x_(n-1)|) * (1 + n * u)
 *
 * whatever the order of the additions is, as long as no partial sum overflows. A 16-bit result is
 * that sum rounded once to its type, which adds half a unit in its last place. An average divides,
 * which rounds once more. So two ranks' results, or one and the reference, differ at most by twice
 * that bound. Infinities and NaNs among the elements decide the result as in the reference.
 *
 * Integer sums wrap, so their order does not matter. min and max are exact, but the result of two
 * zeros of different sign may be either.
 */
#ifndef SYMMEM_KERNELS_MULTIMEM_ERROR_H
#define SYMMEM_KERNELS_MULTIMEM_ERROR_H
#endif
