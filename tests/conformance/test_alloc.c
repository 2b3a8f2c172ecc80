/* SPDX-License-Identifier: BSD-3-Clause */
/* Symmetric allocations: size, place, content, queries, end. */
#include "case_help.h"
#include "fake_table.h"

static void fill_own(struct tk *t, void *ptr, size_t bytes, uint8_t byte) {
    uint8_t *data = malloc(bytes);
    TK_REQUIRE(t, data != NULL);
    memset(data, byte, bytes);
    TK_OK(t, symmem_copy(t->context, ptr, data, bytes, NULL));
    free(data);
}

static void expect_own(struct tk *t, const void *ptr, size_t bytes, uint8_t byte) {
    uint8_t *data = malloc(bytes);
    size_t wrong = 0;
    TK_REQUIRE(t, data != NULL);
    memset(data, (uint8_t)~byte, bytes);
    TK_OK(t, symmem_copy(t->context, data, ptr, bytes, NULL));
    while (wrong < bytes && data[wrong] == byte)
        wrong++;
    TK_CHECK_MSG(t, wrong == bytes, "byte %zu of %zu is 0x%02x", wrong, bytes,
                 wrong < bytes ? data[wrong] : 0);
    free(data);
}

TK_TEST(alloc, is_local, "SM-ALLOC-01", .ranks = {2, 4}) {
    for (int32_t rank = 0; rank < t->world_size; rank++) {
        if (rank == t->rank) /* the others make no call until it is through */
            TK_OK(t, symmem_free(t->context, tk_alloc(t, 1000)));
        tk_out_of_band_barrier(t);
    }
}

TK_TEST(alloc, memory_is_zero, "SM-ALLOC-02", .max_ranks = 2) {
    static const size_t sizes[] = {1, 255, 4096, 4097, 65536, 1 << 20};
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < TK_COUNT(sizes); i++) {
            void *a = tk_alloc(t, sizes[i]), *b = tk_alloc(t, sizes[i]);
            expect_own(t, a, sizes[i], 0);
            expect_own(t, b, sizes[i], 0);
            fill_own(t, a, sizes[i], 0xA7);
            fill_own(t, b, sizes[i], 0xFF);
            expect_own(t, a, sizes[i], 0xA7); /* two allocations are two */
            TK_OK(t, symmem_free(t->context, a));
            TK_OK(t, symmem_free(t->context, b));
        }
}

TK_TEST(alloc, every_size_is_aligned, "SM-ALLOC-03", .max_ranks = 1) {
    static const size_t sizes[] = {511, 513, 4095, 4097, 65537, 1000003};
    for (size_t i = 1; i <= 257 + TK_COUNT(sizes); i++) {
        size_t bytes = i <= 257 ? i : sizes[i - 258];
        void *ptr = tk_alloc(t, bytes);
        TK_CHECK_MSG(t, (uintptr_t)ptr % SYMMEM_ALIGNMENT == 0, "%zu bytes at %p", bytes, ptr);
        if (i % 3 != 0)
            TK_OK(t, symmem_free(t->context, ptr)); /* the others crowd the place */
    }
}

TK_TEST(alloc, impossible_sizes, "SM-ALLOC-04,SM-ERROR-04", .max_ranks = 2) {
    static const size_t wrapping[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 100};
    const size_t too_much = (size_t)1 << 46;
    void *const untouched = t;
    void *ptr = untouched;
    TK_REQ(t, "SM-ALLOC-04");
    TK_FAILS(t, INVALID_ARGUMENT, symmem_alloc(t->context, 0, -1, NULL, &ptr));
    for (size_t i = 0; i < 3; i++)
        TK_FAILS(t, OVERFLOW, symmem_alloc(t->context, wrapping[i], -1, NULL, &ptr));
    TK_FAILS(t, NO_SPACE, symmem_alloc(t->context, too_much, -1, NULL, &ptr));
    symmem_error_record record = last_record();
    TK_EQ_SIZE(t, too_much, record.expected);
    TK_EQ_PTR(t, untouched, ptr);
    ptr = tk_alloc(t, 100);
    expect_own(t, ptr, 100, 0);
    TK_OK(t, symmem_free(t->context, ptr));
}

