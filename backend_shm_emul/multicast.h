/* SPDX-License-Identifier: BSD-3-Clause */
/* Emulated multicast. */
#ifndef SYMMEM_BACKEND_SHM_MULTICAST_H
#define SYMMEM_BACKEND_SHM_MULTICAST_H

#include "shm.h"

symmem_status shm_multicast_create(void *instance, int32_t device, int32_t world_size, size_t bytes,
                                   void **object_p, symmem_share *share);
symmem_status shm_multicast_attach(void *instance, int32_t device, const symmem_share *share,
                                   size_t bytes, void **multicast_p);
symmem_status shm_multicast_bind(void *instance, void *multicast, symmem_memory *own,
                                 const symmem_peers *peers, void **address_p);
void shm_multicast_release(void *instance, void *multicast_or_object);
symmem_status shm_multimem_store(void *instance, const symmem_peers *peers, void *address,
                                 const void *src, size_t bytes, const symmem_exec *exec);
symmem_status shm_multimem_ld_reduce(void *instance, const symmem_peers *peers, const void *address,
                                     void *dst, size_t count, symmem_dtype dtype,
                                     symmem_reduce_op op, const symmem_exec *exec);

#endif
