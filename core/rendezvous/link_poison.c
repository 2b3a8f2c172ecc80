/* SPDX-License-Identifier: BSD-3-Clause */
/* Poisoning of a link after a failed signal operation, and the host services for backends. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/tensor.h"
#include "rendezvous/link_poison.h"
#include "memory/group_explain.h"

/* Writes "rank 2" or "ranks 1, 3", with as many ranks as fit. */
static void list_missing(const symmem_fault *fault, int32_t world_size, char *text,
                         size_t capacity) {
    size_t used = 0;
    int32_t count = 0;
    text[0] = '\0';
    for (int32_t r = 0; r < world_size; r++) {
        if ((fault->missing[r / 64] >> (r % 64) & 1) == 0)
            continue;
        int written = snprintf(text + used, capacity - used, "%s%d", count == 0 ? "" : ", ", r);
        if ((size_t)written >= capacity - used) {
            text[used] = '\0'; /* removes a cut-off number, which would name another rank */
            break;
        }
        used += (size_t)written;
        count++;
    }
}

static uint32_t count_missing(const symmem_fault *fault) {
    uint32_t count = 0;
    for (size_t i = 0; i < SYMMEM_MAX_WORLD_SIZE / 64; i++)
        count += (uint32_t)__builtin_popcountll(fault->missing[i]);
    return count;
}

static void describe_call(const symmem_call_id *id, char *text, size_t capacity) {
    if (id->kind == SYMMEM_CALL_BARRIER)
        snprintf(text, capacity, "barrier");
    else
        snprintf(text, capacity, "%s of %" PRIu64 " %s (%s)", sm_call_name(id->kind), id->count,
                 symmem_dtype_name((symmem_dtype)id->dtype), sm_reduce_op_name(id->op));
}

static void describe_mismatch(const symmem_fault *fault, char *message, size_t capacity) {
    char own[80], other[80];
    describe_call(&fault->own, own, sizeof own);
    describe_call(&fault->other, other, sizeof other);
    bool alike = strcmp(own, other) == 0;
    snprintf(message, capacity, "rank %d called %s%s, this rank %s", fault->failed_rank, other,
             alike ? " with another offset, root, shape or split" : "", alike ? "too" : own);
}

/* True for splits that all ranks have found wrong before anything was moved. */
static bool is_wrong_split(const symmem_fault *fault) {
    return (fault->status == SYMMEM_INVALID_ARGUMENT || fault->status == SYMMEM_OUT_OF_RANGE) &&
           fault->own.kind == SYMMEM_CALL_ALL_TO_ALL_V;
}

static void describe_wrong_split(const symmem_fault *fault, char *message, size_t capacity) {
    const char *what = fault->stage != NULL ? fault->stage : "splits";
    if (fault->status == SYMMEM_OUT_OF_RANGE)
        snprintf(message, capacity, "rank %d: %s needs %" PRIu64 " rows, there are %" PRIu64,
                 fault->failed_rank, what, fault->other.count, fault->own.count);
    else
        snprintf(message, capacity, "rank %d: %s holds %" PRId64 ", at least %" PRIu64 " is needed",
                 fault->failed_rank, what, (int64_t)fault->other.count, fault->own.count);
}

static void describe_fault(const symmem_fault *fault, uint32_t missing_count, int32_t world_size,
                           char *message, size_t capacity) {
    char ranks[128];
    list_missing(fault, world_size, ranks, sizeof ranks);
    const char *plural = missing_count == 1 ? "" : "s";
    switch (fault->status) {
    case SYMMEM_TIMEOUT:
        if (missing_count > 0)
            snprintf(message, capacity, "rank%s %s did not arrive in time", plural, ranks);
        else if (fault->stage != NULL && strcmp(fault->stage, "device") == 0)
            snprintf(message, capacity, "the device did not come to an end of it in time");
        else
            snprintf(message, capacity, "deadline passed");
        return;
    case SYMMEM_PEER_LOST:
        snprintf(message, capacity, "rank%s %s: process ended", plural, ranks);
        return;
    case SYMMEM_POISONED:
        snprintf(message, capacity, "an operation that failed elsewhere poisoned this one");
        return;
    case SYMMEM_CORRUPT:
        snprintf(message, capacity, "a word that ranks share holds %" PRIu64, fault->actual);
        return;
    case SYMMEM_MISMATCH:
        describe_mismatch(fault, message, capacity);
        return;
    default:
        if (is_wrong_split(fault)) {
            describe_wrong_split(fault, message, capacity);
            return;
        }
        if (sm_status_known(fault->status))
            snprintf(message, capacity, "%s", symmem_status_text(fault->status));
        else
            snprintf(message, capacity, "the backend reported %d, which is no status",
                     (int)fault->status);
        return;
    }
}

