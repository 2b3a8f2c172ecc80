/* SPDX-License-Identifier: BSD-3-Clause */
/* Encodes an exchange's keys, each rank's part, and the combined value. */
#include "bootstrap/exchange_value.h"
#include "bootstrap/exchange.h"
#include "bootstrap/exit_record.h"
#include "bootstrap/session_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL_MAGIC 0x204c4c41u /* "ALL " */

void sm_exchange_key(const sm_session *session, uint64_t id, uint64_t sequence, const char *name,
                     char key[SM_SESSION_KEY_BYTES]) {
    snprintf(key, SM_SESSION_KEY_BYTES, "%s/%016llx/%llu/%s", session->config.prefix,
             (unsigned long long)id, (unsigned long long)sequence, name);
}

void sm_exchange_rank_key(const sm_session *session, uint64_t id, uint64_t sequence, int32_t rank,
                          char key[SM_SESSION_KEY_BYTES]) {
    char name[16];
    snprintf(name, sizeof(name), "%d", rank);
    sm_exchange_key(session, id, sequence, name, key);
}

size_t sm_gathering_world_size(const sm_gathering *x) {
    return (size_t)x->session->config.world_size;
}

static size_t payload_bytes(size_t bytes) {
    return bytes <= SM_PART_BYTES_MAX ? bytes : 0;
}

/* The size of `all` if no rank failed. */
static size_t all_bytes(const sm_gathering *x, size_t bytes) {
    return sizeof(sm_all_head) + sm_gathering_world_size(x) * (sizeof(sm_summary) + bytes);
}

bool sm_gathering_inside(const sm_gathering *x, size_t bytes) {
    return bytes <= SM_PART_BYTES_MAX && all_bytes(x, bytes) <= SYMMEM_STORE_VALUE_MAX;
}

sm_summary *sm_gathering_summaries_of(const sm_gathering *x) {
    return (sm_summary *)(void *)(x->combined + sizeof(sm_all_head));
}

unsigned char *sm_gathering_payloads_of(const sm_gathering *x) {
    return x->combined + all_bytes(x, 0);
}

bool sm_gathering_has_failed(const sm_gathering *x) {
    return x->failure.status != SYMMEM_OK;
}

static size_t greater(size_t a, size_t b) {
    return a > b ? a : b;
}

symmem_status sm_gathering_allocate(sm_gathering *x) {
    size_t bytes = (size_t)x->own.bytes;
    x->combined_bytes =
        greater(all_bytes(x, sm_gathering_inside(x, bytes) ? bytes : 0), sizeof(sm_failed_all));
    x->scratch_bytes = greater(sizeof(sm_part) + payload_bytes(bytes), sizeof(sm_failed_part));
    x->combined = malloc(x->combined_bytes);
    x->scratch = malloc(x->scratch_bytes);
    if (x->combined != NULL && x->scratch != NULL)
        return SYMMEM_OK;
    free(x->combined);
    free(x->scratch);
    x->poor = true;
    x->combined = (unsigned char *)&x->small_all;
    x->combined_bytes = sizeof(x->small_all);
    x->scratch = (unsigned char *)&x->small_part;
    x->scratch_bytes = sizeof(x->small_part);
    return sm_session_fail(x->session, x->call, SYMMEM_OUT_OF_MEMORY,
                           "no memory for an exchange of %zu bytes a rank", bytes);
}

uint32_t sm_exchange_limit_ms(const sm_gathering *x) {
    uint32_t limit_ms = sm_remaining_ms(x->call->deadline_ns, SM_STORE_CALL_MS);
    if (limit_ms == 0)
        sm_session_fail(x->session, x->call, SYMMEM_TIMEOUT, "deadline passed");
    return limit_ms;
}

symmem_status sm_exchange_set(const sm_gathering *x, const char *key, const void *value,
                              size_t bytes) {
    uint32_t limit_ms = sm_exchange_limit_ms(x);
    if (limit_ms == 0)
        return SYMMEM_TIMEOUT;
    symmem_status status = symmem_store_set(x->session->config.store, key, value, bytes, limit_ms);
    return status == SYMMEM_OK ? status : sm_session_store_failed(x->session, x->call, status);
}

