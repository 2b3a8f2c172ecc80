/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives. Sums, as in MPI's part. */
#include "rank.h"

/* --- reductions --------------------------------------------------------------------- */

/* Symmetric to private, in place, or private to private: as the op's flags say. */
BENCH_ONCE(all_reduce, symmem_all_reduce(self->handle, &self->in_tensor, SYMMEM_SUM,
                                         &self->out_tensor, BENCH_ON_CHANNEL))
BENCH_ONCE(one_shot, symmem_one_shot_all_reduce_out(self->handle, &self->in_tensor, SYMMEM_SUM,
                                                    &self->out_tensor, BENCH_ON_CHANNEL))

/* The way there lies in the handle's memory. */
static symmem_status one_shot_copy(bench_rank *self) {
    DLTensor buffer = self->in_tensor;
    buffer.data = self->symmetric;
    return symmem_one_shot_all_reduce_copy_out(self->handle, &buffer, &self->in_tensor, SYMMEM_SUM,
                                               &self->out_tensor, BENCH_ON_CHANNEL);
}

BENCH_ONCE(two_shot,
           symmem_two_shot_all_reduce(self->handle, &self->in_tensor, SYMMEM_SUM, BENCH_ON_CHANNEL))
BENCH_ONCE(two_shot_out, symmem_two_shot_all_reduce_out(self->handle, &self->in_tensor, SYMMEM_SUM,
                                                        &self->out_tensor, BENCH_ON_CHANNEL))
BENCH_ONCE(reduce_scatter, symmem_reduce_scatter_out(self->handle, &self->in_tensor, SYMMEM_SUM,
                                                     false, &self->out_tensor, BENCH_ON_CHANNEL))

/* Each row's own part: the last dimension is split. */
#define ROWS 16

static bool make_rows(bench_rank *self) {
    self->in_shape[1] = self->in_shape[0] / ROWS;
    self->out_shape[1] = self->out_shape[0] / ROWS;
    self->in_shape[0] = self->out_shape[0] = ROWS;
    self->in_tensor.ndim = self->out_tensor.ndim = 2;
    return true;
}

BENCH_ONCE(reduce_scatter_rows,
           symmem_reduce_scatter_out(self->handle, &self->in_tensor, SYMMEM_SUM, true,
                                     &self->out_tensor, BENCH_ON_CHANNEL))

static double summed_columns(const bench_rank *self, size_t index) {
    size_t columns = self->out_count / ROWS, row = index / columns;
    size_t before = (row * (size_t)self->ranks + (size_t)self->rank) * columns;
    return bench_summed(self, before + index % columns);
}

BENCH_ONCE(low_contention_reduce_scatter,
           symmem_low_contention_reduce_scatter(self->handle, &self->in_tensor, SYMMEM_SUM,
                                                &self->out_tensor, BENCH_ON_CHANNEL))
BENCH_EXPECTED(summed_part, bench_summed(self, (size_t)self->rank * self->out_count + index))

/* Rank 0 has half as much as each other rank, so that the counts differ. */
static size_t of_first(size_t each) {
    return each - each / 2;
}

static void uneven(const bench_rank *self, size_t each, size_t *counts) {
    for (int rank = 0; rank < self->ranks; rank++)
        counts[rank] = rank == 0 ? of_first(each) : each;
}

static size_t before(size_t each, int rank) {
    return rank == 0 ? 0 : (size_t)(rank - 1) * each + of_first(each);
}

static bool make_uneven_parts(bench_rank *self) {
    const size_t each = self->count / (size_t)self->ranks;
    self->in_shape[0] = (int64_t)before(each, self->ranks);
    self->out_count = self->rank == 0 ? of_first(each) : each;
    self->out_shape[0] = (int64_t)self->out_count;
    return true;
}

static symmem_status reduce_scatter_v(bench_rank *self) {
    size_t counts[SYMMEM_MAX_WORLD_SIZE];
    uneven(self, self->count / (size_t)self->ranks, counts);
    return symmem_reduce_scatter_v(self->handle, &self->in_tensor, SYMMEM_SUM, counts,
                                   &self->out_tensor, BENCH_ON_CHANNEL);
}

BENCH_EXPECTED(summed_uneven_part,
               bench_summed(self, before(self->count / (size_t)self->ranks, self->rank) + index))

