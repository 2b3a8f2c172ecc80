/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments that are no object at all, or an object of another context, and those of calls that
 * have no status to answer with. What has one, the other limits_* have. */
#include "case_help.h"
#include "limits_help.h"
#include "timeout_help.h"

#define LIMIT_MS 2000u

/* --- objects of another context --------------------------------------------------------------- */

TK_TEST(limits, foreign_group, "SM-CONTEXT-08,SM-ERROR-04", .max_ranks = 1) {
    struct outputs out = outputs_fresh();
    symmem_context *alone = context_alone(t);
    symmem_group *theirs = NULL;
    symmem_alloc_options options;
    TK_REQUIRE(t, alone != NULL);
    TK_REQUIRE_OK(t, symmem_group_create(alone, "theirs", NULL, 0, NULL, &theirs));
    symmem_alloc_options_init(&options);
    options.default_group = theirs;
    TK_REQ(t, "SM-CONTEXT-08");
    REFUSED(t, INVALID_ARGUMENT, symmem_alloc(t->context, 64, -1, &options, &out.pointer));
    symmem_alloc_options_init(&options);
    TK_REQ(t, "SM-ERROR-04");
    options.size--;
    REFUSED(t, INVALID_ARGUMENT, symmem_alloc(t->context, 64, -1, &options, &out.pointer));
    options.size += 2;
    REFUSED(t, INVALID_ARGUMENT, symmem_alloc(t->context, 64, -1, &options, &out.pointer));
    outputs_check(t, &out);
    symmem_context_free(alone);
}

TK_TEST(limits, foreign_memory, "SM-CONTEXT-08,SM-ERROR-04", .max_ranks = 1) {
    struct outputs out = outputs_fresh();
    symmem_context *alone = context_alone(t);
    symmem_handle *handle = UNTOUCHED_POINTER;
    void *theirs = NULL;
    symmem_alloc_info info;
    TK_REQUIRE(t, alone != NULL);
    TK_REQUIRE_OK(t, symmem_alloc(alone, 64, -1, NULL, &theirs));
    TK_REQ(t, "SM-CONTEXT-08");
    REFUSED(t, NOT_SYMMETRIC, symmem_free(t->context, theirs));
    REFUSED(t, NOT_SYMMETRIC, symmem_alloc_query(t->context, theirs, &info));
    REFUSED(t, NOT_SYMMETRIC, symmem_alloc_size(t->context, theirs, &out.size));
    REFUSED(t, NOT_SYMMETRIC,
            symmem_rendezvous(t->context, theirs, tk_world_group(t), LIMIT_MS, &handle));
    TK_CHECK(t, handle == NULL);
    TK_OK(t, symmem_is_symmetric(t->context, theirs, &out.flag));
    TK_CHECK(t, !out.flag);
    out.flag = true;
    outputs_check(t, &out);
    TK_OK(t, symmem_free(alone, theirs));
    symmem_context_free(alone);
}

