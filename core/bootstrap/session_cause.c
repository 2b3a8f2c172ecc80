/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why a session was given up. A rank that leaves a session sends its failure to its peers in a note
 * to their sockets. The note waits there until they look, even if the sender has ended by then, and
 * leaves nothing behind. A rank that fails because a peer came and left takes over that peer's
 * failure. All ranks thus report the first cause, and no rank calls a peer absent that was there.
 */
#include "bootstrap/session_cause.h"
#include "bootstrap/session_internal.h"
#include "bootstrap/exit_record.h"
#include "bootstrap/session_agree.h"
#include "bootstrap/session_watch.h"

#include <stdio.h>
#include <string.h>

enum { GAVE_UP = 1, FINALIZED = 2, CONTRADICTED = 3, DESTROYED = 4, REMARKED = 5 };

/* A rank that this many others have told of an ended rank does not tell it again, because each of
 * those told all. Otherwise all ranks together would send a note for each pair of them. */
#define TELLERS 4

/* The content of a note. */
typedef struct reason {
    uint32_t kind;
    int32_t global_rank; /* the sender's */
    sm_verdict verdict;
} reason;
_Static_assert(sizeof(reason) <= SM_IPC_NOTE_BYTES, "a reason fits a note");

static bool names(const symmem_error_record *record, int32_t rank) {
    return record->failed_rank == rank || sm_has_rank(record->missing, rank);
}

/* Returns the notes that have come, or NULL. */
static const sm_ipc_notes *listen_to_peers(sm_session *session) {
    if (session->ipc == NULL)
        return NULL;
    sm_ipc_tag members;
    memset(&members, 0, sizeof(members)); /* of no kind that a message has */
    memcpy(members.nonce, session->secret, sizeof(members.nonce));
    members.group = session->id;
    members.source = -1;
    return sm_ipc_notes_of(session->ipc, session->id == 0 ? NULL : &members);
}

static bool read_reason(const sm_session *session, const sm_ipc_notes *notes, reason *reason_p) {
    if (notes == NULL || !notes->any || notes->first >= session->config.world_size)
        return false;
    memcpy(reason_p, notes->bytes, sizeof(*reason_p));
    return sm_verdict_valid(session, &reason_p->verdict);
}

static bool read_contradiction(const sm_session *session, const sm_ipc_notes *notes,
                               reason *reason_p) {
    if (notes == NULL || !notes->is_contradicted)
        return false;
    memcpy(reason_p, notes->contradiction, sizeof(*reason_p));
    return sm_verdict_valid(session, &reason_p->verdict);
}

/* Sends a note to the rank of the tag. */
static bool send_reason(const sm_session *session, const sm_join *to, const reason *why) {
    uint8_t note[SM_IPC_NOTE_BYTES] = {0};
    sm_ipc_tag tag;
    memset(&tag, 0, sizeof(tag));
    memcpy(note, why, sizeof(*why));
    memcpy(tag.nonce, to->nonce, sizeof(tag.nonce));
    const bool contradicts = why->kind == CONTRADICTED;
    tag.source = contradicts ? why->global_rank : session->config.rank;
    tag.kind = contradicts             ? SM_IPC_CONTRADICTS
               : why->kind == REMARKED ? SM_IPC_REMARK
                                       : SM_IPC_GAVE_UP;
    return sm_ipc_send_note(session->ipc, to->address, to->address_bytes, &tag, note);
}

static reason reason_of(const sm_session *session, uint32_t kind,
                        const symmem_error_record *record) {
    const sm_session_config *config = &session->config;
    reason why;
    memset(&why, 0, sizeof(why));
    why.kind = kind;
    why.global_rank = config->global_ranks[config->rank];
    sm_verdict_make(record, &why.verdict);
    const bool has_our_numbers = strcmp(record->group, config->group_name) == 0;
    if (!has_our_numbers || !sm_verdict_valid(session, &why.verdict) || kind == CONTRADICTED) {
        why.verdict.failed_rank = -1;
        why.verdict.missing_count = 0;
        memset(why.verdict.missing, 0, sizeof(why.verdict.missing));
    }
    return why;
}

