/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A group's session. The bring-up has three steps.
 *   1. Each rank publishes a join record with a fresh nonce and reads the records of all ranks.
 *   2. The session's id is the hash of all nonces. An exchange under that id tells each rank that
 *      all have read the same records. A rank that sees a record change meanwhile reads all again.
 *   3. Each rank removes its join record and only then goes on.
 * A join record with another nonce than the session's therefore always means that its rank has
 * given the session up, whichever step the others have reached. Those follow it, or fail.
 */
#include "bootstrap/session_internal.h"
#include "bootstrap/exchange_clean.h"
#include "bootstrap/exit_record.h"
#include "bootstrap/ipc_sweep.h"
#include "bootstrap/session_cause.h"
#include "bootstrap/session_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STALE_JOIN_SLEEP_NS 20000000u
#define CAUSE_LOOKS 16 /* for one of the ended ranks that has not finalized */

/* --- records ---------------------------------------------------------------------------------- */

sm_call sm_call_start(const char *operation, const char *stage, uint64_t deadline_ns) {
    return (sm_call){.operation = operation,
                     .stage = stage,
                     .start_ns = sm_now_ns(),
                     .deadline_ns = deadline_ns};
}

bool sm_session_blames_server(const symmem_error_record *record) {
    return (record->status == SYMMEM_PEER_LOST || record->status == SYMMEM_TIMEOUT) &&
           strcmp(record->stage, SM_STORE_SERVER_STAGE) == 0;
}

/* Gives rank 0 of the world its number in the group, or none if it is no member. A store whose
 * server has gone, or does not answer, names that rank. */
static void blame_in_group(const sm_session *session, symmem_error_record *record) {
    if (!sm_session_blames_server(record))
        return;
    memset(record->missing, 0, sizeof(record->missing));
    record->missing_count = 0;
    record->failed_rank = -1;
    for (int32_t rank = 0; rank < session->config.world_size; rank++)
        if (session->config.global_ranks[rank] == 0) {
            record->failed_rank = rank;
            record->missing_count = 1;
            record->missing[rank / 64] = 1ull << (rank % 64);
        }
}

symmem_status sm_session_describe(const sm_session *session, const sm_call *call,
                                  symmem_status status) {
    symmem_error_record error, *record = &error;
    (void)sm_error_get(&error);
    blame_in_group(session, record);
    sm_copy_text(record->operation, sizeof(record->operation), call->operation);
    if (status != SYMMEM_TIMEOUT || !sm_session_blames_server(record))
        sm_copy_text(record->stage, sizeof(record->stage), call->stage);
    sm_copy_text(record->group, sizeof(record->group), session->config.group_name);
    record->status = status;
    record->rank = session->config.rank;
    record->world_size = session->config.world_size;
    record->elapsed_ns = sm_now_ns() - call->start_ns;
    return sm_error_raise(&error);
}

symmem_status sm_session_store_failed(const sm_session *session, const sm_call *call,
                                      symmem_status status) {
    symmem_error_record record;
    (void)sm_error_get(&record);
    const bool is_early = status == SYMMEM_TIMEOUT && !sm_expired(call->deadline_ns) &&
                          !sm_session_blames_server(&record);
    (void)sm_session_describe(session, call, status);
    return is_early ? sm_error_failed_rank(session->config.rank) : status;
}

symmem_status sm_session_fail(const sm_session *session, const sm_call *call, symmem_status status,
                              const char *format, ...) {
    va_list args;
    va_start(args, format);
    sm_vfail(status, call->operation, call->stage, format, args);
    va_end(args);
    return sm_session_describe(session, call, status);
}

symmem_status sm_session_fail_ranks(const sm_session *session, const sm_call *call,
                                    symmem_status status, const uint64_t *ranks, const char *what) {
    char list[160] = "";
    size_t used = 0;
    uint32_t count = 0;
    int32_t first = -1;
    for (int32_t rank = 0; rank < session->config.world_size; rank++) {
        if ((ranks[rank / 64] >> (rank % 64) & 1) == 0)
            continue;
        first = first < 0 ? rank : first;
        count++;
        if (used + 16 < sizeof(list))
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d",
                                     count > 1 ? ", " : "", rank);
        else if (list[used - 1] != '.')
            used += (size_t)snprintf(list + used, sizeof(list) - used, " ...");
    }
    sm_session_fail(session, call, status, "rank%s %s %s", count > 1 ? "s" : "", list, what);
    symmem_error_record error;
    (void)sm_error_get(&error);
    memcpy(error.missing, ranks, sizeof(error.missing));
    error.missing_count = count;
    error.failed_rank = count == 1 ? first : -1;
    return sm_error_raise(&error);
}

