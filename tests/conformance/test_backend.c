/* SPDX-License-Identifier: BSD-3-Clause */
/* Choosing a backend, what it does not declare, and its devices. */
#include <string.h>

#include "backend_table.h"
#include "fake_table.h"
#include "kit.h"

#define LIMIT_MS 10000u

static const char *active(struct tk *t) {
    const char *name = "not asked";
    TK_OK(t, symmem_get_backend(t->context, &name));
    return name;
}

/* --- choosing, with fakes --------------------------------------------------------------------- */

static void register_fakes(struct tk *t) {
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, &fake_table_a));
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, &fake_table_b));
}

static void unknown_name_changes_nothing(struct tk *t) {
    static const char *const unknown[] = {"nobody", "suite_fake", "suite_fake_ab"};
    TK_REQ(t, "SM-BACKEND-01");
    register_fakes(t);
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        TK_STATUS(t, SYMMEM_NOT_FOUND, symmem_set_backend(t->context, unknown[i]));
        TK_EQ_PTR(t, NULL, active(t));
    }
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        TK_STATUS(t, SYMMEM_NOT_FOUND, symmem_set_backend(t->context, unknown[i]));
        TK_EQ_STR(t, "suite_fake_a", active(t));
    }
}

static void change_before_use(struct tk *t) {
    TK_REQ(t, "SM-BACKEND-02");
    register_fakes(t);
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_b"));
    TK_EQ_STR(t, "suite_fake_b", active(t));
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a")); /* asking for it was no use */
    TK_EQ_STR(t, "suite_fake_a", active(t));
}

static void no_change_after_use(struct tk *t) {
    void *memory = NULL;
    TK_REQ(t, "SM-BACKEND-02");
    register_fakes(t);
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_b"));
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 64, -1, NULL, &memory));
    TK_STATUS(t, SYMMEM_BUSY, symmem_set_backend(t->context, "suite_fake_a"));
    TK_EQ_STR(t, "suite_fake_b", active(t));
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_b"));
    TK_OK(t, symmem_free(t->context, memory));
}

static void device_query_is_use(struct tk *t) {
    int32_t count = 0;
    TK_REQ(t, "SM-BACKEND-02");
    register_fakes(t);
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    TK_OK(t, symmem_device_count(t->context, &count));
    TK_EQ_INT(t, 2, count);
    TK_STATUS(t, SYMMEM_BUSY, symmem_set_backend(t->context, "suite_fake_b"));
    TK_EQ_STR(t, "suite_fake_a", active(t));
}

static void name_of_the_active_backend(struct tk *t) {
    int before;
    TK_REQ(t, "SM-BACKEND-03");
    TK_EQ_PTR(t, NULL, active(t));
    register_fakes(t);
    TK_EQ_PTR(t, NULL, active(t)); /* known, but not set */
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_b"));
    before = fake_table_calls();
    TK_EQ_STR(t, "suite_fake_b", active(t));
    TK_EQ_INT(t, before, fake_table_calls());
}

static void get_backend(struct tk *t) {
    const char *name = active(t);
    TK_REQ(t, "SM-BACKEND-03");
    TK_REQUIRE(t, name != NULL && name[0] != '\0');
    TK_OK(t, symmem_set_backend(t->context, name));
    TK_EQ_STR(t, name, active(t));
}

static void availability(struct tk *t) {
    bool available = true;
    symmem_error_record record;
    TK_REQ(t, "SM-BACKEND-04");
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
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_set_backend(t->context, "suite_fake_absent"));
    symmem_last_error(&record);
    TK_CHECK_MSG(t, strstr(record.message, fake_reason) != NULL, "no reason in \"%s\"",
                 record.message);
    TK_EQ_PTR(t, NULL, active(t));
}

static void active_backend_is_available(struct tk *t) {
    bool available = false;
    TK_REQ(t, "SM-BACKEND-04");
    TK_OK(t, symmem_backend_available(t->context, active(t), &available));
    TK_CHECK(t, available);
}

