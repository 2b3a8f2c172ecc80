/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One gathering through the store. Each rank sets its own key. Rank 0 waits for all keys and sets
 * the combined value, for which the other ranks wait. A rank that has read the combined value
 * removes its own key. Rank 0 removes the combined value in the next exchange: every rank that
 * comes there has finished this one. The last rank that leaves the session removes the value of
 * the last exchange. Each rank thus makes a constant number of store calls, and no write waits for
 * another rank's write. On processors that ranks share, such a chain of writes would cost one
 * wake-up per rank.
 *
 * A rank that has failed before the exchange sets its failure in place of its part. The combined
 * value is then the failure of the lowest failing rank, and all ranks return it.
 *
 * A rank that gives up overwrites its key with a mark, unless it does so because a rank has ended.
 * The mark keeps the others from completing the exchange without that rank. Ranks that time out
 * then do not report it as missing.
 */
#include "bootstrap/exchange.h"
#include "bootstrap/exchange_clean.h"
#include "bootstrap/exchange_value.h"
#include "bootstrap/session_watch.h"

#include <stdlib.h>
#include <string.h>

#define PEERS_A_LOOK 64
#define LOOK_NS 20000000u

/* The first failure counts. */
static void note(sm_gathering *x, symmem_status status) {
    if (status != SYMMEM_OK && !sm_gathering_has_failed(x))
        (void)sm_error_get(&x->failure);
}

static symmem_status publish_part(sm_gathering *x) {
    const sm_session *session = x->session;
    char key[SM_SESSION_KEY_BYTES];
    sm_exchange_rank_key(session, x->id, x->sequence, session->config.rank, key);
    size_t bytes = sm_gathering_make_part(x);
    x->published = true; /* from here on the key may exist, even if set fails */
    symmem_status status = sm_exchange_set(x, key, x->scratch, bytes);
    if (status != SYMMEM_OK)
        return status;
    if (sm_exchange_limit_ms(x) == 0)
        return SYMMEM_TIMEOUT;
    sm_session_observe(session, "exchange.publish.after");
    return SYMMEM_OK;
}

/* The ranks without a part, those that have given up, and those of which the store tells
 * nothing. */
typedef struct roll {
    uint64_t absent[SYMMEM_MAX_WORLD_SIZE / 64];
    uint64_t left[SYMMEM_MAX_WORLD_SIZE / 64];
    bool any_absent;
    bool any_left;
    bool any_unread;
    symmem_error_record unread; /* of the first */
} roll;

static void call_roll(sm_gathering *x, roll *r) {
    memset(r, 0, sizeof(*r));
    for (int32_t rank = 0; rank < x->session->config.world_size; rank++) {
        sm_part found;
        bool gave_up = false;
        if (rank == x->session->config.rank)
            continue;
        symmem_status status = sm_gathering_read_part(x, rank, &found, &gave_up);
        if (status == SYMMEM_TIMEOUT && !r->any_unread) {
            r->any_unread = true;
            (void)sm_error_get(&r->unread);
        }
        if (status != SYMMEM_NOT_FOUND)
            continue;
        uint64_t *ranks = gave_up ? r->left : r->absent;
        ranks[rank / 64] |= 1ull << (rank % 64);
        r->any_left = r->any_left || gave_up;
        r->any_absent = r->any_absent || !gave_up;
    }
}

/* Names the ranks for which this one waited: those without a part, otherwise those that gave up. If
 * all others are there, `otherwise` is the reason. */
static symmem_status timed_out(sm_gathering *x, const char *otherwise) {
    roll r;
    call_roll(x, &r);
    if (r.any_absent)
        return sm_session_fail_ranks(x->session, x->call, SYMMEM_TIMEOUT, r.absent,
                                     "did not arrive");
    if (r.any_left)
        return sm_session_fail_ranks(x->session, x->call, SYMMEM_TIMEOUT, r.left, "gave up");
    if (r.any_unread && sm_session_blames_server(&r.unread)) {
        (void)sm_error_raise(&r.unread);
        return sm_session_describe(x->session, x->call, SYMMEM_TIMEOUT);
    }
    return sm_session_fail(x->session, x->call, SYMMEM_TIMEOUT, "%s",
                           r.any_unread ? "the store did not tell in time who is missing"
                                        : otherwise);
}

