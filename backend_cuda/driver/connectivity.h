/* SPDX-License-Identifier: BSD-3-Clause */
/* Links between the devices of this process. */
#ifndef SYMMEM_BACKEND_CUDA_CONNECTIVITY_H
#define SYMMEM_BACKEND_CUDA_CONNECTIVITY_H

#include "cuda_internal.h"

symmem_status cuda_connectivity(void *instance, const char *connection, int32_t device_count,
                                int32_t *matrix);

#endif
