/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank: a graph that is launched on one stream and, behind that, on another one. Each stream
 * tells of its own launch, of one that found the handle poisoned by the one before it, too.
 */
#include "checks.h"

#define LIMIT_MS 100u
#define LONG_MS 10000u

static struct own {
    symmem_context *context;
    symmem_stream *first, *second;
    char *buffer;
} own;

static symmem_stream *make(void) {
    symmem_stream *stream = NULL;
    need(symmem_stream_create(own.context, 0, &stream), "stream");
    return stream;
}

static void begin(void) {
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    options.default_timeout_ms = LIMIT_MS;
    need(symmem_init(&options, &own.context), "init");
    need(symmem_alloc(own.context, 64, 0, NULL, (void **)&own.buffer), "alloc");
    own.first = make();
    own.second = make();
}

static symmem_graph *end_capture(void) {
    symmem_graph *graph = NULL;
    need(symmem_stream_end_capture(own.first, &graph), "graph");
    return graph;
}

static void launch_twice(symmem_graph *graph) {
    need(symmem_graph_launch(graph, own.first), "a launch");
    need(symmem_graph_launch(graph, own.second), "a launch behind it");
}

static void expect_told(symmem_stream *stream, symmem_status wanted, const char *text) {
    expect_status(symmem_stream_synchronize(stream, LONG_MS), wanted, text);
}

static symmem_handle *meet(void) {
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    need(symmem_group_create(own.context, "alone", NULL, 0, NULL, &group), "group");
    need(symmem_rendezvous(own.context, own.buffer, group, LONG_MS, &handle), "rendezvous");
    return handle;
}

static void expect_poisoned(void) {
    symmem_error_record record;
    expect_told(own.second, SYMMEM_POISONED, "the launch behind it");
    symmem_last_error(&record);
    expect(strcmp(record.operation, "wait_signal") == 0 && record.channel == 3 && record.rank == 0,
           "its record");
}

static void failures(void) {
    symmem_handle *handle = meet();
    need(symmem_stream_begin_capture(own.first), "capture");
    need(symmem_wait_signal(handle, 0, 3, LIMIT_MS, own.first), "a captured wait");
    symmem_graph *graph = end_capture();
    for (int i = 0; i < 4; i++) {
        launch_twice(graph);
        if (i % 2 == 0)
            expect_told(own.first, SYMMEM_TIMEOUT, "the launch that waits in vain");
        expect_poisoned();
        if (i % 2 != 0)
            expect_told(own.first, SYMMEM_TIMEOUT, "the launch that waited in vain");
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

int main(void) {
    begin();
    failures();
    need(symmem_stream_destroy(own.first), "the first's end");
    need(symmem_stream_destroy(own.second), "the second's end");
    need(symmem_free(own.context, own.buffer), "free");
    symmem_context_free(own.context);
    return checks_end();
}
