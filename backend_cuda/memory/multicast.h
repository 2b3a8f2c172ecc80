/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast. It exists only in builds with the option SYMMEM_CUDA_MULTICAST, and is used only if
 * the environment asks for it and nothing there forbids it. It has never run on hardware, see
 * README.md.
 */
#ifndef SYMMEM_CUDA_MULTICAST_H
#define SYMMEM_CUDA_MULTICAST_H

#include "cuda_internal.h"

#ifdef SYMMEM_CUDA_MULTICAST

/* Returns whether SYMMEM_MULTICAST is 1, TORCH_SYMM_MEM_DISABLE_MULTICAST is unset, empty or 0, and
 * NCCL_NVLS_ENABLE is unset or a number other than 0. Read anew at each use. */
bool cuda_multicast_wanted(void);
/* For the device's info: wanted, and supported by the device. */
int32_t cuda_multicast_now(const cuda_instance *instance, CUdevice device);
/* At the end of an instance, whose devices are still open. */
void cuda_multicast_close(cuda_instance *instance);

symmem_status cuda_multicast_create(void *instance, int32_t device, int32_t world_size,
                                    size_t bytes, void **object_p, symmem_share *share);
symmem_status cuda_multicast_attach(void *instance, int32_t device, const symmem_share *share,
                                    size_t bytes, void **multicast_p);
symmem_status cuda_multicast_bind(void *instance, void *multicast, symmem_memory *own,
                                  const symmem_peers *peers, void **address_p);
void cuda_multicast_release(void *instance, void *multicast_or_object);

/* The kernels of a device that is attached to an object. */
typedef struct cuda_multimem_kernels {
    CUfunction store, reduce; /* NULL: not loaded */
} cuda_multimem_kernels;
const cuda_multimem_kernels *cuda_multimem_kernels_of(const cuda_instance *instance,
                                                      int32_t device);
/* Finds the offset in every rank's buffer that `address` stands for. Returns false if no bound
 * object contains all the bytes. */
bool cuda_multicast_offset(cuda_instance *instance, const void *address, size_t bytes,
                           size_t *offset_p);
/* Their code, multicast_image.c. NULL if there was no nvcc. */
const void *cuda_multicast_image(void);

/* multimem.c: operations */
symmem_status cuda_multimem_store(void *instance, const symmem_peers *peers, void *address,
                                  const void *src, size_t bytes, const symmem_exec *exec);
symmem_status cuda_multimem_ld_reduce(void *instance, const symmem_peers *peers,
                                      const void *address, void *dst, size_t count,
                                      symmem_dtype dtype, symmem_reduce_op op,
                                      const symmem_exec *exec);
bool cuda_is_multimem(symmem_call_kind kind);
symmem_status cuda_multimem_collective(cuda_instance *instance, const symmem_peers *peers,
                                       int32_t channel, const symmem_collective *call,
                                       const symmem_exec *exec);

#define CUDA_MULTICAST_DESCRIPTION                                                                 \
    "; multicast is compiled in, has never run on hardware, and needs SYMMEM_MULTICAST=1"

#else

#define CUDA_MULTICAST_DESCRIPTION "; built without multicast"

#endif
#endif
