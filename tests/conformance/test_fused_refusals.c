/* SPDX-License-Identifier: BSD-3-Clause */
/* Fused operations: arguments that are refused, or are just not. */
#include "backend_table.h"
#include "fused_pair.h"

/* Two products: nothing written lies in any input of either, nor a scale in the workspace. */
TK_TEST(fused_refusals, overlaps, "SM-FUSED-10", .needs = PRODUCTS,
        .min_ranks = 2, /* or b would not find room in out */
        .max_ranks = 3) {
    struct fused_tensor more;
    const int64_t one_shape[1] = {1};
    struct fused_pair *x = pair_begin(t);
    fused_make(t, &more, SYMMEM_FLOAT32, 2, x->out.shape, 0);
    int64_t shape[1] = {one_shape[0]};
    DLTensor in_out = x->out.dl, in_a = x->a_out.dl, in_workspace = x->b.dl, one = x->b.dl;
    DLTensor b_in_out = x->b.dl, b_in_a = x->b.dl;
    b_in_out.data = x->out.dl.data;
    b_in_a.data = x->a_out.dl.data;
    in_workspace.data = ops_own(t, x->workspace);
    DLTensor *const scales_of_one[] = {&in_out, &in_a, &in_workspace, &one};
    for (int i = 0; i < 4; i++) {
        scales_of_one[i]->ndim = 1;
        scales_of_one[i]->shape = shape;
        scales_of_one[i]->strides = NULL;
    }
#define REFUSED(b0, b1, scale0, scale1)                                                            \
    do {                                                                                           \
        const DLTensor *bs[2] = {b0, b1}, *outs[2] = {&x->out.dl, &more.dl};                       \
        const DLTensor *scales[2] = {scale0, scale1};                                              \
        TK_FAILS(t, INVALID_ARGUMENT,                                                              \
                 symmem_fused_all_gather_scaled_matmul(x->workspace, &x->shard.dl, &one, 0, 2, bs, \
                                                       scales, &x->a_out.dl, outs, 0, 2000, NULL,  \
                                                       NULL));                                     \
    } while (0)
    const DLTensor *b = &x->b.dl;
    REFUSED(b, &b_in_out, &one, &one);
    REFUSED(&b_in_a, b, &one, &one);
    REFUSED(b, b, &in_out, &one);
    REFUSED(b, b, &one, &in_out);
    REFUSED(b, b, &one, &in_a);
    REFUSED(b, b, &in_workspace, &one);
#undef REFUSED
    in_out.data = x->part.dl.data;
    const DLTensor *const scales[] = {&in_out, &in_workspace};
    for (int i = 0; i < 2; i++)
        TK_FAILS(t, INVALID_ARGUMENT,
                 symmem_fused_scaled_matmul_reduce_scatter(x->workspace, &x->a.dl, &x->scatter_b.dl,
                                                           &one, scales[i], SYMMEM_SUM, 0,
                                                           &x->part.dl, 0, 2000, NULL, NULL));
    pair_expect_untouched(t, x);
}

/* A shard in the own workspace is there already, if it lies where the peers read it. */
TEST_WITH_AND_WITHOUT_STREAM(fused_refusals, shard_in_the_workspace, "SM-FUSED-17", PRODUCTS,
                             .max_ranks = 3) {
    struct fused_pair *x = pair_begin(t);
    struct fused_tensor there = x->shard;
    struct pair_call call = pair_call(x);
    there.memory = ops_own(t, x->workspace);
    there.dl.data = there.memory;
    there.dl.shape = there.shape;
    there.dl.strides = there.strides;
    call.shard = &there.dl;
    call.stream = stream;
    TK_OK(t, symmem_copy(t->context, there.memory, x->shard.memory, there.bytes, NULL));
    there.dl.byte_offset = sizeof(float);
    TK_FAILS(t, INVALID_ARGUMENT, pair_run(&call, PAIR_GATHER));
    there.dl.byte_offset = 0;
    there.strides[0] = 1;
    there.strides[1] = PAIR_ROWS;
    TK_FAILS(t, INVALID_ARGUMENT, pair_run(&call, PAIR_GATHER));
    pair_expect_untouched(t, x);
    memcpy(there.strides, x->shard.strides, sizeof there.strides);
    call.limit_ms = LONG_MS;
    for (int i = 0; i < 3; i++) { /* the same again: it stays */
        TK_OK(t, pair_run(&call, PAIR_GATHER));
        tk_synchronize(t, stream);
        pair_expect_gather(t, x, 1);
        fused_expect(t, &there, NULL, "the shard in the workspace");
    }
}

