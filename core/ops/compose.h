/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations composed of a backend's barriers and copies. */
#ifndef SYMMEM_CORE_OPS_COMPOSE_H
#define SYMMEM_CORE_OPS_COMPOSE_H

#include "ops/collective.h"

void sm_parts_begin(sm_parts *parts, const sm_channel_op *op, const symmem_exec *exec,
                    bool capturing);
/* The first one compares the ranks' calls. */
symmem_status sm_parts_barrier(sm_parts *parts);
symmem_status sm_parts_copy(sm_parts *parts, void *dst, const void *src, size_t bytes);
/* A piece of all ranks' buffers. */
symmem_status sm_parts_reduce(sm_parts *parts, const symmem_tile_reduction *tile);
/* To a multicast address. */
symmem_status sm_parts_store(sm_parts *parts, void *address, const void *src, size_t bytes);

#endif
