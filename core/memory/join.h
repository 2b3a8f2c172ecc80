/* SPDX-License-Identifier: BSD-3-Clause */
/* The start of an engine on all ranks. */
#ifndef SYMMEM_CORE_JOIN_H
#define SYMMEM_CORE_JOIN_H

#include "memory/mapping.h"

#define SM_JOIN_GROUP "symmem.join" /* the group of the call; destroyed when the call returns */

/* Joins a world of one rank if the backend needs that and has not joined. Otherwise does nothing.
 * The instance must be entered. */
symmem_status sm_join_alone(symmem_context *context);

#endif