TK_TEST(limits, foreign_stream, "SM-STREAM-16,SM-ERROR-04",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_DIRECT_ACCESS,
        .max_ranks = 2, /* one has no multicast */
        .flags = TK_PLAIN_MEMORY) {
    symmem_context *alone = context_alone(t);
    symmem_stream *own = tk_stream(t), *theirs = NULL;
    symmem_event *event = tk_event(t), *their_event = NULL;
    unsigned char data[16] = {0};
    DLManagedTensor *tensor = NULL;
    const int64_t words[1] = {16};
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    TK_REQUIRE(t, alone != NULL);
    TK_REQUIRE_OK(t, symmem_stream_create(alone, 0, &theirs));
    TK_REQUIRE_OK(t, symmem_event_create(alone, 0, &their_event));
    tensor = view_by(t, symmem_get_buffer, handle, t->rank, 1, words, SYMMEM_UINT32, 0);
    TK_REQ(t, "SM-STREAM-16");
    REFUSED(t, INVALID_ARGUMENT, symmem_event_record(event, theirs));
    REFUSED(t, INVALID_ARGUMENT, symmem_event_record(their_event, own));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_wait_event(theirs, event));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_wait_event(own, their_event));
    for (int op = 0; op < OP_COUNT; op++)
        TK_FAILS(t, INVALID_ARGUMENT, run_op(handle, (enum signal_op)op, t->rank, 0, 50, theirs));
    REFUSED(t, INVALID_ARGUMENT, symmem_put(handle, t->rank, 0, data, 16, theirs));
    REFUSED(t, INVALID_ARGUMENT, symmem_get(handle, t->rank, 0, data, 16, theirs));
    REFUSED(t, INVALID_ARGUMENT, symmem_copy(t->context, data, data + 8, 8, theirs));
    REFUSED(t, INVALID_ARGUMENT, symmem_memset32(t->context, &tensor->dl_tensor, 0, 1, 1, theirs));
    REFUSED(t, INVALID_ARGUMENT,
            symmem_stream_write_value32(t->context, &tensor->dl_tensor, 0, 1, theirs));
    if (info_of(t, handle).multicast_ptr != NULL) {
        REFUSED(t, INVALID_ARGUMENT, symmem_multimem_store(handle, 0, data, 16, theirs));
        REFUSED(t, INVALID_ARGUMENT,
                symmem_multimem_ld_reduce(handle, 0, data, 4, SYMMEM_INT32, SYMMEM_SUM, theirs));
    }
    if ((t->capabilities & SYMMEM_CAP_CAPTURE) != 0) {
        TK_REQUIRE_OK(t, symmem_stream_begin_capture(own));
        symmem_graph *graph = tk_end_capture(t, own);
        REFUSED(t, INVALID_ARGUMENT, symmem_graph_launch(graph, theirs));
    }
    tensor->deleter(tensor);
    symmem_event_destroy(their_event);
    TK_OK(t, symmem_stream_synchronize(theirs, LIMIT_MS));
    TK_OK(t, symmem_stream_destroy(theirs));
    symmem_context_free(alone);
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, handle, t->rank, 0, 64, 0);
    TK_CHECK(t, !info_of(t, handle).poisoned);
}

/* --- descriptors ------------------------------------------------------------------------------ */

/* Rank 0 passes a descriptor that is not open: all hear of it, and none gets anything. */
TK_TEST(limits, closed_descriptor, "SM-ERROR-01,SM-ERROR-04", .max_ranks = 3) {
    symmem_group *group = tk_world_group(t);
    struct outputs out = outputs_fresh();
    const int fd = t->rank == 0 ? 100000 : -1; /* beyond the usual limit */
    const uint32_t limit_ms = LONG_MS;
    TK_REQ(t, "SM-ERROR-04");
    REFUSED(t, SYSTEM, symmem_group_all_gather_fds(group, fd, out.fds, limit_ms));
    outputs_check(t, &out);
    REFUSED(t, SYSTEM, symmem_group_broadcast_fds(group, 0, fd, out.fds, limit_ms));
    outputs_check(t, &out);
    if (t->rank == 0)
        REFUSED(t, SYSTEM, symmem_group_send_fd(group, t->last, fd, limit_ms));
    tk_group_barrier(t, group);
}

/* --- ranges and names ------------------------------------------------------------------------- */

/* Own memory has an end; the host's has none that the library knows. */
TK_TEST(limits, copies, "SM-ONESIDED-07,SM-ERROR-04", .max_ranks = 1) {
    unsigned char data[257];
    unsigned char *memory = tk_alloc(t, 256);
    memset(data, 0x5b, sizeof(data));
    TK_REQ(t, "SM-ONESIDED-07");
    REFUSED(t, OUT_OF_RANGE, symmem_copy(t->context, memory, data, 257, NULL));
    REFUSED(t, OUT_OF_RANGE, symmem_copy(t->context, data, memory, 257, NULL));
    REFUSED(t, OUT_OF_RANGE, symmem_copy(t->context, memory + 255, data, 2, NULL));
    REFUSED(t, OVERFLOW, symmem_copy(t->context, memory, data, SIZE_MAX, NULL));
    for (size_t i = 0; i < sizeof(data); i++)
        TK_REQUIRE(t, data[i] == 0x5b);
    TK_OK(t, symmem_copy(t->context, data, memory, 256, NULL));
    for (size_t i = 0; i < 256; i++)
        TK_REQUIRE(t, data[i] == 0);
}

