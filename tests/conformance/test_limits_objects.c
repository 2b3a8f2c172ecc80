/* SPDX-License-Identifier: BSD-3-Clause */
/* The arguments of what makes and asks about contexts, groups, memory, stores and streams. */
#include "case_help.h"
#include "limits_help.h"

#define LIMIT_MS 2000u

/* --- contexts --------------------------------------------------------------------------------- */

TK_TEST(limits, init, "SM-CONTEXT-02,SM-ERROR-01", .max_ranks = 4) {
    const int32_t bad[][2] = {{-2, 2}, {2, 2},    {INT32_MIN, 2}, {INT32_MAX, 2}, {0, 0},
                              {0, -2}, {0, 1025}, {0, INT32_MIN}, {0, INT32_MAX}};
    symmem_context_options options = tk_options(t);
    TK_REQ(t, "SM-CONTEXT-02");
    for (size_t i = 0; i < TK_COUNT(bad); i++) {
        symmem_context *context = UNTOUCHED_POINTER;
        options.rank = bad[i][0];
        options.world_size = bad[i][1];
        REFUSED(t, INVALID_ARGUMENT, symmem_init(&options, &context));
        TK_CHECK(t, context == NULL);
    }
    options = tk_options(t);
    REFUSED(t, INVALID_ARGUMENT, symmem_init(&options, NULL));
    REFUSED(t, NOT_INITIALIZED, symmem_finalize(NULL));
    symmem_context_free(NULL);
}

