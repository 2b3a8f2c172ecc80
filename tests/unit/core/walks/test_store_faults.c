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
static _Thread_local int calls, fail_at;
static _Thread_local const char *failed_call;

static void arm(int nth) {
    failed_call = NULL;
    calls = 0;
    fail_at = nth;
}

static int disarm(const char **name_p) {
    fail_at = 0;
    *name_p = failed_call;
    return calls;
}

/* True once, for the call that is to go wrong. */
static bool strikes(const char *name) {
    if (++calls != fail_at)
        return false;
    failed_call = name;
    return true;
}

static bool fails(const char *name) {
    return (kind == FAILS || kind == EXPIRES) && strikes(name);
}

/* Stores of others know nothing of records. */
static symmem_status failure(void) {
    return kind == EXPIRES ? SYMMEM_TIMEOUT : SYMMEM_SYSTEM;
}

static symmem_status faulty_set(void *self, const char *key, const void *value, size_t bytes,
                                uint32_t timeout_ms) {
    return fails("set") ? failure() : symmem_store_set(self, key, value, bytes, timeout_ms);
}

static symmem_status faulty_get(void *self, const char *key, void *value, size_t capacity,
                                size_t *bytes_p, uint32_t timeout_ms) {
    if (fails("get"))
        return failure();
    symmem_status status = symmem_store_get(self, key, value, capacity, bytes_p, timeout_ms);
    if (status == SYMMEM_OK && *bytes_p > 0) {
        if (kind == CUTS && strikes("get"))
            --*bytes_p;
        else if (kind == CHANGES && strikes("get"))
            ((unsigned char *)value)[place < *bytes_p ? place : *bytes_p - 1] ^= 0x55;
    }
    return status;
}

static symmem_status faulty_wait(void *self, const char *key, uint32_t timeout_ms) {
    return fails("wait") ? failure() : symmem_store_wait(self, key, timeout_ms);
}

static symmem_status faulty_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                                uint32_t timeout_ms) {
    return fails("add") ? failure() : symmem_store_add(self, key, delta, value_p, timeout_ms);
}

static symmem_status faulty_remove(void *self, const char *key, uint32_t timeout_ms) {
    return fails("remove") ? failure() : symmem_store_remove(self, key, timeout_ms);
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

int main(void) {
    static const char *const names[] = {"store calls fail", "store calls expire", "values are cut",
                                        "values are changed"};
    const struct life_faults faults = {
        .table = symmem_backend_entry(SYMMEM_BACKEND_ABI),
        .arm = arm,
        .disarm = disarm,
        .open_store = open_store,
    };
    int result = 0;
    for (kind = FAILS; kind < CHANGES; kind++)
        result |= life_main(names[kind], &faults);
    for (place = 0; place < PLACES; place = place * 3 + 4)
        result |= life_main(names[CHANGES], &faults);
    return result;
}
