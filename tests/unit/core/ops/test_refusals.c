/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is refused, and what the record of it says: status, stage, what was expected and found, rank
 * and size of the group, and the message, in which * stands for any text.
 */
#include <fnmatch.h>

#include "link_ranks.h"

#include <symmem/ops.h>

static char told[1024];

static bool is_told(symmem_status status, const char *call, const char *text) {
    const symmem_error_record record = last_record();
    snprintf(told, sizeof told, "%s %s%s%lld %lld %d/%d %s", symmem_status_name(status),
             record.stage, record.stage[0] != '\0' ? " " : "", (long long)record.expected,
             (long long)record.actual, record.rank, record.world_size, record.message);
    return record.status == status && strcmp(record.operation, call) == 0 &&
           record.failed_rank == -1 && fnmatch(text, told, 0) == 0;
}

#define REFUSED(name, arguments, text)                                                             \
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
    symmem_handle *handle = env_kept_handle(env, &ptr);
    symmem_context *context = env->context;
    symmem_pool *pool = NULL;
    symmem_alloc_options options;
    symmem_alloc_options_init(&options);
    CHECK_OK(env, symmem_pool_create(context, -1, BYTES, &pool));
    CHECK_OK(env, symmem_pool_alloc(pool, 100, &block));
    (void)handle;
    REFUSED(free, (context, (char *)ptr + 8), "INVALID_ARGUMENT * * 0/1 *");
    REFUSED(free, (context, numbers), "NOT_SYMMETRIC 0 0 0/1 *");
    REFUSED(free, (context, block), "INVALID_ARGUMENT 0 0 0/1 *");
    REFUSED(alloc_query, (context, ptr, NULL),
            "INVALID_ARGUMENT 0 0 0/1 the output pointer is NULL");
    REFUSED(alloc_size, (context, ptr, NULL),
            "INVALID_ARGUMENT 0 0 0/1 the output pointer is NULL");
    REFUSED(is_symmetric, (context, ptr, NULL), "INVALID_ARGUMENT 0 0 0/1 symmetric_p is NULL");
    REFUSED(set_signal_pad_size, (context, 6), "MISALIGNED 4 6 0/1 6 bytes is no multiple of 4");
    REFUSED(set_signal_pad_size, (context, (1u << 30) + 4),
            "OUT_OF_RANGE 1073741824 1073741828 0/1 1073741828*1073741824");
    CHECK_OK(env, symmem_set_signal_pad_size(context, 1u << 30));
    CHECK_OK(env, symmem_set_signal_pad_size(context, 0));
    REFUSED(get_signal_pad_size, (context, NULL), "INVALID_ARGUMENT 0 0 0/1 bytes_p is NULL");
    REFUSED(alloc, (context, 0, -1, NULL, &block), "INVALID_ARGUMENT 0 0 0/1 the size is 0");
    REFUSED(alloc, (context, SIZE_MAX, -1, NULL, &block), "OVERFLOW 0 -1 0/1 *256");
    REFUSED(alloc, (context, 8, -2, NULL, &block), "OUT_OF_RANGE device 8 -2 0/1 *-2*8");
    REFUSED(alloc, (context, 8, 8, NULL, &block), "OUT_OF_RANGE device 8 8 0/1 *8*8");
    options.size = 3;
    REFUSED(alloc, (context, 8, -1, &options, &block),
            "INVALID_ARGUMENT 24 3 0/1 options->size is 3, not 24");
    REFUSED(alloc, (context, 8, -1, NULL, NULL), "INVALID_ARGUMENT 0 0 0/1 ptr_p is NULL");
    options.size = sizeof options;
    options.alloc_id = 5;
    CHECK_OK(env, symmem_alloc(context, 100, -1, &options, &block));
    REFUSED(alloc, (context, 100, -1, &options, &ptr),
            "BUSY persistent 0 0 0/1 alloc_id 5 is active at *");
    CHECK_OK(env, symmem_free(context, block));
    REFUSED(alloc, (context, 101, -1, &options, &block),
            "MISMATCH persistent 100 101 0/1 *5 has 100*0*101*0");
    REFUSED(alloc, (context, 100, 1, &options, &block),
            "MISMATCH persistent 0 1 0/1 *5 has 100*0*100*1");
    REFUSED(pool_create, (context, 8, BYTES, &pool), "OUT_OF_RANGE device 8 8 0/1 *8*8");
    REFUSED(pool_create, (context, 0, SIZE_MAX, &pool), "OVERFLOW 0 0 0/1 *256");
    REFUSED(pool_alloc, (pool, SIZE_MAX, &block), "OVERFLOW 0 -1 0/1 *512");
    REFUSED(pool_free, (pool, numbers), "NOT_SYMMETRIC 0 0 0/1 * is no block of this pool");
    REFUSED(pool_destroy, (pool), "BUSY 0 1 0/1 1 blocks are handed out");
    CHECK(env, pool != NULL);
}