TK_TEST(alloc, sizes_and_bases, "SM-ALLOC-05", .max_ranks = 2) {
    static const size_t sizes[] = {1, 3, 1000, 4096, 70001};
    for (size_t i = 0; i < TK_COUNT(sizes); i++) {
        const size_t size = sizes[i], places[] = {0, size / 3, size / 2, size - 1};
        char *base = tk_alloc(t, size);
        for (size_t k = 0; k < 4; k++) {
            symmem_alloc_info info = {0};
            size_t bytes = 0;
            TK_OK(t, symmem_alloc_size(t->context, base + places[k], &bytes));
            TK_EQ_SIZE(t, size, bytes);
            TK_OK(t, symmem_alloc_query(t->context, base + places[k], &info));
            TK_EQ_PTR(t, base, info.base);
            TK_EQ_SIZE(t, size, info.bytes);
            TK_EQ_INT(t, 0, info.is_pool_block);
            TK_EQ_SIZE(t, 0, info.alloc_id);
        }
        TK_OK(t, symmem_free(t->context, base));
    }
}

/* Many allocations that come and go in any order: each is found as long as it is there. */
TK_TEST(alloc, found_among_many, "SM-ALLOC-06", .max_ranks = 2) {
    enum { MANY = 60, BYTES = 100 };
    char *there[MANY] = {NULL};
    for (int step = 0; step < 4 * MANY && !tk_failed(t); step++) {
        size_t i = (size_t)tk_random_below(t, MANY);
        if (there[i] != NULL) {
            tk_free(t, there[i]);
            there[i] = NULL;
        } else {
            there[i] = tk_alloc(t, BYTES);
        }
        size_t other = (size_t)tk_random_below(t, MANY);
        for (size_t k = other; k < MANY && k < other + 5; k++)
            if (there[k] != NULL)
                TK_CHECK(t, is_symmetric(t, there[k]) && is_symmetric(t, there[k] + BYTES - 1) &&
                                !is_symmetric(t, there[k] + BYTES) &&
                                !is_symmetric(t, there[k] - 1));
    }
}

TK_TEST(alloc, what_is_symmetric, "SM-ALLOC-06,SM-ERROR-04", .max_ranks = 2) {
    static const size_t sizes[] = {1, 1000, 4096, 4096 * 3 + 1};
    char on_stack[64] = "", *on_heap = malloc(4096);
    TK_REQ(t, "SM-ALLOC-06");
    TK_REQUIRE(t, on_heap != NULL);
    for (size_t i = 0; i < TK_COUNT(sizes); i++) {
        char *ptr = tk_alloc(t, sizes[i]);
        size_t bytes = 77;
        TK_CHECK(t, is_symmetric(t, ptr));
        TK_CHECK(t, is_symmetric(t, ptr + sizes[i] - 1));
        TK_CHECK_MSG(t, !is_symmetric(t, ptr + sizes[i]), "one past %zu bytes", sizes[i]);
        TK_CHECK(t, !is_symmetric(t, ptr - 1));
        TK_FAILS(t, NOT_SYMMETRIC, symmem_alloc_size(t->context, ptr + sizes[i], &bytes));
        TK_EQ_SIZE(t, 77, bytes);
        TK_OK(t, symmem_free(t->context, ptr));
        TK_CHECK(t, !is_symmetric(t, ptr));
        TK_CHECK(t, !is_symmetric(t, ptr + sizes[i] - 1));
        TK_FAILS(t, NOT_SYMMETRIC, symmem_alloc_size(t->context, ptr, &bytes));
    }
    TK_CHECK(t, !is_symmetric(t, NULL));
    TK_CHECK(t, !is_symmetric(t, on_stack));
    TK_CHECK(t, !is_symmetric(t, on_heap));
    TK_CHECK(t, !is_symmetric(t, (void *)UINTPTR_MAX));
    free(on_heap);
}

TK_PORTED(test_is_symm_mem_tensor, "SM-ALLOC-06", .max_ranks = 4) {
    float *ordinary = malloc(1024 * sizeof(float));
    TK_REQUIRE(t, ordinary != NULL);
    TK_CHECK(t, !is_symmetric(t, ordinary));
    TK_CHECK(t, is_symmetric(t, tk_alloc(t, 1024 * sizeof(float))));
    free(ordinary);
}

