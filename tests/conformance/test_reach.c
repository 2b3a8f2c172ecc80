/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers without pointers: what is NULL, what is refused, and when that which was put is there. On
 * the backend under test where it reaches its peers by rank and offset (the profile one-sided), and
 * in any run on the suite's own engine.
 */
#include <stdatomic.h>

#include "case_help.h"
#include "reach_help.h"

static symmem_handle *begin(struct tk *t, size_t bytes) {
    reach_begin(t);
    return tk_handle(t, bytes, tk_world_group(t));
}

static void pointers_are_null(struct tk *t) {
    symmem_handle *handle = begin(t, 4096);
    void *const *tables[4] = {buffers_of(t, handle), pads_of(t, handle)};
    void *device[2] = {NULL, NULL};
    bool all = true;
    TK_OK(t, symmem_handle_buffer_ptrs_dev(handle, &device[0]));
    TK_OK(t, symmem_handle_signal_pad_ptrs_dev(handle, &device[1]));
    for (int i = 0; i < 2; i++) { /* they may be where the CPU cannot read */
        const size_t bytes = (size_t)t->world_size * sizeof(void *);
        void **found = tk_scratch(t, bytes);
        TK_REQUIRE_OK(t, symmem_copy(t->context, found, device[i], bytes, NULL));
        tables[2 + i] = found;
    }
    for (int i = 0; i < 4; i++)
        for (int32_t r = 0; r < t->world_size; r++) {
            TK_CHECK(t, r != t->rank || tables[i][r] != NULL);
            TK_CHECK(t, (tables[i][r] == NULL) == (tables[0][r] == NULL));
            all = all && tables[i][r] != NULL;
        }
    TK_EQ_INT(t, all, info_of(t, handle).world_within_direct_access);
    TK_CHECK(t, all == (t->world_size == 1) || (t->capabilities & SYMMEM_CAP_REACH) != 0);
}

static void expect_unreachable(struct tk *t, symmem_status status, int32_t rank,
                               const DLManagedTensor *tensor) {
    TK_STATUS(t, SYMMEM_UNREACHABLE, status);
    TK_EQ_INT(t, rank, last_record().failed_rank);
    TK_EQ_PTR(t, NULL, tensor);
}

static void views_are_refused(struct tk *t) {
    static const view_fn views[] = {symmem_get_buffer, symmem_get_remote_tensor,
                                    symmem_get_signal_pad};
    symmem_handle *handle = begin(t, 4096);
    void *const *buffers = buffers_of(t, handle);
    const int64_t four = 4;
    for (size_t i = 0; i < LENGTH(views); i++)
        for (int32_t r = 0; r < t->world_size; r++) {
            DLManagedTensor *tensor = NULL;
            symmem_status status = views[i](handle, r, 1, &four, SYMMEM_INT32, 0, &tensor);
            if (buffers[r] == NULL) {
                expect_unreachable(t, status, r, tensor);
            } else if (TK_STATUS(t, SYMMEM_OK, status)) {
                tensor->deleter(tensor);
            }
        }
}

/* A rank that is told so by other means sees the bytes, and those around are as they were. */
static void puts_are_there(struct tk *t) {
    static const size_t sizes[] = {1, 3, 4, 255, 4096, 100000};
    symmem_handle *handle = begin(t, 200000);
    uint8_t *bytes = tk_scratch(t, 100000);
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        const size_t at = 7 + i;
        memset(bytes, 100 + t->rank, sizes[i]);
        TK_OK(t, symmem_put(handle, t->next, at, bytes, sizes[i], NULL));
        tk_out_of_band_barrier(t);
        tk_expect_bytes(t, handle, t->rank, at, sizes[i], (uint8_t)(100 + t->previous));
        TK_OK(t, symmem_get(handle, t->next, at, bytes, sizes[i], NULL));
        TK_EQ_SIZE(t, sizes[i], equal_bytes(bytes, sizes[i], (uint8_t)(100 + t->rank)));
        tk_out_of_band_barrier(t);
    }
    tk_expect_bytes(t, handle, t->rank, 0, 7, 0);
}

