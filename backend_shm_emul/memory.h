/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory entries of the table. */
#ifndef SYMMEM_BACKEND_SHM_MEMORY_H
#define SYMMEM_BACKEND_SHM_MEMORY_H

#include "shm.h"

symmem_status shm_memory_alloc(void *instance, int32_t device, size_t bytes, symmem_memory *memory);
void shm_memory_release(void *instance, symmem_memory *memory);
symmem_status shm_memory_share(void *instance, symmem_memory *memory, symmem_share *share);
void shm_memory_unshare(void *instance, symmem_share *share);
symmem_status shm_memory_map(void *instance, int32_t device, const symmem_share *share,
                             size_t bytes, symmem_memory *memory);

#endif
