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
    symmem_reduce_op op;
    int32_t root;
    int32_t channel;
    uint32_t limit_ms;
    symmem_stream *stream;
    DLManagedTensor **made_p;
    char *more; /* memory for what a row needs beside these */
};

typedef symmem_status (*ops_fn)(const struct ops_call *call);

static inline symmem_status row_all_reduce(const struct ops_call *c) {
    return symmem_all_reduce(c->handle, c->input, c->op, c->out, c->channel, c->limit_ms,
                             c->stream);
}
static inline symmem_status row_one_shot_out(const struct ops_call *c) {
    return symmem_one_shot_all_reduce_out(c->handle, c->input, c->op, c->out, c->channel,
                                          c->limit_ms, c->stream);
}
static inline symmem_status row_one_shot(const struct ops_call *c) {
    return symmem_one_shot_all_reduce(c->handle, c->input, c->op, c->channel, c->limit_ms,
                                      c->stream, c->made_p);
}
static inline symmem_status row_one_shot_copy_out(const struct ops_call *c) {
    return symmem_one_shot_all_reduce_copy_out(c->handle, c->buffer, c->input, c->op, c->out,
                                               c->channel, c->limit_ms, c->stream);
}
static inline symmem_status row_one_shot_copy(const struct ops_call *c) {
    return symmem_one_shot_all_reduce_copy(c->handle, c->buffer, c->input, c->op, c->channel,
                                           c->limit_ms, c->stream, c->made_p);
}
static inline symmem_status row_two_shot(const struct ops_call *c) {
    return symmem_two_shot_all_reduce(c->handle, c->input, c->op, c->channel, c->limit_ms,
                                      c->stream);
}
static inline symmem_status row_two_shot_out(const struct ops_call *c) {
    return symmem_two_shot_all_reduce_out(c->handle, c->input, c->op, c->out, c->channel,
                                          c->limit_ms, c->stream);
}
static inline symmem_status row_reduce_scatter(const struct ops_call *c) {
    return symmem_reduce_scatter_out(c->handle, c->input, c->op, false, c->out, c->channel,
                                     c->limit_ms, c->stream);
}
static inline symmem_status row_reduce_scatter_split(const struct ops_call *c) {
    return symmem_reduce_scatter_out(c->handle, c->input, c->op, true, c->out, c->channel,
                                     c->limit_ms, c->stream);
}
static inline symmem_status row_low_contention_reduce_scatter(const struct ops_call *c) {
    return symmem_low_contention_reduce_scatter(c->handle, c->input, c->op, c->out, c->channel,
                                                c->limit_ms, c->stream);
}
static inline symmem_status row_all_gather(const struct ops_call *c) {
    return symmem_all_gather_out(c->handle, c->input, c->out, c->channel, c->limit_ms, c->stream);
}
static inline symmem_status row_broadcast(const struct ops_call *c) {
    return symmem_broadcast(c->handle, c->input, c->root, c->channel, c->limit_ms, c->stream);
}
static inline symmem_status row_all_to_all(const struct ops_call *c) {
    return symmem_all_to_all_out(c->handle, c->input, c->in_splits, c->out, c->out_splits,
                                 c->channel, c->limit_ms, c->stream);
}
static inline symmem_status row_low_contention_all_gather(const struct ops_call *c) {
    return symmem_low_contention_all_gather_out(c->handle, c->input, c->out, c->channel,
                                                c->limit_ms, c->stream);
}
static inline symmem_status row_multimem_all_reduce(const struct ops_call *c) {
    return symmem_multimem_all_reduce(c->handle, c->input, c->op, c->channel, c->limit_ms,
                                      c->stream);
}
static inline symmem_status row_multimem_one_shot(const struct ops_call *c) {
    return symmem_multimem_one_shot_all_reduce_out(c->handle, c->input, c->op, c->out, c->channel,
                                                   c->limit_ms, c->stream);
}
static inline symmem_status row_multimem_one_shot_made(const struct ops_call *c) {
    return symmem_multimem_one_shot_all_reduce(c->handle, c->input, c->op, c->channel, c->limit_ms,
                                               c->stream, c->made_p);
}
static inline symmem_status row_multimem_reduce(const struct ops_call *c) {
    return symmem_multimem_one_shot_reduce_out(c->handle, c->input, c->op, c->root, c->out,
                                               c->channel, c->limit_ms, c->stream);
}
static inline symmem_status row_multimem_all_gather(const struct ops_call *c) {
    return symmem_multimem_all_gather_out(c->handle, c->input, c->out, c->channel, c->limit_ms,
                                          c->stream);
}
static inline symmem_status row_ce_multicast(const struct ops_call *c) {
    return symmem_low_contention_all_gather_ce_multicast_out(c->handle, c->input, c->out,
                                                             c->channel, c->limit_ms, c->stream);
}

#endif
