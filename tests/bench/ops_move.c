/* SPDX-License-Identifier: BSD-3-Clause */
/* Ops that move bytes and wait for no other rank. All ranks work at once, each with its
 * neighbor. */
#include "rank.h"

BENCH_ONCE(put, symmem_put(self->handle, self->right, self->out_offset, self->in, self->bytes,
                           self->stream))
BENCH_ONCE(get, symmem_get(self->handle, self->right, 0, self->out, self->bytes, self->stream))
BENCH_ONCE(copy, symmem_copy(self->context, self->out, self->in, self->bytes, self->stream))
BENCH_EXPECTED(of_left, bench_pattern(self->left, index))
BENCH_EXPECTED(of_right, bench_pattern(self->right, index))
BENCH_EXPECTED(of_self, bench_pattern(self->rank, index))

const bench_op bench_move_ops[] = {
    BENCH_OP("put", put, .flags = BENCH_OUT_SYMMETRIC, .expected = of_left),
    BENCH_OP("get", get, .flags = BENCH_IN_SYMMETRIC, .keep = true, .expected = of_right),
    BENCH_OP("copy", copy, .flags = BENCH_NO_HANDLE, .expected = of_self),
    {.name = NULL},
};
