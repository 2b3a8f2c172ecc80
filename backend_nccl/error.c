/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors of NCCL as statuses of the core. */
#include "nccl_internal.h"
#include "error.h"

/* ncclResult_t grows from version to version, so it is never an index into a table. */
symmem_status nccl_fail(const cuda_instance *instance, ncclResult_t result, const char *operation) {
    const nccl_library *library = &nccl_state_of(instance)->library;
    const bool may_need_descriptors = result == ncclSystemError || result == ncclInternalError ||
                                      result == ncclUnhandledCudaError;
    const int error = may_need_descriptors ? cuda_descriptors_error() : 0;
    const symmem_status status = result == ncclRemoteError ? SYMMEM_PEER_LOST
                                 : error != 0              ? SYMMEM_LIMIT
                                                           : SYMMEM_BACKEND;
    const char *more = library->GetLastError(NULL);
    return instance->host->fail(instance->host, status, error, operation, "NCCL: %s (%d)%s %.100s",
                                library->GetErrorString(result), (int)result,
                                error != 0 ? ", and no descriptor is left" : "",
                                more != NULL ? more : "");
}
