/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gather, then multiply. The contract and the order of the steps:
 * kernels/fused_all_gather_matmul.h.
 *
 * A rank's workspace begins with what peers read (its shard, and its scales if they are sharded).
 * The rest is private: for each lane the current shard, unless that goes to a_out, with its scales,
 * and then replicated scales that are not in the right layout.
 */
#include "ops/matmul_args.h"

#include <stdlib.h>
#include <string.h>

typedef enum scaling { NOT_SCALED, BY_TENSOR, ROWS_REPLICATED, ROWS_SHARDED } scaling;

/* Where things lie in the workspace. */
typedef struct gather_layout {
    size_t shard, scale;             /* for the peers */
    size_t at_hand[2], its_scale[2]; /* one a lane */
    size_t all_scales;
    size_t bytes;
} gather_layout;

/* What is asked for, and where it stands. */
typedef struct gather {
    sm_pipeline pipeline;
    sm_strided shard, a_scale, a_out;
    int32_t dim;
    int32_t world_size;
    bool along_k; /* dim is the last one */
    bool want_a;
    scaling scaling;
    int64_t rows; /* of a shard as a matrix */
    int64_t k;    /* its columns */
    int64_t full_shape[SYMMEM_COPY_MAX_NDIM];
    gather_layout layout;
    const char *own_shard; /* in order, as are these: for own rows, for all rows, or for one */
    const float *own_scales;
    int32_t product_count;
    symmem_matmul *products; /* one for each b: what does not depend on the shard */
} gather;

/* --- arguments ------------------------------------------------------------------------------ */

static symmem_status check_shard(gather *g, const char *name, const DLTensor *a_shard,
                                 int32_t gather_dim, int32_t world_size) {
    symmem_status status =
        sm_strided_read(sm_pipeline_context(&g->pipeline), a_shard, name, "a_shard", &g->shard);
    if (status == SYMMEM_OK)
        status = sm_strided_ndim(&g->shard, 2, SYMMEM_COPY_MAX_NDIM, name);
    if (status != SYMMEM_OK)
        return status;
    if (gather_dim < 0 || gather_dim >= g->shard.ndim)
        return sm_fail(SYMMEM_OUT_OF_RANGE, name, "", "gather_dim %d is not in [0, %d)", gather_dim,
                       g->shard.ndim);
    if (world_size < 1 || world_size > SYMMEM_MAX_WORLD_SIZE)
        return sm_fail(SYMMEM_OUT_OF_RANGE, name, "", "world_size %d", world_size);
    int32_t last = g->shard.ndim - 1;
    g->dim = gather_dim;
    g->world_size = world_size;
    g->along_k = gather_dim == last;
    g->k = g->shard.shape[last];
    memcpy(g->full_shape, g->shard.shape, sizeof g->full_shape);
    size_t along;
    if (!sm_mul_size((size_t)g->shard.shape[gather_dim], (size_t)world_size, &along) ||
        !sm_mul(g->shard.count, (size_t)world_size * g->shard.element, &(size_t){0}) ||
        !sm_strided_sides(&g->shard, world_size, &g->rows))
        return sm_fail(SYMMEM_OVERFLOW, name, "", "the size of the gathered A overflows");
    g->full_shape[gather_dim] = (int64_t)along;
    return SYMMEM_OK;
}

/* One of float32, whose shape says what it is. */
static symmem_status check_gather_scale(gather *g, const char *name, const DLTensor *a_scale) {
    int32_t ndim = g->shard.ndim;
    int64_t of_shard[SYMMEM_COPY_MAX_NDIM], of_all[SYMMEM_COPY_MAX_NDIM];
    symmem_status status =
        sm_strided_read(sm_pipeline_context(&g->pipeline), a_scale, name, "a_scale", &g->a_scale);
    if (status != SYMMEM_OK)
        return status;
    if (g->a_scale.dtype != SYMMEM_FLOAT32)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "a_scale is of %s, not of float32",
                       symmem_dtype_name(g->a_scale.dtype));
    memcpy(of_shard, g->shard.shape, sizeof of_shard);
    memcpy(of_all, g->full_shape, sizeof of_all);
    of_shard[ndim - 1] = of_all[ndim - 1] = 1;
    if (sm_strided_is_shape(&g->a_scale, ndim, of_shard))
        g->scaling = ROWS_SHARDED;
    else if (g->a_scale.count == 1)
        g->scaling = BY_TENSOR;
    else if (sm_strided_is_shape(&g->a_scale, ndim, of_all))
        g->scaling = ROWS_REPLICATED;
    else
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "",
                       "a_scale has neither one element nor one for each row of A or its shard");
    return SYMMEM_OK;
}

