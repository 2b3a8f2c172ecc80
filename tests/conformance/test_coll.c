/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What holds for every collective, shown by one_shot_all_reduce: arguments. Calls:
 * test_coll_calls.c. What each operation computes is tested with its family.
 */
#include "coll_help.h"

static symmem_status sum_of(symmem_handle *handle, const DLTensor *input, const DLTensor *out,
                            uint32_t limit_ms) {
    return symmem_one_shot_all_reduce_out(handle, input, SYMMEM_SUM, out, 0, limit_ms, NULL);
}

/* One wrong thing about a tensor that is right otherwise. */
struct flaw {
    const char *what;
    symmem_status status;
    void (*apply)(struct ops_tensor *tensor);
};

static int64_t odd_strides[1] = {2}; /* not const, for DLPack; never written */

#define FLAW(name, ...)                                                                            \
    static void name(struct ops_tensor *tensor) {                                                  \
        __VA_ARGS__;                                                                               \
    }
FLAW(no_data, tensor->dl.data = NULL)
FLAW(no_shape, tensor->dl.shape = NULL)
FLAW(negative_ndim, tensor->dl.ndim = -1)
FLAW(negative_size, tensor->shape[0] = -1)
FLAW(unknown_bits, tensor->dl.dtype.bits = 24)
FLAW(lanes, tensor->dl.dtype.lanes = 4)
FLAW(other_dtype, tensor->dl.dtype.code = kDLInt)
FLAW(other_count, tensor->shape[0]--)
FLAW(gaps, tensor->dl.strides = odd_strides)
FLAW(misaligned, tensor->dl.byte_offset = 2)

static void huge_size(struct ops_tensor *tensor) {
    tensor->dl.ndim = 3;
    tensor->shape[0] = tensor->shape[1] = tensor->shape[2] = INT64_C(1) << 40;
}

static void other_shape(struct ops_tensor *tensor) {
    tensor->dl.ndim = 2;
    tensor->shape[0] = COUNT / 2;
    tensor->shape[1] = 2;
}

static const struct flaw flaws[] = {
    {"no data", SYMMEM_INVALID_ARGUMENT, no_data},
    {"no shape", SYMMEM_INVALID_ARGUMENT, no_shape},
    {"negative ndim", SYMMEM_INVALID_ARGUMENT, negative_ndim},
    {"negative size", SYMMEM_INVALID_ARGUMENT, negative_size},
    {"a size that overflows", SYMMEM_OVERFLOW, huge_size},
    {"24 bits", SYMMEM_INVALID_ARGUMENT, unknown_bits},
    {"lanes", SYMMEM_INVALID_ARGUMENT, lanes},
    {"another dtype", SYMMEM_INVALID_ARGUMENT, other_dtype},
    {"another count", SYMMEM_INVALID_ARGUMENT, other_count},
    {"another shape", SYMMEM_INVALID_ARGUMENT, other_shape},
    {"gaps", SYMMEM_INVALID_ARGUMENT, gaps},
    {"misaligned", SYMMEM_MISALIGNED, misaligned},
};
#define FLAW_COUNT ((int)TK_COUNT(flaws))

/* Every flaw of either tensor on one rank is refused there at once, with nothing written. */
TK_TEST(coll, malformed_tensors, "SM-COLL-02,SM-COLL-20", .needs = COLLECTIVES) {
    struct sum s = sum_begin(t, tk_world_group(t));
    struct ops_tensor input, out;
    out_mark(t, &s);
    for (int i = 0; i < 2 * FLAW_COUNT; i++) {
        const struct flaw *flaw = &flaws[i / 2];
        (void)ops_flat(&input, s.own, SYMMEM_FLOAT32, COUNT);
        (void)ops_flat(&out, s.out, SYMMEM_FLOAT32, COUNT);
        flaw->apply(i % 2 ? &out : &input);
        symmem_status status = sum_of(s.handle, &input.dl, &out.dl, 50);
        TK_CHECK_MSG(t, status == flaw->status, "%s with %s: %s", i % 2 ? "out" : "input",
                     flaw->what, symmem_status_name(status));
        TK_EQ_STR(t, "one_shot_all_reduce_out", last_record().operation);
    }
    (void)ops_flat(&input, s.own, SYMMEM_FLOAT32, COUNT);
    (void)ops_flat(&out, s.out, SYMMEM_FLOAT32, COUNT);
    TK_FAILS(t, INVALID_ARGUMENT, sum_of(s.handle, NULL, &out.dl, 50));
    TK_FAILS(t, INVALID_ARGUMENT, sum_of(s.handle, &input.dl, NULL, 50));
    TK_FAILS(t, INVALID_ARGUMENT, sum_of(NULL, &input.dl, &out.dl, 50));
    out_untouched(t, &s);
    TK_CHECK(t, !info_of(t, s.handle).poisoned);
    /* A stride says nothing where there is one element or none. */
    int64_t strange = -7;
    input.shape[0] = out.shape[0] = 1;
    input.dl.strides = out.dl.strides = &strange;
    TK_OK(t, sum_of(s.handle, &input.dl, &out.dl, s.limit_ms));
}

