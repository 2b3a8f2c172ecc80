/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on bytes: copy, fill, and one word after a fence. */
#ifndef SYMMEM_BACKEND_CUDA_COPY_H
#define SYMMEM_BACKEND_CUDA_COPY_H

#include "cuda_internal.h"

symmem_status cuda_copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                        const symmem_exec *exec);
/* For a copy on a stream whose enqueueing failed. Frees or keeps what was made for it. */
void cuda_copy_end_failed(cuda_instance *instance, cuda_pending *pending, const symmem_exec *exec,
                          const cuda_needs *needs, const char *operation);
symmem_status cuda_memset32(void *instance, int32_t device, void *dst, uint32_t value, size_t count,
                            const symmem_exec *exec);
symmem_status cuda_write_value64(void *instance, int32_t device, void *dst, uint64_t value,
                                 const symmem_exec *exec);
symmem_status cuda_write_value32(void *instance, int32_t device, void *dst, uint32_t value,
                                 const symmem_exec *exec);

#endif