/* A peer that came and gave up did so because another rank was missing. The record names that
 * rank. */
static void name_the_absent(sm_gathering *x, int32_t over) {
    roll r;
    {
        SM_ATTEMPT(look);
        call_roll(x, &r);
    }
    if (r.any_absent && (r.absent[over / 64] >> (over % 64) & 1) == 0)
        sm_session_fail_ranks(x->session, x->call, SYMMEM_TIMEOUT, r.absent, "did not arrive");
}

/* Whether the parts of all ranks have come. `there` counts the first ranks whose parts have. */
static bool all_are_there(sm_gathering *x) {
    while (x->there < x->session->config.world_size &&
           sm_exchange_look_for_part(x, x->there) == SYMMEM_OK)
        x->there++;
    return x->there == x->session->config.world_size;
}

/* Sleeps until the next look at the peers, for the combined value, or on the combining rank for the
 * next part. Sets *tick_ms_p to 0 if the time is up. */
static symmem_status sleep_once(const sm_gathering *x, uint32_t *tick_ms_p) {
    char key[SM_SESSION_KEY_BYTES];
    if (sm_gathering_combines(x))
        sm_exchange_rank_key(x->session, x->id, x->sequence, x->there, key);
    else
        sm_exchange_key(x->session, x->id, x->sequence, "all", key);
    *tick_ms_p = sm_remaining_ms(x->call->deadline_ns, sm_session_tick_ms(x->session));
    return *tick_ms_p == 0 ? SYMMEM_TIMEOUT : sm_session_wait(x->session, key, *tick_ms_p);
}

/* Looks for the value a last time, because a peer may have ended or moved on after it completed the
 * exchange. */
static sm_outcome come_to_an_end(sm_gathering *x, sm_outcome outcome) {
    if (sm_gathering_combines(x) && all_are_there(x))
        return sm_gathering_combine(x);
    bool expired = sm_expired(x->call->deadline_ns);
    if (!sm_gathering_combines(x)) {
        SM_ATTEMPT(look);
        const symmem_status status = sm_gathering_read_all(x);
        expired = sm_expired(x->call->deadline_ns);
        const bool is_slow = status == SYMMEM_TIMEOUT && outcome.status == SYMMEM_OK && !expired;
        if (is_slow || (status != SYMMEM_NOT_FOUND && status != SYMMEM_TIMEOUT)) {
            (void)sm_error_raise(&look.error);
            return sm_outcome_of(status);
        }
    }
    /* TIMEOUT is the store's unless a peer started over, and then tells nothing about the peers. */
    const bool is_stores = outcome.status == SYMMEM_TIMEOUT && !outcome.again;
    if (outcome.status == SYMMEM_OK || (is_stores && expired))
        outcome.status =
            timed_out(x, "all ranks arrived, but their combined value was not there in time");
    else if (outcome.again && !x->call->restart)
        name_the_absent(x, outcome.over);
    return outcome;
}

static sm_outcome wait_for_all(sm_gathering *x) {
    const bool combines = sm_gathering_combines(x);
    sm_session_observe(x->session, "exchange.wait.before");
    x->there = 1; /* this rank */
    while (!combines || x->there < x->session->config.world_size) {
        uint32_t tick_ms;
        symmem_status status = sleep_once(x, &tick_ms);
        if (status != SYMMEM_OK && status != SYMMEM_TIMEOUT)
            return sm_outcome_of(sm_session_describe(x->session, x->call, status));
        if (combines && status == SYMMEM_OK) {
            x->there++;
            continue;
        }
        sm_outcome outcome = sm_outcome_of(SYMMEM_OK);
        if (status != SYMMEM_OK)
            outcome = sm_session_watch(x->session, x->call);
        if (tick_ms == 0 || status == SYMMEM_OK || outcome.status != SYMMEM_OK)
            return come_to_an_end(x, outcome);
    }
    return sm_gathering_combine(x);
}

