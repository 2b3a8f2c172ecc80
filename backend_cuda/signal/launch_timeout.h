/* SPDX-License-Identifier: BSD-3-Clause */
/* A call without a stream has a deadline, and so have its kernels. */
#ifndef SYMMEM_BACKEND_CUDA_LAUNCH_TIMEOUT_H
#define SYMMEM_BACKEND_CUDA_LAUNCH_TIMEOUT_H

#include "cuda_internal.h"
#include "signal/signal.h"

/* Reads how long to wait for the device beyond a call's deadline. */
symmem_status cuda_launch_timeout_open(cuda_instance *instance);
/*
 * Waits until the kernels of a call without a stream are over, then gives the private stream back.
 * NOT_READY: the device was late. Then the call was abandoned and has failed, with *status_p, and
 * the caller does not own the fault and the private stream any more. The context is current.
 */
CUresult cuda_launch_wait(cuda_instance *instance, int32_t device, cuda_launch *launch,
                          const symmem_exec *exec, cuda_private_stream *private_stream,
                          symmem_status *status_p);
/* Returns whether the device has yet to begin or to end kernels on `peers`, of a call that was
 * abandoned, or that failed in the middle, as a graph's launch without an event has. */
bool cuda_has_pending(cuda_instance *instance, const symmem_peers *peers);

#endif
