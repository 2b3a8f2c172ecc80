/* SPDX-License-Identifier: BSD-3-Clause */
/* Watches NCCL's collectives in flight. */
#ifndef SYMMEM_BACKEND_NCCL_COLL_WATCHER_H
#define SYMMEM_BACKEND_NCCL_COLL_WATCHER_H

#include "nccl_internal.h"

void nccl_watcher_stop(cuda_instance *instance);
/* Forgets what is in flight with that fault although its work is over, and gives up its
 * communicator. */
void nccl_inflight_forget(cuda_instance *instance, const symmem_cuda_fault *fault);

#endif
