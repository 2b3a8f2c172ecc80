/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on bytes, and host functions. */
#ifndef SYMMEM_BACKEND_SHM_OPS_H
#define SYMMEM_BACKEND_SHM_OPS_H

#include "shm.h"

symmem_status shm_copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                       const symmem_exec *exec);
symmem_status shm_memset32(void *instance, int32_t device, void *dst, uint32_t value, size_t count,
                           const symmem_exec *exec);
symmem_status shm_write_value64(void *instance, int32_t device, void *dst, uint64_t value,
                                const symmem_exec *exec);
symmem_status shm_write_value32(void *instance, int32_t device, void *dst, uint32_t value,
                                const symmem_exec *exec);
symmem_status shm_host_fn(void *instance, void *stream, void (*fn)(void *arg), void *arg);

#endif
