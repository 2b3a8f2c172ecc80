/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for the duration of a product, aligned to 256 bytes. The context is current. */
#ifndef SYMMEM_BACKEND_CUDA_SCRATCH_H
#define SYMMEM_BACKEND_CUDA_SCRATCH_H

#include "cuda_internal.h"

CUresult cuda_scratch_take(cuda_instance *instance, int32_t device, size_t bytes, CUstream native,
                           CUdeviceptr *at_p);
void cuda_scratch_give(const cuda_instance *instance, CUdeviceptr at, CUstream native);
void cuda_scratch_close(cuda_instance *instance);

#endif
