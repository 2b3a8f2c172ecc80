/* SPDX-License-Identifier: BSD-3-Clause */
/* What a core would be that is told of nothing, for what is called below it: the calls of a host.
 */
#ifndef SYMMEM_TESTS_QUIET_HOST_H
#define SYMMEM_TESTS_QUIET_HOST_H

#include <symmem/backend.h>

static inline symmem_status quiet_fail(const symmem_host *host, symmem_status status,
                                       int system_errno, const char *operation, const char *format,
                                       ...) {
    return status;
}

static inline symmem_status quiet_fail_sizes(const symmem_host *host, symmem_status status,
                                             int system_errno, const char *operation,
                                             uint64_t expected, uint64_t actual) {
    return status;
}

static inline void quiet_notice(const symmem_host *host, const char *text) {}

static inline symmem_status quiet_point(const symmem_host *host, const char *name) {
    return SYMMEM_OK;
}

static inline void quiet_signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                                       symmem_error_record *record_p) {}

/* No peer ends, and none is poisoned. */
static inline symmem_peer_state quiet_peer_state(const symmem_peers *peers, int32_t rank) {
    return SYMMEM_PEER_ALIVE;
}

static inline bool quiet_is_poisoned(const symmem_peers *peers) {
    return false;
}

#endif
