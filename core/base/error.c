/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread's stack of scopes with their errors, and the public call that the thread is in. */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* All that a thread has: errors of one never overwrite another's. */
static _Thread_local struct sm_thread {
    sm_scope *innermost;           /* NULL: `base`, whose address is no constant */
    const char *operation;         /* of the public call; NULL: in none */
    uint64_t context;              /* its number, or 0 */
    uint64_t failed_in;            /* whose call made the error of `base` */
    const sm_failure_ops *failure; /* NULL: a failure leads to nothing */
    void *failure_arg;
    bool holds; /* failure_arg */
    int32_t rank, world_size;
    char group[SYMMEM_NAME_MAX];
    sm_scope call, base;
} thread = {.base.error = {.rank = -1, .channel = -1, .failed_rank = -1}};

/* Looks the thread's own up. That is a call, and the dearest part of a short public one. Compilers
 * take the address for a constant, and ask for it again at each use unless it is hidden. */
static inline sm_thread *own_thread(void) {
    sm_thread *own = &thread;
    __asm__("" : "+r"(own));
    return own;
}

static sm_scope *innermost(void) {
    return thread.innermost != NULL ? thread.innermost : &thread.base;
}

static void clear(symmem_error_record *error) {
    memset(error, 0, sizeof(*error));
    error->rank = -1;
    error->channel = -1;
    error->failed_rank = -1;
}

/* --- scopes -------------------------------------------------------------------------- */

static void open_scope(sm_thread *own, sm_scope *scope, bool is_attempt) {
    scope->outer = own->innermost != NULL ? own->innermost : &own->base;
    scope->is_attempt = is_attempt;
    scope->is_clear = false;
    scope->error.status = SYMMEM_OK;
    own->innermost = scope;
}

void sm_scope_open(sm_scope *scope) {
    open_scope(&thread, scope, true);
}

void sm_scope_close(const sm_scope *scope) {
    thread.innermost = scope->outer;
}

static bool has_error(const sm_scope *scope) {
    return scope->error.status != SYMMEM_OK || scope->is_clear;
}

/* The scope whose error is the thread's last one now. */
static const sm_scope *last_failed(void) {
    const sm_scope *scope = innermost();
    while (!has_error(scope) && scope->outer != NULL)
        scope = scope->outer;
    return scope;
}

symmem_status sm_point_call(symmem_point_fn point, void *arg, const char *name) {
    sm_scope own;
    open_scope(&thread, &own, true);
    symmem_status status = point(arg, name);
    sm_scope_close(&own);
    if (has_error(&own) && own.outer->error.status == SYMMEM_OK) {
        own.outer->error = own.error;
        own.outer->is_clear = own.is_clear;
    }
    return status;
}

/* --- the public call ---------------------------------------------------------------- */

sm_thread *sm_call_begin(const char *function) {
    sm_thread *own = own_thread();
    if (own->operation != NULL)
        return NULL;
    own->operation = function + sizeof("symmem_") - 1;
    own->rank = -1;
    own->world_size = 0;
    own->context = 0;
    own->failure = NULL;
    own->holds = false;
    own->group[0] = '\0';
    open_scope(own, &own->call, false);
    return own;
}

/* The call's error becomes that of what is around it. */
static void publish(sm_thread *own) {
    sm_scope *outer = own->call.outer;
    outer->error = own->call.error;
    outer->is_clear = own->call.is_clear;
    if (outer == &own->base)
        own->failed_in = own->context;
}

/* The context is sure to be there: the call that fails still works on it. */
static void hold(void) {
    if (thread.operation == NULL || thread.failure == NULL || thread.holds)
        return;
    thread.holds = true;
    thread.failure->hold(thread.failure_arg);
}

/* At the call's end the caller's errno and cancellation have been restored. */
static void end_failure(const symmem_error_record *error) {
    const sm_failure_ops *ops = thread.failure;
    SM_POINTED_CALL;
    SM_ATTEMPT(ending);
    thread.failure = NULL;
    thread.holds = false;
    ops->end(thread.failure_arg, error);
}