TK_TEST(limits, contexts, "SM-BACKEND-11,SM-ERROR-01,SM-ERROR-04", .max_ranks = 4) {
    struct outputs out = outputs_fresh();
    const int32_t devices = device_count(t);
    int32_t type = 0;
    TK_REQUIRE_OK(t, symmem_device_type(t->context, &type));
    TK_REQ(t, "SM-ERROR-01");
    REFUSED(t, INVALID_ARGUMENT, symmem_context_rank(t->context, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_context_world_size(t->context, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_context_local_rank(t->context, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_get_backend(t->context, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_backend_capabilities(t->context, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_device_count(t->context, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_device_type(t->context, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_backend_available(t->context, "x", NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_backend_available(t->context, NULL, &out.flag));
    REFUSED(t, INVALID_ARGUMENT, symmem_set_backend(t->context, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_load_backend(t->context, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_set_allow_overlapping_devices(t->context, -2));
    REFUSED(t, INVALID_ARGUMENT, symmem_set_allow_overlapping_devices(t->context, 2));
    REFUSED(t, INVALID_ARGUMENT, symmem_has_multicast_support(t->context, type, 0, NULL));
    TK_REQ(t, "SM-BACKEND-11");
    REFUSED(t, OUT_OF_RANGE, symmem_has_multicast_support(t->context, type, -2, &out.flag));
    REFUSED(t, OUT_OF_RANGE, symmem_has_multicast_support(t->context, type, devices, &out.flag));
    outputs_check(t, &out);
}

/* --- groups ----------------------------------------------------------------------------------- */

TK_TEST(limits, group_making, "SM-GROUP-03,SM-ERROR-01,SM-ERROR-04", .max_ranks = 4) {
    const int32_t n = t->world_size, own = t->rank;
    const int32_t below[] = {own, -1}, above[] = {own, n}, least[] = {own, INT32_MIN},
                  most[] = {INT32_MAX, own}, twice[] = {own, own}, apart[] = {own, t->next, own};
    int32_t all[SYMMEM_MAX_WORLD_SIZE + 1];
    char longest[SYMMEM_NAME_MAX], longer[SYMMEM_NAME_MAX + 1];
    symmem_group *group = UNTOUCHED_POINTER;
    for (int32_t i = 0; i <= n; i++)
        all[i] = i < n ? i : own;
    memset(longest, 'n', sizeof(longest));
    memset(longer, 'n', sizeof(longer));
    longest[SYMMEM_NAME_MAX - 1] = longer[SYMMEM_NAME_MAX] = '\0';
    const struct {
        const char *name;
        const int32_t *ranks;
        int32_t count;
        symmem_status status;
    } wrong[] = {
        {"g", below, 2, SYMMEM_OUT_OF_RANGE},       {"g", above, 2, SYMMEM_OUT_OF_RANGE},
        {"g", least, 2, SYMMEM_OUT_OF_RANGE},       {"g", most, 2, SYMMEM_OUT_OF_RANGE},
        {"g", twice, 2, SYMMEM_INVALID_ARGUMENT},   {"g", apart, 3, SYMMEM_INVALID_ARGUMENT},
        {"g", &own, 0, SYMMEM_INVALID_ARGUMENT},    {"g", &own, -1, SYMMEM_INVALID_ARGUMENT},
        {"g", NULL, 1, SYMMEM_INVALID_ARGUMENT},    {"g", NULL, -1, SYMMEM_INVALID_ARGUMENT},
        {NULL, &own, 1, SYMMEM_INVALID_ARGUMENT},   {"", &own, 1, SYMMEM_INVALID_ARGUMENT},
        {longer, &own, 1, SYMMEM_INVALID_ARGUMENT}, {"g", all, n + 1, SYMMEM_INVALID_ARGUMENT},
    };
    TK_REQ(t, "SM-GROUP-03");
    for (size_t i = 0; i < TK_COUNT(wrong); i++) {
        tk_checkpoint(t, "group %zu", i);
        symmem_status status = symmem_group_create(t->context, wrong[i].name, wrong[i].ranks,
                                                   wrong[i].count, NULL, &group);
        refused(t, wrong[i].status, status, "group_create", __LINE__);
    }
    TK_CHECK(t, (void *)group == UNTOUCHED_POINTER);
    REFUSED(t, INVALID_ARGUMENT, symmem_group_create(t->context, "g", &own, 1, NULL, NULL));
    tk_group_destroy(t, tk_group(t, longest, &own, 1));
}

TK_TEST(limits, groups, "SM-ERROR-01,SM-ERROR-04,SM-ERROR-08", .max_ranks = 4) {
    symmem_group *group = tk_world_group(t);
    struct outputs out = outputs_fresh();
    symmem_group *found = UNTOUCHED_POINTER;
    const char *name = NULL;
    const int32_t bad[] = {-1, t->world_size, INT32_MIN, INT32_MAX};
    TK_REQ(t, "SM-ERROR-01");
    for (int i = 0; i < 4; i++) {
        REFUSED(t, OUT_OF_RANGE, symmem_group_global_rank(group, bad[i], &out.number));
        REFUSED(t, OUT_OF_RANGE, symmem_group_broadcast_fds(group, bad[i], -1, out.fds, LIMIT_MS));
        REFUSED(t, OUT_OF_RANGE, symmem_group_send_fd(group, bad[i], -1, LIMIT_MS));
        REFUSED(t, OUT_OF_RANGE, symmem_group_recv_fd(group, bad[i], out.fds, LIMIT_MS));
    }
    REFUSED(t, INVALID_ARGUMENT, symmem_group_global_rank(group, 0, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_rank(group, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_rank(NULL, &out.number));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_world_size(group, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_world_size(NULL, &out.number));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_name(group, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_name(NULL, &name));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_find(t->context, NULL, &found));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_find(t->context, "g", NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_barrier(NULL, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_all_gather_fds(group, -2, out.fds, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_all_gather_fds(group, -1, NULL, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_broadcast_fds(group, t->rank, -2, out.fds, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_broadcast_fds(group, 0, -1, NULL, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_send_fd(group, 0, -2, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_recv_fd(group, 0, NULL, LIMIT_MS));
    TK_REQ(t, "SM-ERROR-08");
    REFUSED(t, INVALID_ARGUMENT, symmem_group_global_rank(NULL, 0, &out.number));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_all_gather(NULL, "x", 1, out.bytes, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_all_gather_fds(NULL, -1, out.fds, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_broadcast_fds(NULL, 0, -1, out.fds, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_send_fd(NULL, 0, -1, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_recv_fd(NULL, 0, out.fds, LIMIT_MS));
    TK_OK(t, symmem_group_destroy(NULL));
    TK_CHECK(t, name == NULL && (void *)found == UNTOUCHED_POINTER);
    outputs_check(t, &out);
    tk_group_barrier(t, group);
}

/* All ranks refuse alike, so none waits; the largest size works. */
TK_TEST(limits, gathering, "SM-EXCHANGE-01,SM-ERROR-01,SM-ERROR-04", .max_ranks = 4) {
    symmem_group *group = tk_world_group(t);
    const size_t most = 65536;
    struct outputs out = outputs_fresh();
    unsigned char *in = tk_scratch(t, most + 1), *nowhere = out.bytes;
    unsigned char *all = tk_scratch(t, (size_t)t->world_size * (most + 1));
    TK_REQ(t, "SM-ERROR-01");
    REFUSED(t, INVALID_ARGUMENT, symmem_group_all_gather(group, in, 0, nowhere, LIMIT_MS));
    REFUSED(t, OUT_OF_RANGE, symmem_group_all_gather(group, in, most + 1, nowhere, LIMIT_MS));
    REFUSED(t, OUT_OF_RANGE, symmem_group_all_gather(group, in, SIZE_MAX, nowhere, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_all_gather(group, NULL, 1, nowhere, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_group_all_gather(group, in, 1, NULL, LIMIT_MS));
    memset(in, t->rank + 1, most);
    TK_OK(t, symmem_group_all_gather(group, in, most, all, LONG_MS));
    for (int32_t r = 0; r < t->world_size; r++)
        TK_EQ_INT(t, r + 1, all[(size_t)r * most + most - 1]);
    outputs_check(t, &out);
}

/* --- memory ----------------------------------------------------------------------------------- */

TK_TEST(limits, memory, "SM-ALLOC-04,SM-ALLOC-07,SM-ALLOC-10,SM-ERROR-04", .max_ranks = 4) {
    struct outputs out = outputs_fresh();
    symmem_alloc_info info;
    symmem_handle *handle = UNTOUCHED_POINTER;
    void *memory = tk_alloc(t, 256);
    const size_t gib = (size_t)1 << 30;
    size_t before = 0, after = 0;
    const int32_t devices = device_count(t);
    int here = 0;
    TK_REQUIRE_OK(t, symmem_get_signal_pad_size(t->context, &before));
    TK_REQ(t, "SM-ALLOC-04");
    REFUSED(t, INVALID_ARGUMENT, symmem_alloc(t->context, 0, -1, NULL, &out.pointer));
    REFUSED(t, OVERFLOW, symmem_alloc(t->context, SIZE_MAX, -1, NULL, &out.pointer));
    TK_REQ(t, "SM-BACKEND-11");
    REFUSED(t, OUT_OF_RANGE, symmem_alloc(t->context, 8, -2, NULL, &out.pointer));
    REFUSED(t, OUT_OF_RANGE, symmem_alloc(t->context, 8, devices, NULL, &out.pointer));
    REFUSED(t, OUT_OF_RANGE, symmem_alloc(t->context, 8, INT32_MAX, NULL, &out.pointer));
    TK_REQ(t, "SM-ERROR-01");
    REFUSED(t, INVALID_ARGUMENT, symmem_alloc(t->context, 8, -1, NULL, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_alloc_query(t->context, memory, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_alloc_size(t->context, memory, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_is_symmetric(t->context, memory, NULL));
    REFUSED(t, NOT_SYMMETRIC, symmem_alloc_query(t->context, NULL, &info));
    REFUSED(t, NOT_SYMMETRIC, symmem_alloc_size(t->context, &here, &out.size));
    REFUSED(t, NOT_SYMMETRIC, symmem_alloc_size(t->context, (char *)memory - 1, &out.size));
    REFUSED(t, NOT_SYMMETRIC, symmem_alloc_size(t->context, (char *)memory + 256, &out.size));
    REFUSED(t, INVALID_ARGUMENT, symmem_free(t->context, (char *)memory + 1));
    REFUSED(t, INVALID_ARGUMENT, symmem_free(t->context, (char *)memory + 255));
    REFUSED(t, NOT_SYMMETRIC, symmem_free(t->context, (char *)memory + 256));
    REFUSED(t, NOT_SYMMETRIC, symmem_free(t->context, (char *)memory - 1));
    TK_REQ(t, "SM-ALLOC-10");
    for (size_t bytes = 1; bytes < 4; bytes++)
        REFUSED(t, MISALIGNED, symmem_set_signal_pad_size(t->context, bytes));
    REFUSED(t, OUT_OF_RANGE, symmem_set_signal_pad_size(t->context, gib + 4));
    REFUSED(t, OUT_OF_RANGE, symmem_set_signal_pad_size(t->context, SIZE_MAX - 3));
    REFUSED(t, INVALID_ARGUMENT, symmem_get_signal_pad_size(t->context, NULL));
    TK_OK(t, symmem_get_signal_pad_size(t->context, &after));
    TK_EQ_SIZE(t, before, after);
    TK_OK(t, symmem_set_signal_pad_size(t->context, gib));
    TK_OK(t, symmem_set_signal_pad_size(t->context, 4));
    TK_OK(t, symmem_set_signal_pad_size(t->context, 0));
    REFUSED(t, INVALID_ARGUMENT, symmem_rendezvous(t->context, memory, NULL, LIMIT_MS, &handle));
    TK_CHECK(t, handle == NULL);
    REFUSED(t, INVALID_ARGUMENT,
            symmem_rendezvous(t->context, memory, tk_world_group(t), LIMIT_MS, NULL));
    outputs_check(t, &out);
    TK_OK(t, symmem_free(t->context, NULL));
}

TK_TEST(limits, pools, "SM-POOL-05,SM-POOL-09,SM-ERROR-01,SM-ERROR-04,SM-ERROR-08",
        .needs = SYMMEM_CAP_POOL, .max_ranks = 4) {
    struct outputs out = outputs_fresh();
    symmem_pool *pool = UNTOUCHED_POINTER, *other = NULL;
    symmem_pool_stats stats;
    void *block = NULL;
    const int32_t devices = device_count(t);
    int here = 0;
    TK_REQ(t, "SM-ERROR-01");
    REFUSED(t, OUT_OF_RANGE, symmem_pool_create(t->context, -2, 4096, &pool));
    REFUSED(t, OUT_OF_RANGE, symmem_pool_create(t->context, devices, 4096, &pool));
    REFUSED(t, INVALID_ARGUMENT, symmem_pool_create(t->context, -1, 0, &pool));
    REFUSED(t, OVERFLOW, symmem_pool_create(t->context, -1, SIZE_MAX, &pool));
    REFUSED(t, INVALID_ARGUMENT, symmem_pool_create(t->context, -1, 4096, NULL));
    TK_CHECK(t, (void *)pool == UNTOUCHED_POINTER);
    TK_REQUIRE_OK(t, symmem_pool_create(t->context, -1, 65536, &pool));
    REFUSED(t, INVALID_ARGUMENT, symmem_pool_alloc(pool, 0, &out.pointer));
    REFUSED(t, OVERFLOW, symmem_pool_alloc(pool, SIZE_MAX, &out.pointer));
    REFUSED(t, INVALID_ARGUMENT, symmem_pool_alloc(pool, 8, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_pool_alloc(NULL, 8, &out.pointer));
    REFUSED(t, INVALID_ARGUMENT, symmem_pool_get_stats(pool, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_pool_get_stats(NULL, &stats));
    TK_REQUIRE_OK(t, symmem_pool_alloc(pool, 256, &block));
    TK_REQ(t, "SM-POOL-05");
    REFUSED(t, INVALID_ARGUMENT, symmem_pool_free(pool, (char *)block + 1));
    REFUSED(t, INVALID_ARGUMENT, symmem_pool_free(pool, (char *)block + 255));
    REFUSED(t, NOT_SYMMETRIC, symmem_pool_free(pool, (char *)block + 256));
    REFUSED(t, NOT_SYMMETRIC, symmem_pool_free(pool, &here));
    REFUSED(t, NOT_SYMMETRIC, symmem_pool_free(pool, tk_alloc(t, 256)));
    TK_REQUIRE_OK(t, symmem_pool_create(t->context, -1, 65536, &other));
    REFUSED(t, NOT_SYMMETRIC, symmem_pool_free(other, block));
    REFUSED(t, BUSY, symmem_pool_destroy(pool));
    TK_OK(t, symmem_pool_free(pool, block));
    REFUSED(t, NOT_SYMMETRIC, symmem_pool_free(pool, block));
    REFUSED(t, INVALID_ARGUMENT, symmem_pool_free(NULL, &here));
    TK_REQ(t, "SM-POOL-09");
    TK_OK(t, symmem_pool_free(pool, NULL));
    TK_OK(t, symmem_pool_destroy(pool));
    TK_OK(t, symmem_pool_destroy(other));
    TK_OK(t, symmem_pool_destroy(NULL));
    outputs_check(t, &out);
}

/* --- stores ----------------------------------------------------------------------------------- */

TK_TEST(limits, stores, "SM-STORE-02,SM-STORE-06,SM-ERROR-04,SM-ERROR-08", .max_ranks = 4) {
    const symmem_store_ops table = {.size = sizeof(table)};
    struct outputs out = outputs_fresh();
    char own[32];
    symmem_store *store = UNTOUCHED_POINTER;
    int64_t value = UNTOUCHED;
    snprintf(own, sizeof(own), "limits/%d", t->rank);
    TK_REQ(t, "SM-STORE-06");
    REFUSED(t, INVALID_ARGUMENT,
            symmem_store_set(t->store, own, own, SYMMEM_STORE_VALUE_MAX + 1, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_set(t->store, own, own, SIZE_MAX, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_set(t->store, own, NULL, 1, LIMIT_MS));
    REFUSED(t, NOT_FOUND, symmem_store_get(t->store, own, out.bytes, 1, &out.size, LIMIT_MS));
    TK_OK(t, symmem_store_set(t->store, own, "xy", 2, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_get(t->store, own, NULL, 2, &out.size, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_get(t->store, own, out.bytes, 2, NULL, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_add(t->store, own, 1, NULL, LIMIT_MS));
    outputs_check(t, &out);
    REFUSED(t, OUT_OF_RANGE, symmem_store_get(t->store, own, out.bytes, 1, &out.size, LIMIT_MS));
    TK_EQ_SIZE(t, 2, out.size);
    TK_EQ_INT(t, 0x5b, out.bytes[0]);
    TK_OK(t, symmem_store_remove(t->store, own, LIMIT_MS));
    TK_REQ(t, "SM-ERROR-01");
    REFUSED(t, INVALID_ARGUMENT, symmem_store_open_file(NULL, &store));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_open_file(t->scratch_dir, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_open_memory(NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_open_custom(NULL, NULL, &store));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_open_custom(&table, NULL, NULL));
    TK_REQ(t, "SM-ERROR-08");
    REFUSED(t, INVALID_ARGUMENT, symmem_store_set(NULL, own, "x", 1, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_get(NULL, own, out.bytes, 1, &out.size, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_wait(NULL, own, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_add(NULL, own, 1, &value, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_remove(NULL, own, LIMIT_MS));
    symmem_store_close(NULL);
    TK_EQ_INT(t, UNTOUCHED, value);
}

/* --- streams ---------------------------------------------------------------------------------- */

TK_TEST(limits, streams, "SM-BACKEND-11,SM-ERROR-01,SM-ERROR-04", .needs = SYMMEM_CAP_STREAMS,
        .max_ranks = 4) {
    struct outputs out = outputs_fresh();
    symmem_stream *stream = tk_stream(t);
    symmem_stream *none = UNTOUCHED_POINTER;
    symmem_event *event = UNTOUCHED_POINTER;
    const int32_t devices = device_count(t);
    TK_REQ(t, "SM-BACKEND-11");
    REFUSED(t, OUT_OF_RANGE, symmem_stream_create(t->context, -2, &none));
    REFUSED(t, OUT_OF_RANGE, symmem_stream_create(t->context, devices, &none));
    REFUSED(t, OUT_OF_RANGE, symmem_event_create(t->context, -2, &event));
    REFUSED(t, OUT_OF_RANGE, symmem_event_create(t->context, devices, &event));
    TK_REQ(t, "SM-ERROR-01");
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_create(t->context, 0, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_event_create(t->context, 0, NULL));
    TK_CHECK(t, (void *)none == UNTOUCHED_POINTER && (void *)event == UNTOUCHED_POINTER);
    TK_REQUIRE_OK(t, symmem_event_create(t->context, 0, &event));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_synchronize(NULL, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_query(stream, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_query(NULL, &out.flag));
    REFUSED(t, INVALID_ARGUMENT, symmem_event_record(NULL, stream));
    REFUSED(t, INVALID_ARGUMENT, symmem_event_record(event, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_wait_event(NULL, event));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_wait_event(stream, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_event_synchronize(NULL, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_event_query(event, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_event_query(NULL, &out.flag));
    outputs_check(t, &out);
    symmem_event_destroy(event);
    symmem_event_destroy(NULL);
    TK_OK(t, symmem_stream_destroy(NULL));
    tk_synchronize(t, stream);
}

static void nothing(void *arg) {
    (void)arg;
}

TK_TEST(limits, captures, "SM-STREAM-13,SM-ERROR-01,SM-ERROR-08",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN, .max_ranks = 4) {
    symmem_stream *stream = tk_stream(t);
    symmem_graph *graph = UNTOUCHED_POINTER;
    bool flag = true;
    TK_REQ(t, "SM-ERROR-01");
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_host_fn(stream, NULL, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_begin_capture(NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_end_capture(NULL, &graph));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_is_capturing(NULL, &flag));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_is_capturing(stream, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_graph_launch(NULL, stream));
    REFUSED(t, CAPTURE, symmem_stream_end_capture(stream, &graph));
    TK_CHECK(t, (void *)graph == UNTOUCHED_POINTER && flag);
    TK_REQ(t, "SM-ERROR-08");
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_host_fn(NULL, nothing, NULL));
    TK_OK(t, symmem_stream_begin_capture(stream));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_end_capture(stream, NULL));
    TK_OK(t, symmem_stream_is_capturing(stream, &flag));
    TK_CHECK_MSG(t, flag, "a refused end ended the capture");
    TK_OK(t, symmem_stream_end_capture(stream, &graph));
    REFUSED(t, INVALID_ARGUMENT, symmem_graph_launch(graph, NULL));
    TK_OK(t, symmem_graph_destroy(graph));
    TK_OK(t, symmem_graph_destroy(NULL));
    tk_synchronize(t, stream);
}