static symmem_status lay_out_gather(gather *g, const char *name) {
    gather_layout *p = &g->layout;
    size_t shard = g->shard.count * g->shard.element;
    size_t scales = g->scaling == ROWS_SHARDED ? (size_t)g->rows * sizeof(float) : 0;
    size_t all = g->scaling == ROWS_REPLICATED ? g->a_scale.count * sizeof(float) : 0;
    p->shard = sm_pipeline_reserve(&p->bytes, shard);
    p->scale = sm_pipeline_reserve(&p->bytes, scales);
    for (int lane = 0; lane < 2; lane++) {
        p->at_hand[lane] = sm_pipeline_reserve(&p->bytes, g->want_a ? 0 : shard);
        p->its_scale[lane] = sm_pipeline_reserve(&p->bytes, scales);
    }
    p->all_scales = sm_pipeline_reserve(&p->bytes, all);
    if (p->bytes != SIZE_MAX)
        return SYMMEM_OK;
    return sm_fail(SYMMEM_OVERFLOW, name, "", "the size of the workspace overflows");
}

symmem_status symmem_fused_all_gather_matmul_workspace(const DLTensor *a_shard,
                                                       const DLTensor *a_scale, int32_t gather_dim,
                                                       bool want_a, int32_t world_size,
                                                       size_t *bytes_p) {
    SM_PUBLIC_CALL;
    static const char name[] = "fused_all_gather_matmul";
    gather g = {.want_a = want_a};
    if (bytes_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "bytes_p is NULL");
    symmem_status status = check_shard(&g, name, a_shard, gather_dim, world_size);
    if (status == SYMMEM_OK && a_scale != NULL)
        status = check_gather_scale(&g, name, a_scale);
    if (status == SYMMEM_OK)
        status = lay_out_gather(&g, name);
    if (status == SYMMEM_OK)
        *bytes_p = g.layout.bytes;
    return status;
}

static symmem_status check_a_out(gather *g, const DLTensor *a_out) {
    const char *name = g->pipeline.name;
    symmem_status status =
        sm_strided_read(sm_pipeline_context(&g->pipeline), a_out, name, "a_out", &g->a_out);
    if (status == SYMMEM_OK)
        status = sm_strided_shape(&g->a_out, g->shard.ndim, g->full_shape, name);
    if (status == SYMMEM_OK)
        status = sm_strided_layout(&g->a_out, g->dim, name);
    if (status == SYMMEM_OK && g->a_out.dtype != g->shard.dtype)
        status = sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "a_out is of %s, a_shard of %s",
                         symmem_dtype_name(g->a_out.dtype), symmem_dtype_name(g->shard.dtype));
    return status;
}

static char *gather_at(const gather *g, size_t place) {
    return sm_pipeline_at(&g->pipeline, g->pipeline.rank) + place;
}

/* True if peers and this rank's products can use the tensor's elements in the order in which they
 * lie. */
static bool in_order(const sm_strided *tensor, int32_t dim) {
    return tensor->count == 0 || sm_strided_has_layout(tensor, dim);
}

/* Not the caller's, nor any other argument's, memory. */
static symmem_status check_gather_memory(const gather *g, const sm_strided *tensor, bool written) {
    const sm_pipeline *p = &g->pipeline;
    symmem_status status = sm_strided_inside(tensor, p->link->context, p->name, p->link->device);
    if (status == SYMMEM_OK)
        status = sm_pipeline_disjoint(p, tensor, g->layout.bytes);
    if (!written)
        return status;
    if (status == SYMMEM_OK)
        status = sm_strided_disjoint(tensor, &g->shard, p->name);
    if (status == SYMMEM_OK && g->scaling != NOT_SCALED)
        status = sm_strided_disjoint(tensor, &g->a_scale, p->name);
    return status;
}

/* Where the peers read it, in the layout in which they do, a shard needs no copy. */
static symmem_status check_shard_place(const gather *g) {
    const sm_pipeline *p = &g->pipeline;
    return g->shard.data == gather_at(g, g->layout.shard) && in_order(&g->shard, g->dim)
               ? sm_strided_inside(&g->shard, p->link->context, p->name, p->link->device)
               : check_gather_memory(g, &g->shard, false);
}

