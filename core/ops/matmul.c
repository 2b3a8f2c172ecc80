/* SPDX-License-Identifier: BSD-3-Clause */
/* The user's own product, layouts, and the product that waits for its input. */
#include "ops/fused.h"
#include "stream/stream.h"
#include "backend/host.h"
#include "backend/query.h"
#include "backend/table.h"
#include "ops/matmul_args.h"

symmem_status symmem_set_matmul(symmem_context *context, symmem_matmul_fn fn, void *arg) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_context_check(context, "set_matmul");
    if (status != SYMMEM_OK)
        return status;
    pthread_mutex_lock(&context->lock);
    context->matmul_fn = fn;
    context->matmul_arg = fn != NULL ? arg : NULL;
    pthread_mutex_unlock(&context->lock);
    return SYMMEM_OK;
}

/* --- layout --------------------------------------------------------------------------------- */

symmem_status symmem_fused_strides(int32_t ndim, const int64_t *shape, int32_t dim,
                                   int64_t *strides) {
    SM_PUBLIC_CALL;
    static const char name[] = "fused_strides";
    if (ndim < 0 || (ndim > 0 && (shape == NULL || strides == NULL)))
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "%s",
                       ndim < 0 ? "ndim is negative" : "shape or strides is NULL");
    if (dim < 0 || dim >= ndim)
        return sm_fail(SYMMEM_OUT_OF_RANGE, name, "", "dimension %d is not in [0, %d)", dim, ndim);
    for (int32_t d = 0; d < ndim; d++)
        if (shape[d] < 0)
            return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "shape[%d] is negative", d);
    if (!sm_layout_strides(ndim, shape, dim, strides))
        return sm_fail(SYMMEM_OVERFLOW, name, "", "the number of elements overflows");
    return SYMMEM_OK;
}

/* Whether no two elements of the tensor share a place, as far as strides in order of size tell. */
static bool has_own_places(const sm_strided *tensor) {
    bool used[SYMMEM_COPY_MAX_NDIM] = {false};
    int64_t least = 1;
    for (int32_t turn = 0; turn < tensor->ndim; turn++) {
        int32_t next = -1;
        for (int32_t d = 0; d < tensor->ndim; d++)
            if (!used[d] && (next < 0 || tensor->strides[d] < tensor->strides[next]))
                next = d;
        used[next] = true;
        if (tensor->shape[next] <= 1)
            continue;
        if (tensor->strides[next] < least)
            return false;
        if (__builtin_mul_overflow(tensor->strides[next], tensor->shape[next], &least))
            least = INT64_MAX; /* beyond the last place that there is */
    }
    return true;
}

static symmem_status check_restride(symmem_context *context, const char *name, const DLTensor *src,
                                    const DLTensor *dst, const symmem_stream *stream,
                                    sm_strided *from, sm_strided *to) {
    symmem_status status = sm_context_check(context, name);
    if (status == SYMMEM_OK)
        status = sm_stream_check(context, stream, -1, name);
    if (status == SYMMEM_OK)
        status = sm_need_capability(context, SYMMEM_CAP_MATMUL, name, "strided copies");
    if (status == SYMMEM_OK)
        status = sm_strided_read(context, src, name, "src", from);
    if (status == SYMMEM_OK)
        status = sm_strided_read(context, dst, name, "dst", to);
    if (status == SYMMEM_OK)
        status = sm_strided_shape(to, from->ndim, from->shape, name);
    if (status != SYMMEM_OK)
        return status;
    if (from->dtype != to->dtype)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "src is of %s, dst of %s",
                       symmem_dtype_name(from->dtype), symmem_dtype_name(to->dtype));
    if (!has_own_places(to))
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "elements of dst overlap");
    return sm_strided_disjoint(from, to, name);
}

symmem_status symmem_restride(symmem_context *context, const DLTensor *src, const DLTensor *dst,
                              symmem_stream *stream) {
    SM_PUBLIC_CALL;
    static const char name[] = "restride";
    sm_strided from, to;
    sm_refs refs;
    int32_t device = -1;
    symmem_status status = check_restride(context, name, src, dst, stream, &from, &to);
    if (status != SYMMEM_OK || from.count == 0)
        return status;
    symmem_strided_copy copy = sm_strided_copy_to(&from, 0, to.data);
    for (int32_t d = 0; d < to.ndim; d++)
        copy.dst_strides[d] = to.strides[d];
    sm_refs_init(&refs, NULL);
    status = sm_context_point(context, name, "copy.before");
    if (status == SYMMEM_OK)
        status = sm_refs_cover(&refs, context, name, to.data, to.extent);
    if (status == SYMMEM_OK)
        status = sm_refs_cover(&refs, context, name, from.data, from.extent);
    if (status == SYMMEM_OK)
        status =
            sm_refs_device(&refs, context, name, stream != NULL ? stream->device : -1, &device);
    if (status == SYMMEM_OK) {
        const symmem_exec exec = sm_refs_exec(&refs, stream);
        status = context->backend->copy_strided(context->instance, device, &copy, &exec);
        if (status != SYMMEM_OK)
            (void)sm_backend_failed(context, status, name, "copy_strided");
    }
    sm_refs_finish(&refs);
    return status;
}

