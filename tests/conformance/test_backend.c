/* SPDX-License-Identifier: BSD-3-Clause */
/* Choosing a backend, what it does not declare, and its devices. */
#include "backend_table.h"
#include "fake_table.h"
#include "sync_help.h"

static const char *active(struct tk *t) {
    const char *name = "not asked";
    TK_OK(t, symmem_get_backend(t->context, &name));
    return name;
}

static void register_fakes(struct tk *t) {
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, &fake_table_a));
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, &fake_table_b));
}

TK_TEST(backend, unknown_name_changes_nothing, "SM-BACKEND-01", TK_ON_FAKES) {
    static const char *const unknown[] = {"nobody", "suite_fake", "suite_fake_ab"};
    register_fakes(t);
    for (size_t i = 0; i < TK_COUNT(unknown); i++) {
        TK_FAILS(t, NOT_FOUND, symmem_set_backend(t->context, unknown[i]));
        TK_EQ_PTR(t, NULL, active(t));
    }
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    for (size_t i = 0; i < TK_COUNT(unknown); i++) {
        TK_FAILS(t, NOT_FOUND, symmem_set_backend(t->context, unknown[i]));
        TK_EQ_STR(t, "suite_fake_a", active(t));
    }
}

/* Asking which it is is no use of it; an allocation is. */
TK_TEST(backend, no_change_after_use, "SM-BACKEND-02,SM-BACKEND-03", TK_ON_FAKES) {
    TK_REQ(t, "SM-BACKEND-02");
    register_fakes(t);
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_b"));
    TK_EQ_STR(t, "suite_fake_b", active(t));
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    TK_EQ_STR(t, "suite_fake_a", active(t));
    void *memory = tk_alloc(t, 64);
    TK_FAILS(t, BUSY, symmem_set_backend(t->context, "suite_fake_b"));
    TK_EQ_STR(t, "suite_fake_a", active(t));
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    tk_free(t, memory);
}

TK_TEST(backend, device_query_is_use, "SM-BACKEND-02", TK_ON_FAKES) {
    register_fakes(t);
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    TK_EQ_INT(t, 2, device_count(t));
    TK_FAILS(t, BUSY, symmem_set_backend(t->context, "suite_fake_b"));
    TK_EQ_STR(t, "suite_fake_a", active(t));
}

TK_TEST(backend, name_of_the_active_backend, "SM-BACKEND-03", TK_ON_FAKES) {
    TK_EQ_PTR(t, NULL, active(t));
    register_fakes(t);
    TK_EQ_PTR(t, NULL, active(t)); /* known, but not set */
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_b"));
    int before = fake_table_calls();
    TK_EQ_STR(t, "suite_fake_b", active(t));
    TK_EQ_INT(t, before, fake_table_calls());
}

TK_PORTED(test_get_backend, "SM-BACKEND-03,SM-BACKEND-02", .max_ranks = 1) {
    const char *name = active(t);
    TK_REQ(t, "SM-BACKEND-03");
    TK_REQUIRE(t, name != NULL && name[0] != '\0');
    TK_OK(t, symmem_set_backend(t->context, name));
    TK_EQ_STR(t, name, active(t));
}

TK_TEST(backend, availability, "SM-BACKEND-04", TK_ON_FAKES) {
    bool available = true;
    TK_OK(t, symmem_backend_available(t->context, "nobody", &available));
    TK_CHECK(t, !available);
    TK_OK(t, symmem_backend_available(t->context, "suite_fake_a", &available));
    TK_CHECK(t, !available);
    register_fakes(t);
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, &fake_table_absent));
    TK_OK(t, symmem_backend_available(t->context, "suite_fake_a", &available));
    TK_CHECK(t, available);
    TK_OK(t, symmem_backend_available(t->context, "suite_fake_absent", &available));
    TK_CHECK(t, !available);
    TK_EQ_PTR(t, NULL, active(t));
    TK_FAILS(t, UNSUPPORTED, symmem_set_backend(t->context, "suite_fake_absent"));
    symmem_error_record record = last_record();
    TK_CHECK_MSG(t, strstr(record.message, fake_reason) != NULL, "no reason in \"%s\"",
                 record.message);
    TK_EQ_PTR(t, NULL, active(t));
}

