/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who made a socket. A library beneath a backend may keep sockets, and let programs inherit them,
 * which are not the backend's to give back (SM-LIFE-12): the runner's socket, socketpair and accept
 * stand before the C library's and remember whose code asked. A sanitizer has functions of its own
 * here: then every socket is taken for one of ours.
 */
#include "kit_internal.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#if !KIT_OWNS_ALLOCATION

bool tk_is_foreign_socket(int fd) {
    (void)fd;
    return false;
}

#else

#define MAX_SOCKETS 4096
#define EXPORTED __attribute__((visibility("default")))

/* A process-wide thing by nature: descriptors are. By descriptor; a number's last socket counts. No
 * lock, which a child of fork might find taken: the caller counts if its number is the socket's. */
static struct {
    _Atomic uint64_t number;
    _Atomic(const void *) caller;
} origins[MAX_SOCKETS];
static int note(int fd, const void *caller) {
    struct stat info;
    if (fd < 0 || fd >= MAX_SOCKETS || fstat(fd, &info) != 0)
        return fd;
    atomic_store(&origins[fd].number, 0);
    atomic_store(&origins[fd].caller, caller);
    atomic_store(&origins[fd].number, info.st_ino);
    return fd;
}

EXPORTED int socket(int domain, int type, int protocol) {
    return note((int)syscall(SYS_socket, domain, type, protocol), __builtin_return_address(0));
}

EXPORTED int socketpair(int domain, int type, int protocol, int pair[2]) {
    int result = (int)syscall(SYS_socketpair, domain, type, protocol, pair);
    for (int i = 0; result == 0 && i < 2; i++)
        (void)note(pair[i], __builtin_return_address(0));
    return result;
}

EXPORTED int accept(int fd, struct sockaddr *address, socklen_t *bytes) {
    return note((int)syscall(SYS_accept4, fd, address, bytes, 0), __builtin_return_address(0));
}

EXPORTED int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags) {
    return note((int)syscall(SYS_accept4, fd, address, bytes, flags), __builtin_return_address(0));
}

bool tk_is_foreign_socket(int fd) {
    struct stat info;
    if (fd < 0 || fd >= MAX_SOCKETS || fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode))
        return false;
    const void *caller = atomic_load(&origins[fd].caller);
    return caller != NULL && atomic_load(&origins[fd].number) == info.st_ino &&
           !kit_heap_is_others(caller) && !kit_is_judged(caller);
}

#endif
