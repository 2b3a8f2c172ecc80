/* SPDX-License-Identifier: BSD-3-Clause */
/* What a child of fork may not touch. bootstrap/fork.c knows of all that is forgotten. */
#ifndef SYMMEM_CORE_FORK_H
#define SYMMEM_CORE_FORK_H

#include "base/base.h"

/* Of this process, for an object that is made. Sees to it that a fork is noticed. */
uint32_t sm_fork_generation(void);
/* Whether an object of that generation was made by the parent of this process, or by its parent. */
bool sm_fork_is_parents(uint32_t made_in);
/* NOT_INITIALIZED, with a record. */
symmem_status sm_fork_refuse(const char *operation);

#endif
