/* SPDX-License-Identifier: BSD-3-Clause */
/* Repeated cycles leave nothing behind: of contexts, allocations and groups. */
#include "case_help.h"
#include "device_used.h"
#include "life_help.h"
#include "resources.h"

#define LIMIT_MS 15000u
#define BYTES 4096
#define DEVICE_TYPE_CPU 1 /* kDLCPU */

/* Limit on a shortage of device memory that other users of the device may cause, such as the ranks
 * of another runner that start anew. */
#define OTHERS_MS 20000u

/* --- devices' memory ---------------------------------------------------------------------------
 */

/* How the memory in use is measured. The case's first look chooses that for the whole case. */
struct gauge {
    bool is_chosen;
    bool by_process; /* the driver reports what this process uses */
};

struct reading {
    struct gauge *gauge;
    uint64_t used; /* by this process */
    uint64_t free; /* for all; 0: that tells nothing, since ranks share a device */
    bool alone;    /* no other process is on these devices */
};

static uint64_t free_bytes(struct tk *t, symmem_context *context) {
    symmem_error_record record;
    void *none = NULL;
    int32_t devices = 0;
    TK_OK(t, symmem_device_count(context, &devices));
    if (devices < t->world_size)
        return 0;
    TK_FAILS(t, NO_SPACE, symmem_alloc(context, (size_t)1 << 46, -1, NULL, &none));
    symmem_last_error(&record);
    TK_CHECK(t, record.actual > 0);
    return record.actual;
}

/* Nothing on the CPU. */
static void take_reading(struct tk *t, symmem_context *context, struct reading *reading) {
    struct gauge *gauge = reading->gauge;
    struct device_use use;
    if (t->device_type == DEVICE_TYPE_CPU)
        return;
    bool is_told = device_use_take(&use);
    if (!gauge->is_chosen)
        *gauge = (struct gauge){.is_chosen = true, .by_process = is_told};
    TK_CHECK_MSG(t, is_told || !gauge->by_process, "what this process uses is not told any more");
    reading->used = gauge->by_process ? use.bytes : 0;
    reading->alone = gauge->by_process && use.others == 0;
    reading->free = free_bytes(t, context);
}

/* Whether everything was given back. Free memory also depends on other processes, unless there are
 * none. */
static bool is_back(const struct reading *before, const struct reading *after) {
    bool by_free = !before->gauge->by_process || (before->alone && after->alone);
    return after->used <= before->used && (!by_free || after->free >= before->free);
}

/* One cycle of some kind. If `reading` is not NULL the cycle takes it, at the same place in each
 * cycle. */
typedef void (*cycle_fn)(struct tk *t, const symmem_context_options *options,
                         struct reading *reading);

/* Expects that everything is back, at the latest after some more cycles. What the cycles keep is
 * still missing then, and what another process used for a while is not. */
static void expect_all_back(struct tk *t, cycle_fn cycle, const symmem_context_options *options,
                            const struct reading *before, struct reading *after) {
    enum { MORE = 40, MINE = 0, IN_TIME = 1 };
    bool mine = is_back(before, after), others_may = !before->gauge->by_process;
    uint64_t missing = 1, in_time = 1;
    uint64_t end_ms = tk_now_ms() + tk_limit_ms(t, OTHERS_MS);
    for (int i = 0; (i < MORE || in_time != 0) && missing != 0; i++) {
        tk_share_u64(t, MINE, mine);
        tk_share_u64(t, IN_TIME, others_may && tk_now_ms() < end_ms);
        tk_out_of_band_barrier(t);
        missing = 0;
        for (int32_t r = 0; r < t->world_size; r++)
            missing += tk_read_u64(t, r, MINE) == 0;
        in_time = tk_read_u64(t, 0, IN_TIME); /* the ranks must agree */
        tk_out_of_band_barrier(t);
        if (missing != 0)
            cycle(t, options, after);
        mine = mine || is_back(before, after);
    }
    TK_CHECK_MSG(t, mine || after->used <= before->used,
                 "%llu bytes more of the device are used by this process than before",
                 (unsigned long long)(after->used - before->used));
    TK_CHECK_MSG(t, mine || after->used > before->used,
                 "%llu bytes less of the device are free than before",
                 (unsigned long long)(before->free - after->free));
}

/* --- contexts --------------------------------------------------------------------------------- */

