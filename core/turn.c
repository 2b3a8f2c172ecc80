/* SPDX-License-Identifier: BSD-3-Clause */
/* A turn: a lock that may be held while waiting for another rank, so taking it has a deadline. */
#include "objects.h"

#include <errno.h>
#include <time.h>

symmem_status sm_turn_init(sm_turn *turn) {
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error)
        goto fail;
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!error)
        error = pthread_cond_init(&turn->condition, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (error)
        goto fail;
    error = pthread_mutex_init(&turn->mutex, NULL);
    if (error) {
        (void)pthread_cond_destroy(&turn->condition);
        goto fail;
    }
    turn->taken = false;
    return SYMMEM_OK;
fail:
    return sm_fail_errno(error, "turn", "", "cannot make a lock");
}

void sm_turn_finish(sm_turn *turn) {
    (void)pthread_mutex_destroy(&turn->mutex);
    (void)pthread_cond_destroy(&turn->condition);
}

bool sm_turn_take(sm_turn *turn, uint64_t deadline_ns) {
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                             .tv_nsec = (long)(deadline_ns % 1000000000u)};
    bool expired = false;
    (void)pthread_mutex_lock(&turn->mutex);
    while (turn->taken && !expired) {
        if (deadline_ns == 0)
            (void)pthread_cond_wait(&turn->condition, &turn->mutex);
        else
            expired = pthread_cond_timedwait(&turn->condition, &turn->mutex, &until) == ETIMEDOUT;
    }
    bool got = !turn->taken;
    if (got)
        turn->taken = true;
    (void)pthread_mutex_unlock(&turn->mutex);
    return got;
}

bool sm_turn_try(sm_turn *turn) {
    (void)pthread_mutex_lock(&turn->mutex);
    bool got = !turn->taken;
    turn->taken = true;
    (void)pthread_mutex_unlock(&turn->mutex);
    return got;
}

void sm_turn_give(sm_turn *turn) {
    (void)pthread_mutex_lock(&turn->mutex);
    turn->taken = false;
    (void)pthread_cond_signal(&turn->condition);
    (void)pthread_mutex_unlock(&turn->mutex);
}