int32_t sm_session_given_up_by(sm_session *session) {
    reason why;
    const sm_ipc_notes *notes = listen_to_peers(session);
    return read_reason(session, notes, &why) ? notes->first : -1;
}

bool sm_session_has_given_up(const sm_session *session, int32_t rank) {
    return session->ipc != NULL && sm_has_rank(sm_ipc_notes_heard(session->ipc)->sources, rank);
}

/* --- telling ------------------------------------------------------------------------ */

/* Looks once more for a rank that may have come after the last look. */
static bool is_known(sm_session *session, const sm_call *call, int32_t rank) {
    if (session->id != 0 || sm_has_rank(session->met, rank))
        return true;
    if (call == NULL)
        return false;
    const sm_call look = {.operation = call->operation,
                          .stage = call->stage,
                          .deadline_ns = sm_now_ns() + SM_LAST_LOOKS_NS / 4};
    return sm_session_read_join(session, &look, rank, &session->joins[rank]) == SYMMEM_OK;
}

/* Whether a peer needs no note. One that has given this session up does not read its notes any
 * more, nor does one whose process has ended. At the end, a peer that already knows that the
 * session is given up is not told again. */
static bool needs_no_note(const sm_session *session, int32_t rank) {
    return sm_has_rank(session->told, rank) ||
           (session->id != 0 &&
            (sm_session_has_given_up(session, rank) || sm_session_known_gone(session, rank)));
}

/* Sends the notes, beginning at the next rank so that the ranks begin at different peers. */
static void tell(sm_session *session, const sm_call *call, uint32_t kind,
                 const symmem_error_record *record) {
    const int32_t world_size = session->config.world_size;
    const reason why = reason_of(session, kind, record);
    const uint64_t until_ns = sm_now_ns() + SM_LAST_LOOKS_NS;
    for (int32_t i = 1; i < world_size && sm_now_ns() < until_ns; i++) {
        const int32_t rank = (session->config.rank + i) % world_size;
        if (needs_no_note(session, rank)) {
            session->told[rank / 64] |= (uint64_t)(kind == GAVE_UP) << (rank % 64);
            continue;
        }
        if (!is_known(session, call, rank) || !send_reason(session, &session->joins[rank], &why))
            continue;
        sm_session_has_met(session, rank);
        if (kind == FINALIZED || kind == DESTROYED)
            sm_session_has_told(session, rank);
        session->told[rank / 64] |= (uint64_t)(kind == GAVE_UP) << (rank % 64);
    }
}

/* Peers may wait for this rank although it has never entered the session. */
void sm_session_tell_end(sm_session *session, bool finalized) {
    symmem_error_record record;
    const sm_call call = sm_call_start("finalize", "", 0);
    session->finalizes = finalized;
    (void)sm_error_get(&record);
    SM_ATTEMPT(telling);
    if (record.status == SYMMEM_OK || session->config.world_size == 1 ||
        (session->ipc == NULL && sm_ipc_create(NULL, NULL, &session->ipc) != SYMMEM_OK))
        return;
    sm_join *own = &session->joins[session->config.rank];
    own->magic = SM_JOIN_MAGIC;
    own->version = SM_JOIN_VERSION;
    tell(session, &call, finalized ? FINALIZED : DESTROYED, &record);
}

void sm_session_remark(sm_session *session, const symmem_error_record *record) {
    SM_ATTEMPT(telling);
    if (session->ipc != NULL && session->id != 0)
        tell(session, NULL, REMARKED, record);
}

void sm_session_forget_remarks(sm_session *session) {
    if (listen_to_peers(session) != NULL)
        sm_ipc_forget_remark(session->ipc);
}

/* --- taking over -------------------------------------------------------------------- */

