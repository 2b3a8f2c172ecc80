/* SPDX-License-Identifier: BSD-3-Clause */
/* Small helpers that the tests of synchronization share. All state is the caller's. */
#ifndef SYMMEM_CONFORMANCE_SYNC_HELP_H
#define SYMMEM_CONFORMANCE_SYNC_HELP_H

#include "kit.h"
#include "resources.h"
#include "work_after.h"

/* A limit that only a broken library reaches; it grows with the limits of the cases. */
#define LONG_MS tk_scaled_ms(15000)

/* In 32 bits 4295 ms are next to no nanoseconds, 4294968 ms no microseconds, and half of these are
 * below 0. */
static const uint32_t long_limits_ms[] = {4295, 4294968, INT32_MAX, 3000000000u, UINT32_MAX - 1};
#define LONG_LIMITS (sizeof(long_limits_ms) / sizeof(long_limits_ms[0]))

/* --- which rank is held back ------------------------------------------------------------------ */

/* Ranks that are held back one after the other: all of a small group, the telling ones of a large
 * one. */
static inline int held_count(int32_t world_size) {
    return world_size <= 5 ? world_size : 5;
}

static inline int32_t held_rank(int32_t world_size, int i) {
    if (world_size <= 5)
        return i;
    const int32_t telling[5] = {0, 1, world_size / 2, world_size > 32 ? 32 : 2, world_size - 1};
    return telling[i];
}

/* --- what the ranks show each other ----------------------------------------------------------- */

/* Waits until `rank` shows at least `value` in `slot`. */
static inline bool await_shared(struct tk *t, int32_t rank, int slot, uint64_t value) {
    uint64_t end_ms = tk_now_ms() + LONG_MS;
    while (tk_read_u64(t, rank, slot) < value) {
        if (tk_now_ms() > end_ms)
            return TK_TIMELY(t, false, "rank %d never showed %llu in slot %d", (int)rank,
                             (unsigned long long)value, slot);
        tk_sleep_ms(1);
    }
    return true;
}

/* Starts a thread and comes back when it passes failpoint `point`, or LONG_MS later. */
static inline void start_until_point(struct tk *t, pthread_t *thread, void *(*body)(void *arg),
                                     void *arg, const char *point) {
    tk_on_point(t, point, 0, (struct tk_action){0});
    const int before = tk_point_count(t, point);
    TK_REQUIRE(t, pthread_create(thread, NULL, body, arg) == 0);
    uint64_t end_ms = tk_now_ms() + LONG_MS;
    while (tk_point_count(t, point) == before && tk_now_ms() < end_ms)
        tk_sleep_ms(1);
    TK_CHECK_MSG(t, tk_point_count(t, point) > before, "%s was not passed", point);
}

/*
 * The negative half of a synchronization test. The held rank calls this before it does its part:
 * it waits until all other ranks are about to begin round `round` (slot 0), gives them a moment,
 * and checks that none of them got past it (slot 1). `ranks` are the world ranks of the group.
 */
static inline void check_others_held(struct tk *t, const int32_t *ranks, int32_t count,
                                     uint64_t round) {
    for (int32_t i = 0; i < count; i++) {
        int32_t peer = ranks ? ranks[i] : i;
        if (peer != t->rank)
            (void)await_shared(t, peer, 0, round);
    }
    tk_sleep_ms(10);
    for (int32_t i = 0; i < count; i++) {
        int32_t peer = ranks ? ranks[i] : i;
        if (peer != t->rank)
            TK_CHECK_MSG(t, tk_read_u64(t, peer, 1) < round,
                         "rank %d passed round %llu while rank %d was held back", (int)peer,
                         (unsigned long long)round, (int)t->rank);
    }
}

static inline void show_entered(struct tk *t, uint64_t round) {
    tk_share_u64(t, 0, round);
}

static inline void show_passed(struct tk *t, uint64_t round) {
    tk_share_u64(t, 1, round);
}

/* A group of all ranks in the opposite order. */
static inline symmem_group *reversed_group(struct tk *t, const char *name) {
    int32_t ranks[SYMMEM_MAX_WORLD_SIZE];
    for (int32_t i = 0; i < t->world_size; i++)
        ranks[i] = t->last - i;
    return tk_group(t, name, ranks, t->world_size);
}

