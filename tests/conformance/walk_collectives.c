/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives and products that walks run, in one rank's piece of memory. */
#include "walk.h"

/* In this rank's memory, behind what operations use of it. */
#define INPUT_AT 2560
#define OUT_AT 3072

DLTensor walk_words(const struct walk_run *run, int64_t *count) {
    symmem_handle_info info;

    TK_REQUIRE_OK(run->t, symmem_handle_get_info(run->handle, &info));
    *count = WALK_WORDS;
    return (DLTensor){
        .data = (char *)run->memory + OUT_AT,
        .device = {.device_type = (DLDeviceType)run->t->device_type, .device_id = info.device},
        .ndim = 1,
        .dtype = {.code = kDLUInt, .bits = 32, .lanes = 1},
        .shape = count,
    };
}

symmem_status walk_collective(struct walk_run *run) {
    int64_t input_count, out_count;
    DLTensor input = walk_words(run, &input_count), out = walk_words(run, &out_count);

    out.data = (char *)input.data + WALK_WORDS * sizeof(uint32_t);
    WALK_STEP(symmem_one_shot_all_reduce_out(run->handle, &input, SYMMEM_SUM, &out, WALK_CHANNEL,
                                             run->limit_ms, NULL));
    return symmem_barrier(run->handle, WALK_CHANNEL, run->limit_ms, NULL);
}

/* Two rows of three words, with one between them, for the last rank. */
static symmem_status tile(struct walk_run *run, const DLTensor *input, const DLTensor *out) {
    int64_t shape[2] = {2, 3}, strides[2] = {4, 1};
    const int32_t root = run->t->world_size - 1;
    DLTensor in = *input, to = *out;
    const DLTensor *tiles[1] = {&in};

    in.ndim = to.ndim = 2;
    in.shape = to.shape = shape;
    in.strides = to.strides = strides;
    WALK_STEP(symmem_tile_reduce(run->handle, &in, SYMMEM_MAX, root, &to, WALK_CHANNEL,
                                 run->limit_ms, NULL));
    return symmem_multi_root_tile_reduce(run->handle, 1, tiles, &root, SYMMEM_SUM, &to,
                                         WALK_CHANNEL, run->limit_ms, NULL);
}

/* Two words of the first rank, and for it, and none of the last one. */
static symmem_status uneven(struct walk_run *run) {
    const int32_t ranks = run->t->world_size;
    size_t counts[SYMMEM_MAX_WORLD_SIZE];
    int64_t input_count, out_count, sum = 0;
    DLTensor input = walk_words(run, &input_count), out = walk_words(run, &out_count);

    for (int32_t rank = 0; rank < ranks; rank++) {
        counts[rank] = rank == 0 ? 2 : rank < ranks - 1 ? 1 : 0;
        sum += (int64_t)counts[rank];
    }
    input.data = (char *)run->memory + INPUT_AT;
    out_count = sum;
    WALK_STEP(
        symmem_all_gather_v(run->handle, &input, counts, &out, WALK_CHANNEL, run->limit_ms, NULL));
    if ((run->t->capabilities & SYMMEM_CAP_TILES) == 0)
        return SYMMEM_OK;
    input_count = sum;
    out_count = (int64_t)counts[run->t->rank];
    WALK_STEP(symmem_reduce_scatter_v(run->handle, &input, SYMMEM_SUM, counts, &out, WALK_CHANNEL,
                                      run->limit_ms, NULL));
    return tile(run, &input, &out);
}

/* Of barriers and copies, by way of the block's beginning. */
symmem_status walk_composed(struct walk_run *run) {
    int64_t input_count, out_count;
    DLTensor input = walk_words(run, &input_count), out = walk_words(run, &out_count);

    input.data = (char *)run->memory + INPUT_AT;
    out_count *= run->t->world_size;
    WALK_STEP(symmem_low_contention_all_gather_out(run->handle, &input, &out, WALK_CHANNEL,
                                                   run->limit_ms, NULL));
    return uneven(run);
}

/* --- products ----------------------------------------------------------------------- */

#define SIDE 3

/* A matrix of float32 in this rank's memory. */
static DLTensor matrix(const struct walk_run *run, size_t at, int64_t shape[2]) {
    int64_t unused;
    DLTensor made = walk_words(run, &unused);

    made.data = (char *)run->memory + at;
    made.ndim = 2;
    made.dtype.code = kDLFloat;
    made.shape = shape;
    return made;
}

void walk_fill_ones(struct walk_run *run) {
    float ones[(OUT_AT - INPUT_AT) / sizeof(float)];

    TK_REQUIRE(run->t, (size_t)(SIDE * SIDE * run->t->world_size) * sizeof(float) <= sizeof(ones));
    for (size_t i = 0; i < sizeof(ones) / sizeof(ones[0]); i++)
        ones[i] = 1;
    TK_REQUIRE_OK(run->t, symmem_copy(run->context, (char *)run->memory + INPUT_AT, ones,
                                      sizeof(ones), NULL));
}

/* Where the host can look. */
static void expect_last(const struct walk_run *run, const DLTensor *out, int64_t elements,
                        int64_t value) {
    if ((run->t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0)
        TK_EQ_INT(run->t, value, (int)((const float *)out->data)[elements - 1]);
}

/* Both fused products, with the block's beginning as workspace; of ones. */
symmem_status walk_fused(struct walk_run *run) {
    int64_t ranks = run->t->world_size, square[2] = {SIDE, SIDE}, tall[2] = {SIDE * ranks, SIDE};
    DLTensor shard = matrix(run, INPUT_AT, square), gathered = matrix(run, OUT_AT, tall);
    DLTensor all = matrix(run, INPUT_AT, tall), part = matrix(run, OUT_AT, square);
    const DLTensor *bs[1] = {&shard}, *outs[1] = {&gathered};

    WALK_STEP(symmem_fused_all_gather_matmul(run->handle, &shard, 0, 1, bs, NULL, outs,
                                             WALK_CHANNEL, run->limit_ms, NULL, NULL));
    expect_last(run, &gathered, SIDE * SIDE * ranks, SIDE);
    WALK_STEP(symmem_fused_matmul_reduce_scatter(run->handle, &all, &shard, SYMMEM_SUM, 0, &part,
                                                 WALK_CHANNEL, run->limit_ms, NULL, NULL));
    expect_last(run, &part, SIDE * SIDE, SIDE * ranks);
    return SYMMEM_OK;
}
