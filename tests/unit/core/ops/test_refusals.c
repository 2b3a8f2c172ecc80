/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is refused, and what the record of it says: status, stage, what was expected and found, and
 * the message, in which * stands for any text.
 */
#include <fnmatch.h>

#include "link_ranks.h"

#include <symmem/ops.h>

static _Thread_local char told[1024]; /* ranks are threads */

static bool is_told(symmem_status status, const char *call, const char *text) {
    const symmem_error_record record = last_record();
    const bool invalid = status == SYMMEM_INVALID_ARGUMENT;
    snprintf(told, sizeof told, "%s %s%s%lld %lld %s",
             invalid ? "INVALID" : symmem_status_name(status), record.stage,
             record.stage[0] != '\0' ? " " : "", (long long)record.expected,
             (long long)record.actual, record.message);
    return record.status == status && strcmp(record.operation, call) == 0 &&
           record.failed_rank == -1 && fnmatch(text, told, 0) == 0;
}

#define NO(name, arguments, text)                                                                  \
    do {                                                                                           \
        symmem_clear_error();                                                                      \
        bool is_told_ = is_told(symmem_##name arguments, #name, text);                             \
        CHECK(env, is_told_);                                                                      \
        if (!is_told_)                                                                             \
            fprintf(stderr, "    %s: \"%s\"\n", #name #arguments, told);                           \
    } while (0)

static int64_t sizes[4][2] = {{4, 4}, {2, 4}, {-1, 4}, {INT64_MAX, 4}};
static float numbers[64];

static DLTensor tensor(void *data, uint8_t code, uint8_t bits, int32_t ndim, int64_t *shape) {
    return (DLTensor){
        .data = data, .ndim = ndim, .dtype = {code, bits, 1}, .shape = shape, .strides = NULL};
}

RANKS_TEST("memory", .world = 1) {
    void *ptr = NULL, *block = NULL;
    symmem_handle *h = env_kept_handle(env, &ptr);
    symmem_context *c = env->context;
    symmem_pool *pool = NULL;
    symmem_alloc_options options;
    symmem_alloc_options_init(&options);
    CHECK_OK(env, symmem_pool_create(c, -1, BYTES, &pool));
    CHECK_OK(env, symmem_pool_alloc(pool, 100, &block));
    (void)h;
    NO(free, (c, (char *)ptr + 8), "INVALID * * *");
    NO(free, (c, numbers), "NOT_SYMMETRIC 0 0 *");
    NO(free, (c, block), "INVALID 0 0 *");
    NO(set_signal_pad_size, (c, 6), "MISALIGNED 4 6 6 bytes is no multiple of 4");
    NO(set_signal_pad_size, (c, (1u << 30) + 4),
       "OUT_OF_RANGE 1073741824 1073741828 1073741828*1073741824");
    CHECK_OK(env, symmem_set_signal_pad_size(c, 1u << 30));
    CHECK_OK(env, symmem_set_signal_pad_size(c, 0));
    NO(alloc, (c, 0, -1, NULL, &block), "INVALID 0 0 the size is 0");
    NO(alloc, (c, SIZE_MAX, -1, NULL, &block), "OVERFLOW 0 -1 *256");
    NO(alloc, (c, 8, -2, NULL, &block), "OUT_OF_RANGE device 8 -2 *-2*8");
    NO(alloc, (c, 8, 8, NULL, &block), "OUT_OF_RANGE device 8 8 *8*8");
    options.size = 3;
    NO(alloc, (c, 8, -1, &options, &block), "INVALID 24 3 options->size is 3, not 24");
    options.size = sizeof options;
    options.alloc_id = 5;
    CHECK_OK(env, symmem_alloc(c, 100, -1, &options, &block));
    NO(alloc, (c, 100, -1, &options, &ptr), "BUSY persistent 0 0 alloc_id 5 is active at *");
    CHECK_OK(env, symmem_free(c, block));
    NO(alloc, (c, 101, -1, &options, &block), "MISMATCH persistent 100 101 *5 has 100*0*101*0");
    NO(alloc, (c, 100, 1, &options, &block), "MISMATCH persistent 0 1 *5 has 100*0*100*1");
    NO(pool_create, (c, 8, BYTES, &pool), "OUT_OF_RANGE device 8 8 *8*8");
    NO(pool_create, (c, 0, SIZE_MAX, &pool), "OVERFLOW 0 0 *256");
    NO(pool_alloc, (pool, SIZE_MAX, &block), "OVERFLOW 0 -1 *512");
    NO(pool_free, (pool, numbers), "NOT_SYMMETRIC 0 0 * is no block of this pool");
    NO(pool_destroy, (pool), "BUSY 0 1 1 blocks are handed out");
    CHECK(env, pool != NULL);
}

RANKS_TEST("handles", .world = 1) {
    void *ptr = NULL;
    DLManagedTensor *view = NULL;
    symmem_handle *h = env_kept_handle(env, &ptr);
    symmem_stream *stream = env_stream(env);
    symmem_context *c = env->context;
    int32_t number;
    NO(put, (h, 1, 0, numbers, 4, NULL), "OUT_OF_RANGE 1 1 rank 1 is not in ?0, 1)");
    NO(get, (h, -1, 0, numbers, 4, NULL), "OUT_OF_RANGE 1 -1 rank -1 is not in ?0, 1)");
    NO(put, (h, 0, SIZE_MAX, numbers, 4, NULL), "OVERFLOW 0 0 offset * + 4 bytes overflows");
    NO(put, (h, 0, BYTES - 3, numbers, 4, NULL), "OUT_OF_RANGE 65536 65537 *65533 + 4*65537*65536");
    NO(copy, (c, NULL, numbers, 4, NULL), "INVALID 0 0 dst is NULL");
    NO(copy, (c, numbers, NULL, 4, NULL), "INVALID 0 0 src is NULL");
    NO(copy, (c, ptr, numbers, BYTES + 1, NULL), "OUT_OF_RANGE 65536 65537 65537*65536");
    NO(copy, (c, numbers, ptr, BYTES + 1, NULL), "OUT_OF_RANGE 65536 65537 65537*65536");
    NO(copy, (c, numbers, (void *)8, SIZE_MAX, NULL), "OVERFLOW 0 0 * + * bytes overflows");
    NO(handle_global_rank, (h, 1, &number), "OUT_OF_RANGE 1 1 rank 1 is not in ?0, 1)");
    NO(barrier, (h, -1, 9, NULL), "OUT_OF_RANGE 2304 -1 channel -1 is not in ?0, 2304)");
    NO(barrier, (h, 1 << 20, 9, NULL), "OUT_OF_RANGE 2304 1048576 *1048576*0, 2304)");
    CHECK(env, last_record().channel == 1 << 20);
    NO(put_signal, (h, 1, 0, 9, NULL), "OUT_OF_RANGE 1 1 rank 1 is not in ?0, 1)");
    NO(get_buffer, (h, 1, 2, sizes[0], SYMMEM_FLOAT32, 0, &view),
       "OUT_OF_RANGE 1 1 rank 1 is not in ?0, 1)");
    NO(get_buffer, (h, 0, 9, sizes[0], SYMMEM_FLOAT32, 0, &view),
       "INVALID 0 0 ndim is not in ?0, 8]");
    NO(get_buffer, (h, 0, -1, sizes[0], SYMMEM_FLOAT32, 0, &view),
       "INVALID 0 0 ndim is not in ?0, 8]");
    NO(get_buffer, (h, 0, 2, sizes[2], SYMMEM_FLOAT32, 0, &view),
       "OUT_OF_RANGE 0 -1 size -1 is negative");
    NO(get_buffer, (h, 0, 2, sizes[0], SYMMEM_FLOAT32, -3, &view),
       "OUT_OF_RANGE 0 -3 storage_offset -3 is negative");
    NO(get_buffer, (h, 0, 2, sizes[3], SYMMEM_FLOAT32, 0, &view), "OVERFLOW 0 0 *");
    NO(get_buffer, (h, 0, 1, sizes[3], SYMMEM_FLOAT32, 0, &view), "OVERFLOW 0 0 *");
    NO(get_buffer, (h, 0, 2, sizes[0], SYMMEM_FLOAT32, BYTES / 4 - 15, &view),
       "OUT_OF_RANGE 65536 65540 *65540 of 65536");
    NO(get_signal_pad, (h, 0, 1, sizes[3], SYMMEM_UINT32, 0, &view), "OVERFLOW 0 0 *");
    NO(wait_value32, (h, 0, 6, SYMMEM_EQ, 0, 0, 9, NULL), "MISALIGNED 0 0 byte 6 *4 bytes");
    NO(wait_value64, (h, 0, 4, SYMMEM_EQ, 0, 0, 9, NULL), "MISALIGNED 0 0 byte 4 *8 bytes");
    NO(wait_value64, (h, 0, 0, SYMMEM_COMPARE_COUNT, 0, 0, 9, NULL),
       "INVALID 0 0 6 is no comparison");
    NO(wait_value64, (h, 0, 0, SYMMEM_EQ, 0, 1, 9, NULL),
       "OUT_OF_RANGE 1 1 rank 1 is not in ?0, 1)");
    NO(wait_value32, (h, 0, BYTES, SYMMEM_EQ, 0, 0, 9, NULL),
       "OUT_OF_RANGE 65536 65540 *65536 + 4*65540*65536");
    NO(put_with_signal, (h, 0, 0, numbers, 4, -1, 9, NULL),
       "OUT_OF_RANGE 2304 -1 channel -1 is not in ?0, 2304)");
    NO(put_with_signal, (h, 0, 0, NULL, 4, 0, 9, NULL), "INVALID 0 0 local pointer is NULL");
    NO(window_signal, (h, 0, 0, 0, 9, NULL), "OUT_OF_RANGE 2147483647 0 count 0 is not in ?1, *]");
    NO(window_wait_signal, (h, 33, NULL, 0, 9, NULL),
       "OUT_OF_RANGE 32 33 wait_count 33 is not in ?1, 32]");
    NO(window_wait_signal, (h, 1, NULL, 0, 9, NULL), "INVALID 0 0 waits is NULL");
    NO(window_put_signal, (h, 0, BYTES, numbers, 4, 0, 9, NULL),
       "OUT_OF_RANGE 65536 65540 *65536 + 4*65540*65536");
    NO(stream_create, (c, 8, &stream), "OUT_OF_RANGE device 8 8 *8*8");
    NO(stream_wrap, (c, -1, numbers, &stream), "UNSUPPORTED 0 0 *");
    CHECK(env, stream != NULL);
}

RANKS_TEST("fills and collectives", .world = 1) {
    void *ptr = NULL;
    symmem_handle *h = env_kept_handle(env, &ptr);
    symmem_context *c = env->context;
    int64_t four = 4, lots = INT64_MAX / 2, two[2] = {1, 2};
    size_t splits[1] = {3};
    symmem_stream *other = env_stream(env);
    symmem_graph *graph = NULL;
    DLTensor words = tensor(numbers, kDLUInt, 32, 1, &four), floats = words, far = words;
    DLTensor wide = words, none = words, minus = words, huge = words, here = words, odd = words;
    DLTensor halves = words, pairs = words, shifted = words, shapeless = words, scalar = words;
    DLTensor flat = tensor(numbers, kDLFloat, 32, 1, &four), square = flat, small = flat;
    DLTensor square_out = square;
    const DLTensor *b = &square, *out = &square_out;
    floats.dtype.code = kDLFloat;
    halves.dtype.bits = 16;
    pairs.dtype.lanes = 2;
    shifted.byte_offset = 2;
    shapeless.shape = NULL;
    scalar.ndim = 0;
    far.device.device_id = 9;
    far.device.device_type = 77;
    wide.ndim = 2;
    wide.shape = sizes[0];
    none.data = NULL;
    minus.shape = sizes[2];
    huge.shape = &lots;
    odd.strides = two + 1;
    here.data = ptr;
    here.dtype.code = kDLFloat;
    square.ndim = 2;
    square.shape = sizes[0];
    small.shape = two;
    square_out = square;
    square_out.data = numbers + 32;
    NO(memset32, (c, NULL, 0, 1, 1, NULL), "INVALID 0 0 tensor is NULL");
    NO(memset32, (c, &floats, 0, 1, 1, NULL), "INVALID 0 0 tensor is not of uint32");
    NO(memset32, (c, &halves, 0, 1, 1, NULL), "INVALID 0 0 tensor is not of uint32");
    NO(memset32, (c, &pairs, 0, 1, 1, NULL), "INVALID 0 0 tensor is not of uint32");
    NO(memset32, (c, &shifted, 0, 1, 1, NULL), "MISALIGNED 0 0 *4 bytes");
    NO(memset32, (c, &shapeless, 0, 1, 1, NULL), "INVALID 0 0 *64*");
    NO(memset32, (c, &scalar, 0, 1, 1, NULL), "INVALID 0 0 tensor is not of one dimension");
    NO(memset32, (NULL, &words, 0, 1, 1, NULL), "NOT_INITIALIZED 0 0 context is NULL");
    NO(stream_write_value32, (c, &floats, 0, 1, NULL), "INVALID 0 0 tensor is not of uint32");
    NO(stream_write_value32, (c, &words, 4, 1, NULL), "OUT_OF_RANGE 4 5 *4 + count 1*4 elements");
    NO(stream_write_value64, (c, &words, 0, 1, NULL), "INVALID 0 0 tensor is not of uint64");
    NO(memset32, (c, &wide, 0, 1, 1, NULL), "INVALID 0 0 tensor is not of one dimension");
    NO(memset32, (c, &odd, 0, 1, 1, NULL), "INVALID 0 0 tensor is not contiguous");
    NO(memset32, (c, &none, 0, 1, 1, NULL), "INVALID 0 0 tensor has no data");
    NO(memset32, (c, &minus, 0, 1, 1, NULL), "INVALID 0 0 tensor has a negative size");
    NO(memset32, (c, &huge, 0, 1, 1, NULL), "OVERFLOW 0 0 *");
    NO(memset32, (c, &far, 0, 1, 1, NULL), "OUT_OF_RANGE device 8 9 *9*8");
    NO(memset32, (c, &words, -1, 1, 1, NULL), "OUT_OF_RANGE 0 -1 offset is -1, limit 0");
    NO(memset32, (c, &words, 0, 1, 0, NULL), "OUT_OF_RANGE 1 0 count is 0, limit 1");
    NO(memset32, (c, &words, 0, -1, 1, NULL),
       "OUT_OF_RANGE 4294967295 -1 value is -1, limit 4294967295");
    NO(memset32, (c, &words, 0, 1ll << 32, 1, NULL),
       "OUT_OF_RANGE 4294967295 4294967296 *4294967296, limit 4294967295");
    NO(memset32, (c, &words, 3, 1, 2, NULL), "OUT_OF_RANGE 4 5 *3 + count 2*4 elements");
    NO(memset32, (c, &words, 5, 1, 1, NULL), "OUT_OF_RANGE 4 6 *5 + count 1*4 elements");
    NO(all_reduce, (h, &flat, SYMMEM_SUM, &words, 0, 9, NULL),
       "INVALID 0 0 *float32, out of uint32");
    NO(all_reduce, (h, &flat, SYMMEM_SUM, &square, 0, 9, NULL), "INVALID 4 16 *4*16*");
    NO(all_reduce, (h, &flat, SYMMEM_SUM, &small, 0, 9, NULL), "INVALID 4 1 *4*1*");
    NO(all_reduce, (h, &flat, (symmem_reduce_op)99, &flat, 0, 9, NULL),
       "INVALID 0 0 unknown operation 99");
    NO(all_reduce, (h, &flat, SYMMEM_SUM, &flat, -1, 9, NULL),
       "OUT_OF_RANGE 2304 -1 channel -1 is not in ?0, 2304)");
    NO(two_shot_all_reduce, (h, &flat, SYMMEM_SUM, 0, 9, NULL), "NOT_SYMMETRIC 0 0 *");
    NO(broadcast, (h, &here, 1, 0, 9, NULL), "OUT_OF_RANGE 1 1 rank 1 is not in ?0, 1)");
    NO(all_gather_out, (h, &here, &small, 0, 9, NULL), "INVALID 4 1 *4*1*");
    NO(reduce_scatter_out, (h, &here, SYMMEM_SUM, false, &square, 0, 9, NULL),
       "INVALID 1 2 out has 2 dimensions, not one");
    NO(reduce_scatter_out, (h, &here, SYMMEM_SUM, false, &small, 0, 9, NULL),
       "INVALID 4 1 *1, not 4");
    CHECK_STATUS(env, symmem_reduce_scatter_out(h, &here, SYMMEM_SUM, false, &here, 0, 9, NULL),
                 SYMMEM_INVALID_ARGUMENT);
    CHECK(env, strstr(last_record().message, "overlaps") != NULL);
    NO(all_to_all_out, (h, &here, splits, &flat, splits, 0, 9, NULL), "INVALID 4 3 *3*4");
    NO(all_gather_v, (h, &here, splits, &here, 0, 9, NULL), "INVALID 4 3 *add up to 3*4*");
    NO(all_gather_v, (h, &here, NULL, &here, 0, 9, NULL), "INVALID 0 0 counts is NULL");
    NO(reduce_scatter_v, (h, &here, SYMMEM_SUM, splits, &here, 0, 9, NULL),
       "INVALID 4 3 *add up to 3*4*");
    NO(tile_reduce, (h, &here, SYMMEM_SUM, 0, &here, 0, 9, NULL),
       "INVALID 2 1 in_tile has 1 dimensions, not 2");
    NO(tile_reduce, (h, &square, SYMMEM_SUM, 1, &square, 0, 9, NULL),
       "OUT_OF_RANGE 1 1 rank 1 is not in ?0, 1)");
    NO(multi_root_tile_reduce, (h, 1, NULL, NULL, SYMMEM_SUM, &square, 0, 9, NULL),
       "INVALID 0 0 in_tiles or roots is NULL");
    NO(multi_root_tile_reduce, (h, -1, NULL, NULL, SYMMEM_SUM, &square, 0, 9, NULL),
       "OUT_OF_RANGE 1 -1 -1 tiles");
    NO(multimem_all_reduce, (h, &here, SYMMEM_SUM, 0, 9, NULL), "UNSUPPORTED 0 0 *");
    CHECK_OK(env, symmem_stream_begin_capture(other));
    NO(fused_all_gather_matmul, (h, &square, 0, 1, &b, NULL, &out, 0, 9, env_stream(env), other),
       "CAPTURE 0 0 *second stream takes part in another capture");
    CHECK_OK(env, symmem_stream_end_capture(other, &graph));
    CHECK_OK(env, symmem_graph_destroy(graph));
    NO(fused_strides, (-1, &four, 0, two), "INVALID 0 0 ndim is negative");
    NO(fused_strides, (1, NULL, 0, two), "INVALID 0 0 shape or strides is NULL");
    NO(fused_strides, (1, &four, 1, two), "OUT_OF_RANGE 0 0 dimension 1 is not in ?0, 1)");
    NO(fused_strides, (2, sizes[2], 1, two), "INVALID 0 0 shape?0] is negative");
    NO(fused_strides, (2, sizes[3], 1, two), "OVERFLOW 0 0 *");
    NO(restride, (c, &flat, &square, NULL), "INVALID 1 2 dst has 2 dimensions, not 1");
    NO(restride, (c, &flat, &small, NULL), "INVALID 4 1 *0*1*4");
    NO(restride, (c, &flat, &words, NULL), "INVALID 0 0 *float32, dst of uint32");
    NO(restride, (c, &flat, &flat, NULL), "INVALID 0 0 src overlaps dst");
}

/* Of two dimensions; strides are the caller's. */
static DLTensor matrix_of(float *data, uint8_t code, uint8_t bits, int64_t *sides) {
    DLTensor made = tensor(data, code, bits, 2, sides);
    made.strides = sides + 2;
    return made;
}

RANKS_TEST("products", .world = 1) {
    static float a_values[4] = {1, 2, 3, 4}, b_values[4] = {1, 0, 0, 1}, out_values[4];
    static uint32_t ready[1] = {1};
    static const uint8_t types[][4] = {/* of a and b, and of out */
                                       {kDLInt, 32, kDLInt, 32},
                                       {kDLFloat, 16, kDLFloat, 64},
                                       {kDLBfloat, 16, kDLFloat, 16},
                                       {kDLFloat, 32, kDLFloat, 64}};
    static const int64_t neither[][4] = {{2, 2, 1, 1}, {2, 2, 2, 2}, {2, 1, 0, 1}, {2, 2, 3, 2}};
    symmem_context *c = env->context;
    int64_t two[4] = {2, 2, 2, 1}, by_column[4] = {2, 2, 1, 2}, one_row[4] = {1, 2, 9, 2};
    int64_t one = 1, sides[4], out_sides[4] = {1, 2, 2, 1}, chunks[2] = {3, INT32_MAX + 1ll};
    DLTensor signals = tensor(ready, kDLUInt, 32, 1, &one), none = signals;
    DLTensor a = matrix_of(a_values, kDLFloat, 32, two), b = a, out = a, row = a;
    b.data = b_values;
    out.data = out_values;
#define MM(a_, b_, signals_, pivot, out_) (c, &(a_), &(b_), &(signals_), pivot, &(out_), 9, NULL)
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        DLTensor a_of = a, b_of = b, out_of = out;
        a_of.dtype.code = b_of.dtype.code = types[i][0];
        a_of.dtype.bits = b_of.dtype.bits = types[i][1];
        out_of.dtype.code = types[i][2];
        out_of.dtype.bits = types[i][3];
        NO(async_input_mm, MM(a_of, b_of, signals, 0, out_of), "UNSUPPORTED 0 0 no product of *");
    }
    for (size_t i = 0; i < sizeof neither / sizeof neither[0]; i++) {
        memcpy(sides, neither[i], sizeof sides);
        row = matrix_of(a_values, kDLFloat, 32, sides);
        NO(async_input_mm, MM(row, b, signals, 0, out),
           "INVALID 0 0 a is neither row- nor column-major");
    }
    for (size_t i = 0; i < 2; i++) {
        none = tensor(ready, kDLUInt, 32, 1, chunks + i);
        NO(async_input_mm, MM(a, b, none, 0, out), "INVALID 0 0 2 rows cannot be cut into *");
    }
    /* A row of any stride, of a matrix by columns: two elements apart. */
    memcpy(sides, one_row, sizeof sides);
    row = matrix_of(a_values, kDLFloat, 32, sides);
    out.shape = out_sides;
    out.strides = out_sides + 2;
    b.strides = by_column + 2;
    CHECK_OK(env, symmem_async_input_mm MM(row, b, signals, 0, out));
    CHECK(env, out_values[0] == 1 && out_values[1] == 3);
#undef MM
}

#define OVERFLOWS "OVERFLOW * 0 0 the size of * overflows"

/* The scales of columns as a vector, and one scale of no dimension at all. */
RANKS_TEST("shapes of scales", .world = 1) {
    static float a_values[4] = {1, 2, 3, 4}, b_values[4] = {1, 0, 0, 1}, out_values[4];
    static float two[1] = {2}, columns[2] = {10, 100};
    symmem_handle *h = env_kept_handle(env, NULL);
    int64_t sides[4] = {2, 2, 2, 1}, one = 1, width = 2;
    DLTensor a = matrix_of(a_values, kDLFloat, 32, sides), b = a, out = a;
    DLTensor a_scale = tensor(two, kDLFloat, 32, 1, &one), b_scale = a_scale;
    const DLTensor *bs[1] = {&b}, *scales[1] = {&b_scale}, *outs[1] = {&out};
    b.data = b_values;
    out.data = out_values;
    for (int32_t ndim = 1; ndim >= 0; ndim--) {
        b_scale.data = columns;
        b_scale.ndim = ndim;
        b_scale.shape = &width;
        CHECK_OK(env, symmem_fused_all_gather_scaled_matmul(h, &a, &a_scale, 0, 1, bs, scales, NULL,
                                                            outs, 0, 9, NULL, NULL));
        const float second = ndim == 1 ? 100 : 10;
        CHECK(env, out_values[0] == 20 && out_values[1] == 4 * second);
        CHECK(env, out_values[2] == 60 && out_values[3] == 8 * second);
    }
}

/* Host memory of any kind, and of a device whose type is not told. */
RANKS_TEST("types of devices", .world = 1) {
    static const DLDeviceType types[] = {0, kDLCPU, kDLCUDAHost, kDLCUDAManaged, kDLROCMHost};
    symmem_handle *h = env_kept_handle(env, NULL);
    int64_t none[2] = {0, 4}, odd[2] = {9, 9}, two = 2;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        DLTensor t = tensor(numbers, kDLFloat, 32, 1, &two);
        t.device = (DLDevice){types[i], types[i] == 0};
        numbers[0] = (float)i;
        CHECK_OK(env, symmem_all_reduce(h, &t, SYMMEM_SUM, &t, 0, 9, NULL));
        CHECK(env, numbers[0] == (float)i);
    }
    DLTensor empty = tensor(numbers, kDLFloat, 32, 2, none), large = empty;
    empty.strides = odd; /* of what has no elements */
    CHECK_OK(env, symmem_all_reduce(h, &empty, SYMMEM_SUM, &empty, 0, 9, NULL));
    large.dtype.bits = 128;
    NO(all_reduce, (h, &large, SYMMEM_SUM, &large, 0, 9, NULL), "INVALID 0 0 *unknown dtype");
}