/* One b with its scale, if there is one, and its output. */
typedef struct sides {
    sm_strided b, scale, out;
} sides;

/* Into *product. */
static symmem_status check_gather_product(const gather *g, const DLTensor *from_b,
                                          const DLTensor *b_scale, const DLTensor *from_out,
                                          sides *sides_p, symmem_matmul *product) {
    const char *name = g->pipeline.name;
    sm_strided *b = &sides_p->b, *out = &sides_p->out;
    sm_matrix b_matrix, out_matrix, a_matrix = {.columns = g->full_shape[g->shard.ndim - 1]};
    symmem_status status = sm_strided_read(sm_pipeline_context(&g->pipeline), from_b, name, "b", b);
    if (status == SYMMEM_OK)
        status = sm_product_matrix(b, name, &b_matrix);
    if (status != SYMMEM_OK)
        return status;
    const int64_t b_shape[2] = {a_matrix.columns, b->shape[1]};
    int64_t out_shape[SYMMEM_COPY_MAX_NDIM];
    memcpy(out_shape, g->full_shape, sizeof out_shape);
    if (g->along_k)
        out_shape[g->dim] = g->k;
    out_shape[g->shard.ndim - 1] = b->shape[1];
    status = sm_strided_shape(b, 2, b_shape, name);
    if (status == SYMMEM_OK)
        status = sm_strided_read(sm_pipeline_context(&g->pipeline), from_out, name, "out", out);
    if (status == SYMMEM_OK)
        status = sm_strided_shape(out, g->shard.ndim, out_shape, name);
    if (status == SYMMEM_OK)
        status = sm_strided_layout(out, g->along_k ? 0 : g->dim, name);
    if (status == SYMMEM_OK)
        status = sm_product_dtypes(name, &g->shard, b, out, g->scaling != NOT_SCALED);
    if (status == SYMMEM_OK)
        status = check_gather_memory(g, b, false);
    if (status == SYMMEM_OK)
        status = check_gather_memory(g, out, true);
    if (status != SYMMEM_OK)
        return status;
    /* In its layout it can be flattened. */
    (void)sm_strided_flatten(out, g->along_k ? 0 : g->dim, &out_matrix);
    sm_product_fill(product, &a_matrix, &b_matrix, &out_matrix, g->shard.dtype, out->dtype);
    product->k = g->k;
    if (g->scaling == NOT_SCALED)
        return SYMMEM_OK;
    status = sm_product_b_scale(sm_pipeline_context(&g->pipeline), b_scale, product->n, name,
                                &sides_p->scale, &product->b_scale_by_column);
    product->b_scale = (const float *)(void *)sides_p->scale.data;
    return status == SYMMEM_OK ? check_gather_memory(g, &sides_p->scale, false) : status;
}

/* What is written, of one product, and the inputs of another, or the same. */
static symmem_status check_gather_disjoint(const gather *g, const sm_strided *written,
                                           const sides *other) {
    symmem_status status = sm_strided_disjoint(written, &other->b, g->pipeline.name);
    if (status == SYMMEM_OK) /* without one it has no extent */
        status = sm_strided_disjoint(written, &other->scale, g->pipeline.name);
    return status;
}

static symmem_status check_overlaps(const gather *g, const sides *all) {
    const char *name = g->pipeline.name;
    symmem_status status = SYMMEM_OK;
    for (int32_t i = 0; i < g->product_count && status == SYMMEM_OK; i++) {
        for (int32_t other = 0; other < g->product_count && status == SYMMEM_OK; other++) {
            status = check_gather_disjoint(g, &all[i].out, &all[other]);
            if (status == SYMMEM_OK && other < i)
                status = sm_strided_disjoint(&all[i].out, &all[other].out, name);
        }
        if (status == SYMMEM_OK && g->want_a)
            status = sm_strided_disjoint(&all[i].out, &g->a_out, name);
        if (status == SYMMEM_OK && g->want_a)
            status = check_gather_disjoint(g, &g->a_out, &all[i]);
    }
    return status;
}

/* The caller's, as many as there are products; b_scales may be NULL. */
typedef struct operands {
    const DLTensor *const *bs, *const *b_scales, *const *outs;
} operands;