/* One barrier with group rank `held` held back; rounds count from 1 and rise within a case. */
static inline void barrier_holding(struct tk *t, symmem_handle *handle, int32_t channel,
                                   const int32_t *ranks, int32_t count, int32_t held,
                                   uint64_t round) {
    int32_t held_world_rank = ranks ? ranks[held] : held;
    if (t->rank == held_world_rank)
        check_others_held(t, ranks, count, round);
    else
        show_entered(t, round);
    TK_OK(t, symmem_barrier(handle, channel, LONG_MS, NULL));
    show_passed(t, round);
}

/* --- records ---------------------------------------------------------------------------------- */

/* The record names exactly the ranks whose entry in absent[] is true. One more may be missing if it
 * was kept from running; none of the absent may be left out, however late who. */
static inline void check_missing(struct tk *t, const symmem_error_record *record,
                                 const bool *absent, int32_t world_size) {
    uint32_t named = 0;
    int32_t more = -1, left_out = -1;
    for (int32_t r = 0; r < SYMMEM_MAX_WORLD_SIZE; r++) {
        bool expected = r < world_size && absent[r], missing = symmem_error_is_missing(record, r);
        named += missing;
        more = missing && !expected ? r : more;
        left_out = expected && !missing ? r : left_out;
    }
    TK_CHECK_MSG(t, left_out < 0 && more < world_size, "rank %d is wrongly %s the missing set",
                 (int)(left_out < 0 ? more : left_out), left_out < 0 ? "in" : "not in");
    TK_TIMELY(t, more < 0, "rank %d is wrongly in the missing set", (int)more);
    TK_EQ_INT(t, named, record->missing_count);
}

static inline void check_missing_one(struct tk *t, const symmem_error_record *record,
                                     int32_t absent_rank, int32_t world_size) {
    bool absent[SYMMEM_MAX_WORLD_SIZE] = {false};
    absent[absent_rank] = true;
    check_missing(t, record, absent, world_size);
}

/* --- handles ---------------------------------------------------------------------------------- */

static inline symmem_handle_info info_of(struct tk *t, symmem_handle *handle) {
    symmem_handle_info info;
    memset(&info, 0, sizeof(info));
    TK_REQUIRE_OK(t, symmem_handle_get_info(handle, &info));
    return info;
}

static inline void *const *buffers_of(struct tk *t, symmem_handle *handle) {
    void *const *ptrs = NULL;
    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs(handle, &ptrs));
    return ptrs;
}

static inline void *const *pads_of(struct tk *t, symmem_handle *handle) {
    void *const *ptrs = NULL;
    TK_REQUIRE_OK(t, symmem_handle_signal_pad_ptrs(handle, &ptrs));
    return ptrs;
}

static inline bool is_symmetric(struct tk *t, const void *ptr) {
    bool symmetric = false;
    TK_OK(t, symmem_is_symmetric(t->context, ptr, &symmetric));
    return symmetric;
}

static inline int32_t device_count(struct tk *t) {
    int32_t count = 0;
    TK_REQUIRE_OK(t, symmem_device_count(t->context, &count));
    return count;
}

static inline const char *backend_name(struct tk *t) {
    const char *name = NULL;
    TK_REQUIRE_OK(t, symmem_get_backend(t->context, &name));
    TK_REQUIRE(t, name != NULL);
    return name;
}

/* The device that allocations with device -1 are on. */
static inline int32_t own_device(struct tk *t) {
    const int32_t count = device_count(t);
    int32_t local_rank = 0;
    TK_OK(t, symmem_context_local_rank(t->context, &local_rank));
    return local_rank % (count > 0 ? count : 1);
}

/* This rank's user signal pad: all bytes set, and checked. */
static inline void pad_fill(struct tk *t, symmem_handle *handle, uint8_t byte) {
    symmem_handle_info info = info_of(t, handle);
    void *const *pads = pads_of(t, handle);
    uint8_t *bytes = tk_scratch(t, info.signal_pad_size);
    memset(bytes, byte, info.signal_pad_size);
    TK_OK(t, symmem_copy(t->context, pads[info.rank], bytes, info.signal_pad_size, NULL));
}

