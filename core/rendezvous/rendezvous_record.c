/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The records that ranks send each other at rendezvous, and their check. Every rank checks the same
 * records in the same order, so all reach the same result without another exchange.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/rendezvous.h"
#include "rendezvous/rendezvous_record.h"
#include "backend/device.h"
#include "backend/registry.h"

sm_rdv_share sm_rdv_share_pack(const symmem_share *share) {
    sm_rdv_share record = {
        .kind = share->kind,
        .mapped_bytes = share->mapped_bytes,
    };
    memcpy(record.bytes, share->bytes, sizeof record.bytes);
    memcpy(record.more_bytes, share->more_bytes, sizeof record.more_bytes);
    return record;
}

symmem_share sm_rdv_share_unpack(const sm_rendezvous *rendezvous, int32_t rank,
                                 const sm_rdv_share *record, int fd) {
    sm_session *session = rendezvous->group->session;
    symmem_share share = {
        .kind = record->kind,
        .fd = fd,
        .mapped_bytes = record->mapped_bytes,
    };
    memcpy(share.bytes, record->bytes, sizeof share.bytes);
    memcpy(share.more_bytes, record->more_bytes, sizeof share.more_bytes);
    if (sm_identity_same_process(sm_session_peer(session, rendezvous->group->rank),
                                 sm_session_peer(session, rank)))
        share.same_process = 1;
    return share;
}

void sm_rdv_record_fill(sm_rendezvous *rendezvous) {
    sm_rendezvous_record *own = &rendezvous->own;
    uint32_t flags = own->flags & SM_RDV_MULTICAST; /* set by the offer */
    memset(own, 0, sizeof *own);
    own->flags = flags;
    own->magic = SM_RDV_MAGIC;
    own->abi = SYMMEM_BACKEND_ABI;
    own->status = rendezvous->status;
    if (rendezvous->status != SYMMEM_OK) {
        const symmem_error_record *failure = &rendezvous->failure;
        own->system_errno = failure->system_errno;
        own->expected = failure->expected;
        own->actual = failure->actual;
        sm_copy_text(own->stage, sizeof own->stage, failure->stage);
        sm_copy_text(own->message, sizeof own->message, failure->message);
    }
    const symmem_context *context = rendezvous->context;
    if (context->backend != NULL) {
        own->backend =
            sm_hash(context->backend->name, strlen(context->backend->name), SM_HASH_SEED);
        sm_copy_text(own->backend_name, sizeof own->backend_name, context->backend->name);
    }
    if (sm_context_overlap_allowed(context) && sm_backend_has(context, SYMMEM_CAP_OVERLAP))
        own->flags |= SM_RDV_OVERLAP;
    if (context->check_collectives)
        own->flags |= SM_RDV_CHECKING;
    if (rendezvous->group->backend_group_open)
        own->group_generation = rendezvous->group->backend_group_generation;
    if (rendezvous->allocation == NULL)
        return;
    if (rendezvous->mapping != NULL)
        own->mapping_generation = rendezvous->mapping->generation;
    own->ordinal = rendezvous->block_ordinal;
    own->alloc_id = rendezvous->allocation->alloc_id;
    own->allocation_bytes = rendezvous->allocation->bytes;
    own->block_offset = rendezvous->block_offset;
    own->block_bytes = rendezvous->block_bytes;
    own->signal_pad_size = rendezvous->signal_pad_size;
    own->device = rendezvous->allocation->device;
    symmem_device_info info = {0};
    if (context->backend->device_info(context->instance, own->device, &info) == SYMMEM_OK)
        memcpy(own->device_id, info.unique_id, sizeof own->device_id);
    own->data = sm_rdv_share_pack(&rendezvous->data);
    own->signals = sm_rdv_share_pack(&rendezvous->signals);
    own->multicast = sm_rdv_share_pack(&rendezvous->multicast);
}

/* A rank's own failure becomes every rank's failure. */
static symmem_status check_own_failures(const sm_rendezvous *rendezvous) {
    for (int32_t r = 0; r < rendezvous->group->world_size; r++) {
        const sm_rendezvous_record *theirs = &rendezvous->records[r];
        if (theirs->status == SYMMEM_OK)
            continue;
        const char *stage = theirs->stage[0] != '\0' ? theirs->stage : "metadata";
        bool known = sm_status_known(theirs->status);
        symmem_status status = known ? (symmem_status)theirs->status : SYMMEM_CORRUPT;
        sm_fail(status, SM_RENDEZVOUS, stage, "rank %d: %s", r,
                known ? theirs->message : "its record has a status that does not exist");
        (void)sm_error_failed_rank(r);
        (void)sm_error_errno(theirs->system_errno);
        return sm_error_sizes(theirs->expected, theirs->actual);
    }
    return SYMMEM_OK;
}

