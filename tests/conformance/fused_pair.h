/* SPDX-License-Identifier: BSD-3-Clause */
/* A small gather and a small scatter with one workspace, for the tests of what goes wrong. */
#ifndef SYMMEM_CONFORMANCE_FUSED_PAIR_H
#define SYMMEM_CONFORMANCE_FUSED_PAIR_H

#include "fused_help.h"

#define PAIR_ROWS 2
#define PAIR_K 3
#define PAIR_N 4

/* A small gather of rows, float32, and a scatter of rows with the same workspace. */
struct fused_pair {
    symmem_handle *workspace;
    struct fused_tensor shard, b, out, a_out; /* gather */
    struct fused_tensor a, scatter_b, part;   /* scatter */
    const DLTensor *bs[1], *outs[1];
    size_t bytes; /* needed by either */
};

struct fused_pair *pair_begin(struct tk *t);
symmem_status pair_gather(struct fused_pair *x, uint32_t timeout_ms, symmem_stream *stream);
symmem_status pair_scatter(struct fused_pair *x, uint32_t timeout_ms, symmem_stream *stream);

/* The arguments of both operations and their scaled forms, to be changed one by one. */
struct pair_call {
    symmem_handle *handle;
    const DLTensor *shard, *b, *a_out, *out; /* gather */
    const DLTensor *a, *scatter_b, *part;    /* scatter */
    const DLTensor *a_scale, *b_scale;       /* NULL at first */
    bool no_bs, no_scales, no_outs;          /* an array is NULL */
    symmem_reduce_op op;
    int32_t dim, b_count, channel;
    uint32_t limit_ms; /* short: no rank should wait for others */
    symmem_stream *stream, *second;
};
enum { PAIR_GATHER = 1, PAIR_SCATTER = 2, PAIR_SCALED_GATHER = 4, PAIR_SCALED_SCATTER = 8 };
struct pair_call pair_call(const struct fused_pair *x);
symmem_status pair_run(const struct pair_call *call, int form);

/* The results of the two, times `factor`. */
void pair_expect_gather(struct tk *t, struct fused_pair *x, double factor);
void pair_expect_scatter(struct tk *t, struct fused_pair *x, double factor);
void pair_expect_untouched(struct tk *t, const struct fused_pair *x);

#endif