/* Each by itself, into all[i] and g->products[i] if there are such. */
static symmem_status read_products(gather *g, const operands *from, sides *all) {
    symmem_status status = SYMMEM_OK;
    for (int32_t i = 0; i < g->product_count && status == SYMMEM_OK; i++) {
        sides one = {.scale = {.extent = 0}};
        symmem_matmul product;
        status = check_gather_product(
            g, from->bs[i], from->b_scales != NULL ? from->b_scales[i] : NULL, from->outs[i],
            all != NULL ? &all[i] : &one, all != NULL ? &g->products[i] : &product);
    }
    return status;
}

/* Memory for them is taken only once each is right. */
static symmem_status check_products(gather *g, const operands *from) {
    symmem_status status = read_products(g, from, NULL);
    if (status != SYMMEM_OK)
        return status;
    const size_t count = (size_t)g->product_count;
    sides *all = calloc(count, sizeof *all);
    g->products = calloc(count, sizeof *g->products);
    if (all == NULL || g->products == NULL)
        status = sm_fail(SYMMEM_OUT_OF_MEMORY, g->pipeline.name, "", "no memory for the products");
    if (status == SYMMEM_OK)
        status = read_products(g, from, all);
    if (status == SYMMEM_OK)
        status = check_overlaps(g, all);
    free(all);
    return status;
}

/* --- steps ---------------------------------------------------------------------------------- */

static symmem_call_id gather_call_id(const gather *g) {
    uint64_t detail = sm_collective_mix(0, g->pipeline.offset);
    detail = sm_collective_mix(detail, (uint64_t)g->dim);
    detail = sm_collective_mix(detail, (uint64_t)g->scaling);
    for (int32_t d = 0; d < g->shard.ndim; d++)
        detail = sm_collective_mix(detail, (uint64_t)g->shard.shape[d]);
    return (symmem_call_id){.kind = SYMMEM_CALL_FUSED_ALL_GATHER_MATMUL,
                            .dtype = (uint16_t)g->shard.dtype,
                            .count = g->shard.count,
                            .detail = detail};
}

/* A tensor that is not in the layout of that dimension, into its place in that. */
static symmem_status put_in_order(gather *g, const sm_strided *tensor, int32_t dim, size_t place) {
    if (in_order(tensor, dim))
        return SYMMEM_OK;
    symmem_strided_copy copy = sm_strided_copy_to(tensor, dim, gather_at(g, place));
    return sm_pipeline_copy_strided(&g->pipeline, COMM, &copy);
}

/* Chooses what this rank's products read: the inputs, or their ordered copies in the workspace. */
static symmem_status arrange(gather *g) {
    const int32_t rows_dim = g->along_k ? 0 : g->dim;
    symmem_status status = put_in_order(g, &g->shard, g->dim, g->layout.shard);
    g->own_shard = in_order(&g->shard, g->dim) ? g->shard.data : gather_at(g, g->layout.shard);
    if (g->scaling == NOT_SCALED || status != SYMMEM_OK)
        return status;
    const size_t place = g->scaling == ROWS_SHARDED ? g->layout.scale : g->layout.all_scales;
    const bool as_is = g->scaling == BY_TENSOR || in_order(&g->a_scale, rows_dim);
    g->own_scales = (const float *)(void *)(as_is ? g->a_scale.data : gather_at(g, place));
    return as_is ? SYMMEM_OK : put_in_order(g, &g->a_scale, rows_dim, place);
}

/* A tensor that is in order, for the peers. */
static symmem_status show(gather *g, const sm_strided *tensor, const void *in_place, size_t place) {
    if (in_place == gather_at(g, place))
        return SYMMEM_OK;
    return sm_pipeline_copy(&g->pipeline, COMM, gather_at(g, place), in_place,
                            tensor->count * tensor->element);
}

static symmem_status publish(gather *g) {
    symmem_status status = show(g, &g->shard, g->own_shard, g->layout.shard);
    if (status == SYMMEM_OK && g->scaling == ROWS_SHARDED)
        status = show(g, &g->a_scale, g->own_scales, g->layout.scale);
    return status;
}

