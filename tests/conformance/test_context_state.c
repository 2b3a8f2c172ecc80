/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls without a context, after its end, and failures injected at failpoints. */
#include "sync_help.h"

#define GONE SYMMEM_NOT_INITIALIZED

/* Every call that takes a context; `expected` must come of each. */
static void context_calls(struct tk *t, symmem_context *context, symmem_status expected) {
    symmem_context_options unused;
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    symmem_alloc_info info;
    symmem_pool *pool = NULL;
    const char *name = NULL;
    char bytes[8] = "";
    uint64_t capabilities = 0;
    size_t size = 0;
    int32_t value = 0;
    bool flag = false;
    void *ptr = NULL;
    DLTensor tensor = {0};
    symmem_context_options_init(&unused);
    TK_STATUS(t, expected, symmem_context_rank(context, &value));
    TK_STATUS(t, expected, symmem_context_world_size(context, &value));
    TK_STATUS(t, expected, symmem_context_local_rank(context, &value));
    TK_STATUS(t, expected, symmem_register_backend(context, NULL));
    TK_STATUS(t, expected, symmem_load_backend(context, "/nowhere/at.so"));
    TK_STATUS(t, expected, symmem_backend_available(context, "x", &flag));
    TK_STATUS(t, expected, symmem_set_backend(context, "x"));
    TK_STATUS(t, expected, symmem_get_backend(context, &name));
    TK_STATUS(t, expected, symmem_backend_capabilities(context, &capabilities));
    TK_STATUS(t, expected, symmem_device_count(context, &value));
    TK_STATUS(t, expected, symmem_device_type(context, &value));
    TK_STATUS(t, expected, symmem_has_multicast_support(context, 1, 0, &flag));
    TK_STATUS(t, expected, symmem_connectivity(context, "nvlink", 1, &value));
    TK_STATUS(t, expected, symmem_set_allow_overlapping_devices(context, 1));
    TK_STATUS(t, expected, symmem_group_create(context, "g", NULL, 0, NULL, &group));
    TK_STATUS(t, expected, symmem_group_find(context, "g", &group));
    TK_STATUS(t, expected, symmem_alloc(context, 64, -1, NULL, &ptr));
    TK_STATUS(t, expected, symmem_free(context, bytes));
    TK_STATUS(t, expected, symmem_alloc_query(context, bytes, &info));
    TK_STATUS(t, expected, symmem_alloc_size(context, bytes, &size));
    TK_STATUS(t, expected, symmem_is_symmetric(context, bytes, &flag));
    TK_STATUS(t, expected, symmem_set_signal_pad_size(context, 4096));
    TK_STATUS(t, expected, symmem_get_signal_pad_size(context, &size));
    TK_STATUS(t, expected, symmem_pool_create(context, -1, 4096, &pool));
    TK_STATUS(t, expected, symmem_rendezvous(context, bytes, NULL, LONG_MS, &handle));
    TK_STATUS(t, expected, symmem_copy(context, bytes, bytes + 4, 1, NULL));
    TK_STATUS(t, expected, symmem_memset32(context, &tensor, 0, 0, 1, NULL));
    TK_STATUS(t, expected, symmem_stream_write_value32(context, &tensor, 0, 0, NULL));
    TK_STATUS(t, expected, symmem_set_all_reduce_table(context, NULL, 0));
    TK_STATUS(t, expected, symmem_finalize(context));
    TK_CHECK(t, group == NULL && handle == NULL && pool == NULL && ptr == NULL && name == NULL &&
                    !flag && size == 0 && value == 0 && capabilities == 0);
}

static void stream_calls(struct tk *t, symmem_context *context, symmem_status expected) {
    symmem_stream *stream = NULL;
    symmem_event *event = NULL;
    TK_STATUS(t, expected, symmem_stream_create(context, 0, &stream));
    TK_STATUS(t, expected, symmem_stream_wrap(context, 0, NULL, &stream));
    TK_STATUS(t, expected, symmem_event_create(context, 0, &event));
    TK_CHECK(t, stream == NULL && event == NULL);
}

TK_TEST(context_state, null_context, "SM-CONTEXT-04,SM-ERROR-04", .max_ranks = 1,
        .flags = TK_NO_CONTEXT) {
    TK_REQ(t, "SM-CONTEXT-04");
    context_calls(t, NULL, GONE);
    stream_calls(t, NULL, GONE);
    symmem_context_free(NULL);
}

TK_TEST(context_state, finalized_context, "SM-CONTEXT-05,SM-ERROR-04", .max_ranks = 2,
        .flags = TK_NO_CONTEXT) {
    symmem_context_options options = tk_options(t);
    symmem_context *context = NULL;
    TK_REQ(t, "SM-CONTEXT-05");
    options.backend = NULL;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_finalize(context));
    context_calls(t, context, GONE);
    stream_calls(t, context, GONE);
    symmem_context_free(context);
}