void sm_call_end(sm_thread *const *outermost) {
    sm_thread *own = *outermost;
    if (own == NULL)
        return;
    if (has_error(&own->call))
        publish(own);
    if (own->holds)
        end_failure(own->call.error.status != SYMMEM_OK ? &own->call.error : NULL);
    own->innermost = own->call.outer;
    own->operation = NULL;
}

static inline void set_group(sm_thread *own, int32_t rank, int32_t world_size, const char *group) {
    own->rank = rank;
    own->world_size = world_size;
    memcpy(own->group, group, sizeof(own->group));
}

static inline void set_context(sm_thread *own, uint64_t context, const sm_failure_ops *ops,
                               void *arg) {
    own->context = context;
    if (__builtin_expect(own->holds, false)) {
        if (arg == own->failure_arg)
            return;
        end_failure(NULL);
    }
    own->failure = ops;
    own->failure_arg = arg;
}

void sm_call_is_of(int32_t rank, int32_t world_size, const char *group) {
    set_group(own_thread(), rank, world_size, group);
}

void sm_call_is_in(uint64_t context, int32_t rank, int32_t world_size, const sm_failure_ops *ops,
                   void *arg) {
    sm_thread *own = own_thread();
    if (own->rank < 0) {
        own->rank = rank;
        own->world_size = world_size;
    }
    set_context(own, context, ops, arg);
}

void sm_call_is_of_in(int32_t rank, int32_t world_size, const char *group, uint64_t context,
                      const sm_failure_ops *ops, void *arg) {
    sm_thread *own = own_thread();
    set_group(own, rank, world_size, group);
    set_context(own, context, ops, arg);
}

void sm_call_forget(const void *arg) {
    if (thread.failure_arg == arg && !thread.holds)
        thread.failure = NULL;
}

bool sm_failed_in(uint64_t context) {
    const sm_scope *failed = last_failed();
    return failed->error.status != SYMMEM_OK &&
           (failed == &thread.base ? thread.failed_in : thread.context) == context;
}

/* --- the user's view ---------------------------------------------------------------- */

void symmem_last_error(symmem_error_record *record_p) {
    if (record_p != NULL)
        *record_p = last_failed()->error;
}

void symmem_clear_error(void) {
    sm_scope *scope = innermost();
    clear(&scope->error);
    scope->is_clear = true;
}

bool symmem_error_is_missing(const symmem_error_record *record, int32_t rank) {
    if (record == NULL || rank < 0 || rank >= SYMMEM_MAX_WORLD_SIZE)
        return false;
    return (record->missing[rank / 64] >> (rank % 64) & 1) != 0;
}

/* --- making an error ---------------------------------------------------------------- */

symmem_status sm_vfail(symmem_status status, const char *operation, const char *stage,
                       const char *format, va_list args) {
    /* Formatted aside and copied last: the texts may be those of the error itself. */
    symmem_error_record error;
    clear(&error);
    error.status = status;
    if (thread.operation != NULL) {
        error.rank = thread.rank;
        error.world_size = thread.world_size;
        sm_copy_text(error.group, sizeof(error.group), thread.group);
        if (stage[0] == '\0' && strcmp(operation, thread.operation) != 0)
            stage = operation;
        operation = thread.operation;
    }
    sm_copy_text(error.operation, sizeof(error.operation), operation);
    sm_copy_text(error.stage, sizeof(error.stage), stage);
    if (vsnprintf(error.message, sizeof(error.message), format, args) < 0)
        error.message[0] = '\0';
    innermost()->error = error;
    hold();
    return status;
}

symmem_status sm_fail(symmem_status status, const char *operation, const char *stage,
                      const char *format, ...) {
    va_list args;
    va_start(args, format);
    sm_vfail(status, operation, stage, format, args);
    va_end(args);
    return status;
}

