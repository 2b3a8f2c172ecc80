/* SPDX-License-Identifier: BSD-3-Clause */
/* A mutex that may be held while waiting for another rank, so locking it has a deadline. */
#include "base/base.h"

symmem_status sm_turn_init(sm_turn *turn) {
    int error = sm_cond_init(&turn->condition);
    if (error)
        goto fail;
    error = pthread_mutex_init(&turn->mutex, NULL);
    if (error) {
        (void)pthread_cond_destroy(&turn->condition);
        goto fail;
    }
    atomic_init(&turn->taken, false);
    atomic_init(&turn->waiting, 0);
    return SYMMEM_OK;
fail:
    return sm_fail_errno(error, "turn", "", "cannot make a lock");
}

void sm_turn_finish(sm_turn *turn) {
    (void)pthread_mutex_destroy(&turn->mutex);
    (void)pthread_cond_destroy(&turn->condition);
}

bool sm_turn_try(sm_turn *turn) {
    bool taken = false;
    /* acquire; pairs with: sm_turn_give */
    return atomic_compare_exchange_strong_explicit(&turn->taken, &taken, true, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

bool sm_turn_take(sm_turn *turn, uint64_t deadline_ns) {
    if (sm_turn_try(turn))
        return true;
    bool expired = false, got = false;
    (void)pthread_mutex_lock(&turn->mutex);
    /* seq_cst; pairs with: sm_turn_give, which gives first and then looks for sleepers. One of the
     * two sees the other, and between this and the sleep the giver does not get the mutex. */
    (void)atomic_fetch_add_explicit(&turn->waiting, 1, memory_order_seq_cst);
    while (!(got = sm_turn_try(turn)) && !expired)
        expired = !sm_cond_wait(&turn->condition, &turn->mutex, deadline_ns);
    (void)atomic_fetch_sub_explicit(&turn->waiting, 1, memory_order_relaxed);
    (void)pthread_mutex_unlock(&turn->mutex);
    return got;
}

void sm_turn_give(sm_turn *turn) {
    /* release; pairs with: sm_turn_try. seq_cst for the sleepers' sake. */
    atomic_store_explicit(&turn->taken, false, memory_order_seq_cst);
    if (atomic_load_explicit(&turn->waiting, memory_order_seq_cst) == 0)
        return;
    (void)pthread_mutex_lock(&turn->mutex);
    (void)pthread_cond_signal(&turn->condition);
    sm_clock_changed();
    (void)pthread_mutex_unlock(&turn->mutex);
}
