/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products, strided copies and local reductions as operations of a stream. */
#ifndef SYMMEM_BACKEND_SHM_MATMUL_H
#define SYMMEM_BACKEND_SHM_MATMUL_H

#include "shm.h"

symmem_status shm_matmul(void *instance, int32_t device, const symmem_matmul *product,
                         const symmem_exec *exec);
symmem_status shm_copy_strided(void *instance, int32_t device, const symmem_strided_copy *copy,
                               const symmem_exec *exec);
symmem_status shm_reduce_local(void *instance, int32_t device, const symmem_local_reduce *reduce,
                               const symmem_exec *exec);

#endif
