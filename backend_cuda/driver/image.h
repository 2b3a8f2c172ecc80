/* SPDX-License-Identifier: BSD-3-Clause */
/* The compiled kernels, as bytes of this library. */
#ifndef SYMMEM_BACKEND_CUDA_IMAGE_H
#define SYMMEM_BACKEND_CUDA_IMAGE_H

#include "cuda_internal.h"

const void *cuda_image(void);

#endif
