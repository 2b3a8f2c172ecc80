/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-alls whose splits lie in memory. */
#ifndef SYMMEM_BACKEND_CUDA_SPLITS_H
#define SYMMEM_BACKEND_CUDA_SPLITS_H

#include "cuda_internal.h"

symmem_status cuda_collective_splits(void *instance, const symmem_peers *peers, int32_t channel,
                                     const symmem_collective *call, const symmem_exec *exec);

#endif
