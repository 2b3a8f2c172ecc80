/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engines that start on all ranks together: joining, and the heap that all memory is cut from. On
 * the backend under test if it is one of these, else on the suite's own engine.
 */
#include "backend_table.h"
#include "case_help.h"
#include "counting_store.h"
#include "fake_table.h"

#define MIB ((size_t)1 << 20)
#define HEAP (16 * MIB) /* with room for the signal state of what is rendezvoused at a time */
#define ON_ENGINE TK_NO_BACKEND | TK_NOT_JOINED

static symmem_status join(struct tk *t, size_t heap_bytes, uint32_t limit_ms) {
    const symmem_join_options options = {.size = sizeof(options), .heap_bytes = heap_bytes};
    return symmem_join(t->context, &options, limit_ms);
}

static void join_all(struct tk *t, size_t heap_bytes) {
    use_engine(t);
    TK_REQUIRE_OK(t, join(t, heap_bytes, LONG_MS));
}

/* Rank 0 alone, on a store that counts. */
TK_TEST(world, needs_none, "SM-WORLD-01", .flags = TK_NO_BACKEND) {
    if (t->rank == 0) {
        struct counting_store *counting = counting_store_begin(t->store);
        symmem_store *store = NULL;
        TK_REQUIRE_OK(t, symmem_store_open_custom(&counting_store_ops, counting, &store));
        TK_REINIT(t, options.store = store);
        TK_FAILS(t, NOT_FOUND, symmem_join(t->context, NULL, 1000));
        TK_REQUIRE_OK(t, symmem_register_backend(t->context, &fake_table_a));
        TK_REQUIRE_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
        int before = counting_store_calls(counting);
        TK_OK(t, symmem_join(t->context, NULL, 1000));
        TK_OK(t, join(t, MIB, 1000));
        TK_EQ_INT(t, before, counting_store_calls(counting));
        tk_end_context(t);
        symmem_store_close(store);
    }
    tk_out_of_band_barrier(t);
}

TK_TEST(world, memory_comes_after, "SM-WORLD-02", .min_ranks = 2, .flags = ON_ENGINE) {
    void *memory = NULL;
    use_engine(t);
    TK_FAILS(t, NOT_INITIALIZED, symmem_alloc(t->context, 64, -1, NULL, &memory));
    TK_SAYS(t, "symmem_join");
    TK_EQ_PTR(t, NULL, memory);
    tk_out_of_band_barrier(t);
    TK_REQUIRE_OK(t, symmem_join(t->context, NULL, LONG_MS));
    TK_OK(t, symmem_alloc(t->context, 64, -1, NULL, &memory));
    TK_OK(t, symmem_free(t->context, memory));
}

TK_TEST(world, of_one_joins_by_itself, "SM-WORLD-02", .max_ranks = 1, .flags = ON_ENGINE) {
    use_engine(t);
    ring_signal(t, tk_handle(t, 64, tk_world_group(t)), 0);
}

static void move_in(struct tk *t, symmem_group *group, const struct tk_shape *shape, void *none) {
    (void)shape;
    (void)none;
    int32_t rank, ranks;
    TK_REQUIRE_OK(t, symmem_group_rank(group, &rank));
    TK_REQUIRE_OK(t, symmem_group_world_size(group, &ranks));
    symmem_handle *handle = tk_handle(t, 256, group);
    uint8_t out = (uint8_t)(17 + rank), in = 0;
    TK_OK(t, symmem_put(handle, (rank + 1) % ranks, 5, &out, 1, NULL));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_OK(t, symmem_get(handle, rank, 5, &in, 1, NULL));
    TK_EQ_INT(t, 17 + (rank + ranks - 1) % ranks, in);
}