TK_TEST(alloc, free_takes_the_base, "SM-ALLOC-07", .max_ranks = 2) {
    char *ptr = tk_alloc(t, 1000), *other = tk_alloc(t, 1000), on_stack[64] = "";
    TK_FAILS(t, INVALID_ARGUMENT, symmem_free(t->context, ptr + 1));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_free(t->context, ptr + 999));
    TK_FAILS(t, NOT_SYMMETRIC, symmem_free(t->context, ptr + 1000));
    TK_FAILS(t, NOT_SYMMETRIC, symmem_free(t->context, on_stack));
    TK_OK(t, symmem_free(t->context, NULL));
    TK_CHECK(t, is_symmetric(t, ptr)); /* still there */
    TK_OK(t, symmem_free(t->context, ptr));
    TK_FAILS(t, NOT_SYMMETRIC, symmem_free(t->context, ptr));
    TK_FAILS(t, NOT_SYMMETRIC, symmem_free(t->context, ptr + 1));
    TK_CHECK(t, is_symmetric(t, other));
    TK_OK(t, symmem_free(t->context, other));
}

/* Each place gets a byte of its own; all are looked at after all were written. */
static void touch(struct tk *t, char *ptr, const size_t *places, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint8_t byte = 0xCC;
        TK_OK(t, symmem_copy(t->context, &byte, ptr + places[i], 1, NULL));
        TK_CHECK_MSG(t, byte == 0, "byte at %zu is 0x%02x", places[i], byte);
    }
    for (size_t i = 0; i < count; i++) {
        uint8_t byte = (uint8_t)(i + 1);
        TK_OK(t, symmem_copy(t->context, ptr + places[i], &byte, 1, NULL));
    }
    for (size_t i = 0; i < count; i++) {
        uint8_t byte = 0;
        TK_OK(t, symmem_copy(t->context, &byte, ptr + places[i], 1, NULL));
        TK_CHECK_MSG(t, byte == i + 1, "byte at %zu is %d, not %zu", places[i], byte, i + 1);
    }
}

/* One rank at a time, so that the machine needs this memory once only. */
static void large(struct tk *t, size_t bytes, const size_t *places, size_t count) {
    for (int32_t rank = 0; rank < t->world_size; rank++) {
        void *ptr = NULL;
        size_t found = 0;
        symmem_status status = SYMMEM_OK;
        if (rank == t->rank)
            status = symmem_alloc(t->context, bytes, -1, NULL, &ptr);
        if (status == SYMMEM_NO_SPACE || status == SYMMEM_OUT_OF_MEMORY) {
            tk_unresolved(t, "no %zu bytes of memory", bytes);
        } else if (rank == t->rank && TK_OK(t, status)) {
            TK_OK(t, symmem_alloc_size(t->context, (char *)ptr + (bytes - 1), &found));
            TK_EQ_SIZE(t, bytes, found);
            touch(t, ptr, places, count);
            TK_CHECK(t, !is_symmetric(t, (char *)ptr + bytes));
            TK_OK(t, symmem_free(t->context, ptr));
        }
        tk_out_of_band_barrier(t);
    }
}

TK_PORTED(test_large_alloc, "SM-ALLOC-08", .max_ranks = 2, .flags = TK_LARGE, .timeout_s = 60) {
    const size_t bytes = (size_t)1 << 31, places[] = {0, 1, bytes / 2, bytes - 1};
    large(t, bytes, places, 4);
}

TK_TEST(alloc, past_four_gib, "SM-ALLOC-08", .max_ranks = 1, .flags = TK_LARGE, .timeout_s = 60) {
    const size_t half = (size_t)1 << 31, four = (size_t)1 << 32, bytes = four + 4096 + 1;
    const size_t places[] = {0,        1,        4096, half - 1, half,
                             half + 1, four - 1, four, four + 1, bytes - 1};
    large(t, bytes, places, TK_COUNT(places));
}

static size_t pad_size(struct tk *t) {
    size_t bytes = 0;
    TK_OK(t, symmem_get_signal_pad_size(t->context, &bytes));
    return bytes;
}

TK_PORTED(test_get_signal_pad_size, "SM-ALLOC-10", .max_ranks = 4) {
    TK_EQ_SIZE(t, SYMMEM_DEFAULT_SIGNAL_PAD_SIZE, pad_size(t));
    TK_EQ_SIZE(t, pad_size(t), memory_info(t, tk_alloc(t, 64)).signal_pad_size);
}

