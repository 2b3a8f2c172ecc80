/* SPDX-License-Identifier: BSD-3-Clause */
/* Failures as the core wants them described. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "error.h"

symmem_status shm_fail_errno(const symmem_host *host, int system_errno, const char *operation,
                             const char *what) {
    symmem_status status = SYMMEM_SYSTEM;
    switch (system_errno) {
    case EMFILE:
    case ENFILE:
    case EAGAIN:
        status = SYMMEM_LIMIT;
        break;
    case ENOMEM:
        status = SYMMEM_OUT_OF_MEMORY;
        break;
    case EACCES:
    case EPERM:
    case EROFS:
        status = SYMMEM_PERMISSION;
        break;
    default:
        break;
    }
    errno = system_errno; /* for %m */
    return host->fail(host, status, system_errno, operation, "%s: %m", what);
}

void shm_explain(const symmem_host *host, const char *format, ...) {
    char text[256];
    va_list args;
    if (host->size < offsetof(symmem_host, explain) + sizeof host->explain || !host->explain)
        return; /* an older core */
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    host->explain(host, "%s", text);
}

symmem_status shm_out_of_memory(const symmem_host *host, const char *operation) {
    return host->fail(host, SYMMEM_OUT_OF_MEMORY, ENOMEM, operation, "out of host memory");
}
