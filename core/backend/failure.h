/* SPDX-License-Identifier: BSD-3-Clause */
/* What a context's rank lacked, which its peers are told as the cause. */
#ifndef SYMMEM_CORE_FAILURE_H
#define SYMMEM_CORE_FAILURE_H

#include "backend/context.h"

/* For sm_call_is_in: keeps what this rank lacks. */
extern const sm_failure_ops sm_context_failure_ops;
/* Forgets what this rank lacked: it has gone on with other ranks, or `ends`. */
void sm_context_forget_lack(symmem_context *context, bool ends);
/* The failure that is told to the peers when this rank ends its part in a group or in the world:
 * the thread's last one in this context, or the rank's lack if that one is no cause. False: none.
 * *differs_p: for that lack the rank made another call than the others. */
bool sm_context_last_failure(symmem_context *context, symmem_error_record *record, bool *differs_p);

#endif
