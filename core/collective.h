/* SPDX-License-Identifier: BSD-3-Clause */
/* What the public collective operations share: tensors, checks, the way to the backend. */
#ifndef SYMMEM_CORE_COLLECTIVE_H
#define SYMMEM_CORE_COLLECTIVE_H

#include "rendezvous.h"

#include <symmem/ops.h>

/* A DLTensor argument that was found to be usable. */
typedef struct sm_tensor {
    const char *what; /* the argument's name */
    char *data;
    symmem_dtype dtype;
    size_t count; /* elements */
    size_t bytes;
    int32_t ndim;
    const int64_t *shape; /* the caller's */
} sm_tensor;

/* tensor.c. What every DLTensor argument must be, whatever its layout: dimensions that can be read,
 * and of a device of the context's. context NULL: of any. INVALID_ARGUMENT, OUT_OF_RANGE. */
symmem_status sm_tensor_form(symmem_context *context, const DLTensor *from, const char *operation,
                             const char *what);
/* Where its elements begin; the last one of `extent` bytes has an address, too. INVALID_ARGUMENT,
 * OVERFLOW, MISALIGNED. */
symmem_status sm_tensor_place(const DLTensor *from, const char *operation, const char *what,
                              size_t element, size_t extent, char **data_p);
/* Reads a contiguous, aligned tensor of a known dtype. What those two answer. */
symmem_status sm_tensor_read(symmem_context *context, const DLTensor *from, const char *operation,
                             const char *what, sm_tensor *tensor_p);
/* INVALID_ARGUMENT unless both have the same dtype. */
symmem_status sm_tensor_same_dtype(const sm_tensor *a, const sm_tensor *b, const char *operation);
/* INVALID_ARGUMENT if they overlap. */
symmem_status sm_tensor_apart(const sm_tensor *a, const sm_tensor *b, const char *operation);
/* The same dtype, and `out` of `in`'s shape, the first dimension world_size times as long; that
 * dimension alone for a scalar. */
symmem_status sm_tensor_gathers(const sm_tensor *in, const sm_tensor *out, int32_t world_size,
                                const char *operation);
/* The same dtype and shape. */
symmem_status sm_tensor_alike(const sm_tensor *a, const sm_tensor *b, const char *operation);
/* The dtype of a DLPack type; false if there is none. */
bool sm_dtype_of(DLDataType type, symmem_dtype *dtype_p);
DLDataType sm_dtype_to_dl(symmem_dtype dtype);

/* One collective call on its way. */
typedef struct sm_collective_op {
    const char *name; /* the public call */
    symmem_handle *handle;
    sm_link *link;
    const symmem_stream *stream;
    int32_t channel;
    uint32_t timeout_ms;
    symmem_collective call;
    uint64_t detail; /* of the call id, beyond what `call` shows */
    symmem_ref keep; /* what the operation needs until it has run; object NULL: nothing more */
    /* Of kinds that the backend has no collective for; see sm_parts. */
    symmem_status (*compose)(const sm_signal_op *op, const symmem_exec *exec, bool capturing);
    const void *plan;
} sm_collective_op;

/* collective.c. What can be checked without tensors: handle, capability, channel, stream, poison,
 * direct access. */
symmem_status sm_collective_begin(sm_collective_op *op, const char *name, symmem_handle *handle,
                                  symmem_call_kind kind, int32_t channel, uint32_t timeout_ms,
                                  const symmem_stream *stream);
/* Whether a tensor begins in the handle's block. One without elements does, wherever it is. */
bool sm_collective_inside(const sm_collective_op *op, const sm_tensor *tensor);
/* *offset_p: of a tensor in the handle's block, from the allocation's base. NOT_SYMMETRIC,
 * OUT_OF_RANGE. */
symmem_status sm_collective_symmetric(const sm_collective_op *op, const sm_tensor *tensor,
                                      size_t *offset_p);
/* OUT_OF_RANGE if the tensor begins in symmetric memory and ends beyond it. */
symmem_status sm_collective_covers(const sm_collective_op *op, const sm_tensor *tensor);
/* INVALID_ARGUMENT if the tensor overlaps `bytes` bytes at `offset` of any rank's buffer. */
symmem_status sm_collective_apart(const sm_collective_op *op, const sm_tensor *tensor,
                                  size_t offset, size_t bytes);
/* The same for an input that may be the own chunk of the gathered out at `offset` instead. */
symmem_status sm_collective_apart_or_chunk(const sm_collective_op *op, const sm_tensor *in,
                                           size_t offset, size_t bytes);
/* UNSUPPORTED unless the pair can be reduced. */
symmem_status sm_collective_reduction(sm_collective_op *op, symmem_dtype dtype,
                                      symmem_reduce_op reduce_op);
/* Runs or enqueues. The tensors, NULL or not, are what the call reads and writes beside the
 * handle's own block. */
symmem_status sm_collective_run(sm_collective_op *op, const sm_tensor *in, const sm_tensor *out);

/*
 * One operation that is composed of the backend's barriers and copies. If a part fails when
 * others were under way already, peers may wait for the rest: then the handle is poisoned and they
 * are told.
 */
typedef struct sm_parts {
    const sm_signal_op *op;
    symmem_exec exec;     /* of the parts */
    uint64_t deadline_ns; /* without a stream; 0: none */
    bool capturing;
    bool begun; /* a part is under way, or done */
} sm_parts;

/* compose.c. */
void sm_parts_begin(sm_parts *parts, const sm_signal_op *op, const symmem_exec *exec,
                    bool capturing);
/* The first one compares the ranks' calls. */
symmem_status sm_parts_barrier(sm_parts *parts);
symmem_status sm_parts_copy(sm_parts *parts, void *dst, const void *src, size_t bytes);
/* To a multicast address. */
symmem_status sm_parts_store(sm_parts *parts, void *address, const void *src, size_t bytes);

/* multicast.c. What symmem_multimem_store does, as `operation`. */
symmem_status sm_multimem_store(symmem_handle *handle, const char *operation, size_t offset,
                                const void *src, size_t bytes, symmem_stream *stream);

/* "one_shot_all_reduce" and so on; "?" for others. */
const char *sm_call_name(uint32_t kind);
const char *sm_reduce_op_name(uint32_t op);

/* For hashes that go into a call's detail. */
uint64_t sm_collective_mix(uint64_t hash, uint64_t value);

#endif
