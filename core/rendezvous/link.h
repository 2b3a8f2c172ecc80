/* SPDX-License-Identifier: BSD-3-Clause */
/* Links and handles. A link is the state that all handles of one block and one group share. */
#ifndef SYMMEM_CORE_LINK_H
#define SYMMEM_CORE_LINK_H

#include "memory/mapping.h"

#define SM_KEPT_BYTES 2560

/* The order of one channel's operations across streams. */
typedef struct sm_channel {
    sm_timed_mutex call_lock;
    void *eager_event; /* after the last operation on a stream */
    void *eager_end;   /* the same as the backend told it; NULL: the event of the core's counts */
    void *eager_stream;
    void *capture_event; /* the last operation's inside one capture */
    void *capture_stream;
    uint64_t capture;
    symmem_composite composite; /* its composite operations, one after the other */
    /* SM_KEPT_BYTES behind the channel, at first 0: calls that were checked (ops/repeat.c). Under
     * the call lock. */
    void *kept;
} sm_channel;

typedef struct sm_link {
    sm_cached cached; /* in block->links */
    atomic_int references;
    symmem_context *context; /* an instance user */
    sm_mapping *mapping;     /* counted */
    symmem_group *group;     /* counted; for reset, names and ranks */
    size_t block_offset, block_bytes, signal_pad_size, buffer_bytes;
    int32_t device, channel_count;
    symmem_memory own_signals; /* [user pad | signal state] */
    symmem_memory *peer_signals;
    sm_identity *identities; /* the ranks' at rendezvous; no later process of a rank */
    void **pads, **signals;
    size_t *offsets; /* with a heap: where each rank's buffer, pad and signals begin in its heap */
    symmem_peers peers;
    bool peers_open;
    void *buffers_dev, *pads_dev;
    void *multicast, *multicast_object, *multicast_address; /* address of the allocation's base */
    int32_t multicast_failed; /* without an address: the rank whose failure is the reason, or -1 */
    symmem_status multicast_failure;
    bool within_direct_access;
    pthread_mutex_t lock; /* poison record, channel table */
    atomic_bool poisoned;
    symmem_error_record poison_record;
    _Atomic(sm_channel *) *channels; /* made at first use */
    bool used_channels;
} sm_link;
void sm_link_retain(sm_link *link);
void sm_link_release(sm_link *link);
/* Does symmem_rendezvous for a rank that may have failed before it. `own` is that failure, or NULL.
 * Every rank then reports it. */
symmem_status sm_rendezvous_call(symmem_context *context, void *ptr, symmem_group *group,
                                 uint32_t timeout_ms, const symmem_error_record *own,
                                 symmem_handle **handle_p);

struct symmem_handle {
    atomic_int references;
    sm_link *link; /* counted */
    size_t offset; /* of the rendezvous pointer from the allocation's base */
};

/* link.c */
/* Fills the peers' tables. own_signals and peer_signals must be set. Takes over a reference of
 * mapping. */
void sm_link_fill_peers(sm_link *link, sm_mapping *mapping);
symmem_status sm_link_open_peers(sm_link *link);
/* The first returns the bytes between the start of the user's pad and the signal state, the second
 * the bytes of both. */
size_t sm_link_signal_offset(const sm_link *link);
size_t sm_link_signal_total(const sm_link *link, size_t signal_bytes);
/* Finds the channel or makes it. Answers OUT_OF_MEMORY with a record. */
symmem_status sm_link_channel(sm_link *link, int32_t channel, sm_channel **channel_p);
/* Returns the composite operation of a channel that exists. */
symmem_composite *sm_link_composite(const sm_link *link, int32_t channel);
void sm_link_ref(sm_link *link, symmem_ref *ref_p);

#endif
