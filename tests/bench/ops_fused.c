/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matrix products fused with communication. The first matrix has rows of BENCH_COLUMNS elements,
 * the second is the unit matrix of as many, so that products are what an all-gather or a reduction
 * gives, and exact; the time does not depend on the values.
 */
#include "rank.h"

#define CHUNKS 4
/* Without a stream, and so without a second. */
#define ON_CHANNEL 0, BENCH_TIMEOUT_MS, NULL, NULL

/* --- what a product needs beside input and output ----------------------------------- */

static const DLTensor *scale_of(const bench_rank *self) {
    return self->op->scaled ? &self->scale_tensor : NULL;
}

static bool make_factor(bench_rank *self) {
    bench_make_rows(&self->in_tensor, self->in_shape);
    bench_make_rows(&self->out_tensor, self->out_shape);
    self->factor = bench_private_memory(self, (size_t)BENCH_COLUMNS * BENCH_COLUMNS *
                                                  symmem_dtype_size(self->dtype));
    if (self->factor == NULL)
        return false;
    bench_set_tensor(&self->factor_tensor, self->dtype, self->factor, self->factor_shape,
                     (size_t)BENCH_COLUMNS * BENCH_COLUMNS);
    bench_make_rows(&self->factor_tensor, self->factor_shape);
    for (size_t i = 0; i < BENCH_COLUMNS; i++)
        bench_store(self->dtype, self->factor, i * BENCH_COLUMNS + i, 1);
    self->scale = 1;
    bench_set_tensor(&self->scale_tensor, SYMMEM_FLOAT32, &self->scale, self->scale_shape, 1);
    return true;
}

static bool meet_at(bench_rank *self, symmem_status status, size_t bytes) {
    if (status != SYMMEM_OK)
        return bench_failed(self, "workspace");
    return bench_make_symmetric(self, bytes > 0 ? bytes : 1);
}

static bool prepare_gather(bench_rank *self) {
    size_t bytes = 0;
    if (!make_factor(self))
        return false;
    symmem_status status = symmem_fused_all_gather_matmul_workspace(
        &self->in_tensor, scale_of(self), 0, false, self->ranks, &bytes);
    return meet_at(self, status, bytes);
}

static bool prepare_scatter(bench_rank *self) {
    size_t bytes = 0;
    if (!make_factor(self))
        return false;
    symmem_status status = symmem_fused_matmul_reduce_scatter_workspace(
        &self->in_tensor, &self->factor_tensor, scale_of(self), 0, &self->out_tensor, self->ranks,
        &bytes);
    return meet_at(self, status, bytes);
}

/* All chunks have come already: the time is that of the product and of looking. */
static bool prepare_chunks(bench_rank *self) {
    if (!make_factor(self))
        return false;
    for (size_t i = 0; i < CHUNKS; i++)
        self->signals[i] = 1;
    bench_set_tensor(&self->signals_tensor, SYMMEM_UINT32, self->signals, self->signals_shape,
                     CHUNKS);
    return true;
}

/* --- the calls ---------------------------------------------------------------------- */

static symmem_status all_gather_matmul(bench_rank *self) {
    const DLTensor *factor = &self->factor_tensor, *out = &self->out_tensor;
    if (!self->op->scaled)
        return symmem_fused_all_gather_matmul(self->handle, &self->in_tensor, 0, 1, &factor, NULL,
                                              &out, ON_CHANNEL);
    const DLTensor *scale = &self->scale_tensor;
    return symmem_fused_all_gather_scaled_matmul(self->handle, &self->in_tensor, scale, 0, 1,
                                                 &factor, &scale, NULL, &out, ON_CHANNEL);
}

static symmem_status matmul_reduce_scatter(bench_rank *self) {
    const DLTensor *scale = &self->scale_tensor;
    if (!self->op->scaled)
        return symmem_fused_matmul_reduce_scatter(self->handle, &self->in_tensor,
                                                  &self->factor_tensor, SYMMEM_SUM, 0,
                                                  &self->out_tensor, ON_CHANNEL);
    return symmem_fused_scaled_matmul_reduce_scatter(self->handle, &self->in_tensor,
                                                     &self->factor_tensor, scale, scale, SYMMEM_SUM,
                                                     0, &self->out_tensor, ON_CHANNEL);
}

BENCH_ONCE(async_input_mm, symmem_async_input_mm(self->context, &self->in_tensor,
                                                 &self->factor_tensor, &self->signals_tensor, 0,
                                                 &self->out_tensor, BENCH_TIMEOUT_MS, NULL))
BENCH_EXPECTED(summed_part, bench_summed(self, (size_t)self->rank * self->out_count + index))
BENCH_EXPECTED(of_self, bench_pattern(self->rank, index))

#define GATHER(name_, scaled_)                                                                     \
    {                                                                                              \
        .name = name_, .flags = BENCH_NO_HANDLE | BENCH_HOST_MEMORY, .scale = BENCH_TIMES_RANKS,   \
        .unit = BENCH_COLUMNS, .scaled = scaled_, .prepare = prepare_gather,                       \
        .once = all_gather_matmul, .expected = bench_gathered                                      \
    }
#define SCATTER(name_, scaled_)                                                                    \
    {                                                                                              \
        .name = name_, .flags = BENCH_NO_HANDLE | BENCH_HOST_MEMORY, .scale = BENCH_PER_RANK,      \
        .unit = BENCH_COLUMNS, .scaled = scaled_, .prepare = prepare_scatter,                      \
        .once = matmul_reduce_scatter, .expected = summed_part                                     \
    }

const bench_op bench_fused_ops[] = {
    GATHER("fused_all_gather_matmul", false),
    GATHER("fused_all_gather_scaled_matmul", true),
    SCATTER("fused_matmul_reduce_scatter", false),
    SCATTER("fused_scaled_matmul_reduce_scatter", true),
    BENCH_OP("async_input_mm", async_input_mm, .flags = BENCH_NO_HANDLE | BENCH_HOST_MEMORY,
             .unit = CHUNKS * BENCH_COLUMNS, .prepare = prepare_chunks, .expected = of_self),
    {.name = NULL},
};
