/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory steps of a rendezvous: this rank's signal memory, exports, descriptors, peers'
 * mappings. */
#include <stdio.h>
#include <unistd.h>

#include "bootstrap/session_fds.h"
#include "backend/heap.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/rendezvous_map.h"
#include "backend/host.h"
#include "memory/group_calls.h"
#include "rendezvous/rendezvous_multicast.h"
#include "rendezvous/rendezvous_record.h"

/* The order of one rank's descriptors in the descriptor step. */
enum { SIGNALS_FD, DATA_FD, MULTICAST_FD };

/* Names the failed entry as the record's stage. */
static symmem_status described(const sm_rendezvous *rendezvous, symmem_status status,
                               const char *entry) {
    if (status != SYMMEM_OK)
        status = sm_backend_failed(rendezvous->context, status, SM_RENDEZVOUS, entry);
    return status;
}

/* Whether the backend registers memory collectively. */
static bool registers(const symmem_context *context) {
    return context->backend->memory_exchange != NULL && context->backend->world_open == NULL;
}

static size_t signal_total(const sm_rendezvous *rendezvous) {
    const symmem_context *context = rendezvous->context;
    const sm_link *link = rendezvous->link;
    return sm_link_signal_total(
        link, context->backend->signal_bytes(context->instance, rendezvous->group->world_size,
                                             link->channel_count, link->block_bytes));
}

static symmem_status export_memory(symmem_context *context, symmem_memory *memory,
                                   int32_t world_size, symmem_share *share_p) {
    symmem_share share = {.fd = -1};
    symmem_status status = sm_memory_share(context, memory, world_size, &share);
    if (status != SYMMEM_OK)
        return status;
    if ((share.kind & (SYMMEM_SHARE_FD | SYMMEM_SHARE_BYTES)) == 0) {
        sm_memory_unshare(context, &share); /* the core does not close a share without a kind */
        return sm_fail(SYMMEM_BACKEND, SM_RENDEZVOUS, "memory_share",
                       "nothing to share: kind %d is neither SYMMEM_SHARE_FD nor "
                       "SYMMEM_SHARE_BYTES",
                       (int)share.kind);
    }
    *share_p = share;
    if ((share.kind & SYMMEM_SHARE_FD) != 0 && share.fd < 0)
        return sm_fail(SYMMEM_BACKEND, SM_RENDEZVOUS, "memory_share", "no descriptor to share");
    return SYMMEM_OK;
}

void sm_rendezvous_prepare(sm_rendezvous *rendezvous) {
    symmem_context *context = rendezvous->context;
    sm_link *link = rendezvous->link;
    if (link->channel_count == 0)
        return; /* all ranks find that out together */
    const int32_t world_size = rendezvous->group->world_size;
    symmem_status status =
        sm_memory_alloc(context, link->device, signal_total(rendezvous), &link->own_signals);
    const char *entry = status == SYMMEM_OK ? "memory_share" : "memory_alloc";
    bool collective = registers(context);
    if (status == SYMMEM_OK && !collective)
        status = export_memory(context, &link->own_signals, world_size, &rendezvous->signals);
    /* Exported even if this rank has a mapping, because a peer may have none. */
    if (status == SYMMEM_OK && !collective)
        status =
            export_memory(context, &rendezvous->allocation->memory, world_size, &rendezvous->data);
    sm_rendezvous_set_failure(rendezvous, described(rendezvous, status, entry));
    if (status == SYMMEM_OK)
        sm_multicast_offer(rendezvous);
}

static void close_share(symmem_context *context, symmem_share *share) {
    if (share->kind == SYMMEM_SHARE_NONE)
        return;
    if (context->backend->memory_unshare != NULL || context->backend->world_open != NULL)
        sm_memory_unshare(context, share);
    else if (share->fd >= 0)
        close(share->fd);
    *share = (symmem_share){.fd = -1};
}

void sm_rendezvous_close_exports(sm_rendezvous *rendezvous) {
    close_share(rendezvous->context, &rendezvous->data);
    close_share(rendezvous->context, &rendezvous->signals);
    close_share(rendezvous->context, &rendezvous->multicast);
    int count = rendezvous->group->world_size * rendezvous->descriptor_count;
    for (int i = 0; i < count; i++) {
        if (rendezvous->descriptors[i] >= 0)
            close(rendezvous->descriptors[i]);
    }
    rendezvous->descriptor_count = 0;
}