/* Each rank's heap is cut differently by then. */
TK_TEST(world, allocation_is_local, "SM-WORLD-03", .flags = ON_ENGINE) {
    void *blocks[8];
    join_all(t, 16 * MIB);
    for (int i = 0; t->rank == 0 && i < 8; i++)
        TK_REQUIRE_OK(t, symmem_alloc(t->context, 1000 * (size_t)(i + 1), -1, NULL, &blocks[i]));
    for (int i = 1; t->rank == 0 && i < 8; i += 2)
        TK_OK(t, symmem_free(t->context, blocks[i]));
    tk_out_of_band_barrier(t);
    tk_for_each_group_shape(t, move_in, NULL);
    for (int i = 0; t->rank == 0 && i < 8; i += 2)
        TK_OK(t, symmem_free(t->context, blocks[i]));
}

TK_TEST(world, heap_that_is_full, "SM-WORLD-04", .max_ranks = 2, .flags = ON_ENGINE) {
    void *first = NULL, *second = NULL, *third = NULL;
    join_all(t, 4 * MIB);
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 1 * MIB, -1, NULL, &first));
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 2 * MIB, -1, NULL, &second));
    TK_FAILS(t, NO_SPACE, symmem_alloc(t->context, 2 * MIB, -1, NULL, &third));
    const symmem_error_record record = last_record();
    TK_EQ_SIZE(t, 2 * MIB, record.expected);
    TK_EQ_SIZE(t, 1 * MIB, record.actual);
    TK_SAYS(t, "4194304");
    TK_OK(t, symmem_free(t->context, second));
    TK_OK(t, symmem_alloc(t->context, 2 * MIB, -1, NULL, &third));
    TK_OK(t, symmem_free(t->context, first));
    TK_OK(t, symmem_free(t->context, third));
    TK_OK(t, symmem_alloc(t->context, 4 * MIB, -1, NULL, &third)); /* in one piece again */
    TK_OK(t, symmem_free(t->context, third));
}

TK_TEST(world, heaps_that_differ, "SM-WORLD-05", .min_ranks = 2, .flags = ON_ENGINE) {
    const size_t own = t->rank == t->last ? 2 * MIB : 1 * MIB;
    use_engine(t);
    tk_out_of_band_barrier(t);
    const uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, MISMATCH, join(t, own, LONG_MS));
    TK_WITHIN(t, 1000, begin_ms);
    const symmem_error_record record = last_record();
    TK_EQ_INT(t, t->last, record.failed_rank);
    TK_EQ_SIZE(t, 1 * MIB, record.expected);
    TK_EQ_SIZE(t, 2 * MIB, record.actual);
    tk_out_of_band_barrier(t);
    TK_REQUIRE_OK(t, join(t, 2 * MIB, LONG_MS));
    ring_signal(t, tk_handle(t, 64, tk_world_group(t)), 0);
}

TK_TEST(world, one_does_not_come, "SM-WORLD-06", .min_ranks = 2, .flags = ON_ENGINE) {
    use_engine(t);
    tk_out_of_band_barrier(t);
    if (t->rank != t->last) {
        TK_FAILS(t, TIMEOUT, join(t, 0, tk_limit_ms(t, 300)));
        const symmem_error_record record = last_record();
        TK_EQ_INT(t, 1, record.missing_count);
        TK_CHECK(t, symmem_error_is_missing(&record, t->last));
        TK_EQ_STR(t, "join", record.operation);
    }
    tk_out_of_band_barrier(t);
    TK_REQUIRE_OK(t, join(t, 0, LONG_MS));
    ring_signal(t, tk_handle(t, 64, tk_world_group(t)), 0);
}

TK_TEST(world, joined_twice, "SM-WORLD-07", .flags = ON_ENGINE) {
    join_all(t, 2 * MIB);
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        TK_OK(t, symmem_join(t->context, NULL, 1000));
        TK_OK(t, join(t, 2 * MIB, 1000));
        TK_FAILS(t, EXISTS, join(t, 4 * MIB, 1000));
        TK_EQ_SIZE(t, 2 * MIB, last_record().expected);
        TK_EQ_SIZE(t, 4 * MIB, last_record().actual);
        const symmem_join_options cut = {.size = sizeof(size_t)};
        TK_FAILS(t, INVALID_ARGUMENT, symmem_join(t->context, &cut, 1000));
        TK_FAILS(t, OVERFLOW, join(t, SIZE_MAX, 1000));
    }
    tk_out_of_band_barrier(t);
    ring_signal(t, tk_handle(t, 64, tk_world_group(t)), 0);
}

