/* SPDX-License-Identifier: BSD-3-Clause */
/* Local memory comes from the CUDA backend, because NCCL registers any allocation of the driver
 * that can be shared by descriptor. */
#ifndef SYMMEM_BACKEND_NCCL_MEMORY_H
#define SYMMEM_BACKEND_NCCL_MEMORY_H

#include "nccl_internal.h"

symmem_status nccl_memory_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory);
void nccl_memory_release(void *instance, symmem_memory *memory);
void nccl_allocation_leave(cuda_instance *instance, nccl_allocation *allocation);
/* Lists a new window of its allocation and communicator. nccl_window_free frees one that ended. */
void nccl_window_enlist(cuda_instance *instance, nccl_window *window);
void nccl_window_free(cuda_instance *instance, nccl_window *window);
/* Finds it from an address in a registered allocation, which has to exist meanwhile. */
nccl_coll_comm *nccl_coll_comm_find(cuda_instance *instance, const void *address);

#endif