/* Computes the ranks of `all` that are not in `some`, and returns their number. */
static uint32_t without(const uint64_t *all, const uint64_t *some, uint64_t *rest) {
    uint32_t count = 0;
    for (int32_t i = 0; i < SYMMEM_MAX_WORLD_SIZE / 64; i++) {
        rest[i] = all[i] & ~some[i];
        count += (uint32_t)__builtin_popcountll(rest[i]);
    }
    return count;
}

/* Reports the absent ranks when a peer came and left because ranks were missing: the ranks that the
 * peer missed, without this rank and those that it has met since. */
static symmem_status absent(const sm_session *session, const sm_call *call,
                            const sm_ipc_notes *notes, const sm_verdict *verdict,
                            symmem_status own_failure) {
    uint64_t here[SYMMEM_MAX_WORLD_SIZE / 64], rest[SYMMEM_MAX_WORLD_SIZE / 64];
    const int32_t own = session->config.rank;
    memcpy(here, notes->sources, sizeof(here));
    here[own / 64] |= 1ull << (own % 64);
    for (int32_t i = 0; i < SYMMEM_MAX_WORLD_SIZE / 64 && session->id == 0; i++)
        here[i] |= session->met[i];
    if (without(verdict->missing, here, rest) == 0)
        return own_failure;
    return sm_session_fail_ranks(session, call, SYMMEM_TIMEOUT, rest, "did not arrive");
}

static symmem_status repeat(const sm_session *session, const sm_call *call, int32_t rank,
                            const sm_verdict *verdict) {
    symmem_error_record error;
    const symmem_status status = sm_verdict_apply(session, call, rank, verdict);
    if (verdict->missing_count != 0)
        return status;
    (void)sm_error_get(&error);
    (void)snprintf(error.message, sizeof(error.message), "rank %d: %.200s", rank, verdict->message);
    return sm_error_raise(&error);
}

/* Called with the scope's error, which is a TIMEOUT or a loss. */
static symmem_status take_over(const sm_session *session, const sm_call *call,
                               const sm_ipc_notes *notes, const sm_verdict *verdict) {
    uint64_t rest[SYMMEM_MAX_WORLD_SIZE / 64];
    symmem_error_record own;
    (void)sm_error_get(&own);
    const uint32_t count = without(own.missing, notes->sources, rest);
    const bool tells_why = count == 1 && verdict->missing_count == 0 && verdict->failed_rank >= 0 &&
                           sm_has_rank(rest, verdict->failed_rank);
    if (own.status == SYMMEM_TIMEOUT && count != 0 && verdict->status == SYMMEM_TIMEOUT &&
        !tells_why)
        return count == own.missing_count
                   ? own.status
                   : sm_session_fail_ranks(session, call, SYMMEM_TIMEOUT, rest, "did not arrive");
    if (verdict->status == SYMMEM_TIMEOUT && verdict->missing_count != 0)
        return absent(session, call, notes, verdict, own.status);
    return repeat(session, call, notes->first, verdict);
}

void sm_session_keep_cause(sm_session *session) {
    reason why;
    const sm_ipc_notes *notes = listen_to_peers(session);
    if (!read_reason(session, notes, &why) || why.kind != GAVE_UP)
        return;
    session->left_by = notes->first;
    memcpy(session->left_for, &why, sizeof(why));
}

/* Whether the failure is a peer's. This rank's own failure comes back to it if a peer was
 * quicker. */
static bool is_hearsay(const sm_session *session, const symmem_error_record *error,
                       symmem_status status) {
    return (status == SYMMEM_TIMEOUT || status == SYMMEM_PEER_LOST) &&
           error->failed_rank != session->config.rank;
}

/* Whether a peer has left only because this rank had ended. The peer took it for an earlier
 * process. */