size_t sm_gathering_make_part(sm_gathering *x) {
    size_t bytes = payload_bytes((size_t)x->own.bytes);
    if (sm_gathering_has_failed(x)) {
        sm_failed_part failed;
        memset(&failed, 0, sizeof(failed)); /* sent as bytes */
        failed.part = x->own;
        failed.part.flags = SM_PART_FAILED;
        sm_verdict_make(&x->failure, &failed.verdict);
        memcpy(x->scratch, &failed, sizeof(failed));
        return sizeof(failed);
    }
    memcpy(x->scratch, &x->own, sizeof(x->own));
    if (bytes != 0)
        memcpy(x->scratch + sizeof(sm_part), x->in, bytes);
    return sizeof(sm_part) + bytes;
}

static symmem_status not_of_this(const sm_gathering *x, int32_t rank) {
    return sm_session_fail(x->session, x->call, SYMMEM_CORRUPT,
                           "rank %d's value in the store is not of this protocol", rank);
}

symmem_status sm_gathering_read_part(sm_gathering *x, int32_t rank, sm_part *part_p,
                                     bool *gave_up_p) {
    char key[SM_SESSION_KEY_BYTES];
    sm_exchange_rank_key(x->session, x->id, x->sequence, rank, key);
    *gave_up_p = false;
    size_t bytes = 0;
    symmem_status status =
        sm_session_get(x->session, x->call, key, x->scratch, x->scratch_bytes, &bytes);
    while (status == SYMMEM_OUT_OF_RANGE && !x->poor) {
        if (bytes > SYMMEM_STORE_VALUE_MAX)
            return not_of_this(x, rank);
        unsigned char *larger = realloc(x->scratch, bytes);
        if (larger == NULL)
            return sm_session_fail(x->session, x->call, SYMMEM_OUT_OF_MEMORY,
                                   "no memory for %zu bytes of rank %d", bytes, rank);
        x->scratch = larger;
        x->scratch_bytes = bytes;
        status = sm_session_get(x->session, x->call, key, x->scratch, x->scratch_bytes, &bytes);
    }
    if (status == SYMMEM_NOT_FOUND || status == SYMMEM_OUT_OF_RANGE)
        return status;
    if (status != SYMMEM_OK)
        return sm_session_store_failed(x->session, x->call, status);
    sm_part found = {0};
    if (bytes >= sizeof(found))
        memcpy(&found, x->scratch, sizeof(found));
    *gave_up_p = found.magic == SM_PART_MAGIC && (found.flags & SM_PART_GAVE_UP) != 0;
    if (*gave_up_p)
        return SYMMEM_NOT_FOUND;
    size_t expected_bytes = (found.flags & SM_PART_FAILED) != 0
                                ? sizeof(sm_failed_part)
                                : sizeof(found) + payload_bytes((size_t)found.bytes);
    if (found.magic != SM_PART_MAGIC || bytes != expected_bytes)
        return not_of_this(x, rank);
    if ((found.flags & SM_PART_FAILED) != 0) {
        sm_failed_part failed;
        memcpy(&failed, x->scratch, sizeof(failed));
        if (!sm_verdict_valid(x->session, &failed.verdict))
            return not_of_this(x, rank);
    }
    *part_p = found;
    return SYMMEM_OK;
}

static sm_outcome set_all(sm_gathering *x, size_t bytes) {
    char key[SM_SESSION_KEY_BYTES];
    sm_session_observe(x->session, "exchange.combine.before");
    sm_exchange_key(x->session, x->id, x->sequence, "all", key);
    return sm_outcome_of(sm_exchange_set(x, key, x->combined, bytes));
}

static sm_outcome set_failure(sm_gathering *x, int32_t rank, const sm_verdict *verdict) {
    sm_failed_all all = {.head = {.magic = ALL_MAGIC, .failed_rank = rank}, .verdict = *verdict};
    memcpy(x->combined, &all, sizeof(all));
    return set_all(x, sizeof(all));
}

/* Makes the thread's record the result of all ranks, if the store still accepts a value. */
static sm_outcome cannot_combine(sm_gathering *x) {
    sm_verdict verdict;
    (void)sm_error_get(&x->failure);
    sm_verdict_make(&x->failure, &verdict);
    return set_failure(x, x->session->config.rank, &verdict);
}

bool sm_gathering_combines(const sm_gathering *x) {
    return x->session->config.rank == 0;
}

/* Combines all parts into one value. A rank that has failed itself only looks for a lower rank that
 * has failed. */