TK_TEST(context_state, finalized_objects, "SM-CONTEXT-05,SM-ERROR-04", .max_ranks = 2) {
    symmem_group *group = tk_world_group(t);
    symmem_handle *handle = tk_handle(t, 1024, group);
    symmem_handle_info info;
    symmem_error_record record;
    void *const *ptrs = NULL;
    void *table = NULL;
    DLManagedTensor *tensor = NULL;
    const char *name = NULL;
    int64_t one = 1;
    int32_t value = 0;
    int fd = -2;
    char byte = 0;
    TK_REQ(t, "SM-CONTEXT-05");
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_finalize(t->context));
    TK_STATUS(t, GONE, symmem_group_rank(group, &value));
    TK_STATUS(t, GONE, symmem_group_world_size(group, &value));
    TK_STATUS(t, GONE, symmem_group_name(group, &name));
    TK_STATUS(t, GONE, symmem_group_global_rank(group, 0, &value));
    TK_STATUS(t, GONE, symmem_group_all_gather(group, &byte, 1, &byte, LONG_MS));
    TK_STATUS(t, GONE, symmem_group_barrier(group, LONG_MS));
    TK_STATUS(t, GONE, symmem_group_all_gather_fds(group, -1, &fd, LONG_MS));
    TK_STATUS(t, GONE, symmem_group_broadcast_fds(group, 0, -1, &fd, LONG_MS));
    TK_STATUS(t, GONE, symmem_group_send_fd(group, 0, -1, LONG_MS));
    TK_STATUS(t, GONE, symmem_group_recv_fd(group, 0, &fd, LONG_MS));
    TK_STATUS(t, GONE, symmem_group_destroy(group));
    TK_STATUS(t, GONE, symmem_handle_retain(handle));
    TK_STATUS(t, GONE, symmem_handle_get_info(handle, &info));
    TK_STATUS(t, GONE, symmem_handle_buffer_ptrs(handle, &ptrs));
    TK_STATUS(t, GONE, symmem_handle_signal_pad_ptrs(handle, &ptrs));
    TK_STATUS(t, GONE, symmem_handle_buffer_ptrs_dev(handle, &table));
    TK_STATUS(t, GONE, symmem_handle_signal_pad_ptrs_dev(handle, &table));
    TK_STATUS(t, GONE, symmem_handle_global_rank(handle, 0, &value));
    TK_STATUS(t, GONE, symmem_handle_group_name(handle, &name));
    TK_STATUS(t, GONE, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_STATUS(t, GONE, symmem_put_signal(handle, 0, 0, LONG_MS, NULL));
    TK_STATUS(t, GONE, symmem_wait_signal(handle, 0, 0, LONG_MS, NULL));
    TK_STATUS(t, GONE, symmem_handle_reset(handle, LONG_MS));
    TK_STATUS(t, GONE, symmem_handle_status(handle, &record));
    TK_STATUS(t, GONE, symmem_put(handle, 0, 0, &byte, 1, NULL));
    TK_STATUS(t, GONE, symmem_get(handle, 0, 0, &byte, 1, NULL));
    TK_STATUS(t, GONE, symmem_multimem_store(handle, 0, &byte, 1, NULL));
    TK_STATUS(t, GONE,
              symmem_multimem_ld_reduce(handle, 0, &byte, 1, SYMMEM_UINT8, SYMMEM_SUM, NULL));
    TK_STATUS(t, GONE,
              symmem_one_shot_all_reduce_out(handle, NULL, SYMMEM_SUM, NULL, 0, LONG_MS, NULL));
    TK_STATUS(t, GONE, symmem_get_buffer(handle, 0, 1, &one, SYMMEM_UINT8, 0, &tensor));
    TK_STATUS(t, GONE, symmem_get_remote_tensor(handle, 0, 1, &one, SYMMEM_UINT8, 0, &tensor));
    TK_STATUS(t, GONE, symmem_get_signal_pad(handle, 0, 0, NULL, SYMMEM_UINT32, 0, &tensor));
    TK_STATUS(t, GONE, symmem_finalize(t->context));
    TK_CHECK(t, tensor == NULL && name == NULL && ptrs == NULL && table == NULL && fd == -2);
}