TK_TEST(backend, active_backend_is_available, "SM-BACKEND-04", .max_ranks = 1) {
    bool available = false;
    TK_OK(t, symmem_backend_available(t->context, active(t), &available));
    TK_CHECK(t, available);
}

TK_TEST(backend, names_are_taken_once, "SM-BACKEND-05", TK_ON_FAKES) {
    flat_backend twin = flat_of(&fake_table_b);
    register_fakes(t);
    TK_FAILS(t, EXISTS, symmem_register_backend(t->context, &fake_table_a));
    twin.head.name = "suite_fake_a";
    TK_FAILS(t, EXISTS, symmem_register_backend(t->context, flat_table(&twin)));
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
}

TK_TEST(backend, without_a_backend, "SM-BACKEND-03,SM-ERROR-04", TK_ON_FAKES) {
    void *const untouched = t;
    void *memory = untouched;
    int32_t value = 77;
    uint64_t capabilities = 77;
    bool supported = true;
    TK_REQ(t, "SM-BACKEND-03");
    TK_FAILS(t, NOT_FOUND, symmem_alloc(t->context, 64, -1, NULL, &memory));
    TK_FAILS(t, NOT_FOUND, symmem_device_count(t->context, &value));
    TK_FAILS(t, NOT_FOUND, symmem_device_type(t->context, &value));
    TK_FAILS(t, NOT_FOUND, symmem_backend_capabilities(t->context, &capabilities));
    TK_CHECK(t, memory == untouched && value == 77 && capabilities == 77);
    TK_OK(t, symmem_has_multicast_support(t->context, t->device_type, 0, &supported));
    TK_CHECK(t, !supported);
}

static void refuse_streams(struct tk *t) {
    symmem_stream *stream = NULL;
    symmem_event *event = NULL;
    TK_FAILS(t, UNSUPPORTED, symmem_stream_create(t->context, 0, &stream));
    TK_FAILS(t, UNSUPPORTED, symmem_event_create(t->context, 0, &event));
    TK_CHECK(t, stream == NULL && event == NULL);
}

static void refuse_wrap(struct tk *t) {
    symmem_stream *stream = NULL;
    TK_FAILS(t, UNSUPPORTED, symmem_stream_wrap(t->context, 0, &stream, &stream));
    TK_EQ_PTR(t, NULL, stream);
}

static void refuse_connectivity(struct tk *t) {
    int32_t count = 0, matrix[4] = {-7, -7, -7, -7};
    TK_OK(t, symmem_device_count(t->context, &count));
    TK_FAILS(t, UNSUPPORTED, symmem_connectivity(t->context, "nvlink", count, matrix));
    TK_FAILS(t, UNSUPPORTED, symmem_connectivity(t->context, "nothing", 1, matrix));
    for (int i = 0; i < 4; i++)
        TK_EQ_INT(t, -7, matrix[i]);
}

static void refuse_values(struct tk *t) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    const symmem_handle_info info = info_of(t, handle);
    int64_t count = 1;
    DLTensor tensor = {.data = buffers_of(t, handle)[info.rank],
                       .device = {(DLDeviceType)t->device_type, info.device},
                       .ndim = 1,
                       .dtype = {kDLUInt, 64, 1},
                       .shape = &count};
    TK_FAILS(t, UNSUPPORTED,
             symmem_wait_value32(handle, info.rank, 0, SYMMEM_EQ, 0, info.rank, 20, NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_wait_value64(handle, info.rank, 0, SYMMEM_EQ, 0, info.rank, 20, NULL));
    TK_FAILS(t, UNSUPPORTED, symmem_stream_write_value64(t->context, &tensor, 0, 1, NULL));
    tk_expect_bytes(t, handle, info.rank, 0, 256, 0);
}

