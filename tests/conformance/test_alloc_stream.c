/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocations and streams: pending work, captures. */
#include "kit.h"

#define LIMIT_MS 10000u

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
