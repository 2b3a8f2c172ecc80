/* SPDX-License-Identifier: BSD-3-Clause */
/* Statuses and error records. */
#include <sys/mman.h>
#include <unistd.h>

#include "counting_store.h"
#include "fake_table.h"
#include "sync_help.h"
#include <symmem/ops.h>

/* The record of a call that has just answered `status`, and that the next success leaves alone. */
static void expect_record(struct tk *t, symmem_status expected, symmem_status status,
                          const char *operation) {
    symmem_error_record record, later;
    size_t bytes = 0;
    symmem_last_error(&record);
    TK_CHECK_MSG(t, status == expected, "%s: %s instead of %s", operation,
                 symmem_status_name(status), symmem_status_name(expected));
    TK_CHECK_MSG(t, record.status == status, "%s: the record says %s", operation,
                 symmem_status_name(record.status));
    TK_EQ_STR(t, operation, record.operation);
    TK_CHECK_MSG(t, record.message[0] != '\0', "%s: no message", operation);
    TK_CHECK_MSG(t, strchr(record.message, '\n') == NULL, "%s: more than a line", operation);
    TK_OK(t, symmem_get_signal_pad_size(t->context, &bytes));
    symmem_last_error(&later);
    TK_CHECK_MSG(t, memcmp(&record, &later, sizeof(record)) == 0,
                 "a success after %s changed the record", operation);
    symmem_clear_error();
}

/* --- calls in callbacks --------------------------------------------------------------------- */

/* A program's own mistake, in the middle of each of its calls. */
static symmem_status fail_in_a_point(void *clears, const char *point) {
    int32_t rank;
    (void)point;
    if (symmem_context_rank(NULL, &rank) == SYMMEM_OK)
        return SYMMEM_SYSTEM;
    if (clears)
        symmem_clear_error();
    return SYMMEM_OK;
}

static void fail_with_points(struct tk *t, void *clears) {
    uint8_t own[2] = {0}, all[8];
    TK_REINIT(t, options.point = fail_in_a_point; options.point_arg = clears);
    symmem_group *group = tk_group(t, "points", NULL, 0);
    symmem_handle *handle = tk_handle(t, 64, group);
    if (t->rank == 0)
        expect_record(t, SYMMEM_TIMEOUT, symmem_barrier(handle, 0, tk_limit_ms(t, 50), NULL),
                      "barrier");
    tk_out_of_band_barrier(t);
    expect_record(t, SYMMEM_MISMATCH,
                  symmem_group_all_gather(group, own, (size_t)t->rank + 1, all, LONG_MS),
                  "group_all_gather");
}

TK_TEST(error, calls_in_points, "SM-ERROR-01", .ranks = {2, 2}) {
    fail_with_points(t, NULL);
    fail_with_points(t, t);
}

/* --- strings without an end ----------------------------------------------------------------- */

/* `bytes` letters, and no memory behind them. */
static char *without_end(struct tk *t, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (bytes + page - 1) / page * page;
    char *memory =
        mmap(NULL, all + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TK_REQUIRE(t, memory != MAP_FAILED);
    TK_REQUIRE(t, mprotect(memory + all, page, PROT_NONE) == 0);
    memset(memory, 'x', all);
    return memory + all - bytes;
}

/* The rank is ended by a signal where one is read too far. */
TK_TEST(error, strings_without_an_end, "SM-ERROR-15", .max_ranks = 1) {
    symmem_context_options options = tk_options(t);
    symmem_context *context = t->context, *other = NULL;
    symmem_group *group = NULL;
    symmem_store *store = NULL;
    char *const name = without_end(t, 64), *const key = without_end(t, SYMMEM_STORE_KEY_MAX + 1),
                *const path = without_end(t, 4096);
    bool is_there = true;
    path[0] = '/';
    TK_FAILS(t, INVALID_ARGUMENT, symmem_group_create(context, name, NULL, 0, NULL, &group));
    TK_FAILS(t, NOT_FOUND, symmem_group_find(context, name, &group));
    TK_FAILS(t, NOT_FOUND, symmem_set_backend(context, name));
    TK_FAILS(t, PATH_TOO_LONG, symmem_set_backend(context, path));
    TK_FAILS(t, PATH_TOO_LONG, symmem_load_backend(context, path));
    TK_OK(t, symmem_backend_available(context, name, &is_there));
    TK_CHECK(t, !is_there);
    TK_FAILS(t, PATH_TOO_LONG, symmem_store_open_file(path, &store));
    TK_OK(t, symmem_store_open_memory(&store));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_store_set(store, key, "x", 1, 100));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_store_wait(store, key, 100));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_store_remove(store, key, 100));
    options.store = store;
    options.rank = 0;
    options.world_size = 1;
    options.socket_dir = path;
    TK_FAILS(t, PATH_TOO_LONG, symmem_init(&options, &other));
    options.socket_dir = NULL;
    options.backend = name;
    TK_FAILS(t, NOT_FOUND, symmem_init(&options, &other));
    symmem_store_close(store);
    if ((t->capabilities & SYMMEM_CAP_CONNECTIVITY) != 0) {
        static int32_t matrix[SYMMEM_MAX_WORLD_SIZE];
        TK_FAILS(t, NOT_FOUND, symmem_connectivity(context, name, 1, matrix));
    }
}

