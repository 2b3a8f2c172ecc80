/* SPDX-License-Identifier: BSD-3-Clause */
/* Links and handles. A link is the state that all handles of one block and one group share. */
#ifndef SYMMEM_CORE_LINK_H
#define SYMMEM_CORE_LINK_H

#include "memory/mapping.h"

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
/* link_poison.c. Sets the services of context->host that concern a handle's peers. */
void sm_link_host_init(symmem_host *host);
/* Poisons the link after a reset that failed. Tells the peers even if it was poisoned before. */
void sm_link_poison_after_reset(sm_link *link, const symmem_error_record *record);
/* Poisons the link on this rank only. finalize calls it so that pending work gives up. */
void sm_link_poison_local(sm_link *link, const symmem_error_record *record);
/* Poisons the link, unless it is poisoned, and tells the peers. For an operation of this rank that
 * ended in the middle. */
void sm_link_poison_and_tell(sm_link *link, const symmem_error_record *record);
/* Answers UNSUPPORTED with the reason why the link has no multicast address. */
symmem_status sm_link_no_multicast(const sm_link *link, const char *operation);
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
/* Answers INVALID_ARGUMENT for NULL, and NOT_INITIALIZED after finalize. */
symmem_status sm_handle_check(const symmem_handle *handle, const char *operation);

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
/* Answers POISONED with the reason in the record, or OK. */
symmem_status sm_link_refuse_poisoned(sm_link *link, const char *operation);
/* Does the same without asking the backend for faults of its devices. */
symmem_status sm_link_refuse_known_poison(sm_link *link, const char *operation);
/* Lets a backend whose faults are in device memory report them. */
void sm_link_check_device(const sm_link *link);
void sm_link_clear_poison(sm_link *link);
void sm_link_ref(sm_link *link, symmem_ref *ref_p);

/* link_poison.c. The entries of symmem_host of these names. */
void sm_link_signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                           symmem_error_record *record_p);
symmem_peer_state sm_link_peer_state(const symmem_peers *peers, int32_t rank);
bool sm_link_peer_is_ending(const symmem_peers *peers, int32_t rank);
bool sm_link_is_poisoned(const symmem_peers *peers);
/* Sets where signal_failed leaves its record in this thread, for that link and channel. For a call
 * without stream while it is at the backend. NULL: nowhere. */
void sm_link_set_caller(const sm_link *link, int32_t channel, symmem_error_record *record);

/* handle.c */
/* Takes over a reference of link on success. */
symmem_status sm_handle_create(sm_link *link, size_t offset, symmem_handle **handle_p);
/* Answers OUT_OF_RANGE unless 0 <= rank < world_size. */
symmem_status sm_handle_rank_check(const symmem_handle *handle, const char *operation,
                                   int32_t rank);

#endif
