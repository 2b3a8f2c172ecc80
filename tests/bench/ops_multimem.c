/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations on multicast addresses. Without multicast they are unsupported, and left out. */
#include "rank.h"

BENCH_ONCE(all_reduce,
           symmem_multimem_all_reduce(self->handle, &self->in_tensor, SYMMEM_SUM, BENCH_ON_CHANNEL))
BENCH_ONCE(one_shot_all_reduce,
           symmem_multimem_one_shot_all_reduce_out(self->handle, &self->in_tensor, SYMMEM_SUM,
                                                   &self->out_tensor, BENCH_ON_CHANNEL))
BENCH_ONCE(one_shot_reduce,
           symmem_multimem_one_shot_reduce_out(self->handle, &self->in_tensor, SYMMEM_SUM, 0,
                                               &self->out_tensor, BENCH_ON_CHANNEL))
BENCH_ONCE(all_gather, symmem_multimem_all_gather_out(self->handle, &self->in_tensor,
                                                      &self->out_tensor, BENCH_ON_CHANNEL))
BENCH_ONCE(ce_all_gather,
           symmem_low_contention_all_gather_ce_multicast_out(self->handle, &self->in_tensor,
                                                             &self->out_tensor, BENCH_ON_CHANNEL))

/* All ranks at once, each to its own place. */
BENCH_ONCE(copy, symmem_memcpy_to_multicast(self->handle,
                                            self->out_offset + (size_t)self->rank * self->bytes,
                                            &self->in_tensor, self->stream))
BENCH_EXPECTED(summed_on_root, self->rank == 0 ? bench_summed(self, index) : 0)

const bench_op bench_multimem_ops[] = {
    BENCH_OP("multimem_all_reduce", all_reduce, .flags = BENCH_IN_SYMMETRIC | BENCH_IN_PLACE,
             .expected = bench_summed),
    BENCH_OP("multimem_one_shot_all_reduce", one_shot_all_reduce, .flags = BENCH_IN_SYMMETRIC,
             .expected = bench_summed),
    BENCH_OP("multimem_one_shot_reduce", one_shot_reduce, .flags = BENCH_IN_SYMMETRIC,
             .expected = summed_on_root),
    BENCH_OP("multimem_all_gather", all_gather, .flags = BENCH_OUT_SYMMETRIC,
             .scale = BENCH_TIMES_RANKS, .expected = bench_gathered),
    BENCH_OP("low_contention_all_gather_ce_multicast", ce_all_gather, .flags = BENCH_OUT_SYMMETRIC,
             .scale = BENCH_TIMES_RANKS, .expected = bench_gathered),
    BENCH_OP("memcpy_to_multicast", copy, .flags = BENCH_OUT_SYMMETRIC, .scale = BENCH_TIMES_RANKS,
             .expected = bench_gathered),
    {.name = NULL},
};
