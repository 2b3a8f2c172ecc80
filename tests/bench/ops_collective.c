/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives. Sums, as in MPI's part. */
#include "rank.h"

/* --- reductions --------------------------------------------------------------------- */

/* Symmetric to private, in place, or private to private: as the op's flags say. */
static symmem_status all_reduce(bench_rank *self) {
    return symmem_all_reduce(self->handle, &self->in_tensor, SYMMEM_SUM, &self->out_tensor,
                             BENCH_ON_CHANNEL);
}

static symmem_status one_shot(bench_rank *self) {
    return symmem_one_shot_all_reduce_out(self->handle, &self->in_tensor, SYMMEM_SUM,
                                          &self->out_tensor, BENCH_ON_CHANNEL);
}

/* The way there lies in the handle's memory. */
static symmem_status one_shot_copy(bench_rank *self) {
    DLTensor buffer = self->in_tensor;
    buffer.data = self->symmetric;
    return symmem_one_shot_all_reduce_copy_out(self->handle, &buffer, &self->in_tensor, SYMMEM_SUM,
                                               &self->out_tensor, BENCH_ON_CHANNEL);
}

static symmem_status two_shot(bench_rank *self) {
    return symmem_two_shot_all_reduce(self->handle, &self->in_tensor, SYMMEM_SUM, BENCH_ON_CHANNEL);
}

static symmem_status two_shot_out(bench_rank *self) {
    return symmem_two_shot_all_reduce_out(self->handle, &self->in_tensor, SYMMEM_SUM,
                                          &self->out_tensor, BENCH_ON_CHANNEL);
}

static symmem_status reduce_scatter(bench_rank *self) {
    return symmem_reduce_scatter_out(self->handle, &self->in_tensor, SYMMEM_SUM, false,
                                     &self->out_tensor, BENCH_ON_CHANNEL);
}

/* Each row's own part: the last dimension is split. */
#define ROWS 16

static bool make_rows(bench_rank *self) {
    self->in_shape[1] = self->in_shape[0] / ROWS;
    self->out_shape[1] = self->out_shape[0] / ROWS;
    self->in_shape[0] = self->out_shape[0] = ROWS;
    self->in_tensor.ndim = self->out_tensor.ndim = 2;
    return true;
}

static symmem_status reduce_scatter_rows(bench_rank *self) {
    return symmem_reduce_scatter_out(self->handle, &self->in_tensor, SYMMEM_SUM, true,
                                     &self->out_tensor, BENCH_ON_CHANNEL);
}

static double summed_columns(const bench_rank *self, size_t index) {
    size_t columns = self->out_count / ROWS, row = index / columns;
    size_t before = (row * (size_t)self->ranks + (size_t)self->rank) * columns;
    return bench_summed(self, before + index % columns);
}

static symmem_status low_contention_reduce_scatter(bench_rank *self) {
    return symmem_low_contention_reduce_scatter(self->handle, &self->in_tensor, SYMMEM_SUM,
                                                &self->out_tensor, BENCH_ON_CHANNEL);
}

static double summed_part(const bench_rank *self, size_t index) {
    return bench_summed(self, (size_t)self->rank * self->out_count + index);
}

/* --- moves ---------------------------------------------------------------------------- */

static symmem_status all_gather(bench_rank *self) {
    return symmem_all_gather_out(self->handle, &self->in_tensor, &self->out_tensor,
                                 BENCH_ON_CHANNEL);
}

static symmem_status low_contention_all_gather(bench_rank *self) {
    return symmem_low_contention_all_gather_out(self->handle, &self->in_tensor, &self->out_tensor,
                                                BENCH_ON_CHANNEL);
}

static symmem_status broadcast(bench_rank *self) {
    return symmem_broadcast(self->handle, &self->in_tensor, 0, BENCH_ON_CHANNEL);
}

static symmem_status all_to_all(bench_rank *self) {
    return symmem_all_to_all_out(self->handle, &self->in_tensor, NULL, &self->out_tensor, NULL,
                                 BENCH_ON_CHANNEL);
}