static bool says_own_rank_ended(const sm_session *session, const sm_verdict *verdict) {
    const int32_t own = session->config.rank;
    return verdict->status == SYMMEM_PEER_LOST && verdict->missing_count <= 1 &&
           (verdict->failed_rank == own || sm_has_rank(verdict->missing, own));
}

/* Removes this rank, which lives, from those that a peer has lost. */
static void leave_own_rank_out(const sm_session *session, sm_verdict *verdict) {
    const int32_t own = session->config.rank;
    if (verdict->status != SYMMEM_PEER_LOST || verdict->missing_count < 2 ||
        !sm_has_rank(verdict->missing, own))
        return;
    verdict->missing[own / 64] &= ~(1ull << (own % 64));
    verdict->missing_count--;
    if (verdict->failed_rank == own)
        verdict->failed_rank = -1;
}

/* Recalls the cause of the peer that this rank has followed, if the failure is that the peer is
 * missing. With `own`, only a cause that was not itself a missing rank. */
static bool recall(const sm_session *session, const symmem_error_record *error, bool own,
                   reason *reason_p) {
    if (session->left_by < 0 || !names(error, session->left_by))
        return false;
    memcpy(reason_p, session->left_for, sizeof(*reason_p));
    leave_own_rank_out(session, &reason_p->verdict);
    return !says_own_rank_ended(session, &reason_p->verdict) &&
           (!own || reason_p->verdict.missing_count == 0);
}

/* Whether enough peers have told all ranks that a rank has ended. */
static bool is_spread(const sm_session *session, const sm_ipc_notes *notes,
                      const symmem_error_record *record) {
    reason why;
    int tellers = 0;
    if (record->status != SYMMEM_PEER_LOST || !read_reason(session, notes, &why) ||
        why.kind != GAVE_UP || why.verdict.status != SYMMEM_PEER_LOST)
        return false;
    for (int32_t i = 0; i < SYMMEM_MAX_WORLD_SIZE / 64; i++)
        tellers += __builtin_popcountll(notes->sources[i]);
    return tellers >= TELLERS;
}

/* In a bring-up the others may not have known the ranks that this one has not met either. */
static void count_as_told(sm_session *session) {
    for (int32_t i = 0; i < SYMMEM_MAX_WORLD_SIZE / 64; i++)
        session->told[i] |= session->id != 0 ? UINT64_MAX : session->met[i];
}

symmem_status sm_session_give_up(sm_session *session, const sm_call *call, symmem_status status) {
    reason why;
    const sm_ipc_notes *notes = listen_to_peers(session);
    symmem_error_record record;
    (void)sm_error_get(&record);
    const bool hearsay = is_hearsay(session, &record, status);
    const symmem_status contradicted =
        hearsay && session->id == 0 ? sm_session_contradicted(session, call) : SYMMEM_OK;
    if (contradicted != SYMMEM_OK) {
        status = contradicted;
    } else if (hearsay && recall(session, &record, true, &why)) {
        status = repeat(session, call, session->left_by, &why.verdict);
    } else if (hearsay && read_reason(session, notes, &why)) {
        leave_own_rank_out(session, &why.verdict);
        if (why.kind == GAVE_UP && !says_own_rank_ended(session, &why.verdict)) {
            status = take_over(session, call, notes, &why.verdict);
        } else {
            sm_session_explain(session, -1, &record);
            (void)sm_error_raise(&record);
        }
    } else if (hearsay && recall(session, &record, false, &why)) {
        status = repeat(session, call, session->left_by, &why.verdict);
    }
    /* The end of a group or a context concerns its own rank only. */
    (void)sm_error_get(&record);
    SM_ATTEMPT(telling);
    if (hearsay && is_spread(session, notes, &record))
        count_as_told(session);
    if (session->ipc != NULL && status != SYMMEM_NOT_INITIALIZED && status != SYMMEM_STALE)
        tell(session, call, GAVE_UP, &record);
    return status;
}

