/* SPDX-License-Identifier: BSD-3-Clause */
/* The exchange over the host that a group offers to users and to backends. */
#ifndef SYMMEM_CORE_MEMORY_GROUP_CALLS_H
#define SYMMEM_CORE_MEMORY_GROUP_CALLS_H

#include "memory/group.h"

/* Answers OUT_OF_RANGE for a rank outside the group. */
symmem_status sm_group_rank_check(const symmem_group *group, int32_t rank, const char *operation);
/* Fills *exchange for a backend's collective entry; valid while the group is entered. */
void sm_group_exchange(symmem_group *group, uint64_t deadline_ns, symmem_exchange *exchange);

#endif
