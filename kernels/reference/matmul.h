/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scalar reference of the matrix product in symmem/matmul.h: the element's exact value, as near
 * as a wider type comes to it, and how far from that a product may be.
 */
#ifndef SYMMEM_KERNELS_REFERENCE_MATMUL_H
#define SYMMEM_KERNELS_REFERENCE_MATMUL_H

#include <symmem/matmul.h>

/* Element (row, column) of a x b, scaled, in float64; what out holds is left aside. *magnitude_p:
 * the same of the elements' magnitudes. */
double symmem_reference_matmul(const symmem_matmul *product, int64_t row, int64_t column,
                               double *magnitude_p);
/* How far `value`, once rounded to the dtype, may be from itself; 0 for integers. */
double symmem_reference_rounding(symmem_dtype dtype, double value);
/* Between neighboring numbers just above 1 of the type in which products are added. */
double symmem_reference_matmul_eps(symmem_dtype dtype);
/* Element `at` of a flat array, and back, rounded to nearest. */
double symmem_reference_load(symmem_dtype dtype, const void *base, int64_t at);
void symmem_reference_store(symmem_dtype dtype, void *base, int64_t at, double value);

#endif