TK_PORTED(test_set_signal_pad_size, "SM-ALLOC-10", .max_ranks = 4) {
    static const size_t accepted[] = {1 << 20, 4, 8, 9220, (size_t)1 << 30};
    static const size_t misaligned[] = {1, 2, 3, 5, 9217, (1 << 20) + 2};
    static const size_t too_large[] = {((size_t)1 << 30) + 4, (size_t)1 << 40, SIZE_MAX - 3};
    for (size_t i = 0; i < TK_COUNT(accepted); i++) {
        TK_OK(t, symmem_set_signal_pad_size(t->context, accepted[i]));
        TK_EQ_SIZE(t, accepted[i], pad_size(t));
    }
    TK_OK(t, symmem_set_signal_pad_size(t->context, 4096));
    for (size_t i = 0; i < TK_COUNT(misaligned); i++)
        TK_FAILS(t, MISALIGNED, symmem_set_signal_pad_size(t->context, misaligned[i]));
    for (size_t i = 0; i < TK_COUNT(too_large); i++)
        TK_FAILS(t, OUT_OF_RANGE, symmem_set_signal_pad_size(t->context, too_large[i]));
    TK_EQ_SIZE(t, 4096, pad_size(t));
    TK_OK(t, symmem_set_signal_pad_size(t->context, 0));
    TK_EQ_SIZE(t, SYMMEM_DEFAULT_SIGNAL_PAD_SIZE, pad_size(t));
}

TK_PORTED(test_set_signal_pad_size_with_allocation, "SM-ALLOC-10", .max_ranks = 8,
          .flags = TK_WRITES_PADS) {
    const size_t before = pad_size(t), custom = 2 * before;
    void *old_memory = tk_alloc(t, 256), *memory;
    symmem_handle *old_handle = tk_rendezvous(t, old_memory, tk_world_group(t)), *handle;
    symmem_handle_info info = {0};
    DLManagedTensor *pad = NULL;
    uint32_t words[2] = {1, 1};
    TK_OK(t, symmem_set_signal_pad_size(t->context, custom));
    memory = tk_alloc(t, 256);
    TK_EQ_SIZE(t, custom, memory_info(t, memory).signal_pad_size);
    TK_EQ_SIZE(t, before, memory_info(t, old_memory).signal_pad_size); /* later ones only */
    handle = tk_rendezvous(t, memory, tk_world_group(t));
    TK_OK(t, symmem_handle_get_info(handle, &info));
    TK_EQ_SIZE(t, custom, info.signal_pad_size);
    TK_REQUIRE_OK(t, symmem_get_signal_pad(handle, info.rank, 0, NULL, SYMMEM_UINT32, 0, &pad));
    TK_EQ_INT(t, custom / 4, pad->dl_tensor.shape[0]);
    TK_OK(t, symmem_memset32(t->context, &pad->dl_tensor, 0, 0, (int64_t)(custom / 4), NULL));
    TK_OK(t, symmem_memset32(t->context, &pad->dl_tensor, 0, 42, 1, NULL));
    TK_OK(t, symmem_memset32(t->context, &pad->dl_tensor, (int64_t)(custom / 4) - 1, 43, 1, NULL));
    TK_OK(t, symmem_copy(t->context, &words[0], pad->dl_tensor.data, 4, NULL));
    TK_OK(t, symmem_copy(t->context, &words[1], (char *)pad->dl_tensor.data + custom - 4, 4, NULL));
    TK_CHECK(t, words[0] == 42 && words[1] == 43);
    pad->deleter(pad);
    TK_OK(t, symmem_handle_get_info(old_handle, &info));
    TK_EQ_SIZE(t, before, info.signal_pad_size);
    TK_OK(t, symmem_set_signal_pad_size(t->context, 0));
    TK_EQ_SIZE(t, SYMMEM_DEFAULT_SIGNAL_PAD_SIZE, memory_info(t, tk_alloc(t, 256)).signal_pad_size);
}

TK_TEST(alloc, ordinals_count_allocations, "SM-ALLOC-11", .max_ranks = 2) {
    void *first = tk_alloc(t, 64), *second, *third, *failed = NULL;
    TK_EQ_SIZE(t, 1, memory_info(t, first).ordinal);
    second = tk_alloc(t, 4096);
    TK_EQ_SIZE(t, 2, memory_info(t, second).ordinal);
    TK_OK(t, symmem_free(t->context, second));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_alloc(t->context, 0, -1, NULL, &failed));
    third = tk_alloc(t, 4096); /* perhaps at the second one's address */
    TK_EQ_SIZE(t, 3, memory_info(t, third).ordinal);
    TK_EQ_SIZE(t, 1, memory_info(t, first).ordinal);
}