/* All products of rank `source`'s shard, which lies at `a`, with its scales if they are sharded. */
static symmem_status multiply(gather *g, int lane, int32_t source, const char *a,
                              const char *scale) {
    symmem_status status = SYMMEM_OK;
    for (int32_t i = 0; i < g->product_count && status == SYMMEM_OK; i++) {
        symmem_matmul product = g->products[i];
        product.m = g->rows;
        product.a = a;
        product.a_row = g->along_k ? 1 : (g->k > 1 ? g->k : 1);
        product.a_column = g->along_k ? (g->rows > 1 ? g->rows : 1) : 1;
        if (g->along_k) {
            product.b = sm_bytes_behind(product.b, source * g->k * product.b_row *
                                                       (int64_t)symmem_dtype_size(product.dtype));
            product.accumulate = source != g->pipeline.rank; /* the first one */
        } else {
            product.out =
                sm_bytes_behind(product.out, source * g->rows * product.out_row *
                                                 (int64_t)symmem_dtype_size(product.out_dtype));
        }
        product.a_scale_by_row = g->scaling > BY_TENSOR;
        product.a_scale =
            g->scaling == ROWS_SHARDED ? (const float *)(const void *)scale : g->own_scales;
        if (g->scaling == ROWS_REPLICATED)
            product.a_scale = (const float *)(const void *)sm_bytes_behind(
                product.a_scale, source * g->rows * (int64_t)sizeof(float));
        status = sm_pipeline_matmul(&g->pipeline, lane, &product);
    }
    return status;
}

static int32_t source_of(const gather *g, int32_t step) {
    return (g->pipeline.rank + step) % g->world_size;
}

/* Where a step's shard lies here: every other one in the same place, unless A is wanted. */
static char *at_hand(const gather *g, int32_t step) {
    const size_t bytes = g->shard.count * g->shard.element;
    return g->want_a ? sm_bytes_behind(g->a_out.data, source_of(g, step) * (int64_t)bytes)
                     : gather_at(g, g->layout.at_hand[step % 2]);
}

/* One peer's shard, with its scales. The products of what lay there before are enqueued, and those
 * of the step before this are not. */
static symmem_status fetch(gather *g, int32_t step) {
    sm_pipeline *p = &g->pipeline;
    const char *theirs = sm_pipeline_at(p, source_of(g, step));
    symmem_status status = step > 2 ? sm_pipeline_order(p, COMPUTE, COMM) : SYMMEM_OK;
    if (status == SYMMEM_OK)
        status = sm_pipeline_copy(p, COMM, at_hand(g, step), theirs + g->layout.shard,
                                  g->shard.count * g->shard.element);
    if (status == SYMMEM_OK && g->scaling == ROWS_SHARDED)
        status = sm_pipeline_copy(p, COMM, gather_at(g, g->layout.its_scale[step % 2]),
                                  theirs + g->layout.scale, (size_t)g->rows * sizeof(float));
    return status;
}

/* The products of a step's shard, while the next one is fetched. The last ones need not wait for
 * those before, unless they are added to them. */
static symmem_status take_shard(gather *g, int32_t step) {
    sm_pipeline *p = &g->pipeline;
    const bool is_last = step + 1 == p->world_size;
    const int lane = is_last && !g->along_k ? COMM : COMPUTE;
    symmem_status status = sm_pipeline_order(p, COMM, lane);
    if (status == SYMMEM_OK && !is_last)
        status = fetch(g, step + 1);
    return status == SYMMEM_OK ? multiply(g, lane, source_of(g, step), at_hand(g, step),
                                          gather_at(g, g->layout.its_scale[step % 2]))
                               : status;
}

/* This rank's products come first. They overlap with the first barrier and the first transfer. */
static symmem_status run_gather_steps(gather *g) {
    sm_pipeline *p = &g->pipeline;
    const symmem_call_id id = gather_call_id(g);
    const size_t bytes = g->shard.count * g->shard.element;
    symmem_status status = sm_pipeline_compare(p, &id);
    if (status == SYMMEM_OK)
        status = arrange(g);
    if (status == SYMMEM_OK)
        status = sm_pipeline_order(p, COMM, COMPUTE);
    if (status == SYMMEM_OK)
        status = publish(g);
    if (status == SYMMEM_OK)
        status = sm_pipeline_barrier(p);
    if (status == SYMMEM_OK && p->world_size > 1)
        status = fetch(g, 1);
    if (status == SYMMEM_OK)
        status = multiply(g, COMPUTE, p->rank, g->own_shard, (const char *)g->own_scales);
    for (int32_t step = 1; step < p->world_size && status == SYMMEM_OK; step++)
        status = take_shard(g, step);
    if (status == SYMMEM_OK && g->want_a)
        status = sm_pipeline_copy(p, COMM, sm_bytes_behind(g->a_out.data, p->rank * (int64_t)bytes),
                                  g->own_shard, bytes);
    if (status == SYMMEM_OK)
        status = sm_pipeline_order(p, COMPUTE, COMM);
    return status == SYMMEM_OK ? sm_pipeline_barrier(p) : status;
}

