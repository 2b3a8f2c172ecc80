/* SPDX-License-Identifier: BSD-3-Clause */
#include "runner.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SLEEP_MS 10
#define SLEEPS_TO_A_FORK 8
#define USUAL_FORK_US 5000
/* A call that ranks make together has some of them wait for each other more than once. */
#define WAKINGS_OF_A_CALL 4
/* Who is so late does not measure any more: no lateness excuses anything then. */
#define GONE_MS 30000u
#define RECENT_MS UINT64_C(2000)

static void raise_to(_Atomic uint32_t *most, uint64_t value) {
    uint32_t new = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
    uint32_t old = atomic_load_explicit(most, memory_order_relaxed);
    while (new > old && !atomic_compare_exchange_weak_explicit(
                            most, &old, new, memory_order_relaxed, memory_order_relaxed))
        continue;
}

static struct lateness_period *period_at(struct lateness_ring *ring, uint64_t now_ns) {
    uint64_t number = now_ns / (LATENESS_PERIOD_MS * 1000000u);
    struct lateness_period *period = &ring->periods[number % LATENESS_PERIODS];
    if (atomic_load_explicit(&period->number, memory_order_relaxed) != number) {
        atomic_store_explicit(&period->wake_us, 0, memory_order_relaxed);
        atomic_store_explicit(&period->fork_us, 0, memory_order_relaxed);
        atomic_store_explicit(&period->sum_us, 0, memory_order_relaxed);
        /* pairs with: lateness_since */
        atomic_store_explicit(&period->number, number, memory_order_release);
    }
    return period;
}

void lateness_note(struct lateness_ring *ring, uint64_t late_us) {
    struct lateness_period *period = period_at(ring, arena_now_ns());
    raise_to(&period->wake_us, late_us);
    atomic_fetch_add_explicit(&period->sum_us, (uint32_t)late_us, memory_order_relaxed);
}

/* When it is through with what it does now. */
static uint64_t be_due(struct lateness *lateness) {
    uint64_t due_ns = arena_now_ns() + SLEEP_MS * 1000000u;
    atomic_store_explicit(&lateness->due_ns, due_ns, memory_order_relaxed);
    return due_ns;
}

static void measure_waking(struct lateness *lateness) {
    uint64_t due_ns = be_due(lateness);
    tk_sleep_ms(SLEEP_MS);
    uint64_t now_ns = arena_now_ns();
    lateness_note(&lateness->ring, now_ns > due_ns ? (now_ns - due_ns) / 1000u : 0);
}

/* Less what it took at best, or what that usually takes, for it is no lateness. */
static void measure_fork(struct lateness *lateness) {
    static uint64_t best_us = USUAL_FORK_US;
    uint64_t start_ns = be_due(lateness) - SLEEP_MS * 1000000u;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    if (pid < 0 || waitpid(pid, NULL, 0) != pid)
        return;
    uint64_t took_us = (arena_now_ns() - start_ns) / 1000u;
    best_us = took_us < best_us ? took_us : best_us;
    if (took_us > best_us)
        raise_to(&period_at(&lateness->ring, arena_now_ns())->fork_us, took_us - best_us);
}

static void measure(struct lateness *lateness) __attribute__((noreturn));
static void measure(struct lateness *lateness) {
    for (unsigned round = 0;; round++) {
        measure_waking(lateness);
        if (round % SLEEPS_TO_A_FORK == 0)
            measure_fork(lateness);
    }
}

/* It is late now, and has not noted it. */
static uint64_t overdue_us(const struct lateness *lateness, uint64_t now_ns) {
    uint64_t due_ns = atomic_load_explicit(&lateness->due_ns, memory_order_relaxed);
    return now_ns > due_ns ? (now_ns - due_ns) / 1000u : 0;
}

static struct lateness_seen seen_in(const struct lateness_ring *ring, uint64_t since_ns) {
    const uint64_t length_ns = LATENESS_PERIOD_MS * 1000000u;
    uint64_t last = arena_now_ns() / length_ns, first = since_ns / length_ns;
    uint64_t wake_us = 0, fork_us = 0, sum_us = 0;
    if (last >= LATENESS_PERIODS && first < last - LATENESS_PERIODS + 1)
        first = last - LATENESS_PERIODS + 1;
    for (uint64_t number = first; number <= last; number++) {
        const struct lateness_period *period = &ring->periods[number % LATENESS_PERIODS];
        if (atomic_load_explicit(&period->number, memory_order_acquire) != number)
            continue;
        uint64_t wake = atomic_load_explicit(&period->wake_us, memory_order_relaxed);
        uint64_t fork = atomic_load_explicit(&period->fork_us, memory_order_relaxed);
        wake_us = wake > wake_us ? wake : wake_us;
        fork_us = fork > fork_us ? fork : fork_us;
        sum_us += atomic_load_explicit(&period->sum_us, memory_order_relaxed);
    }
    return (struct lateness_seen){.wake_ms = (uint32_t)(wake_us / 1000u),
                                  .fork_ms = (uint32_t)(fork_us / 1000u),
                                  .sum_ms = (uint32_t)(sum_us / 1000u)};
}

