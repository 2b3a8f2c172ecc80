/* SPDX-License-Identifier: BSD-3-Clause */
/* Failures as the core wants them described. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "error.h"

static inline const char *gnu_reason(const char *reason, const char *text) {
    (void)text;
    return reason;
}

static inline const char *posix_reason(int failed, const char *text) {
    return failed == 0 ? text : "unknown";
}

symmem_status shm_fail_errno(const symmem_host *host, int system_errno, const char *operation,
                             const char *what) {
    char text[128];
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
    /* strerror_r is one function with the GNU C library and another with those that follow POSIX.
     */
    const char *reason = _Generic(strerror_r(system_errno, text, sizeof text),
        char *: gnu_reason,
        int: posix_reason)(strerror_r(system_errno, text, sizeof text), text);
    return host->fail(host, status, system_errno, operation, "%s: %s", what, reason);
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
