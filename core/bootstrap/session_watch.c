/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The watch over peers during waits: whether one has ended or started over. It looks once per tick,
 * and at a bounded number of peers, so that a large world does not overload its store.
 */
#include "bootstrap/session_watch.h"
#include "bootstrap/session_internal.h"
#include "bootstrap/exit_record.h"
#include "bootstrap/ipc_sweep.h"
#include "bootstrap/session_cause.h"

#include <stdio.h>
#include <string.h>

#define JOINS_A_TICK 16 /* in addition to those of ranks that report to have given up */
#define PROCESSES_A_TICK 256
#define NEXT_PROCESS_NS 300000000u /* time for a rank's next process to come */
#define REMOVALS 2                 /* of a key that no other rank removes */

#define SERVE_MS 2 /* between two times that an engine is let work */

uint32_t sm_session_tick_ms(const sm_session *session) {
    return session->config.world_size <= 16 ? 50 : 250;
}

void sm_session_join_key(const sm_session *session, int32_t rank, char key[SM_SESSION_KEY_BYTES]) {
    const sm_session_config *config = &session->config;
    const bool apart = config->name_prefix == NULL;
    snprintf(key, SM_SESSION_KEY_BYTES, "%s/j/%d", apart ? config->prefix : config->name_prefix,
             config->global_ranks[rank]);
}

symmem_status sm_session_get(const sm_session *session, const sm_call *call, const char *key,
                             void *value, size_t capacity, size_t *bytes_p) {
    /* After the deadline the last looks still have to find the missing ranks. They have a moment
     * together, and at least one millisecond each. */
    uint32_t limit_ms = sm_remaining_ms(call->deadline_ns, SM_STORE_CALL_MS);
    if (limit_ms == 0)
        limit_ms = sm_remaining_ms(call->deadline_ns + SM_LAST_LOOKS_NS,
                                   sm_store_brief_ms(session->config.store));
    SM_ATTEMPT(reading);
    symmem_status status = symmem_store_get(session->config.store, key, value, capacity, bytes_p,
                                            limit_ms == 0 ? 1 : limit_ms);
    if (status != SYMMEM_NOT_FOUND && status != SYMMEM_OUT_OF_RANGE)
        (void)sm_error_raise(&reading.error);
    return status;
}

symmem_status sm_session_wait(const sm_session *session, const char *key, uint32_t timeout_ms) {
    const sm_session_config *config = &session->config;
    SM_ATTEMPT(waiting);
    symmem_status status = SYMMEM_TIMEOUT;
    uint32_t left_ms = timeout_ms;
    while (left_ms > 0 && status == SYMMEM_TIMEOUT) {
        const bool soon = config->serve && config->serve(config->owner);
        const uint32_t slice_ms = soon && left_ms > SERVE_MS ? SERVE_MS : left_ms;
        status = symmem_store_wait(config->store, key, slice_ms);
        left_ms -= slice_ms;
    }
    if (status != SYMMEM_TIMEOUT)
        (void)sm_error_raise(&waiting.error);
    return status;
}

void sm_session_remove(const sm_session *session, const char *key) {
    /* Cleaning up never fails a call and never touches its record. */
    SM_ATTEMPT(cleaning);
    symmem_status status = SYMMEM_SYSTEM;
    for (int i = 0; i < REMOVALS && status != SYMMEM_OK && status != SYMMEM_TIMEOUT; i++)
        status = symmem_store_remove(session->config.store, key,
                                     sm_store_brief_ms(session->config.store));
}

uint64_t sm_session_list(const sm_session *session) {
    const sm_session_config *config = &session->config;
    return sm_hash(config->global_ranks,
                   (size_t)config->world_size * sizeof(config->global_ranks[0]), SM_HASH_SEED);
}

static bool has_ended(const sm_session *session, int32_t rank, const sm_identity *identity) {
    const sm_session_config *config = &session->config;
    return sm_liveness_ask_of(config->liveness, config->global_ranks[rank], identity) ==
           SYMMEM_PEER_GONE;
}