symmem_status sm_session_point(const sm_session *session, const sm_call *call, const char *name) {
    if (session->config.point == NULL)
        return SYMMEM_OK;
    symmem_status status = sm_point_call(session->config.point, session->config.point_arg, name);
    if (status == SYMMEM_OK)
        return status;
    sm_call at = *call;
    at.stage = name;
    sm_session_fail(session, &at, status, "failpoint %s", name);
    return sm_error_failed_rank(session->config.rank);
}

void sm_session_observe(const sm_session *session, const char *name) {
    if (session->config.point != NULL)
        (void)sm_point_call(session->config.point, session->config.point_arg, name);
}

/* --- life --------------------------------------------------------------------------- */

static void free_memory(sm_session *session) {
    free(session->joins);
    free(session->hosts);
    free(session->sent);
    free(session->received);
    free(session);
}

symmem_status sm_session_create(const sm_session_config *config, sm_session **session_p) {
    size_t count = (size_t)config->world_size;
    /* Room for "/<id>/<sequence>/<rank>" behind the prefix. */
    if (config->world_size > 1 && strlen(config->prefix) + 48 > SYMMEM_STORE_KEY_MAX)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "group_create", "", "store prefix too long");
    sm_session *session = calloc(1, sizeof(*session));
    if (session == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "group_create", "", "no memory for a session");
    session->config = *config;
    session->left_by = -1;
    session->joins = calloc(count, sizeof(session->joins[0]));
    session->hosts = calloc(count, sizeof(session->hosts[0]));
    session->sent = calloc(count, sizeof(session->sent[0]));
    session->received = calloc(count, sizeof(session->received[0]));
    if (session->joins == NULL || session->hosts == NULL || session->sent == NULL ||
        session->received == NULL) {
        free_memory(session);
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "group_create", "", "no memory for a session");
    }
    *session_p = session;
    return SYMMEM_OK;
}

static void remove_own_join(sm_session *session) {
    if (!session->joining)
        return;
    char key[SM_SESSION_KEY_BYTES];
    sm_session_join_key(session, session->config.rank, key);
    /* Another process of this rank may have set its key meanwhile. */
    const sm_join *own = &session->joins[session->config.rank];
    sm_store_take_back(session->config.store, key, own, sizeof(*own),
                       sm_store_brief_ms(session->config.store));
    session->joining = false;
}

/* Removes the socket files of killed ranks. Peers on this host may use other prefixes. */
static void sweep_sockets(const sm_session *session) {
    const sm_session_config *config = &session->config;
    uint64_t swept = config->identity->boot_id;
    if (!session->finalizes)
        sm_ipc_sweep(config->socket_dir, config->liveness);
    for (int32_t rank = 0; rank < config->world_size; rank++) {
        const sm_identity *peer = &session->joins[rank].identity;
        if (!peer->listens || peer->boot_id == config->identity->boot_id ||
            peer->boot_id == swept || !sm_liveness_is_near(config->liveness, peer))
            continue;
        sm_ipc_sweep_of(config->socket_dir, peer->boot_id, config->liveness);
        swept = peer->boot_id;
    }
}

void sm_session_drop_own_fds(sm_session *session) {
    while (session->own_fds != NULL) {
        sm_own_fd *entry = session->own_fds;
        session->own_fds = entry->next;
        close(entry->fd);
        free(entry);
    }
}

static void remove_socket(sm_session *session) {
    sm_ipc_destroy(session->shut_ipc);
    session->shut_ipc = NULL;
}

/* Leaves the socket's file, which must not keep the rank from telling its caller: all ranks that
 * give up remove theirs at the same time, and the kernel has one lock for the directory. */
static void close_down(sm_session *session) {
    if (!session->stands && !session->stays)
        remove_own_join(session);
    sm_session_drop_own_fds(session);
    remove_socket(session);
    if (session->ipc != NULL)
        sm_ipc_shut(session->ipc);
    session->shut_ipc = session->ipc;
    session->ipc = NULL;
    session->id = 0;
}

