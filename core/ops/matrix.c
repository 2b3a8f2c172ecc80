/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors with strides, and matrices cut from them. */
#include "ops/matrix.h"

#include <string.h>

static symmem_status refuse(const char *operation, const char *what, const char *why) {
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "%s %s", what, why);
}

static symmem_status overflows(const char *operation, const char *what) {
    return sm_fail(SYMMEM_OVERFLOW, operation, "", "the size of %s overflows", what);
}

/* Copies shape and strides, counts the elements. */
static symmem_status measure(const DLTensor *from, const char *operation, sm_strided *tensor) {
    size_t count = 1, last = 0;
    bool empty = false, fits = true; /* as far as its strides go */
    int64_t dense = 1;
    for (int32_t d = from->ndim - 1; d >= 0; d--) {
        int64_t size = from->shape[d];
        int64_t stride = from->strides != NULL ? from->strides[d] : dense;
        if (size < 0 || (stride < 0 && size > 1))
            return refuse(operation, tensor->what,
                          size < 0 ? "has a negative size" : "has a negative stride");
        tensor->shape[d] = size;
        tensor->strides[d] = stride;
        empty = empty || size == 0;
        size_t step = 0;
        if (size > 1)
            fits = fits && sm_mul((size_t)size - 1, (size_t)stride, &step);
        if (size > 0 && !sm_mul_size(count, (size_t)size, &count))
            return overflows(operation, tensor->what); /* empty or not: its sides are multiplied */
        fits = fits && sm_add(last, step, &last);
        dense = (int64_t)count;
    }
    /* Copies of it have this size, however near each other its own elements are. */
    size_t bytes;
    if (!sm_mul_size(count, tensor->element, &bytes))
        return overflows(operation, tensor->what);
    tensor->count = empty ? 0 : count;
    if (!empty &&
        (!fits || !sm_add(last, 1, &last) || !sm_mul_size(last, tensor->element, &tensor->extent)))
        return overflows(operation, tensor->what);
    return SYMMEM_OK;
}

symmem_status sm_strided_read(symmem_context *context, const DLTensor *from, const char *operation,
                              const char *what, sm_strided *tensor_p) {
    sm_strided tensor = {.what = what};
    symmem_status status = sm_tensor_form(context, from, operation, what);
    if (status != SYMMEM_OK)
        return status;
    if (!sm_dtype_of(from->dtype, &tensor.dtype))
        return refuse(operation, what, "has an unknown dtype");
    if (from->ndim > SYMMEM_COPY_MAX_NDIM)
        return refuse(operation, what, "has more than 8 dimensions");
    tensor.ndim = from->ndim;
    tensor.element = symmem_dtype_size(tensor.dtype);
    status = measure(from, operation, &tensor);
    if (status == SYMMEM_OK)
        status =
            sm_tensor_locate(from, operation, what, tensor.element, tensor.extent, &tensor.data);
    if (status == SYMMEM_OK)
        *tensor_p = tensor;
    return status;
}

symmem_status sm_strided_ndim(const sm_strided *tensor, int32_t low, int32_t high,
                              const char *operation) {
    if (tensor->ndim >= low && tensor->ndim <= high)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "%s has %d dimensions, not %s%d",
                  tensor->what, tensor->ndim, low == high ? "" : "at least ", low);
    return sm_error_sizes((uint64_t)low, (uint64_t)tensor->ndim);
}

bool sm_strided_is_shape(const sm_strided *tensor, int32_t ndim, const int64_t *shape) {
    return tensor->ndim == ndim && memcmp(tensor->shape, shape, (size_t)ndim * sizeof *shape) == 0;
}

symmem_status sm_strided_shape(const sm_strided *tensor, int32_t ndim, const int64_t *shape,
                               const char *operation) {
    if (sm_strided_is_shape(tensor, ndim, shape))
        return SYMMEM_OK;
    if (tensor->ndim != ndim)
        return sm_strided_ndim(tensor, ndim, ndim, operation);
    int32_t d = 0;
    while (tensor->shape[d] == shape[d])
        d++;
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "",
                  "dimension %d of %s has %lld elements, not %lld", d, tensor->what,
                  (long long)tensor->shape[d], (long long)shape[d]);
    return sm_error_sizes((uint64_t)shape[d], (uint64_t)tensor->shape[d]);
}

/* --- layout --------------------------------------------------------------------------------- */

/* Writes nothing where strides is NULL. */
static bool walk_layout(int32_t ndim, const int64_t *shape, int32_t dim, int64_t *strides) {
    size_t stride = 1;
    for (int32_t d = ndim - 1; d >= -1; d--) {
        int32_t at = d >= 0 ? d : dim; /* the one that was moved comes last here */
        if (d == dim || at >= ndim)
            continue;
        if (strides != NULL)
            strides[at] = (int64_t)stride;
        size_t size = shape[at] > 0 ? (size_t)shape[at] : 1;
        if (!sm_mul_size(stride, size, &stride))
            return false;
    }
    return true;
}

