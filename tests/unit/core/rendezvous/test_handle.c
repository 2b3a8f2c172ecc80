/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is out of reach below a handle, and fills. */
#include "link_ranks.h"

/* --- out of reach ------------------------------------------------------------------- */

static symmem_status import_far(void *instance, int32_t device, const symmem_share *share,
                                size_t bytes, symmem_memory *memory) {
    symmem_status status = symmem_backend_entry(SYMMEM_BACKEND_ABI)
                               ->memory->map(instance, device, share, bytes, memory);
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

RANKS_TEST("out of reach", .world = 2, .entries = {.memory_map = import_far}) {
    void *ptr = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    symmem_handle_info info;
    int64_t shape = 4;
    int value = 0;
    CHECK_OK(env, symmem_handle_get_info(handle, &info));
    CHECK(env, !info.world_within_direct_access);
    CHECK_STATUS(env, symmem_put(handle, 1 - env->rank, 0, &value, 4, NULL), SYMMEM_UNREACHABLE);
    CHECK(env, last_record().failed_rank == 1 - env->rank);
    DLManagedTensor *view = NULL;
    CHECK_STATUS(env,
                 symmem_get_remote_tensor(handle, 1 - env->rank, 1, &shape, SYMMEM_UINT8, 0, &view),
                 SYMMEM_UNREACHABLE);
}

/* --- the backend is asked ----------------------------------------------------------- */

/* A cancellation point that leaves an errno. */
static void check_rudely(void *instance, const symmem_peers *peers) {
    (void)instance, (void)peers;
    (void)usleep(1);
    errno = EIO;
}

typedef struct question {
    symmem_handle *handle;
    int error_numbers[2];
    bool answered;
} question;

static void *ask_canceled(void *arg) {
    question *q = arg;
    symmem_error_record record;
    symmem_handle_info info;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    (void)pthread_cancel(pthread_self());
    (void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    errno = 77;
    bool status_is_ok = symmem_handle_status(q->handle, &record) == SYMMEM_OK;
    q->error_numbers[0] = errno;
    errno = 77;
    bool info_is_ok = symmem_handle_get_info(q->handle, &info) == SYMMEM_OK;
    q->error_numbers[1] = errno;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    q->answered = status_is_ok && info_is_ok;
    return NULL;
}

RANKS_TEST("questions are calls", .world = 1, .entries = {.signal_check = check_rudely}) {
    question q = {.handle = env_kept_handle(env, NULL)};
    pthread_t thread;
    CHECK(env, pthread_create(&thread, NULL, ask_canceled, &q) == 0);
    CHECK(env, pthread_join(thread, NULL) == 0);
    CHECK(env, q.answered);
    CHECK(env, q.error_numbers[0] == 77 && q.error_numbers[1] == 77);
}

/* --- fills -------------------------------------------------------------------------- */

RANKS_TEST("fills", .world = 1) {
    symmem_context *context = env->context;
    symmem_stream *stream = NULL;
    uint32_t host[8] = {0};
    void *ptr = NULL;
    int64_t shape = 8, stride = 1;
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

    memset(host, 0, sizeof host);
    static const int64_t refused[][3] = {/* offset, value, count */
                                         {0, 0, -1},
                                         {8, 1, 1},
                                         {0, 1, 9},
                                         {INT64_MAX, 1, 1},
                                         {1, 1, INT64_MAX}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        CHECK_STATUS(
            env, symmem_memset32(context, &t, refused[i][0], refused[i][1], refused[i][2], NULL),
            SYMMEM_OUT_OF_RANGE);
    for (int i = 0; i < 8; i++)
        CHECK(env, host[i] == 0);
    CHECK_OK(env, symmem_stream_destroy(stream));
}

RANKS_TEST("a view outlives its context", .world = 1) {
    void *ptr = NULL;
    DLManagedTensor *t = NULL, *other = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_get_buffer(handle, 0, 0, NULL, SYMMEM_UINT8, 0, &t));
    CHECK_OK(env, symmem_finalize(env->context));
    CHECK_STATUS(env, symmem_get_buffer(handle, 0, 0, NULL, SYMMEM_UINT8, 0, &other),
                 SYMMEM_NOT_INITIALIZED);
    symmem_handle_release(handle);
    *(char *)t->dl_tensor.data = 1;
    t->deleter(NULL);
    t->deleter(t);
}
