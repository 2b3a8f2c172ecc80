/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * symmem-bench --tune: which algorithm symmem_all_reduce should choose. The algorithms are measured
 * interleaved in worlds of each size, and the resulting table is printed as C and as text.
 */
#ifndef SYMMEM_BENCH_TUNE_H
#define SYMMEM_BENCH_TUNE_H

#include "bench.h"

#include <symmem/symmem.h>

#define TUNE_FIRST_WORLD 2
#define TUNE_LAST_WORLD 17 /* two entries for each world size and place fill the longest table */
#define TUNE_WORLDS (TUNE_LAST_WORLD - TUNE_FIRST_WORLD + 1)

/* Where the input lies; the value is that of the entries' `symmetric`. In place, and where only the
 * output is symmetric, there is no choice. */
enum { TUNE_PRIVATE, TUNE_SYMMETRIC, TUNE_PLACES };

/* One size in one world. */
typedef struct tune_cell {
    bench_result results[SYMMEM_ALL_REDUCE_ALGORITHM_COUNT];
} tune_cell;

/* All that was measured. sizes ascend. */
typedef struct tune_data {
    int last_world;
    int size_count;
    size_t sizes[BENCH_MAX_SIZES];
    tune_cell cells[TUNE_WORLDS][TUNE_PLACES][BENCH_MAX_SIZES];
} tune_data;

/* tune_table.c: arithmetic alone. */

/* How many of the sizes, from the smallest on, one-shot should take: where the choice costs least
 * over the best that was measured, added up relative to it. */
int tune_crossover(const tune_cell *cells, int size_count);
/* The table; entries has room for SYMMEM_ALL_REDUCE_MAX_ENTRIES. Returns their number. The largest
 * world's entries hold for larger ones, too. */
int tune_table(const tune_data *data, symmem_all_reduce_entry *entries);
/* Sorts the sizes and takes out those that are there twice. */
void tune_sort_sizes(tune_data *data);

/* What --tune prints. */
void tune_print(const tune_data *data, const bench_options *options);
/* As an initializer in C, and as the value of SYMMEM_ALL_REDUCE_TABLE. */
void tune_print_c(FILE *file, const symmem_all_reduce_entry *entries, int count);
void tune_print_text(FILE *file, const symmem_all_reduce_entry *entries, int count);

/* tune.c: memory that the ranks share, as processes or threads. NULL: there is none, as printed. */
tune_data *tune_open(const bench_options *options, size_t element);
void tune_close(tune_data *data);
/* One rank's part in its world. False: it failed, and why was printed. */
struct bench_rank;
bool tune_rank(struct bench_rank *self, tune_data *data);

#endif
