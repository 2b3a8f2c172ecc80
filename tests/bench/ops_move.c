/* SPDX-License-Identifier: BSD-3-Clause */
/* Ops that move bytes and wait for nobody. All ranks work at once, each with its neighbour. */
#include "rank.h"

static symmem_status put(bench_rank *self) {
    return symmem_put(self->handle, self->right, self->out_offset, self->in, self->bytes,
                      self->stream);
}

static symmem_status get(bench_rank *self) {
    return symmem_get(self->handle, self->right, 0, self->out, self->bytes, self->stream);
}

static symmem_status copy(bench_rank *self) {
    return symmem_copy(self->context, self->out, self->in, self->bytes, self->stream);
}

static double of_left(const bench_rank *self, size_t index) {
    return bench_pattern(self->left, index);
}

static double of_right(const bench_rank *self, size_t index) {
    return bench_pattern(self->right, index);
}

static double of_self(const bench_rank *self, size_t index) {
    return bench_pattern(self->rank, index);
}

const bench_op bench_move_ops[] = {
    BENCH_OP("put", put, .flags = BENCH_OUT_SYMMETRIC, .expected = of_left),
    BENCH_OP("get", get, .flags = BENCH_IN_SYMMETRIC, .keep = true, .expected = of_right),
    BENCH_OP("copy", copy, .flags = BENCH_NO_HANDLE, .expected = of_self),
    {.name = NULL},
};
