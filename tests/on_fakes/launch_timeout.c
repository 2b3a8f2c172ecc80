/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * launch_timeout WHAT: one of two ranks. Rank 0's device does not begin kernels for a while, so its
 * calls without a stream abandon them. The calls return, report all failures and do not touch the
 * caller's memory afterwards, and after a reset everything works. WHAT is the name of some trials,
 * or one of these: graph; begun, for kernels that take long, with SYMMEM_CUDA_LATE_MS=1; cause, for
 * a kernel that has failed so that only those behind it do not begin, with
 * SYMMEM_CHECK_COLLECTIVES=1.
 */
#include "checks.h"

#define LIMIT_MS 1500u /* for the other rank to come, on a busy machine too */
#define MARK (-7.0f)
#define SMALL 1000
#define LARGE ((size_t)1 << 20)

static struct own {
    symmem_context *context;
    symmem_group *world;
    symmem_handle *handle;
    float *buffer, *input, *out;
    int32_t channel;
} own;

static void expect_status_of(symmem_status got, symmem_status wanted, const char *text,
                             int number) {
    char line[200];
    snprintf(line, sizeof line, "%s (%d)", text, number);
    expect_status(got, wanted, line);
}

static void meet(void) {
    need(symmem_group_barrier(own.world, PATIENCE_MS), "the ranks do not come together");
}

static float *floats(size_t count) {
    float *values = malloc(count * sizeof *values);
    if (values == NULL)
        exit(1);
    return values;
}

static void fill(float *to, size_t count, float value) {
    float *values = floats(count);
    for (size_t i = 0; i < count; i++)
        values[i] = value;
    need(symmem_copy(own.context, to, values, count * sizeof *values, NULL), "fill");
    free(values);
}

static bool holds(const float *from, size_t count, float value) {
    float *copy = floats(count);
    need(symmem_copy(own.context, copy, from, count * sizeof *copy, NULL), "copy");
    size_t same = 0;
    while (same < count && copy[same] == value)
        same++;
    free(copy);
    return same == count;
}

/* --- the calls ----------------------------------------------------------------------- */

static symmem_status all_reduce(size_t elements, uint32_t limit_ms) {
    int64_t count = (int64_t)elements;
    const DLTensor buffer = tensor_at(own.buffer, kDLFloat, 1, &count),
                   input = tensor_at(own.input, kDLFloat, 1, &count),
                   out = tensor_at(own.out, kDLFloat, 1, &count);
    return symmem_one_shot_all_reduce_copy_out(own.handle, &buffer, &input, SYMMEM_SUM, &out,
                                               own.channel, limit_ms, NULL);
}

static symmem_status run_barrier(uint32_t limit_ms) {
    return symmem_barrier(own.handle, own.channel, limit_ms, NULL);
}

/* Both ways at once: each rank to the other one. */
static symmem_status run_signal(uint32_t limit_ms) {
    symmem_status status =
        symmem_put_signal(own.handle, 1 - checks.rank, own.channel, limit_ms, NULL);
    return status == SYMMEM_OK
               ? symmem_wait_signal(own.handle, 1 - checks.rank, own.channel, limit_ms, NULL)
               : status;
}

static symmem_status run_small(uint32_t limit_ms) {
    return all_reduce(SMALL, limit_ms);
}

static symmem_status run_large(uint32_t limit_ms) {
    return all_reduce(LARGE, limit_ms);
}

typedef struct attempt {
    const char *name;
    symmem_status (*run)(uint32_t limit_ms);
    int after;           /* so many kernels of rank 0's begin */
    symmem_status other; /* what rank 1 gets */
    int32_t channel;
    bool done;      /* by them, all that concerns out */
    size_t reduces; /* elements; 0: a signal */
} attempt;

static const attempt trials[] = {
    {"barrier", run_barrier, 0, SYMMEM_POISONED, 1, false, 0},
    {"signal", run_signal, 0, SYMMEM_POISONED, 1, false, 0},
    {"signal", run_signal, 1, SYMMEM_OK, 1, false, 0},
    {"lines", run_small, 0, SYMMEM_POISONED, 1, false, SMALL},
    {"one_block", run_small, 0, SYMMEM_POISONED, 9, false, SMALL},
    {"large", run_large, 0, SYMMEM_POISONED, 1, false, LARGE},
    {"large", run_large, 1, SYMMEM_POISONED, 1, false, LARGE},
    {"large", run_large, 2, SYMMEM_POISONED, 1, false, LARGE},
    {"large", run_large, 3, SYMMEM_POISONED, 1, true, LARGE},
};