struct lateness_seen lateness_since(const struct lateness *lateness,
                                    const struct lateness_ring *delays, uint64_t since_ns) {
    struct lateness_seen kept = {0};
    if (lateness == NULL || atomic_load_explicit(&lateness->process_id, memory_order_relaxed) == 0)
        return (struct lateness_seen){0};
    uint64_t overdue_ms = overdue_us(lateness, arena_now_ns()) / 1000u;
    if (overdue_ms > GONE_MS)
        return (struct lateness_seen){0};
    struct lateness_seen seen = seen_in(&lateness->ring, since_ns);
    if (overdue_ms > seen.wake_ms)
        seen.wake_ms = (uint32_t)overdue_ms;
    if (delays != NULL)
        kept = seen_in(delays, since_ns);
    seen.kept_ms = kept.wake_ms;
    seen.sum_ms = kept.sum_ms > seen.sum_ms ? kept.sum_ms : seen.sum_ms;
    return seen;
}

uint32_t lateness_of_a_call(const struct lateness_seen *seen) {
    uint32_t machine_ms = seen->wake_ms > seen->fork_ms ? seen->wake_ms : seen->fork_ms;
    return WAKINGS_OF_A_CALL * (machine_ms > seen->kept_ms ? machine_ms : seen->kept_ms);
}

uint32_t lateness_allowance_ms(const struct lateness *lateness, const struct lateness_ring *delays,
                               uint64_t since_ns) {
    struct lateness_seen seen = lateness_since(lateness, delays, since_ns);
    return lateness_of_a_call(&seen) + seen.sum_ms;
}

struct lateness_seen lateness_about(const struct lateness *lateness,
                                    const struct lateness_ring *delays, uint64_t since_ns) {
    return lateness_since(lateness, delays, since_ns - RECENT_MS * 1000000u);
}

void lateness_open(struct runner *runner) {
    const int fd =
        runner->options.launcher == NULL ? -1 : arena_descriptor(sizeof(*runner->lateness));
    const int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0);
    struct lateness *lateness = mmap(NULL, sizeof(*lateness), PROT_READ | PROT_WRITE, flags, fd, 0);
    if (lateness == MAP_FAILED || (runner->options.launcher != NULL && fd < 0))
        return;
    runner->lateness_fd = fd;
    if (!delay_is_counted())
        fputs("symmem-conformance: this kernel does not say how long threads wait for a processor: "
              "the machine is as late as a process that sleeps\n",
              stderr);
    (void)be_due(lateness); /* to begin */
    pid_t pid = runner_fork(runner);
    if (pid == 0)
        measure(lateness);
    atomic_store_explicit(&lateness->process_id, pid > 0 ? (int32_t)pid : 0, memory_order_relaxed);
    runner->lateness = lateness;
    /* No rank's stray. */
    if (pid > 0)
        runner->others[runner->other_count++] = pid;
    /* From here on it is only read, by this process and those that it starts. */
    (void)mprotect(lateness, sizeof(*lateness), PROT_READ);
}

void lateness_close(struct runner *runner) {
    struct lateness *lateness = runner->lateness;
    if (lateness == NULL)
        return;
    pid_t pid = (pid_t)atomic_load_explicit(&lateness->process_id, memory_order_relaxed);
    if (pid >= 2) {
        kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    munmap(lateness, sizeof(*lateness));
    runner->lateness = NULL;
}

/* --- how long threads had no processor -------------------------------------------------------- */

/* A thread's number is below 2^22. */
#define NUMBER_BITS 22

/* The second of three numbers; false: the thread has ended, or the kernel does not count. */
static bool read_count(int directory, const char *name, uint64_t *us_p) {
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    char text[64], *end = text;
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    (void)strtoull(text, &end, 10);
    *us_p = strtoull(end, NULL, 10) / 1000u;
    return true;
}

/* What has come since anybody looked at the thread. Two threads with one place in the table, of
 * 4096, would be counted anew each time; numbers that follow one another have places apart. */
static uint64_t increment(struct arena *arena, uint32_t number, uint64_t count_us) {
    uint64_t now = count_us << NUMBER_BITS | number;
    uint64_t before = atomic_exchange_explicit(&arena->threads[number % ARENA_THREADS], now,
                                               memory_order_relaxed);
    uint64_t known_us = before >> NUMBER_BITS;
    if (before % (UINT64_C(1) << NUMBER_BITS) != number)
        known_us = 0;
    return count_us > known_us ? count_us - known_us : 0;
}

bool delay_is_counted(void) {
    uint64_t us;
    return read_count(AT_FDCWD, "/proc/thread-self/schedstat", &us);
}

void delay_note_own(struct arena *arena) {
    uint64_t us;
    if (read_count(AT_FDCWD, "/proc/thread-self/schedstat", &us))
        lateness_note(&arena->delays, increment(arena, (uint32_t)syscall(SYS_gettid), us));
}

uint64_t delay_of_process_us(struct arena *arena, pid_t pid) {
    uint64_t most = 0, us;
    char name[64];
    snprintf(name, sizeof(name), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(name);
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        snprintf(name, sizeof(name), "%.20s/schedstat", task->d_name);
        if (task->d_name[0] == '.' || !read_count(dirfd(tasks), name, &us))
            continue;
        us = increment(arena, (uint32_t)strtoul(task->d_name, NULL, 10), us);
        most = us > most ? us : most;
    }
    if (tasks != NULL)
        closedir(tasks);
    return most;
}
