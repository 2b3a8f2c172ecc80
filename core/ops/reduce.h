/* SPDX-License-Identifier: BSD-3-Clause */
/* What the public reductions share. Private to ops_reduce*.c, all_reduce.c and, for
 * results, multimem_result.c. */
#ifndef SYMMEM_CORE_OPS_REDUCE_H
#define SYMMEM_CORE_OPS_REDUCE_H

#include "ops/collective.h"

/* The arguments of a reduction. */
struct sm_reduction {
    const char *name;
    symmem_call_kind kind;
    bool has_buffer, has_out;
    symmem_handle *handle;
    const DLTensor *buffer; /* symmetric, on the way */
    const DLTensor *input;
    const DLTensor *out;
    symmem_reduce_op op;
    int32_t channel;
    uint32_t timeout_ms;
    const symmem_stream *stream;
    bool split;    /* the last dimension is, and not the first */
    bool by_table; /* the context's table of all-reduces chooses its kind */
    bool is_kept;  /* for the next call with the same arguments, see repeat.h */
};

/* What every reduction has; without buffer and out. */
static inline sm_reduction sm_reduction_of(const char *name, symmem_call_kind kind,
                                           symmem_handle *handle, const DLTensor *input,
                                           symmem_reduce_op op, int32_t channel,
                                           uint32_t timeout_ms, const symmem_stream *stream) {
    return (sm_reduction){.name = name,
                          .kind = kind,
                          .handle = handle,
                          .input = input,
                          .op = op,
                          .channel = channel,
                          .timeout_ms = timeout_ms,
                          .stream = stream};
}
/* With a buffer on the way; with the caller's out. */
static inline void sm_reduction_by(sm_reduction *reduction, const DLTensor *buffer) {
    reduction->has_buffer = true;
    reduction->buffer = buffer;
}
static inline void sm_reduction_to(sm_reduction *reduction, const DLTensor *out) {
    reduction->has_out = true;
    reduction->out = out;
}

/* The same, read. */
typedef struct sm_reduction_call {
    sm_collective_op op;
    sm_tensor buffer, input, out;
} sm_reduction_call;

/* The form of a reduction within its kind. It is part of the call id, because forms differ in their
 * barriers. */
typedef enum sm_reduction_form {
    SM_FORM_PLAIN = 0,
    SM_FORM_COPY,     /* by way of the buffers */
    SM_FORM_IN_PLACE, /* the result in the buffers */
    SM_FORM_COPY_IN_PLACE,
    SM_FORM_SPLIT /* the last dimension is */
} sm_reduction_form;

/* All that can be checked without regard to where the tensors are, and to their shapes. The input's
 * dtype and count are the call's. */
symmem_status sm_reduction_begin(const sm_reduction *reduction, sm_reduction_call *call);
/* INVALID_ARGUMENT if two tensors overlap; `same_allowed`: unless they are one. */
symmem_status sm_reduction_distinct(const sm_collective_op *op, const sm_tensor *a,
                                    const sm_tensor *b, bool same_allowed);
/* INVALID_ARGUMENT with both numbers. */
symmem_status sm_reduction_unequal(const sm_collective_op *op, const char *what, uint64_t expected,
                                   uint64_t actual);

#endif
