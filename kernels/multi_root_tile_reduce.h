/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of multi_root_tile_reduce is that of tile_reduce. */
#ifndef SYMMEM_KERNELS_MULTI_ROOT_TILE_REDUCE_H
#define SYMMEM_KERNELS_MULTI_ROOT_TILE_REDUCE_H

#include "tile_reduce.h"

#endif
