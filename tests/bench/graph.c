/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One op, captured many times in a graph, and how long the graph's launches take.
 *
 * By the device's clock: several launches in a row with a mark between each two, so that each has
 * been enqueued before the one before it has ended, and what a launch costs the host is not seen.
 * The first of them is not counted: until its end ranks come in at different times. Without such a
 * clock: each launch and the wait for its end, which are as many operations.
 */
#include "rank.h"

#define LAUNCHES 8 /* in a row, that count */
#define MAX_SAMPLES 4096
_Static_assert(LAUNCHES < DEVICE_CLOCK_MARKS, "a mark before each, and one at the end");

/* A graph and the stream that it runs on. */
typedef struct replay {
    bench_rank *rank;
    symmem_stream *stream;
    symmem_graph *graph;
    double us[LAUNCHES]; /* on this rank */
} replay;

static bool failed(const replay *self, const char *what) {
    return bench_failed(self->rank, what);
}

static bool capture(replay *self) {
    bench_rank *rank = self->rank;
    symmem_status status = symmem_stream_begin_capture(self->stream);
    if (status != SYMMEM_OK)
        return failed(self, "begin_capture");
    rank->stream = self->stream;
    for (int i = 0; i < rank->options->graph && status == SYMMEM_OK; i++)
        status = rank->op->once(rank);
    rank->stream = NULL;
    bool good = status == SYMMEM_OK || failed(self, rank->op->name);
    if (symmem_stream_end_capture(self->stream, &self->graph) != SYMMEM_OK)
        return good && failed(self, "end_capture");
    return good;
}

static bool launch(const replay *self) {
    return symmem_graph_launch(self->graph, self->stream) == SYMMEM_OK ||
           failed(self, "graph_launch");
}

static bool finish(const replay *self) {
    return symmem_stream_synchronize(self->stream, BENCH_TIMEOUT_MS) == SYMMEM_OK ||
           failed(self, "a launch");
}

static bool clock_failed(const replay *self) {
    return bench_tell(self->rank, "%s: the device's clock fails", self->rank->op->name);
}

static bool mark(const replay *self, int index) {
    return device_clock_mark(self->rank->clock, index) || clock_failed(self);
}

static bool time_by_device(replay *self) {
    device_clock *clock = self->rank->clock;
    bool good = world_barrier(self->rank->world) && launch(self);
    for (int i = 0; good && i < LAUNCHES; i++)
        good = mark(self, i) && launch(self);
    good = good && mark(self, LAUNCHES) && finish(self);
    for (int i = 0; good && i < LAUNCHES; i++)
        good = device_clock_between(clock, i, &self->us[i]) || clock_failed(self);
    return good;
}

static bool time_by_host(replay *self) {
    for (int i = 0; i < LAUNCHES; i++) {
        if (!world_barrier(self->rank->world))
            return false;
        uint64_t start_ns = bench_now_ns();
        if (!launch(self) || !finish(self))
            return false;
        self->us[i] = (double)(bench_now_ns() - start_ns) / 1000;
    }
    return true;
}

static bool time_launches(replay *self) {
    return self->rank->clock != NULL ? time_by_device(self) : time_by_host(self);
}

/* Each sample is the slowest rank's, so all see the same and stop together. */
static bool take_samples(replay *self, double *samples, bench_result *result) {
    const bench_options *options = self->rank->options;
    int64_t most = options->iterations > 0 ? options->iterations / options->graph : MAX_SAMPLES;
    most = most < 1 ? 1 : most > MAX_SAMPLES ? MAX_SAMPLES : most;
    for (double total_us = 0; total_us < options->seconds * 1e6 && result->samples < most;) {
        if (!time_launches(self))
            return false;
        for (int i = 0; i < LAUNCHES; i++) {
            double us;
            if (!world_largest(self->rank->world, self->rank->rank, self->us[i], &us))
                return false;
            total_us += us;
            if (result->samples < most)
                samples[result->samples++] = us / options->graph;
        }
    }
    return true;
}

static bool measure(replay *self, bench_result *result) {
    double *samples = malloc(sizeof *samples * MAX_SAMPLES);
    *result = (bench_result){.batch = self->rank->options->graph};
    bool good = (samples != NULL || bench_tell(self->rank, "no memory for samples")) &&
                capture(self) && time_launches(self) && /* one for warming up */
                take_samples(self, samples, result);
    if (good) {
        int divisor = self->rank->op->divisor > 0 ? self->rank->op->divisor : 1;
        for (int64_t i = 0; i < result->samples; i++)
            samples[i] /= divisor;
        result->median_us = bench_median(samples, (size_t)result->samples); /* sorts */
        result->min_us = samples[0];
        result->max_us = samples[result->samples - 1];
    }
    free(samples);
    return good;
}

/* A stream that has a clock is one of the driver's. */
static bool open_stream(replay *self) {
    bench_rank *rank = self->rank;
    symmem_status status =
        rank->clock != NULL
            ? symmem_stream_wrap(rank->context, rank->device.device_id,
                                 device_clock_stream(rank->clock), &self->stream)
            : symmem_stream_create(rank->context, rank->device.device_id, &self->stream);
    return status == SYMMEM_OK || failed(self, "stream");
}

bool bench_measure_graph(bench_rank *self, bench_result *result) {
    replay state = {.rank = self};
    bool good = open_stream(&state) && measure(&state, result);
    if (symmem_graph_destroy(state.graph) != SYMMEM_OK)
        good = good && failed(&state, "graph_destroy");
    if (symmem_stream_destroy(state.stream) != SYMMEM_OK)
        good = good && failed(&state, "stream_destroy");
    return good && world_barrier(self->world); /* before anybody's memory goes */
}
