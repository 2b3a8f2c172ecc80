/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA backend's signal operations, if all pointers they need exist. */
#ifndef SYMMEM_BACKEND_NCCL_SIGNAL_GUARD_H
#define SYMMEM_BACKEND_NCCL_SIGNAL_GUARD_H

#include "nccl_internal.h"

symmem_status nccl_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                           const symmem_exec *exec);
symmem_status nccl_put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, const symmem_exec *exec);
symmem_status nccl_wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                               int32_t channel, const symmem_exec *exec);
symmem_status nccl_wait_value(void *instance, const symmem_peers *peers,
                              const symmem_value_wait *wait, const symmem_exec *exec);
symmem_status nccl_signal_count(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, uint32_t count, const symmem_exec *exec);
symmem_status nccl_wait_counts(void *instance, const symmem_peers *peers, int32_t channel,
                               const symmem_window_wait *counts, int32_t count_count,
                               const symmem_exec *exec);

#endif
