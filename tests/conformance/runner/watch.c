/* SPDX-License-Identifier: BSD-3-Clause */
/* The watchdog: waits for the ranks of a case, ends them when time is up, reaps all. */
#include "launcher.h"

#include <sys/wait.h>
#include <time.h>

#define TERM_GRACE_MS 2000
/* How long the other ranks may go on after one has crashed. */
#define CRASH_GRACE_MS 3000
#define STRAY_DEADLINE_MS 2000

static void mark_gone(struct runner_run *run, int child) {
    if (run->child_count == run->entry->ranks && run->runner->options.mode == TK_MODE_PROCESS)
        arena_set_gone(run->runner->arena, child);
}

/* The same of ranks that are a launcher's. */
static int collect_launched(struct runner_run *run) {
    int running = 0;
    launcher_collect(run);
    for (int i = 0; i < run->child_count; i++) {
        struct runner_child *child = &run->children[i];
        running += child->pid >= 2;
        if (child->pid >= 2 || child->gone || !child->started)
            continue;
        child->gone = true;
        mark_gone(run, i);
    }
    return running;
}

/* Reaps children that have ended; how many still run. */
static int reap(struct runner_run *run) {
    int running = 0;
    if (run->launcher != NULL)
        return collect_launched(run);
    if (run->by_crew)
        crew_collect(run);
    for (int i = 0; i < run->child_count; i++) {
        struct runner_child *child = &run->children[i];
        if (child->pid < 2)
            continue;
        if (waitpid(child->pid, &child->status, WNOHANG) == child->pid) {
            crew_forget(run->runner->crew, child->pid);
            child->pid = 0;
            mark_gone(run, i);
        } else {
            running++;
        }
    }
    return running;
}

/* To every child that was not reaped; with `group` also to what it started. A child that was not
 * reaped keeps its number, so neither the process nor its group can be a stranger's. */
static void signal_running(struct runner_run *run, int signal_number, bool group) {
    for (int i = 0; i < run->child_count; i++) {
        pid_t pid = run->children[i].pid;
        if (pid < 2)
            continue;
        if (run->launcher != NULL) {
            launcher_signal(run, i, signal_number, group);
            continue;
        }
        if (group)
            kill(-pid, signal_number);
        kill(pid, signal_number);
    }
}

static bool ended_badly(const struct runner_run *run, int i) {
    const struct runner_child *child = &run->children[i];
    struct arena_rank *rank = &run->runner->arena->ranks[i];
    if (!child->started || child->pid != 0)
        return false;
    if (WIFSIGNALED(child->status) && WTERMSIG(child->status) == SIGKILL &&
        atomic_load_explicit(&rank->death_expected, memory_order_relaxed) != 0)
        return false;
    /* A sanitizer's report changes the status after the rank is done; no one waits for it then. */
    return atomic_load_explicit(&rank->state, memory_order_relaxed) != ARENA_DONE;
}

static bool some_ended_badly(const struct runner_run *run) {
    for (int i = 0; i < run->child_count; i++)
        if (ended_badly(run, i))
            return true;
    return false;
}

void runner_take_interrupt(struct runner *runner) {
    const struct timespec none = {0, 0};
    int got = sigtimedwait(&runner->interrupts, NULL, &none);
    if (got > 0)
        runner->interrupted = got;
}

/* Sleeps until a child ends, a signal ends the run, or time is up. */
static void sleep_for_signal(struct runner *runner, uint64_t until_ns) {
    uint64_t now = arena_now_ns();
    uint64_t left = until_ns > now ? until_ns - now : 0;
    /* Who prints goes on printing, and does not notify; nor does who ends a case and goes on. */
    uint64_t most =
        output_drain(runner->output) || runner->crew != NULL || runner->options.launcher != NULL
            ? 1000000u
            : DELAY_LOOK_MS * 1000000u;
    report_tick(runner);
    if (left > most)
        left = most; /* a stop and a continue in between must not lose a child */
    struct timespec limit = (struct timespec){.tv_sec = 0, .tv_nsec = (long)left};
    sigset_t awaited = runner->interrupts;
    sigaddset(&awaited, SIGCHLD);
    int got = sigtimedwait(&awaited, NULL, &limit);
    if (got > 0 && got != SIGCHLD)
        runner->interrupted = got;
}

