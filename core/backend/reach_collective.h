/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of ranks without pointers to each other, made of barriers, of copies by the group
 * reach, and of the backend's reduction of local memory. */
#ifndef SYMMEM_CORE_BACKEND_REACH_COLLECTIVE_H
#define SYMMEM_CORE_BACKEND_REACH_COLLECTIVE_H

#include "backend/reach.h"

/* The same in place of the group collective, for ranks without pointers to each other. Needs the
 * signals above, and the entry reach->reduce_local. */
void sm_reach_collectives(sm_backend *backend);

#endif
