/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What symmem-bench, the MPI programs and the limits share, so that all of them take the same
 * options, time in the same way and print the same lines. Needs libc alone.
 */
#ifndef SYMMEM_BENCH_H
#define SYMMEM_BENCH_H

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BENCH_MAX_SIZES 64
#define BENCH_MAX_GRAPH 10000
/* What all ranks have together is still a number of bytes, so that no memory comes out too small.
 */
#define BENCH_MAX_BYTES ((size_t)1 << 50)
#define BENCH_TEXT 1200 /* of a line that says what went wrong */
#define BENCH_LINE 64   /* bytes of a cache line */

/* --- options (options.c) ------------------------------------------------------------ */

typedef struct bench_options {
    const char *backend;
    const char *ops; /* names with commas between them, or "all" */
    const char *dtype;
    size_t sizes[BENCH_MAX_SIZES];
    int size_count;
    int ranks;
    bool threads; /* ranks are threads of one process */
    bool json;
    bool list;
    bool pin;           /* rank r on the r-th processor allowed, round about */
    bool rewrite;       /* each rank writes its input anew before every operation */
    int checking;       /* 0 off, 1 on, -1: as the library has it; BENCH_CHECKING_BOTH */
    bool tune;          /* measure the algorithms of all_reduce and print the table instead */
    bool serve;         /* measure what lines on standard input ask for, serve.c */
    int graph;          /* operations in a captured graph, which is timed; 0: calls are timed */
    double seconds;     /* of measuring, a size */
    int64_t iterations; /* at most so many operations a size; 0: what fits into `seconds` */
    int64_t warmup;     /* operations before the first that counts; 0: some */
    int timeout_s;      /* the whole run is ended after that */
} bench_options;

#define BENCH_CHECKING_BOTH 2 /* off and on, interleaved */

/* Exit statuses. */
enum { BENCH_DONE = 0, BENCH_FAILED = 1, BENCH_USAGE = 2, BENCH_NO_BACKEND = 3 };

/* True to go on; otherwise *status_p is what to exit with. Prints what is wrong. */
bool bench_options_parse(int argc, char **argv, bench_options *options, int *status_p);
/* Whether `name` is on a list with commas. */
bool bench_list_has(const char *list, const char *name);

/* --- measuring (measure.c) ---------------------------------------------------------- */

/* How the ranks of one program synchronize and compare numbers. Both functions return false if a
 * rank was lost. */
typedef struct bench_side {
    int rank;
    void *arg;
    bool (*barrier)(void *arg);
    bool (*largest)(void *arg, double value, double *largest_p); /* the same on all ranks */
} bench_side;

typedef struct bench_result {
    double median_us, min_us, max_us; /* of one operation */
    int64_t samples;
    int64_t batch; /* operations that one sample is the mean of */
} bench_result;

/* One operation. False if it failed. */
typedef bool (*bench_step)(void *state);

/* One kind of samples. */
typedef struct bench_turn {
    bench_step once;
    bench_step prepare; /* called before each batch, not timed; NULL: nothing */
    void *state;
    int divisor; /* 2 for a round trip of which one way is reported; 0 counts as 1 */
    bool single; /* each operation needs `prepare` before it: batches of one */
} bench_turn;

/*
 * Times the operations on all ranks together, with interleaved batches, so that other load on the
 * machine affects all of them alike. All ranks pass the same arguments. The results, one for each
 * kind, are the same everywhere.
 *
 * An operation shorter than a reading of the clock is timed in batches. A batch runs for
 * BENCH_BATCH_US, which is thousands of times what reading the clock takes, and short beside a time
 * slice of the scheduler. The ranks synchronize before each batch. A batch takes as long as its
 * slowest rank. One batch is one sample.
 */
#define BENCH_BATCH_US 300.0
#define BENCH_MAX_TURNS 4
bool bench_measure_by_turns(const bench_side *side, const bench_options *options,
                            const bench_turn *turns, int count, bench_result *results);
/* One operation alone. */
bool bench_measure(const bench_side *side, const bench_options *options, bench_step once,
                   void *state, int divisor, bench_result *result);

uint64_t bench_now_ns(void);
/* Median of values[0..count), which it sorts. */
double bench_median(double *values, size_t count);
/* Binds the caller to a processor if that was asked for. */
void bench_pin(const bench_options *options, int rank);
/* Writes a word into every cache line, so that no other core's copy stays valid. */
void bench_rewrite(void *memory, size_t bytes);
/* Reads a word of every cache line, as the first use of what came does. */
void bench_read(const void *memory, size_t bytes);
/* `bytes` as a size that elements and their equal parts fill: up to the next, never down. */
size_t bench_whole_bytes(size_t bytes, size_t element, size_t parts);

/* --- printing (result.c) ------------------------------------------------------------ */

typedef struct bench_line {
    const char *library; /* "symmem", "Open MPI 4.1.4" and so on */
    const char *backend; /* "" for others */
    const char *op;
    const char *dtype;  /* "" where it does not matter */
    const char *device; /* NULL: the processor */
    size_t bytes;
    int ranks;
    int checking;   /* checking of the ranks' arguments (0 off, 1 on, -1 not requested) */
    int graph;      /* operations in the graph that was timed; 0: calls were */
    bool by_device; /* timed by the device's clock */
} bench_line;

/* One line on standard output: JSON or, for people, a row of a table. */
void bench_print(const bench_options *options, const bench_line *line, const bench_result *result);
/* What went wrong, for who sent a request: a line {"error":"..."} on standard output. */
void bench_print_error(const char *text);
/* Returns the exit status of a process that has printed: `status`, or worse if the output
 * failed. */
int bench_printed(int status);

#endif
