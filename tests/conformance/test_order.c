/* SPDX-License-Identifier: BSD-3-Clause */
/* Order and lifetime of signal operations where two streams, captures or failures come together. */
#include "resources_open.h"
#include "case_help.h"

/* The stream's wait is first in line for the one signal, so the call without a stream gets none. */
TK_TEST(order, null_stream_is_second, "SM-STREAM-05", .needs = STREAM_FN, .max_ranks = 4) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    int32_t own = info_of(t, handle).rank;
    struct gate gate = {0};
    TK_OK(t, symmem_put_signal(handle, own, 0, LONG_MS, NULL));
    hold(t, stream, &gate);
    TK_OK(t, symmem_wait_signal(handle, own, 0, LONG_MS, stream));
    TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, own, 0, 30, NULL));
    gate_open(&gate);
    tk_synchronize(t, stream);
}

/* Signal operations alone, without a copy, keep the link of a released handle. */
TK_TEST(order, graph_of_signals_keeps_the_link, "SM-STREAM-11", .needs = CAPTURE, .max_ranks = 4,
        .flags = TK_PROCESS_ONLY) {
    symmem_stream *stream = tk_stream(t);
    uint32_t limit_ms = LONG_MS;
    symmem_group *group = tk_group(t, "graph", NULL, 0);
    void *ptr = tk_alloc(t, 4096);
    symmem_handle *handle = tk_rendezvous(t, ptr, group);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, symmem_put_signal(handle, t->rank, 0, limit_ms, stream));
    TK_OK(t, symmem_wait_signal(handle, t->rank, 0, limit_ms, stream));
    TK_OK(t, symmem_barrier(handle, 1, limit_ms, stream));
    symmem_graph *graph = NULL; /* destroyed before the mappings are counted */
    TK_REQUIRE_OK(t, symmem_stream_end_capture(stream, &graph));
    tk_release(t, handle);
    tk_free(t, ptr);
    int held = resources_shared_mappings();
    tk_group_destroy(t, group);
    TK_EQ_INT(t, held, resources_shared_mappings());
    for (int i = 0; i < 3; i++)
        TK_OK(t, symmem_graph_launch(graph, stream));
    tk_synchronize(t, stream);
    TK_OK(t, symmem_graph_destroy(graph));
    /* Memory of devices is no mapping of files; their drivers have some of their own. */
    if (held != 0 && t->device_type == 1 /* kDLCPU */)
        TK_CHECK(t, resources_shared_mappings() < held);
}

/* A capture on another stream owes nothing to an earlier one that used the same channel. */
TK_TEST(order, captures_take_turns_on_a_channel, "SM-STREAM-08,SM-STREAM-09", .needs = CAPTURE,
        .max_ranks = 4) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    uint32_t limit_ms = LONG_MS;
    for (int i = 0; i < 4; i++) {
        symmem_stream *stream = tk_stream(t);
        TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
        TK_OK(t, symmem_barrier(handle, 0, limit_ms, stream));
        symmem_graph *graph = tk_end_capture(t, stream);
        run_graph(t, graph, stream);
    }
}

/* Of two waits under way, the first to fail is the one that the handle's status tells of. */
TK_TEST(order, first_failure_is_kept, "SM-TIMEOUT-04,SM-TIMEOUT-14", .needs = SYMMEM_CAP_STREAMS,
        .max_ranks = 4) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *first = tk_stream(t);
    symmem_stream *second = tk_stream(t);
    symmem_error_record record;
    int32_t own = info_of(t, handle).rank;
    TK_OK(t, symmem_wait_signal(handle, own, 1, LONG_MS, second));
    TK_OK(t, symmem_wait_signal(handle, own, 0, 50, first));
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(first, LONG_MS));
    TK_FAILS(t, POISONED, symmem_stream_synchronize(second, LONG_MS));
    TK_FAILS(t, TIMEOUT, symmem_handle_status(handle, &record));
    TK_EQ_INT(t, 0, record.channel);
    work_after(t, second);
}

