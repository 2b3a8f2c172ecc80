/* SPDX-License-Identifier: BSD-3-Clause */
#include "wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static atomic_int live;
static bool interrupts; /* set before threads start */
static _Thread_local int calls, fail_at;
static _Thread_local const char *failed_call;

void wrap_arm(int nth) {
    failed_call = NULL;
    calls = 0;
    fail_at = nth;
}

int wrap_disarm(const char **name_p) {
    fail_at = 0;
    if (name_p != NULL)
        *name_p = failed_call;
    return calls;
}

void wrap_interrupt(bool only) {
    interrupts = only;
}

int wrap_live(void) {
    return atomic_load(&live);
}

/* Counts a call. True once, for the call that fails. */
static bool fails(const char *name, bool can_wait) {
    if ((interrupts && !can_wait) || ++calls != fail_at)
        return false;
    failed_call = name;
    return true;
}

#define NAME(name) __wrap_##name
#define REAL(name) __real_##name
#define FAILS(class, waits, name) fails(#name, waits)

int __real_open(const char *path, int flags, ...);
int __real_openat(int directory, const char *path, int flags, ...);
int __real_fcntl(int fd, int command, ...);

#define CALL(class, waits, type, name, parameters, arguments, error, result)                       \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        if (fails(#name, waits)) {                                                                 \
            errno = interrupts ? EINTR : (error);                                                  \
            return result;                                                                         \
        }                                                                                          \
        return __real_##name arguments;                                                            \
    }
#define CALL_RETURNS(class, waits, name, parameters, arguments, error)                             \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters {                                                                 \
        if (fails(#name, waits))                                                                   \
            return interrupts ? EINTR : (error);                                                   \
        return __real_##name arguments;                                                            \
    }

#include "calls.h"

CALL(MAPPINGS, false, void *, mmap,
     (void *at, size_t bytes, int prot, int flags, int fd, off_t offset),
     (at, bytes, prot, flags, fd, offset), ENOMEM, MAP_FAILED)

/* Calls that make what another one has to end, which it is if `made`. */
#define MAKER(type, name, parameters, arguments, failure, made)                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        if (fails(#name, false))                                                                   \
            failure;                                                                               \
        type result = __real_##name arguments;                                                     \
        atomic_fetch_add(&live, made);                                                             \
        return result;                                                                             \
    }
#define ENDER(type, name, parameter, argument, ended)                                              \
    type __real_##name(parameter);                                                                 \
    type __wrap_##name(parameter);                                                                 \
    type __wrap_##name(parameter) {                                                                \
        atomic_fetch_sub(&live, ended);                                                            \
        return __real_##name(argument);                                                            \
    }
#define NO_MEMORY                                                                                  \
    do {                                                                                           \
        errno = ENOMEM;                                                                            \
        return NULL;                                                                               \
    } while (0)

MAKER(void *, malloc, (size_t bytes), (bytes), NO_MEMORY, result != NULL)
MAKER(void *, calloc, (size_t count, size_t bytes), (count, bytes), NO_MEMORY, result != NULL)
MAKER(void *, realloc, (void *old, size_t bytes), (old, bytes), NO_MEMORY,
      old == NULL && result != NULL)
MAKER(char *, strdup, (const char *text), (text), NO_MEMORY, result != NULL)
ENDER(void, free, void *ptr, ptr, ptr != NULL)
MAKER(int, pthread_cond_init, (pthread_cond_t * condition, const pthread_condattr_t *attributes),
      (condition, attributes), return ENOMEM, result == 0)
ENDER(int, pthread_cond_destroy, pthread_cond_t *condition, condition, 1)
