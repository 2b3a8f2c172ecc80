/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors of the driver as statuses of the core, and failpoints. */
#ifndef SYMMEM_BACKEND_CUDA_ERROR_H
#define SYMMEM_BACKEND_CUDA_ERROR_H

#include "cuda_internal.h"

symmem_status cuda_fail(const cuda_instance *instance, CUresult result, const char *operation);
/* Returns EMFILE or ENFILE if no descriptor is left, else 0. Neither the driver nor NCCL reports
 * that reason. */
int cuda_descriptors_error(void);
bool cuda_is_capture_error(CUresult result);
symmem_status cuda_no_memory(const cuda_instance *instance, const char *operation);
/* Returns TIMEOUT: the device was late with what the call waited for. */
symmem_status cuda_fail_timeout(const cuda_instance *instance, const char *operation);
symmem_status cuda_failpoint(const cuda_instance *instance, const char *name);

#endif
