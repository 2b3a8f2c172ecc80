/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for words in shared memory. A thread spins for a moment, then sleeps in the kernel on the
 * very word that will change. So a rank is woken by the one it waits for and not by every arrival.
 *
 * No wake-up is lost. The sleeper counts itself in its header, then reads the word. The changer
 * changes the word, then reads the count. All four accesses are seq_cst, so one of the two sees the
 * other. The barrier's store is not, but a seq_cst access lies between it and the read. If a
 * wake-up were lost all the same (a killed process), the next tick would find out.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "wait.h"
#include "error.h"
#include "signals.h"

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull
/* How often a sleeper checks whether its peers still live. */
#define TICK_NS (50 * NS_PER_MS)
#define TICK_MANY_NS (250 * NS_PER_MS)
#define MANY_RANKS 16
/* About 50 us. That costs little unless others need the processor to get here. */
#define SPIN_COUNT 2000
/* Reading the clock takes longer than most waits of ranks that are close together. */
#define SPINS_BEFORE_CLOCK 4
/* How long a rank yields to others before it sleeps. */
#define YIELD_NS 50000ull
#define SLOW_YIELD_NS 500000ull
#define NO_YIELD_WAITS 1000

_Static_assert(sizeof(shm_word) == 4 && ATOMIC_INT_LOCK_FREE == 2,
               "signals need lock-free 32-bit words, as wide as a futex");
_Static_assert(sizeof(shm_signal_header) == 64, "one cache line");

uint64_t shm_now_ns(const symmem_clock *clock) {
    struct timespec now;
    if (__builtin_expect(clock != NULL, false))
        return clock->now_ns(clock->arg);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static struct timespec to_timespec(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

uint64_t shm_deadline_ns(const symmem_clock *clock, uint32_t timeout_ms) {
    return timeout_ms == 0 ? 0 : shm_now_ns(clock) + timeout_ms * NS_PER_MS;
}

int shm_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error != 0)
        return error;
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (error == 0)
        error = pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
    return error;
}

bool shm_cond_wait(const symmem_clock *clock, pthread_cond_t *cond, pthread_mutex_t *lock,
                   uint64_t deadline_ns) {
    if (clock != NULL) {
        pthread_mutex_unlock(lock);
        clock->wait(clock->arg, deadline_ns == 0 ? UINT64_MAX : deadline_ns);
        pthread_mutex_lock(lock);
        return deadline_ns == 0 || shm_now_ns(clock) < deadline_ns;
    }
    if (deadline_ns == 0) {
        pthread_cond_wait(cond, lock);
        return true;
    }
    struct timespec until = to_timespec(deadline_ns);
    return pthread_cond_timedwait(cond, lock, &until) != ETIMEDOUT;
}

void shm_cond_wake(const symmem_clock *clock, pthread_cond_t *cond) {
    pthread_cond_broadcast(cond);
    if (clock != NULL)
        clock->changed(clock->arg);
}

static shm_signal_header *header_of(const symmem_peers *peers, int32_t rank) {
    return peers->signals[rank];
}

/* Sleeps while *word is `value`, at most for `ns`. Returns true if it was woken. */
static bool futex_wait(shm_word *word, uint32_t value, uint64_t ns) {
    struct timespec limit = to_timespec(ns);
    return syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0) == 0;
}

void shm_wake(const symmem_peers *peers, int32_t rank, shm_word *word) {
    /* seq_cst; pairs with: the count in sleep_until_ready */
    if (atomic_load_explicit(&header_of(peers, rank)->sleepers, memory_order_seq_cst) == 0)
        return;
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    const symmem_clock *clock = shm_clock(peers->host);
    if (clock != NULL)
        clock->changed(clock->arg);
}

bool shm_has_slept(const shm_signal_header *header, int32_t channel) {
    /* acquire; pairs with: note_sleep */
    return (atomic_load_explicit(&header->slept[channel / 32], memory_order_acquire) >>
                (channel % 32) &
            1) != 0;
}

