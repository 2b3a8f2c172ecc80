/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for values, and counted signals, by one small kernel each. */
#ifndef SYMMEM_BACKEND_CUDA_WINDOW_H
#define SYMMEM_BACKEND_CUDA_WINDOW_H

#include "cuda_internal.h"

symmem_status cuda_wait_value(void *instance, const symmem_peers *peers,
                              const symmem_value_wait *wait, const symmem_exec *exec);
symmem_status cuda_signal_count(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, uint32_t count, const symmem_exec *exec);
symmem_status cuda_wait_counts(void *instance, const symmem_peers *peers, int32_t channel,
                               const symmem_window_wait *counts, int32_t count_count,
                               const symmem_exec *exec);

#endif
