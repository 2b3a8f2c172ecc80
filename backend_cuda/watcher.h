/* SPDX-License-Identifier: BSD-3-Clause */
/* The instance's thread. */
#ifndef SYMMEM_BACKEND_CUDA_WATCHER_H
#define SYMMEM_BACKEND_CUDA_WATCHER_H

#include "cuda_internal.h"

symmem_status cuda_watcher_start(cuda_instance *instance);
/* Without work. `leave`: work is left, and after it the watcher ends the instance. */
void cuda_watcher_stop(cuda_instance *instance);
void cuda_watcher_leave(cuda_instance *instance);

#endif
