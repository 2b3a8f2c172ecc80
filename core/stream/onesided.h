/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of a block, and references to the memory that an operation uses. */
#ifndef SYMMEM_CORE_ONESIDED_H
#define SYMMEM_CORE_ONESIDED_H

#include "stream/stream.h"

/* Checks that [offset, offset + bytes), from the handle's offset, lies in the block. Answers
 * OVERFLOW or OUT_OF_RANGE. */
symmem_status sm_handle_bounds(const symmem_handle *handle, const char *operation, size_t offset,
                               size_t bytes);

/* References to the memory that must stay until an operation ends: at most a link and three
 * allocations, or the five allocations of a matrix product. */
typedef struct sm_refs {
    symmem_ref refs[6];
    int32_t count;
    sm_allocation *held[5]; /* this call's own references */
    int32_t held_count;
    int32_t device; /* of the first allocation found; -1: none */
} sm_refs;
void sm_refs_init(sm_refs *refs, sm_link *link);
/* Adds the allocation that covers ptr, if any. Answers OUT_OF_RANGE if the bytes run past its
 * end. */
symmem_status sm_refs_cover(sm_refs *refs, symmem_context *context, const char *operation,
                            const void *ptr, size_t bytes);
/* Answers INVALID_ARGUMENT if no allocation is on the stream's device. */
symmem_status sm_refs_stream(const sm_refs *refs, const symmem_context *context,
                             const char *operation, const symmem_stream *stream);
/* Chooses the device for work on all of the allocations: `device`, or theirs if that is negative.
 * Answers INVALID_ARGUMENT if an allocation is on another device. */
symmem_status sm_refs_device(const sm_refs *refs, symmem_context *context, const char *operation,
                             int32_t device, int32_t *device_p);
void sm_refs_finish(sm_refs *refs);

/* The place of a peer's bytes: an address, or a place for the backend's reach entries. */
typedef struct sm_remote {
    char *address;
    symmem_place place; /* only without an address */
} sm_remote;
/* Checks a put to or a get from a peer, whose local side is `local`, and finds the peer's place. */
symmem_status sm_remote_check(const symmem_handle *handle, const char *operation, int32_t rank,
                              size_t offset, const void *local, size_t bytes,
                              const symmem_stream *stream, sm_remote *remote_p);
/* Puts bytes to a peer's place. */
symmem_status sm_remote_put(const sm_link *link, const char *operation, const sm_remote *dst,
                            const void *src, size_t bytes, const symmem_exec *exec);
/* Makes the symmem_exec of the operation. Work on a stream keeps at least the backend's
 * instance. */
symmem_exec sm_refs_exec(sm_refs *refs, const symmem_stream *stream);

#endif