static int context_cycles(const struct tk *t) {
    if (tk_suite_is_long() && t->world_size <= 8)
        return 1000;
    return t->world_size == 1   ? 1000
           : t->world_size <= 2 ? 150
           : t->world_size <= 4 ? 30
           : t->world_size <= 8 ? 20
                                : 5;
}

static void context_cycle(struct tk *t, const symmem_context_options *options,
                          struct reading *reading) {
    struct own_world w = {0};
    TK_REQUIRE_OK(t, symmem_init(options, &w.context));
    tk_join(t, w.context);
    if (reading != NULL)
        take_reading(t, w.context, reading);
    own_world_meet(t, &w, BYTES);
    TK_REQUIRE_OK(t, symmem_barrier(w.handle, 0, LIMIT_MS, NULL));
    own_world_end(t, &w);
}

TK_TEST(life, cycles_leave_nothing, "SM-LIFE-01,SM-CONTEXT-06", .max_ranks = 16,
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT, .timeout_s = 150) {
    symmem_context_options options = tk_options(t);
    struct resources_names *names = malloc(sizeof(*names));
    char path[4096], first[300];
    symmem_store *store = NULL;
    struct resources_open descriptors = {0};
    int cycles = context_cycles(t), mappings = 0, keys = 0;
    struct gauge gauge = {0};
    struct reading before = {.gauge = &gauge}, after = before;
    struct device_use use;
    TK_REQ(t, "SM-LIFE-01");
    TK_REQUIRE(t, names != NULL);
    snprintf(path, sizeof(path), "%s/cycles", t->scratch_dir);
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &store));
    options.store = store;
    if (t->device_type != DEVICE_TYPE_CPU)
        (void)device_use_take(&use); /* what it opens is there from now on */
    for (int cycle = 0; cycle < cycles; cycle++) {
        if (cycle == 3) { /* what is made once is there by now */
            tk_out_of_band_barrier(t);
            resources_take_open(&descriptors);
            mappings = resources_shared_mappings();
            keys = resources_count_entries(path);
            resources_take_names(names);
            tk_out_of_band_barrier(t);
        }
        context_cycle(t, &options, cycle == 3 ? &before : cycle == cycles - 1 ? &after : NULL);
    }
    tk_out_of_band_barrier(t);
    expect_all_back(t, context_cycle, &options, &before, &after);
    expect_as_many_open(t, &descriptors);
    TK_EQ_INT(t, mappings, resources_shared_mappings());
    TK_EQ_INT(t, keys, resources_count_entries(path));
    TK_CHECK_MSG(t, resources_new_names(names, first, sizeof(first)) == 0, "%s was left", first);
    tk_out_of_band_barrier(t);
    symmem_store_close(store);
    free(names);
}

/* --- allocations ------------------------------------------------------------------------------ */

/* On the case's own context and its world group: an allocation of each size, from less than a page
 * to more than any backend would cut out of something larger. All there at once, so that none is
 * the other's old place. */
static void allocation_cycle(struct tk *t, const symmem_context_options *options,
                             struct reading *reading) {
    static const size_t sizes[] = {64, BYTES, ((size_t)1 << 20) + 64, (size_t)9 << 20};
    enum { COUNT = LENGTH(sizes) };
    void *memory[COUNT];
    symmem_handle *handles[COUNT];
    (void)options;
    for (int i = 0; i < COUNT; i++) {
        memory[i] = tk_alloc(t, sizes[i]);
        handles[i] = tk_rendezvous(t, memory[i], tk_world_group(t));
    }
    for (int i = 0; i < COUNT; i++)
        TK_OK(t, symmem_barrier(handles[i], 0, LIMIT_MS, NULL));
    if (reading != NULL)
        take_reading(t, t->context, reading);
    for (int i = 0; i < COUNT; i++) {
        tk_release(t, handles[i]);
        tk_free(t, memory[i]);
    }
}

/* How many of what a process has; a backend may keep some of it for the next, now more, now less.
 */
struct held {
    int descriptors, mappings;
    uint64_t mapped_bytes;
    struct reading device;
};

static void take_held(struct held *held) {
    held->descriptors = resources_descriptors();
    held->mappings = resources_shared_mappings();
    held->mapped_bytes = resources_shared_bytes();
}

/* Keeps the smallest value of each, and the largest of the free memory. `alone` if it held each
 * time. */