/* What no address reaches: sizes only, and nothing is read. b and out: the product with them, to be
 * scattered. */
RANKS_TEST("sizes of products", .world = 1) {
    enum { BIG = 1 << 30 };
    static const int64_t most = INT64_MAX, half = 1ll << 62, far = 1ll << 60, side = 1ll << 31;
    const struct {
        uint8_t bits;
        int32_t dim, world;
        int64_t a[4], b[2], out[2];
    } rows[] = {
        {8, 1, 8, {1, half, half, 1}, {0}, {0}},
        {8, 1, 2, {1, half, half, 1}, {0}, {0}},
        {8, 1, 4, {side, side, side, 1}, {0}, {0}},
        {8, 1, 1, {far, 1, 1, 1}, {0}, {0}},
        {8, 0, 1, {1, far, far, 1}, {0}, {0}},
        {8, 0, 1, {2, 4, 1, most}, {0}, {0}},
        {64, 0, 1, {BIG, BIG - 1, BIG - 1, 1}, {0}, {0}},
        {8, 0, 1, {far, 1, 1, 1}, {1, 1}, {far, 1}},
        {8, 0, 1, {1, far, far, 1}, {far, 1}, {1, 1}},
        {64, 0, 1, {BIG, 1, 1, 1}, {1, BIG - 1}, {BIG, BIG - 1}},
    };
    size_t bytes = 7;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t of_a[4], of_b[2], of_out[2];
        memcpy(of_a, rows[i].a, sizeof of_a);
        memcpy(of_b, rows[i].b, sizeof of_b);
        memcpy(of_out, rows[i].out, sizeof of_out);
        const uint8_t code = rows[i].bits == 8 ? kDLUInt : kDLFloat;
        DLTensor a = matrix_of(numbers, code, rows[i].bits, of_a);
        DLTensor b = tensor(numbers, code, rows[i].bits, 2, of_b), out = b;
        out.shape = of_out;
        if (of_b[0] != 0)
            NO(fused_matmul_reduce_scatter_workspace,
               (&a, &b, NULL, rows[i].dim, &out, rows[i].world, &bytes), OVERFLOWS);
        else
            NO(fused_all_gather_matmul_workspace,
               (&a, NULL, rows[i].dim, false, rows[i].world, &bytes), OVERFLOWS);
        CHECK(env, bytes == 7);
    }
}

