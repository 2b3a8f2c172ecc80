/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walks every call that one rank makes of its store in a complete run and lets each go wrong once:
 * it fails, expires, or hands out a value that is cut or changed. Calls return a status with a
 * record, nothing hangs, and nothing is left.
 */
#include "life.h"

enum { PLACES = 1000 }; /* in values that are looked at for changes */

typedef enum fault_kind { FAILS, EXPIRES, CUTS, CHANGES } fault_kind;

static fault_kind kind; /* set between walks */
static size_t place;    /* of the changed byte; the last one if the value is shorter */
static char failed_key[SYMMEM_STORE_KEY_MAX]; /* rank 0's */

static bool strikes(const char *name, const char *key) {
    if (!life_strikes(name))
        return false;
    snprintf(failed_key, sizeof(failed_key), "%s", key);
    return true;
}

static bool fails(const char *name, const char *key) {
    return (kind == FAILS || kind == EXPIRES) && strikes(name, key);
}

/* Stores of others know nothing of records. */
static symmem_status failure(void) {
    return kind == EXPIRES ? SYMMEM_TIMEOUT : SYMMEM_SYSTEM;
}

static symmem_status faulty_set(void *self, const char *key, const void *value, size_t bytes,
                                uint32_t timeout_ms) {
    return fails("set", key) ? failure() : symmem_store_set(self, key, value, bytes, timeout_ms);
}

static symmem_status faulty_get(void *self, const char *key, void *value, size_t capacity,
                                size_t *bytes_p, uint32_t timeout_ms) {
    if (fails("get", key))
        return failure();
    symmem_status status = symmem_store_get(self, key, value, capacity, bytes_p, timeout_ms);
    if (status == SYMMEM_OK && *bytes_p > 0) {
        if (kind == CUTS && strikes("get", key))
            --*bytes_p;
        else if (kind == CHANGES && strikes("get", key))
            ((unsigned char *)value)[place < *bytes_p ? place : *bytes_p - 1] ^= 0x55;
    }
    return status;
}

static symmem_status faulty_wait(void *self, const char *key, uint32_t timeout_ms) {
    return fails("wait", key) ? failure() : symmem_store_wait(self, key, timeout_ms);
}

static symmem_status faulty_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                                uint32_t timeout_ms) {
    return fails("add", key) ? failure() : symmem_store_add(self, key, delta, value_p, timeout_ms);
}

static symmem_status faulty_remove(void *self, const char *key, uint32_t timeout_ms) {
    return fails("remove", key) ? failure() : symmem_store_remove(self, key, timeout_ms);
}

static void faulty_close(void *self) {
    symmem_store_close(self);
}

static symmem_store *open_store(void) {
    static const symmem_store_ops ops = {
        .size = sizeof(ops),
        .set = faulty_set,
        .get = faulty_get,
        .wait = faulty_wait,
        .add = faulty_add,
        .remove = faulty_remove,
        .close = faulty_close,
    };
    symmem_store *inner = NULL, *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&inner), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, inner, &store), SYMMEM_OK);
    return store;
}

/* --- what it has to lead to ------------------------------------------------------------- */

static bool key_ends(const char *end) {
    size_t length = strlen(failed_key), ends = strlen(end);
    return length >= ends && strcmp(failed_key + length - ends, end) == 0;
}

/* Cleaning up never fails a call, nor does a look at what this rank left. */
static bool must_finish(const char *call) {
    return strcmp(call, "remove") == 0 || key_ends("/d") ||
           (strcmp(call, "get") == 0 && key_ends("/id/0") && kind != CHANGES) ||
           (kind == EXPIRES && strcmp(call, "wait") == 0);
}

/* Counting is tried once more, and others' values may come another way. */
static bool may_finish(const char *call) {
    return kind == CHANGES || strcmp(call, "get") == 0 || strcmp(call, "add") == 0;
}

/* The other rank is told the cause. It misses this one, and no other, if it has what it needs of
 * that call and waits in a later one, if this rank does not know its socket yet, or if the time was
 * up here, too. */
static void judge_other(const struct life *other, const symmem_error_record *own) {
    const symmem_error_record *record = &other->first.record;
    const bool may_be_missed = strcmp(own->operation, other->first.call) != 0 ||
                               strcmp(own->stage, "join") == 0 ||
                               strcmp(record->stage, "join") == 0 || own->status == SYMMEM_TIMEOUT;
    const bool is_told = record->status == own->status &&
                         record->missing_count == own->missing_count &&
                         memcmp(record->missing, own->missing, sizeof(own->missing)) == 0 &&
                         record->failed_rank == (own->failed_rank >= 0 ? own->failed_rank : 0) &&
                         strstr(record->message, own->message) != NULL;
    const bool is_missed = record->status == SYMMEM_TIMEOUT && record->failed_rank == 0 &&
                           record->missing_count == 1 && record->missing[0] == 1;
    if (kind == CHANGES || (other->finished && strcmp(own->operation, "group_barrier") == 0))
        return; /* who has all that it needs is not held up */
    CU_ASSERT(is_told || (may_be_missed && is_missed));
}

static void judge_own(const struct life *life) {
    static const symmem_status statuses[] = {[FAILS] = SYMMEM_SYSTEM,
                                             [EXPIRES] = SYMMEM_TIMEOUT,
                                             [CUTS] = SYMMEM_CORRUPT,
                                             [CHANGES] = SYMMEM_CORRUPT};
    const symmem_error_record *record = &life->first.record;
    const bool of_join = kind == CUTS && strcmp(record->stage, "join") == 0;
    if (kind != CHANGES)
        CU_ASSERT(record->status == statuses[kind] ||
                  (of_join && record->status == SYMMEM_MISMATCH));
    if (strcmp(record->operation, "init") != 0) {
        CU_ASSERT_EQUAL(record->rank, 0);
        CU_ASSERT_EQUAL(record->world_size, 2);
    }
    if (kind == CHANGES)
        return;
    CU_ASSERT_STRING_EQUAL(record->operation, life->first.call);
    if (kind == FAILS || kind == EXPIRES)
        CU_ASSERT_PTR_NOT_NULL(strstr(record->message, failed_key));
    if (kind == EXPIRES && strcmp(record->operation, "init") != 0) {
        CU_ASSERT_EQUAL(record->failed_rank, 0);
        CU_ASSERT_EQUAL(record->missing_count, 0);
    }
}

static void judge(const struct life *own, const struct life *other, int nth) {
    if (must_finish(own->name) || (may_finish(own->name) && own->finished)) {
        CU_ASSERT(own->finished);
    } else {
        CU_ASSERT_FALSE(own->finished);
        judge_own(own);
        judge_other(other, &own->first.record);
    }
}

int main(void) {
    static const char *const names[] = {"store calls fail", "store calls expire", "values are cut",
                                        "values are changed"};
    const struct life_faults faults = {
        .table = symmem_backend_entry(SYMMEM_BACKEND_ABI),
        .open_store = open_store,
        .judge = judge,
    };
    int result = 0;
    for (kind = FAILS; kind < CHANGES; kind++)
        result |= life_main(names[kind], &faults);
    for (place = 0; place < PLACES; place = place * 3 + 4)
        result |= life_main(names[CHANGES], &faults);
    return result;
}
