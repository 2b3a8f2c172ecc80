/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the core's memory comes from: the backend's group memory, or pieces of an engine's heap.
 *
 * A piece of a heap is reused once no rank can write to it any more. What a rank has shared in a
 * rendezvous that succeeded is leased to the group's other ranks: each of them writes one word back
 * when it gives its view up. Until then, or until its process has ended, the piece stays aside.
 */
#ifndef SYMMEM_CORE_HEAP_H
#define SYMMEM_CORE_HEAP_H

#include "backend/context.h"

/* Takes over *memory, which world_open has filled, as the context's heap. Only `bytes` of it are
 * used: what the ranks agreed on, though an engine may give one of them more. */
symmem_status sm_heap_create(symmem_context *context, const symmem_memory *memory, size_t bytes);
/* Before the instance is closed: nothing of it is in use. */
void sm_heap_destroy(symmem_context *context);
/* Bytes that were joined with; 0: not joined. */
size_t sm_heap_bytes(const symmem_context *context);
/* Lets the engine of the context's heap work. False: there is none, or it needs no calls. */
bool sm_heap_progress(symmem_context *context);

/* As the entries of the group memory. The instance is entered. Errors as there, and NOT_INITIALIZED
 * where symmem_join has to come first. */
symmem_status sm_memory_alloc(symmem_context *context, int32_t device, size_t bytes,
                              symmem_memory *memory);
void sm_memory_release(symmem_context *context, symmem_memory *memory);
symmem_status sm_memory_share(symmem_context *context, symmem_memory *memory, int32_t world_size,
                              symmem_share *share);
void sm_memory_unshare(symmem_context *context, symmem_share *share);
/* `rank` is the exporter's in the context, `own` this rank's in the group. */
symmem_status sm_memory_map(symmem_context *context, int32_t device, const symmem_share *share,
                            size_t bytes, int32_t rank, int32_t own, symmem_memory *memory);

/* Who has a share. Arrays for the ranks of the group, copied. */
typedef struct sm_holders {
    int32_t rank; /* own, in the group */
    const int32_t *global_ranks;
    const sm_identity *identities;
} sm_holders;
/* The peers have what was shared, or may have it: it stays theirs after sm_memory_unshare. */
void sm_memory_lease(symmem_context *context, const symmem_share *share, const sm_holders *holders);
/* A view of a peer's memory is used from here on, and given back when it is released. */
void sm_memory_hold(const symmem_context *context, symmem_memory *memory);
/* From the start of the owner's heap. Of own memory and of views, with a heap. */
size_t sm_memory_offset(const symmem_memory *memory);

#endif