static inline bool pad_expect(struct tk *t, symmem_handle *handle, uint8_t byte) {
    symmem_handle_info info = info_of(t, handle);
    void *const *pads = pads_of(t, handle);
    uint8_t *bytes = tk_scratch(t, info.signal_pad_size);
    memset(bytes, (uint8_t)~byte, info.signal_pad_size);
    TK_OK(t, symmem_copy(t->context, bytes, pads[info.rank], info.signal_pad_size, NULL));
    size_t wrong = 0;
    while (wrong < info.signal_pad_size && bytes[wrong] == byte)
        wrong++;
    bool held = TK_CHECK_MSG(t, wrong == info.signal_pad_size,
                             "byte %zu of the signal pad is 0x%02x, not 0x%02x", wrong,
                             wrong < info.signal_pad_size ? bytes[wrong] : 0u, byte);
    return held;
}

/* What the context knows of memory. */
static inline symmem_alloc_info memory_info(struct tk *t, const void *ptr) {
    symmem_alloc_info info = {0};
    TK_OK(t, symmem_alloc_query(t->context, ptr, &info));
    return info;
}

/* The context's backend is that table from now on. It has to outlive the context. */
static inline void use_table(struct tk *t, const symmem_backend *table) {
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, table));
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, table->name));
}

/* One ring step of signals on a channel: to the next rank, from the one before. */
static inline void ring_signal(struct tk *t, symmem_handle *handle, int32_t channel) {
    symmem_handle_info info = info_of(t, handle);
    int32_t next = (info.rank + 1) % info.world_size;
    int32_t previous = (info.rank + info.world_size - 1) % info.world_size;
    TK_OK(t, symmem_put_signal(handle, next, channel, LONG_MS, NULL));
    TK_OK(t, symmem_wait_signal(handle, previous, channel, LONG_MS, NULL));
}

/*
 * No signal of source_rank is pending at group rank 0 (source_rank -1: the rank before it). Poisons
 * that rank's link and, through it, waits for that rank: so only one rank may look, and last.
 */
static inline void check_nothing_pending(struct tk *t, symmem_handle *handle, int32_t source_rank,
                                         int32_t channel) {
    symmem_handle_info info = info_of(t, handle);
    if (source_rank < 0)
        source_rank = info.world_size - 1;
    if (info.rank == 0)
        TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, source_rank, channel, 25, NULL));
}

/* Word i of what `rank` writes in generation `generation`. */
static inline uint32_t word_of(int32_t rank, uint32_t generation, size_t i) {
    return (uint32_t)(rank + 1) * 0x01000193u ^ generation * 0x9e3779b1u ^ (uint32_t)i * 0x85ebu;
}

static inline void fill_words(uint32_t *words, size_t count, int32_t rank, uint32_t generation) {
    for (size_t i = 0; i < count; i++)
        words[i] = word_of(rank, generation, i);
}

/* The index of the first word that is not as fill_words writes it, or count. */
static inline size_t first_wrong_word(const uint32_t *words, size_t count, int32_t rank,
                                      uint32_t generation) {
    size_t i = 0;
    while (i < count && words[i] == word_of(rank, generation, i))
        i++;
    return i;
}

