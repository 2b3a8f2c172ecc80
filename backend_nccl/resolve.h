/* SPDX-License-Identifier: BSD-3-Clause */
/* From a window to pointers: by the host's query if NCCL has one, or by a small kernel. */
#ifndef SYMMEM_BACKEND_NCCL_RESOLVE_H
#define SYMMEM_BACKEND_NCCL_RESOLVE_H

#include "nccl_internal.h"

/* pointers[0..world_size): each rank's part of the window, NULL if it cannot be reached. Local,
 * within the exchange's deadline. */
symmem_status nccl_resolve(cuda_instance *instance, const nccl_window *window,
                           const symmem_exchange *exchange, void **pointers);
void nccl_modules_release(cuda_instance *instance);

#endif