RANKS_TEST("shapes of products", .world = 1) {
    int64_t four[4] = {4, 4, 4, 1}, none[2] = {0, 4}, strides[2], odd[4] = {4, 4, 5, 1}, one = 1;
    symmem_handle *h = env_kept_handle(env, NULL);
    size_t bytes;
    DLTensor a = matrix_of(numbers, kDLFloat, 32, four), b = a, out = a;
    b.ndim = 1;
    NO(fused_matmul_reduce_scatter_workspace, (&a, &b, NULL, 0, &out, 1, &bytes),
       "INVALID * 2 1 b has 1 dimensions, not 2");
    b.ndim = 2;
    out = matrix_of(numbers, kDLFloat, 32, odd);
    NO(fused_matmul_reduce_scatter_workspace, (&a, &b, NULL, 0, &out, 1, &bytes),
       "INVALID * 0 0 out is not contiguous");
    NO(fused_strides, (0, NULL, 0, NULL), "OUT_OF_RANGE 0 0 dimension 0 is not in ?0, 0)");
    /* What is gathered, in another dtype, and in the layout of another dimension. */
    static float gathered[16], wide[16];
    DLTensor a_out = matrix_of(gathered, kDLInt, 32, four),
             far = matrix_of(wide, kDLFloat, 64, four);
    DLTensor scale = tensor(numbers + 16, kDLFloat, 32, 1, &one);
    const DLTensor *bs[1] = {&a}, *outs[1] = {&far}, *scales[1] = {&scale};
    NO(fused_all_gather_matmul, (h, &a, 0, 1, bs, &a_out, outs, 0, 9, NULL, NULL),
       "INVALID 0 0 a_out is of int32, a_shard of float32");
    a_out.dtype.code = kDLFloat;
    NO(fused_all_gather_matmul, (h, &a, 1, 1, bs, &a_out, outs, 0, 9, NULL, NULL),
       "INVALID 0 0 a_out is not contiguous with dimension 1 moved to the front");
    far.ndim = a.ndim = 2;
    far.dtype.bits = 64;
    bs[0] = &far;
    NO(fused_all_gather_scaled_matmul,
       (h, &far, &scale, 0, 1, bs, scales, NULL, outs, 0, 9, NULL, NULL),
       "UNSUPPORTED 0 0 no scaled product of float64 into float64");
    CHECK_OK(env, symmem_fused_strides(2, none, 1, strides));
    CHECK(env, strides[0] == 1 && strides[1] == 1);
}