static void take_best(struct held *best, const struct held *held) {
    if (held->descriptors < best->descriptors)
        best->descriptors = held->descriptors;
    if (held->mappings < best->mappings)
        best->mappings = held->mappings;
    if (held->mapped_bytes < best->mapped_bytes)
        best->mapped_bytes = held->mapped_bytes;
    if (held->device.used < best->device.used)
        best->device.used = held->device.used;
    if (held->device.free > best->device.free)
        best->device.free = held->device.free;
    best->device.alone = best->device.alone && held->device.alone;
}

/* Some cycles, and the best of each count after one of them. */
static struct held best_of_cycles(struct tk *t, int cycles, struct gauge *gauge) {
    struct held best = {.descriptors = INT_MAX,
                        .mappings = INT_MAX,
                        .mapped_bytes = UINT64_MAX,
                        .device = {.gauge = gauge, .used = UINT64_MAX, .alone = true}};
    for (int cycle = 0; cycle < cycles; cycle++) {
        struct held held = {.device.gauge = gauge};
        allocation_cycle(t, NULL, &held.device);
        take_held(&held);
        take_best(&best, &held);
    }
    return best;
}

static int allocation_count(const struct tk *t) {
    if (tk_suite_is_long() && t->world_size <= 8)
        return 1000;
    return t->world_size <= 2 ? 1000 : t->world_size <= 4 ? 400 : 100;
}

/* Memory that each cycle keeps is missing at the end even in the best of several cycles. */
TK_TEST(life, allocations_leave_nothing, "SM-LIFE-14", .max_ranks = 16, .flags = TK_PROCESS_ONLY,
        .timeout_s = 90) {
    enum { ALLOCATIONS = 4, SOME = 10 }; /* a cycle's; enough for what is kept to be replaced */
    int cycles = allocation_count(t) / ALLOCATIONS;
    struct gauge gauge = {0};
    (void)best_of_cycles(t, SOME, &gauge); /* what is made once, and what is kept for the next */
    struct held before = best_of_cycles(t, SOME, &gauge);
    for (int cycle = 0; cycle < cycles; cycle++)
        allocation_cycle(t, NULL, NULL);
    struct held after = best_of_cycles(t, SOME, &gauge);
    expect_all_back(t, allocation_cycle, NULL, &before.device, &after.device);
    TK_CHECK_MSG(t, before.descriptors > 0 && after.descriptors <= before.descriptors,
                 "%d descriptors after %d cycles, before %d", after.descriptors, cycles,
                 before.descriptors);
    TK_CHECK_MSG(t, after.mappings <= before.mappings, "%d mappings after %d cycles, before %d",
                 after.mappings, cycles, before.mappings);
    TK_CHECK_MSG(t, after.mapped_bytes <= before.mapped_bytes,
                 "%llu bytes mapped after %d cycles, before %llu",
                 (unsigned long long)after.mapped_bytes, cycles,
                 (unsigned long long)before.mapped_bytes);
    tk_out_of_band_barrier(t);
}

/* --- groups ----------------------------------------------------------------------------------- */

/* PyTorch's test, with counts in place of the device's free memory. */
TK_PORTED(test_internal_signal_pad_freed_with_its_group, "SM-LIFE-01,SM-LIFE-05", .max_ranks = 4,
          .flags = TK_PROCESS_ONLY) {
    struct resources_open descriptors = {0};
    int mappings = 0;
    uint64_t bytes = 0;
    TK_REQ(t, "SM-LIFE-01");
    for (int cycle = 0; cycle < 10; cycle++) {
        symmem_handle *handle;
        void *memory = tk_alloc(t, 256);
        char name[16];
        snprintf(name, sizeof(name), "cycle-%d", cycle);
        symmem_group *group = tk_group(t, name, NULL, 0);
        handle = tk_rendezvous(t, memory, group);
        TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
        tk_group_destroy(t, group);
        tk_release(t, handle);
        tk_free(t, memory);
        if (cycle == 2) {
            resources_take_open(&descriptors);
            mappings = resources_shared_mappings();
            bytes = resources_shared_bytes();
        }
    }
    expect_as_many_open(t, &descriptors);
    TK_EQ_INT(t, mappings, resources_shared_mappings());
    TK_EQ_SIZE(t, bytes, resources_shared_bytes());
}
