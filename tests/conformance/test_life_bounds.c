/* SPDX-License-Identifier: BSD-3-Clause */
/* What neither descriptors nor shared mappings show: address space, heap, threads, and one
 * address for ranks of one process. */
#include <stdio.h>

#include "resources.h"
#include "sync_help.h"

#define BIG_BYTES ((size_t)4 << 20)

/* With a group of its own, if `named`. */
static void one_cycle(struct tk *t, int cycle, size_t bytes, bool named) {
    symmem_group *group = tk_world_group(t);
    char name[24];
    snprintf(name, sizeof(name), "cycle-%d", cycle);
    if (named)
        TK_REQUIRE_OK(t, symmem_group_create(t->context, name, NULL, 0, NULL, &group));
    void *memory = tk_alloc(t, bytes);
    symmem_handle *handle = tk_rendezvous(t, memory, group);
    TK_OK(t, symmem_barrier(handle, 0, tk_scaled_ms(LONG_MS), NULL));
    tk_release(t, handle);
    tk_free(t, memory);
    if (named)
        TK_OK(t, symmem_group_destroy(group));
}

/* Mappings of every kind: were any of them kept, 24 cycles would take 96 MiB or more. */
static void address_space_is_bounded(struct tk *t) {
    enum { CYCLES = 30 };
    uint64_t before = 0;
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        one_cycle(t, cycle, BIG_BYTES, true);
        if (cycle == 5)
            before = resources_address_space_bytes();
    }
    uint64_t after = resources_address_space_bytes();
    TK_CHECK_MSG(t, before > 0, "the address space cannot be measured");
    TK_CHECK_MSG(t, after < before + 12 * BIG_BYTES, "%llu MiB of address space were kept",
                 (unsigned long long)((after - before) >> 20));
}

/* Less than 16 bytes a cycle, so nothing that belongs to a cycle. On one group: a destroyed group's
 * object stays until the context ends. */
static void heap_is_bounded(struct tk *t) {
    enum { CYCLES = 60, WARM = 20 };
    uint64_t before = 0;
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        if (cycle == WARM)
            before = resources_heap_bytes();
        one_cycle(t, cycle, 64, false);
    }
    uint64_t after = resources_heap_bytes();
    TK_CHECK_MSG(t, after <= before + 16 * (CYCLES - WARM), "%llu bytes of heap were kept",
                 (unsigned long long)(after - before));
}

/* A context that ends while its stream's shell is kept; once to warm up. */
static void context_takes_its_threads(struct tk *t) {
    for (int round = 0; round < 2; round++) {
        symmem_context_options options = tk_options(t);
        symmem_context *context = NULL;
        symmem_stream *stream = NULL;
        options.store = NULL;
        TK_REQUIRE_OK(t, symmem_init(&options, &context));
        int before = resources_threads();
        TK_OK(t, symmem_stream_create(context, -1, &stream));
        TK_OK(t, symmem_stream_synchronize(stream, tk_scaled_ms(LONG_MS)));
        TK_OK(t, symmem_finalize(context));
        /* A thread that was joined may still be listed for a moment. */
        uint64_t end_ms = tk_now_ms() + tk_scaled_ms(1000);
        while (resources_threads() > before && tk_now_ms() < end_ms)
            tk_sleep_ms(5);
        TK_CHECK(t, before > 0);
        if (round > 0)
            TK_EQ_INT(t, before, resources_threads());
        TK_OK(t, symmem_stream_destroy(stream));
        symmem_context_free(context);
    }
}

/* Each rank's memory is where its owner sees it. */
static void one_address_for_threads(struct tk *t) {
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    void *const *buffers = NULL;
    void *const *pads = NULL;
    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs(handle, &buffers));
    TK_REQUIRE_OK(t, symmem_handle_signal_pad_ptrs(handle, &pads));
    tk_share_u64(t, 0, (uint64_t)(uintptr_t)buffers[t->rank]);
    tk_share_u64(t, 1, (uint64_t)(uintptr_t)pads[t->rank]);
    tk_out_of_band_barrier(t);
    for (int32_t r = 0; r < t->world_size; r++) {
        TK_EQ_PTR(t, (const void *)(uintptr_t)tk_read_u64(t, r, 0), buffers[r]);
        TK_EQ_PTR(t, (const void *)(uintptr_t)tk_read_u64(t, r, 1), pads[r]);
    }
    tk_out_of_band_barrier(t);
}

static const struct tk_case cases[] = {
    {.name = "life.address_space_is_bounded",
     .requirements = "SM-LIFE-01,SM-LIFE-05",
     .max_ranks = 2,
     .flags = TK_PROCESS_ONLY,
     .body = address_space_is_bounded},
    {.name = "life.heap_is_bounded",
     .requirements = "SM-LIFE-01",
     .max_ranks = 2,
     .flags = TK_PROCESS_ONLY,
     .body = heap_is_bounded},
    {.name = "life.context_takes_its_threads",
     .requirements = "SM-LIFE-09",
     .needs = SYMMEM_CAP_STREAMS,
     .max_ranks = 1,
     .body = context_takes_its_threads},
    {.name = "handle.one_address_for_threads",
     .requirements = "SM-HANDLE-13",
     .needs = SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_DIRECT_ACCESS,
     .min_ranks = 2,
     .max_ranks = 8,
     .flags = TK_THREAD_ONLY,
     .body = one_address_for_threads},
};
TK_SUITE(life_bounds, cases);