/* A store of which every call fails. */
static symmem_status broken_set(void *self, const char *key, const void *value, size_t bytes,
                                uint32_t timeout_ms) {
    return SYMMEM_PERMISSION;
}

static symmem_status broken_get(void *self, const char *key, void *value, size_t capacity,
                                size_t *bytes_p, uint32_t timeout_ms) {
    return SYMMEM_PERMISSION;
}

static symmem_status broken_wait(void *self, const char *key, uint32_t timeout_ms) {
    return SYMMEM_PERMISSION;
}

static symmem_status broken_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                                uint32_t timeout_ms) {
    return SYMMEM_PERMISSION;
}

static symmem_status broken_remove(void *self, const char *key, uint32_t timeout_ms) {
    return SYMMEM_PERMISSION;
}

static void broken_close(void *self) {}

/* The operation in the text of a call: what stands between symmem_ and the bracket. */
static const char *operation_in(const char *call, char name[40]) {
    const char *begin = call + strlen("symmem_");
    snprintf(name, 40, "%.*s", (int)strcspn(begin, "("), begin);
    return name;
}
#define FAILS(expected, call)                                                                      \
    expect_record(t, SYMMEM_##expected, call, operation_in(#call, (char[40]){""}))

TK_TEST(error, failures_of_memory_and_groups, "SM-ERROR-01,SM-ERROR-10", .max_ranks = 2) {
    const int32_t own = t->rank, twice[] = {own, own};
    void *memory = tk_alloc(t, 256), *ptr = NULL;
    symmem_group *group = tk_group(t, "mine", &own, 1), *other = NULL;
    symmem_handle *handle = NULL;
    symmem_alloc_info info;
    symmem_context *context = NULL;
    symmem_context_options options = tk_options(t);
    size_t bytes;
    int32_t value;
    options.rank = -5;
    FAILS(INVALID_ARGUMENT, symmem_init(&options, &context));
    FAILS(INVALID_ARGUMENT, symmem_alloc(t->context, 0, -1, NULL, &ptr));
    FAILS(OUT_OF_RANGE, symmem_alloc(t->context, 8, -9, NULL, &ptr));
    FAILS(NOT_SYMMETRIC, symmem_free(t->context, &bytes));
    FAILS(NOT_SYMMETRIC, symmem_alloc_query(t->context, &bytes, &info));
    FAILS(NOT_SYMMETRIC, symmem_alloc_size(t->context, &bytes, &bytes));
    FAILS(MISALIGNED, symmem_set_signal_pad_size(t->context, 3));
    FAILS(NOT_FOUND, symmem_set_backend(t->context, "nobody"));
    FAILS(LOAD, symmem_load_backend(t->context, "/nowhere/at.so"));
    FAILS(EXISTS, symmem_group_create(t->context, "mine", &own, 1, NULL, &other));
    FAILS(INVALID_ARGUMENT, symmem_group_create(t->context, "twice", twice, 2, NULL, &other));
    FAILS(NOT_FOUND, symmem_group_find(t->context, "nobody", &other));
    FAILS(OUT_OF_RANGE, symmem_group_global_rank(group, 1, &value));
    FAILS(INVALID_ARGUMENT, symmem_rendezvous(t->context, memory, NULL, LONG_MS, &handle));
    FAILS(NOT_SYMMETRIC, symmem_rendezvous(t->context, &bytes, group, LONG_MS, &handle));
    FAILS(NOT_INITIALIZED, symmem_finalize(NULL));
}

TK_TEST(error, failures_of_handles, "SM-ERROR-01,SM-ERROR-10", .max_ranks = 2,
        .flags = TK_PLAIN_MEMORY) {
    const int32_t own = t->rank;
    symmem_handle *handle = tk_handle(t, 256, tk_group(t, "mine", &own, 1));
    const int64_t one = 1;
    DLManagedTensor *tensor = NULL;
    DLTensor none = {0};
    char byte = 0;
    int32_t value;
    FAILS(OUT_OF_RANGE, symmem_handle_global_rank(handle, 1, &value));
    FAILS(OUT_OF_RANGE, symmem_barrier(handle, -1, LONG_MS, NULL));
    FAILS(OUT_OF_RANGE, symmem_put_signal(handle, 1, 0, LONG_MS, NULL));
    FAILS(OUT_OF_RANGE, symmem_wait_signal(handle, 0, -1, LONG_MS, NULL));
    FAILS(OUT_OF_RANGE, symmem_put(handle, 0, 256, &byte, 1, NULL));
    FAILS(OUT_OF_RANGE, symmem_get(handle, -1, 0, &byte, 1, NULL));
    FAILS(INVALID_ARGUMENT, symmem_copy(t->context, NULL, &byte, 1, NULL));
    FAILS(OUT_OF_RANGE, symmem_get_buffer(handle, 1, 1, &one, SYMMEM_UINT8, 0, &tensor));
    FAILS(OUT_OF_RANGE, symmem_get_remote_tensor(handle, 0, 1, &one, SYMMEM_UINT8, 256, &tensor));
    FAILS(INVALID_ARGUMENT,
          symmem_get_signal_pad(handle, 0, 0, NULL, SYMMEM_DTYPE_COUNT, 0, &tensor));
    FAILS(INVALID_ARGUMENT, symmem_memset32(t->context, &none, 0, 0, 1, NULL));
    FAILS(INVALID_ARGUMENT, symmem_stream_write_value32(t->context, &none, 0, 0, NULL));
    FAILS(TIMEOUT, symmem_wait_signal(handle, 0, 0, 20, NULL));
    FAILS(POISONED, symmem_barrier(handle, 0, LONG_MS, NULL));
}

TK_TEST(error, failures_of_stores, "SM-ERROR-01", .max_ranks = 1) {
    symmem_store *store = NULL, *opened = NULL;
    symmem_store_ops short_table = {.size = 8};
    int64_t value;
    size_t bytes;
    TK_REQUIRE_OK(t, symmem_store_open_memory(&store));
    FAILS(INVALID_ARGUMENT, symmem_store_set(store, "", "v", 1, LONG_MS));
    FAILS(NOT_FOUND, symmem_store_get(store, "k", &value, 8, &bytes, LONG_MS));
    FAILS(TIMEOUT, symmem_store_wait(store, "k", 5));
    FAILS(INVALID_ARGUMENT, symmem_store_add(store, " ", 1, &value, LONG_MS));
    FAILS(INVALID_ARGUMENT, symmem_store_remove(store, " ", LONG_MS));
    FAILS(ABI, symmem_store_open_custom(&short_table, NULL, &opened));
    symmem_store_close(store);
}

TK_TEST(error, records_of_stream_calls, "SM-ERROR-01,SM-ERROR-10", .needs = SYMMEM_CAP_STREAMS,
        .max_ranks = 1) {
    symmem_stream *stream = NULL;
    symmem_event *event = NULL;
    FAILS(OUT_OF_RANGE, symmem_stream_create(t->context, 9999, &stream));
    FAILS(OUT_OF_RANGE, symmem_event_create(t->context, 9999, &event));
}

/* The record of the group names the rank in that group's numbers. */
TK_TEST(error, records_carry_the_group, "SM-ERROR-01", .ranks = {2, 4}) {
    uint8_t in[2] = {0}, out[16];
    symmem_group *group = reversed_group(t, "backwards");
    tk_group_barrier(t, group);
    /* One byte more on world rank 0, the group's last. */
    TK_FAILS(t, MISMATCH, symmem_group_all_gather(group, in, t->rank == 0 ? 2 : 1, out, LONG_MS));
    symmem_error_record record = last_record();
    TK_EQ_STR(t, "backwards", record.group);
    TK_EQ_INT(t, t->last - t->rank, record.rank);
    TK_EQ_INT(t, t->world_size, record.world_size);
}

static void expect_caller(struct tk *t, symmem_status status, const char *operation, int32_t rank) {
    symmem_error_record record = last_record();
    TK_CHECK_MSG(t, status != SYMMEM_OK, "%s does not fail", operation);
    TK_EQ_STR(t, operation, record.operation);
    TK_CHECK_MSG(t, record.rank == rank, "%s: rank %d instead of %d", operation, (int)record.rank,
                 (int)rank);
    symmem_clear_error();
}
#define BY(rank, call) expect_caller(t, call, operation_in(#call, (char[40]){""}), rank)

/* The group's numbers are not the world's. */
TK_TEST(error, records_name_the_caller, "SM-ERROR-11", .ranks = {2, 4}) {
    int32_t value = 0;
    const int32_t own = t->last - t->rank;
    symmem_group *group = reversed_group(t, "backwards"), *none = NULL;
    symmem_handle *handle = tk_handle(t, 256, group);
    DLManagedTensor *tensor = NULL;
    char byte = 0;
    void *ptr = NULL;
    symmem_handle *made = NULL;
    BY(t->rank, symmem_alloc(t->context, 0, -1, NULL, &ptr));
    BY(t->rank, symmem_alloc(t->context, 8, -1, NULL, NULL));
    BY(t->rank, symmem_free(t->context, &byte));
    BY(t->rank, symmem_context_rank(t->context, NULL));
    BY(t->rank, symmem_group_create(t->context, NULL, NULL, 0, NULL, &none));
    BY(t->rank, symmem_copy(t->context, NULL, &byte, 1, NULL));
    BY(own, symmem_rendezvous(t->context, &byte, group, LONG_MS, &made));
    BY(own, symmem_group_world_size(group, NULL));
    BY(own, symmem_group_all_gather(group, NULL, 1, &byte, LONG_MS));
    BY(own, symmem_group_global_rank(group, -1, &value));
    BY(own, symmem_handle_get_info(handle, NULL));
    BY(own, symmem_handle_global_rank(handle, -1, &value));
    BY(own, symmem_put(handle, 0, 0, NULL, 1, NULL));
    BY(own, symmem_get(handle, -1, 0, &byte, 1, NULL));
    BY(own, symmem_barrier(handle, -1, LONG_MS, NULL));
    BY(own, symmem_get_buffer(handle, 0, 1, NULL, SYMMEM_UINT8, 0, &tensor));
    BY(own, symmem_all_reduce(handle, NULL, SYMMEM_SUM, NULL, 0, LONG_MS, NULL));
    BY(own, symmem_all_gather_out(handle, NULL, NULL, 0, LONG_MS, NULL));
    tk_group_barrier(t, group);
}

/* What fails inside is the stage. */
TK_TEST(error, records_name_the_public_call, "SM-ERROR-11", .max_ranks = 1) {
    symmem_context *context = NULL;
    symmem_context_options options = tk_options(t);
    symmem_store *store = NULL;
    static const symmem_store_ops broken = {sizeof broken, broken_set,    broken_get,  broken_wait,
                                            broken_add,    broken_remove, broken_close};
    TK_REQUIRE_OK(t, symmem_store_open_custom(&broken, NULL, &store));
    options.store = store;
    options.rank = 0;
    options.world_size = 2;
    FAILS(PERMISSION, symmem_init(&options, &context));
    symmem_store_close(store);
}

struct other_thread {
    struct tk *t;
    symmem_error_record at_start, after;
};

static void *fail_elsewhere(void *arg) {
    struct other_thread *own = arg;
    symmem_last_error(&own->at_start);
    TK_STATUS(own->t, SYMMEM_MISALIGNED, symmem_set_signal_pad_size(own->t->context, 7));
    symmem_last_error(&own->after);
    return NULL;
}

TK_TEST(error, records_are_per_thread, "SM-ERROR-02", .max_ranks = 2) {
    struct other_thread other = {.t = t};
    symmem_error_record before, after;
    pthread_t thread;
    void *ptr = NULL;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_alloc(t->context, 0, -1, NULL, &ptr));
    symmem_last_error(&before);
    TK_REQUIRE(t, pthread_create(&thread, NULL, fail_elsewhere, &other) == 0);
    TK_REQUIRE(t, pthread_join(thread, NULL) == 0);
    symmem_last_error(&after);
    TK_CHECK(t, memcmp(&before, &after, sizeof(before)) == 0);
    TK_EQ_INT(t, SYMMEM_INVALID_ARGUMENT, after.status);
    TK_EQ_INT(t, SYMMEM_OK, other.at_start.status);
    TK_EQ_INT(t, SYMMEM_MISALIGNED, other.after.status);
}

