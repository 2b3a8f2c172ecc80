/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank: a graph that is launched on one stream and, behind that, on another one. Each stream
 * reports its own launch, also one that found the handle poisoned by the launch before it.
 * Destroying one stream, whose launch then waits for chunks that never come, does not affect the
 * other one. A launch whose end cannot be marked by an event is tested, too.
 */
#include "checks.h"

#define LIMIT_MS 100u
#define LONG_MS 10000u

static struct own {
    symmem_context *context;
    symmem_group *group;
    symmem_stream *first, *second;
    char *buffer;
} own;

static void begin(void) {
    own.context = begin_alone(LIMIT_MS, NULL);
    own.group = group_of_all(own.context, "alone");
    own.buffer = memory_of(own.context, 64);
    own.first = stream_on(own.context, 0);
    own.second = stream_on(own.context, 0);
}

static void launch_twice(symmem_graph *graph) {
    need(symmem_graph_launch(graph, own.first), "a launch");
    need(symmem_graph_launch(graph, own.second), "a launch behind it");
}

static void expect_told(symmem_stream *stream, symmem_status wanted, const char *text) {
    expect_status(symmem_stream_synchronize(stream, LONG_MS), wanted, text);
}

/* --- both fail ------------------------------------------------------------------------ */

static void expect_poisoned(void) {
    symmem_error_record record;
    expect_told(own.second, SYMMEM_POISONED, "the launch behind it");
    symmem_last_error(&record);
    expect(strcmp(record.operation, "wait_signal") == 0 && record.channel == 3 && record.rank == 0,
           "its record");
}

static void failures(void) {
    symmem_handle *handle = meet_on(own.context, own.buffer, own.group);
    need(symmem_stream_begin_capture(own.first), "capture");
    need(symmem_wait_signal(handle, 0, 3, LIMIT_MS, own.first), "a captured wait");
    symmem_graph *graph = end_capture(own.first);
    for (int i = 0; i < 4; i++) {
        launch_twice(graph);
        if (i % 2 == 0)
            expect_told(own.first, SYMMEM_TIMEOUT, "the launch that waits for nothing");
        expect_poisoned();
        if (i % 2 != 0)
            expect_told(own.first, SYMMEM_TIMEOUT, "the launch that waited for nothing");
        expect_told(own.first, SYMMEM_OK, "once more");
        expect_told(own.second, SYMMEM_OK, "once more behind it");
        need(symmem_handle_reset(handle, LONG_MS), "reset");
        need(symmem_put_signal(handle, 0, 3, LIMIT_MS, NULL), "what it waits for");
        need(symmem_graph_launch(graph, own.second), "a launch");
        expect_told(own.second, SYMMEM_OK, "the launch after a reset");
    }
    need(symmem_graph_destroy(graph), "graph");
    symmem_handle_release(handle);
}

/* --- one has no mark ------------------------------------------------------------------- */

/* The device does not come to it, and the driver does not mark its end for the core, which so does
 * not know that it is pending. A reset is not to begin before it, for it puts a signal after that.
 */
static void unmarked(void) {
    symmem_handle *handle = meet_on(own.context, own.buffer, own.group);
    bool idle = false;
    need(symmem_stream_begin_capture(own.first), "capture");
    need(symmem_put_signal(handle, 0, 3, LIMIT_MS, own.first), "a captured signal");
    symmem_graph *graph = end_capture(own.first);
    fake_hold_kernels(0);
    fake_fail_calls("cuEventRecord", 1, 1, CUDA_ERROR_UNKNOWN);
    need_status(symmem_graph_launch(graph, own.first), SYMMEM_BACKEND, "a launch without a mark");
    expect_status(symmem_handle_reset(handle, LONG_MS), SYMMEM_BUSY, "a reset meanwhile");
    fake_hold_kernels(-1);
    while (!idle)
        need(symmem_stream_query(own.first, &idle), "its stream");
    need(symmem_handle_reset(handle, LONG_MS), "a reset after it");
    expect_status(symmem_wait_signal(handle, 0, 3, LIMIT_MS, NULL), SYMMEM_TIMEOUT,
                  "a signal of before the reset");
    need(symmem_graph_destroy(graph), "graph");
    symmem_handle_release(handle);
}