/* Rank 0 frees what the last rank still has a handle for, and takes all of the heap that it can
 * get: what the last rank writes then may not be in any of that. */
TK_TEST(world, freed_memory_stays_a_peers, "SM-WORLD-08", .min_ranks = 2, .flags = ON_ENGINE) {
    const size_t bytes = 1 * MIB;
    uint8_t byte = 0xEE, all[64];
    void *memory = NULL, *other = NULL;
    join_all(t, HEAP);
    symmem_group *group = tk_world_group(t);
    TK_REQUIRE_OK(t, symmem_alloc(t->context, bytes, -1, NULL, &memory));
    symmem_handle *handle = tk_rendezvous(t, memory, group);
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        tk_release(t, handle);
        TK_OK(t, symmem_free(t->context, memory));
    }
    for (size_t size = bytes; t->rank == 0 && size >= 64 * 1024; size /= 2)
        while (symmem_alloc(t->context, size, -1, NULL, &other) == SYMMEM_OK)
            continue;
    tk_out_of_band_barrier(t);
    for (size_t at = 0; t->rank == t->last && at < bytes; at += 4096)
        TK_REQUIRE_OK(t, symmem_put(handle, 0, at, &byte, 1, NULL));
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        TK_FAILS(t, NO_SPACE, symmem_alloc(t->context, bytes, -1, NULL, &memory));
        for (size_t at = 0; at + sizeof(all) <= 64 * 1024; at += 4096) {
            TK_REQUIRE_OK(t, symmem_copy(t->context, all, (char *)other + at, sizeof(all), NULL));
            EXPECT_ALL(t, all, 0);
        }
    }
    tk_out_of_band_barrier(t);
    if (t->rank != 0) {
        tk_release(t, handle);
        TK_OK(t, symmem_free(t->context, memory));
    }
    tk_out_of_band_barrier(t);
    /* That a peer has let go is a word of its own, which may be under way. */
    symmem_status status = SYMMEM_NO_SPACE;
    for (uint64_t begin_ms = tk_now_ms();
         t->rank == 0 && status == SYMMEM_NO_SPACE && tk_now_ms() < begin_ms + LONG_MS;) {
        TK_REQUIRE_OK(t, symmem_progress(t->context));
        status = symmem_alloc(t->context, bytes, -1, NULL, &memory);
    }
    TK_CHECK(t, t->rank != 0 || status == SYMMEM_OK);
    tk_out_of_band_barrier(t);
}

/* Many times what the heap holds. */
TK_TEST(world, heap_is_used_again, "SM-WORLD-08", .flags = ON_ENGINE) {
    join_all(t, HEAP);
    symmem_group *group = tk_world_group(t);
    for (int i = 0; i < 40; i++) {
        void *memory = tk_alloc(t, 1 * MIB);
        symmem_handle *handle = tk_rendezvous(t, memory, group);
        tk_expect_bytes(t, handle, t->rank, 1 * MIB - 64, 64, 0);
        tk_out_of_band_barrier(t);
        ring_signal(t, handle, 0);
        tk_fill(t, handle, t->next, 1 * MIB - 64, 64, 0xEE);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        tk_release(t, handle);
        tk_free(t, memory);
        tk_out_of_band_barrier(t);
    }
}

