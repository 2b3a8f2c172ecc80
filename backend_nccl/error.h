/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors of NCCL as statuses of the core. */
#ifndef SYMMEM_BACKEND_NCCL_ERROR_H
#define SYMMEM_BACKEND_NCCL_ERROR_H

#include "nccl_internal.h"

symmem_status nccl_fail(const cuda_instance *instance, ncclResult_t result, const char *operation);

#endif
