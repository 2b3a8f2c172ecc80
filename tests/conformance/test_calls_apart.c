/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams and captures beside other things: the caller's frame, other threads, other devices. */
#include "sync_help.h"

struct target {
    symmem_context *context;
    symmem_handle *handle;
    uint32_t *words; /* of this rank's buffer */
    symmem_stream *stream;
    uint32_t limit_ms;
    int32_t rank;
    DLDeviceType device_type;
};

/* Descriptors of this frame, which is gone when the operations run. */
static __attribute__((noinline)) symmem_status enqueue_from_a_frame(const struct target *to,
                                                                    uint32_t value) {
    int64_t shape[2] = {4, 8};
    int64_t strides[2] = {8, 1};
    DLTensor tensor = {.data = to->words,
                       .device = {.device_type = to->device_type, .device_id = 0},
                       .ndim = 1,
                       .dtype = {.code = kDLUInt, .bits = 32, .lanes = 1},
                       .shape = &shape[1],
                       .strides = &strides[1]};
    symmem_status status = symmem_memset32(to->context, &tensor, 1, (int64_t)value, 3, to->stream);
    if (status == SYMMEM_OK)
        status =
            symmem_stream_write_value32(to->context, &tensor, 6, (int64_t)value + 1, to->stream);
    if (status == SYMMEM_OK)
        status = symmem_put_signal(to->handle, to->rank, 3, to->limit_ms, to->stream);
    if (status == SYMMEM_OK)
        status = symmem_wait_signal(to->handle, to->rank, 3, to->limit_ms, to->stream);
    return status;
}

static __attribute__((noinline)) void overwrite_the_frame(void) {
    volatile uint8_t bytes[4096];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = 0xFE;
}

static void check_words(struct tk *t, const struct target *to, uint32_t value) {
    const uint32_t expected[8] = {9, value, value, value, 9, 9, value + 1, 9};
    tk_expect_data(t, to->handle, t->rank, 0, expected, sizeof(expected));
}

static void reset_words(struct tk *t, const struct target *to) {
    const uint32_t nines[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    tk_write(t, to->handle, t->rank, 0, nines, sizeof(nines));
}

static struct target target_begin(struct tk *t) {
    struct target to = {.context = t->context,
                        .handle = tk_handle(t, 256, tk_world_group(t)),
                        .stream = tk_stream(t),
                        .limit_ms = LONG_MS,
                        .rank = t->rank,
                        .device_type = (DLDeviceType)t->device_type};
    void *const *buffers = buffers_of(t, to.handle);
    to.words = buffers[t->rank];
    reset_words(t, &to);
    return to;
}

TK_TEST(stream, arguments_are_taken_at_the_call, "SM-STREAM-18",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_FN, .max_ranks = 4,
        .flags = TK_PLAIN_MEMORY) {
    struct target to = target_begin(t);
    struct gate gate = {0};
    TK_OK(t, symmem_stream_host_fn(to.stream, gate_fn, &gate));
    symmem_status status = enqueue_from_a_frame(&to, 100);
    overwrite_the_frame();
    gate_open(&gate);
    TK_OK(t, status);
    tk_synchronize(t, to.stream);
    check_words(t, &to, 100);
}

TK_TEST(capture, arguments_are_taken_at_the_capture, "SM-STREAM-18", .needs = CAPTURE,
        .max_ranks = 4, .flags = TK_PLAIN_MEMORY) {
    struct target to = target_begin(t);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(to.stream));
    symmem_status status = enqueue_from_a_frame(&to, 200);
    overwrite_the_frame();
    symmem_graph *graph = tk_end_capture(t, to.stream);
    TK_OK(t, status);
    for (int i = 0; i < 3; i++) {
        reset_words(t, &to);
        overwrite_the_frame();
        run_graph(t, graph, to.stream);
        check_words(t, &to, 200);
    }
}

struct beside {
    struct tk *t;
    void *known;
    symmem_handle *handle;
    bool freed;
};

