/* SPDX-License-Identifier: BSD-3-Clause */
/* How much memory may be allocated. */
#ifndef SYMMEM_BACKEND_SHM_MEMORY_BUDGET_H
#define SYMMEM_BACKEND_SHM_MEMORY_BUDGET_H

#include "shm.h"
#include "cgroup.h"

#define SHM_MAX_PIECE ((uint64_t)4 << 20)
#define SHM_MIN_PIECE ((uint64_t)64 << 10)

/* Memory that is being allocated, in pieces. */
typedef struct shm_reservation {
    shm_instance *instance;
    shm_memory_left memory; /* as of the latest check */
    uint64_t granted;
    uint64_t until_ns;
    int lock_fd;
} shm_reservation;

void shm_reservation_begin(shm_reservation *reservation, shm_instance *instance, uint64_t bytes);
/* Returns how many of the remaining `bytes` may be allocated now, in one or more parts. 0: they are
 * not available; memory.left says how many are. */
uint64_t shm_reservation_grant(shm_reservation *reservation, uint64_t bytes);
void shm_reservation_took(shm_reservation *reservation, uint64_t bytes);
void shm_reservation_end(shm_reservation *reservation);

#endif
