/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multiply, then reduce and scatter. The contract and the order of the steps:
 * kernels/fused_matmul_reduce_scatter.h.
 *
 * A rank's workspace begins with two chunks that peers read, one for each lane. The rest is
 * private: the chunks of all ranks that become this rank's output, and copies of A and of its
 * scales where their layout does not do.
 */
#include "ops/matmul_args.h"

#include <string.h>

typedef struct scatter_layout {
    size_t sent[2]; /* for the peers */
    size_t parts;   /* from each rank, `stride` bytes apart */
    size_t stride;
    size_t a, a_scale;
    size_t bytes;
} scatter_layout;

typedef struct scatter {
    sm_pipeline pipeline;
    sm_strided a, b, a_scale, b_scale, out;
    int32_t dim;
    int32_t world_size;
    int32_t rows_dim; /* whose layout the rows are taken from */
    bool along_n;     /* dim is the last one */
    bool scaled, scaled_by_row;
    bool copy_a, copy_scale;
    symmem_reduce_op op;
    sm_matrix a_matrix, b_matrix;
    int64_t rows, columns; /* of a chunk */
    scatter_layout layout;
    symmem_matmul product; /* what does not depend on the chunk */
} scatter;

/* --- arguments ------------------------------------------------------------------------------ */

static symmem_status check_sides(scatter *s, const char *name) {
    int32_t last = s->a.ndim - 1;
    int64_t out_shape[SYMMEM_COPY_MAX_NDIM];
    const int64_t b_shape[2] = {s->a.shape[last], s->b.ndim == 2 ? s->b.shape[1] : 0};
    symmem_status status = sm_product_matrix(&s->b, name, &s->b_matrix);
    if (status == SYMMEM_OK)
        status = sm_strided_shape(&s->b, 2, b_shape, name);
    if (status != SYMMEM_OK)
        return status;
    memcpy(out_shape, s->a.shape, sizeof out_shape);
    out_shape[last] = s->b.shape[1];
    if (out_shape[s->dim] % s->world_size != 0)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "",
                       "dimension %d of the product has %lld elements, no multiple of %d", s->dim,
                       (long long)out_shape[s->dim], s->world_size);
    out_shape[s->dim] /= s->world_size;
    status = sm_strided_shape(&s->out, s->a.ndim, out_shape, name);
    if (status == SYMMEM_OK)
        status = sm_strided_layout(&s->out, s->rows_dim, name);
    return status;
}

static symmem_status check_shapes(scatter *s, const char *name, const DLTensor *a,
                                  const DLTensor *b, int32_t scatter_dim, const DLTensor *out,
                                  int32_t world_size) {
    symmem_status status = sm_strided_read(sm_pipeline_context(&s->pipeline), a, name, "a", &s->a);
    if (status == SYMMEM_OK)
        status = sm_strided_ndim(&s->a, 2, SYMMEM_COPY_MAX_NDIM, name);
    if (status == SYMMEM_OK)
        status = sm_strided_read(sm_pipeline_context(&s->pipeline), b, name, "b", &s->b);
    if (status == SYMMEM_OK)
        status = sm_strided_read(sm_pipeline_context(&s->pipeline), out, name, "out", &s->out);
    if (status != SYMMEM_OK)
        return status;
    if (scatter_dim < 0 || scatter_dim >= s->a.ndim)
        return sm_fail(SYMMEM_OUT_OF_RANGE, name, "", "scatter_dim %d is not in [0, %d)",
                       scatter_dim, s->a.ndim);
    if (world_size < 1 || world_size > SYMMEM_MAX_WORLD_SIZE)
        return sm_fail(SYMMEM_OUT_OF_RANGE, name, "", "world_size %d", world_size);
    s->dim = scatter_dim;
    s->world_size = world_size;
    s->along_n = scatter_dim == s->a.ndim - 1;
    s->rows_dim = s->along_n ? 0 : scatter_dim;
    status = check_sides(s, name);
    if (status != SYMMEM_OK)
        return status;
    s->columns = s->out.shape[s->a.ndim - 1];
    int64_t rows_of_a;
    if (sm_strided_sides(&s->out, world_size, &s->rows) && sm_strided_sides(&s->a, 1, &rows_of_a))
        return SYMMEM_OK;
    return sm_fail(SYMMEM_OVERFLOW, name, "", "the size of the product overflows");
}