static symmem_status check_failure(const sm_gathering *x, int32_t rank) {
    sm_failed_all all;
    if (rank == x->session->config.rank && sm_gathering_has_failed(x))
        return sm_own_failure(x->session, x->call, &x->failure);
    memcpy(&all, x->combined, sizeof(all));
    return sm_verdict_apply(x->session, x->call, rank, &all.verdict);
}

/* All ranks see the same summaries, so all reach the same result. */
static symmem_status check_parts(const sm_gathering *x) {
    int32_t failed_rank = sm_gathering_failed_rank_of(x);
    if (failed_rank >= 0)
        return check_failure(x, failed_rank);
    const sm_summary *summaries = sm_gathering_summaries_of(x);
    const sm_summary first = summaries[0];
    for (int32_t rank = 1; rank < x->session->config.world_size; rank++) {
        const sm_summary *other = &summaries[rank];
        if (other->bytes == first.bytes && other->kind == first.kind)
            continue;
        if (other->kind != first.kind)
            sm_session_fail(x->session, x->call, SYMMEM_MISMATCH,
                            "rank %d is in another call than rank 0", rank);
        else
            sm_session_fail(x->session, x->call, SYMMEM_MISMATCH,
                            "rank %d gives %llu bytes, rank 0 %llu", rank,
                            (unsigned long long)other->bytes, (unsigned long long)first.bytes);
        (void)sm_error_failed_rank(rank);
        return sm_error_sizes(first.bytes, other->bytes);
    }
    if (first.bytes <= SM_PART_BYTES_MAX)
        return SYMMEM_OK;
    sm_session_fail(x->session, x->call, SYMMEM_OUT_OF_RANGE,
                    "%llu bytes a rank are more than the store takes",
                    (unsigned long long)first.bytes);
    return sm_error_sizes(SM_PART_BYTES_MAX, first.bytes);
}

static sm_outcome copy_payloads_out(sm_gathering *x) {
    size_t bytes = (size_t)x->own.bytes;
    if (bytes == 0)
        return sm_outcome_of(SYMMEM_OK);
    if (sm_gathering_inside(x, bytes)) {
        memcpy(x->out, sm_gathering_payloads_of(x), sm_gathering_world_size(x) * bytes);
        return sm_outcome_of(SYMMEM_OK);
    }
    /* The parts are too large for one value, so this rank reads each rank's part. */
    for (int32_t rank = 0; rank < x->session->config.world_size; rank++) {
        sm_part found;
        bool gave_up;
        symmem_status status = sm_gathering_read_part(x, rank, &found, &gave_up);
        if (status == SYMMEM_NOT_FOUND)
            return sm_session_started_over(x->session, x->call, rank);
        if (status != SYMMEM_OK)
            return sm_outcome_of(status);
        if (found.flags != 0 || found.bytes != x->own.bytes || found.kind != x->own.kind)
            return sm_outcome_of(sm_session_fail(x->session, x->call, SYMMEM_CORRUPT,
                                                 "rank %d's value is not the one it gave", rank));
        memcpy((unsigned char *)x->out + (size_t)rank * bytes, x->scratch + sizeof(sm_part), bytes);
    }
    return sm_outcome_of(SYMMEM_OK);
}