RANKS_TEST("handles", .world = 1) {
    void *ptr = NULL;
    DLManagedTensor *view = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    symmem_stream *stream = env_stream(env);
    symmem_context *context = env->context;
    int32_t number;
    REFUSED(put, (handle, 1, 0, numbers, 4, NULL), "OUT_OF_RANGE 1 1 0/1 rank 1 is not in ?0, 1)");
    REFUSED(get, (handle, -1, 0, numbers, 4, NULL),
            "OUT_OF_RANGE 1 -1 0/1 rank -1 is not in ?0, 1)");
    REFUSED(put, (handle, 0, SIZE_MAX, numbers, 4, NULL),
            "OVERFLOW 0 0 0/1 offset * + 4 bytes overflows");
    REFUSED(put, (handle, 0, BYTES - 3, numbers, 4, NULL),
            "OUT_OF_RANGE 65536 65537 0/1 *65533 + 4*65537*65536");
    REFUSED(put, (handle, 0, 0, NULL, 4, NULL), "INVALID_ARGUMENT 0 0 -1/0 local pointer is NULL");
    REFUSED(copy, (context, NULL, numbers, 4, NULL), "INVALID_ARGUMENT 0 0 -1/0 dst is NULL");
    REFUSED(copy, (context, numbers, NULL, 4, NULL), "INVALID_ARGUMENT 0 0 -1/0 src is NULL");
    REFUSED(copy, (context, ptr, numbers, BYTES + 1, NULL),
            "OUT_OF_RANGE 65536 65537 -1/0 65537*65536");
    REFUSED(copy, (context, numbers, ptr, BYTES + 1, NULL),
            "OUT_OF_RANGE 65536 65537 -1/0 65537*65536");
    REFUSED(copy, (context, numbers, (void *)8, SIZE_MAX, NULL),
            "OVERFLOW 0 0 -1/0 * + * bytes overflows");
    REFUSED(handle_global_rank, (handle, 1, &number),
            "OUT_OF_RANGE 1 1 0/1 rank 1 is not in ?0, 1)");
    REFUSED(handle_global_rank, (handle, 0, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 no place for the result");
    REFUSED(barrier, (handle, -1, 9, NULL),
            "OUT_OF_RANGE 2304 -1 0/1 channel -1 is not in ?0, 2304)");
    REFUSED(barrier, (handle, 1 << 20, 9, NULL), "OUT_OF_RANGE 2304 1048576 0/1 *1048576*0, 2304)");
    REFUSED(put_signal, (handle, 1, 0, 9, NULL), "OUT_OF_RANGE 1 1 0/1 rank 1 is not in ?0, 1)");
    REFUSED(get_buffer, (handle, 1, 2, sizes[0], SYMMEM_FLOAT32, 0, &view),
            "OUT_OF_RANGE 1 1 0/1 rank 1 is not in ?0, 1)");
    REFUSED(get_buffer, (handle, 0, 9, sizes[0], SYMMEM_FLOAT32, 0, &view),
            "INVALID_ARGUMENT 0 0 -1/0 ndim is not in ?0, 8]");
    REFUSED(get_buffer, (handle, 0, -1, sizes[0], SYMMEM_FLOAT32, 0, &view),
            "INVALID_ARGUMENT 0 0 -1/0 ndim is not in ?0, 8]");
    REFUSED(get_buffer, (handle, 0, 1, NULL, SYMMEM_FLOAT32, 0, &view),
            "INVALID_ARGUMENT 0 0 -1/0 sizes is NULL");
    REFUSED(get_buffer, (handle, 0, 2, sizes[0], SYMMEM_DTYPE_COUNT, 0, &view),
            "INVALID_ARGUMENT 0 0 -1/0 unknown dtype");
    REFUSED(get_buffer, (handle, 0, 2, sizes[2], SYMMEM_FLOAT32, 0, &view),
            "OUT_OF_RANGE 0 -1 0/1 size -1 is negative");
    REFUSED(get_buffer, (handle, 0, 2, sizes[0], SYMMEM_FLOAT32, -3, &view),
            "OUT_OF_RANGE 0 -3 0/1 storage_offset -3 is negative");
    REFUSED(get_buffer, (handle, 0, 2, sizes[3], SYMMEM_FLOAT32, 0, &view), "OVERFLOW 0 0 0/1 *");
    REFUSED(get_buffer, (handle, 0, 1, sizes[3], SYMMEM_FLOAT32, 0, &view), "OVERFLOW 0 0 0/1 *");
    REFUSED(get_buffer, (handle, 0, 2, sizes[0], SYMMEM_FLOAT32, BYTES / 4 - 15, &view),
            "OUT_OF_RANGE 65536 65540 0/1 *65540 of 65536");
    REFUSED(get_buffer, (handle, 0, 2, sizes[0], SYMMEM_FLOAT32, 0, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 tensor_p is NULL");
    REFUSED(get_signal_pad, (handle, 0, 1, sizes[3], SYMMEM_UINT32, 0, &view),
            "OVERFLOW 0 0 0/1 *");
    REFUSED(stream_create, (context, 8, &stream), "OUT_OF_RANGE device 8 8 0/1 *8*8");
    REFUSED(stream_create, (context, -1, NULL), "INVALID_ARGUMENT 0 0 -1/0 stream_p is NULL");
    REFUSED(stream_wrap, (context, -1, numbers, &stream), "UNSUPPORTED 0 0 0/1 *");
    CHECK(env, stream != NULL);
}

RANKS_TEST("fills and collectives", .world = 1) {
    void *ptr = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    symmem_context *context = env->context;
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
    REFUSED(memset32, (context, NULL, 0, 1, 1, NULL), "INVALID_ARGUMENT 0 0 -1/0 tensor is NULL");
    REFUSED(memset32, (context, &floats, 0, 1, 1, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 tensor is not of uint32");
    REFUSED(memset32, (context, &halves, 0, 1, 1, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 tensor is not of uint32");
    REFUSED(memset32, (context, &pairs, 0, 1, 1, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 tensor is not of uint32");
    REFUSED(memset32, (context, &shifted, 0, 1, 1, NULL), "MISALIGNED 0 0 -1/0 *4 bytes");
    REFUSED(memset32, (context, &shapeless, 0, 1, 1, NULL), "INVALID_ARGUMENT 0 0 -1/0 *64*");
    REFUSED(memset32, (context, &scalar, 0, 1, 1, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 tensor is not of one dimension");
    REFUSED(memset32, (NULL, &words, 0, 1, 1, NULL), "NOT_INITIALISED 0 0 -1/0 context is NULL");
    REFUSED(stream_write_value32, (context, &floats, 0, 1, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 tensor is not of uint32");
    REFUSED(stream_write_value32, (context, &words, 4, 1, NULL),
            "OUT_OF_RANGE 4 5 -1/0 *4 + count 1*4 elements");
    REFUSED(memset32, (context, &wide, 0, 1, 1, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 tensor is not of one dimension");
    REFUSED(memset32, (context, &odd, 0, 1, 1, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 tensor is not contiguous");
    REFUSED(memset32, (context, &none, 0, 1, 1, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 tensor has no data");
    REFUSED(memset32, (context, &minus, 0, 1, 1, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 tensor has a negative size");
    REFUSED(memset32, (context, &huge, 0, 1, 1, NULL), "OVERFLOW 0 0 -1/0 *");
    REFUSED(memset32, (context, &far, 0, 1, 1, NULL), "OUT_OF_RANGE device 8 9 0/1 *9*8");
    REFUSED(memset32, (context, &words, -1, 1, 1, NULL),
            "OUT_OF_RANGE 0 -1 -1/0 offset is -1, limit 0");
    REFUSED(memset32, (context, &words, 0, 1, 0, NULL),
            "OUT_OF_RANGE 1 0 -1/0 count is 0, limit 1");
    REFUSED(memset32, (context, &words, 0, -1, 1, NULL),
            "OUT_OF_RANGE 4294967295 -1 -1/0 value is -1, limit 4294967295");
    REFUSED(memset32, (context, &words, 0, 1ll << 32, 1, NULL),
            "OUT_OF_RANGE 4294967295 4294967296 -1/0 *4294967296, limit 4294967295");
    REFUSED(memset32, (context, &words, 3, 1, 2, NULL),
            "OUT_OF_RANGE 4 5 -1/0 *3 + count 2*4 elements");
    REFUSED(memset32, (context, &words, 5, 1, 1, NULL),
            "OUT_OF_RANGE 4 6 -1/0 *5 + count 1*4 elements");
    REFUSED(all_reduce, (handle, &flat, SYMMEM_SUM, &words, 0, 9, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 *float32, out of uint32");
    REFUSED(all_reduce, (handle, &flat, SYMMEM_SUM, &square, 0, 9, NULL),
            "INVALID_ARGUMENT 4 16 -1/0 *4*16*");
    REFUSED(all_reduce, (handle, &flat, SYMMEM_SUM, &small, 0, 9, NULL),
            "INVALID_ARGUMENT 4 1 -1/0 *4*1*");
    REFUSED(all_reduce, (handle, &flat, (symmem_reduce_op)99, &flat, 0, 9, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 unknown operation 99");
    REFUSED(all_reduce, (handle, &flat, SYMMEM_SUM, &flat, -1, 9, NULL),
            "OUT_OF_RANGE 2304 -1 0/1 channel -1 is not in ?0, 2304)");
    REFUSED(two_shot_all_reduce, (handle, &flat, SYMMEM_SUM, 0, 9, NULL),
            "NOT_SYMMETRIC 0 0 0/1 *");
    REFUSED(broadcast, (handle, &here, 1, 0, 9, NULL),
            "OUT_OF_RANGE 1 1 0/1 rank 1 is not in ?0, 1)");
    REFUSED(all_gather_out, (handle, &here, &small, 0, 9, NULL), "INVALID_ARGUMENT 4 1 -1/0 *4*1*");
    REFUSED(reduce_scatter_out, (handle, &here, SYMMEM_SUM, false, &square, 0, 9, NULL),
            "INVALID_ARGUMENT 1 2 0/1 out has 2 dimensions, not one");
    REFUSED(reduce_scatter_out, (handle, &here, SYMMEM_SUM, false, &small, 0, 9, NULL),
            "INVALID_ARGUMENT 4 1 0/1 *1, not 4");
    REFUSED(all_to_all_out, (handle, &here, splits, &flat, splits, 0, 9, NULL),
            "INVALID_ARGUMENT 4 3 -1/0 *3*4");
    REFUSED(multimem_all_reduce, (handle, &here, SYMMEM_SUM, 0, 9, NULL), "UNSUPPORTED 0 0 0/1 *");
    CHECK_OK(env, symmem_stream_begin_capture(other));
    REFUSED(fused_all_gather_matmul,
            (handle, &square, 0, 1, &b, NULL, &out, 0, 9, env_stream(env), other),
            "CAPTURE 0 0 0/1 *second stream takes part in another capture");
    CHECK_OK(env, symmem_stream_end_capture(other, &graph));
    CHECK_OK(env, symmem_graph_destroy(graph));
    REFUSED(fused_strides, (-1, &four, 0, two), "INVALID_ARGUMENT 0 0 -1/0 ndim is negative");
    REFUSED(fused_strides, (1, NULL, 0, two), "INVALID_ARGUMENT 0 0 -1/0 shape or strides is NULL");
    REFUSED(fused_strides, (1, &four, 1, two),
            "OUT_OF_RANGE 0 0 -1/0 dimension 1 is not in ?0, 1)");
    REFUSED(fused_strides, (2, sizes[2], 1, two), "INVALID_ARGUMENT 0 0 -1/0 shape?0] is negative");
    REFUSED(fused_strides, (2, sizes[3], 1, two), "OVERFLOW 0 0 -1/0 *");
    REFUSED(restride, (context, &flat, &square, NULL),
            "INVALID_ARGUMENT 1 2 -1/0 dst has 2 dimensions, not 1");
    REFUSED(restride, (context, &flat, &small, NULL), "INVALID_ARGUMENT 4 1 -1/0 *0*1*4");
    REFUSED(restride, (context, &flat, &words, NULL),
            "INVALID_ARGUMENT 0 0 -1/0 *float32, dst of uint32");
    REFUSED(restride, (context, &flat, &flat, NULL), "INVALID_ARGUMENT 0 0 -1/0 src overlaps dst");
}

RANKS_TEST("groups, devices and stores", .world = 1) {
    static const int32_t absent[] = {1}, twice[] = {0, 0};
    static char text[SYMMEM_STORE_KEY_MAX + 2], value[8];
    symmem_context *context = env->context;
    symmem_group *group = NULL;
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
    REFUSED(group_create, (context, text, NULL, 0, NULL, &group),
            "INVALID_ARGUMENT 63 0 0/1 *63 bytes");
    REFUSED(group_create, (context, "", NULL, 0, NULL, &group),
            "INVALID_ARGUMENT 0 0 0/1 the name is NULL or empty");
    REFUSED(group_create, (context, "g", absent, 1, NULL, &group),
            "OUT_OF_RANGE 1 1 0/1 ranks?0] is 1 in a world of 1");
    REFUSED(group_create, (context, "g", twice, 2, NULL, &group),
            "INVALID_ARGUMENT 0 0 0/1 rank 0 is listed twice");
    REFUSED(group_create, (context, "world", NULL, 0, NULL, &group),
            "EXISTS 0 0 0/1 a group 'world' is live");
    REFUSED(group_global_rank, (env->group, 1, &number),
            "OUT_OF_RANGE 1 1 0/1 rank 1 in group 'world' of 1");
    REFUSED(group_global_rank, (env->group, -1, &number),
            "OUT_OF_RANGE 1 -1 0/1 rank -1 in group 'world' of 1");
    REFUSED(group_find, (context, "nobody", &group), "NOT_FOUND 0 0 0/1 *'nobody'");
    REFUSED(group_set_communicator, (env->group, value), "UNSUPPORTED 0 0 0/1 *'shm'*");
    REFUSED(group_all_gather, (env->group, value, SIZE_MAX, value, 9),
            "OUT_OF_RANGE 65536 -1 0/1 * bytes are more than 65536");
    REFUSED(group_all_gather, (env->group, NULL, 1, value, 9),
            "INVALID_ARGUMENT 0 0 0/1 in is NULL");
    REFUSED(group_broadcast_fds, (env->group, 1, 0, &fd, 9),
            "OUT_OF_RANGE 1 1 0/1 rank 1 in group 'world' of 1");
    REFUSED(group_send_fd, (env->group, 1, 0, 9),
            "OUT_OF_RANGE 1 1 0/1 rank 1 in group 'world' of 1");
    REFUSED(group_recv_fd, (env->group, -1, &fd, 9),
            "OUT_OF_RANGE 1 -1 0/1 rank -1 in group 'world' of 1");
    REFUSED(connectivity, (context, NULL, 8, matrix),
            "INVALID_ARGUMENT 0 0 0/1 connection is NULL");
    REFUSED(connectivity, (context, "nvlink", 8, NULL), "INVALID_ARGUMENT 0 0 0/1 matrix is NULL");
    REFUSED(connectivity, (context, "nvlink", 7, matrix), "OUT_OF_RANGE device_count 8 7 0/1 *7*8");
    REFUSED(connectivity, (context, "string", 8, matrix),
            "NOT_FOUND connectivity 0 0 0/1 no links of kind 'string'");
    REFUSED(has_multicast_support, (context, 1, 8, &yes), "OUT_OF_RANGE device 8 8 0/1 *8*8");
    REFUSED(set_allow_overlapping_devices, (context, 2),
            "INVALID_ARGUMENT 0 0 0/1 allow is 2, not -1, 0 or 1");
    REFUSED(set_backend, (context, "nobody"), "NOT_FOUND search 0 0 -1/0 no backend 'nobody' *");
    REFUSED(store_open_custom, (&ops, NULL, &other), "ABI 56 4 -1/0 *4 bytes, 56*");
    REFUSED(store_set, (store, "", value, 1, 9),
            "INVALID_ARGUMENT 200 0 -1/0 a key has 1 to 200 characters");
    REFUSED(store_set, (store, text, value, 1, 9),
            "INVALID_ARGUMENT 200 201 -1/0 a key has 1 to 200 characters");
    REFUSED(store_set, (store, "key", value, SYMMEM_STORE_VALUE_MAX + 1, 9),
            "INVALID_ARGUMENT 1048576 1048577 -1/0 *1048576*1048577");
    REFUSED(store_set, (store, "key", NULL, 1, 9), "INVALID_ARGUMENT 0 0 -1/0 NULL value");
    REFUSED(store_get, (store, "key", value, 4, &bytes, 9), "OUT_OF_RANGE 0 0 -1/0 *4 bytes");
    REFUSED(store_get, (store, "none", value, 4, &bytes, 9), "NOT_FOUND 0 0 -1/0 no key none");
    REFUSED(store_wait, (store, "none", 1), "TIMEOUT 0 0 -1/0 deadline passed for key none");
    REFUSED(store_add, (store, "key", 1, &sum, 9), "MISMATCH 0 0 -1/0 key key is not a counter");
    symmem_store_close(store);
}