static symmem_status disagree(int32_t rank, symmem_status status, const char *what,
                              uint64_t expected, uint64_t actual, const char *more) {
    (void)sm_fail(status, SM_RENDEZVOUS, "metadata",
                  "ranks disagree on the %s: rank 0 has %" PRIu64 ", rank %d has %" PRIu64 "%s",
                  what, expected, rank, actual, more);
    (void)sm_error_failed_rank(rank);
    return sm_error_sizes(expected, actual);
}

/* Checks the format first, because no other value of a foreign record has a meaning. Also ends all
 * texts with a zero, so that they cannot be read past. */
static symmem_status check_format(const sm_rendezvous *rendezvous) {
    for (int32_t r = 0; r < rendezvous->group->world_size; r++) {
        sm_rendezvous_record *theirs = &rendezvous->records[r];
        if (theirs->magic != SM_RDV_MAGIC)
            return disagree(r, SYMMEM_MISMATCH, "record format", SM_RDV_MAGIC, theirs->magic, "");
        theirs->stage[sizeof theirs->stage - 1] = '\0';
        theirs->message[sizeof theirs->message - 1] = '\0';
        theirs->backend_name[sizeof theirs->backend_name - 1] = '\0';
    }
    return SYMMEM_OK;
}

/* The option adds a barrier to some operations. Ranks with different values would read what has not
 * been written yet. */
static symmem_status check_option(const sm_rendezvous *rendezvous) {
    uint32_t first = rendezvous->records[0].flags & SM_RDV_CHECKING;
    for (int32_t r = 1; r < rendezvous->group->world_size; r++) {
        uint32_t theirs = rendezvous->records[r].flags & SM_RDV_CHECKING;
        if (theirs != first)
            return disagree(r, SYMMEM_MISMATCH, "option check_collectives", first != 0, theirs != 0,
                            "");
    }
    return SYMMEM_OK;
}

static symmem_status check_protocol(const sm_rendezvous *rendezvous) {
    const sm_rendezvous_record *first = &rendezvous->records[0];
    int32_t world_size = rendezvous->group->world_size;
    for (int32_t r = 0; r < world_size; r++) {
        const sm_rendezvous_record *theirs = &rendezvous->records[r];
        if (theirs->abi != first->abi)
            return disagree(r, SYMMEM_MISMATCH, "backend ABI", first->abi, theirs->abi, "");
    }
    for (int32_t r = 1; r < world_size; r++) {
        const sm_rendezvous_record *theirs = &rendezvous->records[r];
        if (theirs->backend == first->backend)
            continue;
        (void)sm_fail(SYMMEM_MISMATCH, SM_RENDEZVOUS, "metadata",
                      "ranks disagree on the backend: rank 0 has %.31s, rank %d has %.31s",
                      first->backend_name, r, theirs->backend_name);
        return sm_error_failed_rank(r);
    }
    return check_option(rendezvous);
}

/* Checks sizes and places. The ordinals tell whether all ranks use the same allocation. */
static symmem_status check_sizes(const sm_rendezvous *rendezvous) {
    static const struct {
        const char *what;
        size_t at;
    } fields[] = {
        {"allocation size", offsetof(sm_rendezvous_record, allocation_bytes)},
        {"block offset", offsetof(sm_rendezvous_record, block_offset)},
        {"block size", offsetof(sm_rendezvous_record, block_bytes)},
        {"allocation id", offsetof(sm_rendezvous_record, alloc_id)},
        {"signal pad size", offsetof(sm_rendezvous_record, signal_pad_size)},
    };
    const sm_rendezvous_record *first = &rendezvous->records[0];
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        uint64_t expected, actual;
        memcpy(&expected, (const char *)first + fields[i].at, sizeof expected);
        for (int32_t r = 1; r < rendezvous->group->world_size; r++) {
            const sm_rendezvous_record *theirs = &rendezvous->records[r];
            memcpy(&actual, (const char *)theirs + fields[i].at, sizeof actual);
            bool is_id = fields[i].at == offsetof(sm_rendezvous_record, alloc_id);
            if (actual == expected || (is_id && (actual == 0 || expected == 0)))
                continue;
            char which[128];
            snprintf(which, sizeof which,
                     " (rank 0 came with its allocation %" PRIu64 ", rank %d with its %" PRIu64
                     "%s)",
                     first->ordinal, r, theirs->ordinal,
                     theirs->ordinal != first->ordinal ? ": not of the same number" : "");
            return disagree(r, SYMMEM_MISMATCH, fields[i].what, expected, actual, which);
        }
    }
    return SYMMEM_OK;
}

static symmem_status check_channels(const sm_rendezvous *rendezvous) {
    uint64_t needed = 4 * (uint64_t)rendezvous->group->world_size;
    uint64_t there = rendezvous->records[0].signal_pad_size;
    if (there >= needed)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, SM_RENDEZVOUS, "metadata",
                  "signal pad of %" PRIu64 " bytes has no room for one channel of %d ranks, "
                  "which takes %" PRIu64,
                  there, rendezvous->group->world_size, needed);
    return sm_error_sizes(needed, there);
}