/* Everything that a thread may want while another one captures. */
static void *calls_beside(void *arg) {
    struct beside *beside = arg;
    struct tk *t = beside->t;
    symmem_group *group = NULL;
    symmem_stream *stream = NULL;
    void *memory = NULL;
    bool symmetric = false;
    uint32_t word = 5;
    TK_FAILS(t, CAPTURE, symmem_alloc(t->context, 4096, -1, NULL, &memory));
    symmem_status freed = symmem_free(t->context, beside->known);
    TK_STATUS_EITHER(t, SYMMEM_OK, SYMMEM_CAPTURE, freed);
    beside->freed = freed == SYMMEM_OK;
    TK_OK(t, symmem_is_symmetric(t->context, &word, &symmetric));
    TK_OK(t, symmem_group_create(t->context, "beside", NULL, 0, NULL, &group));
    TK_OK(t, symmem_group_barrier(group, LONG_MS));
    TK_OK(t, symmem_group_destroy(group));
    TK_OK(t, symmem_barrier(beside->handle, 5, LONG_MS, NULL));
    TK_OK(t, symmem_put(beside->handle, t->rank, 64, &word, 4, NULL));
    TK_OK(t, symmem_stream_create(t->context, -1, &stream));
    TK_OK(t, symmem_put(beside->handle, t->rank, 68, &word, 4, stream));
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
    TK_OK(t, symmem_stream_destroy(stream));
    return NULL;
}

TK_TEST(capture, calls_beside_leave_it_valid, "SM-STREAM-19,SM-ALLOC-09", .needs = CAPTURE,
        .max_ranks = 4, .flags = TK_PLAIN_MEMORY) {
    struct beside beside = {.t = t, .handle = tk_handle(t, 256, tk_world_group(t))};
    symmem_stream *stream = tk_stream(t);
    pthread_t thread;
    uint32_t value = 0x600D;
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 4096, -1, NULL, &beside.known));
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, symmem_put(beside.handle, t->rank, 0, &value, 4, stream));
    bool started = TK_CHECK(t, pthread_create(&thread, NULL, calls_beside, &beside) == 0);
    TK_CHECK(t, started && pthread_join(thread, NULL) == 0);
    expect_capturing(t, stream, true);
    TK_OK(t, symmem_barrier(beside.handle, 0, LONG_MS, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    tk_expect_bytes(t, beside.handle, t->rank, 0, 4, 0);
    for (uint32_t i = 0; i < 3; i++) {
        value += i;
        run_graph(t, graph, stream);
        tk_expect_data(t, beside.handle, t->rank, 0, &value, 4);
    }
    if (!beside.freed)
        TK_OK(t, symmem_free(t->context, beside.known));
}

#define REPLAYS 40

/* One graph on a channel and a piece of the buffers of its own, launched by a thread of its own. */
struct replayer {
    struct tk *t;
    symmem_handle *handle;
    symmem_stream *stream;
    symmem_graph *graph;
    int32_t number;
    uint32_t mine, seen, delay_ms;
};

static void record(struct tk *t, struct replayer *r) {
    uint32_t limit_ms = LONG_MS;
    size_t at = (size_t)r->number * 64;
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(r->stream));
    TK_OK(t, symmem_put(r->handle, t->next, at, &r->mine, 4, r->stream));
    TK_OK(t, symmem_barrier(r->handle, r->number, limit_ms, r->stream));
    TK_OK(t, symmem_get(r->handle, t->rank, at, &r->seen, 4, r->stream));
    TK_OK(t, symmem_put_signal(r->handle, t->next, r->number, limit_ms, r->stream));
    TK_OK(t, symmem_wait_signal(r->handle, t->previous, r->number, limit_ms, r->stream));
    TK_OK(t, symmem_barrier(r->handle, r->number, limit_ms, r->stream));
    TK_REQUIRE_OK(t, symmem_stream_end_capture(r->stream, &r->graph));
}

