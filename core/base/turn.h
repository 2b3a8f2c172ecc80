/* SPDX-License-Identifier: BSD-3-Clause */
/* A mutex that may be held while waiting for another rank, so locking it has a deadline. */
#ifndef SYMMEM_CORE_TURN_H
#define SYMMEM_CORE_TURN_H

#include "base/error.h"

typedef struct sm_turn {
    atomic_bool taken;
    atomic_int waiting; /* threads that sleep until it is given */
    pthread_mutex_t mutex;
    pthread_cond_t condition;
} sm_turn;
symmem_status sm_turn_init(sm_turn *turn);
void sm_turn_finish(sm_turn *turn);
/* Never waits, costs no system call. */
bool sm_turn_try(sm_turn *turn);
/* False when the deadline (0: none) passed first. No record. */
bool sm_turn_take(sm_turn *turn, uint64_t deadline_ns);
void sm_turn_give(sm_turn *turn);

#endif
