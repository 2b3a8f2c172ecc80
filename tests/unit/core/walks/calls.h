/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The system and library calls that tests let fail, each with its class and the result of its
 * failure. A file that includes this makes functions of them with its own macros:
 *
 *   CALL(class, waits, type, name, parameters, arguments, error, result)  sets errno, gives result
 *   CALL_RETURNS(class, waits, name, parameters, arguments, error)        gives the error itself
 *   NAME(name), REAL(name)   the name of the replacement, and of the real function
 *   FAILS(class, waits, name)  true: this call fails
 *
 * waits: a signal may interrupt the call. Calls that allocate memory are not listed here.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

CALL(FILES, false, int, shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode),
     EMFILE, -1)
CALL(FILES, false, int, memfd_create, (const char *name, unsigned flags), (name, flags), EMFILE, -1)
CALL(FILES, false, int, ftruncate, (int fd, off_t bytes), (fd, bytes), EIO, -1)
CALL(FILES, false, int, unlinkat, (int directory, const char *name, int flags),
     (directory, name, flags), EIO, -1)
CALL(FILES, false, int, faccessat, (int directory, const char *name, int mode, int flags),
     (directory, name, mode, flags), EACCES, -1)
CALL(FILES, false, int, fstatat, (int directory, const char *name, struct stat *out, int flags),
     (directory, name, out, flags), EIO, -1)
CALL(FILES, false, int, fstatvfs, (int fd, struct statvfs *out), (fd, out), EIO, -1)
CALL(FILES, false, int, fallocate, (int fd, int mode, off_t offset, off_t bytes),
     (fd, mode, offset, bytes), ENOSPC, -1)
CALL_RETURNS(FILES, true, posix_fallocate, (int fd, off_t offset, off_t bytes), (fd, offset, bytes),
             ENOSPC)
CALL(FILES, false, int, fchmod, (int fd, mode_t mode), (fd, mode), EPERM, -1)
CALL(FILES, false, int, fstat, (int fd, struct stat *out), (fd, out), EIO, -1)
CALL(FILES, false, int, stat, (const char *path, struct stat *out), (path, out), EACCES, -1)
CALL(FILES, false, int, mkdir, (const char *path, mode_t mode), (path, mode), EACCES, -1)
CALL(FILES, false, int, utimensat,
     (int directory, const char *name, const struct timespec times[2], int flags),
     (directory, name, times, flags), EIO, -1)
CALL(FILES, false, int, rename, (const char *from, const char *to), (from, to), EIO, -1)
CALL(FILES, false, int, renameat, (int from_dir, const char *from, int to_dir, const char *to),
     (from_dir, from, to_dir, to), EIO, -1)
CALL(FILES, true, int, flock, (int fd, int operation), (fd, operation), EIO, -1)
CALL(FILES, true, ssize_t, read, (int fd, void *data, size_t bytes), (fd, data, bytes), EIO, -1)
CALL(FILES, true, ssize_t, write, (int fd, const void *data, size_t bytes), (fd, data, bytes), EIO,
     -1)

CALL(SOCKETS, false, int, socket, (int domain, int type, int protocol), (domain, type, protocol),
     EMFILE, -1)
CALL(SOCKETS, false, int, bind, (int fd, const struct sockaddr *address, socklen_t bytes),
     (fd, address, bytes), EACCES, -1)
CALL(SOCKETS, false, int, setsockopt,
     (int fd, int level, int option, const void *value, socklen_t bytes),
     (fd, level, option, value, bytes), EINVAL, -1)
CALL(SOCKETS, true, ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags),
     (fd, message, flags), ENOBUFS, -1)
CALL(SOCKETS, true, ssize_t, recvmsg, (int fd, struct msghdr *message, int flags),
     (fd, message, flags), EIO, -1)
CALL(SOCKETS, true, int, poll, (struct pollfd * fds, nfds_t count, int timeout_ms),
     (fds, count, timeout_ms), ENOMEM, -1)

CALL_RETURNS(THREADS, false, pthread_mutex_init,
             (pthread_mutex_t * mutex, const pthread_mutexattr_t *attributes), (mutex, attributes),
             ENOMEM)
CALL_RETURNS(THREADS, false, pthread_condattr_init, (pthread_condattr_t * attributes), (attributes),
             ENOMEM)
CALL_RETURNS(THREADS, false, pthread_create,
             (pthread_t * thread, const pthread_attr_t *attributes, void *(*body)(void *),
              void *arg),
             (thread, attributes, body, arg), EAGAIN)

CALL(SYSTEM, false, int, gethostname, (char *name, size_t capacity), (name, capacity), EPERM, -1)
CALL(SYSTEM, true, ssize_t, getrandom, (void *bytes, size_t count, unsigned flags),
     (bytes, count, flags), ENOSYS, -1)
CALL(SYSTEM, false, int, sched_getaffinity, (pid_t pid, size_t bytes, cpu_set_t *cores),
     (pid, bytes, cores), EINVAL, -1)

/* These are variadic. */
int NAME(open)(const char *path, int flags, ...);
int NAME(open)(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    /* Fails like a file system without nameless files, for which the caller needs another way. */
    if (FAILS(FILES, false, open)) {
        errno = (flags & O_TMPFILE) == O_TMPFILE ? EOPNOTSUPP : EACCES;
        return -1;
    }
    return REAL(open)(path, flags, mode);
}

int NAME(openat)(int directory, const char *path, int flags, ...);
int NAME(openat)(int directory, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (FAILS(FILES, false, openat)) {
        errno = EMFILE;
        return -1;
    }
    return REAL(openat)(directory, path, flags, mode);
}

int NAME(fcntl)(int fd, int command, ...);
int NAME(fcntl)(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    long argument = va_arg(args, long);
    va_end(args);
    if (FAILS(FILES, false, fcntl)) {
        errno = EMFILE;
        return -1;
    }
    return REAL(fcntl)(fd, command, argument);
}
