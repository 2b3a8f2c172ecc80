/* SPDX-License-Identifier: BSD-3-Clause */
/* What the programs on the fake driver that look at a rank from within have in common: what was
 * wrong is told and counted; time; and what is made of the library's, which has to succeed. */
#ifndef FAKE_CUDA_CHECKS_H
#define FAKE_CUDA_CHECKS_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/symmem.h>
#include <time.h>
#include <unistd.h>

#include "cuda_control.h"

static struct {
    int rank;
    atomic_int bad;
} checks;

/* With the record of this thread's last failure. */
static inline void expect(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void expect(bool good, const char *format, ...) {
    symmem_error_record record;
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    symmem_last_error(&record);
    if (good)
        return;
    printf("BAD: rank %d: %s; %s in %s, %s: %s\n", checks.rank, text,
           symmem_status_name(record.status), record.operation, record.stage, record.message);
    atomic_fetch_add(&checks.bad, 1);
}

static inline void expect_status(symmem_status got, symmem_status wanted, const char *text) {
    expect(got == wanted, "%s: %s and not %s", text, symmem_status_name(got),
           symmem_status_name(wanted));
}

static inline void expect_between(int got, int least, int most, const char *text) {
    expect(got >= least && got <= most, "%s: %d, not %d to %d", text, got, least, most);
}

static inline void expect_count(int got, int wanted, const char *text) {
    expect(got == wanted, "%s: %d and not %d", text, got, wanted);
}

/* Nothing that comes later would mean anything. */
static inline void need_status(symmem_status got, symmem_status wanted, const char *text) {
    expect_status(got, wanted, text);
    if (got != wanted)
        exit(1);
}

static inline void need(symmem_status status, const char *text) {
    need_status(status, SYMMEM_OK, text);
}

static inline int checks_end(void) {
    const int bad = atomic_load(&checks.bad);
    printf("rank %d: %d bad\n", checks.rank, bad);
    return bad == 0 ? 0 : 1;
}

static inline void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l}, NULL);
}

static inline double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline pthread_t start(void *(*run)(void *arg), void *arg) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, arg) != 0)
        exit(1);
    return thread;
}

/* --- of the library ----------------------------------------------------------------------- */

#define PATIENCE_MS 20000u /* for what is not to be late */

/* The only rank there is. */
static inline symmem_context *begin_alone(uint32_t limit_ms, symmem_log_fn listen) {
    symmem_context_options options;
    symmem_context *context = NULL;
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    options.default_timeout_ms = limit_ms;
    options.log = listen;
    need(symmem_init(&options, &context), "init");
    return context;
}

static inline symmem_group *group_of_all(symmem_context *context, const char *name) {
    symmem_group *group = NULL;
    need(symmem_group_create(context, name, NULL, 0, NULL, &group), "group");
    return group;
}

static inline void *memory_of(symmem_context *context, size_t bytes) {
    void *memory = NULL;
    need(symmem_alloc(context, bytes, -1, NULL, &memory), "alloc");
    return memory;
}

static inline symmem_handle *meet_on(symmem_context *context, void *memory, symmem_group *group) {
    symmem_handle *handle = NULL;
    need(symmem_rendezvous(context, memory, group, PATIENCE_MS, &handle), "rendezvous");
    return handle;
}

static inline void free_both(symmem_context *context, symmem_handle *handle, void *memory) {
    symmem_handle_release(handle);
    need(symmem_free(context, memory), "free");
}

static inline symmem_stream *stream_on(symmem_context *context, int32_t device) {
    symmem_stream *stream = NULL;
    need(symmem_stream_create(context, device, &stream), "stream");
    return stream;
}

static inline void end_stream(symmem_stream *stream) {
    need(symmem_stream_destroy(stream), "its end");
}

static inline symmem_graph *end_capture(symmem_stream *stream) {
    symmem_graph *graph = NULL;
    need(symmem_stream_end_capture(stream, &graph), "graph");
    return graph;
}

static inline DLTensor tensor_at(void *at, DLDataTypeCode code, int ndim, int64_t *shape) {
    return (DLTensor){.data = at,
                      .device = {.device_type = kDLCUDA, .device_id = checks.rank},
                      .ndim = ndim,
                      .dtype = {.code = (uint8_t)code, .bits = 32, .lanes = 1},
                      .shape = shape};
}

#endif