TK_TEST(world, second_context, "SM-WORLD-09", .flags = ON_ENGINE) {
    char path[4096];
    symmem_store *store = NULL;
    symmem_context *first = t->context, *second = NULL;
    symmem_context_options options = tk_options(t);
    join_all(t, 4 * MIB);
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    snprintf(path, sizeof(path), "%s/second", t->scratch_dir);
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &store));
    options.store = store;
    TK_REQUIRE_OK(t, symmem_init(&options, &second));
    t->context = second;
    use_engine(t);
    symmem_status status = join(t, 4 * MIB, LONG_MS);
    TK_CHECK(t, status == SYMMEM_OK || status == SYMMEM_BUSY || status == SYMMEM_BACKEND);
    tk_share_u64(t, 0, (uint64_t)status);
    tk_out_of_band_barrier(t);
    TK_EQ_INT(t, (int64_t)tk_read_u64(t, 0, 0), (int64_t)status);
    if (status == SYMMEM_OK) {
        void *memory = NULL;
        TK_OK(t, symmem_alloc(second, 3 * MIB, -1, NULL, &memory));
    }
    t->context = first;
    ring_signal(t, handle, 0);
    symmem_context_free(second);
    symmem_store_close(store);
    tk_out_of_band_barrier(t);
    ring_signal(t, handle, 1);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* --- an engine that does not start ---------------------------------------------------------- */

static _Thread_local bool refuses;
static _Thread_local int opened, closed;
static void change_entries(flat_backend *table);
static struct table_twin twin = {.name = "suite_refusing", .change = change_entries};

static symmem_status open_or_refuse(void *instance, const symmem_exchange *exchange,
                                    const symmem_world_config *config, symmem_memory *heap) {
    symmem_status status = twin.real->world->open(instance, exchange, config, heap);
    if (status == SYMMEM_OK && refuses) {
        twin.real->world->close(instance, heap);
        return SYMMEM_LIMIT;
    }
    opened += status == SYMMEM_OK;
    return status;
}

static void count_close(void *instance, symmem_memory *heap) {
    closed++;
    twin.real->world->close(instance, heap);
}

static void change_entries(flat_backend *table) {
    table->world_open = open_or_refuse;
    table->world_close = count_close;
}

TK_TEST(world, one_cannot_start, "SM-WORLD-10", .min_ranks = 2, .flags = ON_ENGINE) {
    use_engine_twin(t, &twin);
    opened = closed = 0;
    refuses = t->rank == t->last;
    TK_FAILS(t, LIMIT, join(t, 2 * MIB, LONG_MS));
    TK_EQ_INT(t, t->last, last_record().failed_rank);
    TK_EQ_INT(t, opened, closed);
    TK_EQ_INT(t, t->rank != t->last, opened);
    refuses = false;
    tk_out_of_band_barrier(t);
    TK_REQUIRE_OK(t, join(t, 2 * MIB, LONG_MS));
    ring_signal(t, tk_handle(t, 64, tk_world_group(t)), 0);
    tk_end_context(t);
    TK_EQ_INT(t, opened, closed);
}

TK_TEST(world, one_ends, "SM-WORLD-10", .min_ranks = 2,
        .flags = ON_ENGINE | TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK) {
    use_engine(t);
    tk_group_barrier(t, tk_world_group(t));
    tk_expect_death(t, t->last);
    tk_out_of_band_barrier(t);
    if (t->rank == t->last)
        tk_kill_self(t);
    const uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, PEER_LOST, join(t, 0, 0));
    tk_expect_prompt(t, t->last, begin_ms, tk_now_ms());
    const symmem_error_record record = last_record();
    TK_CHECK(t, record.failed_rank == t->last || symmem_error_is_missing(&record, t->last));
}

/* --- heaps that are larger than what was asked for ------------------------------------------ */

static void open_more(flat_backend *table);
static struct table_twin generous = {.name = "suite_generous", .change = open_more};

/* Rank 0's heap is twice what the ranks agreed on, as an engine may round up. */
static symmem_status open_twice_as_much(void *instance, const symmem_exchange *exchange,
                                        const symmem_world_config *config, symmem_memory *heap) {
    symmem_world_config more = *config;
    more.heap_bytes *= 2;
    symmem_status status = generous.real->world->open(instance, exchange, &more, heap);
    if (status == SYMMEM_OK && config->rank != 0)
        heap->bytes = config->heap_bytes;
    return status;
}

