/* SPDX-License-Identifier: BSD-3-Clause */
#include "fused_pair.h"

struct fused_pair *pair_begin(struct tk *t) {
    struct fused_pair *x = tk_scratch(t, sizeof *x);
    const int64_t shard[2] = {PAIR_ROWS, PAIR_K}, b[2] = {PAIR_K, PAIR_N},
                  part[2] = {PAIR_ROWS, PAIR_N};
    const int64_t full[2] = {PAIR_ROWS * t->world_size, PAIR_K},
                  out[2] = {PAIR_ROWS * t->world_size, PAIR_N};
    size_t other = 0;
    fused_make(t, &x->shard, SYMMEM_FLOAT32, 2, shard, 0);
    fused_make(t, &x->b, SYMMEM_FLOAT32, 2, b, 0);
    fused_make(t, &x->out, SYMMEM_FLOAT32, 2, out, 0);
    fused_make(t, &x->a_out, SYMMEM_FLOAT32, 2, full, 0);
    fused_make(t, &x->a, SYMMEM_FLOAT32, 2, full, 0);
    fused_make(t, &x->scatter_b, SYMMEM_FLOAT32, 2, b, 0);
    fused_make(t, &x->part, SYMMEM_FLOAT32, 2, part, 0);
    x->bs[0] = &x->b.dl;
    x->outs[0] = &x->out.dl;
    TK_REQUIRE_OK(t, symmem_fused_all_gather_matmul_workspace(&x->shard.dl, NULL, 0, true,
                                                              t->world_size, &x->bytes));
    TK_REQUIRE_OK(t, symmem_fused_matmul_reduce_scatter_workspace(
                         &x->a.dl, &x->scatter_b.dl, NULL, 0, &x->part.dl, t->world_size, &other));
    if (other > x->bytes)
        x->bytes = other;
    x->workspace = tk_handle(t, x->bytes, tk_world_group(t));
    fused_fill(&x->shard, t->rank, 1, true);
    fused_fill(&x->b, 9, 1, true);
    fused_fill(&x->a, t->rank, 2, true);
    fused_fill(&x->scatter_b, 8, 1, true);
    fused_upload(t, &x->shard);
    fused_upload(t, &x->b);
    fused_upload(t, &x->a);
    fused_upload(t, &x->scatter_b);
    fused_set_bytes(t, &x->out, 0x55);
    fused_set_bytes(t, &x->a_out, 0x55);
    fused_set_bytes(t, &x->part, 0x55);
    return x;
}

symmem_status pair_gather(struct fused_pair *x, uint32_t timeout_ms, symmem_stream *stream) {
    return symmem_fused_all_gather_matmul(x->workspace, &x->shard.dl, 0, 1, x->bs, &x->a_out.dl,
                                          x->outs, 0, timeout_ms, stream, NULL);
}

symmem_status pair_scatter(struct fused_pair *x, uint32_t timeout_ms, symmem_stream *stream) {
    return symmem_fused_matmul_reduce_scatter(x->workspace, &x->a.dl, &x->scatter_b.dl, SYMMEM_SUM,
                                              0, &x->part.dl, 0, timeout_ms, stream, NULL);
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
