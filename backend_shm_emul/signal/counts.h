/* SPDX-License-Identifier: BSD-3-Clause */
/* Counted signals. */
#ifndef SYMMEM_BACKEND_SHM_COUNTS_H
#define SYMMEM_BACKEND_SHM_COUNTS_H

#include "shm.h"

symmem_status shm_signal_count(void *instance, const symmem_peers *peers, int32_t dst_rank,
                               int32_t channel, uint32_t count, const symmem_exec *exec);
symmem_status shm_wait_counts(void *instance, const symmem_peers *peers, int32_t channel,
                              const symmem_window_wait *counts, int32_t count_count,
                              const symmem_exec *exec);

#endif
