/* SPDX-License-Identifier: BSD-3-Clause */
/* The start of an engine on all ranks. */
#ifndef SYMMEM_CORE_JOIN_H
#define SYMMEM_CORE_JOIN_H

#include "memory/mapping.h"

#define SM_JOIN_GROUP "symmem.join" /* the group of the call; destroyed when the call returns */

/* Joins a world of one rank if the backend needs that and has not joined. Otherwise does nothing.
 * No other rank is waited for, and for the device limit_ms, which is not 0. The instance must be
 * entered. */
symmem_status sm_join_alone(symmem_context *context, uint32_t limit_ms);

#endif