/* Rank 0 writes to the last rank and signals the next one, and so on: the last one has it. */
static void chain(struct tk *t) {
    symmem_handle *handle = begin(t, 4096);
    for (int round = 1; round <= 20; round++) {
        const uint8_t byte = (uint8_t)round;
        if (t->rank == 0)
            TK_OK(t, symmem_put(handle, t->last, 64, &byte, 1, NULL));
        else
            TK_OK(t, symmem_wait_signal(handle, t->previous, 1, LONG_MS, NULL));
        if (t->rank != t->last)
            TK_OK(t, symmem_put_signal(handle, t->next, 1, LONG_MS, NULL));
        else
            tk_expect_bytes(t, handle, t->rank, 64, 1, byte);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

/* The target makes no other call than this one until its peer says, outside the library, that its
 * put and get have ended. */
static void progress_serves_peers(struct tk *t) {
    symmem_handle *handle = begin(t, 4096);
    const uint64_t end_ms = tk_now_ms() + tk_limit_ms(t, LONG_MS);
    uint8_t byte = 0x3C;
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    if (t->rank == 0) {
        TK_OK(t, symmem_put(handle, 1, 11, &byte, 1, NULL));
        TK_OK(t, symmem_get(handle, 1, 11, &byte, 1, NULL));
        TK_EQ_INT(t, 0x3C, byte);
        tk_share_u64(t, 0, 1);
    }
    while (t->rank == 1 && tk_read_u64(t, 0, 0) == 0 && tk_now_ms() < end_ms)
        TK_OK(t, symmem_progress(t->context));
    if (t->rank == 1)
        tk_expect_bytes(t, handle, 1, 11, 1, 0x3C);
    tk_out_of_band_barrier(t);
}

#define ROWS(area_, needs_, flags_)                                                                \
    TK_CASE(area_ ".pointers_are_null", pointers_are_null, "SM-REACH-01", .needs = (needs_),       \
            .flags = (flags_)),                                                                    \
        TK_CASE(area_ ".views_are_refused", views_are_refused, "SM-REACH-02", .needs = (needs_),   \
                .flags = (flags_)),                                                                \
        TK_CASE(area_ ".puts_are_there", puts_are_there, "SM-REACH-03", .needs = (needs_),         \
                .ranks = {2, 0}, .flags = (flags_)),                                               \
        TK_CASE(area_ ".chain_of_signals", chain, "SM-REACH-04", .needs = (needs_),                \
                .ranks = {2, 0}, .flags = (flags_)),                                               \
        TK_CASE(area_ ".progress_serves_peers", progress_serves_peers, "SM-REACH-09",              \
                .needs = (needs_), .ranks = {2, 0}, .flags = (flags_))

static const struct tk_case reach_cases[] = {ROWS("reach", SYMMEM_CAP_REACH, 0),
                                             ROWS("engine", 0, JOINED_LATER)};
TK_SUITE(reach, reach_cases);

/* --- an engine that completes what is put only when it is asked to -------------------------- */

#define LATE_MOST 64

static _Thread_local struct late {
    symmem_place to;
    size_t bytes;
    uint8_t data[64];
} late[LATE_MOST];
static _Thread_local int late_count;
static void change_entries(flat_backend *table);
static struct table_twin lazy = {.name = "suite_lazy", .change = change_entries};

static symmem_status put_later(void *instance, const symmem_place *to, const void *src,
                               size_t bytes, const symmem_exec *exec) {
    if (bytes > sizeof(late[0].data) || late_count == LATE_MOST)
        return lazy.real->reach->put(instance, to, src, bytes, exec);
    late[late_count] = (struct late){.to = *to, .bytes = bytes};
    memcpy(late[late_count++].data, src, bytes);
    return SYMMEM_OK;
}

static symmem_status complete(void *instance, const symmem_peers *peers, const symmem_exec *exec) {
    for (int i = 0; i < late_count; i++)
        (void)lazy.real->reach->put(instance, &late[i].to, late[i].data, late[i].bytes, exec);
    late_count = 0;
    return lazy.real->reach->quiet(instance, peers, exec);
}

/* As if it were put by an operation of several parts, none of which is complete yet. */
static symmem_status get_and_put(void *instance, const symmem_place *from, void *dst, size_t bytes,
                                 const symmem_exec *exec) {
    symmem_status status = lazy.real->reach->get(instance, from, dst, bytes, exec);
    static const uint8_t mark = 0x5A;
    if (status == SYMMEM_OK && bytes == 1) {
        symmem_place to = *from;
        to.offset += 1;
        status = put_later(instance, &to, &mark, 1, exec);
    }
    return status;
}

static void change_entries(flat_backend *table) {
    table->reach_put = put_later;
    table->reach_get = get_and_put;
    table->reach_quiet = complete;
}

static void begin_lazy(struct tk *t, symmem_handle **handle_p) {
    use_reach_twin(t, &lazy);
    late_count = 0;
    tk_join(t, t->context);
    *handle_p = tk_handle(t, 4096, tk_world_group(t));
}

TK_TEST(reach, put_is_completed, "SM-REACH-03", .min_ranks = 2, .flags = JOINED_LATER) {
    symmem_handle *handle = NULL;
    const uint8_t byte = 0x77;
    begin_lazy(t, &handle);
    TK_OK(t, symmem_put(handle, t->next, 9, &byte, 1, NULL));
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, handle, t->rank, 9, 1, 0x77);
}

/* Each get leaves a byte under way to that rank, behind the one that it reads. */
TK_TEST(reach, all_is_there_before_a_signal, "SM-REACH-04", .min_ranks = 2, .flags = JOINED_LATER) {
    symmem_handle *handle = NULL;
    uint8_t byte = 0;
    begin_lazy(t, &handle);
    TK_OK(t, symmem_get(handle, t->next, 20, &byte, 1, NULL));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 21, 1, 0x5A);
    TK_OK(t, symmem_get(handle, t->next, 30, &byte, 1, NULL));
    TK_OK(t, symmem_put_signal(handle, t->next, 0, LONG_MS, NULL));
    TK_OK(t, symmem_wait_signal(handle, t->previous, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 31, 1, 0x5A);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

static _Atomic int progress_count;

static void count_progress(void *instance) {
    (void)instance;
    atomic_fetch_add(&progress_count, 1);
}

static void count_entries(flat_backend *table) {
    table->reach_progress = count_progress;
}

static struct table_twin counted = {.name = "suite_counted", .change = count_entries};

TK_TEST(reach, progress_asks_the_engine, "SM-REACH-09", .max_ranks = 1, .flags = JOINED_LATER) {
    use_engine_twin(t, &counted);
    atomic_store(&progress_count, 0);
    TK_OK(t, symmem_progress(t->context));
    TK_EQ_INT(t, 0, atomic_load(&progress_count));
    tk_join(t, t->context);
    atomic_store(&progress_count, 0);
    TK_OK(t, symmem_progress(t->context));
    TK_AT_LEAST(t, 1, atomic_load(&progress_count));
    TK_FAILS(t, NOT_INITIALIZED, symmem_progress(NULL));
}

/* An engine may hold the caller's memory until what was put is complete, and complete it whenever
 * it is asked to work: the core then gives memory back in the middle of an allocation. */
static _Thread_local symmem_ref kept[8]; /* of a rank, which may be a thread */
static _Thread_local int kept_count;

static struct table_twin keeping;

static void release_kept(void *instance) {
    if (keeping.real->reach->progress != NULL)
        keeping.real->reach->progress(instance);
    while (kept_count > 0) {
        kept_count--;
        kept[kept_count].release(kept[kept_count].object);
    }
}

static symmem_status put_and_keep(void *instance, const symmem_place *to, const void *src,
                                  size_t bytes, const symmem_exec *exec) {
    for (int32_t i = 0; i < exec->ref_count && kept_count < 8; i++) {
        kept[kept_count] = exec->refs[i];
        kept[kept_count].retain(kept[kept_count].object);
        kept_count++;
    }
    return keeping.real->reach->put(instance, to, src, bytes, exec);
}

static void keep_entries(flat_backend *table) {
    table->reach_put = put_and_keep;
    table->reach_progress = release_kept;
}

static struct table_twin keeping = {.name = "suite_keeping", .change = keep_entries};

TK_TEST(reach, memory_comes_back_in_progress, "SM-REACH-09", .min_ranks = 2,
        .flags = JOINED_LATER) {
    void *source = NULL, *none = NULL;
    use_reach_twin(t, &keeping);
    kept_count = 0;
    tk_join(t, t->context);
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 4096, -1, NULL, &source));
    TK_OK(t, symmem_put(handle, t->next, 0, source, 64, NULL));
    TK_CHECK(t, kept_count > 0);
    TK_OK(t, symmem_free(t->context, source));
    TK_FAILS(t, NO_SPACE, symmem_alloc(t->context, (size_t)1 << 40, -1, NULL, &none));
    TK_EQ_INT(t, 0, kept_count);
    tk_out_of_band_barrier(t);
}
