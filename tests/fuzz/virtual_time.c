/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time that passes at once where the product sleeps: a wait costs nothing, and its deadline is
 * still kept or not. For targets with one thread, through the linker's --wrap.
 */
#include "fuzz.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

static uint64_t slept_ns;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    int result = __real_clock_gettime(clock, now);
    if (result != 0 || clock != CLOCK_MONOTONIC)
        return result;
    uint64_t ns = (uint64_t)now->tv_nsec + slept_ns;
    now->tv_sec += (time_t)(ns / 1000000000u);
    now->tv_nsec = (long)(ns % 1000000000u);
    return 0;
}

int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *span,
                           struct timespec *left);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *span,
                           struct timespec *left) {
    (void)left;
    FUZZ_CHECK(clock == CLOCK_MONOTONIC && flags == 0);
    slept_ns += (uint64_t)span->tv_sec * 1000000000u + (uint64_t)span->tv_nsec;
    return 0;
}

int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    int ready = __real_poll(fds, count, 0);
    FUZZ_CHECK(ready != 0 || timeout_ms >= 0); /* nobody would ever wake it */
    if (ready == 0)
        slept_ns += (uint64_t)timeout_ms * 1000000u;
    return ready;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
    long a[6] = {0};
    int count = number == SYS_futex ? 6 : 5; /* no other call of the product has that many */
    va_list args;
    va_start(args, number);
    for (int i = 0; i < count; i++) /* more than were given do no harm */
        a[i] = va_arg(args, long);
    va_end(args);
    if (number != SYS_futex || (a[1] & FUTEX_CMD_MASK) != FUTEX_WAIT || a[3] == 0)
        return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    struct timespec limit;
    memcpy(&limit, (const void *)(uintptr_t)a[3], sizeof(limit));
    slept_ns += (uint64_t)limit.tv_sec * 1000000000u + (uint64_t)limit.tv_nsec;
    errno = ETIMEDOUT;
    return -1;
}
