/* SPDX-License-Identifier: BSD-3-Clause */
/* Release what they keep, at a device's end. The granule also goes if memory is short. The context
 * is current, unless it is broken. */
#ifndef SYMMEM_BACKEND_CUDA_IMPORTS_H
#define SYMMEM_BACKEND_CUDA_IMPORTS_H

#include "cuda_internal.h"

void cuda_imports_close(cuda_instance *instance, int32_t device);

#endif