static bool read_remark(const sm_session *session, const sm_ipc_notes *notes, reason *reason_p) {
    if (notes == NULL || !notes->is_remarked || notes->remarked_by >= session->config.world_size)
        return false;
    memcpy(reason_p, notes->remark, sizeof(*reason_p));
    return sm_verdict_valid(session, &reason_p->verdict);
}

static bool is_of_a_loss(int32_t status) {
    return status == SYMMEM_PEER_LOST || status == SYMMEM_POISONED;
}

/* Adds the ranks that were lost to the failing peer: this rank's record has only that peer, which
 * left because of them. */
static void name_who_ended(const sm_session *session, symmem_error_record *record,
                           const sm_verdict *verdict) {
    const int32_t own = session->config.rank;
    uint32_t count = 0;
    if (!is_of_a_loss(record->status) || !is_of_a_loss(verdict->status) ||
        verdict->missing_count == 0)
        return;
    for (int32_t i = 0; i < SYMMEM_MAX_WORLD_SIZE / 64; i++) {
        record->missing[i] |= verdict->missing[i];
        if (i == own / 64)
            record->missing[i] &= ~(1ull << (own % 64));
        count += (uint32_t)__builtin_popcountll(record->missing[i]);
    }
    record->missing_count = count;
    if (record->status == SYMMEM_PEER_LOST && verdict->failed_rank != own)
        record->failed_rank = verdict->failed_rank; /* the first cause */
}

static void append(symmem_error_record *record, int32_t rank, const char *did, const reason *why) {
    const size_t used = strlen(record->message);
    (void)snprintf(record->message + used, sizeof(record->message) - used,
                   "; rank %d %s %s in %.*s: %.*s", rank, did,
                   symmem_status_name((symmem_status)why->verdict.status),
                   (int)sizeof(why->verdict.operation) - 1, why->verdict.operation,
                   (int)sizeof(why->verdict.message) - 1, why->verdict.message);
}

void sm_session_explain(sm_session *session, int32_t rank, symmem_error_record *record) {
    static const char *const did[] = {[GAVE_UP] = "gave up after",
                                      [FINALIZED] = "finalized after",
                                      [CONTRADICTED] = "gave up after",
                                      [DESTROYED] = "destroyed the group after"};
    reason why;
    const sm_ipc_notes *notes = listen_to_peers(session);
    /* The failure that poisoned the handle came before its rank ended. */
    if (read_remark(session, notes, &why) &&
        (rank < 0 ? names(record, notes->remarked_by) : rank == notes->remarked_by))
        append(record, notes->remarked_by, "failed with", &why);
    else if (read_reason(session, notes, &why) && (rank < 0 || rank == notes->first) &&
             why.kind >= GAVE_UP && why.kind <= DESTROYED) {
        append(record, notes->first, did[why.kind], &why);
        if (rank < 0) /* otherwise the record is of another group */
            name_who_ended(session, record, &why.verdict);
    }
}

/* --- who comes late to a contradiction ---------------------------------------------- */

/* The record stands for the limit of the call, within these bounds. A rank that comes within that
 * time may belong to this job. */
#define STANDS_LEAST_S 10u
#define STANDS_MOST_S 60u

static bool is_to_be_told(const sm_join *join) {
    const uint64_t now = sm_since_1970_s();
    return join->stands_until_s > now && join->stands_until_s <= now + STANDS_MOST_S;
}

void sm_session_stand(sm_session *session, const sm_call *call) {
    symmem_error_record record;
    (void)sm_error_get(&record);
    SM_ATTEMPT(standing);
    char key[SM_SESSION_KEY_BYTES];
    sm_join *own = &session->joins[session->config.rank];
    sm_join told = *own;
    const uint64_t left_s = sm_remaining_ms(call->deadline_ns, STANDS_MOST_S * 1000) / 1000;
    told.stands_until_s = sm_since_1970_s() + (left_s < STANDS_LEAST_S ? STANDS_LEAST_S : left_s);
    told.failed_rank = record.failed_rank;
    sm_copy_text(told.cause, sizeof(told.cause), record.message);
    sm_session_join_key(session, session->config.rank, key);
    if (symmem_store_set(session->config.store, key, &told, sizeof(told),
                         sm_store_brief_ms(session->config.store)) == SYMMEM_OK)
        *own = told;
}