/* Comes before the count of sleepers, so a thread that sees the new count sees this too. */
static void note_sleep(shm_signal_header *own, int32_t channel) {
    if (channel >= SHM_WAKE_CHANNELS || shm_has_slept(own, channel))
        return;
    /* release; pairs with: shm_has_slept */
    atomic_fetch_or_explicit(&own->slept[channel / 32], 1u << (channel % 32), memory_order_release);
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Returns whether the wait concerns `rank` and it has not arrived. */
static bool is_missing_rank(const shm_wait *wait, int32_t rank) {
    if (wait->rank >= 0)
        return rank == wait->rank;
    return (wait->own_too || rank != wait->peers->rank) && !wait->peek(wait, rank);
}

symmem_status shm_wait_fault(const shm_wait *wait, symmem_status status, int32_t failed_rank,
                             int32_t awaited_rank, symmem_fault *fault_p) {
    memset(fault_p, 0, sizeof *fault_p);
    fault_p->operation = wait->operation;
    fault_p->status = status;
    fault_p->channel = wait->channel;
    fault_p->elapsed_ns =
        wait->start_ns != 0 ? shm_now_ns(shm_clock(wait->peers->host)) - wait->start_ns : 0;
    fault_p->failed_rank = failed_rank;
    if (status == SYMMEM_POISONED && failed_rank < 0)
        fault_p->failed_rank = wait->peers->rank;
    if (status != SYMMEM_TIMEOUT && status != SYMMEM_PEER_LOST)
        return status; /* no rank is late */
    int32_t count = 0;
    int32_t last = -1;
    for (int32_t rank = 0; rank < wait->peers->world_size; rank++) {
        /* The awaited rank was missing when the failure was decided, even if it has arrived
         * since. */
        if (rank != awaited_rank && !is_missing_rank(wait, rank))
            continue;
        fault_p->missing[rank / 64] |= 1ull << (rank % 64);
        count++;
        last = rank;
    }
    if (failed_rank < 0 && count == 1)
        fault_p->failed_rank = last;
    return status;
}

uint64_t shm_wait_tick_ns(const symmem_peers *peers) {
    return peers->world_size > MANY_RANKS ? TICK_MANY_NS : TICK_NS;
}

symmem_status shm_wait_check(const shm_wait *wait, int32_t *failed_rank_p) {
    const symmem_peers *peers = wait->peers;
    for (int32_t rank = 0; rank < peers->world_size; rank++) {
        if (!is_missing_rank(wait, rank))
            continue;
        /* Work that the rank finished before it ended or was poisoned counts, so look again. */
        symmem_status status = SYMMEM_OK;
        if (peers->host->peer_state(peers, rank) == SYMMEM_PEER_GONE)
            status = SYMMEM_PEER_LOST;
        /* acquire; pairs with: the store in shm_signal_poison */
        else if (atomic_load_explicit(&header_of(peers, rank)->poisoned, memory_order_acquire) != 0)
            status = SYMMEM_POISONED;
        if (status != SYMMEM_OK && !wait->peek(wait, rank)) {
            *failed_rank_p = rank;
            return status;
        }
    }
    *failed_rank_p = -1;
    return peers->host->is_poisoned(peers) ? SYMMEM_POISONED : SYMMEM_OK;
}

/* Sleeps once, for at most a tick, so that peers and the deadline are checked. */
static symmem_status sleep_once(const shm_wait *wait, int32_t rank, uint32_t value,
                                uint64_t *next_check_ns_p, int32_t *failed_rank_p) {
    const symmem_clock *clock = shm_clock(wait->peers->host);
    uint64_t now_ns = shm_now_ns(clock);
    uint64_t limit_ns = wait->timeout_ms * NS_PER_MS;
    uint64_t deadline_ns = limit_ns > 0 ? wait->start_ns + limit_ns : UINT64_MAX;
    if (now_ns >= deadline_ns || now_ns >= *next_check_ns_p) {
        symmem_status status = shm_wait_check(wait, failed_rank_p);
        if (status != SYMMEM_OK)
            return status;
        if (now_ns >= deadline_ns)
            return wait->peek(wait, rank) ? SYMMEM_OK : SYMMEM_TIMEOUT;
        *next_check_ns_p = now_ns + shm_wait_tick_ns(wait->peers);
    }
    uint64_t until_ns = deadline_ns < *next_check_ns_p ? deadline_ns : *next_check_ns_p;
    shm_failpoint_notify(wait->peers->host, "shm.sleep*");
    /* Woken without a change of the word, as a poisoned peer does. With a clock of the program the
     * reason is unknown. */
    if (clock != NULL) {
        clock->wait(clock->arg, until_ns);
        *next_check_ns_p = 0;
    } else if (futex_wait(wait->word(wait, rank), value, until_ns - now_ns)) {
        *next_check_ns_p = 0;
    }
    return SYMMEM_OK;
}

static symmem_status wait_corrupt(const shm_wait *wait, int32_t rank, uint32_t value,
                                  symmem_fault *fault_p) {
    shm_wait_fault(wait, SYMMEM_CORRUPT, rank, rank, fault_p);
    fault_p->actual = value;
    return SYMMEM_CORRUPT;
}

static symmem_status sleep_until_ready(const shm_wait *wait, int32_t rank, symmem_fault *fault_p) {
    shm_signal_header *own = header_of(wait->peers, wait->peers->rank);
    uint64_t next_check_ns = wait->start_ns + shm_wait_tick_ns(wait->peers);
    note_sleep(own, wait->channel);
    /* seq_cst; pairs with: the load in shm_wake */
    atomic_fetch_add_explicit(&own->sleepers, 1, memory_order_seq_cst);
    symmem_status status = SYMMEM_OK;
    int32_t failed_rank = -1;
    uint32_t value = 0;
    shm_seen seen;
    while ((seen = wait->attempt(wait, rank, &value)) == SHM_MISSING) {
        status = sleep_once(wait, rank, value, &next_check_ns, &failed_rank);
        if (status != SYMMEM_OK)
            break;
    }
    atomic_fetch_sub_explicit(&own->sleepers, 1, memory_order_relaxed);
    if (seen == SHM_BROKEN)
        return wait_corrupt(wait, rank, value, fault_p);
    return status == SYMMEM_OK ? status : shm_wait_fault(wait, status, failed_rank, rank, fault_p);
}

/* Polls `count` times. Returns SHM_MISSING if the rank did not arrive. */
static shm_seen spin(const shm_wait *wait, int32_t rank, int32_t count, uint32_t *value_p) {
    shm_seen seen = SHM_MISSING;
    for (int32_t i = 0; i < count && seen == SHM_MISSING; i++) {
        seen = wait->attempt(wait, rank, value_p);
        if (seen == SHM_MISSING)
            relax();
    }
    return seen;
}

/* Publishes and returns the processor on which this rank runs. */
static uint32_t own_processor(const shm_wait *wait) {
    shm_word *word = &header_of(wait->peers, wait->peers->rank)->processor;
    uint32_t now = (uint32_t)sched_getcpu() + 1; /* 0 for the error -1 */
    /* relaxed: a hint */
    if (atomic_load_explicit(word, memory_order_relaxed) != now)
        atomic_store_explicit(word, now, memory_order_relaxed);
    return now;
}

/* Returns whether `rank` began its last wait on this processor. Then it is most likely not running,
 * and spinning would only delay it. Sleeping also makes the kernel move the two apart. */
static bool last_waited_on(const shm_wait *wait, int32_t rank, uint32_t processor) {
    return processor != 0 && atomic_load_explicit(&header_of(wait->peers, rank)->processor,
                                                  memory_order_relaxed) == processor;
}

/* Returns whether ranks have to share processors. */
static bool shares_processors(const shm_wait *wait, uint32_t processor) {
    if (wait->peers->local_rank_count <= wait->core_count)
        return false;
    if (wait->core_count > 1)
        return true;
    /* This process is bound to one processor, as launchers often do. So it matters which other
     * ranks use it. */
    for (int32_t rank = 0; rank < wait->peers->world_size; rank++)
        if (rank != wait->peers->rank && last_waited_on(wait, rank, processor))
            return true;
    return false;
}

/* If ranks share processors, the awaited one may be next on this one. Yielding is then much cheaper
 * than a sleep and its wake-up. But other programs take whole time slices of milliseconds. After
 * such a slice the next waits sleep at once. */
static shm_seen yield_to_peers(const shm_wait *wait, int32_t rank, uint32_t *value_p) {
    shm_word *no_yield_waits = &header_of(wait->peers, wait->peers->rank)->no_yield_waits;
    /* relaxed: only this rank's threads use it, and it need not be exact */
    uint32_t left = atomic_load_explicit(no_yield_waits, memory_order_relaxed);
    if (left > 0) {
        atomic_store_explicit(no_yield_waits, left - 1, memory_order_relaxed);
        return SHM_MISSING;
    }
    shm_seen seen = SHM_MISSING;
    uint64_t start_ns = shm_now_ns(NULL), now_ns = start_ns;
    while (seen == SHM_MISSING && now_ns - start_ns < YIELD_NS) {
        sched_yield();
        seen = spin(wait, rank, 1, value_p);
        now_ns = shm_now_ns(NULL);
    }
    if (now_ns - start_ns > SLOW_YIELD_NS)
        atomic_store_explicit(no_yield_waits, NO_YIELD_WAITS, memory_order_relaxed);
    return seen;
}

static symmem_status wait_for(shm_wait *wait, int32_t rank, symmem_fault *fault_p) {
    uint32_t value;
    shm_seen seen = spin(wait, rank, SPINS_BEFORE_CLOCK, &value);
    if (seen == SHM_MISSING) {
        if (wait->start_ns == 0)
            wait->start_ns = shm_now_ns(shm_clock(wait->peers->host));
        uint32_t processor = own_processor(wait);
        if (shares_processors(wait, processor))
            seen = yield_to_peers(wait, rank, &value);
        else if (!last_waited_on(wait, rank, processor))
            seen = spin(wait, rank, SPIN_COUNT, &value);
    }
    if (seen == SHM_BROKEN)
        return wait_corrupt(wait, rank, value, fault_p);
    return seen == SHM_READY ? SYMMEM_OK : sleep_until_ready(wait, rank, fault_p);
}

symmem_status shm_wait_run(shm_wait *wait, symmem_fault *fault_p) {
    if (wait->rank >= 0)
        return wait_for(wait, wait->rank, fault_p);
    for (int32_t rank = 0; rank < wait->peers->world_size; rank++) {
        if (rank == wait->peers->rank && !wait->own_too)
            continue;
        symmem_status status = wait_for(wait, rank, fault_p);
        if (status != SYMMEM_OK)
            return status;
    }
    return SYMMEM_OK;
}
