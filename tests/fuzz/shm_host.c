/* SPDX-License-Identifier: BSD-3-Clause */
#include "shm_host.h"

#include "../quiet_host.h"
#include "bootstrap/bootstrap.h"

__attribute__((format(printf, 5, 6))) static symmem_status
host_fail(const symmem_host *host, symmem_status status, int system_errno, const char *operation,
          const char *format, ...) {
    va_list args;
    va_start(args, format);
    sm_vfail(status, operation, "", format, args);
    va_end(args);
    return sm_error_errno(system_errno);
}

static symmem_status host_fail_sizes(const symmem_host *host, symmem_status status,
                                     int system_errno, const char *operation, uint64_t expected,
                                     uint64_t actual) {
    host_fail(host, status, system_errno, operation, "sizes");
    return sm_error_sizes(expected, actual);
}

const symmem_host fuzz_host = {
    .size = sizeof(fuzz_host),
    .fail = host_fail,
    .fail_sizes = host_fail_sizes,
    .notice = quiet_notice,
    .point = quiet_point,
    .signal_failed = quiet_signal_failed,
    .peer_state = quiet_peer_state,
    .is_poisoned = quiet_is_poisoned,
};
