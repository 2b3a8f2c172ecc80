/* SPDX-License-Identifier: BSD-3-Clause */
/* The peers' tables on the device, and how their state is poisoned and reset. */
#ifndef SYMMEM_BACKEND_CUDA_PEERS_H
#define SYMMEM_BACKEND_CUDA_PEERS_H

#include "cuda_internal.h"

symmem_status cuda_peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                              void **pads_dev_p);
void cuda_peers_close(void *instance, symmem_peers *peers);
symmem_status cuda_signal_reset(void *instance, const symmem_peers *peers);
void cuda_signal_poison(void *instance, const symmem_peers *peers);
/* Poisons, and stops the channel's calls without a stream until a reset. The context is current,
 * here and below. */
CUresult cuda_channel_stop(cuda_instance *instance, const symmem_peers *peers, int32_t channel);
/* Reads the device's state of the channel, after everything that was stopped. */
CUresult cuda_channel_read(cuda_instance *instance, const symmem_peers *peers, int32_t channel,
                           symmem_cuda_state *state_p);
void cuda_signal_check(void *instance, const symmem_peers *peers);

#endif