/* --- multiply as the input arrives ---------------------------------------------------------- */

static const char async_name[] = "async_input_mm";

/* Everything but the signals. */
static symmem_status check_local_product(symmem_context *context, const DLTensor *a,
                                         const DLTensor *b, const DLTensor *out,
                                         sm_strided tensors[3], sm_matrix matrices[3]) {
    const DLTensor *const from[3] = {a, b, out};
    static const char *const names[3] = {"a", "b", "out"};
    symmem_status status = SYMMEM_OK;
    for (int i = 0; i < 3 && status == SYMMEM_OK; i++) {
        status = sm_strided_read(context, from[i], async_name, names[i], &tensors[i]);
        if (status == SYMMEM_OK)
            status = sm_product_matrix(&tensors[i], async_name, &matrices[i]);
    }
    if (status != SYMMEM_OK)
        return status;
    const int64_t b_shape[2] = {tensors[0].shape[1], tensors[1].shape[1]};
    const int64_t out_shape[2] = {tensors[0].shape[0], tensors[1].shape[1]};
    status = sm_strided_shape(&tensors[1], 2, b_shape, async_name);
    if (status == SYMMEM_OK)
        status = sm_strided_shape(&tensors[2], 2, out_shape, async_name);
    if (status == SYMMEM_OK)
        status = sm_product_dtypes(async_name, &tensors[0], &tensors[1], &tensors[2], false);
    for (int i = 0; i < 2 && status == SYMMEM_OK; i++)
        status = sm_strided_disjoint(&tensors[2], &tensors[i], async_name);
    return status;
}

static symmem_status check_signals(symmem_context *context, const DLTensor *from, int64_t pivot,
                                   int64_t rows, const sm_strided *out, sm_strided *signals) {
    symmem_status status = sm_strided_read(context, from, async_name, "a_chunk_signals", signals);
    if (status == SYMMEM_OK)
        status = sm_strided_ndim(signals, 1, 1, async_name);
    if (status == SYMMEM_OK)
        status = sm_strided_layout(signals, 0, async_name);
    if (status != SYMMEM_OK)
        return status;
    if (signals->dtype != SYMMEM_UINT32)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, async_name, "", "a_chunk_signals is not of uint32");
    int64_t chunks = signals->shape[0];
    if (chunks < 1 || chunks > INT32_MAX || rows % chunks != 0)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, async_name, "",
                       "%lld rows cannot be cut into %lld chunks", (long long)rows,
                       (long long)chunks);
    if (pivot < 0 || pivot >= chunks)
        return sm_fail(SYMMEM_OUT_OF_RANGE, async_name, "",
                       "a_chunk_pivot %lld is not in [0, %lld)", (long long)pivot,
                       (long long)chunks);
    return sm_strided_disjoint(out, signals, async_name);
}

symmem_status symmem_async_input_mm(symmem_context *context, const DLTensor *a, const DLTensor *b,
                                    const DLTensor *a_chunk_signals, int64_t a_chunk_pivot,
                                    const DLTensor *out, uint32_t timeout_ms,
                                    symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_strided tensors[3], signals;
    sm_matrix matrices[3];
    symmem_matmul product;
    symmem_status status = sm_context_check(context, async_name);
    if (status == SYMMEM_OK)
        status = sm_stream_check(context, stream, -1, async_name);
    if (status == SYMMEM_OK)
        status = sm_need_capability(context, SYMMEM_CAP_MATMUL, async_name, "matrix product");
    if (status == SYMMEM_OK)
        status = check_local_product(context, a, b, out, tensors, matrices);
    if (status == SYMMEM_OK)
        status = check_signals(context, a_chunk_signals, a_chunk_pivot, matrices[0].rows,
                               &tensors[2], &signals);
    for (int i = 0; i < 3 && status == SYMMEM_OK; i++)
        status = sm_strided_inside(&tensors[i], context, async_name, -1);
    if (status == SYMMEM_OK)
        status = sm_strided_inside(&signals, context, async_name, -1);
    if (status == SYMMEM_OK)
        status = sm_context_point(context, async_name, "collective.before");
    if (status != SYMMEM_OK)
        return status;
    sm_product_fill(&product, &matrices[0], &matrices[1], &matrices[2], tensors[0].dtype,
                    tensors[2].dtype);
    product.signals = (const uint32_t *)(void *)signals.data;
    product.signal_count = (int32_t)signals.shape[0];
    product.signal_pivot = (int32_t)a_chunk_pivot;
    pthread_mutex_lock(&context->lock);
    product.fn = context->matmul_fn;
    product.fn_arg = context->matmul_arg;
    pthread_mutex_unlock(&context->lock);
    return sm_product_run(context, async_name, NULL, &product,
                          sm_context_timeout(context, timeout_ms), stream);
}