TK_TEST(error, every_status_has_a_name, "SM-ERROR-03", .max_ranks = 1) {
    static const struct {
        symmem_status status;
        const char *name;
    } all[] = {
#define LISTED(name, value, text) {SYMMEM_##name, #name},
        SYMMEM_STATUS_LIST(LISTED)
#undef LISTED
    };
    const size_t count = TK_COUNT(all);
    static const int unknown[] = {1, 2, -30, -31, -1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < count; i++) {
        const char *text = symmem_status_text(all[i].status);
        TK_EQ_STR(t, all[i].name, symmem_status_name(all[i].status));
        TK_CHECK(t, text != NULL && text[0] != '\0');
        for (size_t k = 0; k < i; k++) {
            TK_CHECK(t, strcmp(text, symmem_status_text(all[k].status)) != 0);
            TK_CHECK(t, all[i].status != all[k].status);
        }
    }
    for (size_t i = 0; i < TK_COUNT(unknown); i++) {
        TK_EQ_STR(t, "UNKNOWN", symmem_status_name((symmem_status)unknown[i]));
        TK_EQ_STR(t, "unknown status", symmem_status_text((symmem_status)unknown[i]));
    }
}

TK_TEST(error, outputs_stay_after_failure, "SM-ERROR-04", .max_ranks = 2,
        .flags = TK_PLAIN_MEMORY) {
    const int32_t own = t->rank;
    void *const untouched = t;
    symmem_group *group = tk_group(t, "mine", &own, 1), *other = untouched;
    symmem_handle *handle = tk_handle(t, 256, group), *none = untouched;
    DLManagedTensor *tensor = untouched;
    symmem_alloc_info info;
    void *ptr = untouched;
    size_t bytes = 77;
    int32_t value = 77;
    char data[4] = "abc";
    const int64_t one = 1;
    memset(&info, 0x5A, sizeof(info));
    symmem_alloc_info info_before = info;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_alloc(t->context, 0, -1, NULL, &ptr));
    TK_FAILS(t, NOT_SYMMETRIC, symmem_alloc_query(t->context, &ptr, &info));
    TK_FAILS(t, NOT_SYMMETRIC, symmem_alloc_size(t->context, &ptr, &bytes));
    TK_FAILS(t, EXISTS, symmem_group_create(t->context, "mine", &own, 1, NULL, &other));
    TK_FAILS(t, OUT_OF_RANGE, symmem_group_global_rank(group, -1, &value));
    TK_FAILS(t, OUT_OF_RANGE, symmem_handle_global_rank(handle, 1, &value));
    TK_FAILS(t, OUT_OF_RANGE, symmem_get(handle, 0, 254, data, 3, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_get(handle, 1, 0, data, 3, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_get_buffer(handle, 1, 1, &one, SYMMEM_UINT8, 0, &tensor));
    TK_FAILS(t, OUT_OF_RANGE,
             symmem_get_remote_tensor(handle, 0, 1, &one, SYMMEM_UINT8, 256, &tensor));
    TK_FAILS(t, OUT_OF_RANGE, symmem_get_signal_pad(handle, -1, 0, NULL, SYMMEM_UINT8, 0, &tensor));
    TK_CHECK(t, ptr == untouched && (void *)other == untouched && (void *)tensor == untouched);
    TK_CHECK(t, bytes == 77 && value == 77 && memcmp(data, "abc", 4) == 0);
    TK_CHECK(t, memcmp(&info, &info_before, sizeof(info)) == 0);
    /* The handle is the one that the header says is NULL. */
    TK_FAILS(t, NOT_SYMMETRIC, symmem_rendezvous(t->context, &ptr, group, LONG_MS, &none));
    TK_EQ_PTR(t, NULL, none);
}

TK_TEST(error, clear, "SM-ERROR-05", .max_ranks = 2) {
    void *ptr = NULL;
    symmem_clear_error();
    symmem_error_record record = last_record();
    TK_EQ_INT(t, SYMMEM_OK, record.status);
    TK_FAILS(t, INVALID_ARGUMENT, symmem_alloc(t->context, 0, -1, NULL, &ptr));
    symmem_last_error(&record);
    TK_EQ_INT(t, SYMMEM_INVALID_ARGUMENT, record.status);
    symmem_clear_error();
    symmem_last_error(&record);
    TK_EQ_INT(t, SYMMEM_OK, record.status);
}

TK_TEST(error, missing_set, "SM-ERROR-01", .max_ranks = 1) {
    symmem_error_record record;
    memset(&record, 0, sizeof(record));
    record.missing[0] = (UINT64_C(1) << 63) | 1;
    record.missing[SYMMEM_MAX_WORLD_SIZE / 64 - 1] = UINT64_C(1) << 63;
    for (int32_t rank = -2; rank < SYMMEM_MAX_WORLD_SIZE + 70; rank++)
        if (symmem_error_is_missing(&record, rank) !=
            (rank == 0 || rank == 63 || rank == SYMMEM_MAX_WORLD_SIZE - 1))
            TK_CHECK_MSG(t, false, "rank %d", rank);
    TK_CHECK(t, symmem_error_is_missing(&record, 63));
}

#define NO_STATUS ((symmem_status)77)

static symmem_status odd_open(const symmem_host *host, const symmem_backend_config *config,
                              void **instance_p) {
    return host->fail(host, NO_STATUS, 0, "open", "the fake driver said so");
}

#define ODD(name, ...)                                                                             \
    static symmem_status name(__VA_ARGS__) {                                                       \
        return NO_STATUS;                                                                          \
    }
ODD(odd_alloc, void *instance, int32_t device, size_t bytes, symmem_memory *memory)
ODD(odd_copy, void *instance, int32_t device, void *dst, const void *src, size_t bytes,
    const symmem_exec *exec)
ODD(odd_barrier, void *instance, const symmem_peers *peers, int32_t channel,
    const symmem_exec *exec)
ODD(odd_open_peers, void *instance, symmem_peers *peers, void **buffers_dev_p, void **pads_dev_p)
ODD(odd_get, void *self, const char *key, void *value, size_t capacity, size_t *bytes_p,
    uint32_t timeout_ms)

static void expect_odd(struct tk *t, symmem_status expected, symmem_status status,
                       const char *operation) {
    TK_SAYS(t, "77");
    expect_record(t, expected, status, operation);
}

/* In a context of its own, whose backend is the odd table. */
static void call_odd(struct tk *t, const symmem_backend *table) {
    symmem_context_options options = tk_options(t);
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    void *memory = NULL;
    char byte = 0;
    options.backend = NULL;
    options.store = NULL;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_register_backend(context, table));
    TK_REQUIRE_OK(t, symmem_set_backend(context, table->name));
    TK_OK(t, symmem_group_create(context, "own", NULL, 0, NULL, &group));
    symmem_status status = symmem_alloc(context, 64, -1, NULL, &memory);
    if (status != SYMMEM_OK) {
        expect_odd(t, SYMMEM_BACKEND, status, "alloc");
    } else if ((status = symmem_rendezvous(context, memory, group, LONG_MS, &handle)) !=
               SYMMEM_OK) {
        expect_odd(t, SYMMEM_BACKEND, status, "rendezvous");
    } else {
        expect_odd(t, SYMMEM_BACKEND, symmem_put(handle, 0, 0, &byte, 1, NULL), "put");
        expect_odd(t, SYMMEM_BACKEND, symmem_barrier(handle, 0, LONG_MS, NULL), "barrier");
    }
    symmem_handle_release(handle);
    symmem_context_free(context);
}

TK_TEST(error, unknown_status_is_the_backends, "SM-ERROR-06", .max_ranks = 1) {
    struct counting_store counting = {.inner = t->store};
    symmem_store_ops ops = counting_store_ops;
    flat_backend opens = flat_of(&fake_table_a), allocates = opens, runs = opens, links = opens;
    symmem_store *store = NULL;
    size_t bytes = 0;
    char value;
    opens.open = odd_open;
    call_odd(t, flat_table(&opens));
    allocates.memory_alloc = odd_alloc;
    call_odd(t, flat_table(&allocates));
    links.peers_open = odd_open_peers;
    call_odd(t, flat_table(&links));
    runs.copy = odd_copy;
    runs.barrier = odd_barrier;
    call_odd(t, flat_table(&runs));
    ops.get = odd_get;
    TK_REQUIRE_OK(t, symmem_store_open_custom(&ops, &counting, &store));
    expect_odd(t, SYMMEM_SYSTEM, symmem_store_get(store, "odd", &value, 1, &bytes, LONG_MS),
               "store_get");
    symmem_store_close(store);
}