/* --- Allocations and streams: pending work, captures ------------------------------------------ */

struct slow_work {
    atomic_int done;
};

static void work_slowly(void *arg) {
    struct slow_work *work = arg;
    tk_sleep_ms(120);
    atomic_store(&work->done, 1);
}

TK_TEST(alloc_stream, free_waits_for_work, "SM-ALLOC-12",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_FN, .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    symmem_stream *busy = tk_stream(t), *idle = tk_stream(t);
    struct slow_work work = {0};
    void *memory = tk_alloc(t, 4096);
    tk_fill(t, handle, t->rank, 0, 4096, 0x66);
    TK_OK(t, symmem_stream_host_fn(busy, work_slowly, &work));
    TK_OK(t, symmem_put(handle, t->rank, 0, memory, 4096, busy)); /* reads the memory */
    tk_free(t, memory);
    TK_CHECK_MSG(t, atomic_load(&work.done) == 1,
                 "symmem_free did not wait for the stream's work (by device_synchronize)");
    tk_synchronize(t, busy);
    tk_synchronize(t, idle);
    tk_expect_bytes(t, handle, t->rank, 0, 4096, 0);
}

TK_TEST(alloc_stream, capture_forbids_allocating, "SM-ALLOC-09,SM-ERROR-04",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    void *const untouched = t;
    void *memory = untouched;
    void *source = tk_alloc(t, 256);
    uint8_t one = 1;
    TK_REQ(t, "SM-ALLOC-09");
    TK_OK(t, symmem_copy(t->context, source, &one, 1, NULL));
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_FAILS(t, CAPTURE, symmem_alloc(t->context, 256, -1, NULL, &memory));
    TK_EQ_PTR(t, untouched, memory);
    TK_OK(t, symmem_put(handle, t->rank, 7, source, 1, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    tk_expect_bytes(t, handle, t->rank, 0, 256, 0);
    TK_OK(t, symmem_graph_launch(graph, stream)); /* the capture was not spoilt */
    tk_synchronize(t, stream);
    tk_expect_bytes(t, handle, t->rank, 7, 1, 1);
    TK_OK(t, symmem_alloc(t->context, 256, -1, NULL, &memory)); /* and it is over */
    TK_OK(t, symmem_free(t->context, memory));
}

/* How long an allocation waits for the device. The device is the suite's own, for those of backends
 * cannot be held up at will; and it says at once how long it would take. */

#define LEAST_MS 1000u /* of the limit, whatever the context's */
#define BEYOND_MS 10000u

static uint32_t needs_ms; /* to come to the zeroing */
static int held;          /* memory that was not released */
static bool is_open;

static symmem_status late_open(const symmem_host *host, const symmem_backend_config *config,
                               void **instance_p) {
    is_open = true;
    *instance_p = (void *)(uintptr_t)host;
    return SYMMEM_OK;
}

static void late_close(void *instance) {
    is_open = false;
}

/* In time to the very end of the limit: it counts from the question, that is, from now or later. */
static symmem_status late_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory) {
    const symmem_host *host = instance;
    const uint64_t ready_ns = (tk_now_ms() + needs_ms) * 1000000u;
    const uint64_t deadline_ns = host->deadline_ns(host);
    if (deadline_ns != 0 && ready_ns > deadline_ns)
        return host->fail(host, SYMMEM_TIMEOUT, 0, "zeroing", "the device does not come to it");
    symmem_status status = fake_table_a.memory->alloc(instance, device, bytes, memory);
    held += status == SYMMEM_OK;
    return status;
}

static void late_release(void *instance, symmem_memory *memory) {
    held--;
    fake_table_a.memory->release(instance, memory);
}

/* A new context on it with this default limit. */
static void begin(struct tk *t, uint32_t default_ms) {
    static flat_backend table; /* outlives the context */
    TK_REINIT(t, options.default_timeout_ms = default_ms);
    table = flat_of(&fake_table_a);
    table.head.name = "suite_late";
    table.head.flags |= SYMMEM_CAP_POOL;
    table.open = late_open;
    table.close = late_close;
    table.memory_alloc = late_alloc;
    table.memory_release = late_release;
    use_table(t, flat_table(&table));
    needs_ms = 0;
    held = 0;
}

static void check_limit(struct tk *t, uint32_t default_ms, uint32_t limit_ms) {
    void *memory = NULL;
    tk_checkpoint(t, "the default is %u ms", default_ms);
    begin(t, default_ms);
    needs_ms = limit_ms;
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 64, -1, NULL, &memory));
    TK_OK(t, symmem_free(t->context, memory));
    needs_ms = limit_ms + BEYOND_MS;
    TK_FAILS(t, TIMEOUT, symmem_alloc(t->context, 64, -1, NULL, &memory));
}