symmem_status sm_session_stood(const sm_session *session, const sm_call *call, int32_t rank,
                               const sm_join *join) {
    const sm_session_config *config = &session->config;
    const sm_trace trace = {&join->identity, join->made_ns};
    if (!is_to_be_told(join) || sm_session_is_leftover(session, rank, trace) ||
        sm_liveness_ask_of(config->liveness, config->global_ranks[rank], &join->identity) !=
            SYMMEM_PEER_GONE)
        return SYMMEM_OK;
    sm_session_fail(session, call, SYMMEM_MISMATCH,
                    "%.*s; rank %d found it, and has ended (it may be an earlier job's process)",
                    (int)sizeof(join->cause) - 1, join->cause, config->global_ranks[rank]);
    const bool has_our_numbers = join->count == config->world_size &&
                                 join->list == sm_session_list(session) &&
                                 join->failed_rank >= -1 && join->failed_rank < config->world_size;
    return sm_error_failed_rank(has_our_numbers ? join->failed_rank : rank);
}

/* --- groups of one name ------------------------------------------------------------- */

/* Writes a list such as "1, 0, 2", with as many members as fit. */
static void list_members(const sm_join *join, char *text, size_t capacity) {
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < join->count && used + 16 < capacity; i++) {
        if (i == SM_JOIN_MEMBERS) {
            (void)snprintf(text + used, capacity - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, capacity - used, "%s%d", i == 0 ? "" : ", ",
                                 join->members[i]);
    }
}

symmem_status sm_session_contradict(const sm_session *session, const sm_call *call, int32_t rank,
                                    const sm_join *other) {
    const sm_session_config *config = &session->config;
    char own_list[88], other_list[88];
    const sm_trace trace = {&other->identity, other->made_ns};
    const bool ended = sm_liveness_ask_of(config->liveness, config->global_ranks[rank],
                                          &other->identity) == SYMMEM_PEER_GONE;
    /* An earlier job's process left this record. */
    if (ended && sm_member_may_be_earlier(config->identity, trace))
        return SYMMEM_NOT_FOUND;
    list_members(&session->joins[config->rank], own_list, sizeof(own_list));
    list_members(other, other_list, sizeof(other_list));
    sm_session_fail(session, call, SYMMEM_MISMATCH,
                    "group '%.40s' has the ranks %s on rank %d and %s on rank %d",
                    config->group_name, own_list, config->global_ranks[config->rank], other_list,
                    config->global_ranks[rank]);
    symmem_error_record record;
    (void)sm_error_failed_rank(rank);
    (void)sm_error_sizes((uint64_t)config->world_size, (uint64_t)other->count);
    (void)sm_error_get(&record);
    const reason why = reason_of(session, CONTRADICTED, &record);
    if (session->ipc != NULL && !ended)
        (void)send_reason(session, other, &why);
    return SYMMEM_MISMATCH;
}

symmem_status sm_session_contradicted(sm_session *session, const sm_call *call) {
    reason why;
    const sm_session_config *config = &session->config;
    const sm_ipc_notes *notes = listen_to_peers(session);
    if (!read_contradiction(session, notes, &why))
        return SYMMEM_OK;
    sm_verdict_apply(session, call, -1, &why.verdict);
    symmem_error_record error;
    (void)sm_error_get(&error);
    sm_copy_text(error.operation, sizeof(error.operation), call->operation);
    for (int32_t rank = 0; rank < config->world_size; rank++)
        if (config->global_ranks[rank] == why.global_rank)
            error.failed_rank = rank;
    return sm_error_raise(&error);
}