struct holder {
    symmem_handle *handle;
    uint32_t limit_ms;
    symmem_status status;
};

static void *hold_channel(void *arg) {
    struct holder *holder = arg;
    holder->status = symmem_wait_signal(holder->handle, 1, 0, holder->limit_ms, NULL);
    return NULL;
}

/* A call that waits for another thread's call on its channel has its own limit. */
TK_TEST(order, channels_turn_has_a_limit, "SM-TIMEOUT-01,SM-THREAD-02", .ranks = {2, 2}) {
    struct holder holder = {tk_handle(t, 64, tk_world_group(t)), LONG_MS, SYMMEM_OK};
    pthread_t thread;
    if (t->rank == 0) {
        start_until_point(t, &thread, hold_channel, &holder, "wait_signal.begin");
        tk_sleep_ms(tk_limit_ms(t, 150)); /* until the thread has the channel */
        uint64_t start_ms = tk_now_ms();
        TK_FAILS(t, TIMEOUT, symmem_wait_signal(holder.handle, 0, 0, 50, NULL));
        TK_WITHIN(t, 1000, start_ms);
        tk_share_u64(t, 0, 1);
    }
    /* Not the kit's barrier: it would wait for a rank 0 that waits. */
    uint64_t give_up_ms = tk_now_ms() + tk_limit_ms(t, 8000);
    while (t->rank == 1 && tk_read_u64(t, 0, 0) == 0 && tk_now_ms() < give_up_ms)
        tk_sleep_ms(5);
    if (t->rank == 1)
        TK_OK(t, symmem_put_signal(holder.handle, 0, 0, LONG_MS, NULL));
    if (t->rank != 0)
        return;
    TK_CHECK(t, pthread_join(thread, NULL) == 0);
    TK_EQ_INT(t, SYMMEM_OK, holder.status);
}

/* The first and the last rank share a device, those between them do not if there are enough. */
TK_TEST(order, overlap_of_the_ends, "SM-RDV-09", .ranks = {3, 4}) {
    const int32_t devices = device_count(t);
    symmem_handle *handle = NULL;
    TK_REQUIRE(t, devices > 0);
    if (!tk_has_memory_of(t, (t->rank + 1) % devices))
        return; /* an engine's heap is one device's, and no rank shares that */
    void *ptr = NULL;
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 256, t->rank % (t->last) % devices, NULL, &ptr));
    TK_OK(t, symmem_set_allow_overlapping_devices(t->context, 0));
    TK_FAILS(t, OVERLAP, symmem_rendezvous(t->context, ptr, tk_world_group(t), LONG_MS, &handle));
    TK_OK(t, symmem_free(t->context, ptr));
}

/* One buffer on one group after another: what a destroyed group had is gone, the buffer stays. It
 * is too large to be cut out of something larger, which it would keep from going with the groups.
 */
TK_TEST(order, destroyed_groups_leave_nothing, "SM-LIFE-05", .max_ranks = 4,
        .flags = TK_PROCESS_ONLY) {
    void *memory = tk_alloc(t, (size_t)9 << 20);
    struct resources_open descriptors = {0};
    char changed[512];
    int mappings = 0;
    for (int round = 0; round < 8; round++) {
        char name[16];
        snprintf(name, sizeof(name), "round-%d", round);
        symmem_group *group = tk_group(t, name, NULL, 0);
        symmem_handle *handle = tk_rendezvous(t, memory, group);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        tk_release(t, handle);
        tk_group_destroy(t, group);
        if (round == 2) {
            resources_take_open(&descriptors);
            mappings = resources_shared_mappings();
        }
    }
    TK_CHECK_MSG(t, resources_are_as_many(&descriptors, changed, sizeof(changed)), "%s", changed);
    TK_EQ_INT(t, mappings, resources_shared_mappings());
}
