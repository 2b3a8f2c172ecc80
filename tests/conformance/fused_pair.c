/* SPDX-License-Identifier: BSD-3-Clause */
#include "fused_pair.h"

struct fused_pair *pair_begin(struct tk *t) {
    struct fused_pair *x = tk_scratch(t, sizeof *x);
    const int64_t ranks = t->world_size;
    const struct {
        struct fused_tensor *tensor;
        int64_t shape[2];
        int32_t rank; /* whose values; -1: marked */
        uint32_t generation;
    } all[] = {{&x->shard, {PAIR_ROWS, PAIR_K}, t->rank, 1},
               {&x->b, {PAIR_K, PAIR_N}, 9, 1},
               {&x->out, {PAIR_ROWS * ranks, PAIR_N}, -1, 0},
               {&x->a_out, {PAIR_ROWS * ranks, PAIR_K}, -1, 0},
               {&x->a, {PAIR_ROWS * ranks, PAIR_K}, t->rank, 2},
               {&x->scatter_b, {PAIR_K, PAIR_N}, 8, 1},
               {&x->part, {PAIR_ROWS, PAIR_N}, -1, 0}};
    size_t other = 0;
    for (size_t i = 0; i < TK_COUNT(all); i++) {
        fused_make(t, all[i].tensor, SYMMEM_FLOAT32, 2, all[i].shape, 0);
        if (all[i].rank < 0) {
            fused_set_bytes(t, all[i].tensor, 0x55);
            continue;
        }
        fused_fill(all[i].tensor, all[i].rank, all[i].generation, true);
        fused_upload(t, all[i].tensor);
    }
    x->bs[0] = &x->b.dl;
    x->outs[0] = &x->out.dl;
    TK_REQUIRE_OK(t, symmem_fused_all_gather_matmul_workspace(&x->shard.dl, NULL, 0, true,
                                                              t->world_size, &x->bytes));
    TK_REQUIRE_OK(t, symmem_fused_matmul_reduce_scatter_workspace(
                         &x->a.dl, &x->scatter_b.dl, NULL, 0, &x->part.dl, t->world_size, &other));
    if (other > x->bytes)
        x->bytes = other;
    x->workspace = tk_handle(t, x->bytes, tk_world_group(t));
    return x;
}

struct pair_call pair_call(const struct fused_pair *x) {
    return (struct pair_call){.handle = x->workspace,
                              .shard = &x->shard.dl,
                              .b = &x->b.dl,
                              .a_out = &x->a_out.dl,
                              .out = &x->out.dl,
                              .a = &x->a.dl,
                              .scatter_b = &x->scatter_b.dl,
                              .part = &x->part.dl,
                              .op = SYMMEM_SUM,
                              .b_count = 1,
                              .limit_ms = 2000};
}

symmem_status pair_run(const struct pair_call *c, int form) {
    const DLTensor *const *bs = c->no_bs ? NULL : &c->b;
    const DLTensor *const *scales = c->no_scales ? NULL : &c->b_scale;
    const DLTensor *const *outs = c->no_outs ? NULL : &c->out;
    switch (form) {
    case PAIR_GATHER:
        return symmem_fused_all_gather_matmul(c->handle, c->shard, c->dim, c->b_count, bs, c->a_out,
                                              outs, c->channel, c->limit_ms, c->stream, c->second);
    case PAIR_SCATTER:
        return symmem_fused_matmul_reduce_scatter(c->handle, c->a, c->scatter_b, c->op, c->dim,
                                                  c->part, c->channel, c->limit_ms, c->stream,
                                                  c->second);
    case PAIR_SCALED_GATHER:
        return symmem_fused_all_gather_scaled_matmul(c->handle, c->shard, c->a_scale, c->dim,
                                                     c->b_count, bs, scales, c->a_out, outs,
                                                     c->channel, c->limit_ms, c->stream, c->second);
    default:
        return symmem_fused_scaled_matmul_reduce_scatter(
            c->handle, c->a, c->scatter_b, c->a_scale, c->b_scale, c->op, c->dim, c->part,
            c->channel, c->limit_ms, c->stream, c->second);
    }
}

symmem_status pair_gather(struct fused_pair *x, uint32_t timeout_ms, symmem_stream *stream) {
    struct pair_call call = pair_call(x);
    call.limit_ms = timeout_ms;
    call.stream = stream;
    return pair_run(&call, PAIR_GATHER);
}

symmem_status pair_scatter(struct fused_pair *x, uint32_t timeout_ms, symmem_stream *stream) {
    struct pair_call call = pair_call(x);
    call.limit_ms = timeout_ms;
    call.stream = stream;
    return pair_run(&call, PAIR_SCATTER);
}

/* The results of the two, times `factor`. */
void pair_expect_gather(struct tk *t, struct fused_pair *x, double factor) {
    struct fused_sum sum;
    fused_sum_make(t, &sum, x->out.count);
    for (int32_t r = 0; r < t->world_size; r++) {
        struct fused_tensor theirs = x->a_out;
        struct fused_sum rows = {.values = sum.values + r * PAIR_ROWS * PAIR_N,
                                 .magnitudes = sum.magnitudes + r * PAIR_ROWS * PAIR_N};
        theirs.count = PAIR_ROWS * PAIR_K;
        theirs.values = x->a_out.values + r * PAIR_ROWS * PAIR_K;
        fused_fill(&theirs, r, 1, true);
        fused_sum_add(&rows, theirs.values, PAIR_ROWS, PAIR_K, x->b.values, PAIR_N, PAIR_N, NULL,
                      NULL);
    }
    for (size_t i = 0; i < sum.count; i++)
        sum.values[i] *= factor;
    fused_expect(t, &x->a_out, NULL, "a_out");
    fused_sum_expect(t, &sum, &x->out, true, PAIR_K, 1, "out");
}

void pair_expect_scatter(struct tk *t, struct fused_pair *x, double factor) {
    struct fused_sum sum;
    fused_sum_make(t, &sum, x->part.count);
    for (int32_t r = 0; r < t->world_size; r++) {
        struct fused_tensor theirs = x->a;
        fused_fill(&theirs, r, 2, true);
        fused_sum_add(&sum, theirs.values + t->rank * PAIR_ROWS * PAIR_K, PAIR_ROWS, PAIR_K,
                      x->scatter_b.values, PAIR_N, PAIR_N, NULL, NULL);
    }
    for (size_t i = 0; i < sum.count; i++)
        sum.values[i] *= factor;
    fused_sum_expect(t, &sum, &x->part, true, PAIR_K, 1, "part");
}

void pair_expect_untouched(struct tk *t, const struct fused_pair *x) {
    fused_expect_bytes(t, &x->out, 0x55, "out");
    fused_expect_bytes(t, &x->a_out, 0x55, "a_out");
    fused_expect_bytes(t, &x->part, 0x55, "part");
}