TK_TEST(context_state, finalized_stream, "SM-CONTEXT-05", .needs = SYMMEM_CAP_STREAMS,
        .max_ranks = 1) {
    symmem_stream *stream = tk_stream(t);
    bool flag = false;
    symmem_event *event = tk_event(t);
    TK_OK(t, symmem_finalize(t->context));
    TK_STATUS(t, GONE, symmem_stream_synchronize(stream, LONG_MS));
    TK_STATUS(t, GONE, symmem_stream_query(stream, &flag));
    TK_STATUS(t, GONE, symmem_event_record(event, stream));
    TK_STATUS(t, GONE, symmem_stream_wait_event(stream, event));
    TK_STATUS(t, GONE, symmem_event_query(event, &flag));
    TK_STATUS(t, GONE, symmem_event_synchronize(event, LONG_MS));
}

TK_TEST(context_state, finalized_pool, "SM-CONTEXT-05", .needs = SYMMEM_CAP_POOL, .max_ranks = 1) {
    symmem_pool *pool = NULL;
    symmem_pool_stats stats;
    void *block = NULL, *ptr = NULL;
    TK_REQUIRE_OK(t, symmem_pool_create(t->context, 0, 65536, &pool));
    TK_REQUIRE_OK(t, symmem_pool_alloc(pool, 256, &block));
    symmem_pool_bind(pool);
    TK_OK(t, symmem_finalize(t->context));
    TK_STATUS(t, GONE, symmem_pool_alloc(pool, 64, &ptr));
    TK_STATUS(t, GONE, symmem_pool_free(pool, block));
    TK_STATUS(t, GONE, symmem_pool_get_stats(pool, &stats));
    TK_STATUS(t, GONE, symmem_pool_destroy(pool));
    TK_CHECK(t, ptr == NULL);
    TK_CHECK(t, symmem_pool_malloc(64, 0, NULL) == NULL); /* the binding ended, too */
}

static void host_fn_of_nothing(void *arg) {}

TK_TEST(context_state, finalized_capture, "SM-CONTEXT-05",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN, .max_ranks = 1) {
    symmem_stream *stream = tk_stream(t);
    symmem_graph *graph = NULL, *other = NULL;
    bool flag = false;
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_REQUIRE_OK(t, symmem_stream_end_capture(stream, &graph));
    TK_OK(t, symmem_finalize(t->context));
    TK_STATUS(t, GONE, symmem_stream_host_fn(stream, host_fn_of_nothing, NULL));
    TK_STATUS(t, GONE, symmem_stream_begin_capture(stream));
    TK_STATUS(t, GONE, symmem_stream_is_capturing(stream, &flag));
    TK_STATUS(t, GONE, symmem_stream_end_capture(stream, &other));
    TK_STATUS(t, GONE, symmem_graph_launch(graph, stream));
    TK_CHECK(t, other == NULL && !flag);
    TK_OK(t, symmem_graph_destroy(graph));
}

static const struct tk_action fail_here = {.status = SYMMEM_LIMIT};

static void expect_stage(struct tk *t, const char *stage) {
    symmem_error_record record = last_record();
    TK_EQ_INT(t, SYMMEM_LIMIT, record.status);
    TK_EQ_STR(t, stage, record.stage);
}

TK_TEST(context_state, points_of_local_calls, "SM-CONTEXT-09", .max_ranks = 2) {
    static const char *const inits[] = {"init.identity", "init.done"};
    static const char *const allocs[] = {"alloc.before", "alloc.done"};
    symmem_context_options options = tk_options(t);
    for (int i = 0; i < 2; i++) {
        symmem_context *context = (symmem_context *)(void *)t;
        tk_on_point(t, inits[i], 1, fail_here);
        TK_FAILS(t, LIMIT, symmem_init(&options, &context));
        TK_EQ_PTR(t, NULL, context);
        expect_stage(t, inits[i]);
        TK_REQUIRE_OK(t, symmem_init(&options, &context));
        symmem_context_free(context);
        void *const untouched = t;
        void *ptr = untouched;
        tk_on_point(t, allocs[i], 1, fail_here);
        TK_FAILS(t, LIMIT, symmem_alloc(t->context, 64, -1, NULL, &ptr));
        TK_EQ_PTR(t, untouched, ptr);
        expect_stage(t, allocs[i]);
        tk_free(t, tk_alloc(t, 64));
    }
}

/*
 * Each point fails on rank 0 in a first rendezvous of a fresh group; a rendezvous of all ranks
 * works after that. Points that this way does not pass (descriptors may not be needed, or a group
 * of one exchanges nothing) fail nothing.
 */