static void names_are_taken_once(struct tk *t) {
    symmem_backend twin = fake_table_b;
    TK_REQ(t, "SM-BACKEND-05");
    register_fakes(t);
    TK_STATUS(t, SYMMEM_EXISTS, symmem_register_backend(t->context, &fake_table_a));
    twin.name = "suite_fake_a";
    TK_STATUS(t, SYMMEM_EXISTS, symmem_register_backend(t->context, &twin));
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
}

static void without_a_backend(struct tk *t) {
    void *const untouched = t;
    void *memory = untouched;
    int32_t value = 77;
    uint64_t capabilities = 77;
    bool supported = true;
    TK_REQ(t, "SM-BACKEND-03");
    TK_STATUS(t, SYMMEM_NOT_FOUND, symmem_alloc(t->context, 64, -1, NULL, &memory));
    TK_STATUS(t, SYMMEM_NOT_FOUND, symmem_device_count(t->context, &value));
    TK_STATUS(t, SYMMEM_NOT_FOUND, symmem_device_type(t->context, &value));
    TK_STATUS(t, SYMMEM_NOT_FOUND, symmem_backend_capabilities(t->context, &capabilities));
    TK_CHECK(t, memory == untouched && value == 77 && capabilities == 77);
    TK_OK(t, symmem_has_multicast_support(t->context, t->device_type, 0, &supported));
    TK_CHECK(t, !supported);
}

/* --- what is not declared: by the backend under test, or by a table that is it but for that --- */

static void refuse_streams(struct tk *t) {
    symmem_stream *stream = NULL;
    symmem_event *event = NULL;
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_stream_create(t->context, 0, &stream));
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_event_create(t->context, 0, &event));
    TK_CHECK(t, stream == NULL && event == NULL);
}

static void refuse_wrap(struct tk *t) {
    symmem_stream *stream = NULL;
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_stream_wrap(t->context, 0, &stream, &stream));
    TK_EQ_PTR(t, NULL, stream);
}

static void refuse_connectivity(struct tk *t) {
    int32_t count = 0, matrix[4] = {-7, -7, -7, -7};
    TK_OK(t, symmem_device_count(t->context, &count));
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_connectivity(t->context, "nvlink", count, matrix));
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_connectivity(t->context, "nothing", 1, matrix));
    for (int i = 0; i < 4; i++)
        TK_EQ_INT(t, -7, matrix[i]);
}

static void without_connectivity(struct tk *t) {
    TK_REQ(t, "SM-BACKEND-09");
    backend_without(t, SYMMEM_CAP_CONNECTIVITY);
    refuse_connectivity(t);
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
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_multimem_store(handle, 0, &word, sizeof(word), NULL));
    TK_STATUS(t, SYMMEM_UNSUPPORTED,
              symmem_multimem_ld_reduce(handle, 0, &sum, 1, SYMMEM_UINT32, SYMMEM_SUM, NULL));
    TK_EQ_INT(t, 9, sum);
    tk_expect_bytes(t, handle, info.rank, 0, 256, 0);
}

static void refuse_pool(struct tk *t) {
    symmem_pool *pool = NULL;
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_pool_create(t->context, -1, 4096, &pool));
    TK_EQ_PTR(t, NULL, pool);
}

static void without_streams(struct tk *t) {
    TK_REQ(t, "SM-BACKEND-09");
    backend_without(t, SYMMEM_CAP_STREAMS);
    refuse_streams(t);
}

static void without_wrapped_streams(struct tk *t) {
    TK_REQ(t, "SM-BACKEND-09");
    backend_without(t, SYMMEM_CAP_WRAP_STREAM);
    refuse_wrap(t);
}

static void without_multicast(struct tk *t) {
    TK_REQ(t, "SM-BACKEND-09");
    backend_without(t, SYMMEM_CAP_MULTICAST);
    refuse_multicast(t);
}