static void *replay(void *arg) {
    struct replayer *r = arg;
    struct tk *t = r->t;
    int32_t previous = t->previous;
    tk_sleep_ms(r->delay_ms);
    for (uint32_t g = 1; g <= REPLAYS && !tk_failed(t); g++) {
        r->mine = word_of(t->rank, g, (size_t)r->number);
        TK_OK(t, symmem_graph_launch(r->graph, r->stream));
        TK_OK(t, symmem_stream_synchronize(r->stream, LONG_MS));
        TK_EQ_INT(t, word_of(previous, g, (size_t)r->number), r->seen);
    }
    return NULL;
}

/* Ranks begin with different ones of the two graphs. */
TK_TEST(capture, graphs_of_two_channels_at_once, "SM-STREAM-07,SM-STREAM-09", .needs = CAPTURE,
        .max_ranks = 4, .flags = TK_PLAIN_MEMORY) {
    struct replayer replayers[2];
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    for (int32_t i = 0; i < 2; i++) {
        replayers[i] = (struct replayer){.t = t,
                                         .handle = handle,
                                         .stream = tk_stream(t),
                                         .number = (i + t->rank) % 2,
                                         .delay_ms = 2 * (uint32_t)i};
        record(t, &replayers[i]);
    }
    tk_in_threads(t, replay, replayers, sizeof(replayers[0]), 2);
    for (int i = 0; i < 2; i++)
        TK_OK(t, symmem_graph_destroy(replayers[i].graph));
}

/* Memory and streams of two devices of one rank alternately, each word handed from one to the
 * other. */
TK_TEST(stream, devices_alternate, "SM-STREAM-04,SM-BACKEND-11",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_OVERLAP, .max_ranks = 4,
        .flags = TK_PLAIN_MEMORY) {
    enum { ROUNDS = 30 };
    symmem_handle *handles[2];
    symmem_stream *streams[2] = {NULL, NULL};
    void *memory[2] = {NULL, NULL};
    symmem_event *events[2] = {NULL, NULL};
    const int32_t count = device_count(t);
    uint32_t words[ROUNDS];
    TK_OK(t, symmem_set_allow_overlapping_devices(t->context, 1));
    for (int32_t i = 0; i < 2; i++) {
        int32_t device = (own_device(t) + i) % count;
        TK_REQUIRE_OK(t, symmem_alloc(t->context, 4096, device, NULL, &memory[i]));
        handles[i] = tk_rendezvous(t, memory[i], tk_world_group(t));
        TK_EQ_INT(t, device, info_of(t, handles[i]).device);
        TK_REQUIRE_OK(t, symmem_stream_create(t->context, device, &streams[i]));
        TK_REQUIRE_OK(t, symmem_event_create(t->context, device, &events[i]));
    }
    for (int32_t i = 0; i < ROUNDS; i++) {
        int32_t from = i % 2;
        size_t at = (size_t)i * 4;
        words[i] = word_of(t->rank, (uint32_t)i, 0);
        TK_OK(t, symmem_put(handles[from], t->next, at, &words[i], 4, streams[from]));
        let_follow(t, streams[1 - from], events[from], streams[from]);
        TK_OK(t, symmem_barrier(handles[1 - from], 0, LONG_MS, streams[1 - from]));
        TK_OK(t, symmem_put(handles[1 - from], t->next, at, &words[i], 4, streams[1 - from]));
    }
    for (int i = 0; i < 2; i++)
        tk_synchronize(t, streams[i]);
    tk_out_of_band_barrier(t);
    for (int i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < ROUNDS; k++)
            words[k] = word_of(t->previous, k, 0);
        tk_expect_data(t, handles[i], t->rank, 0, words, sizeof(words));
    }
    tk_out_of_band_barrier(t);
    for (int i = 0; i < 2; i++) {
        symmem_event_destroy(events[i]);
        TK_OK(t, symmem_stream_destroy(streams[i]));
        tk_release(t, handles[i]);
        TK_OK(t, symmem_free(t->context, memory[i]));
    }
}
