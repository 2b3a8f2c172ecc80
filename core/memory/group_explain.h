/* SPDX-License-Identifier: BSD-3-Clause */
/* Appends to a record that names a rank what that rank has reported as its failure. */
#ifndef SYMMEM_CORE_MEMORY_GROUP_EXPLAIN_H
#define SYMMEM_CORE_MEMORY_GROUP_EXPLAIN_H

#include "memory/group.h"

/* Adds to the thread's record, if it is about a group, the failures that the ranks named there
 * reported, in that group or in another one. */
void sm_group_explain(symmem_context *context);
/* Tells the group's ranks of this rank's failure that poisoned a handle. */
void sm_group_remark(symmem_group *group, const symmem_error_record *record);

#endif