/* --- the calls ------------------------------------------------------------------------------ */

static symmem_status check_tensors(gather *g, const DLTensor *a_shard, const DLTensor *a_scale,
                                   int32_t gather_dim, const DLTensor *a_out) {
    const sm_pipeline *p = &g->pipeline;
    symmem_status status = check_shard(g, p->name, a_shard, gather_dim, p->world_size);
    if (status == SYMMEM_OK && a_scale != NULL)
        status = check_gather_scale(g, p->name, a_scale);
    if (status == SYMMEM_OK && g->want_a)
        status = check_a_out(g, a_out);
    if (status == SYMMEM_OK)
        status = lay_out_gather(g, p->name);
    if (status == SYMMEM_OK)
        status = sm_pipeline_fits(p, g->layout.bytes);
    if (status == SYMMEM_OK)
        status = check_shard_place(g);
    if (status == SYMMEM_OK && a_scale != NULL)
        status = check_gather_memory(g, &g->a_scale, false);
    if (status == SYMMEM_OK && g->want_a)
        status = check_gather_memory(g, &g->a_out, true);
    return status;
}

static symmem_status check_count(const gather *g, const operands *from) {
    const char *name = g->pipeline.name;
    if (g->product_count < 1 || from->bs == NULL || from->outs == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "%s",
                       g->product_count < 1 ? "b_count is below 1" : "bs or outs is NULL");
    if (g->product_count <= SYMMEM_FUSED_MAX_PRODUCTS)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, name, "", "b_count is %d, more than %d", g->product_count,
                  SYMMEM_FUSED_MAX_PRODUCTS);
    return sm_error_sizes(SYMMEM_FUSED_MAX_PRODUCTS, (uint64_t)g->product_count);
}

static symmem_status run_gather(gather *g, const DLTensor *a_shard, const DLTensor *a_scale,
                                int32_t gather_dim, const operands *from, const DLTensor *a_out) {
    symmem_status status = check_count(g, from);
    if (status != SYMMEM_OK)
        return status;
    g->want_a = a_out != NULL;
    status = check_tensors(g, a_shard, a_scale, gather_dim, a_out);
    if (status == SYMMEM_OK)
        status = check_products(g, from);
    if (status == SYMMEM_OK)
        status = sm_pipeline_begin(&g->pipeline);
    if (status == SYMMEM_OK)
        status = sm_pipeline_end(&g->pipeline, run_gather_steps(g));
    free(g->products);
    return status;
}

symmem_status symmem_fused_all_gather_matmul(symmem_handle *workspace, const DLTensor *a_shard,
                                             int32_t gather_dim, int32_t b_count,
                                             const DLTensor *const *bs, const DLTensor *a_out,
                                             const DLTensor *const *outs, int32_t channel,
                                             uint32_t timeout_ms, symmem_stream *stream,
                                             symmem_stream *second) {
    SM_PUBLIC_CALL;
    gather g = {.want_a = false};
    symmem_status status = sm_pipeline_check(&g.pipeline, "fused_all_gather_matmul", workspace,
                                             channel, timeout_ms, stream, second);
    if (status != SYMMEM_OK)
        return status;
    g.product_count = b_count;
    return run_gather(&g, a_shard, NULL, gather_dim, &(operands){.bs = bs, .outs = outs}, a_out);
}

symmem_status symmem_fused_all_gather_scaled_matmul(
    symmem_handle *workspace, const DLTensor *a_shard, const DLTensor *a_scale, int32_t gather_dim,
    int32_t b_count, const DLTensor *const *bs, const DLTensor *const *b_scales,
    const DLTensor *a_out, const DLTensor *const *outs, int32_t channel, uint32_t timeout_ms,
    symmem_stream *stream, symmem_stream *second) {
    SM_PUBLIC_CALL;
    static const char name[] = "fused_all_gather_scaled_matmul";
    gather g = {.want_a = false};
    symmem_status status =
        sm_pipeline_check(&g.pipeline, name, workspace, channel, timeout_ms, stream, second);
    if (status != SYMMEM_OK)
        return status;
    if (a_scale == NULL || b_scales == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, name, "", "%s is NULL",
                       a_scale == NULL ? "a_scale" : "b_scales");
    g.product_count = b_count;
    return run_gather(&g, a_shard, a_scale, gather_dim,
                      &(operands){.bs = bs, .b_scales = b_scales, .outs = outs}, a_out);
}
