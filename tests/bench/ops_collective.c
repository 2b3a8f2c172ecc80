/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives. Sums, as in MPI's part. */
#include "rank.h"

static symmem_status one_shot_all_reduce(bench_rank *self) {
    return symmem_one_shot_all_reduce_out(self->handle, &self->in_tensor, SYMMEM_SUM,
                                          &self->out_tensor, 0, BENCH_TIMEOUT_MS, NULL);
}

static double summed(const bench_rank *self, size_t index) {
    double sum = 0;
    for (int rank = 0; rank < self->ranks; rank++)
        sum += bench_pattern(rank, index);
    return sum;
}

const bench_op bench_collective_ops[] = {
    {.name = "one_shot_all_reduce",
     .flags = BENCH_IN_SYMMETRIC,
     .once = one_shot_all_reduce,
     .expected = summed},
    {.name = NULL},
};
