/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases that fail by time, on a machine that is late or quiet whenever they say so: late by
 * stopping the process that measures or by a crowd on the ranks' processor, quiet by having nothing
 * measured. Rank 0 does each, before the others go on.
 */
#include "kit_internal.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define STOP_MS 120
#define CROWD 10
#define WORK_MS 40

/* How often each case was run, over all processes of this run. */
enum { ONCE, HANGS_ONCE, BOUNDS, CROWDED_ONCE, RUNS_COUNT };
static _Atomic int *runs;

__attribute__((constructor)) static void share_runs(void) {
    void *memory = mmap(NULL, RUNS_COUNT * sizeof(*runs), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(1);
    runs = memory;
}

/* True in a first run. */
static bool is_first(struct tk *t, int number) {
    if (t->rank == 0)
        tk_share_u64(t, 0, (uint64_t)atomic_fetch_add(&runs[number], 1));
    tk_out_of_band_barrier(t);
    return tk_read_u64(t, 0, 0) == 0;
}

static void signal_measurer(struct tk *t, int signal_number) {
    pid_t pid = (pid_t)atomic_load(&t->own->setup->lateness->process_id);
    TK_REQUIRE(t, pid >= 2 && kill(pid, signal_number) == 0);
}

static void make_late(struct tk *t) {
    if (t->rank == 0) {
        signal_measurer(t, SIGSTOP);
        tk_sleep_ms(STOP_MS);
        signal_measurer(t, SIGCONT);
    }
    tk_out_of_band_barrier(t);
}

/* To the end of the run. What measures has this memory for itself only as long as no other code
 * asks. */
static void make_quiet(struct tk *t) {
    struct lateness *lateness = (struct lateness *)t->own->setup->lateness;
    if (t->rank == 0) {
        TK_REQUIRE(t, mprotect(lateness, sizeof(*lateness), PROT_READ | PROT_WRITE) == 0);
        atomic_store(&lateness->process_id, 0);
    }
    tk_out_of_band_barrier(t);
}

static uint64_t worked_ms(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000;
}

static void work(void) {
    for (uint64_t begin_ms = worked_ms(); worked_ms() < begin_ms + WORK_MS;)
        continue;
}

static pid_t start_spinning(void) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (uint64_t begin_ms = worked_ms(); worked_ms() < begin_ms + 5000;)
            continue;
        _exit(0);
    }
    return pid;
}

/* The work, while others want the one processor that the ranks have. When it began. */
static uint64_t work_in_crowd(struct tk *t) {
    pid_t crowd[CROWD] = {0};
    cpu_set_t before, one;
    size_t first = 0;
    sched_getaffinity(0, sizeof(before), &before);
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    TK_REQUIRE(t, sched_setaffinity(0, sizeof(one), &one) == 0);
    for (int i = 0; i < CROWD && t->rank == 0; i++)
        TK_CHECK(t, (crowd[i] = start_spinning()) >= 2);
    tk_out_of_band_barrier(t);
    uint64_t begin_ms = tk_now_ms();
    work();
    for (int i = 0; i < CROWD; i++)
        if (crowd[i] >= 2 && kill(crowd[i], SIGKILL) == 0)
            (void)waitpid(crowd[i], NULL, 0);
    sched_setaffinity(0, sizeof(before), &before);
    return begin_ms;
}

/* The process that sleeps is hardly late then. */
TK_TEST(late, crowded, "SM-SELF-02", .timeout_s = 10) {
    uint64_t begin_ms = work_in_crowd(t);
    TK_WITHIN(t, 2 * WORK_MS, begin_ms);
}

TK_TEST(late, crowded_once, "SM-SELF-02", .timeout_s = 10) {
    if (is_first(t, CROWDED_ONCE)) {
        (void)work_in_crowd(t);
        TK_TIMELY(t, false, "a rank was kept from running");
    } else {
        TK_AT_LEAST(t, 10 + 2 * WORK_MS, tk_limit_ms(t, 10));
    }
}

TK_TEST(late, once, "SM-SELF-02", .timeout_s = 10) {
    bool first = is_first(t, ONCE);
    make_late(t);
    TK_TIMELY(t, !first, "a rank was kept from running");
}

TK_TEST(late, always, "SM-SELF-02", .timeout_s = 10) {
    make_late(t);
    TK_STATUS(t, SYMMEM_OK, t->rank == 1 ? SYMMEM_TIMEOUT : SYMMEM_POISONED);
}

TK_TEST(late, quiet, "SM-SELF-02", .timeout_s = 10) {
    make_quiet(t);
    TK_TIMELY(t, false, "a rank was kept from running");
}

TK_TEST(late, another_check, "SM-SELF-02", .timeout_s = 10) {
    make_late(t);
    TK_TIMELY(t, false, "a rank was kept from running");
    TK_CHECK(t, t->rank != 0);
}

TK_TEST(late, another_rank, "SM-SELF-02", .timeout_s = 10) {
    make_late(t);
    TK_TIMELY(t, t->rank == 0, "a rank was kept from running");
    TK_STATUS(t, SYMMEM_OK, t->rank == 0 ? SYMMEM_LIMIT : SYMMEM_OK);
}

/* Poison without a limit that has passed is no matter of time. */
TK_TEST(late, poison_alone, "SM-SELF-02", .timeout_s = 10) {
    make_late(t);
    TK_STATUS(t, SYMMEM_OK, SYMMEM_POISONED);
}

TK_TEST(late, hangs_once, "SM-SELF-02", .timeout_s = 1) {
    bool first = is_first(t, HANGS_ONCE);
    if (t->rank == 0)
        signal_measurer(t, first ? SIGSTOP : SIGCONT);
    TK_CHECK(t, true);
    while (first)
        pause();
}

TK_TEST(late, late_bounds, "SM-SELF-02", .timeout_s = 10) {
    uint64_t begin_ms = tk_now_ms();
    make_late(t);
    TK_WITHIN(t, STOP_MS / 4, begin_ms);
    TK_AT_LEAST(t, STOP_MS, tk_late_ms(t, begin_ms));
    if (is_first(t, BOUNDS))
        TK_TIMELY(t, false, "so that it is run again");
    else
        TK_AT_LEAST(t, 10 + STOP_MS, tk_limit_ms(t, 10));
}

TK_TEST(late, quiet_bounds, "SM-SELF-02", .timeout_s = 10) {
    make_quiet(t);
    TK_EQ_INT(t, 0, tk_late_ms(t, 0));
    TK_WITHIN(t, 1000, tk_now_ms() - 500);
    TK_WITHIN(t, STOP_MS / 4, tk_now_ms() - STOP_MS);
}

/* The process that runs the case, if it is one of several. */
TK_TEST(jobs, ends_its_job, "SM-SELF-02", .flags = TK_PROCESS_ONLY) {
    char own[32] = "", above[32] = "", path[64];
    pid_t parent = getppid();
    int of_parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)parent);
    FILE *file = fopen(path, "re");
    for (char line[128]; file != NULL && fgets(line, sizeof(line), file) != NULL;)
        (void)sscanf(line, "PPid: %d", &of_parent);
    if (file != NULL)
        fclose(file);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "/proc/%d/comm", i == 0 ? (int)parent : of_parent);
        file = fopen(path, "re");
        (void)(file != NULL && fgets(i == 0 ? own : above, sizeof(own), file) != NULL);
        if (file != NULL)
            fclose(file);
    }
    TK_REQUIRE(t, parent >= 2 && own[0] != '\0' && strcmp(own, above) == 0);
    if (t->rank == 0)
        kill(parent, SIGKILL);
    tk_sleep_ms(5000);
}
