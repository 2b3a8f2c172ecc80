/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of a block, and the memory of one operation that must stay. */
#ifndef SYMMEM_CORE_ONESIDED_H
#define SYMMEM_CORE_ONESIDED_H

#include "stream/stream.h"

/* [offset, offset + bytes) from the handle's offset lies in the block; OVERFLOW, OUT_OF_RANGE. */
symmem_status sm_handle_bounds(const symmem_handle *handle, const char *operation, size_t offset,
                               size_t bytes);

/* The memory of one operation that must stay: at most a link and two allocations, or five of a
 * matrix product. */
typedef struct sm_refs {
    symmem_ref refs[6];
    int32_t count;
    sm_allocation *held[5]; /* this call's own references */
    int32_t held_count;
    int32_t device; /* of the first covering allocation, -1 without */
} sm_refs;
void sm_refs_init(sm_refs *refs, sm_link *link);
/* Adds the allocation that covers ptr, if any; OUT_OF_RANGE if the bytes run past its end. */
symmem_status sm_refs_cover(sm_refs *refs, symmem_context *context, const char *operation,
                            const void *ptr, size_t bytes);
/* INVALID_ARGUMENT if none of the allocations is of the stream's device. */
symmem_status sm_refs_stream(const sm_refs *refs, const symmem_context *context,
                             const char *operation, const symmem_stream *stream);
/* The device for work that reaches all of the allocations: `device`, or theirs if that is negative.
 * INVALID_ARGUMENT if one of them is of another. */
symmem_status sm_refs_device(const sm_refs *refs, symmem_context *context, const char *operation,
                             int32_t device, int32_t *device_p);
void sm_refs_finish(sm_refs *refs);
/* Work on a stream keeps the backend's instance at least. */
symmem_exec sm_refs_exec(sm_refs *refs, const symmem_stream *stream);

#endif
