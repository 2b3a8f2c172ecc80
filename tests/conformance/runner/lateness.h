/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How late the machine is by itself. A process sleeps again and again and notes how late it woke,
 * and now and then how long it takes to start a process and see its end. What takes longer than it
 * may is judged by that: on a machine that wakes a sleeping process 100 ms late nobody can do in
 * 50 ms what takes two wakings.
 */
#ifndef SYMMEM_RUNNER_LATENESS_H
#define SYMMEM_RUNNER_LATENESS_H

#include <stdatomic.h>
#include <stdint.h>

#define LATENESS_PERIODS 1024
#define LATENESS_PERIOD_MS 250

/* The worst of one period, and the sum of all. */
struct lateness_period {
    _Atomic uint64_t number; /* of the period, from the clock's beginning */
    _Atomic uint32_t wake_us, fork_us, sum_us;
};

/* Shared, by one writer. */
struct lateness {
    _Atomic int32_t process_id; /* of the writer; 0: there is none */
    _Atomic uint64_t due_ns;    /* when it is to be through with what it does */
    struct lateness_period periods[LATENESS_PERIODS];
};

/* What was seen from a time on. */
struct lateness_seen {
    uint32_t wake_ms, fork_ms; /* the worst */
    uint32_t sum_ms;           /* of all wakings */
};

/* `since_ns` is arena_now_ns's; with NULL all is zero. */
struct lateness_seen lateness_since(const struct lateness *lateness, uint64_t since_ns);
/* From a little before then, for what is short is over before much of it was measured. */
struct lateness_seen lateness_about(const struct lateness *lateness, uint64_t since_ns);
/* How much longer than on a quiet machine that may take which began then. */
uint32_t lateness_allowance_ms(const struct lateness *lateness, uint64_t since_ns);
/* How long a rank may be kept from running in what comes next, by what was seen of late. */
uint32_t lateness_expected_ms(const struct lateness *lateness);

#endif