void sm_session_take_down(sm_session *session, const sm_call *call) {
    close_down(session);
    session->failed = true;
    session->failed_operation = sm_hash(call->operation, strlen(call->operation), SM_HASH_SEED);
    session->failed_deadline_ns = call->deadline_ns;
}

void sm_session_destroy(sm_session *session) {
    if (session == NULL)
        return;
    session->stands = session->stays = false;
    close_down(session);
    remove_socket(session);
    if (session->has_listened && session->config.socket_dir != NULL)
        sweep_sockets(
            session); /* only at the end, so that ranks do not wait for their news of a failure */
    if (session->config.store != NULL)
        sm_exchange_sweep(session, false);
    free_memory(session);
}

uint64_t sm_session_id(const sm_session *session) {
    return session->id;
}

uint64_t sm_session_stamp(const sm_session *session) {
    const uint64_t stamp = sm_hash(&session->sequence, sizeof session->sequence, session->id);
    return stamp == 0 ? 1 : stamp;
}

const sm_identity *sm_session_peer(const sm_session *session, int32_t rank) {
    return &session->joins[rank].identity;
}

static void set_bit(const sm_session *session, uint64_t *ranks, int32_t rank) {
    const int32_t global_rank = session->config.global_ranks[rank];
    if (ranks != NULL)
        (void)__atomic_fetch_or(&ranks[global_rank / 64], 1ull << (global_rank % 64),
                                __ATOMIC_RELAXED); /* it orders nothing */
}

void sm_session_has_met(const sm_session *session, int32_t rank) {
    set_bit(session, session->config.met, rank);
}

void sm_session_has_told(const sm_session *session, int32_t rank) {
    set_bit(session, session->config.told, rank);
}

/* --- bring-up ----------------------------------------------------------------------- */

static symmem_status open_socket(sm_session *session) {
    const sm_session_config *config = &session->config;
    remove_socket(session);
    symmem_status status = sm_ipc_create(config->socket_dir, NULL, &session->ipc);
    session->has_listened = session->has_listened || status == SYMMEM_OK;
    if (status == SYMMEM_PATH_TOO_LONG && config->relative_socket_dir != NULL) {
        char text[96];
        (void)snprintf(text, sizeof(text), ", which is the relative '%.30s' as seen at init",
                       config->relative_socket_dir);
        sm_explain_text(text);
    }
    return status;
}

/* Makes this rank's socket, nonce and join record. */
static symmem_status prepare(sm_session *session, const sm_call *call) {
    const sm_session_config *config = &session->config;
    sm_join *own = &session->joins[config->rank];
    memset(own, 0, sizeof(*own));
    own->magic = SM_JOIN_MAGIC;
    own->version = SM_JOIN_VERSION;
    own->identity = *config->identity;
    own->count = config->world_size;
    own->list = sm_session_list(session);
    for (int32_t i = 0; i < config->world_size && i < SM_JOIN_MEMBERS; i++)
        own->members[i] = config->global_ranks[i];
    symmem_status status = sm_random(own->nonce, sizeof(own->nonce));
    if (status == SYMMEM_OK && config->world_size > 1)
        status = open_socket(session);
    if (status != SYMMEM_OK)
        return sm_session_describe(session, call, status);
    memset(session->met, 0, sizeof(session->met));
    memset(session->told, 0, sizeof(session->told));
    session->stands = session->stays = false;
    if (session->ipc != NULL) {
        sm_ipc_address(session->ipc, own->address, &own->address_bytes);
        sm_ipc_expect_notes(session->ipc, own->nonce);
    }
    return SYMMEM_OK;
}

static symmem_status publish_join(sm_session *session, const sm_call *call) {
    uint32_t limit_ms = sm_remaining_ms(call->deadline_ns, SM_STORE_CALL_MS);
    if (limit_ms == 0)
        return sm_session_fail(session, call, SYMMEM_TIMEOUT, "deadline passed");
    char key[SM_SESSION_KEY_BYTES];
    sm_session_join_key(session, session->config.rank, key);
    session->joining = true;
    session->joins[session->config.rank].made_ns = sm_since_boot_ns();
    symmem_status status =
        symmem_store_set(session->config.store, key, &session->joins[session->config.rank],
                         sizeof(session->joins[0]), limit_ms);
    return status == SYMMEM_OK ? status : sm_session_store_failed(session, call, status);
}

