/* SPDX-License-Identifier: BSD-3-Clause */
/* Views: shapes, bounds, alignment, element types, references. */
#include "link_ranks.h"

#define PAD 4096

static symmem_handle *inner_handle(rank_env *env, void *ptr, size_t offset) {
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_rendezvous(env->context, (char *)ptr + offset, env->group, 5000, &handle));
    return handle;
}

static void body_shapes(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr), *inner = inner_handle(env, ptr, 64);
    void *const *buffers = NULL;
    DLManagedTensor *t = NULL;
    const int64_t sizes[] = {2, 3, 4};
    int peer = env->world - 1 - env->rank;
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    CHECK_OK(env, symmem_get_buffer(inner, peer, 3, sizes, SYMMEM_FLOAT32, 5, &t));
    CHECK(env, t->dl_tensor.data == (char *)buffers[peer] + 20 && t->dl_tensor.byte_offset == 0);
    CHECK(env, t->dl_tensor.ndim == 3 && t->dl_tensor.shape[2] == 4);
    CHECK(env, t->dl_tensor.strides[0] == 12 && t->dl_tensor.strides[1] == 4 &&
                   t->dl_tensor.strides[2] == 1);
    CHECK(env,
          t->dl_tensor.device.device_type == kDLCPU && t->dl_tensor.device.device_id == env->rank);
    t->deleter(t);
    CHECK_OK(env, symmem_get_remote_tensor(inner, peer, 3, sizes, SYMMEM_FLOAT32, 5, &t));
    CHECK(env, t->dl_tensor.data == (char *)buffers[peer] + 64 + 20);
    t->deleter(NULL);
    /* The view alone keeps the memory. */
    symmem_handle_release(inner);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    ((float *)t->dl_tensor.data)[0] = 1;
    t->deleter(t);
}

TEST("shapes") {
    run_threads((plan){.world = 2, .body = body_shapes});
}

static void body_bounds(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr), *inner = inner_handle(env, ptr, 62);
    DLManagedTensor *t = NULL;
    static const struct {
        int64_t size, offset;
        symmem_dtype dtype;
        symmem_status buffer, remote; /* remote: of the handle at 62 */
    } cases[] = {
        {BYTES, 0, SYMMEM_UINT8, SYMMEM_OK, SYMMEM_OUT_OF_RANGE},
        {BYTES + 1, 0, SYMMEM_UINT8, SYMMEM_OUT_OF_RANGE, SYMMEM_OUT_OF_RANGE},
        {BYTES - 62, 0, SYMMEM_INT8, SYMMEM_OK, SYMMEM_OK},
        {BYTES - 61, 0, SYMMEM_INT8, SYMMEM_OK, SYMMEM_OUT_OF_RANGE},
        {1, BYTES - 1, SYMMEM_UINT8, SYMMEM_OK, SYMMEM_OUT_OF_RANGE},
        {1, BYTES, SYMMEM_UINT8, SYMMEM_OUT_OF_RANGE, SYMMEM_OUT_OF_RANGE},
        {0, BYTES, SYMMEM_UINT8, SYMMEM_OK, SYMMEM_OUT_OF_RANGE},
        {BYTES / 2 - 31, 0, SYMMEM_FLOAT16, SYMMEM_OK, SYMMEM_OK},
        {1, 0, SYMMEM_FLOAT64, SYMMEM_OK, SYMMEM_MISALIGNED},
        {1, -1, SYMMEM_UINT8, SYMMEM_OUT_OF_RANGE, SYMMEM_OUT_OF_RANGE},
        {-1, 0, SYMMEM_UINT8, SYMMEM_OUT_OF_RANGE, SYMMEM_OUT_OF_RANGE},
        {INT64_MAX, 1, SYMMEM_INT16, SYMMEM_OVERFLOW, SYMMEM_OVERFLOW},
        {1, INT64_MAX, SYMMEM_INT16, SYMMEM_OVERFLOW, SYMMEM_OVERFLOW},
        {INT64_MAX, INT64_MAX, SYMMEM_UINT8, SYMMEM_OUT_OF_RANGE, SYMMEM_OUT_OF_RANGE},
        {1, 0, SYMMEM_DTYPE_COUNT, SYMMEM_INVALID_ARGUMENT, SYMMEM_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        t = NULL;
        CHECK_STATUS(
            env,
            symmem_get_buffer(inner, 0, 1, &cases[i].size, cases[i].dtype, cases[i].offset, &t),
            cases[i].buffer);
        CHECK(env, (t != NULL) == (cases[i].buffer == SYMMEM_OK));
        if (t != NULL)
            t->deleter(t);
        t = NULL;
        CHECK_STATUS(env,
                     symmem_get_remote_tensor(inner, 0, 1, &cases[i].size, cases[i].dtype,
                                              cases[i].offset, &t),
                     cases[i].remote);
        CHECK(env, (t != NULL) == (cases[i].remote == SYMMEM_OK));
        if (t != NULL)
            t->deleter(t);
    }
    const int64_t many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, wide[3] = {1ll << 40, 1ll << 40, 2};
    const int64_t empty[3] = {3, 0, 5};
    CHECK_OK(env, symmem_get_buffer(handle, 0, 8, many, SYMMEM_INT64, 0, &t));
    t->deleter(t);
    CHECK_OK(env, symmem_get_buffer(handle, 0, 0, NULL, SYMMEM_INT64, 1, &t));
    CHECK(env, t->dl_tensor.ndim == 0 && t->dl_tensor.data == (char *)ptr + 8);
    t->deleter(t);
    CHECK_OK(env, symmem_get_buffer(handle, 0, 3, empty, SYMMEM_INT64, 0, &t));
    CHECK(env, t->dl_tensor.strides[0] == 5 && t->dl_tensor.shape[1] == 0);
    t->deleter(t);
    CHECK_STATUS(env, symmem_get_buffer(handle, 0, 9, many, SYMMEM_INT64, 0, &t),
                 SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_get_buffer(handle, 0, -1, many, SYMMEM_INT64, 0, &t),
                 SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_get_buffer(handle, 0, 1, NULL, SYMMEM_INT64, 0, &t),
                 SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_get_buffer(handle, 0, 1, many, SYMMEM_INT64, 0, NULL),
                 SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_get_buffer(NULL, 0, 1, many, SYMMEM_INT64, 0, &t),
                 SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_get_remote_tensor(NULL, 0, 1, many, SYMMEM_INT64, 0, &t),
                 SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_get_buffer(handle, 1, 1, many, SYMMEM_INT64, 0, &t),
                 SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_get_buffer(handle, 0, 3, wide, SYMMEM_INT64, 0, &t), SYMMEM_OVERFLOW);
    symmem_handle_release(inner);
    symmem_handle_release(handle);
}

