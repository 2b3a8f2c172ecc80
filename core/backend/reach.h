/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals and barriers of a backend that reaches its peers by rank and offset. */
#ifndef SYMMEM_CORE_REACH_H
#define SYMMEM_CORE_REACH_H

#include "backend/context.h"

/* Puts the core's own entries in place of the group signal, which the table does not have. */
void sm_reach_signals(sm_backend *backend);
/* A number for each rank in this rank's signal state, for collectives on that channel. */
uint64_t *sm_reach_parts(const symmem_peers *peers, int32_t channel);
/* What an engine still has under way of this rank's: done at its places, or the failure. */
symmem_status sm_reach_quiet(symmem_context *context, const symmem_peers *peers,
                             const char *operation, uint64_t deadline_ns);

#endif