/* The join records that were read so far. */
typedef struct reading {
    /* Of the last round of looks: the record of one that the store did not answer in time, and
     * whether it answered that a rank's key is not there. */
    symmem_error_record unread;
    bool any_absent;
    uint64_t have[SYMMEM_MAX_WORLD_SIZE / 64];
    uint64_t stale[SYMMEM_MAX_WORLD_SIZE / 64];   /* left by a process whose successor is awaited */
    uint64_t earlier[SYMMEM_MAX_WORLD_SIZE / 64]; /* left by what may be an earlier job's process */
} reading;

static void mark(uint64_t *ranks, int32_t rank, bool value) {
    uint64_t bit = 1ull << (rank % 64);
    ranks[rank / 64] = value ? ranks[rank / 64] | bit : ranks[rank / 64] & ~bit;
}

/* Describes the end of a rank. One that ended because another rank had ended for an earlier job's
 * process has left no record of its own. */
static const char *how_it_ended(const sm_session *session, const sm_call *call, int32_t rank) {
    const sm_session_config *config = &session->config;
    const sm_world world = {.store = config->store, .prefix = config->world_prefix};
    sm_identity identity;
    bool earlier_job = false;
    if (!sm_session_has_left(session, call, rank))
        return "ended";
    if (!sm_exit_record_read(&world, config->global_ranks[rank], &identity, &earlier_job))
        earlier_job = sm_exit_record_any_earlier(&world);
    return earlier_job ? "ended " SM_FOR_EARLIER : "came and left, and has ended";
}

/* Reports a rank that ended in the bring-up. If any rank has found a contradiction, that is the
 * cause. It is not looked for in the record of a rank that fits and lives. */
