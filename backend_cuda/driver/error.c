/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors of the driver as statuses of the core, and failpoints. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "driver/error.h"

bool cuda_is_capture_error(CUresult result) {
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

int cuda_descriptors_error(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error == EMFILE || error == ENFILE ? error : 0;
}

/* Errors that the device reports about itself, or about what runs there, do not come from missing
 * descriptors. */
static bool may_need_descriptors(CUresult result) {
    return result < CUDA_ERROR_ECC_UNCORRECTABLE || result == CUDA_ERROR_OPERATING_SYSTEM ||
           result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_UNKNOWN ||
           result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED;
}

symmem_status cuda_fail(const cuda_instance *instance, CUresult result, const char *operation) {
    symmem_status status = SYMMEM_BACKEND;
    const char *name = NULL;

    if (instance->driver.GetErrorName(result, &name) != CUDA_SUCCESS)
        name = "unknown CUresult";
    const int error = may_need_descriptors(result) ? cuda_descriptors_error() : 0;
    if (error != 0)
        return instance->host->fail(instance->host, SYMMEM_LIMIT, error, operation,
                                    "driver: %s (%d), and no descriptor is left", name,
                                    (int)result);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        status = SYMMEM_NO_SPACE;
    else if (cuda_is_capture_error(result))
        status = SYMMEM_CAPTURE;
    return instance->host->fail(instance->host, status, 0, operation, "driver: %s (%d)", name,
                                (int)result);
}

symmem_status cuda_no_memory(const cuda_instance *instance, const char *operation) {
    return instance->host->fail(instance->host, SYMMEM_OUT_OF_MEMORY, 0, operation, "no memory");
}

symmem_status cuda_fail_timeout(const cuda_instance *instance, const char *operation) {
    return instance->host->fail(instance->host, SYMMEM_TIMEOUT, 0, operation,
                                "the device did not come to it in time: other work holds it up");
}

symmem_status cuda_failpoint(const cuda_instance *instance, const char *name) {
    return instance->host->has_points ? instance->host->point(instance->host, name) : SYMMEM_OK;
}