/* All ranks decide the same from the same records. */
static void plan_multicast(sm_rendezvous *rendezvous) {
    const sm_rdv_share *share = &rendezvous->records[0].multicast;
    bool possible = share->kind != SYMMEM_SHARE_NONE && !rendezvous->overlap;
    if (share->kind == SYMMEM_SHARE_FD && rendezvous->cross_host)
        possible = false;
    for (int32_t r = 0; r < rendezvous->group->world_size; r++)
        possible = possible && (rendezvous->records[r].flags & SM_RDV_MULTICAST) != 0;
    rendezvous->attempt_multicast = possible;
}

static bool has_descriptor(const sm_rdv_share *share) {
    return (share->kind & SYMMEM_SHARE_FD) != 0;
}

symmem_status sm_rendezvous_descriptors(sm_rendezvous *rendezvous) {
    plan_multicast(rendezvous);
    bool needed =
        rendezvous->attempt_multicast && has_descriptor(&rendezvous->records[0].multicast);
    int count = needed ? 3 : rendezvous->exchange_data ? 2 : 1;
    for (int32_t r = 0; r < rendezvous->group->world_size; r++) {
        const sm_rendezvous_record *theirs = &rendezvous->records[r];
        needed = needed || has_descriptor(&theirs->signals) ||
                 (rendezvous->exchange_data && has_descriptor(&theirs->data));
    }
    /* Descriptors do not leave a host. The record check has made sure that there are bytes as
     * well. */
    if (!needed || rendezvous->cross_host || rendezvous->group->world_size == 1)
        return SYMMEM_OK;
    const int own[3] = {
        [SIGNALS_FD] = rendezvous->signals.fd,
        [DATA_FD] = rendezvous->exchange_data ? rendezvous->data.fd : -1,
        [MULTICAST_FD] = rendezvous->multicast.fd,
    };
    symmem_status status =
        sm_session_all_gather_fds(rendezvous->group->session, SM_RENDEZVOUS, own, count,
                                  rendezvous->descriptors, rendezvous->deadline_ns);
    if (status == SYMMEM_OK)
        rendezvous->descriptor_count = count;
    return status;
}

static int descriptor_of(const sm_rendezvous *rendezvous, int32_t rank, int which) {
    if (which >= rendezvous->descriptor_count)
        return -1;
    return rendezvous->descriptors[rank * rendezvous->descriptor_count + which];
}

/* Whether expected descriptors are absent, even where bytes would suffice. Their rank reports the
 * reason at the next agreement. */
static bool lacks_descriptors(const sm_rendezvous *rendezvous) {
    if (rendezvous->cross_host)
        return false; /* none are sent */
    for (int32_t r = 0; r < rendezvous->group->world_size; r++) {
        const sm_rendezvous_record *theirs = &rendezvous->records[r];
        if (r == rendezvous->group->rank)
            continue;
        if ((has_descriptor(&theirs->signals) && descriptor_of(rendezvous, r, SIGNALS_FD) < 0) ||
            (rendezvous->mapping_is_new && has_descriptor(&theirs->data) &&
             descriptor_of(rendezvous, r, DATA_FD) < 0))
            return true;
    }
    return false;
}

static symmem_status import_signals(sm_rendezvous *rendezvous, int32_t rank) {
    symmem_context *context = rendezvous->context;
    sm_link *link = rendezvous->link;
    symmem_share share = sm_rdv_share_unpack(rendezvous, rank, &rendezvous->records[rank].signals,
                                             descriptor_of(rendezvous, rank, SIGNALS_FD));
    return sm_memory_map(context, link->device, &share, signal_total(rendezvous),
                         rendezvous->group->global_ranks[rank], rendezvous->group->rank,
                         &link->peer_signals[rank]);
}

static symmem_status import_data(sm_rendezvous *rendezvous, int32_t rank) {
    symmem_context *context = rendezvous->context;
    sm_link *link = rendezvous->link;
    symmem_share share = sm_rdv_share_unpack(rendezvous, rank, &rendezvous->records[rank].data,
                                             descriptor_of(rendezvous, rank, DATA_FD));
    return sm_memory_map(context, link->device, &share, link->buffer_bytes,
                         rendezvous->group->global_ranks[rank], rendezvous->group->rank,
                         &rendezvous->mapping->peers[rank]);
}

