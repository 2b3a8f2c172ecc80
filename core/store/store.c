/* SPDX-License-Identifier: BSD-3-Clause */
/* The store as callers see it: checks keys and sizes once, then calls the implementation. */
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

struct symmem_store {
    const symmem_store_ops *ops;
    void *self;
    bool foreign;    /* its entries leave no record in our form */
    bool has_server; /* or may have one: a process that can be stopped */
    /* Consecutive calls, other than waits, that the store did not answer in time. */
    _Atomic uint32_t unanswered;
};

#define BRIEF_MS 100u
#define SILENT_MS 10u
#define SILENT_CALLS 2u /* one may be a machine's that is busy */

/* Relaxed: only a hint. */
uint32_t sm_store_brief_ms(const symmem_store *store) {
    return atomic_load_explicit(&store->unanswered, memory_order_relaxed) < SILENT_CALLS
               ? BRIEF_MS
               : SILENT_MS;
}

/* A call with less time than that says nothing. */
#define LEAST_MS (BRIEF_MS / 2)

static void note_answer(symmem_store *store, symmem_status status, uint32_t timeout_ms) {
    if (!store->has_server ||
        (status == SYMMEM_TIMEOUT && timeout_ms != 0 && timeout_ms < LEAST_MS))
        return;
    const uint32_t count = atomic_load_explicit(&store->unanswered, memory_order_relaxed);
    const uint32_t next = status != SYMMEM_TIMEOUT ? 0 : count < SILENT_CALLS ? count + 1 : count;
    if (next != count)
        atomic_store_explicit(&store->unanswered, next, memory_order_relaxed);
}

static symmem_status wrap(const symmem_store_ops *ops, void *self, bool foreign, bool has_server,
                          symmem_store **store_p) {
    symmem_store *store = malloc(sizeof(*store));
    if (store == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "store_open", "", "no memory for the store");
    *store = (symmem_store){
        .ops = ops, .self = self, .foreign = foreign, .has_server = has_server, .unanswered = 0};
    *store_p = store;
    return SYMMEM_OK;
}

symmem_status sm_store_wrap(const symmem_store_ops *ops, void *self, bool has_server,
                            symmem_store **store_p) {
    return wrap(ops, self, false, has_server, store_p);
}

symmem_status symmem_store_open_custom(const symmem_store_ops *ops, void *self,
                                       symmem_store **store_p) {
    SM_PUBLIC_CALL;
    if (ops == NULL || store_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_open_custom", "", "NULL argument");
    if (ops->size < sizeof(*ops)) {
        sm_fail(SYMMEM_ABI, "store_open_custom", "", "the table has %zu bytes, %zu are needed",
                ops->size, sizeof(*ops));
        return sm_error_sizes(sizeof(*ops), ops->size);
    }
    if (ops->set == NULL || ops->get == NULL || ops->wait == NULL || ops->add == NULL ||
        ops->remove == NULL || ops->close == NULL)
        return sm_fail(SYMMEM_ABI, "store_open_custom", "", "the table lacks an entry");
    return wrap(ops, self, true, true, store_p);
}

void symmem_store_close(symmem_store *store) {
    SM_PUBLIC_CALL;
    if (store == NULL)
        return;
    store->ops->close(store->self);
    free(store);
}

static bool key_character(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           strchr("._-/:", c) != NULL; /* never the zero, which that would find */
}

static symmem_status check_key(const symmem_store *store, const char *key, const char *operation) {
    if (store == NULL || key == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "NULL argument");
    size_t length = strnlen(key, SYMMEM_STORE_KEY_MAX + 1);
    if (length == 0 || length > SYMMEM_STORE_KEY_MAX) {
        sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "a key has 1 to %d characters",
                SYMMEM_STORE_KEY_MAX);
        return sm_error_sizes(SYMMEM_STORE_KEY_MAX, length);
    }
    for (size_t i = 0; i < length; i++)
        if (!key_character(key[i]))
            return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "",
                           "byte 0x%02x is not allowed in a key", (unsigned char)key[i]);
    return SYMMEM_OK;
}

static symmem_status described(const symmem_store *store, symmem_status status,
                               const char *operation, const char *key) {
    if (status == SYMMEM_OK || !store->foreign)
        return status;
    if (!sm_status_known(status))
        return sm_fail(SYMMEM_SYSTEM, operation, "",
                       "the custom store answered %d for key %.120s, which is no status",
                       (int)status, key);
    return sm_fail(status, operation, "", "the custom store failed for key %.120s: %s", key,
                   symmem_status_text(status));
}