/* Before there is memory for the result. */
RANKS_TEST("inputs of another device", .world = 2, .multicast = 1) {
    void *ptr = NULL, *elsewhere = NULL;
    symmem_handle *h = env_kept_handle(env, &ptr);
    DLManagedTensor *made = NULL;
    int64_t four = 4;
    DLTensor buffer = tensor(ptr, kDLFloat, 32, 1, &four), far = buffer;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, 5, NULL, &elsewhere));
    far.data = elsewhere;
    env->fault_point = "alloc.before";
    env->fault_status = SYMMEM_SYSTEM;
    NO(one_shot_all_reduce_copy, (h, &buffer, &far, SYMMEM_SUM, 0, 9, NULL, &made),
       "INVALID * 5 *device*");
    NO(low_contention_all_gather_ce_multicast, (h, &far, 0, 9, NULL, &made),
       "INVALID * 5 *device*");
    CHECK(env, env->fault_hits == 0 && made == NULL);
    CHECK_STATUS(env,
                 symmem_one_shot_all_reduce_copy(h, &buffer, &far, SYMMEM_SUM, 0, 9, NULL, NULL),
                 SYMMEM_INVALID_ARGUMENT);
    env->fault_point = NULL;
    CHECK_OK(env, symmem_free(env->context, elsewhere));
}

