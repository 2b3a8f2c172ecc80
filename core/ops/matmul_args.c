/* SPDX-License-Identifier: BSD-3-Clause */
/* What all calls that multiply share: dtypes, matrices, scales, the way to the backend. */
#include "ops/fused.h"
#include "ops/matmul_args.h"
#include "backend/host.h"

#include <string.h>

static bool is_half(symmem_dtype dtype) {
    return dtype == SYMMEM_FLOAT16 || dtype == SYMMEM_BFLOAT16;
}

static bool plain_pair(symmem_dtype dtype, symmem_dtype out) {
    if (dtype != SYMMEM_FLOAT32 && dtype != SYMMEM_FLOAT64 && !is_half(dtype))
        return false;
    return out == dtype || (is_half(dtype) && out == SYMMEM_FLOAT32);
}

static bool scaled_pair(symmem_dtype dtype, symmem_dtype out) {
    if (dtype != SYMMEM_FLOAT32 && dtype != SYMMEM_INT8 && dtype != SYMMEM_UINT8 && !is_half(dtype))
        return false;
    return out == SYMMEM_FLOAT32 || is_half(out);
}

symmem_status sm_product_dtypes(const char *operation, const sm_strided *a, const sm_strided *b,
                                const sm_strided *out, bool scaled) {
    if (a->dtype != b->dtype)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "%s is of %s, %s of %s", a->what,
                       symmem_dtype_name(a->dtype), b->what, symmem_dtype_name(b->dtype));
    if (scaled ? scaled_pair(a->dtype, out->dtype) : plain_pair(a->dtype, out->dtype))
        return SYMMEM_OK;
    return sm_fail(SYMMEM_UNSUPPORTED, operation, "", "no %sproduct of %s into %s",
                   scaled ? "scaled " : "", symmem_dtype_name(a->dtype),
                   symmem_dtype_name(out->dtype));
}

symmem_status sm_product_matrix(const sm_strided *tensor, const char *operation,
                                sm_matrix *matrix_p) {
    symmem_status status = sm_strided_ndim(tensor, 2, 2, operation);
    if (status != SYMMEM_OK || sm_strided_flatten(tensor, 0, matrix_p))
        return status;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "%s is neither row- nor column-major",
                   tensor->what);
}

symmem_status sm_product_b_scale(symmem_context *context, const DLTensor *from, int64_t n,
                                 const char *operation, sm_strided *scale_p, bool *by_column_p) {
    symmem_status status = sm_strided_read(context, from, operation, "b_scale", scale_p);
    if (status == SYMMEM_OK)
        status = sm_strided_layout(scale_p, 0, operation);
    if (status != SYMMEM_OK)
        return status;
    if (scale_p->dtype != SYMMEM_FLOAT32)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "b_scale is of %s, not of float32",
                       symmem_dtype_name(scale_p->dtype));
    const int64_t row[2] = {1, n};
    *by_column_p = sm_strided_is_shape(scale_p, 1, &n) || sm_strided_is_shape(scale_p, 2, row);
    if (*by_column_p || scale_p->count == 1)
        return SYMMEM_OK;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "",
                   "b_scale has %zu elements, neither one nor one a column", scale_p->count);
}

void sm_product_fill(symmem_matmul *product, const sm_matrix *a, const sm_matrix *b,
                     const sm_matrix *out, symmem_dtype dtype, symmem_dtype out_dtype) {
    memset(product, 0, sizeof *product);
    product->size = sizeof *product;
    product->m = out->rows;
    product->n = out->columns;
    product->k = a->columns;
    product->a = a->data;
    product->a_row = a->row_stride;
    product->a_column = a->column_stride;
    product->b = b->data;
    product->b_row = b->row_stride;
    product->b_column = b->column_stride;
    product->out = out->data;
    product->out_row = out->row_stride;
    product->out_column = out->column_stride;
    product->dtype = dtype;
    product->out_dtype = out_dtype;
}

/* All that the product touches. */
static symmem_status cover_product(sm_refs *refs, symmem_context *context, const char *operation,
                                   const symmem_matmul *product) {
    const struct {
        const void *pointer;
        int64_t rows, columns;
    } all[] = {{product->out, product->m, product->n},
               {product->a, product->m, product->k},
               {product->b, product->k, product->n},
               {product->a_scale, 1, 1},
               {product->b_scale, 1, 1}};
    symmem_status status = SYMMEM_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == SYMMEM_OK; i++)
        if (all[i].rows != 0 && all[i].columns != 0)
            status = sm_refs_cover(refs, context, operation, all[i].pointer, 0);
    /* Never scaled, so there is room. */
    if (status == SYMMEM_OK && product->signals != NULL)
        status = sm_refs_cover(refs, context, operation, product->signals, 0);
    return status;
}

symmem_status sm_product_run(symmem_context *context, const char *operation,
                             const sm_pipeline *pipeline, const symmem_matmul *product,
                             uint32_t timeout_ms, const symmem_stream *stream) {
    sm_refs refs;
    sm_refs_init(&refs, pipeline != NULL ? pipeline->link : NULL);
    symmem_status status = cover_product(&refs, context, operation, product);
    int32_t device = stream != NULL ? stream->device : -1;
    if (pipeline != NULL) /* the arguments were compared before peers counted on this rank */
        device = pipeline->link->device;
    else if (status == SYMMEM_OK)
        status = sm_refs_device(&refs, context, operation, device, &device);
    if (status == SYMMEM_OK) {
        symmem_exec exec = pipeline != NULL ? sm_pipeline_exec(pipeline, &refs, stream)
                                            : sm_refs_exec(&refs, stream);
        exec.timeout_ms = timeout_ms;
        exec.operation = operation;
        status = context->backend->matmul(context->instance, device, product, &exec);
        if (status != SYMMEM_OK)
            (void)sm_backend_failed(context, status, operation, "matmul");
    }
    sm_refs_finish(&refs);
    return status;
}