/* The check that PyTorch's two empty_strided tests share, on a handle of the default group. */
static inline void verify_symmetric_memory(struct tk *t, symmem_handle *handle) {
    symmem_handle_info info = info_of(t, handle);
    float values[64 * 64];
    const int32_t word_count = (int32_t)(info.buffer_size / sizeof(float));
    TK_EQ_SIZE(t, sizeof(values), info.buffer_size);
    for (int round = 0; round < 2; round++) {
        float expected = round ? 43.0f : 42.0f;
        for (int i = 0; i < word_count; i++)
            values[i] = expected;
        /* PyTorch lets all of them write the same; that would be a data race. */
        if (t->rank == 1)
            tk_write(t, handle, 0, 0, values, sizeof(values));
        if (t->rank != 0 && round == 0)
            TK_OK(t, symmem_put_signal(handle, 0, 0, LONG_MS, NULL));
        if (round == 1)
            TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        for (int32_t r = 1; t->rank == 0 && round == 0 && r < t->world_size; r++)
            TK_OK(t, symmem_wait_signal(handle, r, 0, LONG_MS, NULL));
        if (t->rank == 0)
            tk_expect_data(t, handle, 0, 0, values, sizeof(values));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

/* --- gates: a host function that holds a stream until it is opened ------------------ */

struct gate {
    atomic_int open;
    atomic_int entered;
    atomic_int timed_out;
};

static inline void gate_fn(void *arg) {
    struct gate *gate = arg;
    atomic_store_explicit(&gate->entered, 1, memory_order_release);
    uint64_t end_ms = tk_now_ms() + LONG_MS;
    /* pairs with: gate_open */
    while (!atomic_load_explicit(&gate->open, memory_order_acquire)) {
        if (tk_now_ms() > end_ms) {
            atomic_store_explicit(&gate->timed_out, 1, memory_order_release);
            return;
        }
        tk_sleep_ms(1);
    }
}

static inline void gate_open(struct gate *gate) {
    /* pairs with: gate_fn */
    atomic_store_explicit(&gate->open, 1, memory_order_release);
}

static inline bool await_flag(atomic_int *flag, uint32_t limit_ms) {
    uint64_t end_ms = tk_now_ms() + limit_ms;
    while (!atomic_load(flag) && tk_now_ms() < end_ms)
        tk_sleep_ms(1);
    return atomic_load(flag) != 0;
}

/* --- streams --------------------------------------------------------------------------------- */

#define STREAM_FN (SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_FN)
#define CAPTURE (SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE)

/* Two cases of one body: without a stream, and on one, which the second one's name says. */
#define TEST_WITH_AND_WITHOUT_STREAM(area_, name_, requirements_, needs_, ...)                     \
    static void both_##name_(struct tk *t, symmem_stream *stream);                                 \
    TK_TEST(area_, name_, requirements_, .needs = (needs_), __VA_ARGS__) {                         \
        both_##name_(t, NULL);                                                                     \
    }                                                                                              \
    TK_TEST(area_, name_##_on_stream, requirements_, .needs = (needs_) | SYMMEM_CAP_STREAMS,       \
            __VA_ARGS__) {                                                                         \
        both_##name_(t, tk_stream(t));                                                             \
    }                                                                                              \
    static void both_##name_(struct tk *t, symmem_stream *stream)

/* Launches and waits. */
static inline void run_graph(struct tk *t, symmem_graph *graph, symmem_stream *stream) {
    TK_OK(t, symmem_graph_launch(graph, stream));
    tk_synchronize(t, stream);
}

static inline void expect_capturing(struct tk *t, symmem_stream *stream, bool expected) {
    bool capturing = !expected;
    TK_OK(t, symmem_stream_is_capturing(stream, &capturing));
    TK_EQ_INT(t, expected, capturing);
}

static inline bool is_idle(struct tk *t, symmem_stream *stream) {
    bool idle = false;
    TK_OK(t, symmem_stream_query(stream, &idle));
    return idle;
}

/* From here on the stream comes behind what the other one has so far. */
static inline void let_follow(struct tk *t, symmem_stream *stream, symmem_event *event,
                              symmem_stream *other) {
    TK_OK(t, symmem_event_record(event, other));
    TK_OK(t, symmem_stream_wait_event(stream, event));
}

/* Adds its number to a log in the order of execution. */
struct step_log {
    atomic_int count;
    int order[64];
};

struct step {
    struct step_log *log;
    int number;
};

static inline void step_fn(void *arg) {
    struct step *step = arg;
    int at = atomic_load_explicit(&step->log->count, memory_order_relaxed);
    if (at < 64)
        step->log->order[at] = step->number;
    /* pairs with: steps_done */
    atomic_store_explicit(&step->log->count, at + 1, memory_order_release);
}

static inline int steps_done(struct step_log *log) {
    /* pairs with: step_fn */
    return atomic_load_explicit(&log->count, memory_order_acquire);
}

/* A context that allows multicast whatever the environment says;
 * false, with the case marked unresolved, where the device has none. */
static inline bool multicast_allowed(struct tk *t) {
    bool supported = false;
    TK_REINIT(t, options.multicast = 1);
    TK_OK(t, symmem_has_multicast_support(t->context, t->device_type, own_device(t), &supported));
    if (!supported)
        tk_unresolved(t, "the device has no multicast");
    return supported;
}

/* A context beside this rank's own, in a world of one. NULL after a failed check. */
static inline symmem_context *context_alone(struct tk *t) {
    symmem_context *alone = NULL;
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    options.local_rank = 0;
    options.backend = t->backend;
    TK_OK(t, symmem_init(&options, &alone));
    return alone;
}

#endif