/* What a tensor with strides may be. Local, and nothing of it is read. */
TK_TEST(fused_refusals, descriptors, "SM-FUSED-10", .max_ranks = 1) {
    enum { NO_SHAPE = 1, NO_DATA = 2, ODD = 4, NO_DTYPE = 8 };
    const int64_t most = INT64_MAX, far = INT64_C(1) << 40;
    const struct {
        int32_t ndim, dim;
        int64_t shape[3], strides[3]; /* [0] 0: none */
        unsigned flags;
        symmem_status status;
        size_t bytes; /* for two ranks */
    } rows[] = {
        {2, 0, {3, 4}, {0}, 0, SYMMEM_OK, 768},
        {2, 0, {3, 4}, {4, 1}, 0, SYMMEM_OK, 768},
        {2, 0, {1, 4}, {-1, 1}, 0, SYMMEM_OK, 768},
        {2, 0, {3, 0}, {0}, NO_DATA, SYMMEM_OK, 0},
        {2, 0, {0, far}, {most, most}, NO_DATA, SYMMEM_OK, 0},
        {-1, 0, {3, 4}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {0, 0, {3, 4}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {0, 0, {3, 4}, {0}, NO_SHAPE, SYMMEM_INVALID_ARGUMENT, 0},
        {1, 0, {3, 4}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {3, 4}, {0}, NO_SHAPE, SYMMEM_INVALID_ARGUMENT, 0},
        {9, 0, {3, 4}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {-3, 4}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {3, -1}, {0}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {2, 4}, {-4, 1}, 0, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {3, 4}, {0}, NO_DATA, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {3, 4}, {0}, NO_DTYPE, SYMMEM_INVALID_ARGUMENT, 0},
        {2, 0, {3, 4}, {0}, ODD, SYMMEM_MISALIGNED, 0},
        {2, 2, {3, 4}, {0}, 0, SYMMEM_OUT_OF_RANGE, 0},
        {2, -1, {3, 4}, {0}, 0, SYMMEM_OUT_OF_RANGE, 0},
        {2, 0, {most, 2}, {0}, 0, SYMMEM_OVERFLOW, 0},
        {3, 0, {far, far, 2}, {0}, 0, SYMMEM_OVERFLOW, 0},
        {2, 0, {most / 4, 1}, {0}, 0, SYMMEM_OVERFLOW, 0},
        {2, 0, {3, 2}, {most, 1}, 0, SYMMEM_OVERFLOW, 0},
        {2, 0, {2, 2}, {most, 1}, 0, SYMMEM_OVERFLOW, 0},
        {2, 0, {2, 2}, {most / 4, 1}, 0, SYMMEM_OVERFLOW, 0},
    };
    float data[4] = {0};
    for (size_t i = 0; i < TK_COUNT(rows); i++) {
        int64_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, strides[9] = {0};
        const unsigned flags = rows[i].flags;
        size_t bytes = 77;
        memcpy(shape, rows[i].shape, sizeof rows[i].shape);
        memcpy(strides, rows[i].strides, sizeof rows[i].strides);
        const DLTensor tensor = {
            .data = (flags & NO_DATA) != 0 ? NULL : (char *)data + ((flags & ODD) != 0),
            .device = {.device_type = kDLCPU},
            .ndim = rows[i].ndim,
            .dtype = {.code = kDLFloat, .bits = (flags & NO_DTYPE) != 0 ? 12 : 32, .lanes = 1},
            .shape = (flags & NO_SHAPE) != 0 ? NULL : shape,
            .strides = rows[i].strides[0] == 0 ? NULL : strides};
        tk_checkpoint(t, "row %zu", i);
        symmem_clear_error();
        TK_STATUS(
            t, rows[i].status,
            symmem_fused_all_gather_matmul_workspace(&tensor, NULL, rows[i].dim, false, 2, &bytes));
        TK_EQ_INT(t, rows[i].status, last_record().status);
        TK_EQ_SIZE(t, rows[i].status == SYMMEM_OK ? rows[i].bytes : 77, bytes);
        if (rows[i].ndim == 0 || rows[i].ndim == 1) {
            TK_EQ_SIZE(t, 2, last_record().expected);
            TK_EQ_SIZE(t, (uint64_t)rows[i].ndim, last_record().actual);
        }
    }
}

/* Sides whose product no address reaches, of tensors without elements. */
TK_TEST(fused_refusals, endless, "SM-FUSED-10", .needs = PRODUCTS, .max_ranks = 2) {
    const int64_t far = INT64_C(1) << 40;
    int64_t shape[3] = {far, far, 0}, b_shape[2] = {0, 0}, wide[2] = {0, INT64_MAX};
    size_t bytes = 7;
    struct fused_pair *x = pair_begin(t);
    DLTensor a = x->shard.dl, b = x->b.dl, out = x->out.dl, row = x->shard.dl;
    DLTensor *const all[] = {&a, &b, &out, &row};
    for (int i = 0; i < 4; i++)
        all[i]->strides = NULL;
    a.ndim = out.ndim = 3;
    a.shape = out.shape = shape;
    b.shape = b_shape;
    row.shape = wide;
    TK_FAILS(t, OVERFLOW, symmem_fused_all_gather_matmul_workspace(&a, NULL, 2, false, 1, &bytes));
    TK_FAILS(t, OVERFLOW,
             symmem_fused_all_gather_matmul_workspace(&row, NULL, 1, false, 2, &bytes));
    TK_FAILS(t, OVERFLOW,
             symmem_fused_matmul_reduce_scatter_workspace(&a, &b, NULL, 2, &out, 1, &bytes));
    TK_EQ_SIZE(t, 7, bytes);
}

/* A byte too few, behind the handle's pointer. */
TK_TEST(fused_refusals, small_workspace, "SM-FUSED-10", .needs = PRODUCTS, .max_ranks = 3,
        .flags = TK_PLAIN_MEMORY) {
    struct fused_pair *x = pair_begin(t);
    symmem_handle *whole = x->workspace;
    x->workspace = tk_rendezvous(t, tk_alloc(t, x->bytes - 1), tk_world_group(t));
    TK_FAILS(t, OUT_OF_RANGE, pair_scatter(x, 2000, NULL));
    TK_EQ_SIZE(t, x->bytes, last_record().expected);
    pair_expect_untouched(t, x);
    tk_release(t, x->workspace);
    x->workspace = whole;
    TK_OK(t, pair_scatter(x, LONG_MS, NULL));
    pair_expect_scatter(t, x, 1);
}

/* Sides of no elements: the ranks meet all the same, and PAIR_K = 0 gives zeros. */
static void check_empty(struct tk *t, int64_t rows, int64_t k, int64_t n) {
    struct fused_tensor shard, b, out, a, part;
    const int64_t shapes[5][2] = {
        {rows, k}, {k, n}, {rows * t->world_size, n}, {rows * t->world_size, k}, {rows, n}};
    size_t bytes = 0, other = 0;
    fused_make(t, &shard, SYMMEM_FLOAT32, 2, shapes[0], 0);
    fused_make(t, &b, SYMMEM_FLOAT32, 2, shapes[1], 0);
    fused_make(t, &out, SYMMEM_FLOAT32, 2, shapes[2], 0);
    fused_make(t, &a, SYMMEM_FLOAT32, 2, shapes[3], 0);
    fused_make(t, &part, SYMMEM_FLOAT32, 2, shapes[4], 0);
    fused_set_bytes(t, &out, 0x55);
    fused_set_bytes(t, &part, 0x55);
    TK_OK(t, symmem_fused_all_gather_matmul_workspace(&shard.dl, NULL, 0, false, t->world_size,
                                                      &bytes));
    TK_OK(t, symmem_fused_matmul_reduce_scatter_workspace(&a.dl, &b.dl, NULL, 0, &part.dl,
                                                          t->world_size, &other));
    symmem_handle *workspace = tk_handle(t, bytes + other + 1, tk_world_group(t));
    const DLTensor *bs[1] = {&b.dl}, *outs[1] = {&out.dl};
    TK_OK(t, symmem_fused_all_gather_matmul(workspace, &shard.dl, 0, 1, bs, NULL, outs, 0, LONG_MS,
                                            NULL, NULL));
    TK_OK(t, symmem_fused_matmul_reduce_scatter(workspace, &a.dl, &b.dl, SYMMEM_SUM, 0, &part.dl, 0,
                                                LONG_MS, NULL, NULL));
    fused_expect(t, &out, NULL, "out");
    fused_expect(t, &part, NULL, "part");
}

TK_TEST(fused_refusals, empty, "SM-FUSED-01,SM-FUSED-04", .needs = PRODUCTS, .max_ranks = 3) {
    TK_REQ(t, "SM-FUSED-01");
    check_empty(t, 0, 3, 4);
    check_empty(t, 2, 0, 4);
    check_empty(t, 2, 3, 0);
}

/* Without the capability nothing is done. */
TK_TEST(fused_refusals, refused_without_products, "SM-BACKEND-09", .max_ranks = 2) {
    struct fused_tensor a, b;
    const int64_t shape[2] = {4, 4};
    backend_without(t, SYMMEM_CAP_MATMUL);
    uint32_t *signal = tk_alloc(t, sizeof *signal);
    fused_make(t, &a, SYMMEM_FLOAT32, 2, shape, 0);
    fused_make(t, &b, SYMMEM_FLOAT32, 2, shape, 0);
    fused_set_bytes(t, &b, 0x55);
    TK_FAILS(t, UNSUPPORTED, symmem_restride(t->context, &a.dl, &b.dl, NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_async_input_mm(t->context, &a.dl, &a.dl, FLAT(signal, SYMMEM_UINT32, 1), 0,
                                   &b.dl, 30, NULL));
    symmem_handle *workspace = tk_handle(t, 4096, tk_world_group(t));
    const DLTensor *bs[1] = {&a.dl}, *outs[1] = {&b.dl};
    TK_FAILS(
        t, UNSUPPORTED,
        symmem_fused_all_gather_matmul(workspace, &a.dl, 0, 1, bs, NULL, outs, 0, 30, NULL, NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_fused_matmul_reduce_scatter(workspace, &a.dl, &a.dl, SYMMEM_SUM, 0, &b.dl, 0,
                                                30, NULL, NULL));
    fused_expect_bytes(t, &b, 0x55, "out");
}
