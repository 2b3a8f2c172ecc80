/* SPDX-License-Identifier: BSD-3-Clause */
/* The start of an engine on all ranks. */
#ifndef SYMMEM_CORE_JOIN_H
#define SYMMEM_CORE_JOIN_H

#include "memory/mapping.h"

#define SM_JOIN_GROUP "symmem.join" /* the group of the call; destroyed when the call returns */

/* Joins a world of one that needs it and has not; else OK. The instance is entered. */
symmem_status sm_join_alone(symmem_context *context);

#endif
