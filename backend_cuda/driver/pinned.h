/* SPDX-License-Identifier: BSD-3-Clause */
/* Small blocks of pinned memory. */
#ifndef SYMMEM_BACKEND_CUDA_PINNED_H
#define SYMMEM_BACKEND_CUDA_PINNED_H

#include "cuda_internal.h"

/* Pinned memory exists between join and leave. Some device's context is current, here and below; at
 * leave, unless it is broken. */
CUresult cuda_pinned_join(const cuda_driver *driver);
void cuda_pinned_leave(const cuda_driver *driver);
/* Returns CUDA_SMALL_BLOCK_BYTES, zeroed. To be given back, or lost until all have left. */
CUresult cuda_small_block_take(const cuda_driver *driver, void **piece_p);
void cuda_small_block_give(void *piece);
/* Returns CUDA_LARGE_BLOCK_BYTES, with the same rules. */
CUresult cuda_large_block_take(const cuda_driver *driver, void **unit_p);
void cuda_large_block_give(void *unit);

#endif