/* Whether two ranks have the same device. Processes that see different devices number them
 * differently, so ids are compared if there are any. */
static bool same_device(const sm_rendezvous_record *a, const sm_rendezvous_record *b) {
    static const uint8_t none[sizeof a->device_id] = {0};
    if (memcmp(a->device_id, none, sizeof none) == 0 ||
        memcmp(b->device_id, none, sizeof none) == 0)
        return a->device == b->device;
    return memcmp(a->device_id, b->device_id, sizeof none) == 0;
}

/* Fails on the first pair of ranks that share a device and must not. */
static symmem_status check_overlap(sm_rendezvous *rendezvous) {
    sm_session *session = rendezvous->group->session;
    bool allowed = true; /* by every rank: all ranks must decide the same */
    for (int32_t r = 0; r < rendezvous->group->world_size; r++)
        allowed = allowed && (rendezvous->records[r].flags & SM_RDV_OVERLAP) != 0;
    for (int32_t r = 1; r < rendezvous->group->world_size; r++) {
        for (int32_t q = 0; q < r; q++) {
            int32_t device = rendezvous->records[r].device;
            if (!same_device(&rendezvous->records[q], &rendezvous->records[r]) ||
                !sm_session_same_host(session, q, r))
                continue;
            rendezvous->overlap = true;
            if (allowed)
                return SYMMEM_OK;
            (void)sm_fail(SYMMEM_OVERLAP, SM_RENDEZVOUS, "metadata",
                          "ranks %d and %d both use device %d of one host", q, r, device);
            (void)sm_error_failed_rank(r);
            return sm_error_sizes(0, (uint64_t)device);
        }
    }
    return SYMMEM_OK;
}

/* Returns the first rank on another host than rank 0, or 0 if there is none. */
static int32_t first_far_rank(const sm_rendezvous *rendezvous) {
    sm_session *session = rendezvous->group->session;
    for (int32_t r = 1; r < rendezvous->group->world_size; r++) {
        if (!sm_session_same_host(session, 0, r))
            return r;
    }
    return 0;
}

/* Returns the first rank whose memory is reachable only by descriptors, which do not leave its
 * host; or -1. */
static int32_t first_bound_rank(const sm_rendezvous *rendezvous) {
    for (int32_t r = 0; r < rendezvous->group->world_size; r++) {
        const sm_rendezvous_record *theirs = &rendezvous->records[r];
        if (theirs->data.kind == SYMMEM_SHARE_FD || theirs->signals.kind == SYMMEM_SHARE_FD)
            return r;
    }
    return -1;
}

static symmem_status check_hosts(sm_rendezvous *rendezvous) {
    sm_session *session = rendezvous->group->session;
    int32_t far = first_far_rank(rendezvous), failed = far;
    char why[80] = "";
    if (far == 0)
        return SYMMEM_OK;
    rendezvous->cross_host = true;
    if ((rendezvous->context->backend->capabilities & SYMMEM_CAP_CROSS_HOST) != 0) {
        failed = first_bound_rank(rendezvous);
        if (failed < 0)
            return SYMMEM_OK;
        snprintf(why, sizeof why, ", and rank %d's memory cannot be shared between hosts", failed);
    }
    (void)sm_fail(SYMMEM_UNREACHABLE, SM_RENDEZVOUS, "metadata",
                  "ranks 0 and %d are on different hosts (%.63s, %.63s)%s", far,
                  sm_session_peer(session, 0)->host, sm_session_peer(session, far)->host, why);
    return sm_error_failed_rank(failed);
}

symmem_status sm_rdv_records_check(sm_rendezvous *rendezvous) {
    symmem_status status = check_format(rendezvous);
    if (status == SYMMEM_OK)
        status = check_own_failures(rendezvous);
    if (status == SYMMEM_OK)
        status = check_protocol(rendezvous);
    if (status == SYMMEM_OK)
        status = check_sizes(rendezvous);
    if (status == SYMMEM_OK)
        status = check_channels(rendezvous);
    if (status == SYMMEM_OK)
        status = check_overlap(rendezvous);
    if (status == SYMMEM_OK)
        status = check_hosts(rendezvous);
    if (status != SYMMEM_OK)
        return status;
    for (int32_t r = 0; r < rendezvous->group->world_size; r++) {
        const uint64_t mapping = rendezvous->records[r].mapping_generation;
        if (mapping == 0 || mapping != rendezvous->records[0].mapping_generation)
            rendezvous->exchange_data = true;
        const uint64_t group_generation = rendezvous->records[r].group_generation;
        if (group_generation == 0 || group_generation != rendezvous->records[0].group_generation)
            rendezvous->open_anew = true;
    }
    return SYMMEM_OK;
}