TK_TEST(limits, names, "SM-BACKEND-01,SM-BACKEND-04,SM-GROUP-09,SM-ERROR-01,SM-ERROR-08",
        .max_ranks = 1) {
    char longest[SYMMEM_NAME_MAX + 2];
    symmem_group *found = UNTOUCHED_POINTER;
    const char *active = NULL;
    memset(longest, 'n', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    TK_REQ(t, "SM-GROUP-09");
    REFUSED(t, NOT_FOUND, symmem_group_find(t->context, "", &found));
    REFUSED(t, NOT_FOUND, symmem_group_find(t->context, longest, &found));
    TK_CHECK(t, (void *)found == UNTOUCHED_POINTER);
    longest[32] = '\0'; /* the longest name of a backend has one less */
    const char *const bad[] = {"", longest, "Shm", "a-b", " shm"};
    for (int i = 0; i < 5; i++) {
        bool available = true;
        TK_REQ(t, "SM-BACKEND-01");
        REFUSED(t, NOT_FOUND, symmem_set_backend(t->context, bad[i]));
        TK_REQ(t, "SM-BACKEND-04");
        TK_OK(t, symmem_backend_available(t->context, bad[i], &available));
        TK_CHECK(t, !available);
    }
    TK_REQ(t, "SM-ERROR-01");
    REFUSED(t, INVALID_ARGUMENT, symmem_load_backend(t->context, ""));
    TK_REQ(t, "SM-ERROR-08");
    REFUSED(t, INVALID_ARGUMENT, symmem_register_backend(t->context, NULL));
    TK_OK(t, symmem_get_backend(t->context, &active));
    TK_CHECK(t, active != NULL);
}

TK_TEST(limits, device_types, "SM-BACKEND-10", .max_ranks = 1) {
    const int32_t bad[] = {-1, 0, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        bool supported = true;
        TK_OK(t, symmem_has_multicast_support(t->context, bad[i], 0, &supported));
        TK_CHECK(t, !supported);
    }
}

/* --- calls without a status ------------------------------------------------------------------- */

TK_TEST(limits, dtypes, "SM-ERROR-07", .max_ranks = 1) {
    static const size_t bytes[SYMMEM_DTYPE_COUNT] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
    const int bad[] = {-1, SYMMEM_DTYPE_COUNT, INT32_MIN, INT32_MAX};
    for (int i = 0; i < SYMMEM_DTYPE_COUNT; i++) {
        TK_EQ_SIZE(t, bytes[i], symmem_dtype_size((symmem_dtype)i));
        TK_CHECK(t, strcmp(symmem_dtype_name((symmem_dtype)i), "unknown") != 0);
        for (int k = 0; k < i; k++)
            TK_CHECK(t, strcmp(symmem_dtype_name((symmem_dtype)i),
                               symmem_dtype_name((symmem_dtype)k)) != 0);
    }
    for (int i = 0; i < 4; i++) {
        TK_EQ_SIZE(t, 0, symmem_dtype_size((symmem_dtype)bad[i]));
        TK_EQ_STR(t, "unknown", symmem_dtype_name((symmem_dtype)bad[i]));
    }
}

TK_TEST(limits, reductions, "SM-ERROR-07", .max_ranks = 1) {
    const int bad_dtypes[] = {-1, SYMMEM_DTYPE_COUNT, INT32_MIN, INT32_MAX};
    const int bad_ops[] = {-1, SYMMEM_REDUCE_OP_COUNT, INT32_MIN, INT32_MAX};
    TK_CHECK(t, symmem_reduce_supported(SYMMEM_FLOAT32, SYMMEM_SUM));
    for (int i = 0; i < 4; i++) {
        TK_CHECK(t, !symmem_reduce_supported((symmem_dtype)bad_dtypes[i], SYMMEM_SUM));
        TK_CHECK(t, !symmem_reduce_supported(SYMMEM_FLOAT32, (symmem_reduce_op)bad_ops[i]));
    }
}

/* NULL where there is nothing to fill in or to look at does nothing. */
TK_TEST(limits, no_output, "SM-ERROR-08", .max_ranks = 1) {
    REFUSED(t, INVALID_ARGUMENT, symmem_group_rank(NULL, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_group_rank(NULL, NULL));
    symmem_context_options_init(NULL);
    symmem_alloc_options_init(NULL);
    symmem_last_error(NULL);
    symmem_error_record record = last_record();
    TK_EQ_INT(t, SYMMEM_INVALID_ARGUMENT, record.status);
    TK_CHECK(t, !symmem_error_is_missing(NULL, 0));
    symmem_clear_error();
}

/* malloc's answer is NULL with a record, mfree's the record alone. */
static void malloc_refused(struct tk *t, symmem_status expected, size_t bytes, int device,
                           int line) {
    symmem_clear_error();
    void *ptr = symmem_pool_malloc(bytes, device, NULL);
    symmem_status status = last_record().status;
    symmem_clear_error();
    tk_check_at(t, ptr == NULL, "limits", line, "%zu bytes on device %d: %p", bytes, device, ptr);
    tk_status_at(t, expected, status, "pool_malloc", "limits", line);
}

static void mfree_refused(struct tk *t, symmem_status expected, void *ptr, int device, int line) {
    symmem_clear_error();
    symmem_pool_mfree(ptr, 256, device, NULL);
    tk_status_at(t, expected, last_record().status, "pool_mfree", "limits", line);
    symmem_clear_error();
}

TK_TEST(limits, allocator_pair, "SM-POOL-06", .needs = SYMMEM_CAP_POOL, .max_ranks = 1) {
    symmem_pool *pool = NULL;
    symmem_pool_stats stats;
    const int32_t devices = device_count(t);
    int here = 0;
    TK_REQUIRE_OK(t, symmem_pool_create(t->context, 0, 65536, &pool));
    malloc_refused(t, SYMMEM_INVALID_ARGUMENT, 8, 0, __LINE__); /* nothing bound */
    mfree_refused(t, SYMMEM_INVALID_ARGUMENT, &here, 0, __LINE__);
    symmem_pool_bind(pool);
    malloc_refused(t, SYMMEM_INVALID_ARGUMENT, 0, 0, __LINE__);
    malloc_refused(t, SYMMEM_OVERFLOW, SIZE_MAX, 0, __LINE__);
    malloc_refused(t, SYMMEM_INVALID_ARGUMENT, 8, -1, __LINE__);
    malloc_refused(t, SYMMEM_INVALID_ARGUMENT, 8, devices, __LINE__);
    char *block = symmem_pool_malloc(256, 0, NULL);
    TK_REQUIRE(t, block != NULL);
    mfree_refused(t, SYMMEM_OK, NULL, 0, __LINE__);
    mfree_refused(t, SYMMEM_INVALID_ARGUMENT, block, -1, __LINE__);
    mfree_refused(t, SYMMEM_INVALID_ARGUMENT, block, devices, __LINE__);
    mfree_refused(t, SYMMEM_INVALID_ARGUMENT, block + 1, 0, __LINE__);
    mfree_refused(t, SYMMEM_INVALID_ARGUMENT, block + 255, 0, __LINE__);
    mfree_refused(t, SYMMEM_NOT_SYMMETRIC, block + 256, 0, __LINE__);
    mfree_refused(t, SYMMEM_NOT_SYMMETRIC, &here, 0, __LINE__);
    TK_OK(t, symmem_pool_get_stats(pool, &stats));
    TK_EQ_SIZE(t, 1, stats.block_count);
    symmem_pool_mfree(block, 256, 0, NULL);
    TK_OK(t, symmem_pool_destroy(pool)); /* which also unbinds this thread */
    malloc_refused(t, SYMMEM_INVALID_ARGUMENT, 8, 0, __LINE__);
}
