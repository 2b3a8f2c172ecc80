/* SPDX-License-Identifier: BSD-3-Clause */
/* What the operations through multicast share. */
#ifndef SYMMEM_CORE_MULTIMEM_H
#define SYMMEM_CORE_MULTIMEM_H

#include "ops/collective.h"

/* As sm_collective_begin; UNSUPPORTED without a multicast address. */
symmem_status sm_multimem_begin(sm_collective_op *op, const char *name, symmem_handle *handle,
                                symmem_call_kind kind, int32_t channel, uint32_t timeout_ms,
                                const symmem_stream *stream);
/* As sm_collective_symmetric, for the call's own argument. */
symmem_status sm_multimem_symmetric(sm_collective_op *op, const sm_tensor *tensor);
/* The rest of the one-shot forms. `writes`: this rank has an out. */
symmem_status sm_multimem_one_shot(sm_collective_op *call, const DLTensor *input,
                                   symmem_reduce_op op, const DLTensor *out, bool writes);

#endif
