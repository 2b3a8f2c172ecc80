/* SPDX-License-Identifier: BSD-3-Clause */
/* Every collective operation behind the same call, for tests of what holds for all of them. */
#ifndef SYMMEM_CONFORMANCE_OPS_CALLS_H
#define SYMMEM_CONFORMANCE_OPS_CALLS_H

#include "ops_help.h"

/* One call's arguments. A row passes on what its operation takes. */
struct ops_call {
    symmem_handle *handle;
    const DLTensor *buffer, *input, *out;
    const size_t *in_splits, *out_splits;
    const size_t *counts; /* of a part of each rank */
    symmem_reduce_op op;
    int32_t root;
    int32_t channel;
    uint32_t limit_ms;
    symmem_stream *stream;
    DLManagedTensor **made_p;
    char *more; /* memory for what a row needs beside these */
};

typedef symmem_status (*ops_fn)(const struct ops_call *call);

#define ROW(name, call, ...)                                                                       \
    static inline symmem_status row_##name(const struct ops_call *c) {                             \
        return symmem_##call(c->handle, __VA_ARGS__, c->channel, c->limit_ms, c->stream);          \
    }
/* Of one that makes its output. */
#define ROW_MADE(name, call, ...)                                                                  \
    static inline symmem_status row_##name(const struct ops_call *c) {                             \
        return symmem_##call(c->handle, __VA_ARGS__, c->channel, c->limit_ms, c->stream,           \
                             c->made_p);                                                           \
    }
ROW(all_reduce, all_reduce, c->input, c->op, c->out)
ROW(one_shot_out, one_shot_all_reduce_out, c->input, c->op, c->out)
ROW_MADE(one_shot, one_shot_all_reduce, c->input, c->op)
ROW(one_shot_copy_out, one_shot_all_reduce_copy_out, c->buffer, c->input, c->op, c->out)
ROW_MADE(one_shot_copy, one_shot_all_reduce_copy, c->buffer, c->input, c->op)
ROW(two_shot, two_shot_all_reduce, c->input, c->op)
ROW(two_shot_out, two_shot_all_reduce_out, c->input, c->op, c->out)
ROW(reduce_scatter, reduce_scatter_out, c->input, c->op, false, c->out)
ROW(reduce_scatter_split, reduce_scatter_out, c->input, c->op, true, c->out)
ROW(low_contention_reduce_scatter, low_contention_reduce_scatter, c->input, c->op, c->out)
ROW(all_gather, all_gather_out, c->input, c->out)
ROW(broadcast, broadcast, c->input, c->root)
ROW(all_to_all, all_to_all_out, c->input, c->in_splits, c->out, c->out_splits)
ROW(all_gather_v, all_gather_v, c->input, c->counts, c->out)
ROW(reduce_scatter_v, reduce_scatter_v, c->input, c->op, c->counts, c->out)
ROW(low_contention_all_gather, low_contention_all_gather_out, c->input, c->out)
ROW(multimem_all_reduce, multimem_all_reduce, c->input, c->op)
ROW(multimem_one_shot, multimem_one_shot_all_reduce_out, c->input, c->op, c->out)
ROW_MADE(multimem_one_shot_made, multimem_one_shot_all_reduce, c->input, c->op)
ROW(multimem_reduce, multimem_one_shot_reduce_out, c->input, c->op, c->root, c->out)
ROW(multimem_all_gather, multimem_all_gather_out, c->input, c->out)
ROW(ce_multicast, low_contention_all_gather_ce_multicast_out, c->input, c->out)
#undef ROW
#undef ROW_MADE

#endif