/* Whether it is the failure of a wait for a value, which says what it wanted. */
static bool is_of_value(const symmem_fault *fault) {
    return fault->own.kind == SYMMEM_CALL_WAIT_VALUE && fault->own.op < SYMMEM_COMPARE_COUNT &&
           (fault->status == SYMMEM_TIMEOUT || fault->status == SYMMEM_PEER_LOST ||
            fault->status == SYMMEM_POISONED);
}

static void add_value(const symmem_fault *fault, symmem_error_record *record) {
    static const char *const signs[SYMMEM_COMPARE_COUNT] = {"==", "!=", ">", ">=", "<", "<="};
    const size_t used = strlen(record->message);
    record->expected = fault->own.count;
    snprintf(record->message + used, sizeof record->message - used,
             "; the word was %" PRIu64 ", awaited was %s %" PRIu64, fault->actual,
             signs[fault->own.op], fault->own.count);
}

/* Describes a failure that a later call reports, or no call. */
static void describe(const sm_link *link, symmem_error_record *record) {
    record->rank = link->group->rank;
    record->world_size = link->group->world_size;
    sm_copy_text(record->group, sizeof record->group, link->group->name);
}

static void build_record(const sm_link *link, const symmem_fault *fault,
                         symmem_error_record *record) {
    memset(record, 0, sizeof *record);
    record->status = sm_status_known(fault->status) ? fault->status : SYMMEM_BACKEND;
    record->channel = fault->channel;
    record->failed_rank = fault->failed_rank;
    record->actual = fault->actual;
    record->elapsed_ns = fault->elapsed_ns;
    record->missing_count = count_missing(fault);
    memcpy(record->missing, fault->missing, sizeof record->missing);
    if (fault->status == SYMMEM_MISMATCH || is_wrong_split(fault)) {
        record->expected = fault->own.count;
        record->actual = fault->other.count;
    }
    sm_copy_text(record->operation, sizeof record->operation, fault->operation);
    if (fault->stage != NULL)
        sm_copy_text(record->stage, sizeof record->stage, fault->stage);
    describe(link, record);
    describe_fault(fault, record->missing_count, link->group->world_size, record->message,
                   sizeof record->message);
    if (is_of_value(fault))
        add_value(fault, record);
}

/* Writes into a POISONED record what poisoned the link. */
static void name_cause(symmem_error_record *record, const symmem_error_record *cause) {
    (void)snprintf(record->message, sizeof record->message, "poisoned by %s: %s, ",
                   cause->operation, symmem_status_name(cause->status));
    const size_t used = strlen(record->message);
    sm_copy_text(record->message + used, sizeof record->message - used, cause->message);
    record->failed_rank = cause->failed_rank;
    record->missing_count = cause->missing_count;
    memcpy(record->missing, cause->missing, sizeof record->missing);
}

/* Whether it names this rank alone, though another one has poisoned the link. link->lock held. */
static bool names_only_itself(const sm_link *link, const symmem_fault *fault) {
    const symmem_status cause = link->poison_record.status; /* OK: the link is not poisoned */
    return fault->status == SYMMEM_POISONED && count_missing(fault) == 0 &&
           (fault->failed_rank < 0 || fault->failed_rank == link->group->rank) &&
           (cause == SYMMEM_POISONED || cause == SYMMEM_PEER_LOST);
}

/* Sets the first failure, whose record stays, and returns true for it. link->lock held. */
static bool set_poison(sm_link *link, const symmem_error_record *record) {
    if (atomic_load_explicit(&link->poisoned, memory_order_relaxed))
        return false;
    link->poison_record = *record;
    /* pairs with: the loads in sm_link_is_poisoned and sm_link_refuse_known_poison */
    atomic_store_explicit(&link->poisoned, true, memory_order_release);
    return true;
}

/* Tells the peers once per poisoning, so that ranks which poison each other stop doing so. Also
 * tells them after a reset that failed, which may have erased the earlier news. A failure on the
 * way is none of the caller's, whose record stays. */
static void tell_peers(const sm_link *link, const symmem_error_record *cause) {
    const sm_backend *backend = link->context->backend;
    SM_ATTEMPT(telling);
    sm_group_remark(link->group, cause); /* first: a rank that the poison stops reads it */
    if (backend->signal_poison != NULL)
        backend->signal_poison(link->context->instance, &link->peers);
}

static _Thread_local sm_link_caller caller;

sm_link_caller *sm_link_set_caller(const sm_link *link, int32_t channel,
                                   symmem_error_record *record) {
    sm_link_caller *own = &caller;
    own->link = link;
    own->channel = channel;
    own->record = record;
    return own;
}