static bool some_open_devices(const struct runner_run *run) {
    for (int i = 0; i < run->child_count; i++)
        if (run->children[i].pid != 0 &&
            atomic_load_explicit(&run->runner->arena->ranks[i].state, memory_order_relaxed) ==
                ARENA_OPENING)
            return true;
    return false;
}

/* Whether the case's time begins later: when the devices are open. Not if the user asked for short
 * cases, and only once in a run for devices that never open. */
static bool stands_still(struct runner_run *run, uint64_t now, uint64_t open_by) {
    struct runner *runner = run->runner;
    if (runner->options.timeout_s != 0 || runner->opens_slowly || !some_open_devices(run))
        return false;
    runner->opens_slowly = now >= open_by;
    return !runner->opens_slowly;
}

/* How long the ranks were kept from running since the last look. With many threads a look takes its
 * time, so that there are fewer. */
static void look_at_delays(struct runner_run *run) {
    uint64_t start = arena_now_ns(), most_us = 0;
    if (start < run->next_look_ns)
        return;
    for (int i = 0; i < run->child_count; i++)
        if (run->children[i].pid >= 2) {
            uint64_t us = delay_of_process_us(run->runner->arena, run->children[i].pid);
            most_us = us > most_us ? us : most_us;
        }
    lateness_note(&run->runner->arena->delays, most_us);
    uint64_t took_ns = arena_now_ns() - start;
    run->next_look_ns = start + took_ns * 20 + DELAY_LOOK_MS * 1000000u;
}

/* What a late machine adds to a limit, at most as much again. Ranks that hang in a loop keep each
 * other from running, which is no reason to wait for them. */
static uint64_t lateness_ns(const struct runner *runner, uint64_t start, uint64_t limit_ns) {
    uint64_t more = (uint64_t)lateness_allowance_ms(runner->lateness, NULL, start) * 1000000u;
    return more < limit_ns ? more : limit_ns;
}

/* Waits until all have ended or the case's time is up, which a crash brings nearer; true if all
 * ended. */
static bool wait_for_end(struct runner_run *run, uint64_t limit_ns, bool *crashed_p) {
    uint64_t crash_grace =
        (uint64_t)(CRASH_GRACE_MS * run->runner->options.timeout_scale) * 1000000u;
    uint64_t start = arena_now_ns(), deadline = start + limit_ns;
    uint64_t open_by = arena_now_ns() + (uint64_t)tk_scaled_ms(ARENA_OPENING_MS) * 1000000u;
    while (reap(run) > 0) {
        uint64_t now = arena_now_ns();
        look_at_delays(run);
        if (!*crashed_p && stands_still(run, now, open_by))
            deadline = now + limit_ns;
        if (!*crashed_p && some_ended_badly(run)) {
            *crashed_p = true;
            if (now + crash_grace < deadline)
                deadline = now + crash_grace;
        }
        if (run->runner->interrupted != 0 ||
            (now >= deadline && now >= deadline + lateness_ns(run->runner, start, limit_ns)))
            return false;
        sleep_for_signal(run->runner, deadline);
    }
    return true;
}

static void wait_some(struct runner_run *run, uint32_t ms) {
    uint64_t deadline = arena_now_ns() + (uint64_t)ms * 1000000u;
    while (reap(run) > 0 && arena_now_ns() < deadline)
        sleep_for_signal(run->runner, deadline);
}

/* Once the ranks that hang are ended, one that waits for them may go on to its own end. */
static bool waits_for_others(const struct runner_run *run, int rank) {
    return run->runner->options.mode == TK_MODE_PROCESS &&
           atomic_load_explicit(&run->runner->arena->ranks[rank].state, memory_order_relaxed) ==
               ARENA_BODY_DONE;
}

