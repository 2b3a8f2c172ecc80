/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors that an operation makes for its result. */
#ifndef SYMMEM_CORE_OPS_RESULT_TENSOR_H
#define SYMMEM_CORE_OPS_RESULT_TENSOR_H

#include "ops/reduce.h"

/* A new tensor like `like` on the handle's device; its deleter frees it. */
symmem_status sm_result_create(const sm_collective_op *op, const sm_tensor *like,
                               DLManagedTensor **tensor_p);

#endif
