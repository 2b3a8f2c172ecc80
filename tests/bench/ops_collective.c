/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives. Sums, as in MPI's part. */
#include "rank.h"

/* What every call ends with. */
#define ON_CHANNEL 0, BENCH_TIMEOUT_MS, NULL

/* --- reductions --------------------------------------------------------------------- */

/* Symmetric to private, in place, or private to private: as the op's flags say. */
static symmem_status all_reduce(bench_rank *self) {
    return symmem_all_reduce(self->handle, &self->in_tensor, SYMMEM_SUM, &self->out_tensor,
                             ON_CHANNEL);
}

static symmem_status one_shot(bench_rank *self) {
    return symmem_one_shot_all_reduce_out(self->handle, &self->in_tensor, SYMMEM_SUM,
                                          &self->out_tensor, ON_CHANNEL);
}

/* The way there lies in the handle's memory. */
static symmem_status one_shot_copy(bench_rank *self) {
    DLTensor buffer = self->in_tensor;
    buffer.data = self->symmetric;
    return symmem_one_shot_all_reduce_copy_out(self->handle, &buffer, &self->in_tensor, SYMMEM_SUM,
                                               &self->out_tensor, ON_CHANNEL);
}

static symmem_status two_shot(bench_rank *self) {
    return symmem_two_shot_all_reduce(self->handle, &self->in_tensor, SYMMEM_SUM, ON_CHANNEL);
}

static symmem_status two_shot_out(bench_rank *self) {
    return symmem_two_shot_all_reduce_out(self->handle, &self->in_tensor, SYMMEM_SUM,
                                          &self->out_tensor, ON_CHANNEL);
}

static symmem_status reduce_scatter(bench_rank *self) {
    return symmem_reduce_scatter_out(self->handle, &self->in_tensor, SYMMEM_SUM, false,
                                     &self->out_tensor, ON_CHANNEL);
}

static symmem_status low_contention_reduce_scatter(bench_rank *self) {
    return symmem_low_contention_reduce_scatter(self->handle, &self->in_tensor, SYMMEM_SUM,
                                                &self->out_tensor, ON_CHANNEL);
}

static double summed(const bench_rank *self, size_t index) {
    double sum = 0;
    for (int rank = 0; rank < self->ranks; rank++)
        sum += bench_pattern(rank, index);
    return sum;
}

static double summed_part(const bench_rank *self, size_t index) {
    return summed(self, (size_t)self->rank * self->out_count + index);
}

const bench_op bench_collective_ops[] = {
    {.name = "all_reduce", .flags = BENCH_IN_SYMMETRIC, .once = all_reduce, .expected = summed},
    {.name = "all_reduce_in_place",
     .flags = BENCH_IN_SYMMETRIC | BENCH_IN_PLACE,
     .once = all_reduce,
     .expected = summed},
    {.name = "all_reduce_copy_out",
     .flags = BENCH_WAY_SYMMETRIC,
     .once = all_reduce,
     .expected = summed},
    {.name = "one_shot_all_reduce",
     .flags = BENCH_IN_SYMMETRIC,
     .once = one_shot,
     .expected = summed},
    {.name = "one_shot_all_reduce_copy_out",
     .flags = BENCH_WAY_SYMMETRIC,
     .once = one_shot_copy,
     .expected = summed},
    {.name = "two_shot_all_reduce",
     .flags = BENCH_IN_SYMMETRIC | BENCH_IN_PLACE,
     .once = two_shot,
     .expected = summed},
    {.name = "two_shot_all_reduce_out",
     .flags = BENCH_IN_SYMMETRIC,
     .once = two_shot_out,
     .expected = summed},
    {.name = "reduce_scatter",
     .flags = BENCH_IN_SYMMETRIC,
     .scale = BENCH_PER_RANK,
     .once = reduce_scatter,
     .expected = summed_part},
    {.name = "low_contention_reduce_scatter",
     .flags = BENCH_IN_SYMMETRIC,
     .scale = BENCH_PER_RANK,
     .once = low_contention_reduce_scatter,
     .expected = summed_part},
    {.name = NULL},
};