static void open_more(flat_backend *table) {
    table->world_open = open_twice_as_much;
}

TK_TEST(world, heap_larger_than_asked_for, "SM-WORLD-07,SM-WORLD-03", .flags = ON_ENGINE) {
    use_engine_twin(t, &generous);
    TK_REQUIRE_OK(t, join(t, HEAP, LONG_MS));
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        TK_OK(t, join(t, HEAP, 1000));
        TK_FAILS(t, EXISTS, join(t, 2 * HEAP, 1000));
        TK_EQ_SIZE(t, HEAP, last_record().expected);
        void *memory = NULL;
        TK_FAILS(t, NO_SPACE, symmem_alloc(t->context, HEAP + HEAP / 2, -1, NULL, &memory));
    }
    symmem_handle *first = tk_handle(t, MIB, tk_world_group(t));
    ring_signal(t, first, 0);
    ring_signal(t, tk_handle(t, MIB / 2, tk_world_group(t)), 0);
}

/* --- heaps of one device ---------------------------------------------------------------------- */

static void bind_heap(flat_backend *table);
static struct table_twin bound = {.name = "suite_bound", .change = bind_heap};

static symmem_status open_on_device(void *instance, const symmem_exchange *exchange,
                                    const symmem_world_config *config, symmem_memory *heap) {
    symmem_status status = bound.real->world->open(instance, exchange, config, heap);
    if (status == SYMMEM_OK)
        heap->device = config->device;
    return status;
}

static void bind_heap(flat_backend *table) {
    table->world_open = open_on_device;
}

TK_TEST(world, memory_of_another_device, "SM-WORLD-11", .flags = ON_ENGINE) {
    int32_t count = 0;
    void *const untouched = t;
    void *memory = untouched;
    use_engine_twin(t, &bound);
    TK_REQUIRE_OK(t, join(t, 2 * MIB, LONG_MS));
    TK_REQUIRE_OK(t, symmem_device_count(t->context, &count));
    for (int32_t device = 0; device < count; device++) {
        if (device == t->rank % count)
            continue;
        TK_FAILS(t, INVALID_ARGUMENT, symmem_alloc(t->context, 64, device, NULL, &memory));
        TK_EQ_PTR(t, untouched, memory);
    }
    TK_OK(t, symmem_alloc(t->context, 64, t->rank % count, NULL, &memory));
    TK_OK(t, symmem_free(t->context, memory));
}

/* --- the limit of a world of one ---------------------------------------------------------------
 */

#define ALLOC_LEAST_MS 1000u /* of an allocation's limit, whatever the context's */

static void open_when_ready(flat_backend *table);
static struct table_twin late_twin = {.name = "suite_late_engine", .change = open_when_ready};
static const symmem_host *late_host;
static uint32_t heap_ready_ms; /* from now on, until the device comes to the heap */

static symmem_status keep_host(const symmem_host *host, const symmem_backend_config *config,
                               void **instance_p) {
    late_host = host;
    return late_twin.real->instance->open(host, config, instance_p);
}

/* In time to the very end of the limit: it counts from the question, that is, from now or later. */
static symmem_status open_in_time(void *instance, const symmem_exchange *exchange,
                                  const symmem_world_config *config, symmem_memory *heap) {
    const uint64_t ready_ns = (tk_now_ms() + heap_ready_ms) * 1000000u;
    const uint64_t deadline_ns = late_host->deadline_ns(late_host);
    if (deadline_ns != 0 && ready_ns > deadline_ns)
        return late_host->fail(late_host, SYMMEM_TIMEOUT, 0, "heap", "the device is late");
    return late_twin.real->world->open(instance, exchange, config, heap);
}

