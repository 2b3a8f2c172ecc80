/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Status codes and the error record.
 *
 * Every call that can fail returns a symmem_status. The function that decides which error it is
 * also fills the calling thread's error record; callers only propagate. A record says in a form a
 * program can read what failed, where, on which rank, and who was missing. [SM-ERROR]
 *
 * What holds for all calls of these headers unless a comment says otherwise:
 *   Outputs  Written on success only. [SM-ERROR-04]
 *   Threads  Any, several at once on one object too. But what destroys, closes or frees an object,
 *            or drops its last reference, is the last call on it; after symmem_free,
 *            symmem_group_destroy and symmem_finalize later calls are refused instead.
 *   NULL     For an object or an output that the call needs: INVALID_ARGUMENT, for a context
 *            NOT_INITIALIZED.
 *   End      Once the context is finalized: NOT_INITIALIZED, but for what gives something back.
 *   fork     In a child every call on a context of the parent's, or on what belongs to one, is
 *            NOT_INITIALIZED and changes nothing, one that gives it back included. A store is
 *            inherited (store.h). The child may make a context of its own, whatever the parent's
 *            other threads were doing, on devices whose drivers work in a child of a process that
 *            has used them. [SM-THREAD-05, -06]
 *   exec     Ends a rank: nothing of the library passes it. Peers are told. [SM-TIMEOUT-17]
 *   Cancel   No call is a cancellation point. A thread that is canceled in one gets the call's
 *            result first. Asynchronous cancellation is not supported. [SM-THREAD-07]
 *   Callback A function of the program's that the library calls (of a store, a failpoint, a
 * product, a log, a clock) has to return: no longjmp, exception or pthread_exit may leave it. What
 *            the call holds would stay held, and later failures of the thread would be written
 *            where its stack was.
 *   Signals  No call may be made in a signal handler; a handler may end the process by _exit. A
 *            call is not ended by a signal that its thread handles meanwhile.
 *   errno    Is after a call what it was before; what a system call said stands in the record.
 *            [SM-LIFE-16]
 *   Limits   What a shell, a container or a batch system limits makes calls fail with NO_SPACE,
 *            LIMIT or OUT_OF_MEMORY; the message names the limit. What the library does raises no
 *            signal, but for what the note to SM-ALLOC-19 leaves open. [SM-LIFE-17, -18]
 *   dlclose  The library stays in the process once it is there, and so do backends.
 */
#ifndef SYMMEM_STATUS_H
#define SYMMEM_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SYMMEM_API __attribute__((visibility("default")))
#define SYMMEM_CHECKED __attribute__((warn_unused_result))
#else
#define SYMMEM_API
#define SYMMEM_CHECKED
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The largest world_size a context or a group may have. Bounds the missing-rank set of a record. */
#define SYMMEM_MAX_WORLD_SIZE 1024
/* Bytes of a group's name, the terminating zero included. A backend's has 31 characters at most. */
#define SYMMEM_NAME_MAX 64
/* timeout_ms value meaning "the context's default timeout". 0 means no limit. */
#define SYMMEM_TIMEOUT_DEFAULT UINT32_MAX

/* name, value, text. Values are never renumbered or reused. */
#define SYMMEM_STATUS_LIST(X)                                                                      \
    X(OK, 0, "success")                                                                            \
    X(INVALID_ARGUMENT, -1, "invalid argument")                                                    \
    X(NOT_INITIALIZED, -2, "the context is not initialized or was finalized")                      \
    X(UNSUPPORTED, -3, "not supported by this backend or device")                                  \
    X(OUT_OF_MEMORY, -4, "out of host memory")                                                     \
    X(NO_SPACE, -5, "not enough symmetric memory")                                                 \
    X(TIMEOUT, -6, "deadline passed")                                                              \
    X(PEER_LOST, -7, "a peer process ended")                                                       \
    X(MISMATCH, -8, "ranks or calls disagree")                                                     \
    X(NOT_SYMMETRIC, -9, "pointer is not symmetric memory of this context")                        \
    X(OUT_OF_RANGE, -10, "rank, channel, offset or size out of range")                             \
    X(MISALIGNED, -11, "misaligned pointer, offset or size")                                       \
    X(OVERFLOW, -12, "size computation overflows")                                                 \
    X(POISONED, -13, "handle is poisoned until a collective reset")                                \
    X(BUSY, -14, "in use")                                                                         \
    X(NOT_FOUND, -15, "not found")                                                                 \
    X(EXISTS, -16, "already exists")                                                               \
    X(ABI, -17, "backend ABI refused")                                                             \
    X(LOAD, -18, "backend cannot be loaded")                                                       \
    X(PATH_TOO_LONG, -19, "path does not fit a socket address or a file name")                     \
    X(PERMISSION, -20, "permission denied")                                                        \
    X(UNREACHABLE, -21, "ranks cannot reach each other's memory")                                  \
    X(CAPTURE, -22, "not allowed while capturing, or capture is malformed")                        \
    X(SYSTEM, -23, "system call failed")                                                           \
    X(BACKEND, -24, "the backend's driver or library failed")                                      \
    X(AUTH, -25, "message refused: sender or tag is not the expected one")                         \
    X(LIMIT, -26, "a resource limit of the process was reached")                                   \
    X(STALE, -27, "object was destroyed")                                                          \
    X(CORRUPT, -28, "shared state holds a value outside the protocol")                             \
    X(OVERLAP, -29, "two ranks use the same device")

