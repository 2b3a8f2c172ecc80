/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives that are walked, and the tensors that scenarios use. */
#include "walk.h"

DLTensor walk_words(const struct walk_run *run, int64_t *count) {
    symmem_handle_info info;

    TK_REQUIRE_OK(run->t, symmem_handle_get_info(run->handle, &info));
    *count = WALK_WORDS;
    return (DLTensor){
        .data = (char *)run->memory + 3072,
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

/* Of barriers and copies, by way of the block. */
symmem_status walk_composed(struct walk_run *run) {
    uint32_t words[WALK_WORDS] = {1, 2, 3};
    int64_t input_count, out_count;
    DLTensor input = walk_words(run, &input_count), out = walk_words(run, &out_count);

    input.data = words;
    out_count *= run->t->world_size;
    return symmem_low_contention_all_gather_out(run->handle, &input, &out, WALK_CHANNEL,
                                                run->limit_ms, NULL);
}

/* A matrix of float32 in host memory. */
static DLTensor matrix(const struct walk_run *run, float *values, int64_t shape[2]) {
    int64_t unused;
    DLTensor made = walk_words(run, &unused);

    made.data = values;
    made.ndim = 2;
    made.dtype.code = kDLFloat;
    made.shape = shape;
    return made;
}

/* Both fused products, with the block as workspace; of ones. */
symmem_status walk_fused(struct walk_run *run) {
    enum { SIDE = 3 };
    int64_t ranks = run->t->world_size, square[2] = {SIDE, SIDE}, tall[2] = {SIDE * ranks, SIDE};
    float ones[SIDE * SIDE * SYMMEM_MAX_WORLD_SIZE], out[SIDE * SIDE * SYMMEM_MAX_WORLD_SIZE];

    for (int64_t i = 0; i < SIDE * SIDE * ranks; i++)
        ones[i] = 1;
    DLTensor shard = matrix(run, ones, square), gathered = matrix(run, out, tall);
    DLTensor all = matrix(run, ones, tall), part = matrix(run, out, square);
    const DLTensor *bs[1] = {&shard}, *outs[1] = {&gathered};
    WALK_STEP(symmem_fused_all_gather_matmul(run->handle, &shard, 0, 1, bs, NULL, outs,
                                             WALK_CHANNEL, run->limit_ms, NULL, NULL));
    TK_EQ_INT(run->t, SIDE, (int)out[SIDE * SIDE * ranks - 1]);
    WALK_STEP(symmem_fused_matmul_reduce_scatter(run->handle, &all, &shard, SYMMEM_SUM, 0, &part,
                                                 WALK_CHANNEL, run->limit_ms, NULL, NULL));
    TK_EQ_INT(run->t, (int)(SIDE * ranks), (int)out[SIDE * SIDE - 1]);
    return SYMMEM_OK;
}