bool sm_session_is_leftover(const sm_session *session, int32_t rank, sm_trace trace) {
    const sm_session_config *config = &session->config;
    return sm_member_is_older(config->member, trace) &&
           !sm_liveness_knows(config->liveness, config->global_ranks[rank]) &&
           has_ended(session, rank, trace.identity);
}

symmem_status sm_session_check_member(const sm_session *session, const sm_call *call) {
    const sm_session_config *config = &session->config;
    uint32_t limit_ms = sm_remaining_ms(call->deadline_ns, SM_STORE_CALL_MS);
    symmem_status status = sm_member_check(config->store, config->world_prefix, config->member,
                                           call->operation, limit_ms == 0 ? 1 : limit_ms);
    return status == SYMMEM_OK ? status : sm_session_store_failed(session, call, status);
}

bool sm_session_next_is_awaited(const sm_call *call) {
    return !sm_expired(call->deadline_ns) && sm_now_ns() - call->start_ns < NEXT_PROCESS_NS;
}

/* Reads what an absent rank has left: its word for this rank, or its exit record. The rank's next
 * process removes both. */
static bool read_what_is_left(const sm_session *session, const sm_call *call, int32_t global_rank,
                              sm_identity *identity_p) {
    const sm_session_config *config = &session->config;
    const sm_world world = {.store = config->store, .prefix = config->world_prefix};
    bool earlier_job;
    return (session->hears_of_left &&
            sm_member_read_left(config->store, config->world_prefix, config->member, global_rank,
                                identity_p)) ||
           (config->member != NULL && !sm_session_next_is_awaited(call) &&
            sm_exit_record_read(&world, global_rank, identity_p, &earlier_job));
}

/* Reads a key. A store without an answer is no failure. */
static symmem_status try_get(const sm_session *session, const sm_call *call, const char *key,
                             void *value, size_t capacity, size_t *bytes_p) {
    SM_ATTEMPT(look);
    return sm_session_get(session, call, key, value, capacity, bytes_p);
}

/* Answers NOT_FOUND if the rank has no identity yet, or one that this rank must not wait for. */
static symmem_status learn(const sm_session *session, const sm_call *call, int32_t rank) {
    char key[SM_SESSION_KEY_BYTES];
    const sm_session_config *config = &session->config;
    int32_t global_rank = config->global_ranks[rank];
    sm_identity_key(config->world_prefix, global_rank, key, sizeof(key));
    size_t bytes = 0;
    sm_member found;
    memset(&found, 0, sizeof(found));
    symmem_status status = try_get(session, call, key, &found, sizeof(found), &bytes);
    if (status == SYMMEM_NOT_FOUND &&
        read_what_is_left(session, call, global_rank, &found.identity)) {
        sm_liveness_learn(config->liveness, global_rank, &found.identity);
        return SYMMEM_OK;
    }
    if (status != SYMMEM_OK || (bytes != sizeof(found) && bytes != sizeof(found.identity)))
        return SYMMEM_NOT_FOUND;
    found.identity.host[sizeof(found.identity.host) - 1] = '\0';
    const sm_trace trace = {&found.identity, bytes == sizeof(found) ? found.published_ns : 0};
    if (sm_session_is_leftover(session, rank, trace))
        return SYMMEM_NOT_FOUND;
    const bool ended =
        sm_member_differs(config->member, &found) && has_ended(session, rank, &found.identity);
    /* A process of a world of another size is no rank of this job, unless both contradict each
     * other. */
    if (ended && sm_member_may_be_earlier(config->identity, trace))
        return SYMMEM_NOT_FOUND;
    status = sm_member_compare(config->store, config->world_prefix, config->member, &found, !ended);
    if (status != SYMMEM_OK) {
        sm_session_describe(session, call, status);
        (void)sm_error_failed_rank(rank);
        return status;
    }
    sm_liveness_learn(config->liveness, global_rank, &found.identity);
    return SYMMEM_OK;
}