/* The same as tiles of one matrix, one for each rank. */
static symmem_status tiles(bench_rank *self) {
    DLTensor tile = self->in_tensor;
    int64_t strides[2] = {self->in_shape[1], 1};
    DLTensor cut[SYMMEM_MAX_WORLD_SIZE];
    const DLTensor *in_tiles[SYMMEM_MAX_WORLD_SIZE];
    int32_t roots[SYMMEM_MAX_WORLD_SIZE];
    tile.shape = self->out_shape;
    tile.strides = strides;
    for (int rank = 0; rank < self->ranks; rank++) {
        cut[rank] = tile;
        cut[rank].byte_offset =
            (uint64_t)rank * (uint64_t)self->out_shape[1] * symmem_dtype_size(self->dtype);
        in_tiles[rank] = &cut[rank];
        roots[rank] = rank;
    }
    return symmem_multi_root_tile_reduce(self->handle, self->ranks, in_tiles, roots, SYMMEM_SUM,
                                         &self->out_tensor, BENCH_ON_CHANNEL);
}

/* --- moves ---------------------------------------------------------------------------- */

BENCH_ONCE(all_gather, symmem_all_gather_out(self->handle, &self->in_tensor, &self->out_tensor,
                                             BENCH_ON_CHANNEL))
BENCH_ONCE(low_contention_all_gather,
           symmem_low_contention_all_gather_out(self->handle, &self->in_tensor, &self->out_tensor,
                                                BENCH_ON_CHANNEL))

static bool make_uneven_result(bench_rank *self) {
    self->out_count = before(self->count, self->ranks);
    self->out_shape[0] = (int64_t)self->out_count;
    return true;
}

static symmem_status all_gather_v(bench_rank *self) {
    size_t counts[SYMMEM_MAX_WORLD_SIZE];
    uneven(self, self->count, counts);
    return symmem_all_gather_v(self->handle, &self->in_tensor, counts, &self->out_tensor,
                               BENCH_ON_CHANNEL);
}

static double gathered_uneven(const bench_rank *self, size_t index) {
    const size_t first = of_first(self->count);
    if (index < first)
        return bench_pattern(0, index);
    return bench_pattern(1 + (int)((index - first) / self->count), (index - first) % self->count);
}

BENCH_ONCE(broadcast, symmem_broadcast(self->handle, &self->in_tensor, 0, BENCH_ON_CHANNEL))
BENCH_ONCE(all_to_all, symmem_all_to_all_out(self->handle, &self->in_tensor, NULL,
                                             &self->out_tensor, NULL, BENCH_ON_CHANNEL))

/* The same parts by arrays, which ranks have to compare. */
static symmem_status all_to_all_splits(bench_rank *self) {
    size_t splits[SYMMEM_MAX_WORLD_SIZE];
    for (int rank = 0; rank < self->ranks; rank++)
        splits[rank] = self->count / (size_t)self->ranks;
    return symmem_all_to_all_out(self->handle, &self->in_tensor, splits, &self->out_tensor, splits,
                                 BENCH_ON_CHANNEL);
}

#define MOST_OF_A_ROW 256

static void set_rows(DLTensor *tensor, int64_t *shape, size_t width) {
    shape[1] = (int64_t)width;
    shape[0] /= shape[1];
    tensor->ndim = 2;
}

/* Equal parts of rows as a model has them, by splits in the device's memory, with what comes beside
 * them. */
static bool make_splits(bench_rank *self) {
    int64_t splits[SYMMEM_MAX_WORLD_SIZE];
    const size_t ranks = (size_t)self->ranks, part = self->count / ranks;
    size_t width = MOST_OF_A_ROW;
    while (part % width != 0)
        width /= 2;
    set_rows(&self->in_tensor, self->in_shape, width);
    set_rows(&self->out_tensor, self->out_shape, width);
    for (size_t rank = 0; rank < ranks; rank++)
        splits[rank] = (int64_t)(part / width);
    self->factor = bench_private_memory(self, 3 * ranks * sizeof splits[0]);
    if (self->factor == NULL)
        return false;
    bench_set_tensor(&self->factor_tensor, SYMMEM_INT64, self->factor, self->factor_shape, ranks);
    bench_set_tensor(&self->scale_tensor, SYMMEM_INT64, (int64_t *)self->factor + ranks,
                     self->scale_shape, 2 * ranks);
    self->scale_tensor.ndim = 2;
    self->scale_shape[0] = 2;
    self->scale_shape[1] = (int64_t)ranks;
    return symmem_copy(self->context, self->factor, splits, ranks * sizeof splits[0], NULL) ==
               SYMMEM_OK ||
           bench_failed(self, "copy");
}

