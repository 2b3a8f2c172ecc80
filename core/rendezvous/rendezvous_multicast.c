/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast at rendezvous. Rank 0 makes the object before the metadata step, so that its share is
 * sent in the record. Then all ranks attach and agree, and bind. Whether all have bound their
 * memory comes out with the commit. If one of them cannot, all ranks go on without multicast.
 */
#include "rendezvous/rendezvous.h"
#include "rendezvous/rendezvous_multicast.h"
#include "backend/device.h"
#include "backend/host.h"
#include "backend/registry.h"
#include "rendezvous/rendezvous_record.h"

void sm_multicast_offer(sm_rendezvous *rendezvous) {
    symmem_context *context = rendezvous->context;
    sm_link *link = rendezvous->link;
    symmem_device_info info = {0};
    if (rendezvous->group->world_size == 1 || !sm_backend_has(context, SYMMEM_CAP_MULTICAST) ||
        !sm_context_multicast_allowed(context))
        return;
    if (context->backend->device_info(context->instance, link->device, &info) != SYMMEM_OK ||
        info.multicast == 0)
        return;
    rendezvous->own.flags |= SM_RDV_MULTICAST;
    if (rendezvous->group->rank != 0)
        return;
    /* On failure the share stays of kind NONE, which tells the others. */
    symmem_share share = {.fd = -1};
    if (sm_context_point(context, SM_RENDEZVOUS, "rendezvous.create.before") == SYMMEM_OK &&
        context->backend->multicast_create(context->instance, link->device,
                                           rendezvous->group->world_size, link->buffer_bytes,
                                           &link->multicast_object, &share) == SYMMEM_OK)
        rendezvous->multicast = share;
}

void sm_multicast_release(sm_link *link) {
    symmem_context *context = link->context;
    if (link->multicast != NULL)
        context->backend->multicast_release(context->instance, link->multicast);
    if (link->multicast_object != NULL)
        context->backend->multicast_release(context->instance, link->multicast_object);
    link->multicast = link->multicast_object = link->multicast_address = NULL;
}

static symmem_status attach(sm_rendezvous *rendezvous, int fd) {
    sm_link *link = rendezvous->link;
    symmem_share share = sm_rdv_share_unpack(rendezvous, 0, &rendezvous->records[0].multicast, fd);
    return rendezvous->context->backend->multicast_attach(
        rendezvous->context->instance, link->device, &share, link->buffer_bytes, &link->multicast);
}

static symmem_status bind_own(sm_rendezvous *rendezvous) {
    sm_link *link = rendezvous->link;
    return rendezvous->context->backend->multicast_bind(
        rendezvous->context->instance, link->multicast, &rendezvous->allocation->memory,
        &link->peers, &link->multicast_address);
}

/* Does one step. It fails if the rank's rendezvous has failed already. */
static symmem_status step(sm_rendezvous *rendezvous, const char *stage, int fd, bool is_attach) {
    symmem_status own = rendezvous->status;
    if (own == SYMMEM_OK)
        own = sm_context_point(rendezvous->context, SM_RENDEZVOUS,
                               is_attach ? "rendezvous.attach.before" : "rendezvous.bind.before");
    if (own == SYMMEM_OK && !rendezvous->incomplete)
        own = is_attach ? attach(rendezvous, fd) : bind_own(rendezvous);
    if (rendezvous->status == SYMMEM_OK && own != SYMMEM_OK)
        own = sm_backend_failed(rendezvous->context, own, SM_RENDEZVOUS, stage);
    else if (own != SYMMEM_OK)
        (void)sm_error_raise(&rendezvous->failure);
    return own;
}

/* All ranks go on without multicast, because `failed` could not. */
static void go_without(sm_rendezvous *rendezvous, int32_t failed, symmem_status status) {
    sm_link *link = rendezvous->link;
    sm_multicast_release(link);
    for (int32_t r = 0; r < rendezvous->group->world_size; r++) {
        if ((rendezvous->records[r].flags & SM_RDV_MULTICAST) == 0)
            return; /* no rank expected it */
    }
    link->multicast_failed = failed;
    link->multicast_failure = status;
    if (!rendezvous->overlap && rendezvous->status == SYMMEM_OK)
        sm_context_notice(rendezvous->context,
                          "multicast could not be set up for a group, which goes without it");
}

/* The first rank whose gathered status is not OK; world_size: none. */
static int32_t first_unbound(const sm_rendezvous *rendezvous) {
    int32_t rank = 0;
    while (rank < rendezvous->group->world_size && rendezvous->all_bound[rank] == SYMMEM_OK)
        rank++;
    return rank;
}

/* The ranks exchange the statuses of this step as data. The step itself fails only if the exchange
 * fails, or if a rank's rendezvous had failed before. The commit then reports the latter. */
symmem_status sm_multicast_join(sm_rendezvous *rendezvous, int fd) {
    if (!rendezvous->attempt_multicast) { /* rank 0 could not make the object */
        go_without(rendezvous, 0, SYMMEM_BACKEND);
        return SYMMEM_OK;
    }
    rendezvous->bound = (int32_t)step(rendezvous, "multicast.attach", fd, true);
    symmem_status status = sm_rendezvous_gather_bound(rendezvous, "multicast.attach");
    if (status != SYMMEM_OK && sm_rendezvous_broke(rendezvous))
        return status;
    symmem_error_record error;
    (void)sm_error_get(&error);
    int32_t failed = error.failed_rank;
    if (status == SYMMEM_OK) {
        failed = first_unbound(rendezvous);
        if (failed == rendezvous->group->world_size) {
            rendezvous->bound = (int32_t)step(rendezvous, "multicast.bind", fd, false);
            return SYMMEM_OK;
        }
        status = (symmem_status)rendezvous->all_bound[failed];
    }
    go_without(rendezvous, failed, status);
    rendezvous->attempt_multicast = false; /* on all ranks, as agreed */
    return SYMMEM_OK;
}

void sm_multicast_settle(sm_rendezvous *rendezvous) {
    if (!rendezvous->attempt_multicast)
        return;
    const int32_t failed = first_unbound(rendezvous);
    if (failed < rendezvous->group->world_size)
        go_without(rendezvous, failed, (symmem_status)rendezvous->all_bound[failed]);
}
