/* SPDX-License-Identifier: BSD-3-Clause */
/* bench-compare: the lines of alternating runs set beside each other. */
#ifndef SYMMEM_BENCH_COMPARE_H
#define SYMMEM_BENCH_COMPARE_H

#include "bench.h"

#define COMPARE_MAX_ROUNDS 64
#define COMPARE_NAME 40

typedef enum compare_side { OURS, OPEN_MPI, MPICH, LIMIT, SIDE_COUNT } compare_side;

/* What the rounds gave. count 0: nothing. */
typedef struct compare_spread {
    double median, low, high;
    int count;
} compare_spread;

/* One op at one size. */
typedef struct compare_point {
    char op[COMPARE_NAME];
    char input[COMPARE_NAME]; /* reused, rewritten */
    size_t bytes;
    int ranks;
    double us[SIDE_COUNT][COMPARE_MAX_ROUNDS]; /* medians; 0: not measured in that round */
    double fastest[SIDE_COUNT];                /* batch of all rounds; 0: none */
    compare_spread spread[SIDE_COUNT];
    compare_side best;    /* the faster MPI; OURS: there is none */
    compare_spread ratio; /* of that to ours, round by round */
    double fastest_ratio; /* of the faster MPI's fastest batch to ours: what a busy machine leaves
                             alone */
    double limit_us;      /* 0: unknown */
} compare_point;

typedef struct compare_data {
    compare_point *points;
    size_t count, capacity;
    int rounds;
    char library[SIDE_COUNT][COMPARE_NAME];
    char device[128], arch[COMPARE_NAME], commit[64];
} compare_data;

/* compare_read.c. False without memory or if no line could be used. */
bool compare_read(FILE *in, compare_data *data);
void compare_finish(compare_data *data);

/* compare_print.c */
void compare_print_table(const compare_data *data, FILE *out);
void compare_print_json(const compare_data *data, FILE *out);
/* "8 KiB" */
void compare_size_text(size_t bytes, char *text, size_t capacity);

/* compare_bars.c: the ratios that the project wants to reach. */
void compare_print_bars(const compare_data *data, FILE *out);
void compare_print_bars_json(const compare_data *data, FILE *out);

#endif