/* The same parts by arrays, which ranks have to compare. */
static symmem_status all_to_all_splits(bench_rank *self) {
    size_t splits[SYMMEM_MAX_WORLD_SIZE];
    for (int rank = 0; rank < self->ranks; rank++)
        splits[rank] = self->count / (size_t)self->ranks;
    return symmem_all_to_all_out(self->handle, &self->in_tensor, splits, &self->out_tensor, splits,
                                 BENCH_ON_CHANNEL);
}

static double of_root(const bench_rank *self, size_t index) {
    (void)self;
    return bench_pattern(0, index);
}

static double exchanged(const bench_rank *self, size_t index) {
    size_t part = self->count / (size_t)self->ranks;
    return bench_pattern((int)(index / part), (size_t)self->rank * part + index % part);
}

const bench_op bench_collective_ops[] = {
    {.name = "all_reduce",
     .flags = BENCH_IN_SYMMETRIC,
     .once = all_reduce,
     .expected = bench_summed},
    {.name = "all_reduce_in_place",
     .flags = BENCH_IN_SYMMETRIC | BENCH_IN_PLACE,
     .once = all_reduce,
     .expected = bench_summed},
    {.name = "all_reduce_copy_out",
     .flags = BENCH_WAY_SYMMETRIC,
     .once = all_reduce,
     .expected = bench_summed},
    {.name = "one_shot_all_reduce",
     .flags = BENCH_IN_SYMMETRIC,
     .once = one_shot,
     .expected = bench_summed},
    {.name = "one_shot_all_reduce_copy_out",
     .flags = BENCH_WAY_SYMMETRIC,
     .once = one_shot_copy,
     .expected = bench_summed},
    {.name = "two_shot_all_reduce",
     .flags = BENCH_IN_SYMMETRIC | BENCH_IN_PLACE,
     .once = two_shot,
     .expected = bench_summed},
    {.name = "two_shot_all_reduce_out",
     .flags = BENCH_IN_SYMMETRIC,
     .once = two_shot_out,
     .expected = bench_summed},
    {.name = "reduce_scatter",
     .flags = BENCH_IN_SYMMETRIC,
     .scale = BENCH_PER_RANK,
     .once = reduce_scatter,
     .expected = summed_part},
    {.name = "reduce_scatter_rows",
     .flags = BENCH_IN_SYMMETRIC,
     .scale = BENCH_PER_RANK,
     .unit = ROWS,
     .prepare = make_rows,
     .once = reduce_scatter_rows,
     .expected = summed_columns},
    {.name = "low_contention_reduce_scatter",
     .flags = BENCH_IN_SYMMETRIC,
     .scale = BENCH_PER_RANK,
     .once = low_contention_reduce_scatter,
     .expected = summed_part},
    {.name = "all_gather",
     .flags = BENCH_IN_SYMMETRIC,
     .scale = BENCH_TIMES_RANKS,
     .once = all_gather,
     .expected = bench_gathered},
    {.name = "all_gather_push",
     .flags = BENCH_OUT_SYMMETRIC,
     .scale = BENCH_TIMES_RANKS,
     .once = all_gather,
     .expected = bench_gathered},
    {.name = "low_contention_all_gather",
     .flags = BENCH_IN_SYMMETRIC,
     .scale = BENCH_TIMES_RANKS,
     .once = low_contention_all_gather,
     .expected = bench_gathered},
    {.name = "broadcast",
     .flags = BENCH_IN_SYMMETRIC | BENCH_IN_PLACE,
     .once = broadcast,
     .expected = of_root},
    {.name = "all_to_all",
     .flags = BENCH_IN_SYMMETRIC,
     .scale = BENCH_PARTS,
     .once = all_to_all,
     .expected = exchanged},
    {.name = "all_to_all_splits",
     .flags = BENCH_IN_SYMMETRIC,
     .scale = BENCH_PARTS,
     .once = all_to_all_splits,
     .expected = exchanged},
    {.name = NULL},
};