symmem_status sm_session_read_join(const sm_session *session, const sm_call *call, int32_t rank,
                                   sm_join *join_p) {
    char key[SM_SESSION_KEY_BYTES];
    sm_session_join_key(session, rank, key);
    sm_join join;
    size_t bytes = 0;
    symmem_status status = sm_session_get(session, call, key, &join, sizeof(join), &bytes);
    if (status == SYMMEM_NOT_FOUND)
        return status;
    if (status != SYMMEM_OK && status != SYMMEM_OUT_OF_RANGE)
        return sm_session_store_failed(session, call, status);
    const sm_join *own = &session->joins[session->config.rank];
    if (status == SYMMEM_OUT_OF_RANGE || bytes != sizeof(join) || join.magic != own->magic ||
        join.version != own->version || join.address_bytes > sizeof(join.address)) {
        sm_session_fail(session, call, SYMMEM_MISMATCH,
                        "rank %d's join record is of another version of the library", rank);
        return sm_error_failed_rank(rank);
    }
    join.identity.host[sizeof(join.identity.host) - 1] = '\0';
    const bool differs =
        join.count != session->config.world_size || join.list != sm_session_list(session);
    /* A session that is up ignores records of other member lists. */
    if (differs && session->id != 0 && !session->joining)
        return SYMMEM_NOT_FOUND;
    if (!differs) {
        *join_p = join;
        return SYMMEM_OK;
    }
    if (sm_session_stood(session, call, rank, &join) == SYMMEM_MISMATCH)
        return SYMMEM_MISMATCH;
    /* A difference between the worlds explains more than one between the groups. */
    return learn(session, call, rank) == SYMMEM_MISMATCH
               ? SYMMEM_MISMATCH
               : sm_session_contradict(session, call, rank, &join);
}

/* Whether the rank's ended process left a member key, or without one a join record, that may be an
 * earlier job's. */
bool sm_session_may_be_earlier(const sm_session *session, const sm_call *call, int32_t rank) {
    const sm_session_config *config = &session->config;
    char key[SM_SESSION_KEY_BYTES];
    sm_member found;
    sm_join join;
    size_t bytes = 0;
    sm_trace trace = {&found.identity, 0};
    SM_ATTEMPT(look);
    sm_identity_key(config->world_prefix, config->global_ranks[rank], key, sizeof(key));
    bool is_there =
        sm_session_get(session, call, key, &found, sizeof(found), &bytes) == SYMMEM_OK &&
        (bytes == sizeof(found) || bytes == sizeof(found.identity));
    if (is_there) {
        trace.made_ns = bytes == sizeof(found) ? found.published_ns : 0;
    } else if (sm_session_read_join(session, call, rank, &join) == SYMMEM_OK) {
        is_there = true;
        trace = (sm_trace){&join.identity, join.made_ns};
    }
    return is_there && sm_member_may_be_earlier(config->identity, trace) &&
           has_ended(session, rank, trace.identity);
}

/* Removes the keys that the rank's ended process left. */
void sm_session_remove_traces(const sm_session *session, const sm_call *call, int32_t rank) {
    const sm_session_config *config = &session->config;
    char key[SM_SESSION_KEY_BYTES];
    sm_member found;
    sm_join join;
    size_t bytes = 0;
    SM_ATTEMPT(removing);
    sm_identity_key(config->world_prefix, config->global_ranks[rank], key, sizeof(key));
    if (sm_session_get(session, call, key, &found, sizeof(found), &bytes) == SYMMEM_OK &&
        bytes == sizeof(found) && has_ended(session, rank, &found.identity)) {
        found.identity.life_file[sizeof(found.identity.life_file) - 1] = '\0';
        /* Only while the member key still tells whose that file is. */
        sm_ipc_sweep_one(found.identity.life_file, config->liveness);
        sm_store_take_back(config->store, key, &found, sizeof(found),
                           sm_store_brief_ms(config->store));
    }
    if (sm_session_read_join(session, call, rank, &join) == SYMMEM_OK &&
        has_ended(session, rank, &join.identity)) {
        sm_session_join_key(session, rank, key);
        sm_store_take_back(config->store, key, &join, sizeof(join),
                           sm_store_brief_ms(config->store));
    }
}

symmem_status sm_session_look_up(const sm_session *session, const sm_call *call, int32_t rank) {
    if (sm_liveness_knows(session->config.liveness, session->config.global_ranks[rank]))
        return SYMMEM_OK;
    symmem_status status = learn(session, call, rank);
    return status == SYMMEM_NOT_FOUND ? SYMMEM_OK : status;
}