static symmem_status fail_lost_rank(const sm_session *session, const sm_call *call, int32_t rank,
                                    const char *what) {
    uint64_t lost[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    sm_liveness_glance(session->config.liveness);
    for (int32_t other = 0; session->id == 0 && other < session->config.world_size; other++) {
        sm_join join;
        if (sm_has_rank(session->met, other) && !sm_session_known_gone(session, other))
            continue;
        symmem_status status = sm_session_read_join(session, call, other, &join);
        if (status == SYMMEM_OK && other != session->config.rank)
            status = sm_session_stood(session, call, other, &join);
        if (status == SYMMEM_MISMATCH)
            return status;
    }
    mark(lost, rank, true);
    return sm_session_fail_ranks(session, call, SYMMEM_PEER_LOST, lost, what);
}

/* Whether the ended rank has a next process. Another thread may have learned of it already. */
static bool has_next_process(const sm_session *session, const sm_call *call, int32_t rank) {
    bool restarted = false;
    return !sm_session_gone(session, call, rank, &restarted) || restarted;
}

/* Reports that a rank has ended. If its process may belong to an earlier job and the next one may
 * still come, this rank goes on waiting. */
static symmem_status lose(const sm_session *session, const sm_call *call, reading *r,
                          int32_t rank) {
    /* Another rank may have removed the traces meanwhile. */
    const bool earlier =
        sm_has_rank(r->earlier, rank) ||
        (!sm_has_rank(session->met, rank) && sm_session_may_be_earlier(session, call, rank));
    mark(r->earlier, rank, earlier);
    if (earlier && sm_session_next_is_awaited(call)) {
        mark(r->stale, rank, true);
        return SYMMEM_OK;
    }
    const char *what =
        earlier ? "ended (" SM_MAY_BE_EARLIER ")" : how_it_ended(session, call, rank);
    SM_ATTEMPT(judging);
    symmem_status status = fail_lost_rank(session, call, rank, what);
    /* This look comes last: the next process replaces the keys that were read above. */
    if (status == SYMMEM_PEER_LOST && has_next_process(session, call, rank)) {
        mark(r->stale, rank, true);
        return SYMMEM_OK;
    }
    (void)sm_error_raise(&judging.error);
    if (earlier && status == SYMMEM_PEER_LOST) {
        const sm_world world = {.store = session->config.store,
                                .prefix = session->config.world_prefix};
        sm_exit_record_mark_earlier(&world);
        sm_session_remove_traces(session, call, rank);
    }
    return status;
}

/* Tries to read one rank's join record. */
static symmem_status read_one(sm_session *session, const sm_call *call, reading *r, int32_t rank) {
    symmem_status status = sm_session_read_join(session, call, rank, &session->joins[rank]);
    mark(r->stale, rank, false);
    bool restarted = false;
    if (status == SYMMEM_NOT_FOUND) {
        r->any_absent = true;
        status = sm_session_look_up(session, call, rank);
        if (status != SYMMEM_OK)
            return status;
        /* One that finalized may have left because of another one: look_after loses it then. */
        return sm_session_gone(session, call, rank, &restarted) && !restarted &&
                       !sm_session_has_left(session, call, rank)
                   ? lose(session, call, r, rank)
                   : SYMMEM_OK;
    }
    if (status == SYMMEM_TIMEOUT && sm_expired(call->deadline_ns)) {
        (void)sm_error_get(&r->unread);
        return SYMMEM_OK; /* not read: the last look decides */
    }
    if (status != SYMMEM_OK)
        return status;
    const sm_trace trace = {&session->joins[rank].identity, session->joins[rank].made_ns};
    if (sm_session_is_leftover(session, rank, trace)) {
        mark(r->stale, rank, true);
        return SYMMEM_OK;
    }
    sm_liveness_learn(session->config.liveness, session->config.global_ranks[rank],
                      &session->joins[rank].identity);
    bool gone = sm_session_gone(session, call, rank, &restarted);
    if (gone && !restarted)
        return lose(session, call, r, rank);
    mark(gone ? r->stale : r->have, rank, true);
    mark(session->met, rank, !gone);
    return SYMMEM_OK;
}

/* Tries to read a bounded number of missing records per tick, or all of them for the last look. */
static symmem_status read_missing(sm_session *session, const sm_call *call, reading *r, bool all) {
    const sm_session_config *config = &session->config;
    int32_t size = config->world_size;
    int32_t tried = 0;
    r->any_absent = false;
    memset(&r->unread, 0, sizeof(r->unread));
    session->hears_of_left =
        sm_member_hears_of_left(config->store, config->world_prefix, config->member);
    for (int32_t i = 0; i < size && (all || tried < 64); i++) {
        int32_t rank = (session->watch_next + i) % size;
        if (sm_has_rank(r->have, rank))
            continue;
        tried++;
        symmem_status status = read_one(session, call, r, rank);
        if (status != SYMMEM_OK)
            return status;
    }
    session->watch_next = (session->watch_next + tried) % size;
    return SYMMEM_OK;
}

/*
 * Looks after all other ranks, including those whose records were read. A rank that saw one of them
 * end has left the bring-up and will not publish the record for which this rank waits.
 * *reread_p: a record that was read belongs to a rank whose successor has begun.
 */
static symmem_status look_after(sm_session *session, const sm_call *call, reading *r,
                                bool *reread_p) {
    *reread_p = false;
    sm_liveness_glance(session->config.liveness);
    const int32_t size = session->config.world_size;
    int32_t looks = CAUSE_LOOKS;
    /* First the ranks that are known to have ended, which costs no look at the others, and of these
     * first those that did not finalize: the others may have left because of them. */
    for (int32_t i = 0; i < 3 * size; i++) {
        const int32_t rank = i % size;
        bool restarted = false;
        if (rank == session->config.rank ||
            (i < 2 * size && !sm_session_known_gone(session, rank)) ||
            (i < size && (looks-- <= 0 || sm_session_has_left(session, call, rank))) ||
            !sm_session_seen_gone(session, call, rank, &restarted))
            continue;
        symmem_status status = restarted ? SYMMEM_OK : lose(session, call, r, rank);
        if (status != SYMMEM_OK)
            return status;
        *reread_p = *reread_p || sm_has_rank(r->have, rank);
        mark(r->have, rank, false);
        mark(r->stale, rank, true);
    }
    return SYMMEM_OK;
}

static symmem_status fail_missing_ranks(const sm_session *session, const sm_call *call,
                                        const reading *r) {
    uint64_t missing[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    /* The store has told nothing of any rank. */
    if (!r->any_absent && sm_session_blames_server(&r->unread)) {
        (void)sm_error_raise(&r->unread);
        return sm_session_describe(session, call, SYMMEM_TIMEOUT);
    }
    for (int32_t rank = 0; rank < session->config.world_size; rank++)
        mark(missing, rank, !sm_has_rank(r->have, rank));
    sm_session_fail_ranks(session, call, SYMMEM_TIMEOUT, missing, "did not arrive");
    for (int32_t rank = 0; rank < session->config.world_size; rank++) {
        char text[40];
        if (sm_has_rank(r->have, rank) || !sm_session_has_left(session, call, rank))
            continue;
        (void)snprintf(text, sizeof(text), "; rank %d came and left", rank);
        sm_explain_text(text);
    }
    return SYMMEM_TIMEOUT;
}

/* Fails if init has refused a process of a rank that is missing. The one that it found there is
 * told, too. */
static symmem_status check_refused(const sm_session *session, const sm_call *call,
                                   const reading *r) {
    const sm_session_config *config = &session->config;
    sm_refusal found;
    if (!sm_member_read_refusal(config->store, config->world_prefix, config->member, &found))
        return SYMMEM_OK;
    for (int32_t rank = 0; rank < config->world_size; rank++) {
        if (config->global_ranks[rank] != found.rank || sm_has_rank(r->have, rank))
            continue;
        (void)sm_member_fail_refused(&found, call->operation);
        (void)sm_session_describe(session, call, SYMMEM_MISMATCH);
        (void)sm_error_failed_rank(rank);
        return SYMMEM_MISMATCH;
    }
    return SYMMEM_OK;
}

/* Waits for every rank's join record. Sleeps on one key after the other, so that a rank costs one
 * or two store calls however late the others are. */
static symmem_status read_joins(sm_session *session, const sm_call *call) {
    reading r = {.have = {0}};
    mark(r.have, session->config.rank, true);
    symmem_status fits = sm_session_check_member(session, call);
    if (fits != SYMMEM_OK)
        return fits;
    for (int32_t rank = 0; rank < session->config.world_size;) {
        if (sm_has_rank(r.have, rank)) {
            rank++;
            continue;
        }
        uint32_t tick_ms = sm_remaining_ms(call->deadline_ns, sm_session_tick_ms(session));
        symmem_status status = SYMMEM_TIMEOUT;
        if (sm_has_rank(r.stale, rank) && tick_ms != 0) {
            sm_sleep_ns(STALE_JOIN_SLEEP_NS);
        } else if (tick_ms != 0) {
            char key[SM_SESSION_KEY_BYTES];
            sm_session_join_key(session, rank, key);
            status = sm_session_wait(session, key, tick_ms);
            if (status != SYMMEM_OK && status != SYMMEM_TIMEOUT)
                return sm_session_describe(session, call, status);
        }
        bool reread = false;
        if (status == SYMMEM_OK) {
            sm_session_observe(session, "session.join.read");
            status = read_one(session, call, &r, rank);
        } else {
            status = sm_session_wanted(session, call);
            if (status == SYMMEM_OK)
                status = sm_session_contradicted(session, call);
            if (status == SYMMEM_OK)
                status = sm_session_check_member(session, call);
            if (status == SYMMEM_OK)
                status = check_refused(session, call, &r);
            if (status == SYMMEM_OK)
                status = read_missing(session, call, &r, tick_ms == 0);
            if (status == SYMMEM_OK)
                status = look_after(session, call, &r, &reread);
        }
        if (status != SYMMEM_OK)
            return status;
        if (tick_ms == 0 && !sm_has_rank(r.have, rank))
            return fail_missing_ranks(session, call, &r);
        rank = reread ? 0 : rank;
    }
    return SYMMEM_OK;
}

/* Returns the first rank that this one knows to be on the same host. */
static int32_t first_here(const sm_session *session) {
    int32_t rank = 0;
    while (rank < session->config.rank &&
           !sm_identity_same_host(session->config.identity, &session->joins[rank].identity) &&
           !sm_liveness_is_near(session->config.liveness, &session->joins[rank].identity))
        rank++;
    return rank;
}

/* Makes all ranks of a host name the same first rank. A rank names one at or before itself, whose
 * entry is already final. False: a rank names a later one. */
static bool settle_hosts(sm_session *session) {
    for (int32_t rank = 0; rank < session->config.world_size; rank++) {
        const int32_t first = session->hosts[rank];
        if ((uint32_t)first > (uint32_t)rank)
            return false;
        session->hosts[rank] = first == rank ? rank : session->hosts[first];
    }
    return true;
}

bool sm_session_same_host(const sm_session *session, int32_t one, int32_t other) {
    return session->hosts[one] == session->hosts[other];
}

/* Derives the public id, which is a part of keys, and the secret, which is not. */
static uint64_t derive(sm_session *session) {
    uint64_t id = SM_HASH_SEED;
    memset(session->secret, 0, sizeof(session->secret));
    for (int32_t rank = 0; rank < session->config.world_size; rank++) {
        const uint8_t *nonce = session->joins[rank].nonce;
        id = sm_hash(nonce, SM_NONCE_BYTES, id);
        for (size_t i = 0; i < SM_NONCE_BYTES; i++)
            session->secret[i] ^= nonce[i];
    }
    return id == 0 ? 1 : id;
}

/* Repeats steps 1 and 2 until all ranks have the same records. `own` is NULL, or this rank's
 * failure. */
static symmem_status acknowledge(sm_session *session, const sm_call *call,
                                 const symmem_error_record *own, uint64_t *id_p) {
    for (;;) {
        symmem_status status = read_joins(session, call);
        if (status != SYMMEM_OK)
            return own == NULL ? status : sm_earlier_failure(session, call, own, status);
        for (int32_t rank = 0; rank < session->config.world_size; rank++)
            sm_session_has_met(session, rank); /* the rank waits for this one's notes */
        uint64_t id = derive(session);
        const int32_t host = first_here(session);
        const sm_contribution mine = {.failure = own, .data = &host, .bytes = sizeof(host)};
        sm_outcome outcome = sm_exchange(session, call, "join", id, 0, &mine, session->hosts);
        if (outcome.status == SYMMEM_OK && !settle_hosts(session))
            outcome.status = sm_session_fail(session, call, SYMMEM_CORRUPT,
                                             "a rank names a host that does not exist");
        if (outcome.status == SYMMEM_OK) {
            *id_p = id;
            return SYMMEM_OK;
        }
        session->stays = !outcome.again && outcome.lost >= 0;
        if (!outcome.again && !session->stays)
            remove_own_join(session); /* first: no rank that sees the mark may read the record */
        if (!outcome.complete)
            sm_exchange_abandon(session, id, 0, outcome);
        if (!outcome.again)
            return outcome.status;
    }
}

/* Publishes the join record. If the time is up by then, after following a peer or in a slow store,
 * reports the missing ranks. */
static symmem_status arrive(sm_session *session, const sm_call *call) {
    symmem_status status = publish_join(session, call);
    if (status != SYMMEM_TIMEOUT || !sm_expired(call->deadline_ns))
        return status;
    symmem_error_record late;
    (void)sm_error_get(&late);
    status = read_joins(session, call);
    return status == SYMMEM_OK ? sm_error_raise(&late) : status;
}

/* Makes the socket and publishes the join record. A failure here is told to all ranks, so that they
 * do not wait. *own_p is that failure, if the status is not OK. */
static symmem_status introduce(sm_session *session, const sm_call *call,
                               symmem_error_record *own_p) {
    symmem_status own = sm_session_point(session, call, "session.join.before");
    (void)sm_error_get(own_p);
    symmem_status prepared = prepare(session, call);
    if (prepared != SYMMEM_OK)
        (void)sm_error_get(own_p);
    own = prepared != SYMMEM_OK ? prepared : own;
    symmem_status status = arrive(session, call);
    if (status != SYMMEM_OK)
        return status;
    if (own == SYMMEM_OK) {
        own = sm_session_point(session, call, "session.join.published");
        (void)sm_error_get(own_p);
    }
    own_p->status = own;
    return SYMMEM_OK;
}

static symmem_status join(sm_session *session, const sm_call *call) {
    symmem_error_record own;
    uint64_t id = 0;
    symmem_status status = introduce(session, call, &own);
    if (status != SYMMEM_OK)
        return status;
    status = acknowledge(session, call, own.status == SYMMEM_OK ? NULL : &own, &id);
    session->stands = status == SYMMEM_MISMATCH;
    session->stays = status == SYMMEM_PEER_LOST;
    if (session->stands)
        sm_session_stand(session, call);
    else if (!session->stays)
        remove_own_join(session);
    if (status != SYMMEM_OK)
        return status;
    session->left_by = -1;
    session->id = id;
    session->sequence = 1;
    session->fd_sequence = 0;
    session->reach_agreed = false;
    memset(session->sent, 0, (size_t)session->config.world_size * sizeof(session->sent[0]));
    memset(session->received, 0, (size_t)session->config.world_size * sizeof(session->received[0]));
    if (session->config.has_met != NULL) /* relaxed: only a hint */
        atomic_store_explicit(session->config.has_met, true, memory_order_relaxed);
    sm_exchange_sweep(session, true);
    sm_session_observe(session, "session.join.done");
    return SYMMEM_OK;
}

/* A try that failed on the way is not a failure of the call that joins. */
static symmem_status attempt_to_join(sm_session *session, const sm_call *call) {
    SM_ATTEMPT(joining);
    const symmem_status status = join(session, call);
    if (status != SYMMEM_OK)
        (void)sm_error_raise(&joining.error);
    return status;
}

static symmem_status join_alone(sm_session *session, const sm_call *call) {
    symmem_status status = prepare(session, call);
    if (status == SYMMEM_OK)
        session->id = derive(session);
    return status;
}

symmem_status sm_session_up(sm_session *session, const sm_call *call) {
    if (session->id != 0)
        return SYMMEM_OK;
    if (session->config.world_size == 1)
        return join_alone(session, call);
    bool failed = session->failed && !call->restart;
    session->failed = false;
    if (failed && session->failed_deadline_ns == call->deadline_ns &&
        session->failed_operation ==
            sm_hash(call->operation, strlen(call->operation), SM_HASH_SEED))
        return sm_session_fail(session, call, SYMMEM_TIMEOUT,
                               "an earlier step of this operation failed");
    sm_call joining = *call;
    joining.stage = "join";
    joining.restart = true;
    symmem_status status = attempt_to_join(session, &joining);
    if (status == SYMMEM_OK)
        return status;
    status = sm_session_give_up(session, &joining, status);
    sm_session_take_down(session, call);
    return status;
}

/* A slow store is no failure here: the call itself finds out which ranks are missing. */
static sm_outcome look_before(sm_session *session, const sm_call *call) {
    SM_ATTEMPT(look);
    sm_outcome outcome = sm_session_watch(session, call);
    if (outcome.status == SYMMEM_TIMEOUT && !outcome.again)
        outcome.status = SYMMEM_OK;
    else
        (void)sm_error_raise(&look.error);
    return outcome;
}

symmem_status sm_session_ensure(sm_session *session, const char *operation, uint64_t deadline_ns) {
    sm_call call = sm_call_start(operation, "join", deadline_ns);
    call.restart = true;
    if (session->renew)
        sm_session_take_down(session, &call);
    session->renew = false;
    if (session->id != 0 && session->config.world_size > 1) {
        sm_outcome outcome = look_before(session, &call);
        if (outcome.status != SYMMEM_OK && !outcome.again)
            outcome.status = sm_session_give_up(session, &call, outcome.status);
        if (outcome.again)
            sm_session_keep_cause(session);
        if (outcome.status != SYMMEM_OK)
            sm_session_take_down(session, &call);
        if (outcome.status != SYMMEM_OK && !outcome.again)
            return outcome.status;
    }
    return sm_session_up(session, &call);
}

symmem_status sm_session_gather(sm_session *session, const char *operation, const char *stage,
                                const sm_contribution *mine, void *out, bool restart,
                                uint64_t deadline_ns) {
    sm_call call = sm_call_start(operation, stage, deadline_ns);
    call.restart = restart;
    for (;;) {
        symmem_status status = sm_session_up(session, &call);
        if (status != SYMMEM_OK)
            return mine->failure == NULL
                       ? status
                       : sm_earlier_failure(session, &call, mine->failure, status);
        if (session->config.world_size == 1 && mine->failure != NULL)
            return sm_own_failure(session, &call, mine->failure);
        if (session->config.world_size == 1) {
            if (mine->bytes != 0)
                memmove(out, mine->data, mine->bytes);
            return SYMMEM_OK;
        }
        uint64_t id = session->id;
        uint64_t sequence = session->sequence++;
        sm_outcome outcome = sm_exchange(session, &call, operation, id, sequence, mine, out);
        if (outcome.status == SYMMEM_OK || outcome.agreed)
            return outcome.status;
        const bool follows = outcome.again && restart;
        if (!follows)
            outcome.status = sm_session_give_up(session, &call, outcome.status);
        else
            sm_session_keep_cause(session);
        sm_session_take_down(session, &call);
        if (!outcome.complete)
            sm_exchange_abandon(session, id, sequence, outcome);
        if (!follows)
            return outcome.status;
    }
}

symmem_status sm_session_all_gather(sm_session *session, const char *operation, const char *stage,
                                    const void *in, size_t bytes, void *out, bool restart,
                                    uint64_t deadline_ns) {
    const sm_contribution mine = {.data = in, .bytes = bytes};
    return sm_session_gather(session, operation, stage, &mine, out, restart, deadline_ns);
}