symmem_status symmem_store_set(symmem_store *store, const char *key, const void *value,
                               size_t bytes, uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    symmem_status status = check_key(store, key, "store_set");
    if (status != SYMMEM_OK)
        return status;
    if (value == NULL && bytes != 0)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_set", "", "NULL value");
    if (bytes > SYMMEM_STORE_VALUE_MAX) {
        sm_fail(SYMMEM_INVALID_ARGUMENT, "store_set", "", "a value has at most %u bytes, not %zu",
                SYMMEM_STORE_VALUE_MAX, bytes);
        return sm_error_sizes(SYMMEM_STORE_VALUE_MAX, bytes);
    }
    status = store->ops->set(store->self, key, bytes == 0 ? "" : value, bytes, timeout_ms);
    note_answer(store, status, timeout_ms);
    return described(store, status, "store_set", key);
}

symmem_status symmem_store_get(symmem_store *store, const char *key, void *value, size_t capacity,
                               size_t *bytes_p, uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    symmem_status status = check_key(store, key, "store_get");
    if (status != SYMMEM_OK)
        return status;
    if ((value == NULL && capacity != 0) || bytes_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_get", "", "NULL argument");
    size_t bytes = 0;
    status = store->ops->get(store->self, key, value, capacity, &bytes, timeout_ms);
    note_answer(store, status, timeout_ms);
    if (status != SYMMEM_OK && status != SYMMEM_OUT_OF_RANGE)
        return described(store, status, "store_get", key);
    if (bytes > SYMMEM_STORE_VALUE_MAX || (bytes <= capacity) != (status == SYMMEM_OK))
        return sm_fail(SYMMEM_CORRUPT, "store_get", "", "key %.120s has a value of %zu bytes", key,
                       bytes);
    *bytes_p = bytes;
    return described(store, status, "store_get", key);
}

symmem_status symmem_store_wait(symmem_store *store, const char *key, uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    symmem_status status = check_key(store, key, "store_wait");
    if (status != SYMMEM_OK)
        return status;
    status = store->ops->wait(store->self, key, timeout_ms);
    if (status != SYMMEM_TIMEOUT)
        note_answer(store, status, timeout_ms);
    return described(store, status, "store_wait", key);
}

symmem_status symmem_store_add(symmem_store *store, const char *key, int64_t delta,
                               int64_t *value_p, uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    symmem_status status = check_key(store, key, "store_add");
    if (status != SYMMEM_OK)
        return status;
    if (value_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_add", "", "NULL argument");
    status = store->ops->add(store->self, key, delta, value_p, timeout_ms);
    note_answer(store, status, timeout_ms);
    return described(store, status, "store_add", key);
}

symmem_status symmem_store_remove(symmem_store *store, const char *key, uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    symmem_status status = check_key(store, key, "store_remove");
    if (status != SYMMEM_OK)
        return status;
    status = store->ops->remove(store->self, key, timeout_ms);
    note_answer(store, status, timeout_ms);
    return described(store, status, "store_remove", key);
}

/* Not known in time, it stays. */
static bool may_be_anothers(symmem_store *store, const char *key, const void *value, size_t bytes,
                            uint32_t timeout_ms) {
    unsigned char found[1024];
    size_t found_bytes = 0;
    symmem_status status =
        symmem_store_get(store, key, found, sizeof(found), &found_bytes, timeout_ms);
    if (status == SYMMEM_OK)
        return found_bytes != bytes || memcmp(found, value, bytes) != 0;
    return status == SYMMEM_OUT_OF_RANGE || status == SYMMEM_TIMEOUT;
}

void sm_store_take_back(symmem_store *store, const char *key, const void *value, size_t bytes,
                        uint32_t timeout_ms) {
    SM_ATTEMPT(taking_back);
    if (!may_be_anothers(store, key, value, bytes, timeout_ms)) {
        symmem_status status = symmem_store_remove(store, key, timeout_ms);
        if (status != SYMMEM_OK && status != SYMMEM_TIMEOUT)
            status = symmem_store_remove(store, key, timeout_ms);
        (void)status;
    }
}
