/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions that are called again with the same arguments. */
#ifndef SYMMEM_CORE_OPS_REPEAT_H
#define SYMMEM_CORE_OPS_REPEAT_H

#include "ops/reduce.h"

/* Runs the reduction if one with the same arguments has passed its checks on that channel. Returns
 * false, with nothing done, if none has, or if there is something to refuse: the call then makes
 * its checks, and is kept. */
bool sm_repeat_run(sm_reduction *reduction, symmem_status *status_p);
/* Keeps a reduction that has run. The tensors are those of sm_collective_run. */
void sm_repeat_keep(const sm_collective_op *op, const sm_tensor *in, const sm_tensor *out,
                    const symmem_call_id *id);

#endif
