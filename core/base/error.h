/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors as values, the scopes that they are made in, and the public call that a thread is in.
 *
 * An error is a symmem_error_record: users get the same type, so nothing is translated. A thread
 * has a stack of scopes. Each holds one error, and sm_fail writes that of the innermost scope:
 *
 *   base      the thread's record, which symmem_last_error copies
 *   call      the outermost public call; its end publishes its error, if it has one, one level out
 *   attempt   SM_ATTEMPT: a step that may fail without failing what is around it
 *
 * A public call made inside another one (by a custom store, by a tensor's deleter) has no scope of
 * its own: its failure is written where the outer call's is. A failpoint's has, because the call
 * around it may have failed before: that error stays.
 */
#ifndef SYMMEM_CORE_ERROR_H
#define SYMMEM_CORE_ERROR_H

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include "base/status.h"
#include "base/util.h"
#include <symmem/context.h>

/* --- making an error ---------------------------------------------------------------- */

/* Makes the innermost scope's error and returns `status`. `operation` is the public call's name
 * without prefix, `stage` the step in it or "". In a public call the operation, the rank, the world
 * size and the group are those of the call, and another operation becomes the stage. */
symmem_status sm_fail(symmem_status status, const char *operation, const char *stage,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));
symmem_status sm_vfail(symmem_status status, const char *operation, const char *stage,
                       const char *format, va_list args);
/* The same from a system call: SYSTEM unless errno has a status of its own (EMFILE LIMIT, ENOSPC
 * NO_SPACE, ENOMEM OUT_OF_MEMORY, EACCES and EPERM PERMISSION, ENAMETOOLONG PATH_TOO_LONG). */
symmem_status sm_fail_errno(int system_errno, const char *operation, const char *stage,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Fields of the error that the caller has just made; never of one that a function below made. They
 * return its status. A struct argument of sm_fail would need -1 in two fields of every caller's. */
symmem_status sm_error_sizes(uint64_t expected, uint64_t actual);
symmem_status sm_error_failed_rank(int32_t rank);
/* The one rank that did not arrive, or has gone: also in the missing set. */
symmem_status sm_error_missing(int32_t rank);
symmem_status sm_error_channel(int32_t channel);
symmem_status sm_error_elapsed(uint64_t elapsed_ns);
symmem_status sm_error_errno(int system_errno);
/* For errors made outside any public call, and in calls that do not know their rank yet. */
symmem_status sm_error_caller(int32_t rank, int32_t world_size);
/* Adds to its message, as far as there is room. */
void sm_explain_text(const char *text);

/* --- errors as values ---------------------------------------------------------------- */

/* The innermost scope's error; SYMMEM_OK, and nothing else set, where nothing failed in it. */
symmem_status sm_error_get(symmem_error_record *error_p);
/* Makes a kept value the innermost scope's error, and an attempt's own error that of the scope
 * around the attempt. Returns its status; where that is SYMMEM_OK, there is nothing to raise. */
symmem_status sm_error_raise(const symmem_error_record *error);

typedef struct sm_scope {
    struct sm_scope *outer;    /* NULL: this is the base */
    bool is_attempt, is_clear; /* is_clear: symmem_clear_error was called in it */
    symmem_error_record error; /* only the status is set while that is SYMMEM_OK */
} sm_scope;

void sm_scope_open(sm_scope *scope);
void sm_scope_close(const sm_scope *scope);

/* From here to the end of the block, failures are those of the attempt `name`: they are dropped
 * unless `name.error` is raised or kept. */
#define SM_ATTEMPT(name)                                                                           \
    __attribute__((cleanup(sm_scope_close))) sm_scope name;                                        \
    sm_scope_open(&name)

/* Calls the user's failpoint. What the user's function fails or clears is seen by itself, and
 * afterwards where nothing had failed before. */
symmem_status sm_point_call(symmem_point_fn point, void *arg, const char *name);

/* --- the public call ---------------------------------------------------------------- */

/* The outermost public call that the thread is in. What was called inside is the error's stage. A
 * call gets the thread's state, so that its end need not look that up again; NULL: it is called
 * inside another one. */
typedef struct sm_thread sm_thread;
sm_thread *sm_call_begin(const char *function);
void sm_call_end(sm_thread *const *outermost);
/* Who calls, in the group's numbers, once they are known. `group` is its name, an array of
 * SYMMEM_NAME_MAX. */
void sm_call_is_of(int32_t rank, int32_t world_size, const char *group);
/* What a call's failure leads to. The first error in the call, even of an attempt, calls `hold`,
 * which keeps `arg` until `end`. The call's end calls `end` with the call's error, or with NULL if
 * the call did not fail. */
typedef struct sm_failure_ops {
    void (*hold)(void *arg);
    void (*end)(void *arg, const symmem_error_record *error);
} sm_failure_ops;
/* The context that the call is on, or makes, by its number: an address may be used again. Its rank
 * and world size never replace a group's. `ops` may be NULL. */
void sm_call_is_in(uint64_t context, int32_t rank, int32_t world_size, const sm_failure_ops *ops,
                   void *arg);
/* Both at once. */
void sm_call_is_of_in(int32_t rank, int32_t world_size, const char *group, uint64_t context,
                      const sm_failure_ops *ops, void *arg);
/* `arg` is no more: nothing is done with it at the call's failure. */
void sm_call_forget(const void *arg);
/* Whether the error that symmem_last_error gives is of a call on that context. */
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
    __attribute__((cleanup(sm_call_end), unused)) sm_thread *const outermost_ =                    \
        sm_call_begin(__func__);                                                                   \
    SM_POINTED_CALL

#endif