/* Once the device is through with what was left. The ranks' answers are the same ones. */
static void reset(void) {
    symmem_status status = SYMMEM_BUSY;
    for (int i = 0; status == SYMMEM_BUSY && i < 500; i++) {
        status = symmem_handle_reset(own.handle, PATIENCE_MS);
        sleep_ms(status == SYMMEM_BUSY ? 20 : 0);
    }
    need(status, "reset");
}

/* --- a trial ------------------------------------------------------------------------- */

/* Rank 0 is in time, and says what it was; the other one learns of it. */
static void abandoned(const attempt *trial) {
    symmem_error_record record;
    if (checks.rank == 0)
        fake_hold_kernels(trial->after);
    const double begin_s = now_s();
    symmem_status status = trial->run(checks.rank == 0 ? LIMIT_MS : PATIENCE_MS);
    symmem_last_error(&record);
    expect_status_of(status, checks.rank == 0 ? SYMMEM_TIMEOUT : trial->other, trial->name,
                     trial->after);
    expect(now_s() - begin_s < 30, "it takes too long (%d)", trial->after);
    if (checks.rank != 0)
        return;
    expect(record.channel == own.channel && record.rank == 0 && strcmp(record.stage, "device") == 0,
           "the record (%d)", trial->after);
    expect(record.elapsed_ns >= LIMIT_MS * 1000000ull, "the time in the record (%d)", trial->after);
}

/* Memory of the caller's is the caller's again: it is neither written nor read. */
static void release(const attempt *trial) {
    if (checks.rank == 0 && !trial->done)
        expect(holds(own.out, LARGE, MARK), "out was written (%d)", trial->after);
    fill(own.input, LARGE, MARK);
    if (checks.rank == 0)
        fake_hold_kernels(-1);
    sleep_ms(100);
    if (checks.rank == 0 && !trial->done)
        expect(holds(own.out, LARGE, MARK), "out was written afterwards (%d)", trial->after);
    expect(!holds(own.buffer, 1, MARK), "the input was read afterwards (%d)", trial->after);
    fill(own.input, LARGE, (float)(checks.rank + 1));
}

static void recover(const attempt *trial) {
    expect_status_of(symmem_handle_reset(own.handle, PATIENCE_MS), SYMMEM_BUSY, "reset too early",
                     trial->after);
    release(trial);
    meet();
    reset();
    need(trial->run(PATIENCE_MS), "the call after it");
    if (trial->reduces != 0)
        expect(holds(own.out, trial->reduces, 3.0f), "the sum after it (%d)", trial->after);
}

static void run_trial(const attempt *trial) {
    own.channel = trial->channel;
    fill(own.out, LARGE, MARK);
    fill(own.input, LARGE, (float)(checks.rank + 1));
    meet();
    abandoned(trial);
    recover(trial);
    meet();
}

/* A graph begins another operation on the same channel: that sets nothing free. */
static void behind_a_graph(void) {
    const attempt trial = {"before a graph", run_large, 2, SYMMEM_POISONED, 9, false, LARGE};
    int64_t few = SMALL, all = 2 * SMALL;
    symmem_stream *stream = stream_on(own.context, -1);
    float *parts = memory_of(own.context, 2 * SMALL * sizeof(float));
    const DLTensor input = tensor_at(own.input, kDLFloat, 1, &few),
                   out = tensor_at(parts, kDLFloat, 1, &all);
    need(symmem_stream_begin_capture(stream), "capture");
    need(symmem_low_contention_all_gather_out(own.handle, &input, &out, 9, PATIENCE_MS, stream),
         "a captured operation");
    symmem_graph *graph = end_capture(stream);
    for (int i = 0; i < 5; i++) {
        own.channel = trial.channel;
        fill(own.out, LARGE, MARK);
        meet();
        abandoned(&trial);
        if (checks.rank == 0) {
            need(symmem_graph_launch(graph, stream), "launch");
            sleep_ms(50);
            fake_hold_kernels(-1);
            sleep_ms(100);
            expect(holds(own.out, LARGE, MARK), "out was written beside a graph (%d)", i);
            expect_status_of(symmem_stream_synchronize(stream, PATIENCE_MS), SYMMEM_POISONED,
                             "the graph", i);
        }
        meet();
        reset();
    }
    need(symmem_graph_destroy(graph), "graph");
    end_stream(stream);
    need(symmem_free(own.context, parts), "free");
}

