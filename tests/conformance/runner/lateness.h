/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How late the machine is by itself. A process sleeps again and again and notes how late it woke,
 * and now and then how long it takes to start a process and see its end. What takes longer than it
 * may is compared with that: on a machine that wakes a sleeping process 100 ms late no process does
 * in 50 ms what takes two wakings. A scheduler may favor such a process, though. So the ranks'
 * threads are asked, too, how long they could have run and had no processor.
 */
#ifndef SYMMEM_RUNNER_LATENESS_H
#define SYMMEM_RUNNER_LATENESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LATENESS_PERIODS 1024
#define LATENESS_PERIOD_MS 250

/* The worst of one period, and the sum of all. */
struct lateness_period {
    _Atomic uint64_t number; /* of the period, from the clock's beginning */
    _Atomic uint32_t wake_us, fork_us, sum_us;
};

struct lateness_ring {
    struct lateness_period periods[LATENESS_PERIODS];
};

/* Shared, by one writer. */
struct lateness {
    _Atomic int32_t process_id; /* of the writer; 0: nothing is measured */
    _Atomic uint64_t due_ns;    /* when it is to be through with what it does */
    struct lateness_ring ring;
};

/* What was seen from a time on. */
struct lateness_seen {
    uint32_t wake_ms, fork_ms; /* the worst */
    uint32_t kept_ms;          /* the longest that a rank's thread could run and did not */
    uint32_t sum_ms;           /* of all wakings, or of what a case was kept */
};

/* `since_ns` is arena_now_ns's; with `lateness` NULL all is zero. `delays`: a case's, or NULL. */
struct lateness_seen lateness_since(const struct lateness *lateness,
                                    const struct lateness_ring *delays, uint64_t since_ns);
/* From a little before then, for what is short is over before much of it was measured. */
struct lateness_seen lateness_about(const struct lateness *lateness,
                                    const struct lateness_ring *delays, uint64_t since_ns);
/* How much longer than on a quiet machine that may take which began then. */
uint32_t lateness_allowance_ms(const struct lateness *lateness, const struct lateness_ring *delays,
                               uint64_t since_ns);
/* How much longer a call that ranks make together may take by what was seen. */
uint32_t lateness_of_a_call(const struct lateness_seen *seen);

/* Something was that late just now. By any thread: at a period's end one may get lost. */
void lateness_note(struct lateness_ring *ring, uint64_t late_us);

/*
 * How long a case's threads could have run and had no processor, as the kernel counts it for each
 * thread. The watchdog looks now and then, at helpers and what a backend started too; what has come
 * since the last look goes to the arena's delays. A thread's count is gone when it ends, so each
 * rank notes its own at its end and where a check fails by time.
 */
struct arena;

/* At the least between two looks of the watchdog. */
#define DELAY_LOOK_MS 50

/* Whether the kernel counts. */
bool delay_is_counted(void);
/* Of the thread of the process that waited the longest since the last look. */
uint64_t delay_of_process_us(struct arena *arena, pid_t pid);
/* Of the calling thread. */
void delay_note_own(struct arena *arena);

#endif
