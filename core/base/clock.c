/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time: what the core asks for it and where it sleeps, by the machine's clock or by the one that
 * the context's options name. Deadlines are handed from function to function without their context,
 * so that the clock is the thread's, of the context that it called last.
 */
#include "base/base.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

atomic_bool sm_clocks_are_used;
static _Thread_local const symmem_clock *set_clock;

void sm_clock_set(const symmem_clock *clock) {
    atomic_store_explicit(&sm_clocks_are_used, true, memory_order_relaxed);
    set_clock = clock;
}

/* The thread's, or NULL. */
static inline const symmem_clock *own_clock(void) {
    /* What this thread has set it has seen. */
    return __builtin_expect(atomic_load_explicit(&sm_clocks_are_used, memory_order_relaxed), false)
               ? set_clock
               : NULL;
}

void sm_clock_changed(void) {
    const symmem_clock *clock = own_clock();
    if (clock != NULL)
        clock->changed(clock->arg);
}

uint64_t sm_now_ns(void) {
    struct timespec now;
    const symmem_clock *clock = own_clock();
    if (__builtin_expect(clock != NULL, false))
        return clock->now_ns(clock->arg);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t sm_deadline_ns(uint32_t timeout_ms) {
    return timeout_ms == 0 ? 0 : sm_now_ns() + timeout_ms * NS_PER_MS;
}

bool sm_expired(uint64_t deadline_ns) {
    return deadline_ns != 0 && sm_now_ns() >= deadline_ns;
}

uint32_t sm_remaining_ms(uint64_t deadline_ns, uint32_t cap_ms) {
    if (deadline_ns == 0)
        return cap_ms;
    uint64_t now_ns = sm_now_ns();
    if (now_ns >= deadline_ns)
        return 0;
    /* Rounded up: a caller that sleeps this long has really reached the deadline. */
    uint64_t left_ms = (deadline_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
    return left_ms < cap_ms ? (uint32_t)left_ms : cap_ms;
}

uint32_t sm_limit_ms(uint64_t deadline_ns) {
    if (deadline_ns == 0)
        return 0;
    const uint32_t left_ms = sm_remaining_ms(deadline_ns, UINT32_MAX - 1);
    return left_ms > 0 ? left_ms : 1;
}

static struct timespec to_timespec(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

void sm_sleep_ns(uint64_t ns) {
    struct timespec left = to_timespec(ns);
    const symmem_clock *clock = own_clock();
    if (clock != NULL) {
        const uint64_t until_ns = sm_now_ns() + ns;
        while (sm_now_ns() < until_ns)
            clock->wait(clock->arg, until_ns);
        return;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

int sm_cond_init(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error != 0)
        return error;
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (error == 0)
        error = pthread_cond_init(condition, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return error;
}

bool sm_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t deadline_ns) {
    const struct timespec until = to_timespec(deadline_ns);
    const symmem_clock *clock = own_clock();
    if (clock != NULL) {
        (void)pthread_mutex_unlock(mutex);
        clock->wait(clock->arg, deadline_ns == 0 ? UINT64_MAX : deadline_ns);
        (void)pthread_mutex_lock(mutex);
        return !sm_expired(deadline_ns);
    }
    if (deadline_ns != 0)
        return pthread_cond_timedwait(condition, mutex, &until) != ETIMEDOUT;
    (void)pthread_cond_wait(condition, mutex);
    return true;
}

void sm_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns) {
    const struct timespec limit = to_timespec(ns);
    const symmem_clock *clock = own_clock();
    if (clock != NULL)
        clock->wait(clock->arg, sm_now_ns() + ns);
    else
        syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

int sm_poll(int fd, uint32_t ms) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    const uint64_t ns = ms * NS_PER_MS;
    const symmem_clock *clock = own_clock();
    if (clock == NULL)
        return poll(&poll_fd, 1, (int)ms);
    clock->wait(clock->arg, sm_now_ns() + ns);
    return 0;
}