/* The record names the importing rank and the memory's rank, because all ranks get this record. */
static symmem_status import_of(sm_rendezvous *rendezvous, int32_t rank) {
    symmem_status status = import_signals(rendezvous, rank);
    if (status == SYMMEM_OK && rendezvous->mapping_is_new)
        status = import_data(rendezvous, rank);
    if (status == SYMMEM_OK)
        return SYMMEM_OK;
    status = described(rendezvous, status, "memory_map");
    symmem_error_record error;
    char text[sizeof error.message];
    (void)sm_error_get(&error);
    snprintf(text, sizeof text, "rank %d cannot map the memory of rank %d: %.180s",
             rendezvous->group->rank, rank, error.message);
    sm_copy_text(error.message, sizeof text, text);
    (void)sm_error_raise(&error);
    return status;
}

static symmem_status import_all(sm_rendezvous *rendezvous) {
    symmem_status status = SYMMEM_OK;
    for (int32_t r = 0; r < rendezvous->group->world_size && status == SYMMEM_OK; r++) {
        if (r == rendezvous->group->rank)
            continue;
        status = described(
            rendezvous, sm_context_point(rendezvous->context, SM_RENDEZVOUS, "rendezvous.map.peer"),
            "memory_map");
        if (status == SYMMEM_OK)
            status = import_of(rendezvous, r);
    }
    return status;
}

/* One collective registration. All ranks succeed or all have released what they made. */
static symmem_status register_memory(sm_rendezvous *rendezvous, const symmem_exchange *exchange,
                                     const char *stage, symmem_memory *own, symmem_memory *peers) {
    symmem_context *context = rendezvous->context;
    symmem_status status = context->backend->memory_exchange(
        context->instance, rendezvous->group->backend_group, own, exchange, peers);
    symmem_status result = described(rendezvous, status, stage);
    if (result == SYMMEM_OK)
        result = sm_context_point(context, SM_RENDEZVOUS, "rendezvous.register.after");
    symmem_status agreed = sm_session_agree(rendezvous->group->session, SM_RENDEZVOUS, stage,
                                            result, rendezvous->deadline_ns);
    if (agreed == SYMMEM_OK || status != SYMMEM_OK)
        return agreed;
    for (int32_t r = 0; r < exchange->world_size; r++) {
        if (sm_memory_exists(&peers[r]))
            context->backend->memory_release(context->instance, &peers[r]);
        peers[r] = (symmem_memory){0};
    }
    return agreed;
}

/* Opening is collective, so a later attempt has to find it closed on all ranks. */
static void close_group(symmem_group *group) {
    symmem_context *context = group->context;
    if (!group->backend_group_open)
        return;
    context->backend->group_close(context->instance, group->backend_group);
    group->backend_group = NULL;
    group->backend_group_open = false;
}

static symmem_status open_group(sm_rendezvous *rendezvous, const symmem_exchange *exchange) {
    symmem_context *context = rendezvous->context;
    symmem_group *group = rendezvous->group;
    symmem_status status = SYMMEM_OK;
    if (rendezvous->open_anew) /* a rank may have it open with a peer's earlier process */
        close_group(group);
    if (context->backend->group_open != NULL && !group->backend_group_open) {
        status = context->backend->group_open(context->instance, exchange, rendezvous->link->device,
                                              &group->backend_group);
        group->backend_group_open = status == SYMMEM_OK;
        group->backend_group_generation = rendezvous->generation;
    }
    status = described(rendezvous, status, "group_open");
    if (status == SYMMEM_OK)
        status = sm_context_point(context, SM_RENDEZVOUS, "rendezvous.open.after");
    symmem_status agreed = sm_session_agree(group->session, SM_RENDEZVOUS, "group_open", status,
                                            rendezvous->deadline_ns);
    if (agreed != SYMMEM_OK)
        close_group(group);
    return agreed;
}

/* Exchanges for backends that register memory collectively: no rank may start before all can take
 * part. */