RANKS_TEST("groups, devices and stores", .world = 1) {
    static const int32_t absent[] = {1}, twice[] = {0, 0};
    static char text[SYMMEM_STORE_KEY_MAX + 2], value[8];
    symmem_context *c = env->context;
    symmem_group *g = env->group, *group = NULL;
    symmem_store *store = NULL, *other = NULL;
    symmem_store_ops ops = {.size = 4};
    int32_t matrix[64], number;
    int64_t sum;
    int fd;
    size_t bytes;
    bool yes;
    memset(text, 'k', sizeof text - 1);
    CHECK_OK(env, symmem_store_open_memory(&store));
    CHECK_OK(env, symmem_store_set(store, "key", "12345", 5, 9));
    NO(group_create, (c, text, NULL, 0, NULL, &group), "INVALID 63 0 *63 bytes");
    NO(group_create, (c, "g", absent, 1, NULL, &group),
       "OUT_OF_RANGE 1 1 ranks?0] is 1 in a world of 1");
    NO(group_create, (c, "g", twice, 2, NULL, &group), "INVALID 0 0 rank 0 is listed twice");
    NO(group_create, (c, "world", NULL, 0, NULL, &group), "EXISTS 0 0 a group 'world' is live");
    NO(group_global_rank, (g, 1, &number), "OUT_OF_RANGE 1 1 rank 1 in group 'world' of 1");
    NO(group_global_rank, (g, -1, &number), "OUT_OF_RANGE 1 -1 rank -1 in group 'world' of 1");
    NO(group_find, (c, "nobody", &group), "NOT_FOUND 0 0 *'nobody'");
    NO(group_set_communicator, (g, value), "UNSUPPORTED 0 0 *'shm'*");
    NO(group_all_gather, (g, value, SIZE_MAX, value, 9),
       "OUT_OF_RANGE 65536 -1 * bytes are more than 65536");
    NO(group_broadcast_fds, (g, 1, 0, &fd, 9), "OUT_OF_RANGE 1 1 rank 1 in group 'world' of 1");
    NO(group_send_fd, (g, 1, 0, 9), "OUT_OF_RANGE 1 1 rank 1 in group 'world' of 1");
    NO(group_recv_fd, (g, -1, &fd, 9), "OUT_OF_RANGE 1 -1 rank -1 in group 'world' of 1");
    NO(connectivity, (c, NULL, 8, matrix), "INVALID 0 0 connection is NULL");
    NO(connectivity, (c, "nvlink", 8, NULL), "INVALID 0 0 matrix is NULL");
    NO(connectivity, (c, "nvlink", 7, matrix), "OUT_OF_RANGE device_count 8 7 *7*8");
    NO(connectivity, (c, "string", 8, matrix),
       "NOT_FOUND connectivity 0 0 no links of kind 'string'");
    NO(has_multicast_support, (c, 1, 8, &yes), "OUT_OF_RANGE device 8 8 *8*8");
    NO(set_allow_overlapping_devices, (c, 2), "INVALID 0 0 allow is 2, not -1, 0 or 1");
    NO(set_backend, (c, "nobody"), "NOT_FOUND search 0 0 no backend 'nobody' *");
    NO(store_open_custom, (&ops, NULL, &other), "ABI 56 4 *4 bytes, 56*");
    NO(store_set, (store, "", value, 1, 9), "INVALID 200 0 a key has 1 to 200 characters");
    NO(store_set, (store, text, value, 1, 9), "INVALID 200 201 a key has 1 to 200 characters");
    NO(store_set, (store, "key", value, SYMMEM_STORE_VALUE_MAX + 1, 9),
       "INVALID 1048576 1048577 *1048576*1048577");
    NO(store_get, (store, "key", value, 4, &bytes, 9), "OUT_OF_RANGE 0 0 *4 bytes");
    NO(store_get, (store, "none", value, 4, &bytes, 9), "NOT_FOUND 0 0 no key none");
    NO(store_wait, (store, "none", 1), "TIMEOUT 0 0 deadline passed for key none");
    NO(store_add, (store, "key", 1, &sum, 9), "MISMATCH 0 0 key key is not a counter");
    symmem_store_close(store);
}
