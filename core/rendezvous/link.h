/* SPDX-License-Identifier: BSD-3-Clause */
/* Links, which are all state that the handles of one block and one group share, and handles. */
#ifndef SYMMEM_CORE_LINK_H
#define SYMMEM_CORE_LINK_H

#include "memory/mapping.h"

/* One channel's order across streams. */
typedef struct sm_channel {
    sm_timed_mutex call_lock;
    void *eager_event; /* after the last operation on a stream */
    void *eager_stream;
    void *capture_event; /* the same inside one capture */
    void *capture_stream;
    uint64_t capture;
    symmem_composite composite; /* its operations made of parts, one after the other */
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
    sm_identity *identities; /* the ranks' at rendezvous: a successor is none of them */
    void **pads, **signals;
    size_t *offsets; /* with a heap: of the ranks' buffers, pads and signals in theirs */
    symmem_peers peers;
    bool peers_open;
    void *buffers_dev, *pads_dev;
    void *multicast, *multicast_object, *multicast_address; /* address of the allocation's base */
    int32_t multicast_failed; /* without an address: the rank for whose failure, or -1 */
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
/* link_poison.c. The services of context->host that ask for a handle's peers. */
void sm_link_host_init(symmem_host *host);
/* Poisons the link after a reset that failed, and tells the peers even if it was poisoned
 * before. */
void sm_link_poison_after_reset(sm_link *link, const symmem_error_record *record);
/* Poisons the link on this rank only; finalize does so, and pending work then gives up. */
void sm_link_poison_local(sm_link *link, const symmem_error_record *record);
/* Poisons this one, unless it is poisoned, and tells the peers: an operation of this rank ended in
 * the middle. */
void sm_link_poison_and_tell(sm_link *link, const symmem_error_record *record);
/* UNSUPPORTED: the link has no multicast address, and why. */
symmem_status sm_link_no_multicast(const sm_link *link, const char *operation);
/* symmem_rendezvous for a rank that may have failed before it. `own` is that failure, or NULL, and
 * every rank reports it. */
symmem_status sm_rendezvous_call(symmem_context *context, void *ptr, symmem_group *group,
                                 uint32_t timeout_ms, const symmem_error_record *own,
                                 symmem_handle **handle_p);

struct symmem_handle {
    atomic_int references;
    sm_link *link; /* counted */
    size_t offset; /* of the rendezvous pointer from the allocation's base */
};
/* NULL: INVALID_ARGUMENT; after finalize: NOT_INITIALIZED. */
symmem_status sm_handle_check(const symmem_handle *handle, const char *operation);

/* link.c */
/* Takes over a reference of mapping; own_signals and peer_signals are there. */
void sm_link_fill_peers(sm_link *link, sm_mapping *mapping);
symmem_status sm_link_open_peers(sm_link *link);
/* Bytes between the user's pad and the signal state, and all of both. */
size_t sm_link_signal_offset(const sm_link *link);
size_t sm_link_signal_total(const sm_link *link, size_t signal_bytes);
/* OUT_OF_MEMORY with a record. */
symmem_status sm_link_channel(sm_link *link, int32_t channel, sm_channel **channel_p);
/* Of a channel that was made. */
symmem_composite *sm_link_composite(const sm_link *link, int32_t channel);
/* POISONED with the reason in the record, or OK. */
symmem_status sm_link_refuse_poisoned(sm_link *link, const char *operation);
/* The same without asking the backend what its devices have to tell. */
symmem_status sm_link_refuse_known_poison(sm_link *link, const char *operation);
/* Lets a backend whose faults lie in device memory report them. */
void sm_link_check_device(const sm_link *link);
void sm_link_clear_poison(sm_link *link);
void sm_link_ref(sm_link *link, symmem_ref *ref_p);

/* link_poison.c. What symmem_host promises of the entries of these names. */
void sm_link_signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                           symmem_error_record *record_p);
symmem_peer_state sm_link_peer_state(const symmem_peers *peers, int32_t rank);
bool sm_link_peer_is_ending(const symmem_peers *peers, int32_t rank);
bool sm_link_is_poisoned(const symmem_peers *peers);
/* While a call without stream is at the backend: where signal_failed in this thread, for that link
 * and channel, leaves the record. NULL: nowhere. */
void sm_link_set_caller(const sm_link *link, int32_t channel, symmem_error_record *record);

/* handle.c */
/* Takes over a reference of link on success. */
symmem_status sm_handle_create(sm_link *link, size_t offset, symmem_handle **handle_p);
/* OUT_OF_RANGE unless 0 <= rank < world_size. */
symmem_status sm_handle_rank_check(const symmem_handle *handle, const char *operation,
                                   int32_t rank);

#endif