static void keep_for_caller(const sm_link *link, const symmem_fault *fault,
                            const symmem_error_record *record) {
    if (caller.record != NULL && caller.link == link && caller.channel == fault->channel)
        *caller.record = *record;
}

void sm_link_signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                           symmem_error_record *record_p) {
    sm_link *link = peers->self;
    symmem_error_record record;
    build_record(link, fault, &record);
    pthread_mutex_lock(&link->lock);
    if (names_only_itself(link, fault)) {
        name_cause(&record, &link->poison_record);
        if (is_of_value(fault))
            add_value(fault, &record);
    }
    /* All ranks see that their calls differ, at a point where no work is half done. */
    bool calls_differ = fault->status == SYMMEM_MISMATCH && fault->own.kind != SYMMEM_CALL_NONE;
    bool first = !calls_differ && !is_wrong_split(fault) && set_poison(link, &record);
    pthread_mutex_unlock(&link->lock);
    keep_for_caller(link, fault, &record);
    if (first)
        tell_peers(link, &record);
    if (record_p != NULL)
        *record_p = record;
}

void sm_link_poison_and_tell(sm_link *link, const symmem_error_record *record) {
    pthread_mutex_lock(&link->lock);
    bool first = set_poison(link, record);
    pthread_mutex_unlock(&link->lock);
    if (first)
        tell_peers(link, record);
}

void sm_link_poison_after_reset(sm_link *link, const symmem_error_record *record) {
    pthread_mutex_lock(&link->lock);
    (void)set_poison(link, record);
    pthread_mutex_unlock(&link->lock);
    tell_peers(link, record);
}

void sm_link_poison_local(sm_link *link, const symmem_error_record *record) {
    /* Peers are not told: a rank that ends its context in good order is no failure of theirs. */
    pthread_mutex_lock(&link->lock);
    (void)set_poison(link, record);
    pthread_mutex_unlock(&link->lock);
}

void sm_link_clear_poison(sm_link *link) {
    pthread_mutex_lock(&link->lock);
    memset(&link->poison_record, 0, sizeof link->poison_record);
    atomic_store_explicit(&link->poisoned, false, memory_order_release);
    pthread_mutex_unlock(&link->lock);
}

symmem_peer_state sm_link_peer_state(const symmem_peers *peers, int32_t rank) {
    const sm_link *link = peers->self;
    if (rank == peers->rank || link->context->liveness == NULL)
        return SYMMEM_PEER_ALIVE;
    return sm_liveness_ask_of(link->context->liveness, peers->global_ranks[rank],
                              &link->identities[rank]);
}

bool sm_link_peer_is_ending(const symmem_peers *peers, int32_t rank) {
    const sm_link *link = peers->self;
    return rank != peers->rank && link->context->liveness != NULL &&
           sm_liveness_is_ending(link->context->liveness, &link->identities[rank]);
}

bool sm_link_is_poisoned(const symmem_peers *peers) {
    const sm_link *link = peers->self;
    /* pairs with: set_poison; and with finalize, whose pending work has to give up */
    return atomic_load_explicit(&link->poisoned, memory_order_acquire) ||
           atomic_load_explicit(&link->context->finalized, memory_order_acquire);
}

void sm_link_check_device(const sm_link *link) {
    const symmem_context *context = link->context;
    if (link->peers_open && context->backend->signal_check != NULL)
        context->backend->signal_check(context->instance, &link->peers);
}

symmem_status sm_link_refuse_known_poison(sm_link *link, const char *operation) {
    /* pairs with: set_poison */
    if (!atomic_load_explicit(&link->poisoned, memory_order_acquire))
        return SYMMEM_OK;
    symmem_error_record cause;
    pthread_mutex_lock(&link->lock);
    cause = link->poison_record;
    pthread_mutex_unlock(&link->lock);
    (void)sm_fail(SYMMEM_POISONED, operation, "", "poisoned");
    symmem_error_record record;
    (void)sm_error_get(&record);
    name_cause(&record, &cause);
    record.channel = cause.channel;
    (void)sm_error_raise(&record);
    sm_group_explain(link->context);
    return SYMMEM_POISONED;
}

symmem_status sm_link_refuse_poisoned(sm_link *link, const char *operation) {
    sm_link_check_device(link);
    return sm_link_refuse_known_poison(link, operation);
}

void sm_link_host_init(symmem_host *host) {
    host->signal_failed = sm_link_signal_failed;
    host->peer_state = sm_link_peer_state;
    host->peer_is_ending = sm_link_peer_is_ending;
    host->is_poisoned = sm_link_is_poisoned;
}
