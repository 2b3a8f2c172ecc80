/* SPDX-License-Identifier: BSD-3-Clause */
/* How ranks agree on a failure: one rank's record becomes that of all. See session_agree.c. */
#ifndef SYMMEM_CORE_SESSION_AGREE_H
#define SYMMEM_CORE_SESSION_AGREE_H

#include "bootstrap/session_internal.h"

/* The part of an error record that ranks send each other. */
typedef struct sm_verdict {
    int32_t status;
    int32_t system_errno;
    int32_t channel;
    int32_t failed_rank;
    uint64_t expected;
    uint64_t actual;
    uint32_t missing_count;
    uint32_t reserved;
    uint64_t missing[SYMMEM_MAX_WORLD_SIZE / 64];
    char operation[64];
    char stage[32];
    char message[256];
} sm_verdict;

/* Whether a verdict from the store is one that sm_verdict_make can make in this group. */
bool sm_verdict_valid(const sm_session *session, const sm_verdict *verdict);
/* Makes the verdict of `rank` the thread's record. */
symmem_status sm_verdict_apply(const sm_session *session, const sm_call *call, int32_t rank,
                               const sm_verdict *verdict);
/* Makes this rank's own failure the thread's record again and adds the session's fields. */
symmem_status sm_own_failure(const sm_session *session, const sm_call *call,
                             const symmem_error_record *own);
/* Chooses between this rank's earlier failure and the `status` with which an exchange then
 * failed. */
symmem_status sm_earlier_failure(const sm_session *session, const sm_call *call,
                                 const symmem_error_record *own, symmem_status status);

#endif
