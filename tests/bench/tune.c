/* SPDX-License-Identifier: BSD-3-Clause */
/* The algorithms of symmem_all_reduce, measured interleaved on the same memory. */
#include "tune.h"

#include "rank.h"

tune_data *tune_open(const bench_options *options, size_t element) {
    tune_data *data =
        mmap(NULL, sizeof *data, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        perror("no memory for what is measured");
        return NULL;
    }
    data->last_world = options->ranks;
    data->size_count = options->size_count;
    for (int i = 0; i < options->size_count; i++)
        data->sizes[i] = bench_whole_bytes(options->sizes[i], element, 1);
    tune_sort_sizes(data);
    return data;
}

void tune_close(tune_data *data) {
    munmap(data, sizeof *data);
}

static symmem_status all_reduce(bench_rank *self) {
    return symmem_all_reduce(self->handle, &self->in_tensor, SYMMEM_SUM, &self->out_tensor,
                             BENCH_ON_CHANNEL);
}

static const bench_op places[TUNE_PLACES] = {{.name = "all_reduce between private memory",
                                              .flags = BENCH_WAY_SYMMETRIC,
                                              .once = all_reduce,
                                              .expected = bench_summed},
                                             {.name = "all_reduce of symmetric memory",
                                              .flags = BENCH_IN_SYMMETRIC,
                                              .once = all_reduce,
                                              .expected = bench_summed}};

/* Both algorithms share the one context and its memory. The table selects the active one. */
typedef struct algorithm_turn {
    bench_rank *self;
    symmem_all_reduce_algorithm algorithm;
} algorithm_turn;

static bool choose(void *state) {
    const algorithm_turn *turn = state;
    const symmem_all_reduce_entry always = {
        .symmetric = -1, .max_bytes = UINT64_MAX, .algorithm = turn->algorithm};
    return symmem_set_all_reduce_table(turn->self->context, &always, 1) == SYMMEM_OK ||
           bench_failed(turn->self, "set_all_reduce_table");
}

static bool once(void *state) {
    const algorithm_turn *turn = state;
    bench_turn whole = bench_turn_of(turn->self);
    return whole.once(whole.state);
}

static bool measure(bench_rank *self, tune_cell *cell) {
    algorithm_turn states[SYMMEM_ALL_REDUCE_ALGORITHM_COUNT];
    bench_turn turns[SYMMEM_ALL_REDUCE_ALGORITHM_COUNT];
    bench_result results[SYMMEM_ALL_REDUCE_ALGORITHM_COUNT];
    for (int i = 0; i < SYMMEM_ALL_REDUCE_ALGORITHM_COUNT; i++) {
        states[i] = (algorithm_turn){.self = self, .algorithm = (symmem_all_reduce_algorithm)i};
        turns[i] = (bench_turn){.once = once, .prepare = choose, .state = &states[i]};
    }
    if (!bench_measure_turns(self, turns, SYMMEM_ALL_REDUCE_ALGORITHM_COUNT, results))
        return false;
    for (int i = 0; self->rank == 0 && i < SYMMEM_ALL_REDUCE_ALGORITHM_COUNT; i++)
        cell->results[i] = results[i];
    return true;
}

bool tune_rank(bench_rank *self, tune_data *data) {
    for (int place = 0; place < TUNE_PLACES; place++)
        for (int i = 0; i < data->size_count; i++) {
            tune_cell *cell = &data->cells[self->ranks - TUNE_FIRST_WORLD][place][i];
            bool supported;
            bool good = bench_begin(self, &places[place], data->sizes[i], &supported);
            if (good && !supported)
                fprintf(stderr, "%s: not supported here\n", places[place].name);
            good = good && supported && measure(self, cell);
            bench_end(self);
            if (!good)
                return false;
        }
    return true;
}
