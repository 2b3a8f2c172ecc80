/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors with strides, and matrices cut from them, for the fused operations. */
#ifndef SYMMEM_CORE_MATRIX_H
#define SYMMEM_CORE_MATRIX_H

#include "ops/collective.h"

/* A tensor argument of any layout that was found to be usable. */
typedef struct sm_strided {
    const char *what; /* the argument's name */
    char *data;
    symmem_dtype dtype;
    size_t element; /* bytes */
    int32_t ndim;
    int64_t shape[SYMMEM_COPY_MAX_NDIM];
    int64_t strides[SYMMEM_COPY_MAX_NDIM]; /* in elements, not negative */
    size_t count;
    size_t extent; /* bytes from data to the end of the last element; 0 if there is none */
} sm_strided;

/* Of two dimensions, one of its strides being 1 and the other at least the size beside it. */
typedef struct sm_matrix {
    char *data;
    int64_t rows, columns;
    int64_t row_stride, column_stride;
} sm_matrix;

/* INVALID_ARGUMENT, MISALIGNED, OVERFLOW. */
symmem_status sm_strided_read(symmem_context *context, const DLTensor *from, const char *operation,
                              const char *what, sm_strided *tensor_p);
/* INVALID_ARGUMENT unless 0 <= low <= ndim <= high. */
symmem_status sm_strided_ndim(const sm_strided *tensor, int32_t low, int32_t high,
                              const char *operation);
/* INVALID_ARGUMENT unless the tensor has that shape. */
symmem_status sm_strided_shape(const sm_strided *tensor, int32_t ndim, const int64_t *shape,
                               const char *operation);
bool sm_strided_is_shape(const sm_strided *tensor, int32_t ndim, const int64_t *shape);
/* Strides with which a tensor is contiguous once `dim` is moved to the front. False on overflow. */
bool sm_layout_strides(int32_t ndim, const int64_t *shape, int32_t dim, int64_t *strides);
/* Whether the tensor has them, as far as they mean anything. */
bool sm_strided_has_layout(const sm_strided *tensor, int32_t dim);
/* INVALID_ARGUMENT unless it does. */
symmem_status sm_strided_layout(const sm_strided *tensor, int32_t dim, const char *operation);
/*
 * The tensor as a matrix: its last dimension as columns, all others as rows, `dim` first among them
 * if it is one. False if the strides do not allow that.
 */
bool sm_strided_flatten(const sm_strided *tensor, int32_t dim, sm_matrix *matrix_p);
/*
 * The product of all dimensions but the last. False if so many rows, or columns, of each of `ranks`
 * ranks would have no addresses: in tensors without elements sides may be of any size.
 */
bool sm_strided_sides(const sm_strided *tensor, int32_t ranks, int64_t *rows_p);
/* INVALID_ARGUMENT if two of the tensors share bytes. */
symmem_status sm_strided_disjoint(const sm_strided *a, const sm_strided *b, const char *operation);
/* OUT_OF_RANGE if the tensor runs past the end of an allocation of the context's, INVALID_ARGUMENT
 * if that is of another device; any will do if `device` is negative. */
symmem_status sm_strided_inside(const sm_strided *tensor, symmem_context *context,
                                const char *operation, int32_t device);
/* The copy of a tensor into memory where it has the layout of `dim`. */
symmem_strided_copy sm_strided_copy_to(const sm_strided *src, int32_t dim, void *dst);

#endif
