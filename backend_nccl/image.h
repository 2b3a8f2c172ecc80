/* SPDX-License-Identifier: BSD-3-Clause */
/* The compiled kernel, as bytes of this library. */
#ifndef SYMMEM_BACKEND_NCCL_IMAGE_H
#define SYMMEM_BACKEND_NCCL_IMAGE_H

#include "nccl_internal.h"

/* The compiled resolve.cu. NULL: built without. */
const void *nccl_image(void);

#endif
