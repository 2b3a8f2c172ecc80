/* SPDX-License-Identifier: BSD-3-Clause */
/* Failures as the core wants them described. */
#ifndef SYMMEM_BACKEND_SHM_ERROR_H
#define SYMMEM_BACKEND_SHM_ERROR_H

#include "shm.h"

/* Describes a failed system call and returns the status for its errno. */
symmem_status shm_fail_errno(const symmem_host *host, int system_errno, const char *operation,
                             const char *what);
/* Runs the failpoint `name`, see symmem_host.point. It is one branch if none is active. */
static inline symmem_status shm_failpoint(const symmem_host *host, const char *name) {
    return __builtin_expect(host->has_points, false) ? host->point(host, name) : SYMMEM_OK;
}
/* Runs a failpoint that only notifies. Its name ends in '*'. */
static inline void shm_failpoint_notify(const symmem_host *host, const char *name) {
    if (__builtin_expect(host->has_points, false))
        (void)host->point(host, name);
}
symmem_status shm_out_of_memory(const symmem_host *host, const char *operation);
/* Appends to the message of the failure that was just described, as far as the core can. */
void shm_explain(const symmem_host *host, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