bool sm_session_has_left(const sm_session *session, const sm_call *call, int32_t rank) {
    const sm_session_config *config = &session->config;
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_member found;
    size_t bytes;
    sm_identity_key(config->world_prefix, config->global_ranks[rank], key, sizeof(key));
    symmem_status status = try_get(session, call, key, &found, sizeof(found), &bytes);
    return status == SYMMEM_NOT_FOUND &&
           sm_liveness_knows(config->liveness, config->global_ranks[rank]);
}

symmem_peer_state sm_session_peer_state(const sm_session *session, int32_t rank) {
    sm_liveness *liveness = session->config.liveness;
    const int32_t global_rank = session->config.global_ranks[rank];
    if (session->id == 0)
        return sm_liveness_ask(liveness, global_rank);
    return sm_liveness_ask_of(liveness, global_rank, &session->joins[rank].identity);
}

bool sm_session_peer_is_ending(const sm_session *session, int32_t rank) {
    return session->id != 0 &&
           sm_liveness_is_ending(session->config.liveness, &session->joins[rank].identity);
}

/* Does sm_session_peer_state after a glance at all processes. */
static symmem_peer_state seen_state(const sm_session *session, int32_t rank) {
    const sm_session_config *config = &session->config;
    const int32_t global_rank = config->global_ranks[rank];
    return session->id == 0
               ? sm_liveness_seen(config->liveness, global_rank)
               : sm_liveness_seen_of(config->liveness, global_rank, &session->joins[rank].identity);
}

static bool gone(const sm_session *session, const sm_call *call, int32_t rank,
                 symmem_peer_state state, bool *restarted_p) {
    sm_liveness *liveness = session->config.liveness;
    int32_t global_rank = session->config.global_ranks[rank];
    *restarted_p = false;
    if (state != SYMMEM_PEER_GONE)
        return false;
    SM_ATTEMPT(look);
    const symmem_status learned = learn(session, call, rank);
    if (learned == SYMMEM_OK)
        *restarted_p = sm_liveness_ask(liveness, global_rank) != SYMMEM_PEER_GONE;
    return true;
}

bool sm_session_gone(const sm_session *session, const sm_call *call, int32_t rank,
                     bool *restarted_p) {
    return gone(session, call, rank, sm_session_peer_state(session, rank), restarted_p);
}

bool sm_session_seen_gone(const sm_session *session, const sm_call *call, int32_t rank,
                          bool *restarted_p) {
    return gone(session, call, rank, seen_state(session, rank), restarted_p);
}

bool sm_session_known_gone(const sm_session *session, int32_t rank) {
    const sm_session_config *config = &session->config;
    return rank != config->rank &&
           sm_liveness_is_known_gone(config->liveness, config->global_ranks[rank],
                                     session->id == 0 ? NULL : &session->joins[rank].identity);
}

static sm_outcome fail_ended(const sm_session *session, const sm_call *call, const uint64_t *lost,
                             int32_t last) {
    sm_outcome outcome = sm_outcome_of(SYMMEM_PEER_LOST);
    outcome.lost = last;
    sm_session_fail_ranks(session, call, SYMMEM_PEER_LOST, lost, "ended");
    return outcome;
}

/* Looks for ranks whose pidfds tell that they have ended. This costs no look at those that live,
 * and one look in the store at the first that has ended: the others' successors do not make up for
 * it. */
