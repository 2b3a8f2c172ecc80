/* SPDX-License-Identifier: BSD-3-Clause */
/* One call to the system that fails, through the linker's --wrap; CMakeLists.txt lists the calls.
 */
#ifndef SYMMEM_UNIT_STORE_FAULTS_H
#define SYMMEM_UNIT_STORE_FAULTS_H

#include "unit.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

typedef struct fault {
    const char *call; /* NULL: any of them */
    int error;
    int skips;   /* so many of these calls succeed first */
    bool others; /* calls of the threads that have not armed it */
} fault;

static struct {
    pthread_mutex_t lock;
    fault fault;
    pthread_t by;
    bool is_armed, has_struck;
} armed = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void arm(fault next) {
    pthread_mutex_lock(&armed.lock);
    armed.fault = next;
    armed.by = pthread_self();
    armed.is_armed = true;
    armed.has_struck = false;
    pthread_mutex_unlock(&armed.lock);
}

/* Whether the call has failed. */
static inline bool disarm(void) {
    pthread_mutex_lock(&armed.lock);
    const bool struck = armed.has_struck;
    armed.is_armed = false;
    pthread_mutex_unlock(&armed.lock);
    return struck;
}

static inline bool has_struck(void) {
    pthread_mutex_lock(&armed.lock);
    const bool struck = armed.has_struck;
    pthread_mutex_unlock(&armed.lock);
    return struck;
}

static inline bool strikes(const char *call) {
    pthread_mutex_lock(&armed.lock);
    const fault *next = &armed.fault;
    const bool is_mine = pthread_equal(armed.by, pthread_self()) != 0;
    bool now = armed.is_armed && is_mine != next->others &&
               (next->call == NULL || strcmp(next->call, call) == 0);
    if (now && armed.fault.skips-- > 0)
        now = false;
    if (now) {
        armed.is_armed = false;
        armed.has_struck = true;
        errno = next->error;
    }
    pthread_mutex_unlock(&armed.lock);
    return now;
}

#define FAULTY(type, call, failure, parameters, arguments)                                         \
    type __real_##call parameters;                                                                 \
    type __wrap_##call parameters;                                                                 \
    type __wrap_##call parameters {                                                                \
        return strikes(#call) ? (failure) : __real_##call arguments;                               \
    }

FAULTY(void *, malloc, NULL, (size_t bytes), (bytes))
FAULTY(void *, calloc, NULL, (size_t count, size_t bytes), (count, bytes))
FAULTY(void *, realloc, NULL, (void *old, size_t bytes), (old, bytes))
FAULTY(int, socket, -1, (int family, int type, int protocol), (family, type, protocol))
FAULTY(int, bind, -1, (int fd, const struct sockaddr *at, socklen_t bytes), (fd, at, bytes))
FAULTY(int, listen, -1, (int fd, int backlog), (fd, backlog))
FAULTY(int, accept4, -1, (int fd, struct sockaddr *from, socklen_t *bytes, int flags),
       (fd, from, bytes, flags))
FAULTY(ssize_t, send, -1, (int fd, const void *from, size_t bytes, int flags),
       (fd, from, bytes, flags))
FAULTY(int, ppoll, -1,
       (struct pollfd * fds, nfds_t count, const struct timespec *left, const sigset_t *mask),
       (fds, count, left, mask))
FAULTY(int, epoll_create1, -1, (int flags), (flags))
FAULTY(int, epoll_ctl, -1, (int fd, int what, int of, struct epoll_event *event),
       (fd, what, of, event))
FAULTY(int, epoll_wait, -1, (int fd, struct epoll_event *events, int count, int ms),
       (fd, events, count, ms))
FAULTY(int, eventfd, -1, (unsigned first, int flags), (first, flags))
FAULTY(symmem_status, sm_random, sm_fail_errno(EIO, "random", "", "no source"),
       (void *bytes, size_t count), (bytes, count))
FAULTY(int, sm_cond_init, errno, (pthread_cond_t * condition), (condition))
FAULTY(int, sm_thread_create, errno, (pthread_t * thread_p, void *(*run)(void *), void *arg),
       (thread_p, run, arg))

/* connect also binds the socket to where it connects to. */
static bool binds_to_target;
int __real_connect(int fd, const struct sockaddr *to, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t bytes) {
    if (strikes("connect"))
        return -1;
    return binds_to_target && __real_bind(fd, to, bytes) != 0 ? -1 : __real_connect(fd, to, bytes);
}

/* recv also gives what the thread has set instead of what came. */
static _Thread_local ssize_t (*received)(void *bytes, size_t count);
ssize_t __real_recv(int fd, void *bytes, size_t count, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t count, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t count, int flags) {
    if (strikes("recv"))
        return -1;
    return received != NULL ? received(bytes, count) : __real_recv(fd, bytes, count, flags);
}

#endif
