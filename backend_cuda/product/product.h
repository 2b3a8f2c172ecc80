/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products: the user's entry, by cuBLASLt or by a portable kernel. */
#ifndef SYMMEM_BACKEND_CUDA_PRODUCT_H
#define SYMMEM_BACKEND_CUDA_PRODUCT_H

#include "cuda_internal.h"

symmem_status cuda_matmul(void *instance, int32_t device, const symmem_matmul *product,
                          const symmem_exec *exec);

#endif
