/* SPDX-License-Identifier: BSD-3-Clause */
/* The in-memory store, for ranks that are threads: a hash table, a mutex and a condition. */
#include "base/fork.h"
#include "base/index.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    sm_index_node by_key;
    unsigned char *value;
    size_t bytes;
    char key[]; /* with its terminator */
} entry;

typedef struct memory_store {
    sm_fork_lock lock; /* changed: a key came or was replaced */
    sm_index entries;  /* by a hash of the key */
} memory_store;

static entry *entry_of_node(sm_index_node *node) {
    return (entry *)(void *)((char *)node - offsetof(entry, by_key));
}

/* NULL: it is not there. */
static entry *find(const memory_store *store, const char *key) {
    sm_index_node *node = sm_index_first(&store->entries, sm_store_hash(key));
    while (node != NULL && strcmp(entry_of_node(node)->key, key) != 0)
        node = sm_index_next(node);
    return node == NULL ? NULL : entry_of_node(node);
}

static symmem_status no_memory(const char *operation) {
    return sm_fail(SYMMEM_OUT_OF_MEMORY, operation, "", "no memory for a value");
}

static symmem_status put(memory_store *store, const char *key, const void *value, size_t bytes,
                         const char *operation) {
    unsigned char *copy = malloc(bytes == 0 ? 1 : bytes);
    if (copy == NULL)
        return no_memory(operation);
    memcpy(copy, value, bytes);
    entry *made = find(store, key);
    if (made == NULL) {
        size_t key_bytes = strlen(key) + 1;
        made = malloc(sizeof(*made) + key_bytes);
        if (made == NULL) {
            free(copy);
            return no_memory(operation);
        }
        made->value = NULL;
        memcpy(made->key, key, key_bytes);
        sm_index_add(&store->entries, &made->by_key, sm_store_hash(key));
    }
    free(made->value);
    made->value = copy;
    made->bytes = bytes;
    pthread_cond_broadcast(&store->lock.changed);
    sm_clock_changed();
    return SYMMEM_OK;
}

static symmem_status memory_set(void *self, const char *key, const void *value, size_t bytes,
                                uint32_t timeout_ms) {
    (void)timeout_ms; /* nothing here can take long */
    memory_store *store = self;
    pthread_mutex_lock(&store->lock.mutex);
    symmem_status status = put(store, key, value, bytes, "store_set");
    pthread_mutex_unlock(&store->lock.mutex);
    return status;
}

static symmem_status memory_get(void *self, const char *key, void *value, size_t capacity,
                                size_t *bytes_p, uint32_t timeout_ms) {
    (void)timeout_ms;
    memory_store *store = self;
    symmem_status status = SYMMEM_OK;
    pthread_mutex_lock(&store->lock.mutex);
    const entry *found = find(store, key);
    if (found == NULL) {
        status = SYMMEM_NOT_FOUND;
    } else {
        *bytes_p = found->bytes;
        if (found->bytes > capacity)
            status = SYMMEM_OUT_OF_RANGE;
        else if (found->bytes != 0)
            memcpy(value, found->value, found->bytes);
    }
    pthread_mutex_unlock(&store->lock.mutex);
    if (status == SYMMEM_NOT_FOUND)
        sm_fail(status, "store_get", "", "no key %.200s", key);
    else if (status == SYMMEM_OUT_OF_RANGE)
        sm_fail(status, "store_get", "", "the value is larger than %zu bytes", capacity);
    return status;
}

static symmem_status memory_wait(void *self, const char *key, uint32_t timeout_ms) {
    memory_store *store = self;
    uint64_t deadline_ns = sm_deadline_ns(timeout_ms);
    symmem_status status = SYMMEM_OK;
    pthread_mutex_lock(&store->lock.mutex);
    while (find(store, key) == NULL && status == SYMMEM_OK) {
        if (sm_expired(deadline_ns))
            status = SYMMEM_TIMEOUT;
        else
            sm_cond_wait(&store->lock.changed, &store->lock.mutex, deadline_ns);
    }
    pthread_mutex_unlock(&store->lock.mutex);
    return status == SYMMEM_OK ? status : sm_store_expired("store_wait", key);
}

static symmem_status memory_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                                uint32_t timeout_ms) {
    (void)timeout_ms;
    memory_store *store = self;
    symmem_status status;
    uint64_t value = 0;
    pthread_mutex_lock(&store->lock.mutex);
    const entry *found = find(store, key);
    if (found != NULL && found->bytes != sizeof(value)) {
        status = sm_fail(SYMMEM_MISMATCH, "store_add", "", "key %.200s is not a counter", key);
    } else {
        if (found != NULL)
            memcpy(&value, found->value, sizeof(value));
        value += (uint64_t)delta;
        status = put(store, key, &value, sizeof(value), "store_add");
    }
    pthread_mutex_unlock(&store->lock.mutex);
    if (status == SYMMEM_OK)
        *value_p = (int64_t)value;
    return status;
}

static symmem_status memory_remove(void *self, const char *key, uint32_t timeout_ms) {
    (void)timeout_ms;
    memory_store *store = self;
    pthread_mutex_lock(&store->lock.mutex);
    entry *found = find(store, key);
    if (found != NULL) {
        sm_index_remove(&store->entries, &found->by_key);
        free(found->value);
        free(found);
    }
    pthread_mutex_unlock(&store->lock.mutex);
    return SYMMEM_OK;
}

static void memory_close(void *self) {
    memory_store *store = self;
    for (sm_index_node *node = sm_index_empty(&store->entries), *next; node != NULL; node = next) {
        next = node->next;
        free(entry_of_node(node)->value);
        free(entry_of_node(node));
    }
    sm_fork_lock_close(&store->lock);
    free(store);
}

static const symmem_store_ops memory_ops = {
    .size = sizeof(memory_ops),
    .set = memory_set,
    .get = memory_get,
    .wait = memory_wait,
    .add = memory_add,
    .remove = memory_remove,
    .close = memory_close,
};

symmem_status symmem_store_open_memory(symmem_store **store_p) {
    SM_PUBLIC_CALL;
    if (store_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_open_memory", "", "NULL argument");
    memory_store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "store_open_memory", "", "no memory for the store");
    if (sm_fork_lock_open(&store->lock, true) != 0) {
        free(store);
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "store_open_memory", "", "no condition for the store");
    }
    symmem_status status = sm_store_wrap(&memory_ops, store, false, store_p);
    if (status != SYMMEM_OK)
        memory_close(store);
    return status;
}
