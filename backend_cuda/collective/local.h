/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies and reductions within a device. */
#ifndef SYMMEM_BACKEND_CUDA_LOCAL_H
#define SYMMEM_BACKEND_CUDA_LOCAL_H

#include "cuda_internal.h"

symmem_status cuda_copy_strided(void *instance, int32_t device, const symmem_strided_copy *copy,
                                const symmem_exec *exec);
symmem_status cuda_reduce_local(void *instance, int32_t device, const symmem_local_reduce *reduce,
                                const symmem_exec *exec);

#endif