static sm_outcome watch_known(const sm_session *session, const sm_call *call) {
    const sm_session_config *config = &session->config;
    uint64_t lost[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    int32_t last = -1;
    sm_liveness_glance(config->liveness);
    for (int32_t i = 0; i < config->world_size; i++) {
        const int32_t rank = (session->watch_next + i) % config->world_size;
        bool restarted = false;
        if (!sm_session_known_gone(session, rank))
            continue;
        if (last < 0)
            (void)gone(session, call, rank, SYMMEM_PEER_GONE, &restarted);
        if (restarted && call->restart)
            return sm_session_started_over(session, call, rank);
        lost[rank / 64] |= 1ull << (rank % 64);
        last = rank;
    }
    return last < 0 ? sm_outcome_of(SYMMEM_OK) : fail_ended(session, call, lost, last);
}

static sm_outcome watch_processes(const sm_session *session, const sm_call *call, int32_t count) {
    const sm_session_config *config = &session->config;
    uint64_t lost[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    int32_t last = -1;
    sm_liveness_glance(config->liveness);
    for (int32_t i = 0; i < config->world_size && i < count; i++) {
        int32_t rank = (session->watch_next + i) % config->world_size;
        bool restarted = false;
        if (rank == config->rank || !sm_session_seen_gone(session, call, rank, &restarted))
            continue;
        if (restarted && call->restart)
            return sm_session_started_over(session, call, rank);
        lost[rank / 64] |= 1ull << (rank % 64);
        last = rank;
    }
    return last < 0 ? sm_outcome_of(SYMMEM_OK) : fail_ended(session, call, lost, last);
}

sm_outcome sm_session_started_over(const sm_session *session, const sm_call *call, int32_t rank) {
    if (!call->restart) {
        /* The peer may have gone because it saw a rank end before this one looked. */
        sm_outcome lost = watch_known(session, call);
        if (lost.status == SYMMEM_OK)
            lost = watch_processes(session, call, session->config.world_size);
        if (lost.status != SYMMEM_OK)
            return lost;
    }
    uint64_t ranks[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    ranks[rank / 64] = 1ull << (rank % 64);
    sm_outcome outcome = sm_outcome_of(SYMMEM_TIMEOUT);
    outcome.again = true;
    outcome.over = rank;
    /* A call that will follow the peer gets no record, because it may still succeed. */
    if (!call->restart)
        sm_session_fail_ranks(session, call, SYMMEM_TIMEOUT, ranks,
                              "gave the operation up and started over");
    return outcome;
}

static sm_outcome watch_joins(sm_session *session, const sm_call *call) {
    const sm_session_config *config = &session->config;
    for (int32_t i = 0; i < config->world_size; i++) {
        int32_t rank = (session->watch_next + i) % config->world_size;
        if (rank == config->rank || (i >= JOINS_A_TICK && !sm_session_has_given_up(session, rank)))
            continue;
        sm_join join;
        symmem_status status = sm_session_read_join(session, call, rank, &join);
        if (status == SYMMEM_NOT_FOUND)
            continue;
        if (status != SYMMEM_OK)
            return sm_outcome_of(status);
        /* With the nonce of this bring-up it is only a key that is not removed yet. */
        if (memcmp(join.nonce, session->joins[rank].nonce, sizeof(join.nonce)) != 0)
            return sm_session_started_over(session, call, rank);
    }
    return sm_outcome_of(SYMMEM_OK);
}

symmem_status sm_session_wanted(const sm_session *session, const sm_call *call) {
    const sm_session_config *config = &session->config;
    return config->wanted == NULL ? SYMMEM_OK : config->wanted(config->owner, call->operation);
}

sm_outcome sm_session_watch(sm_session *session, const sm_call *call) {
    symmem_status status = sm_session_wanted(session, call);
    if (status != SYMMEM_OK)
        return sm_outcome_of(status);
    const int32_t left = sm_session_given_up_by(session); /* reads all notes that have come */
    /* Once one rank has ended, others that were told finalize. A rank that comes late to the news
     * must not look at each of them in the store and the sockets' directory first. */
    sm_outcome outcome = watch_known(session, call);
    if (outcome.status != SYMMEM_OK)
        return outcome;
    /* Join records come first: a rank that was restarted and is back is not lost. */
    outcome = watch_joins(session, call);
    sm_life_serve();
    if (outcome.status == SYMMEM_OK)
        outcome = watch_processes(session, call, PROCESSES_A_TICK);
    /* A call that may follow a peer waits for the peer's new bring-up instead. */
    if (outcome.status == SYMMEM_OK && !call->restart && session->id != 0 && left >= 0)
        outcome = sm_session_started_over(session, call, left);
    session->watch_next = (session->watch_next + JOINS_A_TICK) % session->config.world_size;
    return outcome;
}
