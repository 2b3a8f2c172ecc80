/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scalar reference of the matrix product in symmem/matmul.h. It gives an element's value as
 * exactly as float64 can, and how far a product may be from that.
 */
#ifndef SYMMEM_KERNELS_REFERENCE_MATMUL_H
#define SYMMEM_KERNELS_REFERENCE_MATMUL_H

#include <symmem/matmul.h>

/* Returns element (row, column) of a x b, scaled, in float64, without what out holds. *magnitude_p
 * gets the same sum of the terms' magnitudes. */
double symmem_reference_matmul(const symmem_matmul *product, int64_t row, int64_t column,
                               double *magnitude_p);
/* Returns the largest error of rounding `value` to the dtype; 0 for integers. */
double symmem_reference_rounding(symmem_dtype dtype, double value);
/* Returns the distance between neighboring numbers just above 1, in the type in which products are
 * added. */
double symmem_reference_matmul_eps(symmem_dtype dtype);
/* Load and store element `at` of a flat array. A store rounds to nearest. */
double symmem_reference_load(symmem_dtype dtype, const void *base, int64_t at);
void symmem_reference_store(symmem_dtype dtype, void *base, int64_t at, double value);

#endif