static void points_fail_rendezvous(struct tk *t, const char *const *points, int count) {
    for (int i = 0; i < count; i++) {
        symmem_group *group = NULL;
        symmem_handle *handle = NULL;
        void *memory = tk_alloc(t, 256);
        char name[SYMMEM_NAME_MAX];
        int passed = 0;
        snprintf(name, sizeof(name), "at-%d", i);
        TK_REQUIRE_OK(t, symmem_group_create(t->context, name, NULL, 0, NULL, &group));
        tk_checkpoint(t, "%s", points[i]);
        if (t->rank == 0)
            tk_on_point(t, points[i], 1, fail_here);
        tk_out_of_band_barrier(t);
        symmem_status status = symmem_rendezvous(t->context, memory, group, LONG_MS, &handle);
        if (t->rank == 0) {
            passed = tk_point_count(t, points[i]);
            if (passed > 0)
                expect_stage(t, points[i]);
            tk_share_u64(t, 0, passed > 0);
        }
        tk_out_of_band_barrier(t);
        passed = (int)tk_read_u64(t, 0, 0);
        TK_CHECK_MSG(t, passed, "%s was not passed", points[i]);
        TK_STATUS(t, passed ? SYMMEM_LIMIT : SYMMEM_OK, status);
        TK_CHECK(t, (handle == NULL) == (passed != 0));
        symmem_handle_release(handle);
        TK_OK(t, symmem_barrier(tk_rendezvous(t, memory, group), 0, LONG_MS, NULL));
        TK_OK(t, symmem_group_destroy(group));
        tk_out_of_band_barrier(t);
    }
}

TK_TEST(context_state, points_of_rendezvous, "SM-CONTEXT-09,SM-RDV-10", .max_ranks = 3) {
    static const char *const points[] = {
        "rendezvous.begin",      "rendezvous.metadata.before",    "rendezvous.metadata.after",
        "rendezvous.map.before", "rendezvous.descriptors.before", "rendezvous.descriptors.after",
        "rendezvous.map.after",  "rendezvous.commit.before"};
    TK_REQ(t, "SM-CONTEXT-09");
    points_fail_rendezvous(t, points, (int)TK_COUNT(points));
}

/* Where a rank can no longer fail alone, nothing fails. */
TK_TEST(context_state, observing_points_fail_nothing, "SM-CONTEXT-09", .max_ranks = 3) {
    static const char *const points[] = {"session.join.done", "exchange.publish.after",
                                         "exchange.wait.before", "exchange.done",
                                         "rendezvous.commit.after"};
    for (int i = 0; i < 5; i++) {
        char name[SYMMEM_NAME_MAX];
        snprintf(name, sizeof(name), "observing-%d", i);
        tk_checkpoint(t, "%s", points[i]);
        tk_on_point(t, points[i], 0, fail_here);
        symmem_group *group = tk_group(t, name, NULL, 0);
        void *memory = tk_alloc(t, 256);
        tk_release(t, tk_rendezvous(t, memory, group));
        TK_CHECK_MSG(t, t->world_size == 1 || i == 2 || tk_point_count(t, points[i]) > 0,
                     "%s was not passed", points[i]); /* the last to come does not wait */
        tk_group_destroy(t, group);
    }
}

/* A step of a group that rank 0 fails at each of three points: it says so itself, what becomes of
 * the others is the exchange's business, and the group finds its footing. */
static int points_fail(struct tk *t, const char *const points[3],
                       symmem_status (*step)(symmem_group *group, uint32_t limit_ms)) {
    int passed = 0;
    for (int i = 0; i < 3; i++) {
        tk_checkpoint(t, "%s", points[i]);
        symmem_group *group = tk_group(t, points[i], NULL, 0);
        if (t->rank == 0)
            tk_on_point(t, points[i], 1, fail_here);
        tk_out_of_band_barrier(t);
        symmem_status status = step(group, 4000);
        if (t->rank == 0) {
            bool here = tk_point_count(t, points[i]) > 0;
            TK_STATUS(t, here ? SYMMEM_LIMIT : SYMMEM_OK, status);
            if (here)
                expect_stage(t, points[i]);
            passed += here;
        }
        tk_out_of_band_barrier(t);
        TK_OK(t, step(group, LONG_MS));
        tk_group_destroy(t, group);
    }
    return passed;
}

TK_TEST(context_state, points_of_the_exchange, "SM-CONTEXT-09", .ranks = {2, 3}) {
    static const char *const points[] = {"session.join.before", "session.join.published",
                                         "exchange.publish.before"};
    int passed = points_fail(t, points, symmem_group_barrier);
    TK_CHECK(t, t->rank != 0 || passed == 3);
}

static symmem_status gather_no_fds(symmem_group *group, uint32_t limit_ms) {
    int fds[8];
    return symmem_group_all_gather_fds(group, -1, fds, limit_ms);
}

TK_TEST(context_state, points_of_descriptors, "SM-CONTEXT-09", .ranks = {2, 3}) {
    static const char *const points[] = {"ipc.send.before", "ipc.send.after", "ipc.recv.after"};
    (void)points_fail(t, points, gather_no_fds);
}