bool sm_layout_strides(int32_t ndim, const int64_t *shape, int32_t dim, int64_t *strides) {
    return walk_layout(ndim, shape, dim, NULL) && walk_layout(ndim, shape, dim, strides);
}

bool sm_strided_has_layout(const sm_strided *tensor, int32_t dim) {
    int64_t strides[SYMMEM_COPY_MAX_NDIM];
    if (tensor->count == 0)
        return true;
    (void)sm_layout_strides(tensor->ndim, tensor->shape, dim, strides); /* they were counted */
    for (int32_t d = 0; d < tensor->ndim; d++)
        if (tensor->shape[d] > 1 && tensor->strides[d] != strides[d])
            return false;
    return true;
}

symmem_status sm_strided_layout(const sm_strided *tensor, int32_t dim, const char *operation) {
    if (sm_strided_has_layout(tensor, dim))
        return SYMMEM_OK;
    if (dim == 0)
        return refuse(operation, tensor->what, "is not contiguous");
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "",
                   "%s is not contiguous with dimension %d moved to the front", tensor->what, dim);
}

static int64_t at_least_one(int64_t size) {
    return size > 1 ? size : 1;
}

/* Puts the strides of sides without a second element right. */
static bool settle(sm_matrix *m) {
    if ((m->columns <= 1 || m->column_stride == 1) &&
        (m->rows <= 1 || m->row_stride >= at_least_one(m->columns))) {
        m->column_stride = 1;
        if (m->rows <= 1)
            m->row_stride = at_least_one(m->columns);
        return true;
    }
    if ((m->rows <= 1 || m->row_stride == 1) && m->column_stride >= at_least_one(m->rows)) {
        m->row_stride = 1;
        return true;
    }
    return false;
}

bool sm_strided_flatten(const sm_strided *tensor, int32_t dim, sm_matrix *matrix_p) {
    int32_t last = tensor->ndim - 1;
    sm_matrix m = {.data = tensor->data,
                   .rows = 1,
                   .columns = tensor->shape[last],
                   .row_stride = 1,
                   .column_stride = tensor->strides[last]};
    for (int32_t d = last - 1; d >= -1; d--) {
        int32_t at = d >= 0 ? d : dim;
        if (d == dim)
            continue;
        int64_t size = tensor->shape[at];
        if (size != 1 && tensor->count > 0) {
            if (m.rows == 1)
                m.row_stride = tensor->strides[at];
            else if ((uint64_t)tensor->strides[at] != (uint64_t)m.row_stride * (uint64_t)m.rows)
                return false; /* no place is that far off, but an argument may say so */
        }
        m.rows *= size;
    }
    if (tensor->count == 0) { /* whatever the strides */
        m.column_stride = 1;
        m.row_stride = at_least_one(m.columns);
    } else if (!settle(&m)) {
        return false;
    }
    *matrix_p = m;
    return true;
}

bool sm_strided_sides(const sm_strided *tensor, int32_t ranks, int64_t *rows_p) {
    size_t rows = 1, widest = (size_t)ranks * sizeof(double), bytes;
    for (int32_t d = 0; d < tensor->ndim - 1; d++)
        rows *= (size_t)tensor->shape[d]; /* the elements were counted */
    *rows_p = (int64_t)rows;
    return sm_mul_size(rows, widest, &bytes) &&
           sm_mul_size((size_t)tensor->shape[tensor->ndim - 1], widest, &bytes);
}

symmem_status sm_strided_disjoint(const sm_strided *a, const sm_strided *b, const char *operation) {
    uintptr_t at = (uintptr_t)a->data, other = (uintptr_t)b->data;
    if (a->extent == 0 || b->extent == 0 || at + a->extent <= other || other + b->extent <= at)
        return SYMMEM_OK;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "%s overlaps %s", a->what, b->what);
}

symmem_status sm_strided_inside(const sm_strided *tensor, symmem_context *context,
                                const char *operation, int32_t device) {
    sm_refs refs;
    if (tensor->count == 0)
        return SYMMEM_OK;
    sm_refs_init(&refs, NULL);
    symmem_status status = sm_refs_cover(&refs, context, operation, tensor->data, tensor->extent);
    if (status == SYMMEM_OK && device >= 0)
        status = sm_refs_device(&refs, context, operation, device, &device);
    sm_refs_finish(&refs);
    return status;
}

symmem_strided_copy sm_strided_copy_to(const sm_strided *src, int32_t dim, void *dst) {
    symmem_strided_copy copy = {.size = sizeof copy,
                                .element = src->element,
                                .ndim = src->ndim,
                                .src = src->data,
                                .dst = dst};
    memcpy(copy.shape, src->shape, sizeof copy.shape);
    memcpy(copy.src_strides, src->strides, sizeof copy.src_strides);
    /* It does not overflow: the elements were counted. */
    (void)sm_layout_strides(src->ndim, src->shape, dim, copy.dst_strides);
    return copy;
}