static symmem_status status_of_errno(int system_errno) {
    switch (system_errno) {
    case EMFILE:
    case ENFILE:
    case EFBIG:
    case ETOOMANYREFS:
        return SYMMEM_LIMIT;
    case ENOSPC:
    case EDQUOT:
        return SYMMEM_NO_SPACE;
    case ENOMEM:
        return SYMMEM_OUT_OF_MEMORY;
    case EACCES:
    case EPERM:
    case EROFS:
        return SYMMEM_PERMISSION;
    case ENAMETOOLONG:
        return SYMMEM_PATH_TOO_LONG;
    default:
        return SYMMEM_SYSTEM;
    }
}

static inline const char *gnu_reason(const char *reason, const char *text) {
    (void)text;
    return reason;
}

static inline const char *posix_reason(int failed, const char *text) {
    return failed == 0 ? text : "unknown";
}

/* strerror_r is one function with the GNU C library and another with those that follow POSIX. */
static const char *reason_of(int system_errno, char *text, size_t capacity) {
    return _Generic(strerror_r(system_errno, text, capacity), char * : gnu_reason, int : posix_reason)(
        strerror_r(system_errno, text, capacity), text);
}

symmem_status sm_fail_errno(int system_errno, const char *operation, const char *stage,
                            const char *format, ...) {
    char reason[sizeof(((symmem_error_record *)NULL)->message)], text[128];
    symmem_status status = status_of_errno(system_errno);
    va_list args;
    va_start(args, format);
    sm_vfail(status, operation, stage, format, args);
    va_end(args);
    (void)sm_error_errno(system_errno);
    (void)snprintf(reason, sizeof(reason), ": %s", reason_of(system_errno, text, sizeof(text)));
    sm_explain_text(reason);
    sm_explain_errno(system_errno);
    return status;
}

symmem_status sm_error_sizes(uint64_t expected, uint64_t actual) {
    symmem_error_record *error = &innermost()->error;
    error->expected = expected;
    error->actual = actual;
    return error->status;
}

symmem_status sm_error_failed_rank(int32_t rank) {
    symmem_error_record *error = &innermost()->error;
    error->failed_rank = rank;
    return error->status;
}

symmem_status sm_error_missing(int32_t rank) {
    symmem_error_record *error = &innermost()->error;
    memset(error->missing, 0, sizeof(error->missing));
    error->missing[rank / 64] = 1ull << (rank % 64);
    error->missing_count = 1;
    error->failed_rank = rank;
    return error->status;
}

symmem_status sm_error_channel(int32_t channel) {
    symmem_error_record *error = &innermost()->error;
    error->channel = channel;
    return error->status;
}

symmem_status sm_error_elapsed(uint64_t elapsed_ns) {
    symmem_error_record *error = &innermost()->error;
    error->elapsed_ns = elapsed_ns;
    return error->status;
}

symmem_status sm_error_errno(int system_errno) {
    symmem_error_record *error = &innermost()->error;
    error->system_errno = system_errno;
    return error->status;
}

symmem_status sm_error_caller(int32_t rank, int32_t world_size) {
    symmem_error_record *error = &innermost()->error;
    if (error->rank < 0) {
        error->rank = rank;
        error->world_size = world_size;
    }
    return error->status;
}

void sm_explain_text(const char *text) {
    symmem_error_record *error = &innermost()->error;
    if (error->status == SYMMEM_OK)
        return;
    const size_t used = strlen(error->message);
    sm_copy_text(error->message + used, sizeof(error->message) - used, text);
}

/* --- errors as values ---------------------------------------------------------------- */

symmem_status sm_error_get(symmem_error_record *error_p) {
    const symmem_error_record *error = &innermost()->error;
    if (error->status == SYMMEM_OK)
        clear(error_p);
    else
        *error_p = *error;
    return error_p->status;
}

symmem_status sm_error_raise(const symmem_error_record *error) {
    sm_scope *scope = innermost();
    if (error == &scope->error && scope->is_attempt)
        scope = scope->outer;
    if (error != &scope->error && error->status != SYMMEM_OK) {
        scope->error = *error;
        hold();
    }
    return error->status;
}
