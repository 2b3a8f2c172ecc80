/* SPDX-License-Identifier: BSD-3-Clause */
/* What a child of fork may not touch. bootstrap/fork.c knows of all that is forgotten. */
#ifndef SYMMEM_CORE_FORK_H
#define SYMMEM_CORE_FORK_H

#include "base/base.h"

/* Of this process, for an object that is made. Sees to it that a fork is noticed. */
uint32_t sm_fork_generation(void);
/* Whether an object of that generation was made by the parent of this process, or by its parent. */
bool sm_fork_is_parents(uint32_t made_in);
/* NOT_INITIALIZED, with a record. */
symmem_status sm_fork_refuse(const char *operation);

/* The lock of an object that a child may go on using. The parent's threads hold none of these locks
 * at a fork, and the child never waits for the condition. Hold it only for short. Take no other
 * lock of this kind, and no lock of the sockets or the lives, while it is held. */
typedef struct sm_fork_lock {
    struct sm_fork_lock *next, *before;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* where `waits`; see sm_cond_init */
    bool waits;
} sm_fork_lock;
/* 0, or an errno value: there is no such condition then. */
int sm_fork_lock_open(sm_fork_lock *lock, bool waits);
void sm_fork_lock_close(sm_fork_lock *lock);

#endif