/* --- one is given up ------------------------------------------------------------------ */

static void copy(void *to, const void *from, size_t bytes) {
    need(symmem_copy(own.context, to, from, bytes, NULL), "copy");
}

static DLTensor words_at(int64_t *count) {
    return tensor_at(own.buffer + 48, kDLUInt, 1, count);
}

static void put_words(int64_t value) {
    int64_t count = 2;
    const DLTensor words = words_at(&count);
    for (int64_t i = 0; i < count; i++)
        need(symmem_stream_write_value32(own.context, &words, i, value, NULL), "a word");
}

/* Identity times `first`, first + 1 and so on. */
static void put_factors(float first) {
    const float factors[12] = {1, 0, 0, 1, first, first + 1, first + 2, first + 3, -1, -1, -1, -1};
    copy(own.buffer, factors, sizeof factors);
}

static void expect_product(float first) {
    float got[4];
    copy(got, own.buffer + 32, sizeof got);
    expect(got[0] == first && got[1] == first + 1 && got[2] == first + 2 && got[3] == first + 3,
           "the product");
}

static symmem_graph *capture_product(void) {
    int64_t shape[2] = {2, 2};
    const DLTensor a = tensor_at(own.buffer, kDLFloat, 2, shape),
                   b = tensor_at(own.buffer + 16, kDLFloat, 2, shape),
                   out = tensor_at(own.buffer + 32, kDLFloat, 2, shape), words = words_at(shape);
    need(symmem_stream_begin_capture(own.first), "capture");
    need(symmem_async_input_mm(own.context, &a, &b, &words, 0, &out, LONG_MS, own.first),
         "a captured product");
    return end_capture(own.first);
}

static symmem_event *mark_first(void) {
    symmem_event *over = NULL;
    need(symmem_event_create(own.context, 0, &over), "event");
    need(symmem_event_record(over, own.first), "its place");
    return over;
}

/* The watcher has looked at it many times over since its stream was given up. */
static void expect_waits(symmem_event *over, const char *text) {
    bool reached = true;
    sleep_ms(400);
    need(symmem_event_query(over, &reached), "event");
    expect(!reached, "%s", text);
}

/* Behind it another one waits for the same chunks, before that or only afterwards. */
static void give_one_up(symmem_graph *graph, bool before, float first) {
    put_words(0);
    put_factors(first);
    need(symmem_graph_launch(graph, own.first), "a launch");
    symmem_event *over = mark_first();
    if (before)
        need(symmem_graph_launch(graph, own.second), "a launch behind it");
    need_status(symmem_stream_destroy(own.first), SYMMEM_TIMEOUT, "the end of its stream");
    own.first = stream_on(own.context, 0);
    if (before)
        expect_waits(over, "a launch is given up that another one waits behind");
    else
        need(symmem_graph_launch(graph, own.second), "a launch behind one that is given up");
    put_words(1);
    expect_told(own.second, SYMMEM_OK, "the launch that is waited for");
    expect_product(first);
    symmem_event_destroy(over);
}

/* Without a waiting caller both end, long before their limit. */
static void give_both_up(symmem_graph *graph) {
    const double begin_s = now_s();
    put_words(0);
    launch_twice(graph);
    need_status(symmem_stream_destroy(own.first), SYMMEM_TIMEOUT, "the end of the first");
    need_status(symmem_stream_destroy(own.second), SYMMEM_TIMEOUT, "the end of the second");
    symmem_status status = SYMMEM_TIMEOUT;
    while (status == SYMMEM_TIMEOUT && now_s() - begin_s < LONG_MS / 2e3)
        status = symmem_graph_destroy(graph);
    expect_status(status, SYMMEM_OK, "graph");
    own.first = stream_on(own.context, 0);
    own.second = stream_on(own.context, 0);
}

static void given_up(void) {
    symmem_graph *graph = capture_product();
    for (int i = 0; i < 4; i++)
        give_one_up(graph, i % 2 == 0, (float)i);
    give_both_up(graph);
}

int main(void) {
    begin();
    failures();
    unmarked();
    given_up();
    end_stream(own.first);
    end_stream(own.second);
    need(symmem_free(own.context, own.buffer), "free");
    symmem_context_free(own.context);
    return checks_end();
}
