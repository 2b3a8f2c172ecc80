/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives: their steps, as kernels on a stream. */
#ifndef SYMMEM_BACKEND_CUDA_COLLECTIVE_H
#define SYMMEM_BACKEND_CUDA_COLLECTIVE_H

#include "cuda_internal.h"

/* Returns the bytes of an element. The core's call is not used: a plug-in needs nothing of the
 * core's library. */
size_t cuda_element_bytes(symmem_dtype dtype);

symmem_status cuda_collective(void *instance, const symmem_peers *peers, int32_t channel,
                              const symmem_collective *call, const symmem_exec *exec);

#endif
