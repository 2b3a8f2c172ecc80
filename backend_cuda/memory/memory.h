/* SPDX-License-Identifier: BSD-3-Clause */
/* The core's memory entries: allocate, export, import. */
#ifndef SYMMEM_BACKEND_CUDA_MEMORY_H
#define SYMMEM_BACKEND_CUDA_MEMORY_H

#include "cuda_internal.h"

symmem_status cuda_memory_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory);
void cuda_memory_release(void *instance, symmem_memory *memory);
/* For local memory: the size that the driver gave it. */
size_t cuda_memory_mapped_bytes(const symmem_memory *memory);
CUmemGenericAllocationHandle cuda_memory_handle(const symmem_memory *memory);
symmem_status cuda_memory_share(void *instance, symmem_memory *memory, symmem_share *share);
void cuda_memory_unshare(void *instance, symmem_share *share);
symmem_status cuda_memory_map(void *instance, int32_t device, const symmem_share *share,
                              size_t bytes, symmem_memory *memory);

#endif
