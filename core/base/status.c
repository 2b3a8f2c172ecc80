/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of statuses and dtypes, and the calling thread's error record. */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The one piece of state outside an object: errors of one thread never overwrite another's. */
static _Thread_local symmem_error_record thread_record = {
    .rank = -1, .channel = -1, .failed_rank = -1};

/* The beginning of a record, which tells one failure from another: calls put the record of an
 * earlier failure back. Two that begin alike are taken for one. */
typedef struct trace {
    int32_t status, system_errno;
    uint64_t elapsed_ns, operation, message;
} trace;

/* NULL: in none. */
static _Thread_local struct {
    const char *operation;
    int32_t rank, world_size;
    uint64_t context; /* its number, or 0 */
    trace before;     /* of the record */
} public_call;
static _Thread_local uint64_t failed_in; /* whose call made the record */

static trace trace_of_record(void) {
    trace made = {thread_record.status, thread_record.system_errno, thread_record.elapsed_ns, 0, 0};
    memcpy(&made.operation, thread_record.operation, sizeof(made.operation));
    memcpy(&made.message, thread_record.message, sizeof(made.message));
    return made;
}

/* The record is of this call. */
static bool has_failed(void) {
    const trace now = trace_of_record(), *before = &public_call.before;
    return now.status != SYMMEM_OK &&
           (now.status != before->status || now.system_errno != before->system_errno ||
            now.elapsed_ns != before->elapsed_ns || now.operation != before->operation ||
            now.message != before->message);
}

bool sm_call_begin(const char *function) {
    if (public_call.operation != NULL)
        return false;
    public_call.operation = function + sizeof("symmem_") - 1;
    public_call.rank = -1;
    public_call.world_size = 0;
    public_call.context = 0;
    public_call.before = trace_of_record();
    return true;
}

void sm_call_end(const bool *is_outermost) {
    if (!*is_outermost)
        return;
    if (has_failed())
        failed_in = public_call.context;
    public_call.operation = NULL;
}

void sm_call_is_of(int32_t rank, int32_t world_size, bool in_group) {
    if (!in_group && public_call.rank >= 0)
        return;
    public_call.rank = rank;
    public_call.world_size = world_size;
}

void sm_call_is_in(uint64_t context) {
    public_call.context = context;
}

bool sm_failed_in(uint64_t context) {
    const bool is_this_calls = public_call.operation != NULL && has_failed();
    return thread_record.status != SYMMEM_OK &&
           (is_this_calls ? public_call.context : failed_in) == context;
}

const char *symmem_status_name(symmem_status status) {
    switch (status) {
#define STATUS_NAME(name, value, text)                                                             \
    case SYMMEM_##name:                                                                            \
        return #name;
        SYMMEM_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

const char *symmem_status_text(symmem_status status) {
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case SYMMEM_##name:                                                                            \
        return text;
        SYMMEM_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

bool sm_status_known(int32_t value) {
    switch (value) {
#define STATUS_KNOWN(name, number, text) case number:
        SYMMEM_STATUS_LIST(STATUS_KNOWN)
#undef STATUS_KNOWN
        return true;
    default:
        return false;
    }
}

void symmem_last_error(symmem_error_record *record_p) {
    if (record_p != NULL)
        *record_p = thread_record;
}

static void clear(symmem_error_record *record) {
    memset(record, 0, sizeof(*record));
    record->rank = -1;
    record->channel = -1;
    record->failed_rank = -1;
}

void symmem_clear_error(void) {
    clear(&thread_record);
}

bool symmem_error_is_missing(const symmem_error_record *record, int32_t rank) {
    if (record == NULL || rank < 0 || rank >= SYMMEM_MAX_WORLD_SIZE)
        return false;
    return (record->missing[rank / 64] >> (rank % 64) & 1) != 0;
}

symmem_error_record *sm_record(void) {
    return &thread_record;
}

symmem_status sm_vfail(symmem_status status, const char *operation, const char *stage,
                       const char *format, va_list args) {
    /* Formatted aside and cleared last: the texts may be those of the record itself. */
    symmem_error_record record;
    clear(&record);
    record.status = status;
    if (public_call.operation != NULL) {
        record.rank = public_call.rank;
        record.world_size = public_call.world_size;
        if (stage[0] == '\0' && strcmp(operation, public_call.operation) != 0)
            stage = operation;
        operation = public_call.operation;
    }
    sm_copy_text(record.operation, sizeof(record.operation), operation);
    sm_copy_text(record.stage, sizeof(record.stage), stage);
    if (vsnprintf(record.message, sizeof(record.message), format, args) < 0)
        record.message[0] = '\0';
    thread_record = record;
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

symmem_status sm_fail_errno(int system_errno, const char *operation, const char *stage,
                            const char *format, ...) {
    symmem_status status = status_of_errno(system_errno);
    va_list args;
    va_start(args, format);
    sm_vfail(status, operation, stage, format, args);
    va_end(args);
    thread_record.system_errno = system_errno;
    size_t used = strlen(thread_record.message);
    /* strerror_r is one function with the GNU C library and another with those that follow POSIX.
     */
    errno = system_errno;
    (void)snprintf(thread_record.message + used, sizeof(thread_record.message) - used, ": %m");
    sm_explain_errno(system_errno);
    return status;
}

symmem_status sm_fail_record(const symmem_error_record *record) {
    if (record != &thread_record)
        thread_record = *record;
    return thread_record.status;
}

static const struct {
    const char *name;
    size_t bytes;
} dtypes[SYMMEM_DTYPE_COUNT] = {
    [SYMMEM_UINT8] = {"uint8", 1},     [SYMMEM_INT8] = {"int8", 1},
    [SYMMEM_INT16] = {"int16", 2},     [SYMMEM_UINT16] = {"uint16", 2},
    [SYMMEM_INT32] = {"int32", 4},     [SYMMEM_UINT32] = {"uint32", 4},
    [SYMMEM_INT64] = {"int64", 8},     [SYMMEM_UINT64] = {"uint64", 8},
    [SYMMEM_FLOAT16] = {"float16", 2}, [SYMMEM_BFLOAT16] = {"bfloat16", 2},
    [SYMMEM_FLOAT32] = {"float32", 4}, [SYMMEM_FLOAT64] = {"float64", 8},
};

size_t symmem_dtype_size(symmem_dtype dtype) {
    return (unsigned)dtype < SYMMEM_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *symmem_dtype_name(symmem_dtype dtype) {
    return (unsigned)dtype < SYMMEM_DTYPE_COUNT ? dtypes[dtype].name : "unknown";
}
