/* SPDX-License-Identifier: BSD-3-Clause */
/* How long an operation takes. bench.h says how it is measured. */
#include "bench.h"

#define MAX_SAMPLES 20000
#define MIN_SAMPLES 3
#define MAX_BATCH ((int64_t)1 << 24)

uint64_t bench_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double bench_median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

void bench_pin(const bench_options *options, int rank) {
    cpu_set_t allowed, one;
    if (!options->pin || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    int wanted = rank % CPU_COUNT(&allowed);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || wanted-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        (void)sched_setaffinity(0, sizeof one, &one); /* a wish */
        return;
    }
}

void bench_rewrite(void *memory, size_t bytes) {
    volatile uint32_t *words = memory;
    for (size_t i = 0; i < bytes / sizeof *words; i += BENCH_LINE / sizeof *words)
        words[i] = 0;
}

void bench_read(const void *memory, size_t bytes) {
    const volatile uint32_t *words = memory;
    for (size_t i = 0; i < bytes / sizeof *words; i += BENCH_LINE / sizeof *words)
        (void)words[i];
}

size_t bench_whole_bytes(size_t bytes, size_t element, size_t parts) {
    size_t unit = element * parts;
    return (bytes + unit - 1) / unit * unit;
}

static bool run_steps(bench_step once, void *state, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!once(state))
            return false;
    return true;
}

/* Microseconds that `count` operations take on the slowest rank. */
static bool time_batch(const bench_side *side, const bench_turn *turn, int64_t count,
                       double *us_p) {
    if ((turn->prepare != NULL && !turn->prepare(turn->state)) || !side->barrier(side->arg))
        return false;
    uint64_t start_ns = bench_now_ns();
    if (!run_steps(turn->once, turn->state, count))
        return false;
    return side->largest(side->arg, (double)(bench_now_ns() - start_ns) / 1000, us_p);
}

/* The batch to use, and what it takes. Every rank sees the same times and decides the same. */
static bool calibrate(const bench_side *side, const bench_options *options, const bench_turn *turn,
                      int64_t *batch_p, double *us_p) {
    int64_t limit = turn->single ? 1 : options->iterations > 0 ? options->iterations : MAX_BATCH;
    int64_t batch = 1;
    for (;;) {
        if (!time_batch(side, turn, batch, us_p))
            return false;
        if (*us_p >= BENCH_BATCH_US || batch >= limit)
            break;
        double factor = *us_p > 0 ? 1.3 * BENCH_BATCH_US / *us_p : 8;
        factor = factor < 1.5 ? 1.5 : factor > 8 ? 8 : factor;
        batch = (int64_t)((double)batch * factor) + 1;
        if (batch > limit)
            batch = limit;
    }
    *batch_p = batch;
    return true;
}

/* The plan of one kind of samples: how often it runs, and for how long at most. */
typedef struct plan {
    bench_turn turn;
    bench_result *result;
    double *samples;
    int64_t planned;
    double total_us;
} plan;

static int64_t sample_count(const bench_options *options, int64_t batch, double batch_us) {
    int64_t count = options->iterations > 0 ? options->iterations / batch
                                            : (int64_t)(options->seconds * 1e6 / batch_us);
    int64_t least = options->iterations > 0 ? 1 : MIN_SAMPLES;
    return count < least ? least : count > MAX_SAMPLES ? MAX_SAMPLES : count;
}

static bool warm_up(const bench_turn *turn, int64_t count) {
    int64_t in_a_row = turn->single ? 1 : count;
    for (int64_t i = 0; i < count; i += in_a_row)
        if ((turn->prepare != NULL && !turn->prepare(turn->state)) ||
            !run_steps(turn->once, turn->state, in_a_row))
            return false;
    return true;
}

static bool begin_plan(const bench_side *side, const bench_options *options, plan *self) {
    double batch_us;
    if (!warm_up(&self->turn, options->warmup) ||
        !calibrate(side, options, &self->turn, &self->result->batch, &batch_us))
        return false;
    self->planned = sample_count(options, self->result->batch, batch_us);
    self->samples = calloc((size_t)self->planned, sizeof *self->samples);
    return self->samples != NULL;
}

/* Takes fewer than planned if batches have become slow, as they do on a busy machine. */
static bool wants_more(const plan *self, const bench_options *options) {
    return self->result->samples < self->planned &&
           (self->result->samples < MIN_SAMPLES || self->total_us <= 2e6 * options->seconds);
}

static bool take_sample(const bench_side *side, plan *self) {
    bench_result *result = self->result;
    int divisor = self->turn.divisor > 0 ? self->turn.divisor : 1;
    double us;
    if (!time_batch(side, &self->turn, result->batch, &us))
        return false;
    self->samples[result->samples++] = us / (double)result->batch / divisor;
    self->total_us += us;
    return true;
}

/* Takes one sample of each kind as long as each needs more, so that compared samples are
 * interleaved. */
static bool take_samples(const bench_side *side, const bench_options *options, plan *plans,
                         int count) {
    for (;;) {
        for (int i = 0; i < count; i++)
            if (!wants_more(&plans[i], options))
                return true;
        for (int i = 0; i < count; i++)
            if (!take_sample(side, &plans[i]))
                return false;
    }
}

static void summarize(plan *self) {
    bench_result *result = self->result;
    result->median_us = bench_median(self->samples, (size_t)result->samples);
    result->min_us = self->samples[0];
    result->max_us = self->samples[result->samples - 1];
}

bool bench_measure_by_turns(const bench_side *side, const bench_options *options,
                            const bench_turn *turns, int count, bench_result *results) {
    plan plans[BENCH_MAX_TURNS];
    bool good = count <= BENCH_MAX_TURNS;
    int begun = 0;
    for (; good && begun < count; begun++) {
        plans[begun] = (plan){.turn = turns[begun], .result = &results[begun]};
        memset(&results[begun], 0, sizeof results[begun]);
        good = begin_plan(side, options, &plans[begun]);
    }
    good = good && take_samples(side, options, plans, count);
    for (int i = 0; i < begun; i++) {
        if (good)
            summarize(&plans[i]);
        free(plans[i].samples);
    }
    return good;
}

bool bench_measure(const bench_side *side, const bench_options *options, bench_step once,
                   void *state, int divisor, bench_result *result) {
    const bench_turn turn = {.once = once, .state = state, .divisor = divisor};
    return bench_measure_by_turns(side, options, &turn, 1, result);
}