static symmem_status check_scatter_scale(scatter *s, const char *name, const DLTensor *a_scale) {
    int64_t by_row[SYMMEM_COPY_MAX_NDIM];
    symmem_status status =
        sm_strided_read(sm_pipeline_context(&s->pipeline), a_scale, name, "a_scale", &s->a_scale);
    if (status != SYMMEM_OK)
        return status;
    if (s->a_scale.dtype != SYMMEM_FLOAT32)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "a_scale is of %s, not of float32",
                       symmem_dtype_name(s->a_scale.dtype));
    memcpy(by_row, s->a.shape, sizeof by_row);
    by_row[s->a.ndim - 1] = 1;
    s->scaled_by_row = sm_strided_is_shape(&s->a_scale, s->a.ndim, by_row);
    if (!s->scaled_by_row && s->a_scale.count != 1)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "",
                       "a_scale has neither one element nor one for each row of a");
    return SYMMEM_OK;
}

static symmem_status lay_out_scatter(scatter *s, const char *name) {
    scatter_layout *p = &s->layout;
    size_t chunk = s->out.count * s->out.element, parts = SIZE_MAX;
    s->copy_a = !sm_strided_flatten(&s->a, s->rows_dim, &s->a_matrix);
    s->copy_scale = s->scaled_by_row && !sm_strided_has_layout(&s->a_scale, s->rows_dim);
    p->sent[0] = sm_pipeline_reserve(&p->bytes, chunk);
    p->stride = p->bytes;
    p->sent[1] = sm_pipeline_reserve(&p->bytes, chunk);
    (void)sm_mul(p->stride, (size_t)s->world_size, &parts);
    p->parts = sm_pipeline_reserve(&p->bytes, parts);
    p->a = sm_pipeline_reserve(&p->bytes, s->copy_a ? s->a.count * s->a.element : 0);
    p->a_scale =
        sm_pipeline_reserve(&p->bytes, s->copy_scale ? s->a_scale.count * sizeof(float) : 0);
    return p->bytes != SIZE_MAX
               ? SYMMEM_OK
               : sm_fail(SYMMEM_OVERFLOW, name, "", "the size of the workspace overflows");
}

symmem_status symmem_fused_matmul_reduce_scatter_workspace(const DLTensor *a, const DLTensor *b,
                                                           const DLTensor *a_scale,
                                                           int32_t scatter_dim, const DLTensor *out,
                                                           int32_t world_size, size_t *bytes_p) {
    SM_PUBLIC_CALL;
    static const char name[] = "fused_matmul_reduce_scatter";
    scatter s = {.scaled = a_scale != NULL};
    if (bytes_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "bytes_p is NULL");
    symmem_status status = check_shapes(&s, name, a, b, scatter_dim, out, world_size);
    if (status == SYMMEM_OK && s.scaled)
        status = check_scatter_scale(&s, name, a_scale);
    if (status == SYMMEM_OK)
        status = lay_out_scatter(&s, name);
    if (status == SYMMEM_OK)
        *bytes_p = s.layout.bytes;
    return status;
}

static symmem_status check_scatter_memory(const scatter *s) {
    const sm_pipeline *p = &s->pipeline;
    const sm_strided *const tensors[] = {&s->a, &s->b, &s->out, &s->a_scale, &s->b_scale};
    int count = s->scaled ? 5 : 3;
    symmem_status status = SYMMEM_OK;
    for (int i = 0; i < count && status == SYMMEM_OK; i++) {
        status = sm_strided_inside(tensors[i], p->link->context, p->name, p->link->device);
        if (status == SYMMEM_OK)
            status = sm_pipeline_disjoint(p, tensors[i], s->layout.bytes);
        if (status == SYMMEM_OK && tensors[i] != &s->out)
            status = sm_strided_disjoint(&s->out, tensors[i], p->name);
    }
    return status;
}

static symmem_status check_op(scatter *s, symmem_reduce_op op) {
    const char *name = s->pipeline.name;
    s->op = op;
    if ((unsigned)op >= SYMMEM_REDUCE_OP_COUNT)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "unknown operation %d", (int)op);
    if (op != SYMMEM_SUM && op != SYMMEM_AVG)
        return sm_fail(SYMMEM_UNSUPPORTED, name, "", "op is %s, not sum or avg",
                       sm_reduce_op_name(op));
    return sm_product_dtypes(name, &s->a, &s->b, &s->out, s->scaled);
}

/* --- steps ---------------------------------------------------------------------------------- */

static symmem_call_id scatter_call_id(const scatter *s) {
    uint64_t detail = sm_collective_mix(0, s->pipeline.offset);
    detail = sm_collective_mix(detail, (uint64_t)s->dim);
    for (int32_t d = 0; d < s->out.ndim; d++)
        detail = sm_collective_mix(detail, (uint64_t)s->out.shape[d]);
    return (symmem_call_id){.kind = SYMMEM_CALL_FUSED_MATMUL_REDUCE_SCATTER,
                            .dtype = (uint16_t)s->out.dtype,
                            .op = (uint16_t)s->op,
                            .count = s->out.count,
                            .detail = detail};
}

