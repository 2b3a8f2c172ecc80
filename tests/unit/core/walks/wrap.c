/* SPDX-License-Identifier: BSD-3-Clause */
#include "wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
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

/* True once, for the call that is to fail. */
static bool fails(const char *name, bool can_wait) {
    if ((interrupts && !can_wait) || ++calls != fail_at)
        return false;
    failed_call = name;
    return true;
}

/* One wrapper: its type, name, parameters, arguments, and what a failure looks like. */
#define WRAP(type, name, parameters, arguments, failure)                                           \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        if (fails(#name, false))                                                                   \
            failure;                                                                               \
        return __real_##name arguments;                                                            \
    }
/* The same for calls that a signal may interrupt. */
#define WRAP_WAIT(type, name, parameters, arguments, failure)                                      \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        if (fails(#name, true)) {                                                                  \
            if (interrupts)                                                                        \
                ERRNO(EINTR, -1);                                                                  \
            failure;                                                                               \
        }                                                                                          \
        return __real_##name arguments;                                                            \
    }
#define ERRNO(value, result)                                                                       \
    do {                                                                                           \
        errno = (value);                                                                           \
        return result;                                                                             \
    } while (0)

/* The same of calls that make what another one has to end, which it is if `made`. */
#define WRAP_MAKER(type, name, parameters, arguments, failure, made)                               \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        if (fails(#name, false))                                                                   \
            failure;                                                                               \
        type result = __real_##name arguments;                                                     \
        atomic_fetch_add(&live, made);                                                             \
        return result;                                                                             \
    }
#define WRAP_ENDER(type, name, parameter, argument, ended)                                         \
    type __real_##name(parameter);                                                                 \
    type __wrap_##name(parameter);                                                                 \
    type __wrap_##name(parameter) {                                                                \
        atomic_fetch_sub(&live, ended);                                                            \
        return __real_##name(argument);                                                            \
    }

WRAP_MAKER(void *, malloc, (size_t bytes), (bytes), ERRNO(ENOMEM, NULL), result != NULL)
WRAP_MAKER(void *, calloc, (size_t count, size_t bytes), (count, bytes), ERRNO(ENOMEM, NULL),
           result != NULL)
WRAP_MAKER(void *, realloc, (void *old, size_t bytes), (old, bytes), ERRNO(ENOMEM, NULL),
           old == NULL && result != NULL)
WRAP_MAKER(char *, strdup, (const char *text), (text), ERRNO(ENOMEM, NULL), result != NULL)
WRAP_ENDER(void, free, void *ptr, ptr, ptr != NULL)
WRAP_ENDER(int, pthread_cond_destroy, pthread_cond_t *condition, condition, 1)
WRAP(int, shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode),
     ERRNO(EMFILE, -1))
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), ERRNO(EMFILE, -1))
WRAP(void *, mmap, (void *at, size_t bytes, int prot, int flags, int fd, off_t offset),
     (at, bytes, prot, flags, fd, offset), ERRNO(ENOMEM, MAP_FAILED))
WRAP(int, ftruncate, (int fd, off_t bytes), (fd, bytes), ERRNO(EIO, -1))
WRAP_WAIT(int, poll, (struct pollfd * fds, nfds_t count, int timeout_ms), (fds, count, timeout_ms),
          ERRNO(ENOMEM, -1))
WRAP(int, unlinkat, (int directory, const char *name, int flags), (directory, name, flags),
     ERRNO(EIO, -1))
WRAP(int, faccessat, (int directory, const char *name, int mode, int flags),
     (directory, name, mode, flags), ERRNO(EACCES, -1))
WRAP(int, fstatvfs, (int fd, struct statvfs *out), (fd, out), ERRNO(EIO, -1))
WRAP(int, sched_getaffinity, (pid_t pid, size_t bytes, cpu_set_t *cores), (pid, bytes, cores),
     ERRNO(EINVAL, -1))
WRAP(int, fallocate, (int fd, int mode, off_t offset, off_t bytes), (fd, mode, offset, bytes),
     ERRNO(ENOSPC, -1))
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode), ERRNO(EPERM, -1))
WRAP(int, fstat, (int fd, struct stat *out), (fd, out), ERRNO(EIO, -1))
WRAP(int, stat, (const char *path, struct stat *out), (path, out), ERRNO(EACCES, -1))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), ERRNO(EACCES, -1))
WRAP(int, rename, (const char *from, const char *to), (from, to), ERRNO(EIO, -1))
WRAP(int, renameat, (int from_dir, const char *from, int to_dir, const char *to),
     (from_dir, from, to_dir, to), ERRNO(EIO, -1))
WRAP_WAIT(int, flock, (int fd, int operation), (fd, operation), ERRNO(EIO, -1))
WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol), ERRNO(EMFILE, -1))
WRAP(int, bind, (int fd, const struct sockaddr *address, socklen_t bytes), (fd, address, bytes),
     ERRNO(EACCES, -1))
WRAP(int, setsockopt, (int fd, int level, int option, const void *value, socklen_t bytes),
     (fd, level, option, value, bytes), ERRNO(EINVAL, -1))
WRAP_WAIT(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags),
          ERRNO(ENOBUFS, -1))
WRAP_WAIT(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags),
          ERRNO(EIO, -1))
WRAP_WAIT(ssize_t, read, (int fd, void *data, size_t bytes), (fd, data, bytes), ERRNO(EIO, -1))
WRAP_WAIT(ssize_t, write, (int fd, const void *data, size_t bytes), (fd, data, bytes),
          ERRNO(EIO, -1))
WRAP(int, pthread_mutex_init, (pthread_mutex_t * mutex, const pthread_mutexattr_t *attributes),
     (mutex, attributes), return ENOMEM)
WRAP_MAKER(int, pthread_cond_init,
           (pthread_cond_t * condition, const pthread_condattr_t *attributes),
           (condition, attributes), return ENOMEM, result == 0)
WRAP(int, pthread_condattr_init, (pthread_condattr_t * attributes), (attributes), return ENOMEM)
WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*body)(void *), void *arg),
     (thread, attributes, body, arg), return EAGAIN)
WRAP(int, gethostname, (char *name, size_t capacity), (name, capacity), ERRNO(EPERM, -1))
WRAP_WAIT(ssize_t, getrandom, (void *bytes, size_t count, unsigned flags), (bytes, count, flags),
          ERRNO(ENOSYS, -1))

/* This one returns its error. */
int __real_posix_fallocate(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes) {
    if (fails("posix_fallocate", true))
        return interrupts ? EINTR : ENOSPC;
    return __real_posix_fallocate(fd, offset, bytes);
}

/* These are variadic. */
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    /* As a file system that cannot make nameless files: then another way has to be found. */
    if (fails("open", false))
        ERRNO((flags & O_TMPFILE) == O_TMPFILE ? EOPNOTSUPP : EACCES, -1);
    return __real_open(path, flags, mode);
}

int __real_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (fails("openat", false))
        ERRNO(EMFILE, -1);
    return __real_openat(directory, path, flags, mode);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    long argument = va_arg(args, long);
    va_end(args);
    if (fails("fcntl", false))
        ERRNO(EMFILE, -1);
    return __real_fcntl(fd, command, argument);
}
