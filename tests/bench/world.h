/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts ranks on this machine, and synchronizes them outside of what is measured.
 *
 * It does not use the conformance runner's way of starting ranks. That one runs cases, with
 * watchdogs, ledgers and reports that a measurement does not need.
 */
#ifndef SYMMEM_BENCH_WORLD_H
#define SYMMEM_BENCH_WORLD_H

#include "bench.h"

#include <stdatomic.h>

#define WORLD_MAX_RANKS 1024
#define WORLD_LINE 128

/* One cache line. */
typedef struct world_word {
    _Alignas(BENCH_LINE) _Atomic uint32_t value;
} world_word;

/* Memory that all ranks share. */
typedef struct bench_world {
    world_word arrived;
    world_word round;
    world_word lost;   /* a rank has ended too early */
    world_word hop[2]; /* for a ping-pong of two ranks */
    world_word lines;  /* that rank 0 has read */
    char line[WORLD_LINE];
    int ranks;
    bool threads;
    _Atomic uint32_t ends[WORLD_MAX_RANKS]; /* 1 + the status a process means to end with */
    double values[WORLD_MAX_RANKS];
} bench_world;

/* What a rank does; returns its exit status. */
typedef int (*world_main)(bench_world *self, int rank, void *arg);

/*
 * Starts the ranks and waits for their end, at most options->timeout_s. Returns the largest of
 * their exit statuses. Ranks are child processes, or threads of one child process; none outlives
 * this call or the caller's process.
 */
int world_run(const bench_options *options, world_main rank_main, void *arg);

/* Returns when all ranks have arrived, or false if one is lost. */
bool world_barrier(bench_world *self);
/* A barrier that also gives every rank the largest value. */
bool world_largest(bench_world *self, int rank, double value, double *largest_p);

/* The next line of standard input, without its end: rank 0 reads it, the others sleep until it has.
 * *count_p is the rank's own, 0 at first. False at the end of the input, or if a rank is lost. */
bool world_read_line(bench_world *self, int rank, uint32_t *count_p, char line[WORLD_LINE]);

/* The two as bench_measure wants them. */
typedef struct world_seat {
    bench_world *world;
    int rank;
} world_seat;
bench_side world_side(world_seat *seat);

#endif