static void without_pools(struct tk *t) {
    TK_REQ(t, "SM-BACKEND-09");
    backend_without(t, SYMMEM_CAP_POOL);
    refuse_pool(t);
}

static void without_capture(struct tk *t) {
    backend_without(t, SYMMEM_CAP_CAPTURE);
    symmem_stream *stream = tk_stream(t);
    symmem_graph *graph = NULL;
    TK_REQ(t, "SM-BACKEND-09");
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_stream_begin_capture(stream));
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_stream_end_capture(stream, &graph));
    TK_EQ_PTR(t, NULL, graph);
    tk_synchronize(t, stream);
}

static void must_not_run(void *arg) {
    *(int *)arg = 1;
}

static void without_host_functions(struct tk *t) {
    backend_without(t, SYMMEM_CAP_HOST_FN);
    symmem_stream *stream = tk_stream(t);
    int ran = 0;
    TK_REQ(t, "SM-BACKEND-09");
    TK_STATUS(t, SYMMEM_UNSUPPORTED, symmem_stream_host_fn(stream, must_not_run, &ran));
    tk_synchronize(t, stream);
    TK_EQ_INT(t, 0, ran);
}

/* The fake declares nothing but a rank mode, so this is tried whatever the backend under test can
 * do. */
static void without_anything(struct tk *t) {
    uint64_t capabilities = 77;
    TK_REQ(t, "SM-BACKEND-09");
    register_fakes(t);
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    TK_OK(t, symmem_backend_capabilities(t->context, &capabilities));
    TK_EQ_SIZE(t, SYMMEM_CAP_PROCESS_RANKS, capabilities);
    refuse_streams(t);
    refuse_wrap(t);
    refuse_pool(t);
    refuse_multicast(t);
    refuse_connectivity(t);
    tk_end_context(t);
}

/* --- devices ---------------------------------------------------------------------------------- */

static void has_multicast_support(struct tk *t) {
    static const int32_t types[] = {0, 1, 2, 3, 4, 8, 10, 13, -1, 100, INT32_MAX};
    TK_REQ(t, "SM-BACKEND-10");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        bool supported = true;
        if (types[i] == t->device_type)
            continue;
        TK_OK(t, symmem_has_multicast_support(t->context, types[i], 0, &supported));
        TK_CHECK_MSG(t, !supported, "device type %d", types[i]);
    }
}

static void devices(struct tk *t) {
    int32_t count = 0, type = -1;
    symmem_alloc_info info = {0};
    void *const untouched = t;
    void *memory = untouched;
    TK_REQ(t, "SM-BACKEND-11");
    TK_OK(t, symmem_device_count(t->context, &count));
    TK_REQUIRE(t, count >= 1);
    TK_OK(t, symmem_device_type(t->context, &type));
    TK_EQ_INT(t, t->device_type, type);
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, symmem_alloc(t->context, 64, count, NULL, &memory));
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, symmem_alloc(t->context, 64, INT32_MAX, NULL, &memory));
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, symmem_alloc(t->context, 64, -2, NULL, &memory));
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, symmem_alloc(t->context, 64, INT32_MIN, NULL, &memory));
    TK_EQ_PTR(t, untouched, memory);
    TK_OK(t, symmem_alloc(t->context, 64, count - 1, NULL, &memory));
    TK_OK(t, symmem_alloc_query(t->context, memory, &info));
    TK_EQ_INT(t, count - 1, info.device);
    TK_OK(t, symmem_free(t->context, memory));
    TK_OK(t, symmem_alloc(t->context, 64, -1, NULL, &memory));
    TK_OK(t, symmem_alloc_query(t->context, memory, &info));
    TK_EQ_INT(t, t->rank % count, info.device);
    TK_OK(t, symmem_free(t->context, memory));
}

