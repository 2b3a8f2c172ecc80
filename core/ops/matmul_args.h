/* SPDX-License-Identifier: BSD-3-Clause */
/* What all calls that multiply share: dtypes, matrices, scales, the way to the backend. */
#ifndef SYMMEM_CORE_OPS_MATMUL_ARGS_H
#define SYMMEM_CORE_OPS_MATMUL_ARGS_H

#include "ops/fused.h"

/* Whether such a product is allowed; INVALID_ARGUMENT, UNSUPPORTED. */
symmem_status sm_product_dtypes(const char *operation, const sm_strided *a, const sm_strided *b,
                                const sm_strided *out, bool scaled);
/* A tensor of 2 dimensions as a matrix; INVALID_ARGUMENT. */
symmem_status sm_product_matrix(const sm_strided *tensor, const char *operation,
                                sm_matrix *matrix_p);
/* The scales of b, of one element or n; *by_column_p tells. INVALID_ARGUMENT, MISALIGNED. */
symmem_status sm_product_b_scale(symmem_context *context, const DLTensor *from, int64_t n,
                                 const char *operation, sm_strided *scale_p, bool *by_column_p);
/* Fills in sides, pointers and strides. */
void sm_product_fill(symmem_matmul *product, const sm_matrix *a, const sm_matrix *b,
                     const sm_matrix *out, symmem_dtype dtype, symmem_dtype out_dtype);
/* Calls the backend's entry for a product. pipeline is the pipeline that the product is a step of.
 * NULL: the product is local, and runs on its stream or, without one, where the memory is. */
symmem_status sm_product_run(symmem_context *context, const char *operation,
                             const sm_pipeline *pipeline, const symmem_matmul *product,
                             uint32_t timeout_ms, const symmem_stream *stream);

#endif