BENCH_ONCE(all_to_all_v,
           symmem_all_to_all_v(self->handle, &self->in_tensor, &self->factor_tensor,
                               &self->out_tensor, &self->scale_tensor, BENCH_ON_CHANNEL))

static double of_root(const bench_rank *self, size_t index) {
    (void)self;
    return bench_pattern(0, index);
}

static double exchanged(const bench_rank *self, size_t index) {
    size_t part = self->count / (size_t)self->ranks;
    return bench_pattern((int)(index / part), (size_t)self->rank * part + index % part);
}

const bench_op bench_collective_ops[] = {
    BENCH_OP("all_reduce", all_reduce, .flags = BENCH_IN_SYMMETRIC, .expected = bench_summed),
    BENCH_OP("all_reduce_in_place", all_reduce, .flags = BENCH_IN_SYMMETRIC | BENCH_IN_PLACE,
             .expected = bench_summed),
    BENCH_OP("all_reduce_copy_out", all_reduce, .flags = BENCH_WAY_SYMMETRIC,
             .expected = bench_summed),
    BENCH_OP("one_shot_all_reduce", one_shot, .flags = BENCH_IN_SYMMETRIC,
             .expected = bench_summed),
    BENCH_OP("one_shot_all_reduce_copy_out", one_shot_copy, .flags = BENCH_WAY_SYMMETRIC,
             .expected = bench_summed),
    BENCH_OP("two_shot_all_reduce", two_shot, .flags = BENCH_IN_SYMMETRIC | BENCH_IN_PLACE,
             .expected = bench_summed),
    BENCH_OP("two_shot_all_reduce_out", two_shot_out, .flags = BENCH_IN_SYMMETRIC,
             .expected = bench_summed),
    BENCH_OP("reduce_scatter", reduce_scatter, .flags = BENCH_IN_SYMMETRIC, .scale = BENCH_PER_RANK,
             .expected = summed_part),
    BENCH_OP("reduce_scatter_rows", reduce_scatter_rows, .flags = BENCH_IN_SYMMETRIC,
             .scale = BENCH_PER_RANK, .unit = ROWS, .prepare = make_rows,
             .expected = summed_columns),
    BENCH_OP("low_contention_reduce_scatter", low_contention_reduce_scatter,
             .flags = BENCH_IN_SYMMETRIC, .scale = BENCH_PER_RANK, .expected = summed_part),
    BENCH_OP("all_gather", all_gather, .flags = BENCH_IN_SYMMETRIC, .scale = BENCH_TIMES_RANKS,
             .expected = bench_gathered),
    BENCH_OP("all_gather_push", all_gather, .flags = BENCH_OUT_SYMMETRIC,
             .scale = BENCH_TIMES_RANKS, .expected = bench_gathered),
    BENCH_OP("low_contention_all_gather", low_contention_all_gather, .flags = BENCH_IN_SYMMETRIC,
             .scale = BENCH_TIMES_RANKS, .expected = bench_gathered),
    BENCH_OP("all_gather_v", all_gather_v, .flags = BENCH_IN_SYMMETRIC, .scale = BENCH_TIMES_RANKS,
             .prepare = make_uneven_result, .expected = gathered_uneven),
    BENCH_OP("reduce_scatter_v", reduce_scatter_v, .flags = BENCH_IN_SYMMETRIC,
             .scale = BENCH_PER_RANK, .prepare = make_uneven_parts, .expected = summed_uneven_part),
    BENCH_OP("multi_root_tile_reduce", tiles, .flags = BENCH_IN_SYMMETRIC, .scale = BENCH_PER_RANK,
             .unit = ROWS, .prepare = make_rows, .expected = summed_columns),
    BENCH_OP("broadcast", broadcast, .flags = BENCH_IN_SYMMETRIC | BENCH_IN_PLACE,
             .expected = of_root),
    BENCH_OP("all_to_all", all_to_all, .flags = BENCH_IN_SYMMETRIC, .scale = BENCH_PARTS,
             .expected = exchanged),
    BENCH_OP("all_to_all_splits", all_to_all_splits, .flags = BENCH_IN_SYMMETRIC,
             .scale = BENCH_PARTS, .expected = exchanged),
    BENCH_OP("all_to_all_v", all_to_all_v, .flags = BENCH_IN_SYMMETRIC, .scale = BENCH_PARTS,
             .prepare = make_splits, .expected = exchanged),
    {.name = NULL},
};
