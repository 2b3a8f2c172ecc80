/* SPDX-License-Identifier: BSD-3-Clause */
/* Removes the keys of exchanges from the store. */
#include "bootstrap/exchange_clean.h"
#include "bootstrap/exchange.h"
#include "bootstrap/exchange_value.h"
#include "bootstrap/session_watch.h"

#include <stdio.h>
#include <string.h>

/* Whether the exchange has a key of that name. A status other than OK and NOT_FOUND means that the
 * store does not tell. */
static symmem_status look_for_key(const sm_gathering *x, const char *name) {
    SM_ATTEMPT(look);
    char key[SM_SESSION_KEY_BYTES];
    sm_part part;
    size_t bytes = 0;
    sm_exchange_key(x->session, x->id, x->sequence, name, key);
    symmem_status status = sm_session_get(x->session, x->call, key, &part, sizeof(part), &bytes);
    return status == SYMMEM_OUT_OF_RANGE ? SYMMEM_OK : status;
}

symmem_status sm_exchange_look_for_part(const sm_gathering *x, int32_t rank) {
    char name[16];
    (void)snprintf(name, sizeof(name), "%d", rank);
    return look_for_key(x, name);
}

static void remove_all(const sm_session *session, uint64_t id, uint64_t sequence) {
    char key[SM_SESSION_KEY_BYTES];
    sm_exchange_key(session, id, sequence, "all", key);
    sm_session_remove(session, key);
}

static void remove_common(const sm_session *session, uint64_t id, uint64_t sequence) {
    static const char *const names[] = {"all", "d"};
    char key[SM_SESSION_KEY_BYTES];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        sm_exchange_key(session, id, sequence, names[i], key);
        sm_session_remove(session, key);
    }
}

static void remove_part(const sm_session *session, uint64_t id, uint64_t sequence, int32_t rank) {
    char key[SM_SESSION_KEY_BYTES];
    sm_exchange_rank_key(session, id, sequence, rank, key);
    sm_session_remove(session, key);
}

/* A rank that has the combined value takes its own part back. */
static bool others_are_to_read(const sm_gathering *x) {
    const int32_t world_size = x->session->config.world_size;
    for (int32_t i = 1; i < world_size; i++) {
        const int32_t rank = (x->session->config.rank + i) % world_size;
        symmem_status status = sm_exchange_look_for_part(x, rank);
        if (status != SYMMEM_OK && status != SYMMEM_NOT_FOUND)
            status =
                sm_exchange_look_for_part(x, rank); /* or all keys of the exchange would stay */
        if (status != SYMMEM_NOT_FOUND)
            return true;
    }
    return false;
}

/* Parts that are read one by one stay until every rank has read all of them. */
static bool is_last_reader(const sm_gathering *x) {
    uint32_t limit_ms = sm_remaining_ms(x->call->deadline_ns, SM_STORE_CALL_MS);
    SM_ATTEMPT(counting);
    char key[SM_SESSION_KEY_BYTES];
    sm_exchange_key(x->session, x->id, x->sequence, "d", key);
    int64_t count = 0;
    const uint32_t brief_ms = sm_store_brief_ms(x->session->config.store);
    limit_ms = limit_ms < brief_ms ? brief_ms : limit_ms;
    symmem_status status = symmem_store_add(x->session->config.store, key, 1, &count, limit_ms);
    /* If this rank is not counted, all keys of the exchange stay. A slow store may have counted
     * it. */
    if (status != SYMMEM_OK && status != SYMMEM_TIMEOUT)
        status = symmem_store_add(x->session->config.store, key, 1, &count,
                                  sm_store_brief_ms(x->session->config.store));
    return status == SYMMEM_OK && count == x->session->config.world_size;
}

/* Removes the previous combined value. Every rank has read it: its part of this exchange is there.
 */
static void remove_earlier(sm_session *session, uint64_t sequence) {
    sm_finished *earlier = &session->finished;
    const bool anew = sequence == 0; /* rank 0 may be a new process that does not know of it */
    if (earlier->is_left && (session->config.rank == 0 || anew))
        remove_all(session, earlier->id, earlier->sequence);
    earlier->is_left = false;
}

void sm_exchange_finish(sm_gathering *x, bool failed) {
    sm_session *session = x->session;
    const bool together = failed || sm_gathering_inside(x, (size_t)x->own.bytes);
    sm_session_observe(session, "exchange.clean.before");
    remove_earlier(session, x->sequence);
    if (together) {
        remove_part(session, x->id, x->sequence, session->config.rank);
        session->finished = (sm_finished){x->id, x->sequence, true};
        return;
    }
    if (!is_last_reader(x))
        return;
    for (int32_t rank = 0; rank < session->config.world_size; rank++)
        remove_part(session, x->id, x->sequence, rank);
    remove_common(session, x->id, x->sequence);
}