static sm_outcome run(sm_gathering *x) {
    note(x, sm_session_point(x->session, x->call, "exchange.publish.before"));
    note(x, sm_gathering_allocate(x));
    symmem_status status = publish_part(x);
    if (status == SYMMEM_TIMEOUT && sm_expired(x->call->deadline_ns))
        status = timed_out(x, "the time was up before this rank had arrived, after all others");
    if (status != SYMMEM_OK)
        return sm_outcome_of(status);
    sm_outcome outcome = wait_for_all(x);
    if (outcome.status != SYMMEM_OK)
        return outcome;
    status = check_parts(x);
    if (status == SYMMEM_OK)
        outcome = copy_payloads_out(x);
    if (outcome.status != SYMMEM_OK)
        return outcome;
    sm_exchange_finish(x, status != SYMMEM_OK);
    x->published = false;
    sm_session_observe(x->session, "exchange.done");
    outcome.status = status;
    outcome.agreed = status != SYMMEM_OK;
    outcome.complete = true;
    return outcome;
}

sm_outcome sm_exchange(sm_session *session, const sm_call *call, const char *kind, uint64_t id,
                       uint64_t sequence, const sm_contribution *mine, void *out) {
    sm_gathering x = {
        .session = session,
        .call = call,
        .id = id,
        .sequence = sequence,
        .own = {.magic = SM_PART_MAGIC,
                .bytes = mine->bytes,
                .kind = sm_hash(kind, strlen(kind), SM_HASH_SEED)},
        .in = mine->data,
        .out = out,
    };
    if (mine->failure != NULL)
        x.failure = *mine->failure;
    sm_outcome outcome = run(&x);
    outcome.published = x.published;
    /* A call that follows a peer which started over goes on, so this is no failure of the call. */
    const bool follows = outcome.again && call->restart;
    if (outcome.status != SYMMEM_OK && !outcome.agreed && !follows && sm_gathering_has_failed(&x))
        outcome.status = sm_earlier_failure(session, call, &x.failure, outcome.status);
    if (!x.poor) {
        free(x.combined);
        free(x.scratch);
    }
    return outcome;
}

/* Reads into a buffer that has room only for failures, which are all that matters here. *told_p:
 * the store answered. */
static symmem_status read_failure(sm_gathering *x, int32_t rank, bool *told_p) {
    sm_part found;
    sm_failed_part failed;
    bool gave_up = false;
    symmem_status status = sm_gathering_read_part(x, rank, &found, &gave_up);
    *told_p = status != SYMMEM_TIMEOUT;
    if (gave_up) {
        uint64_t ranks[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
        ranks[rank / 64] = 1ull << (rank % 64);
        return sm_session_fail_ranks(x->session, x->call, SYMMEM_TIMEOUT, ranks, "gave up");
    }
    if (status != SYMMEM_OK || (found.flags & SM_PART_FAILED) == 0)
        return SYMMEM_OK;
    memcpy(&failed, x->scratch, sizeof(failed));
    return sm_verdict_apply(x->session, x->call, rank, &failed.verdict);
}

static uint64_t earlier(uint64_t one_ns, uint64_t other_ns) {
    return one_ns != 0 && one_ns < other_ns ? one_ns : other_ns;
}

symmem_status sm_session_peer_failure(sm_session *session, const char *operation,
                                      uint64_t deadline_ns) {
    const sm_session_config *config = &session->config;
    /* The limit is short, because a waiting rank has to look at other things, too. */
    const sm_call call =
        sm_call_start(operation, "peers", earlier(deadline_ns, sm_now_ns() + LOOK_NS));
    SM_ATTEMPT(look); /* a store without an answer is no failure */
    sm_gathering x = {
        .session = session,
        .call = &call,
        .id = session->id,
        .sequence = session->sequence,
        .poor = true,
        .scratch_bytes = sizeof(x.small_part),
    };
    x.scratch = (unsigned char *)&x.small_part;
    bool told = session->id != 0;
    for (int32_t i = 0; told && i < config->world_size && i < PEERS_A_LOOK; i++) {
        int32_t rank = session->failure_next % config->world_size;
        session->failure_next = rank + 1;
        symmem_status status = rank == config->rank ? SYMMEM_OK : read_failure(&x, rank, &told);
        if (status != SYMMEM_OK) {
            (void)sm_error_raise(&look.error);
            return status;
        }
    }
    return SYMMEM_OK;
}