static void end_running(struct runner_run *run, bool crashed) {
    for (int i = 0; i < run->child_count; i++)
        if (run->children[i].pid >= 2) {
            run->children[i].interrupted = run->runner->interrupted != 0;
            run->children[i].stopped = crashed || run->children[i].interrupted;
            run->children[i].hung = !run->children[i].stopped;
            run->children[i].waited = run->children[i].hung && waits_for_others(run, i);
        }
    signal_running(run, SIGTERM, false);
    signal_running(run, SIGCONT, false); /* a stopped rank can only end when it runs */
    wait_some(run, TERM_GRACE_MS);
    signal_running(run, SIGKILL, true);
    while (reap(run) > 0)
        sleep_for_signal(run->runner, arena_now_ns() + 100000000u);
}

/* The kernel's list of our children; NULL: not known. */
static FILE *open_children(void) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    return fopen(path, "re");
}

void runner_note_others(struct runner *runner) {
    FILE *list = open_children();
    int pid;
    while (list != NULL && runner->other_count < RUNNER_MAX_OTHERS && fscanf(list, "%d", &pid) == 1)
        runner->others[runner->other_count++] = pid;
    if (list != NULL)
        fclose(list);
}

/* Its place among the others, -1 for all that we started or that comes from the ranks. */
static int find_other(const struct runner *runner, pid_t pid) {
    for (int i = 0; i < runner->other_count; i++)
        if (runner->others[i] == pid)
            return i;
    return -1;
}

/* Ends the processes that the kernel lists as our children, the crew and others' apart: orphans of
 * the ranks, which come to us because the controller is their subreaper. How many there are. */
static int kill_listed_children(const struct runner *runner) {
    FILE *list = open_children();
    int pid, count = 0;
    if (list == NULL)
        return 1; /* not known */
    while (fscanf(list, "%d", &pid) == 1)
        if (pid >= 2 && !crew_has(runner->crew, pid) && find_other(runner, pid) < 0) {
            kill(pid, SIGKILL);
            count++;
        }
    fclose(list);
    return count;
}

static bool is_starter(const struct runner *runner, pid_t pid) {
    for (int rank = 0; rank < runner->options.ranks; rank++)
        if (runner->starters[rank] == pid)
            return true;
    return false;
}

static int end_strays(struct runner *runner) {
    uint64_t deadline = arena_now_ns() + (uint64_t)STRAY_DEADLINE_MS * 1000000u;
    int strays = 0, other;
    for (;;) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0)
            return strays; /* no children */
        if (pid == 0) {
            if (kill_listed_children(runner) == 0)
                return strays; /* the crew and others' alone */
            if (arena_now_ns() > deadline)
                return strays + 1;
            tk_sleep_ms(1);
        } else if ((other = find_other(runner, pid)) >= 0) {
            runner->others[other] = 0; /* its number may be a rank's next */
        } else if (crew_has(runner->crew, pid)) {
            crew_lost(runner->crew, pid, status);
        } else if (is_starter(runner, pid)) {
            continue; /* its launcher's, which has ended */
        } else if (!WIFEXITED(status) || WEXITSTATUS(status) == RUNNER_RANK_DONE) {
            strays++; /* one that ended by itself did no harm, but for a second self of a rank */
        }
    }
}

bool runner_await(struct runner *runner, pid_t pid, uint64_t timeout_ms, int *status_p) {
    uint64_t deadline = arena_now_ns() + timeout_ms * 1000000u;
    pid_t got;
    while ((got = waitpid(pid, status_p, WNOHANG)) == 0 && arena_now_ns() < deadline &&
           runner->interrupted == 0)
        sleep_for_signal(runner, deadline);
    if (got == 0) { /* not reaped, so the number is still that child's */
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        while (waitpid(pid, status_p, 0) < 0 && errno == EINTR)
            continue;
    }
    end_strays(runner);
    return got == pid;
}

void runner_watch(struct runner_run *run) {
    uint64_t limit_ns = (uint64_t)run->timeout_ms * 1000000u;
    bool crashed = false;
    if (run->fork_failed || !wait_for_end(run, limit_ns, &crashed))
        end_running(run, crashed || run->fork_failed);
    launcher_finish(run);
    run->strays = end_strays(run->runner);
    if (run->launch_fault[0] != '\0')
        run->strays = 0; /* of a launcher that was ended */
    runner_take_interrupt(run->runner);
}