typedef enum symmem_status {
#define SYMMEM_STATUS_ENUM(name, value, text) SYMMEM_##name = value,
    SYMMEM_STATUS_LIST(SYMMEM_STATUS_ENUM)
#undef SYMMEM_STATUS_ENUM
        SYMMEM_STATUS_LIST_END = SYMMEM_OK /* no status: C++98 wants no comma at the end */
} symmem_status;

/* Local. Static strings; unknown values give "UNKNOWN" and "unknown status". Any thread. */
SYMMEM_API const char *symmem_status_name(symmem_status status);
SYMMEM_API const char *symmem_status_text(symmem_status status);

typedef struct symmem_error_record {
    symmem_status status;
    int32_t rank;        /* own rank in the group (or context), -1 if not known */
    int32_t world_size;  /* of that group, 0 if not known */
    int32_t channel;     /* -1 if the operation has none */
    int32_t failed_rank; /* the rank that caused it, in group ranks; -1 if none or several */
    int32_t system_errno;
    uint64_t expected;   /* what was needed: a size, a limit, a count; 0 if meaningless */
    uint64_t actual;     /* what was found */
    uint64_t elapsed_ns; /* time spent in the operation */
    uint32_t missing_count;
    uint32_t reserved;
    uint64_t missing[SYMMEM_MAX_WORLD_SIZE / 64]; /* bit r: group rank r did not arrive */
    char operation[64]; /* the public call, e.g. "rendezvous"; none has a longer name */
    char stage[32];     /* the step inside it, e.g. "metadata" */
    char group[SYMMEM_NAME_MAX];
    char message[256]; /* one line for people */
} symmem_error_record;

/*
 * Local. Copies the calling thread's record of its most recent failed call to *record_p. Before
 * any failure the record has status SYMMEM_OK. Successful calls leave it alone. [SM-ERROR]
 */
SYMMEM_API void symmem_last_error(symmem_error_record *record_p);

/* Local. Sets the calling thread's record back to SYMMEM_OK. */
SYMMEM_API void symmem_clear_error(void);

/* Local. True if group rank `rank` is in the record's missing set. */
SYMMEM_API bool symmem_error_is_missing(const symmem_error_record *record, int32_t rank);

typedef enum symmem_dtype {
    SYMMEM_UINT8 = 0,
    SYMMEM_INT8,
    SYMMEM_INT16,
    SYMMEM_UINT16,
    SYMMEM_INT32,
    SYMMEM_UINT32,
    SYMMEM_INT64,
    SYMMEM_UINT64,
    SYMMEM_FLOAT16,
    SYMMEM_BFLOAT16,
    SYMMEM_FLOAT32,
    SYMMEM_FLOAT64,
    SYMMEM_DTYPE_COUNT
} symmem_dtype;

/* Local. Bytes of one element, 0 for a value outside the enum. */
SYMMEM_API size_t symmem_dtype_size(symmem_dtype dtype);
/* Local. "float32" and so on, "unknown" outside the enum. */
SYMMEM_API const char *symmem_dtype_name(symmem_dtype dtype);

typedef struct symmem_context symmem_context;
typedef struct symmem_group symmem_group;
typedef struct symmem_store symmem_store;
typedef struct symmem_handle symmem_handle;
typedef struct symmem_stream symmem_stream;
typedef struct symmem_event symmem_event;
typedef struct symmem_graph symmem_graph;
typedef struct symmem_pool symmem_pool;
typedef struct symmem_backend symmem_backend;

#ifdef __cplusplus
}
#endif
#endif
