/* SPDX-License-Identifier: BSD-3-Clause */
#include "counting_store.h"

static symmem_status counting_set(void *self, const char *key, const void *value, size_t bytes,
                                  uint32_t timeout_ms) {
    struct counting_store *counting = self;
    atomic_fetch_add(&counting->sets, 1);
    return symmem_store_set(counting->inner, key, value, bytes, timeout_ms);
}

static symmem_status counting_get(void *self, const char *key, void *value, size_t capacity,
                                  size_t *bytes_p, uint32_t timeout_ms) {
    struct counting_store *counting = self;
    atomic_fetch_add(&counting->gets, 1);
    if (counting->before_get != NULL)
        counting->before_get(counting->arg, key);
    return symmem_store_get(counting->inner, key, value, capacity, bytes_p, timeout_ms);
}

static symmem_status counting_wait(void *self, const char *key, uint32_t timeout_ms) {
    struct counting_store *counting = self;
    atomic_fetch_add(&counting->waits, 1);
    return symmem_store_wait(counting->inner, key, timeout_ms);
}

static symmem_status counting_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                                  uint32_t timeout_ms) {
    struct counting_store *counting = self;
    atomic_fetch_add(&counting->adds, 1);
    return symmem_store_add(counting->inner, key, delta, value_p, timeout_ms);
}

static symmem_status counting_remove(void *self, const char *key, uint32_t timeout_ms) {
    struct counting_store *counting = self;
    atomic_fetch_add(&counting->removes, 1);
    return symmem_store_remove(counting->inner, key, timeout_ms);
}

static void counting_close(void *self) {
    struct counting_store *counting = self;
    atomic_fetch_add(&counting->closes, 1);
}

struct counting_store *counting_store_begin(symmem_store *inner) {
    static _Thread_local struct counting_store counting;
    counting = (struct counting_store){.inner = inner};
    return &counting;
}

const symmem_store_ops counting_store_ops = {
    .size = sizeof(symmem_store_ops),
    .set = counting_set,
    .get = counting_get,
    .wait = counting_wait,
    .add = counting_add,
    .remove = counting_remove,
    .close = counting_close,
};

int counting_store_writes(struct counting_store *counting) {
    return atomic_load(&counting->sets) + atomic_load(&counting->adds);
}

int counting_store_calls(struct counting_store *counting) {
    return counting_store_writes(counting) + atomic_load(&counting->gets) +
           atomic_load(&counting->waits) + atomic_load(&counting->removes);
}
