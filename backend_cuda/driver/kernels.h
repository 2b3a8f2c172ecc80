/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of a device, loaded once for all instances of the process. */
#ifndef SYMMEM_BACKEND_CUDA_KERNELS_H
#define SYMMEM_BACKEND_CUDA_KERNELS_H

#include "cuda_internal.h"

/* Returns the device's kernels, in its context, which is current. They stay valid until they are
 * given back. */
CUresult cuda_kernels_take(const cuda_driver *driver, int32_t device, int32_t rank,
                           CUcontext context, unsigned long long context_id,
                           cuda_kernels *kernels_p);
/* Also without a context, if that is broken. */
void cuda_kernels_give(const cuda_driver *driver, int32_t device, int32_t rank);
/* Returns whether several ranks of this process use the device, and so its context. */
bool cuda_kernels_are_shared(int32_t device);

#endif