static void devices_of_streams(struct tk *t) {
    symmem_stream *stream = NULL;
    symmem_event *event = NULL;
    int32_t count = 0;
    TK_REQ(t, "SM-BACKEND-11");
    TK_OK(t, symmem_device_count(t->context, &count));
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, symmem_stream_create(t->context, count, &stream));
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, symmem_stream_create(t->context, -2, &stream));
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, symmem_event_create(t->context, count, &event));
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, symmem_event_create(t->context, -2, &event));
    TK_CHECK(t, stream == NULL && event == NULL);
}

static void devices_of_pools(struct tk *t) {
    symmem_pool *pool = NULL;
    int32_t count = 0;
    TK_REQ(t, "SM-BACKEND-11");
    TK_OK(t, symmem_device_count(t->context, &count));
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, symmem_pool_create(t->context, count, 4096, &pool));
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, symmem_pool_create(t->context, -2, 4096, &pool));
    TK_EQ_PTR(t, NULL, pool);
}

#define CASE(name_, requirements_, flags_, body_)                                                  \
    {                                                                                              \
        .name = name_, .requirements = requirements_, .max_ranks = 1, .flags = flags_,             \
        .body = body_,                                                                             \
    }
#define LACKING(name_, needs_, body_)                                                              \
    {                                                                                              \
        .name = name_, .requirements = "SM-BACKEND-09", .needs = needs_, .max_ranks = 2,           \
        .body = body_,                                                                             \
    }

static const struct tk_case cases[] = {
    CASE("backend.unknown_name_changes_nothing", "SM-BACKEND-01", TK_NO_BACKEND,
         unknown_name_changes_nothing),
    CASE("backend.change_before_use", "SM-BACKEND-02,SM-BACKEND-03", TK_NO_BACKEND,
         change_before_use),
    CASE("backend.no_change_after_use", "SM-BACKEND-02", TK_NO_BACKEND, no_change_after_use),
    CASE("backend.device_query_is_use", "SM-BACKEND-02", TK_NO_BACKEND, device_query_is_use),
    CASE("backend.name_of_the_active_backend", "SM-BACKEND-03", TK_NO_BACKEND,
         name_of_the_active_backend),
    CASE("test_get_backend", "SM-BACKEND-03,SM-BACKEND-02", 0, get_backend),
    CASE("backend.availability", "SM-BACKEND-04", TK_NO_BACKEND, availability),
    CASE("backend.active_backend_is_available", "SM-BACKEND-04", 0, active_backend_is_available),
    CASE("backend.names_are_taken_once", "SM-BACKEND-05", TK_NO_BACKEND, names_are_taken_once),
    CASE("backend.without_a_backend", "SM-BACKEND-03,SM-ERROR-04", TK_NO_BACKEND,
         without_a_backend),
    CASE("backend.without_anything", "SM-BACKEND-09", TK_NO_BACKEND, without_anything),
    LACKING("backend.without_streams", 0, without_streams),
    LACKING("backend.without_wrapped_streams", 0, without_wrapped_streams),
    LACKING("backend.without_multicast", 0, without_multicast),
    LACKING("backend.without_pools", 0, without_pools),
    LACKING("backend.without_connectivity", 0, without_connectivity),
    LACKING("backend.without_capture", SYMMEM_CAP_STREAMS, without_capture),
    LACKING("backend.without_host_functions", SYMMEM_CAP_STREAMS, without_host_functions),
    CASE("test_has_multicast_support", "SM-BACKEND-10", 0, has_multicast_support),
    TK_CASE("backend.devices", devices, "SM-BACKEND-11,SM-ERROR-04", .max_ranks = 4),
    TK_CASE("backend.devices_of_streams", devices_of_streams, "SM-BACKEND-11",
            .needs = SYMMEM_CAP_STREAMS, .max_ranks = 2),
    TK_CASE("backend.devices_of_pools", devices_of_pools, "SM-BACKEND-11", .needs = SYMMEM_CAP_POOL,
            .max_ranks = 2),
};
TK_SUITE(backend, cases);
