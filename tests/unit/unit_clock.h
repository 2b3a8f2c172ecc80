/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A clock on which nothing has to be waited for: when all its threads wait, it is as late as the
 * first of them waits for. So a limit of ten seconds passes at once, and never because the machine
 * kept a thread from running: who runs, or could, holds the time. In memory that forked ranks
 * share.
 *
 * Each thread that waits by the clock counts: the one that opens it, those that unit_clock_threads
 * announces before they are started, and the library's own. A thread that sleeps in another way, as
 * in pthread_join, takes itself off for as long as that.
 *
 * A thread that waits has looked for what it waits for since it last came back from here. So when
 * nothing has changed since then for any of them, nothing will.
 */
#ifndef SYMMEM_UNIT_CLOCK_H
#define SYMMEM_UNIT_CLOCK_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <symmem/context.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct unit_clock {
    symmem_clock clock;
    pthread_mutex_t lock;
    _Atomic uint32_t changes; /* a futex */
    _Atomic uint64_t now_ns;
    int threads, waiting; /* since the last change */
    uint64_t earliest_ns; /* that one of them waits for */
} unit_clock;

/* The changes when this thread came back from its last wait. */
static _Thread_local uint32_t unit_clock_seen;

/* A process may be killed while it has the lock. */
static inline void unit_clock_lock(unit_clock *self) {
    if (pthread_mutex_lock(&self->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&self->lock);
}

/* With the lock. */
static inline void unit_clock_change(unit_clock *self) {
    atomic_fetch_add(&self->changes, 1);
    self->waiting = 0;
    self->earliest_ns = UINT64_MAX;
    syscall(SYS_futex, &self->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Advances the clock, with the lock held. If no thread's wait has an end, only an event from
 * outside can change something. */
static inline void unit_clock_pass(unit_clock *self) {
    if (self->waiting < self->threads || self->waiting == 0 || self->earliest_ns == UINT64_MAX)
        return;
    atomic_store(&self->now_ns, self->earliest_ns);
    unit_clock_change(self);
}

static inline uint64_t unit_clock_now_ns(void *arg) {
    return atomic_load(&((unit_clock *)arg)->now_ns);
}

static inline void unit_clock_wait(void *arg, uint64_t until_ns) {
    const struct timespec look_again = {.tv_nsec = 20000000};
    unit_clock *self = arg;
    unit_clock_lock(self);
    const uint32_t changes = atomic_load(&self->changes);
    if (changes == unit_clock_seen && until_ns > atomic_load(&self->now_ns)) {
        self->waiting++;
        if (until_ns < self->earliest_ns)
            self->earliest_ns = until_ns;
        unit_clock_pass(self);
        pthread_mutex_unlock(&self->lock);
        syscall(SYS_futex, &self->changes, FUTEX_WAIT, changes, &look_again, NULL, 0);
        unit_clock_lock(self);
        if (atomic_load(&self->changes) == changes)
            self->waiting--;
    }
    unit_clock_seen = atomic_load(&self->changes);
    pthread_mutex_unlock(&self->lock);
}

static inline void unit_clock_changed(void *arg) {
    unit_clock *self = arg;
    unit_clock_lock(self);
    unit_clock_change(self);
    pthread_mutex_unlock(&self->lock);
}

static inline void unit_clock_threads(void *arg, int change) {
    unit_clock *self = arg;
    unit_clock_lock(self);
    self->threads += change;
    unit_clock_pass(self);
    pthread_mutex_unlock(&self->lock);
}

/* How many threads count. */
static inline int unit_clock_count(unit_clock *self) {
    unit_clock_lock(self);
    const int threads = self->threads;
    pthread_mutex_unlock(&self->lock);
    return threads;
}

/* A process with one of them was killed, perhaps while it waited. */
static inline void unit_clock_lost(unit_clock *self) {
    unit_clock_changed(self);
    unit_clock_threads(self, -1);
}

static inline void unit_clock_sleep_ns(unit_clock *self, uint64_t ns) {
    for (uint64_t until_ns = unit_clock_now_ns(self) + ns; unit_clock_now_ns(self) < until_ns;)
        unit_clock_wait(self, until_ns);
}

/* NULL without memory. */
static inline unit_clock *unit_clock_open(void) {
    static uint32_t opened; /* so that no thread takes this clock's changes for another's */
    unit_clock *self =
        mmap(NULL, sizeof(*self), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t shared;
    if (self == MAP_FAILED)
        return NULL;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&self->lock, &shared);
    pthread_mutexattr_destroy(&shared);
    self->clock = (symmem_clock){.size = sizeof(self->clock),
                                 .arg = self,
                                 .now_ns = unit_clock_now_ns,
                                 .wait = unit_clock_wait,
                                 .changed = unit_clock_changed,
                                 .threads = unit_clock_threads};
    atomic_init(&self->changes, ++opened << 20);
    atomic_init(&self->now_ns, 1000000000);
    self->threads = 1;
    self->earliest_ns = UINT64_MAX;
    return self;
}

static inline void unit_clock_close(unit_clock *self) {
    munmap(self, sizeof(*self));
}

#endif
