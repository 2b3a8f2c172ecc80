/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * After a timeout, a lost peer or a poison the same context has to run other kernels and other
 * collectives: SM-TIMEOUT-14. A case that has seen such a failure ends with one of these calls.
 * What they make is given back before they return.
 */
#ifndef SYMMEM_CONFORMANCE_WORK_AFTER_H
#define SYMMEM_CONFORMANCE_WORK_AFTER_H

#include "kit.h"

/* All ranks of the case, in t->context. `stream`: one that has told of a failure, and that must
 * work, too, beside a new one; or NULL. Collective. */
void work_after(struct tk *t, symmem_stream *stream);

/* The same for those that are left when the ranks from `first` on have died, `count` of them.
 * context NULL: t->context. Collective among the survivors. */
void work_after_loss(struct tk *t, symmem_context *context, int32_t first, int32_t count,
                     symmem_stream *stream);

/* The same on a group that is there already. Collective in the group. */
void work_after_on(struct tk *t, symmem_context *context, symmem_group *group,
                   symmem_stream *stream);

#endif