static symmem_status exchange_all(sm_rendezvous *rendezvous) {
    sm_link *link = rendezvous->link;
    symmem_exchange exchange;
    symmem_status status = sm_rendezvous_agree(rendezvous, "map", rendezvous->status);
    if (status != SYMMEM_OK)
        return status;
    sm_group_exchange(rendezvous->group, rendezvous->deadline_ns, &exchange);
    status = open_group(rendezvous, &exchange);
    if (status == SYMMEM_OK && rendezvous->exchange_data)
        status = register_memory(rendezvous, &exchange, "map.data", &rendezvous->allocation->memory,
                                 rendezvous->mapping->peers);
    if (status == SYMMEM_OK)
        status = register_memory(rendezvous, &exchange, "map.signals", &link->own_signals,
                                 link->peer_signals);
    if (status != SYMMEM_OK) /* a communicator that failed is not used again */
        close_group(rendezvous->group);
    return status;
}

/* Makes a new mapping to fill, unless all ranks have one of the same rendezvous. Any other mapping
 * may be of a peer's earlier memory, or of a peer that ended. */
static symmem_status renew_mapping(sm_rendezvous *rendezvous) {
    if (!rendezvous->exchange_data)
        return SYMMEM_OK;
    sm_mapping *mapping;
    symmem_status status = sm_mapping_create(rendezvous->allocation, rendezvous->group, &mapping);
    if (status != SYMMEM_OK)
        return status;
    if (rendezvous->mapping != NULL)
        sm_mapping_release(rendezvous->mapping);
    mapping->generation = rendezvous->generation;
    rendezvous->mapping = mapping;
    rendezvous->mapping_is_new = true;
    return SYMMEM_OK;
}

/* Local, except for backends with memory_exchange. */
static symmem_status map_peers(sm_rendezvous *rendezvous) {
    if (rendezvous->status == SYMMEM_OK)
        sm_rendezvous_set_failure(rendezvous, renew_mapping(rendezvous));
    if (registers(rendezvous->context))
        return exchange_all(rendezvous);
    rendezvous->incomplete = lacks_descriptors(rendezvous);
    if (rendezvous->status == SYMMEM_OK && !rendezvous->incomplete)
        sm_rendezvous_set_failure(rendezvous, import_all(rendezvous));
    return SYMMEM_OK;
}

void sm_rendezvous_lease(sm_rendezvous *rendezvous) {
    const symmem_group *group = rendezvous->group;
    const sm_holders holders = {.rank = group->rank,
                                .global_ranks = group->global_ranks,
                                .identities = rendezvous->link->identities};
    sm_memory_lease(rendezvous->context, &rendezvous->signals, &holders);
    if (rendezvous->mapping_is_new)
        sm_memory_lease(rendezvous->context, &rendezvous->data, &holders);
}

void sm_rendezvous_hold(sm_rendezvous *rendezvous) {
    for (int32_t r = 0; r < rendezvous->group->world_size; r++) {
        sm_memory_hold(rendezvous->context, &rendezvous->link->peer_signals[r]);
        if (rendezvous->mapping_is_new)
            sm_memory_hold(rendezvous->context, &rendezvous->mapping->peers[r]);
    }
}

static void complete_link(sm_rendezvous *rendezvous) {
    sm_link *link = rendezvous->link;
    sm_mapping_fill(rendezvous->mapping);
    sm_mapping_retain(rendezvous->mapping);
    sm_link_fill_peers(link, rendezvous->mapping);
}

symmem_status sm_rendezvous_map(sm_rendezvous *rendezvous) {
    symmem_status status = map_peers(rendezvous);
    if (status != SYMMEM_OK)
        return status;
    if (rendezvous->status == SYMMEM_OK && !rendezvous->incomplete)
        complete_link(rendezvous);
    status = sm_multicast_join(rendezvous, descriptor_of(rendezvous, 0, MULTICAST_FD));
    if (status == SYMMEM_OK && rendezvous->status == SYMMEM_OK)
        sm_rendezvous_point(rendezvous, "rendezvous.peers.before");
    if (status == SYMMEM_OK && rendezvous->status == SYMMEM_OK && !rendezvous->incomplete)
        sm_rendezvous_set_failure(
            rendezvous, described(rendezvous, sm_link_open_peers(rendezvous->link), "peers_open"));
    return status;
}