static void refuse_window(struct tk *t) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    const symmem_handle_info info = info_of(t, handle);
    const symmem_window_wait wait = {info.rank, 1};
    const uint32_t word = 7;
    TK_FAILS(t, UNSUPPORTED, symmem_window_signal(handle, info.rank, 0, 1, 20, NULL));
    TK_FAILS(t, UNSUPPORTED, symmem_window_wait_signal(handle, 1, &wait, 0, 20, NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_window_put_signal(handle, info.rank, 0, &word, sizeof(word), 0, 20, NULL));
    tk_expect_bytes(t, handle, info.rank, 0, 256, 0);
}

static void refuse_multicast(struct tk *t) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    symmem_handle_info info = {0};
    uint32_t word = 7, sum = 9;
    bool supported = true;
    TK_OK(t, symmem_has_multicast_support(t->context, t->device_type, 0, &supported));
    TK_CHECK(t, !supported);
    TK_OK(t, symmem_handle_get_info(handle, &info));
    TK_EQ_PTR(t, NULL, info.multicast_ptr);
    TK_FAILS(t, UNSUPPORTED, symmem_multimem_store(handle, 0, &word, sizeof(word), NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_multimem_ld_reduce(handle, 0, &sum, 1, SYMMEM_UINT32, SYMMEM_SUM, NULL));
    TK_EQ_INT(t, 9, sum);
    tk_expect_bytes(t, handle, info.rank, 0, 256, 0);
}

static void refuse_pool(struct tk *t) {
    symmem_pool *pool = NULL;
    TK_FAILS(t, UNSUPPORTED, symmem_pool_create(t->context, -1, 4096, &pool));
    TK_EQ_PTR(t, NULL, pool);
}

TK_TEST(backend, without_each, "SM-BACKEND-09", .max_ranks = 2) {
    static const struct {
        uint64_t capability;
        void (*refuse)(struct tk *t);
    } rows[] = {{SYMMEM_CAP_STREAMS, refuse_streams},
                {SYMMEM_CAP_WRAP_STREAM, refuse_wrap},
                {SYMMEM_CAP_MULTICAST, refuse_multicast},
                {SYMMEM_CAP_POOL, refuse_pool},
                {SYMMEM_CAP_CONNECTIVITY, refuse_connectivity},
                {SYMMEM_CAP_VALUES, refuse_values},
                {SYMMEM_CAP_WINDOW, refuse_window}};
    /* The core has these for each engine with reach. */
    const uint64_t cores =
        (t->capabilities & SYMMEM_CAP_REACH) != 0 ? SYMMEM_CAP_VALUES | SYMMEM_CAP_WINDOW : 0;
    for (size_t i = 0; i < TK_COUNT(rows); i++) {
        if ((rows[i].capability & cores) != 0)
            continue;
        tk_checkpoint(t, "capability 0x%llx", (unsigned long long)rows[i].capability);
        backend_without(t, rows[i].capability);
        rows[i].refuse(t);
    }
}

TK_TEST(backend, without_capture, "SM-BACKEND-09", .needs = SYMMEM_CAP_STREAMS, .max_ranks = 2) {
    backend_without(t, SYMMEM_CAP_CAPTURE);
    symmem_stream *stream = tk_stream(t);
    symmem_graph *graph = NULL;
    TK_FAILS(t, UNSUPPORTED, symmem_stream_begin_capture(stream));
    TK_FAILS(t, UNSUPPORTED, symmem_stream_end_capture(stream, &graph));
    TK_EQ_PTR(t, NULL, graph);
    tk_synchronize(t, stream);
}

static void must_not_run(void *arg) {
    *(int *)arg = 1;
}

TK_TEST(backend, without_host_functions, "SM-BACKEND-09", .needs = SYMMEM_CAP_STREAMS,
        .max_ranks = 2) {
    backend_without(t, SYMMEM_CAP_HOST_FN);
    symmem_stream *stream = tk_stream(t);
    int ran = 0;
    TK_FAILS(t, UNSUPPORTED, symmem_stream_host_fn(stream, must_not_run, &ran));
    tk_synchronize(t, stream);
    TK_EQ_INT(t, 0, ran);
}

/* The fake declares nothing but a rank mode, so this is tried whatever the backend under test can
 * do. */