static void open_when_ready(flat_backend *table) {
    table->open = keep_host;
    table->world_open = open_in_time;
}

/* The device comes to the heap within an allocation, and has an allocation's time for that, however
 * soon the context gives up waits for other ranks. */
TK_TEST(world, of_one_joins_in_an_allocations_time, "SM-WORLD-02,SM-ALLOC-16", .max_ranks = 1,
        .flags = ON_ENGINE) {
    void *memory = NULL;
    TK_REINIT(t, options.default_timeout_ms = 20);
    use_engine_twin(t, &late_twin);
    heap_ready_ms = ALLOC_LEAST_MS + 10000;
    TK_FAILS(t, TIMEOUT, symmem_alloc(t->context, 64, -1, NULL, &memory));
    TK_EQ_PTR(t, NULL, memory);
    heap_ready_ms = ALLOC_LEAST_MS;
    TK_OK(t, symmem_alloc(t->context, 64, -1, NULL, &memory));
    TK_OK(t, symmem_free(t->context, memory));
}

/* --- threads of one rank -------------------------------------------------------------------- */

static void open_slowly(flat_backend *table);
static struct table_twin slow = {.name = "suite_slow_engine", .change = open_slowly};

static symmem_status open_late(void *instance, const symmem_exchange *exchange,
                               const symmem_world_config *config, symmem_memory *heap) {
    tk_sleep_ms(100);
    return slow.real->world->open(instance, exchange, config, heap);
}

static void open_slowly(flat_backend *table) {
    table->world_open = open_late;
}

struct first_alloc {
    struct tk *t;
    void *memory;
};

static void *alloc_first(void *arg) {
    struct first_alloc *own = arg;
    TK_OK(own->t, symmem_alloc(own->t->context, 64, -1, NULL, &own->memory));
    return NULL;
}

TK_TEST(world, of_one_joins_for_all_its_threads, "SM-WORLD-02,SM-THREAD-01", .max_ranks = 1,
        .flags = ON_ENGINE) {
    struct first_alloc both[2] = {{.t = t}, {.t = t}};
    use_engine_twin(t, &slow);
    tk_in_threads(t, alloc_first, both, sizeof(both[0]), 2);
    for (int i = 0; i < 2; i++)
        TK_OK(t, symmem_free(t->context, both[i].memory));
}

/* A thread that stays in its join until the gate is opened. */
struct late_join {
    struct tk *t;
    struct gate gate;
};

static _Thread_local bool is_late;

static symmem_status stay_in_join(void *arg, const char *point) {
    if (is_late && strcmp(point, "group.create") == 0)
        gate_fn(arg);
    return SYMMEM_OK;
}

static void *join_late(void *arg) {
    struct late_join *late = arg;
    is_late = true;
    TK_OK(late->t, join(late->t, 2 * MIB, LONG_MS));
    return NULL;
}

/* However far the first one has come. */
TK_TEST(world, two_threads_join, "SM-WORLD-07", .flags = ON_ENGINE) {
    struct late_join late = {.t = t};
    pthread_t thread;
    TK_REINIT(t, options.point = stay_in_join; options.point_arg = &late.gate);
    use_engine(t);
    if (t->rank == 0) {
        TK_REQUIRE(t, pthread_create(&thread, NULL, join_late, &late) == 0);
        const uint64_t begin_ms = tk_now_ms();
        while (atomic_load(&late.gate.entered) == 0 && tk_now_ms() - begin_ms < LONG_MS)
            tk_sleep_ms(1);
        TK_FAILS(t, BUSY, join(t, 4 * MIB, 1000));
        gate_open(&late.gate);
        TK_EQ_INT(t, 0, pthread_join(thread, NULL));
        TK_FAILS(t, EXISTS, join(t, 4 * MIB, 1000));
    }
    TK_REQUIRE_OK(t, join(t, 2 * MIB, LONG_MS));
    ring_signal(t, tk_handle(t, 64, tk_world_group(t)), 0);
}