sm_outcome sm_gathering_combine(sm_gathering *x) {
    const sm_session *session = x->session;
    size_t bytes = (size_t)x->own.bytes;
    bool with_payloads = sm_gathering_inside(x, bytes);
    for (int32_t rank = 0; rank < session->config.world_size; rank++) {
        sm_part found = x->own;
        const unsigned char *payload = x->in;
        sm_failed_part failed;
        if (rank != session->config.rank) {
            bool gave_up;
            symmem_status status = sm_session_point(session, x->call, "exchange.combine.read");
            if (status != SYMMEM_OK)
                return cannot_combine(x);
            status = sm_gathering_read_part(x, rank, &found, &gave_up);
            if (status == SYMMEM_NOT_FOUND)
                return sm_session_started_over(session, x->call, rank);
            if (status != SYMMEM_OK && status != SYMMEM_OUT_OF_RANGE)
                return cannot_combine(x);
            payload = x->scratch + sizeof(sm_part);
        } else if (sm_gathering_has_failed(x)) {
            sm_verdict_make(&x->failure, &failed.verdict);
            return set_failure(x, rank, &failed.verdict);
        }
        if ((found.flags & SM_PART_FAILED) != 0) {
            memcpy(&failed, x->scratch, sizeof(failed));
            return set_failure(x, rank, &failed.verdict);
        }
        if (sm_gathering_has_failed(x))
            continue;
        sm_gathering_summaries_of(x)[rank] = (sm_summary){.bytes = found.bytes, .kind = found.kind};
        with_payloads = with_payloads && found.bytes == bytes && found.kind == x->own.kind;
        if (with_payloads && bytes != 0)
            memcpy(sm_gathering_payloads_of(x) + (size_t)rank * bytes, payload, bytes);
    }
    const sm_all_head first = {.magic = ALL_MAGIC, .failed_rank = -1};
    memcpy(x->combined, &first, sizeof(first));
    return set_all(x, all_bytes(x, with_payloads ? bytes : 0));
}

int32_t sm_gathering_failed_rank_of(const sm_gathering *x) {
    sm_all_head first;
    memcpy(&first, x->combined, sizeof(first));
    return first.failed_rank;
}

/* Whether `all` holds what this rank gave, and holds the payloads exactly if all ranks gave
 * alike. */
static bool is_complete(const sm_gathering *x, size_t bytes) {
    const sm_summary *summaries = sm_gathering_summaries_of(x);
    const sm_summary own = summaries[x->session->config.rank];
    bool alike = true;
    for (size_t rank = 0; rank < sm_gathering_world_size(x); rank++)
        alike = alike && summaries[rank].bytes == own.bytes && summaries[rank].kind == own.kind;
    size_t payload = alike && sm_gathering_inside(x, (size_t)own.bytes) ? (size_t)own.bytes : 0;
    return own.bytes == x->own.bytes && own.kind == x->own.kind && bytes == all_bytes(x, payload);
}

static bool is_all(const sm_gathering *x, size_t bytes) {
    sm_all_head first;
    memcpy(&first, x->combined, sizeof(first));
    if (bytes < sizeof(first) || first.magic != ALL_MAGIC)
        return false;
    if (first.failed_rank >= 0) {
        sm_failed_all all;
        memcpy(&all, x->combined, sizeof(all));
        return bytes == sizeof(all) && first.failed_rank < x->session->config.world_size &&
               sm_verdict_valid(x->session, &all.verdict);
    }
    return !sm_gathering_has_failed(x) && bytes >= all_bytes(x, 0) && is_complete(x, bytes);
}

symmem_status sm_gathering_read_all(sm_gathering *x) {
    char key[SM_SESSION_KEY_BYTES];
    sm_exchange_key(x->session, x->id, x->sequence, "all", key);
    size_t bytes = 0;
    memset(x->combined, 0, sizeof(sm_all_head));
    symmem_status status =
        sm_session_get(x->session, x->call, key, x->combined, x->combined_bytes, &bytes);
    if (status == SYMMEM_NOT_FOUND)
        return status;
    if (status == SYMMEM_OUT_OF_RANGE || (status == SYMMEM_OK && !is_all(x, bytes)))
        return sm_session_fail(x->session, x->call, SYMMEM_CORRUPT,
                               "the combined value of %zu bytes is not of this exchange", bytes);
    return status == SYMMEM_OK ? status : sm_session_store_failed(x->session, x->call, status);
}
