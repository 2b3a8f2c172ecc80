/* SPDX-License-Identifier: BSD-3-Clause */
/* A stream's copies from and to ordinary host memory. */
#ifndef SYMMEM_BACKEND_CUDA_STAGING_H
#define SYMMEM_BACKEND_CUDA_STAGING_H

#include "cuda_internal.h"

/* Returns a CUmemorytype, or 0 for memory that the driver does not know. */
unsigned int cuda_memory_type(const cuda_driver *driver, CUdeviceptr address);
bool cuda_is_ordinary(const cuda_driver *driver, CUdeviceptr address);
/*
 * Enqueues the copy. *staging_p: what it needs until it is over, also after a failure; NULL:
 * nothing. The context is current.
 */
CUresult cuda_copy_enqueue(cuda_instance *instance, CUstream native, bool capturing,
                           CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                           cuda_staging **staging_p);
void cuda_staging_give(cuda_staging *staging); /* NULL allowed */
/* From now on a failed copy does not access the ordinary memory. NULL allowed. */
void cuda_staging_give_up(cuda_staging *staging);
/* Enqueues a copy of up to CUDA_STAGED_BYTES to the device, without waiting. The caller may reuse
 * `bytes` at once. *staging_p as above. */
#define CUDA_STAGED_BYTES 32768
CUresult cuda_staging_send(cuda_instance *instance, CUstream native, CUdeviceptr dst,
                           const void *bytes, size_t count, cuda_staging **staging_p);
/* Another way than the driver's copy to move bytes between two addresses that the device sees. */
typedef struct cuda_mover {
    CUresult (*move)(const cuda_instance *instance, const struct cuda_mover *mover, CUdeviceptr dst,
                     CUdeviceptr src, size_t bytes, CUstream native);
} cuda_mover;
/* As cuda_copy_enqueue, by `mover`. At most one end is ordinary memory. Pieces are multiples of 16
 * bytes, except the last. */
CUresult cuda_move_enqueue(cuda_instance *instance, CUstream native, CUdeviceptr dst,
                           CUdeviceptr src, size_t bytes, const cuda_mover *mover,
                           cuda_staging **staging_p);

#endif
