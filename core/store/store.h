/* SPDX-License-Identifier: BSD-3-Clause */
/* What the stores that come with the library share with store.c, and what the core does with any.
 */
#ifndef SYMMEM_CORE_STORE_H
#define SYMMEM_CORE_STORE_H

#include <string.h>

#include "base/base.h"

/* Removes what was set under the key, unless another has set something else there since. Never
 * fails a call, and leaves its record alone. */
void sm_store_take_back(symmem_store *store, const char *key, const void *value, size_t bytes,
                        uint32_t timeout_ms);

/* A store of our own, whose entries fill the error record themselves. Without a server a call that
 * is late only waits for a lock. */
symmem_status sm_store_wrap(const symmem_store_ops *ops, void *self, bool has_server,
                            symmem_store **store_p);

/* The limit of a call that only cleans up, or looks once more. It is shorter while the store does
 * not answer, because such calls come many at a time. */
uint32_t sm_store_brief_ms(const symmem_store *store);

/* The stage of records that say that the rank which serves the store has ended or does not answer,
 * which is rank 0 of the world. */
#define SM_STORE_SERVER_STAGE "store server"

/* The limit of one store entry as an absolute time, and the record of its expiry. */
static inline symmem_status sm_store_expired(const char *operation, const char *key) {
    return sm_fail(SYMMEM_TIMEOUT, operation, "", "deadline passed for key %.200s", key);
}

static inline uint64_t sm_store_hash(const char *key) {
    return sm_hash(key, strlen(key), SM_HASH_SEED);
}

#endif