TK_TEST(coll, channels, "SM-COLL-02", .needs = COLLECTIVES) {
    struct sum s = sum_begin(t, tk_world_group(t));
    int32_t count = info_of(t, s.handle).channel_count;
    TK_FAILS(t, OUT_OF_RANGE, sum_run(&s, -1, 50, NULL));
    TK_FAILS(t, OUT_OF_RANGE, sum_run(&s, count, 50, NULL));
    TK_EQ_SIZE(t, (uint64_t)count, last_record().expected);
    sum_load(t, &s, 1);
    TK_OK(t, sum_run(&s, count - 1, s.limit_ms, NULL));
    sum_expect(t, &s, 1, "the last channel");
}

TK_TEST(coll, places, "SM-COLL-03,SM-COLL-04", .needs = COLLECTIVES, .flags = TK_PLAIN_MEMORY) {
    enum { BYTES = COUNT * 4 };
    struct ops_tensor input, out;
    symmem_handle *handle = tk_handle(t, 2 * BYTES, tk_world_group(t));
    char *own = ops_own(t, handle), *elsewhere = tk_alloc(t, BYTES);
    symmem_handle_info info = info_of(t, handle);
    const DLTensor *result = ops_flat(&out, elsewhere, SYMMEM_FLOAT32, COUNT);
    float on_host[COUNT] = {0};
    TK_REQ(t, "SM-COLL-03");
    const struct {
        void *at;
        symmem_status status;
    } inputs[] = {
        {elsewhere, SYMMEM_NOT_SYMMETRIC},      {on_host, SYMMEM_NOT_SYMMETRIC},
        {own - 4, SYMMEM_NOT_SYMMETRIC},        {own + 2 * BYTES - 4, SYMMEM_OUT_OF_RANGE},
        {own + BYTES + 4, SYMMEM_OUT_OF_RANGE}, {own + info.block_size, SYMMEM_NOT_SYMMETRIC},
    };
    for (size_t i = 0; i < TK_COUNT(inputs); i++) {
        symmem_status status =
            sum_of(handle, ops_flat(&input, inputs[i].at, SYMMEM_FLOAT32, COUNT), result, 50);
        TK_CHECK_MSG(t, status == inputs[i].status, "place %zu: %s", i, symmem_status_name(status));
    }
    TK_OK(t, sum_of(handle, ops_flat(&input, own + BYTES, SYMMEM_FLOAT32, COUNT), result, LONG_MS));
    /* out beside the input in the same block is no overlap; one element into it is. */
    TK_REQ(t, "SM-COLL-04");
    (void)ops_flat(&input, own, SYMMEM_FLOAT32, COUNT);
    TK_OK(t,
          sum_of(handle, &input.dl, ops_flat(&out, own + BYTES, SYMMEM_FLOAT32, COUNT), LONG_MS));
    TK_FAILS(t, INVALID_ARGUMENT,
             sum_of(handle, &input.dl, ops_flat(&out, own + BYTES - 4, SYMMEM_FLOAT32, COUNT), 50));
    TK_FAILS(t, INVALID_ARGUMENT, sum_of(handle, &input.dl, &input.dl, 50));
    void *const *buffers = NULL;
    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs(handle, &buffers));
    int32_t next = (info.rank + 1) % info.world_size;
    TK_FAILS(t, INVALID_ARGUMENT,
             sum_of(handle, &input.dl,
                    ops_flat(&out, (char *)buffers[next] + info.offset, SYMMEM_FLOAT32, COUNT),
                    50));
}

TK_TEST(coll, supported_pairs, "SM-COLL-05", .needs = COLLECTIVES) {
    struct sum s = sum_begin(t, tk_world_group(t));
    for (int dtype = 0; dtype < SYMMEM_DTYPE_COUNT; dtype++)
        for (int op = 0; op < SYMMEM_REDUCE_OP_COUNT; op++) {
            bool is_float = dtype >= SYMMEM_FLOAT16 && dtype <= SYMMEM_FLOAT64;
            bool supported = op != SYMMEM_AVG || is_float;
            TK_EQ_INT(t, supported,
                      symmem_reduce_supported((symmem_dtype)dtype, (symmem_reduce_op)op));
            out_mark(t, &s);
            symmem_status status =
                sum_count(&s, (symmem_dtype)dtype, 8, (symmem_reduce_op)op, 0, s.limit_ms, NULL);
            TK_CHECK_MSG(t, status == (supported ? SYMMEM_OK : SYMMEM_UNSUPPORTED), "%s, op %d: %s",
                         symmem_dtype_name((symmem_dtype)dtype), op, symmem_status_name(status));
            if (!supported)
                out_untouched(t, &s);
        }
    TK_CHECK(t, !symmem_reduce_supported(SYMMEM_DTYPE_COUNT, SYMMEM_SUM));
    TK_CHECK(t, !symmem_reduce_supported((symmem_dtype)-1, SYMMEM_SUM));
    TK_CHECK(t, !symmem_reduce_supported(SYMMEM_FLOAT32, SYMMEM_REDUCE_OP_COUNT));
    TK_CHECK(t, !symmem_reduce_supported(SYMMEM_FLOAT32, (symmem_reduce_op)-1));
    TK_FAILS(t, INVALID_ARGUMENT,
             sum_count(&s, SYMMEM_FLOAT32, 8, SYMMEM_REDUCE_OP_COUNT, 0, 50, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             sum_count(&s, SYMMEM_FLOAT32, 8, (symmem_reduce_op)-1, 0, 50, NULL));
}
