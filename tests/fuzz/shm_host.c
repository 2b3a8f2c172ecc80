/* SPDX-License-Identifier: BSD-3-Clause */
#include "shm_host.h"

#include "internal.h"

static symmem_status host_fail(const symmem_host *host, symmem_status status, int system_errno,
                               const char *operation, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static symmem_status host_fail(const symmem_host *host, symmem_status status, int system_errno,
                               const char *operation, const char *format, ...) {
    va_list args;
    va_start(args, format);
    sm_vfail(status, operation, "", format, args);
    va_end(args);
    sm_record()->system_errno = system_errno;
    return status;
}

static symmem_status host_fail_sizes(const symmem_host *host, symmem_status status,
                                     int system_errno, const char *operation, uint64_t expected,
                                     uint64_t actual) {
    host_fail(host, status, system_errno, operation, "sizes");
    sm_record()->expected = expected;
    sm_record()->actual = actual;
    return status;
}

static void host_notice(const symmem_host *host, const char *text) {}

static symmem_status host_point(const symmem_host *host, const char *name) {
    return SYMMEM_OK;
}

static void host_signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                               symmem_error_record *record_p) {}

static symmem_peer_state host_peer_state(const symmem_peers *peers, int32_t rank) {
    return SYMMEM_PEER_ALIVE;
}

static bool host_is_poisoned(const symmem_peers *peers) {
    return false;
}

const symmem_host fuzz_host = {
    .size = sizeof(fuzz_host),
    .fail = host_fail,
    .fail_sizes = host_fail_sizes,
    .notice = host_notice,
    .point = host_point,
    .signal_failed = host_signal_failed,
    .peer_state = host_peer_state,
    .is_poisoned = host_is_poisoned,
};
