/* SPDX-License-Identifier: BSD-3-Clause */
#include "reference/matmul.h"

#include <math.h>

#include "reference/reduce.h"

double symmem_reference_load(symmem_dtype dtype, const void *base, int64_t at) {
    switch (dtype) {
    case SYMMEM_FLOAT64:
        return ((const double *)base)[at];
    case SYMMEM_FLOAT32:
        return (double)((const float *)base)[at];
    case SYMMEM_FLOAT16:
        return (double)symmem_reference_from_half(((const uint16_t *)base)[at]);
    case SYMMEM_BFLOAT16:
        return (double)symmem_reference_from_bfloat(((const uint16_t *)base)[at]);
    case SYMMEM_INT8:
        return ((const int8_t *)base)[at];
    default:
        return ((const uint8_t *)base)[at];
    }
}

void symmem_reference_store(symmem_dtype dtype, void *base, int64_t at, double value) {
    switch (dtype) {
    case SYMMEM_FLOAT64:
        ((double *)base)[at] = value;
        return;
    case SYMMEM_FLOAT32:
        ((float *)base)[at] = (float)value;
        return;
    case SYMMEM_FLOAT16:
        ((uint16_t *)base)[at] = symmem_reference_to_half((float)value);
        return;
    case SYMMEM_BFLOAT16:
        ((uint16_t *)base)[at] = symmem_reference_to_bfloat((float)value);
        return;
    case SYMMEM_INT8:
        ((int8_t *)base)[at] = (int8_t)value;
        return;
    default:
        ((uint8_t *)base)[at] = (uint8_t)value;
        return;
    }
}

double symmem_reference_matmul(const symmem_matmul *product, int64_t row, int64_t column,
                               double *magnitude_p) {
    double sum = 0, magnitude = 0, scale = 1;
    for (int64_t l = 0; l < product->k; l++) {
        double a = symmem_reference_load(product->dtype, product->a,
                                         row * product->a_row + l * product->a_column);
        double b = symmem_reference_load(product->dtype, product->b,
                                         l * product->b_row + column * product->b_column);
        sum += a * b;
        magnitude += fabs(a * b);
    }
    if (product->a_scale != NULL)
        scale = (double)product->a_scale[product->a_scale_by_row ? row : 0] *
                (double)product->b_scale[product->b_scale_by_column ? column : 0];
    *magnitude_p = magnitude * fabs(scale);
    return sum * scale;
}

double symmem_reference_matmul_eps(symmem_dtype dtype) {
    return dtype == SYMMEM_FLOAT64 ? 0x1p-52 : 0x1p-23;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

double symmem_reference_rounding(symmem_dtype dtype, double value) {
    switch (dtype) {
    case SYMMEM_FLOAT64:
        return fabs(value) * 0x1p-53;
    case SYMMEM_FLOAT32:
        return larger(fabs(value) * 0x1p-24, 0x1p-150);
    case SYMMEM_FLOAT16:
        return larger(fabs(value) * 0x1p-11, 0x1p-25);
    case SYMMEM_BFLOAT16:
        return larger(fabs(value) * 0x1p-8, 0x1p-134);
    default:
        return 0;
    }
}
