/* SPDX-License-Identifier: BSD-3-Clause */
/* What the public collective operations share: checks, the way to the backend. */
#ifndef SYMMEM_CORE_COLLECTIVE_H
#define SYMMEM_CORE_COLLECTIVE_H

#include "rendezvous/tensor.h"
#include "stream/channel.h"

typedef struct sm_reduction sm_reduction;

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
    const sm_tensor *more;         /* as those of sm_collective_run; NULL: none */
    const sm_reduction *reduction; /* that is kept for the next call (repeat.h); NULL: none */
    /* Of kinds that the backend has no collective for; see sm_parts. */
    symmem_status (*compose)(const sm_channel_op *op, const symmem_exec *exec, bool capturing);
    const void *plan;
} sm_collective_op;

/* What can be checked without tensors: handle, capability, channel, stream, poison,
 * direct access. */
symmem_status sm_collective_begin(sm_collective_op *op, const char *name, symmem_handle *handle,
                                  symmem_call_kind kind, int32_t channel, uint32_t timeout_ms,
                                  const symmem_stream *stream);
/* Whether a tensor begins in the handle's block. One without elements does, wherever it is. */
bool sm_collective_inside(const sm_collective_op *op, const sm_tensor *tensor);
/* Whether all of it lies in the allocation of the link, which keeps that. */
bool sm_collective_is_of(const sm_link *link, const sm_tensor *tensor);
/* *offset_p: of a tensor in the handle's block, from the allocation's base. NOT_SYMMETRIC,
 * OUT_OF_RANGE. */
symmem_status sm_collective_symmetric(const sm_collective_op *op, const sm_tensor *tensor,
                                      size_t *offset_p);
/* OUT_OF_RANGE if the tensor begins in symmetric memory and ends beyond it. */
symmem_status sm_collective_covers(const sm_collective_op *op, const sm_tensor *tensor);
/* INVALID_ARGUMENT if the tensor overlaps `bytes` bytes at `offset` of any rank's buffer. */
symmem_status sm_collective_disjoint(const sm_collective_op *op, const sm_tensor *tensor,
                                     size_t offset, size_t bytes);
/* The same, but the input may also be this rank's chunk of the gathered out at `offset`. */
symmem_status sm_collective_disjoint_or_chunk(const sm_collective_op *op, const sm_tensor *in,
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
    const sm_channel_op *op;
    symmem_exec exec;     /* of the parts */
    uint64_t deadline_ns; /* without a stream; 0: none */
    bool capturing;
    bool begun; /* a part is under way, or done */
} sm_parts;

/* compose.c. */

/* For hashes that go into a call's detail. */
uint64_t sm_collective_mix(uint64_t hash, uint64_t value);

#endif