static char *scatter_at(const scatter *s, size_t place) {
    return sm_pipeline_at(&s->pipeline, s->pipeline.rank) + place;
}

/* a and its scales in an order in which they can be cut. */
static symmem_status prepare(scatter *s) {
    symmem_status status = SYMMEM_OK;
    sm_strided a = s->a;
    if (s->copy_a) {
        symmem_strided_copy copy =
            sm_strided_copy_to(&s->a, s->rows_dim, scatter_at(s, s->layout.a));
        status = sm_pipeline_copy_strided(&s->pipeline, COMM, &copy);
        a.data = copy.dst;
        memcpy(a.strides, copy.dst_strides, sizeof a.strides);
        (void)sm_strided_flatten(&a, s->rows_dim, &s->a_matrix);
    }
    s->product.a_scale = (const float *)(void *)s->a_scale.data;
    if (status == SYMMEM_OK && s->copy_scale) {
        symmem_strided_copy copy =
            sm_strided_copy_to(&s->a_scale, s->rows_dim, scatter_at(s, s->layout.a_scale));
        status = sm_pipeline_copy_strided(&s->pipeline, COMM, &copy);
        s->product.a_scale = copy.dst;
    }
    s->product.a = s->a_matrix.data;
    s->product.a_row = s->a_matrix.row_stride;
    s->product.a_column = s->a_matrix.column_stride;
    return status;
}

/* This rank's part of rank `target`'s chunk. */
static symmem_status produce(scatter *s, int lane, int32_t target, void *dst) {
    symmem_matmul product = s->product;
    int64_t element = (int64_t)symmem_dtype_size(product.dtype);
    product.out = dst;
    if (s->along_n) {
        product.b = sm_bytes_behind(product.b, target * s->columns * product.b_column * element);
        if (product.b_scale_by_column)
            product.b_scale = (const float *)(const void *)sm_bytes_behind(
                product.b_scale, target * s->columns * (int64_t)sizeof(float));
    } else {
        product.a = sm_bytes_behind(product.a, target * s->rows * product.a_row * element);
        if (product.a_scale_by_row)
            product.a_scale = (const float *)(const void *)sm_bytes_behind(
                product.a_scale, target * s->rows * (int64_t)sizeof(float));
    }
    return sm_pipeline_matmul(&s->pipeline, lane, &product);
}

/* Makes a chunk for one peer, while other ranks make one for this rank, and fetches that. The
 * transfer overlaps with the next product, in the end with this rank's own. A product overwrites
 * the chunk of two steps before; each rank had fetched that when it came to the barrier in
 * between. */
static symmem_status exchange(scatter *s, int32_t step) {
    sm_pipeline *p = &s->pipeline;
    const bool is_first = step == 1;
    const int lane = is_first ? COMM : COMPUTE;
    const int32_t source = (p->rank - step + p->world_size) % p->world_size;
    const int32_t target = (p->rank + step) % p->world_size;
    const size_t sent = s->layout.sent[step % 2];
    symmem_status status = produce(s, lane, target, scatter_at(s, sent));
    if (status == SYMMEM_OK)
        status = sm_pipeline_order(p, lane, is_first ? COMPUTE : COMM);
    if (status == SYMMEM_OK)
        status = sm_pipeline_barrier(p);
    if (status == SYMMEM_OK && !is_first)
        status = sm_pipeline_order(p, COMM, COMPUTE);
    return status == SYMMEM_OK
               ? sm_pipeline_copy(
                     p, COMM, scatter_at(s, s->layout.parts + (size_t)source * s->layout.stride),
                     sm_pipeline_at(p, source) + sent, s->out.count * s->out.element)
               : status;
}

static symmem_status reduce(scatter *s) {
    const symmem_local_reduce local = {.size = sizeof local,
                                       .dtype = s->out.dtype,
                                       .op = s->op,
                                       .src_count = s->world_size,
                                       .count = s->out.count,
                                       .src = scatter_at(s, s->layout.parts),
                                       .src_stride = s->layout.stride,
                                       .dst = s->out.data};
    return sm_pipeline_reduce(&s->pipeline, COMM, &local);
}