TK_TEST(backend, without_anything, "SM-BACKEND-09", TK_ON_FAKES) {
    uint64_t capabilities = 77;
    register_fakes(t);
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    TK_OK(t, symmem_backend_capabilities(t->context, &capabilities));
    TK_EQ_SIZE(t, SYMMEM_CAP_PROCESS_RANKS | SYMMEM_CAP_PASSIVE, capabilities);
    refuse_streams(t);
    refuse_wrap(t);
    refuse_pool(t);
    refuse_multicast(t);
    refuse_connectivity(t);
    refuse_values(t);
    refuse_window(t);
    tk_end_context(t);
}

TK_PORTED(test_has_multicast_support, "SM-BACKEND-10", .max_ranks = 1) {
    static const int32_t types[] = {0, 1, 2, 3, 4, 8, 10, 13, -1, 100, INT32_MAX};
    for (size_t i = 0; i < TK_COUNT(types); i++) {
        bool supported = true;
        if (types[i] == t->device_type)
            continue;
        TK_OK(t, symmem_has_multicast_support(t->context, types[i], 0, &supported));
        TK_CHECK_MSG(t, !supported, "device type %d", types[i]);
    }
}

TK_TEST(backend, devices, "SM-BACKEND-11,SM-ERROR-04", .max_ranks = 4) {
    int32_t count = 0, type = -1;
    symmem_alloc_info info = {0};
    void *const untouched = t;
    void *memory = untouched;
    TK_REQ(t, "SM-BACKEND-11");
    TK_OK(t, symmem_device_count(t->context, &count));
    TK_REQUIRE(t, count >= 1);
    TK_OK(t, symmem_device_type(t->context, &type));
    TK_EQ_INT(t, t->device_type, type);
    TK_FAILS(t, OUT_OF_RANGE, symmem_alloc(t->context, 64, count, NULL, &memory));
    TK_FAILS(t, OUT_OF_RANGE, symmem_alloc(t->context, 64, INT32_MAX, NULL, &memory));
    TK_FAILS(t, OUT_OF_RANGE, symmem_alloc(t->context, 64, -2, NULL, &memory));
    TK_FAILS(t, OUT_OF_RANGE, symmem_alloc(t->context, 64, INT32_MIN, NULL, &memory));
    TK_EQ_PTR(t, untouched, memory);
    if (tk_has_memory_of(t, count - 1)) {
        TK_OK(t, symmem_alloc(t->context, 64, count - 1, NULL, &memory));
        TK_OK(t, symmem_alloc_query(t->context, memory, &info));
        TK_EQ_INT(t, count - 1, info.device);
        TK_OK(t, symmem_free(t->context, memory));
    }
    TK_OK(t, symmem_alloc(t->context, 64, -1, NULL, &memory));
    TK_OK(t, symmem_alloc_query(t->context, memory, &info));
    TK_EQ_INT(t, t->rank % count, info.device);
    TK_OK(t, symmem_free(t->context, memory));
}

TK_TEST(backend, devices_of_streams, "SM-BACKEND-11", .needs = SYMMEM_CAP_STREAMS, .max_ranks = 2) {
    symmem_stream *stream = NULL;
    symmem_event *event = NULL;
    const int32_t count = device_count(t);
    TK_FAILS(t, OUT_OF_RANGE, symmem_stream_create(t->context, count, &stream));
    TK_FAILS(t, OUT_OF_RANGE, symmem_stream_create(t->context, -2, &stream));
    TK_FAILS(t, OUT_OF_RANGE, symmem_event_create(t->context, count, &event));
    TK_FAILS(t, OUT_OF_RANGE, symmem_event_create(t->context, -2, &event));
    TK_CHECK(t, stream == NULL && event == NULL);
}

TK_TEST(backend, devices_of_pools, "SM-BACKEND-11", .needs = SYMMEM_CAP_POOL, .max_ranks = 2) {
    symmem_pool *pool = NULL;
    const int32_t count = device_count(t);
    TK_FAILS(t, OUT_OF_RANGE, symmem_pool_create(t->context, count, 4096, &pool));
    TK_FAILS(t, OUT_OF_RANGE, symmem_pool_create(t->context, -2, 4096, &pool));
    TK_EQ_PTR(t, NULL, pool);
}
