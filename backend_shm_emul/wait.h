/* SPDX-License-Identifier: BSD-3-Clause */
/* Time. */
#ifndef SYMMEM_BACKEND_SHM_WAIT_H
#define SYMMEM_BACKEND_SHM_WAIT_H

#include "shm.h"
#include "signals.h"

/* Returns the host's replacement for CLOCK_MONOTONIC. NULL: none, or an older core. */
static inline const symmem_clock *shm_clock(const symmem_host *host) {
    return host->size >= offsetof(symmem_host, clock) + sizeof host->clock ? host->clock : NULL;
}
uint64_t shm_now_ns(const symmem_clock *clock);
/* Returns 0 (none) for 0. */
uint64_t shm_deadline_ns(const symmem_clock *clock, uint32_t timeout_ms);
int shm_cond_init(pthread_cond_t *cond);
/* Returns false once the deadline (0: none) has passed. */
bool shm_cond_wait(const symmem_clock *clock, pthread_cond_t *cond, pthread_mutex_t *lock,
                   uint64_t deadline_ns);
/* With the lock. The condition of the waiting threads may have become true. */
void shm_cond_wake(const symmem_clock *clock, pthread_cond_t *cond);

/* Waits. A failure's *fault_p is complete but not yet reported. */
symmem_status shm_wait_run(shm_wait *wait, symmem_fault *fault_p);
/* How often a wait checks whether its peers still live. */
uint64_t shm_wait_tick_ns(const symmem_peers *peers);
/* Returns OK while waiting makes sense. *failed_rank_p: the peer that is the reason, or -1. */
symmem_status shm_wait_check(const shm_wait *wait, int32_t *failed_rank_p);
/* Describes a failure of the whole operation that occurred while waiting for `awaited_rank` (-1:
 * before or between waits). Returns `status`. */
symmem_status shm_wait_fault(const shm_wait *wait, symmem_status status, int32_t failed_rank,
                             int32_t awaited_rank, symmem_fault *fault_p);
/* Returns whether a thread of the rank with that header has slept on that channel, below
 * SHM_WAKE_CHANNELS. */
bool shm_has_slept(const shm_signal_header *header, int32_t channel);
/* `word` has changed. Wakes threads of `rank` that sleep on it. */
void shm_wake(const symmem_peers *peers, int32_t rank, shm_word *word);

#endif
