/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the tests of sessions: a memory store that counts calls and can be told to fail, and an
 * exchange that checks what has come. */
#ifndef SYMMEM_SESSION_STORE_H
#define SYMMEM_SESSION_STORE_H

#include "session_ranks.h"

typedef struct counting {
    symmem_store *inner;
    atomic_long sets, gets, waits, adds, removes;
    _Atomic(int64_t) live; /* keys set or counted and not removed, roughly */
} counting;

/* The number of this thread's next calls that fail, whatever other ranks call meanwhile. */
static _Thread_local int fail_sets;

static inline symmem_status c_set(void *s, const char *k, const void *v, size_t n, uint32_t t) {
    counting *c = s;
    atomic_fetch_add(&c->sets, 1);
    if (fail_sets > 0 && fail_sets--)
        return SYMMEM_SYSTEM;
    return symmem_store_set(c->inner, k, v, n, t);
}
static inline symmem_status c_get(void *s, const char *k, void *v, size_t n, size_t *b,
                                  uint32_t t) {
    atomic_fetch_add(&((counting *)s)->gets, 1);
    return symmem_store_get(((counting *)s)->inner, k, v, n, b, t);
}
static inline symmem_status c_wait(void *s, const char *k, uint32_t t) {
    atomic_fetch_add(&((counting *)s)->waits, 1);
    return symmem_store_wait(((counting *)s)->inner, k, t);
}
static inline symmem_status c_add(void *s, const char *k, int64_t d, int64_t *v, uint32_t t) {
    counting *c = s;
    atomic_fetch_add(&c->adds, 1);
    return symmem_store_add(c->inner, k, d, v, t);
}
static inline symmem_status c_remove(void *s, const char *k, uint32_t t) {
    atomic_fetch_add(&((counting *)s)->removes, 1);
    return symmem_store_remove(((counting *)s)->inner, k, t);
}
static inline void c_close(void *s) {
    symmem_store_close(((counting *)s)->inner);
}
static const symmem_store_ops counting_ops = {
    sizeof(counting_ops), c_set, c_get, c_wait, c_add, c_remove, c_close};

static inline symmem_store *counting_store(counting *c) {
    symmem_store *store = NULL;
    memset(c, 0, sizeof(*c));
    if (symmem_store_open_memory(&c->inner) != SYMMEM_OK ||
        symmem_store_open_custom(&counting_ops, c, &store) != SYMMEM_OK)
        abort();
    return store;
}

static inline symmem_status gather(test_rank *self, const char *operation, bool restart,
                                   uint32_t timeout_ms) {
    uint64_t in = 1000u + (uint64_t)self->rank, out[RANKS_MAX];
    symmem_status status = sm_session_all_gather(self->session, operation, "step", &in, sizeof(in),
                                                 out, restart, sm_deadline_ns(timeout_ms));
    for (int32_t i = 0; status == SYMMEM_OK && i < self->world_size; i++)
        if (out[i] != 1000u + (uint64_t)i)
            return SYMMEM_CORRUPT;
    return status;
}

static inline int keys_of(symmem_store *store, int32_t count) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    int found = 0;
    for (int32_t i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "g/test/j/%d", i);
        size_t bytes;
        char value[1024];
        found += symmem_store_get(store, key, value, sizeof(value), &bytes, 0) == SYMMEM_OK;
    }
    return found;
}

static inline int reopen_with(test_rank *self, symmem_point_fn point) {
    sm_session_config config = {.store = self->store,
                                .prefix = "g/test",
                                .world_prefix = "w",
                                .group_name = "test",
                                .rank = self->rank,
                                .world_size = self->world_size,
                                .global_ranks = self->global_ranks,
                                .liveness = self->liveness,
                                .identity = &self->identity,
                                .point = point,
                                .point_arg = self};
    sm_session_destroy(self->session);
    self->session = NULL;
    EXPECT(sm_session_create(&config, &self->session) == SYMMEM_OK);
    return 0;
}

#endif
