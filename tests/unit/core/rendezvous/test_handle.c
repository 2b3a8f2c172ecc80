/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles: queries, references, status; one-sided copies and fills. */
#include "link_ranks.h"

static void body_queries(rank_env *env) {
    void *ptr = NULL, *dev = NULL;
    void *const *buffers = NULL, *const *pads = NULL;
    symmem_handle_info info = {0};
    int32_t global = -1;
    const char *name = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_handle_get_info(handle, &info));
    CHECK(env, info.rank == env->rank && info.world_size == env->world);
    CHECK(env, info.buffer_size == BYTES && info.block_size == BYTES && info.offset == 0);
    CHECK(env, info.signal_pad_size == SYMMEM_DEFAULT_SIGNAL_PAD_SIZE);
    CHECK(env, info.channel_count == SYMMEM_DEFAULT_SIGNAL_PAD_SIZE / (4 * env->world));
    CHECK(env, info.world_within_direct_access && !info.poisoned && info.multicast_ptr == NULL);
    CHECK(env, info.device == env->rank);
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    CHECK(env, buffers[env->rank] == ptr);
    CHECK_OK(env, symmem_handle_signal_pad_ptrs(handle, &pads));
    CHECK_OK(env, symmem_handle_buffer_ptrs_dev(handle, &dev));
    CHECK(env, memcmp(dev, buffers, (size_t)env->world * sizeof *buffers) == 0);
    CHECK_OK(env, symmem_handle_signal_pad_ptrs_dev(handle, &dev));
    CHECK(env, memcmp(dev, pads, (size_t)env->world * sizeof *pads) == 0);
    for (int32_t r = 0; r < env->world; r++) {
        CHECK_OK(env, symmem_handle_global_rank(handle, r, &global));
        CHECK(env, global == r);
    }
    CHECK_STATUS(env, symmem_handle_global_rank(handle, env->world, &global), SYMMEM_OUT_OF_RANGE);
    CHECK(env, last_record().expected == (uint64_t)env->world);
    CHECK_STATUS(env, symmem_handle_global_rank(handle, -1, &global), SYMMEM_OUT_OF_RANGE);
    CHECK_OK(env, symmem_handle_group_name(handle, &name));
    CHECK(env, strcmp(name, "world") == 0);
    CHECK_OK(env, symmem_handle_status(handle, NULL));
    /* Every query refuses a missing handle and a missing place. */
    CHECK_STATUS(env, symmem_handle_get_info(NULL, &info), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_handle_get_info(handle, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_handle_buffer_ptrs(NULL, &buffers), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_handle_signal_pad_ptrs(handle, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_handle_buffer_ptrs_dev(handle, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_handle_signal_pad_ptrs_dev(NULL, &dev), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_handle_group_name(handle, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_handle_global_rank(NULL, 0, &global), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_handle_status(NULL, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_handle_retain(NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_OK(env, symmem_handle_retain(handle));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_handle_get_info(handle, &info));
    symmem_handle_release(handle);
    symmem_handle_release(NULL);
}

TEST("queries") {
    run_threads((plan){.world = 1, .body = body_queries});
    run_threads((plan){.world = 4, .body = body_queries});
}

static void body_subgroup(rank_env *env) {
    /* Reversed and strict: group rank i is context rank 2 - i. */
    static const int32_t members[] = {2, 1};
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    void *ptr = NULL;
    int32_t global = -1;
    if (env->rank == 0) {
        CHECK(env, true);
        return;
    }
    CHECK_OK(env, symmem_group_create(env->context, "sub", members, 2, NULL, &group));
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK_OK(env, symmem_rendezvous(env->context, ptr, group, 10000, &handle));
    CHECK_OK(env, symmem_handle_global_rank(handle, 0, &global));
    CHECK(env, global == 2);
    CHECK_OK(env, symmem_put(handle, 2 - env->rank == 0 ? 1 : 0, 0, &env->rank, 4, NULL));
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    CHECK(env, *(int32_t *)ptr == 3 - env->rank);
    symmem_handle_release(handle);
}

TEST("a permuted subgroup") {
    run_threads((plan){.world = 3, .body = body_subgroup});
}

static void body_onesided(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr), *inner = NULL;
    symmem_stream *stream = NULL;
    symmem_context *context = env->context;
    int next = (env->rank + 1) % env->world;
    int value = 40 + env->rank, back = 0;
    CHECK_OK(env, symmem_stream_create(context, -1, &stream));
    CHECK_OK(env, symmem_put(handle, next, 128, &value, sizeof value, NULL));
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    CHECK(env, ((int *)ptr)[32] == 40 + (env->rank + env->world - 1) % env->world);
    CHECK_OK(env, symmem_get(handle, next, 128, &back, sizeof back, stream));
    CHECK_OK(env, symmem_stream_synchronize(stream, 10000));
    CHECK(env, back == value);
    /* Offsets count from the handle's own. */
    CHECK_OK(env, symmem_rendezvous(context, (char *)ptr + 128, env->group, 100, &inner));
    back = 0;
    CHECK_OK(env, symmem_get(inner, next, 0, &back, sizeof back, NULL));
    CHECK(env, back == value);
    CHECK_OK(env, symmem_get(inner, next, BYTES - 128 - 4, &back, 4, NULL));
    CHECK_STATUS(env, symmem_get(inner, next, BYTES - 128 - 3, &back, 4, NULL),
                 SYMMEM_OUT_OF_RANGE);
    CHECK(env, last_record().expected == BYTES && last_record().actual == BYTES + 1);
    CHECK_STATUS(env, symmem_put(handle, next, SIZE_MAX, &value, 4, NULL), SYMMEM_OVERFLOW);
    CHECK_STATUS(env, symmem_put(inner, next, SIZE_MAX - 127, &value, 0, NULL), SYMMEM_OVERFLOW);
    CHECK_STATUS(env, symmem_put(handle, env->world, 0, &value, 4, NULL), SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_put(handle, -1, 0, &value, 4, NULL), SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_put(handle, next, 0, NULL, 4, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_put(NULL, next, 0, &value, 4, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_get(NULL, next, 0, &value, 4, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_OK(env, symmem_put(handle, next, BYTES, NULL, 0, NULL));
    /* The local side may not run past its allocation either. */
    CHECK_STATUS(env, symmem_put(handle, next, 0, (char *)ptr + BYTES - 4, 8, NULL),
                 SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_get(handle, next, 0, (char *)ptr + BYTES - 4, 8, NULL),
                 SYMMEM_OUT_OF_RANGE);
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));

    CHECK_OK(env, symmem_copy(context, (char *)ptr + 256, &value, sizeof value, NULL));
    CHECK_OK(env, symmem_copy(context, &back, (char *)ptr + 256, sizeof back, stream));
    CHECK_OK(env, symmem_stream_synchronize(stream, 10000));
    CHECK(env, back == value);
    CHECK_OK(env, symmem_copy(context, (char *)ptr + 512, (char *)ptr + 256, 4, stream));
    /* Freed while it may be pending: the operation keeps the memory. */
    CHECK_OK(env, symmem_copy(context, NULL, NULL, 0, NULL));
    CHECK_STATUS(env, symmem_copy(context, NULL, &value, 4, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_copy(context, &value, NULL, 4, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_copy(NULL, &value, &back, 4, NULL), SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_copy(context, ptr, &value, SIZE_MAX, NULL), SYMMEM_OVERFLOW);
    CHECK_STATUS(env, symmem_copy(context, &back, (char *)ptr + BYTES - 2, 4, NULL),
                 SYMMEM_OUT_OF_RANGE);
    symmem_handle_release(inner);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_stream_destroy(stream));
    CHECK_OK(env, symmem_free(context, ptr));
}

TEST("one-sided copies") {
    run_threads((plan){.world = 3, .body = body_onesided});
}

/* --- entries that fail -------------------------------------------------------------- */

static symmem_status no_copy(void *instance, int32_t device, void *dst, const void *src,
                             size_t bytes, const symmem_exec *exec) {
    (void)instance, (void)device, (void)dst, (void)src, (void)bytes, (void)exec;
    return SYMMEM_BACKEND;
}

static symmem_status no_memset(void *instance, int32_t device, void *dst, uint32_t value,
                               size_t count, const symmem_exec *exec) {
    (void)instance, (void)device, (void)dst, (void)value, (void)count, (void)exec;
    return SYMMEM_BACKEND;
}

static symmem_status no_write(void *instance, int32_t device, void *dst, uint32_t value,
                              const symmem_exec *exec) {
    (void)instance, (void)device, (void)dst, (void)value, (void)exec;
    return SYMMEM_BACKEND;
}

static symmem_status import_far(void *instance, int32_t device, const symmem_share *share,
                                size_t bytes, symmem_memory *memory) {
    symmem_status status = symmem_backend_entry(SYMMEM_BACKEND_ABI)
                               ->memory_import(instance, device, share, bytes, memory);
    if (status == SYMMEM_OK && bytes == BYTES)
        memory->ptr = NULL; /* mapped, but not for this processor */
    return status;
}

static DLTensor words(void *data, int64_t *shape) {
    return (DLTensor){.data = data,
                      .ndim = 1,
                      .dtype = {.code = kDLUInt, .bits = 32, .lanes = 1},
                      .shape = shape};
}

static void body_failing(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    symmem_handle_info info;
    int64_t shape = 4;
    int value = 0;
    DLTensor tensor = words(ptr, &shape);
    CHECK_OK(env, symmem_handle_get_info(handle, &info));
    CHECK(env, !info.world_within_direct_access);
    CHECK_STATUS(env, symmem_put(handle, 1 - env->rank, 0, &value, 4, NULL), SYMMEM_UNREACHABLE);
    CHECK(env, last_record().failed_rank == 1 - env->rank);
    CHECK_STATUS(env, symmem_put(handle, env->rank, 0, &value, 4, NULL), SYMMEM_BACKEND);
    CHECK(env, strcmp(last_record().operation, "put") == 0);
    CHECK_STATUS(env, symmem_copy(env->context, ptr, &value, 4, NULL), SYMMEM_BACKEND);
    CHECK_STATUS(env, symmem_memset32(env->context, &tensor, 0, 1, 1, NULL), SYMMEM_BACKEND);
    CHECK_STATUS(env, symmem_stream_write_value32(env->context, &tensor, 0, 1, NULL),
                 SYMMEM_BACKEND);
    DLManagedTensor *view = NULL;
    CHECK_STATUS(env,
                 symmem_get_remote_tensor(handle, 1 - env->rank, 1, &shape, SYMMEM_UINT8, 0, &view),
                 SYMMEM_UNREACHABLE);
    symmem_handle_release(handle);
}

TEST("entries that fail") {
    symmem_backend table = *symmem_backend_entry(SYMMEM_BACKEND_ABI);
    table.copy = no_copy;
    table.memset32 = no_memset;
    table.write_value32 = no_write;
    table.memory_import = import_far;
    run_threads((plan){.world = 2, .body = body_failing, .backend = &table});
}

/* --- fills -------------------------------------------------------------------------- */

static void body_fill(rank_env *env) {
    symmem_context *context = env->context;
    symmem_stream *stream = NULL;
    uint32_t host[8] = {0};
    void *ptr = NULL;
    int64_t shape = 8, two[2] = {2, 4}, stride = 1;
    DLTensor t = words(host, &shape), bad;
    CHECK_OK(env, symmem_memset32(context, &t, 2, 0xffffffff, 3, NULL));
    CHECK(env, host[1] == 0 && host[2] == 0xffffffff && host[4] == 0xffffffff && host[5] == 0);
    CHECK_OK(env, symmem_stream_write_value32(context, &t, 7, 9, NULL));
    CHECK(env, host[7] == 9 && host[6] == 0);
    t.strides = &stride;
    t.byte_offset = 4;
    CHECK_OK(env, symmem_memset32(context, &t, 0, 5, 1, NULL));
    CHECK(env, host[1] == 5 && host[0] == 0);
    t.byte_offset = 0;

    CHECK_OK(env, symmem_alloc(context, BYTES, -1, NULL, &ptr));
    CHECK_OK(env, symmem_stream_create(context, -1, &stream));
    bad = words(ptr, &shape);
    CHECK_OK(env, symmem_memset32(context, &bad, 0, 3, 8, stream));
    CHECK_OK(env, symmem_stream_write_value32(context, &bad, 1, 4, stream));
    CHECK_OK(env, symmem_stream_synchronize(stream, 1000));
    CHECK(env, ((uint32_t *)ptr)[0] == 3 && ((uint32_t *)ptr)[1] == 4);
    bad = words((char *)ptr + BYTES - 4, &shape);
    CHECK_STATUS(env, symmem_memset32(context, &bad, 0, 3, 2, NULL), SYMMEM_OUT_OF_RANGE);

#define REFUSED(field, value, status)                                                              \
    do {                                                                                           \
        bad = t;                                                                                   \
        bad.field = value;                                                                         \
        CHECK_STATUS(env, symmem_memset32(context, &bad, -1, -1, -1, NULL), status);               \
        CHECK_STATUS(env, symmem_stream_write_value32(context, &bad, -1, -1, NULL), status);       \
    } while (0)
    REFUSED(dtype.code, kDLInt, SYMMEM_INVALID_ARGUMENT);
    REFUSED(dtype.bits, 16, SYMMEM_INVALID_ARGUMENT);
    REFUSED(dtype.lanes, 2, SYMMEM_INVALID_ARGUMENT);
    REFUSED(ndim, 0, SYMMEM_INVALID_ARGUMENT);
    REFUSED(shape, NULL, SYMMEM_INVALID_ARGUMENT);
    REFUSED(data, NULL, SYMMEM_INVALID_ARGUMENT);
    REFUSED(byte_offset, 2, SYMMEM_MISALIGNED);
    stride = 2;
    REFUSED(byte_offset, 0, SYMMEM_INVALID_ARGUMENT);
    stride = 1;
    bad = t;
    bad.ndim = 2;
    bad.shape = two;
    CHECK_STATUS(env, symmem_memset32(context, &bad, 0, 0, 1, NULL), SYMMEM_INVALID_ARGUMENT);
    two[0] = -1;
    bad.ndim = 1;
    CHECK_STATUS(env, symmem_memset32(context, &bad, 0, 0, 1, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_memset32(context, NULL, 0, 0, 1, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_memset32(NULL, &t, 0, 0, 1, NULL), SYMMEM_NOT_INITIALISED);
    memset(host, 0, sizeof host);
    static const int64_t refused[][3] = {
        /* offset, value, count */
        {-1, 0, 1}, {0, 0, 0}, {0, 0, -1},        {0, -1, 1},        {0, 1ll << 32, 1}, {8, 1, 1},
        {0, 1, 9},  {7, 1, 2}, {INT64_MAX, 1, 1}, {1, 1, INT64_MAX}, {9, 1, 1}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        CHECK_STATUS(
            env, symmem_memset32(context, &t, refused[i][0], refused[i][1], refused[i][2], NULL),
            SYMMEM_OUT_OF_RANGE);
    for (int i = 0; i < 8; i++)
        CHECK(env, host[i] == 0);
    CHECK_OK(env, symmem_stream_destroy(stream));
}

TEST("fills") {
    run_threads((plan){.world = 1, .body = body_fill});
}