static symmem_status run_scatter_steps(scatter *s) {
    sm_pipeline *p = &s->pipeline;
    const symmem_call_id id = scatter_call_id(s);
    symmem_status status = sm_pipeline_compare(p, &id);
    if (status == SYMMEM_OK)
        status = prepare(s);
    if (status == SYMMEM_OK && p->world_size == 1) /* else the first exchange does that */
        status = sm_pipeline_order(p, COMM, COMPUTE);
    for (int32_t step = 1; step < p->world_size && status == SYMMEM_OK; step++)
        status = exchange(s, step);
    if (status == SYMMEM_OK)
        status = produce(s, COMPUTE, p->rank,
                         scatter_at(s, s->layout.parts + (size_t)p->rank * s->layout.stride));
    if (status == SYMMEM_OK)
        status = sm_pipeline_order(p, COMPUTE, COMM);
    /* Before the last barrier, which the next call comes after on any stream. */
    if (status == SYMMEM_OK)
        status = reduce(s);
    return status == SYMMEM_OK ? sm_pipeline_barrier(p) : status;
}

/* --- the calls ------------------------------------------------------------------------------ */

/* The caller's. */
typedef struct scatter_args {
    const DLTensor *a, *b, *a_scale, *b_scale, *out; /* scales NULL: none */
    symmem_reduce_op op;
    int32_t scatter_dim;
} scatter_args;

static symmem_status check_all(scatter *s, const scatter_args *args) {
    const sm_pipeline *p = &s->pipeline;
    symmem_status status =
        check_shapes(s, p->name, args->a, args->b, args->scatter_dim, args->out, p->world_size);
    if (status == SYMMEM_OK && s->scaled)
        status = check_scatter_scale(s, p->name, args->a_scale);
    if (status == SYMMEM_OK)
        status = check_op(s, args->op);
    if (status == SYMMEM_OK)
        status = lay_out_scatter(s, p->name);
    if (status == SYMMEM_OK)
        status = sm_pipeline_fits(p, s->layout.bytes);
    bool by_column = false;
    if (status == SYMMEM_OK && s->scaled)
        status = sm_product_b_scale(sm_pipeline_context(&s->pipeline), args->b_scale, s->b.shape[1],
                                    p->name, &s->b_scale, &by_column);
    if (status == SYMMEM_OK)
        status = check_scatter_memory(s);
    if (status != SYMMEM_OK)
        return status;
    int64_t columns = s->columns > 1 ? s->columns : 1;
    const sm_matrix chunk = {
        .rows = s->rows, .columns = s->columns, .row_stride = columns, .column_stride = 1};
    sm_matrix a_matrix = s->a_matrix;
    a_matrix.columns = s->a.shape[s->a.ndim - 1];
    sm_product_fill(&s->product, &a_matrix, &s->b_matrix, &chunk, s->a.dtype, s->out.dtype);
    s->product.a_scale_by_row = s->scaled_by_row;
    s->product.b_scale = (const float *)(void *)s->b_scale.data;
    s->product.b_scale_by_column = by_column;
    return SYMMEM_OK;
}

/* `status`: what sm_pipeline_check has said. */
static symmem_status run_scatter(scatter *s, const scatter_args *args, symmem_status status) {
    if (status == SYMMEM_OK)
        status = check_all(s, args);
    if (status == SYMMEM_OK)
        status = sm_pipeline_begin(&s->pipeline);
    return status == SYMMEM_OK ? sm_pipeline_end(&s->pipeline, run_scatter_steps(s)) : status;
}

symmem_status symmem_fused_matmul_reduce_scatter(symmem_handle *workspace, const DLTensor *a,
                                                 const DLTensor *b, symmem_reduce_op op,
                                                 int32_t scatter_dim, const DLTensor *out,
                                                 int32_t channel, uint32_t timeout_ms,
                                                 symmem_stream *stream, symmem_stream *second) {
    SM_PUBLIC_CALL;
    scatter s = {.scaled = false};
    const scatter_args args = {.a = a, .b = b, .out = out, .op = op, .scatter_dim = scatter_dim};
    return run_scatter(&s, &args,
                       sm_pipeline_check(&s.pipeline, "fused_matmul_reduce_scatter", workspace,
                                         channel, timeout_ms, stream, second));
}

symmem_status symmem_fused_scaled_matmul_reduce_scatter(
    symmem_handle *workspace, const DLTensor *a, const DLTensor *b, const DLTensor *a_scale,
    const DLTensor *b_scale, symmem_reduce_op op, int32_t scatter_dim, const DLTensor *out,
    int32_t channel, uint32_t timeout_ms, symmem_stream *stream, symmem_stream *second) {
    SM_PUBLIC_CALL;
    scatter s = {.scaled = true};
    const scatter_args args = {.a = a,
                               .b = b,
                               .a_scale = a_scale,
                               .b_scale = b_scale,
                               .out = out,
                               .op = op,
                               .scatter_dim = scatter_dim};
    return run_scatter(&s, &args,
                       sm_pipeline_check(&s.pipeline, "fused_scaled_matmul_reduce_scatter",
                                         workspace, channel, timeout_ms, stream, second));
}
