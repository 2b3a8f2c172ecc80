/* SPDX-License-Identifier: BSD-3-Clause */
/* Signal operations of backends whose peers may have no pointers: UNREACHABLE then. */
#ifndef SYMMEM_BACKEND_CUDA_GUARD_H
#define SYMMEM_BACKEND_CUDA_GUARD_H

#include "cuda_internal.h"

/* The whole group, with these entries. */
extern const symmem_signal_ops cuda_guarded_signal_ops;

symmem_status cuda_guarded_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                                   const symmem_exec *exec);
symmem_status cuda_guarded_put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                      int32_t channel, const symmem_exec *exec);
symmem_status cuda_guarded_wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                                       int32_t channel, const symmem_exec *exec);
symmem_status cuda_guarded_wait_value(void *instance, const symmem_peers *peers,
                                      const symmem_value_wait *wait, const symmem_exec *exec);
symmem_status cuda_guarded_signal_count(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                        int32_t channel, uint32_t count, const symmem_exec *exec);
symmem_status cuda_guarded_wait_counts(void *instance, const symmem_peers *peers, int32_t channel,
                                       const symmem_window_wait *counts, int32_t count_count,
                                       const symmem_exec *exec);

#endif