/* For a rank that leaves the session. The last reader removes the last combined value. */
static void leave_last(sm_session *session) {
    const sm_finished last = session->finished;
    const sm_call look =
        sm_call_start("clean", "", sm_deadline_ns(sm_store_brief_ms(session->config.store)));
    const sm_gathering x = {
        .session = session, .call = &look, .id = last.id, .sequence = last.sequence};
    session->finished.is_left = false;
    if (last.is_left && look_for_key(&x, "all") != SYMMEM_NOT_FOUND && !others_are_to_read(&x))
        remove_all(session, last.id, last.sequence);
}

/* Adds the ranks that have ended by now. */
static void note_lost(const sm_session *session, sm_abandoned *entry) {
    const sm_session_config *config = &session->config;
    sm_liveness_glance(config->liveness);
    for (int32_t rank = 0; rank < config->world_size; rank++)
        if (rank != config->rank &&
            sm_liveness_glanced_of(config->liveness, config->global_ranks[rank],
                                   &session->joins[rank].identity) == SYMMEM_PEER_GONE)
            entry->lost[rank / 64] |= 1ull << (rank % 64);
}

/* Adds the ranks that are known to have ended. The caller is about to report a failure, and looks
 * at no other rank for that. */
static void note_known(const sm_session *session, int32_t lost, sm_abandoned *entry) {
    entry->lost[lost / 64] |= 1ull << (lost % 64);
    for (int32_t rank = 0; rank < session->config.world_size; rank++)
        if (sm_session_known_gone(session, rank))
            entry->lost[rank / 64] |= 1ull << (rank % 64);
}

static bool is_lost(const sm_abandoned *entry, int32_t rank) {
    return (entry->lost[rank / 64] >> (rank % 64) & 1) != 0;
}

/* Most of those that have ended have removed their own parts, and a removal keeps others from the
 * store for longer than a look does. */
static void remove_abandoned(sm_session *session, const sm_abandoned *entry, uint64_t sequence) {
    const sm_call look =
        sm_call_start("clean", "", sm_deadline_ns(sm_store_brief_ms(session->config.store)));
    const sm_gathering x = {
        .session = session, .call = &look, .id = entry->id, .sequence = sequence};
    remove_part(session, entry->id, sequence, session->config.rank);
    for (int32_t rank = 0; entry->any_lost && rank < session->config.world_size; rank++)
        if (is_lost(entry, rank) && sm_exchange_look_for_part(&x, rank) != SYMMEM_NOT_FOUND)
            remove_part(session, entry->id, sequence, rank);
    remove_common(session, entry->id, sequence);
}

/* Whether a living rank has yet to take its part of that exchange back, and so to read it. */
static bool is_being_read(sm_session *session, const sm_abandoned *entry, uint64_t sequence) {
    const sm_call look =
        sm_call_start("clean", "", sm_deadline_ns(sm_store_brief_ms(session->config.store)));
    const sm_gathering x = {
        .session = session, .call = &look, .id = entry->id, .sequence = sequence};
    for (int32_t rank = 0; rank < session->config.world_size; rank++)
        if (!is_lost(entry, rank) && sm_exchange_look_for_part(&x, rank) != SYMMEM_NOT_FOUND)
            return true;
    return false;
}

void sm_exchange_abandon(sm_session *session, uint64_t id, uint64_t sequence, sm_outcome outcome) {
    if (outcome.published && outcome.lost < 0) {
        SM_ATTEMPT(marking);
        sm_part mark = {.magic = SM_PART_MAGIC, .flags = SM_PART_GAVE_UP};
        char key[SM_SESSION_KEY_BYTES];
        sm_exchange_rank_key(session, id, sequence, session->config.rank, key);
        (void)!symmem_store_set(session->config.store, key, &mark, sizeof(mark),
                                sm_store_brief_ms(session->config.store));
    }
    if (session->abandoned_count == SM_ABANDONED_MAX) {
        remove_abandoned(session, &session->abandoned[0], session->abandoned[0].sequence);
        session->abandoned_count--;
        memmove(&session->abandoned[0], &session->abandoned[1],
                (size_t)session->abandoned_count * sizeof(session->abandoned[0]));
    }
    sm_abandoned *entry = &session->abandoned[session->abandoned_count++];
    *entry = (sm_abandoned){.id = id, .sequence = sequence, .any_lost = outcome.lost >= 0};
    if (entry->any_lost)
        note_known(session, outcome.lost, entry);
}

void sm_exchange_sweep(sm_session *session, bool all) {
    for (int32_t i = 0; i < session->abandoned_count; i++) {
        sm_abandoned *entry = &session->abandoned[i];
        if (entry->any_lost && !all) /* only while all its ranks are known */
            note_lost(session, entry);
        remove_abandoned(session, entry, entry->sequence);
        /* In the previous exchange a reader may have given up or ended before it took its part
         * back. A slow reader may still need the keys while not all ranks are known to have
         * left. */
        if (entry->sequence > 0 &&
            (all || (entry->any_lost && !is_being_read(session, entry, entry->sequence - 1))))
            remove_abandoned(session, entry, entry->sequence - 1);
    }
    session->abandoned_count = 0;
    if (!all)
        leave_last(session);
}