TK_TEST(alloc, has_a_limit, "SM-ALLOC-16", TK_ON_FAKES) {
    check_limit(t, 20, LEAST_MS);
    check_limit(t, LEAST_MS, LEAST_MS);
    check_limit(t, 3000, 3000);
    check_limit(t, 0, 30000); /* the context's own default */
}

/* Refused, with a record and without an output. */
static void refuse(struct tk *t, const symmem_alloc_options *options) {
    void *const untouched = t;
    void *memory = untouched;
    symmem_clear_error();
    needs_ms = LEAST_MS + BEYOND_MS;
    TK_FAILS(t, TIMEOUT, symmem_alloc(t->context, 4096, -1, options, &memory));
    symmem_error_record record = last_record();
    TK_EQ_INT(t, SYMMEM_TIMEOUT, record.status);
    TK_EQ_STR(t, "alloc", record.operation);
    TK_CHECK(t, record.message[0] != '\0');
    TK_EQ_INT(t, 0, record.missing_count); /* no other rank is waited for */
    TK_EQ_PTR(t, untouched, memory);
    TK_CHECK(t, !is_symmetric(t, memory));
    needs_ms = 0;
}

static void *allocate(struct tk *t, size_t bytes, const symmem_alloc_options *options) {
    void *memory = NULL;
    TK_REQUIRE_OK(t, symmem_alloc(t->context, bytes, -1, options, &memory));
    return memory;
}

TK_TEST(alloc, late_leaves_nothing, "SM-ALLOC-16,SM-ERROR-04", TK_ON_FAKES) {
    symmem_alloc_options persistent;
    char bytes[64], zeroes[64] = {0};
    TK_REQ(t, "SM-ALLOC-16");
    symmem_alloc_options_init(&persistent);
    persistent.alloc_id = 7;
    begin(t, LEAST_MS);
    refuse(t, NULL); /* also as the first use of the backend */
    void *first = allocate(t, 64, NULL);
    TK_EQ_INT(t, 1, memory_info(t, first).ordinal);
    refuse(t, NULL);
    refuse(t, &persistent);
    TK_EQ_INT(t, 1, held);
    /* As if nothing had been: the id goes with another size. */
    void *second = allocate(t, 64, &persistent);
    TK_EQ_INT(t, 2, memory_info(t, second).ordinal);
    TK_OK(t, symmem_copy(t->context, bytes, second, sizeof(bytes), NULL));
    TK_CHECK(t, memcmp(bytes, zeroes, sizeof(bytes)) == 0);
    TK_OK(t, symmem_free(t->context, second));
    TK_OK(t, symmem_free(t->context, first));
    tk_end_context(t);
    TK_EQ_INT(t, 0, held);
    TK_CHECK(t, !is_open);
}

/* A block of a segment that is there waits for nothing. */
TK_TEST(alloc, segment_has_a_limit, "SM-ALLOC-16", TK_ON_FAKES) {
    void *const untouched = t;
    void *first = NULL, *second = untouched;
    symmem_pool *pool = NULL;
    begin(t, LEAST_MS);
    TK_REQUIRE_OK(t, symmem_pool_create(t->context, -1, 4096, &pool));
    needs_ms = LEAST_MS + BEYOND_MS;
    TK_FAILS(t, TIMEOUT, symmem_pool_alloc(pool, 64, &second));
    TK_EQ_PTR(t, untouched, second);
    TK_EQ_INT(t, 0, held);
    needs_ms = LEAST_MS;
    TK_REQUIRE_OK(t, symmem_pool_alloc(pool, 64, &first));
    needs_ms = LEAST_MS + BEYOND_MS;
    TK_OK(t, symmem_pool_alloc(pool, 64, &second));
    TK_EQ_INT(t, 1, held);
    TK_OK(t, symmem_pool_free(pool, second));
    TK_OK(t, symmem_pool_free(pool, first));
    TK_OK(t, symmem_pool_destroy(pool));
    TK_EQ_INT(t, 0, held);
    tk_end_context(t);
}