TEST("bounds") {
    run_threads((plan){.world = 1, .body = body_bounds});
}

static void body_dtypes(rank_env *env) {
    static const struct {
        uint8_t code, bits;
    } wanted[SYMMEM_DTYPE_COUNT] = {
        {kDLUInt, 8},   {kDLInt, 8},     {kDLInt, 16},   {kDLUInt, 16},
        {kDLInt, 32},   {kDLUInt, 32},   {kDLInt, 64},   {kDLUInt, 64},
        {kDLFloat, 16}, {kDLBfloat, 16}, {kDLFloat, 32}, {kDLFloat, 64},
    };
    void *ptr = NULL;
    DLManagedTensor *t = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    const int64_t size = 2;
    for (int d = 0; d < SYMMEM_DTYPE_COUNT; d++) {
        CHECK_OK(env, symmem_get_buffer(handle, 0, 1, &size, (symmem_dtype)d, 1, &t));
        DLDataType type = t->dl_tensor.dtype;
        CHECK(env, type.code == wanted[d].code && type.bits == wanted[d].bits && type.lanes == 1);
        CHECK(env, t->dl_tensor.data == (char *)ptr + wanted[d].bits / 8);
        t->deleter(t);
    }
    symmem_handle_release(handle);
}

TEST("element types") {
    run_threads((plan){.world = 1, .body = body_dtypes});
}

static void body_pad(rank_env *env) {
    void *ptr = NULL;
    DLManagedTensor *t = NULL;
    void *const *pads = NULL;
    CHECK_OK(env, symmem_set_signal_pad_size(env->context, PAD));
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_handle_signal_pad_ptrs(handle, &pads));
    int peer = 1 - env->rank;
    CHECK_OK(env, symmem_get_signal_pad(handle, peer, 0, NULL, SYMMEM_UINT32, 0, &t));
    CHECK(env, t->dl_tensor.ndim == 1 && t->dl_tensor.shape[0] == PAD / 4);
    CHECK(env, t->dl_tensor.data == pads[peer]);
    ((uint32_t *)t->dl_tensor.data)[2 * 3 + env->rank] = 1; /* channel 3 */
    t->deleter(t);
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    for (int i = 0; i < PAD / 4; i++)
        CHECK(env, ((uint32_t *)pads[env->rank])[i] == (i == 6 + peer));
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    /* Filling all of it disturbs neither data nor signals. */
    memset(pads[env->rank], 0xff, PAD);
    CHECK_OK(env, symmem_put_signal(handle, peer, 0, 1000, NULL));
    CHECK_OK(env, symmem_wait_signal(handle, peer, 0, 10000, NULL));
    CHECK(env, ((uint32_t *)ptr)[0] == 0);
    CHECK_OK(env, symmem_get_signal_pad(handle, peer, 0, NULL, SYMMEM_UINT64, 0, &t));
    CHECK(env, t->dl_tensor.shape[0] == PAD / 8);
    t->deleter(t);
    const int64_t sizes[2] = {8, 8}, all = PAD;
    CHECK_OK(env, symmem_get_signal_pad(handle, peer, 2, sizes, SYMMEM_UINT32, PAD / 4 - 64, &t));
    t->deleter(t);
    CHECK_STATUS(env,
                 symmem_get_signal_pad(handle, peer, 2, sizes, SYMMEM_UINT32, PAD / 4 - 63, &t),
                 SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_get_signal_pad(handle, peer, 0, NULL, SYMMEM_UINT32, 1, &t),
                 SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_get_signal_pad(handle, peer, 1, &all, SYMMEM_UINT32, 0, &t),
                 SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_get_signal_pad(NULL, peer, 0, NULL, SYMMEM_UINT32, 0, &t),
                 SYMMEM_INVALID_ARGUMENT);
    symmem_handle_release(handle);
}

TEST("pad") {
    run_threads((plan){.world = 2, .body = body_pad});
}

static void body_finalised(rank_env *env) {
    void *ptr = NULL;
    DLManagedTensor *t = NULL, *other = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_get_buffer(handle, 0, 0, NULL, SYMMEM_UINT8, 0, &t));
    CHECK_OK(env, symmem_finalize(env->context));
    CHECK_STATUS(env, symmem_get_buffer(handle, 0, 0, NULL, SYMMEM_UINT8, 0, &other),
                 SYMMEM_NOT_INITIALISED);
    symmem_handle_release(handle);
    *(char *)t->dl_tensor.data = 1;
    t->deleter(t);
}

TEST("after finalise") {
    run_threads((plan){.world = 1, .body = body_finalised});
}
