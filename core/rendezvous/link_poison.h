/* SPDX-License-Identifier: BSD-3-Clause */
/* Poisoning of a link after a failed signal operation, and the host services for backends. */
#ifndef SYMMEM_CORE_RENDEZVOUS_LINK_POISON_H
#define SYMMEM_CORE_RENDEZVOUS_LINK_POISON_H

#include "rendezvous/link.h"

/* Sets the services of context->host that concern a handle's peers. */
void sm_link_host_init(symmem_host *host);
/* Poisons the link after a reset that failed. Tells the peers even if it was poisoned before. */
void sm_link_poison_after_reset(sm_link *link, const symmem_error_record *record);
/* Poisons the link on this rank only. finalize calls it so that pending work gives up. */
void sm_link_poison_local(sm_link *link, const symmem_error_record *record);
/* Poisons the link, unless it is poisoned, and tells the peers. For an operation of this rank that
 * ended in the middle. */
void sm_link_poison_and_tell(sm_link *link, const symmem_error_record *record);
/* Answers POISONED with the reason in the record, or OK. */
symmem_status sm_link_refuse_poisoned(sm_link *link, const char *operation);
/* Does the same without asking the backend for faults of its devices. */
symmem_status sm_link_refuse_known_poison(sm_link *link, const char *operation);
/* Lets a backend whose faults are in device memory report them. */
void sm_link_check_device(const sm_link *link);
void sm_link_clear_poison(sm_link *link);

/* The entries of symmem_host of these names. */
void sm_link_signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                           symmem_error_record *record_p);
symmem_peer_state sm_link_peer_state(const symmem_peers *peers, int32_t rank);
bool sm_link_peer_is_ending(const symmem_peers *peers, int32_t rank);
bool sm_link_is_poisoned(const symmem_peers *peers);
/* A call without stream that is at the backend: where signal_failed leaves its record in this
 * thread, for that link and channel. */
typedef struct sm_link_caller {
    const sm_link *link;
    symmem_error_record *record; /* NULL: there is no such call */
    int32_t channel;
} sm_link_caller;

/* Returns the thread's own place, in which the call sets `record` to NULL when it is back. */
sm_link_caller *sm_link_set_caller(const sm_link *link, int32_t channel,
                                   symmem_error_record *record);

/* Whether the handle is poisoned. Asks the device. */
static inline bool sm_link_finds_poison(const sm_link *link) {
    sm_link_check_device(link);
    /* acquire; pairs with: set_poison */
    return atomic_load_explicit(&link->poisoned, memory_order_acquire);
}

#endif
