/* SPDX-License-Identifier: BSD-3-Clause */
/* A mutex that may be held while waiting for another rank, so locking it has a deadline. */
#include "base/base.h"

symmem_status sm_timed_mutex_init(sm_timed_mutex *lock) {
    int error = sm_cond_init(&lock->condition);
    if (error)
        goto fail;
    error = pthread_mutex_init(&lock->mutex, NULL);
    if (error) {
        (void)pthread_cond_destroy(&lock->condition);
        goto fail;
    }
    atomic_init(&lock->taken, false);
    atomic_init(&lock->waiting, 0);
    return SYMMEM_OK;
fail:
    return sm_fail_errno(error, "lock", "", "cannot make a lock");
}

void sm_timed_mutex_finish(sm_timed_mutex *lock) {
    (void)pthread_mutex_destroy(&lock->mutex);
    (void)pthread_cond_destroy(&lock->condition);
}

bool sm_timed_mutex_lock(sm_timed_mutex *lock, uint64_t deadline_ns) {
    if (sm_timed_mutex_try_lock(lock))
        return true;
    bool expired = false, got = false;
    (void)pthread_mutex_lock(&lock->mutex);
    /* seq_cst; pairs with: sm_timed_mutex_unlock, which unlocks first and then looks for sleepers.
     * One of the two sees the other, and between this and the sleep the unlocking thread does not
     * get the mutex. */
    (void)atomic_fetch_add_explicit(&lock->waiting, 1, memory_order_seq_cst);
    while (!(got = sm_timed_mutex_try_lock(lock)) && !expired)
        expired = !sm_cond_wait(&lock->condition, &lock->mutex, deadline_ns);
    (void)atomic_fetch_sub_explicit(&lock->waiting, 1, memory_order_relaxed);
    (void)pthread_mutex_unlock(&lock->mutex);
    return got;
}

void sm_timed_mutex_wake(sm_timed_mutex *lock) {
    (void)pthread_mutex_lock(&lock->mutex);
    (void)pthread_cond_signal(&lock->condition);
    sm_clock_changed();
    (void)pthread_mutex_unlock(&lock->mutex);
}