/*
 * The kernel works for longer than the call's patience, so the call waits for it. Whether it works
 * already when its call would abandon it is chance: the shortest limit makes it likely, but on a
 * busy machine a longer one is needed.
 */
static void begun(void) {
    float *before = floats(LARGE), *after = floats(LARGE);
    own.channel = 9;
    for (int i = 0; i < 40; i++) {
        fill(own.out, LARGE, MARK);
        fill(own.input, LARGE, (float)(checks.rank + 1));
        meet();
        symmem_status status = run_large(i % 2 == 0 ? 1 : 1 + (uint32_t)i / 2 % 8);
        expect(status == SYMMEM_OK || status == SYMMEM_TIMEOUT || status == SYMMEM_POISONED,
               "%s (%d)", symmem_status_name(status), i);
        need(symmem_copy(own.context, before, own.out, LARGE * sizeof(float), NULL), "copy");
        sleep_ms(20);
        need(symmem_copy(own.context, after, own.out, LARGE * sizeof(float), NULL), "copy");
        expect(memcmp(before, after, LARGE * sizeof(float)) == 0, "out was written afterwards (%d)",
               i);
        meet();
        reset();
    }
    free(before);
    free(after);
}

/* The ranks differ, and all are told so. The handle has to be reset all the same. */
static void cause(void) {
    own.channel = 9;
    if (checks.rank == 0)
        fake_hold_kernels(1);
    expect_status_of(all_reduce(checks.rank == 0 ? LARGE : LARGE - 64, PATIENCE_MS / 10),
                     SYMMEM_MISMATCH, "different calls", 0);
    meet();
    expect_status_of(run_barrier(PATIENCE_MS), SYMMEM_POISONED, "the next call", 0);
    meet();
    if (checks.rank == 0)
        fake_hold_kernels(-1);
    sleep_ms(100);
    meet();
    reset();
    need(run_large(PATIENCE_MS), "the call after it");
}

/* What is on the device outlives everything that it is about. */
static void leave(void) {
    if (checks.rank == 0)
        fake_hold_kernels(0);
    expect_status_of(run_barrier(checks.rank == 0 ? LIMIT_MS : PATIENCE_MS),
                     checks.rank == 0 ? SYMMEM_TIMEOUT : SYMMEM_POISONED, "the last one", 0);
    symmem_handle_release(own.handle);
    symmem_context_free(own.context);
    if (checks.rank == 0)
        fake_hold_kernels(-1);
    sleep_ms(300);
}

static void begin(void) {
    need(symmem_context_rank(own.context, &checks.rank), "rank");
    own.world = group_of_all(own.context, "world");
    own.buffer = memory_of(own.context, LARGE * sizeof(float));
    own.input = memory_of(own.context, LARGE * sizeof(float));
    own.out = memory_of(own.context, LARGE * sizeof(float));
    own.handle = meet_on(own.context, own.buffer, own.world);
}

/* False: there is nothing of that name. */
static bool run(const char *mode) {
    static const struct {
        const char *name;
        void (*run)(void);
    } others[] = {{"graph", behind_a_graph}, {"begun", begun}, {"cause", cause}};
    int runs = 0;
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++)
        if (strcmp(mode, trials[i].name) == 0) {
            run_trial(&trials[i]);
            runs++;
        }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(mode, others[i].name) == 0) {
            others[i].run();
            runs++;
        }
    return runs > 0;
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    need(symmem_init(NULL, &own.context), "init");
    begin();
    if (!run(mode))
        return 1;
    leave();
    return checks_end();
}
