/* SPDX-License-Identifier: BSD-3-Clause */
/* The record of the last failure of a thread, and the public call that a thread is in. */
#ifndef SYMMEM_CORE_STATUS_H
#define SYMMEM_CORE_STATUS_H

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include "base/util.h"

/* Fills the calling thread's record and returns `status`. `operation` is the public call's name
 * without prefix, `stage` the step in it or "". */
symmem_status sm_fail(symmem_status status, const char *operation, const char *stage,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));
symmem_status sm_vfail(symmem_status status, const char *operation, const char *stage,
                       const char *format, va_list args);
/* The same from a system call: SYSTEM unless errno has a status of its own (EMFILE LIMIT, ENOSPC
 * NO_SPACE, ENOMEM OUT_OF_MEMORY, EACCES and EPERM PERMISSION, ENAMETOOLONG PATH_TOO_LONG). */
symmem_status sm_fail_errno(int system_errno, const char *operation, const char *stage,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The calling thread's record, to add fields to after sm_fail. */
symmem_error_record *sm_record(void);
/* Whether a number that came from elsewhere is one of the statuses. */
bool sm_status_known(int32_t value);
/* Makes *record the calling thread's record and returns its status. */
symmem_status sm_fail_record(const symmem_error_record *record);

/* --- the public call ---------------------------------------------------------------- */

/* The outermost public call that the thread is in, and the calling rank once it is known: they
 * stand in every record that is made meanwhile. What was called inside is the record's stage. */
bool sm_call_begin(const char *function);
void sm_call_end(const bool *is_outermost);
/* In a group's numbers rather than in the context's. */
void sm_call_is_of(int32_t rank, int32_t world_size, bool in_group);
/* The context that the call is on, or makes, by its number: an address may be used again. */
void sm_call_is_in(uint64_t context);
/* Whether the thread's record is of a failure in a call on that context. */
bool sm_failed_in(uint64_t context);

/* What a thread has of its own, as a public call finds and leaves it. */
typedef struct sm_caller {
    int cancel_state, error_number;
} sm_caller;

static inline sm_caller sm_caller_hold(void) {
    sm_caller caller = {.cancel_state = PTHREAD_CANCEL_ENABLE, .error_number = errno};
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &caller.cancel_state);
    return caller;
}

static inline void sm_caller_restore(const sm_caller *caller) {
    int ignored;
    (void)pthread_setcancelstate(caller->cancel_state, &ignored);
    errno = caller->error_number;
}

/* First in what users call by a pointer, such as a tensor's deleter: it is no cancellation point,
 * for a thread that ended in it would leave its locks and half of its work; nor does it change
 * errno. */
#define SM_POINTED_CALL                                                                            \
    __attribute__((cleanup(sm_caller_restore), unused)) const sm_caller caller_ = sm_caller_hold()
/* First in every public call but those that only read a table or the thread's own record:
 * tests/unit/scripts/check_calls.sh knows which. */
#define SM_PUBLIC_CALL                                                                             \
    __attribute__((cleanup(sm_call_end), unused)) const bool is_outermost_ =                       \
        sm_call_begin(__func__);                                                                   \
    SM_POINTED_CALL

#endif
