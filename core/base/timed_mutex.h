/* SPDX-License-Identifier: BSD-3-Clause */
/* A mutex that may be held while waiting for another rank, so locking it has a deadline. */
#ifndef SYMMEM_CORE_TIMED_MUTEX_H
#define SYMMEM_CORE_TIMED_MUTEX_H

#include "base/error.h"

typedef struct sm_timed_mutex {
    atomic_bool taken;
    atomic_int waiting; /* threads that sleep until it is unlocked */
    pthread_mutex_t mutex;
    pthread_cond_t condition;
} sm_timed_mutex;
symmem_status sm_timed_mutex_init(sm_timed_mutex *lock);
void sm_timed_mutex_finish(sm_timed_mutex *lock);
/* Never waits, costs no system call. */
static inline bool sm_timed_mutex_try_lock(sm_timed_mutex *lock) {
    bool taken = false;
    /* acquire; pairs with: sm_timed_mutex_unlock */
    return atomic_compare_exchange_strong_explicit(&lock->taken, &taken, true, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}
/* False when the deadline (0: none) passed first. No record. */
bool sm_timed_mutex_lock(sm_timed_mutex *lock, uint64_t deadline_ns);
/* A thread sleeps until the lock is free, or it may. */
void sm_timed_mutex_wake(sm_timed_mutex *lock);
static inline void sm_timed_mutex_unlock(sm_timed_mutex *lock) {
    /* release; pairs with: sm_timed_mutex_try_lock. seq_cst for the sleepers' sake. */
    atomic_store_explicit(&lock->taken, false, memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&lock->waiting, memory_order_seq_cst) != 0, false))
        sm_timed_mutex_wake(lock);
}

#endif
