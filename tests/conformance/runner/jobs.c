/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several cases at a time, for most of a case is waiting. Each job is a process that does what the
 * controller of a single job does: it has a memory for the ranks' results, kept ranks, a pipe for
 * what ranks print and, where that is permitted, a /dev/shm of its own, and it ends its ranks and
 * their orphans. It takes one case after the other over a socket and sends the results back
 * (job.c). The controller shows them in the plan's order, whichever ended first.
 *
 * Nothing that a case counts is shared with another's: names have places of their own, descriptors,
 * mappings and threads are counted by process. Only what is run again because the machine was late
 * runs alone.
 */
#include "runner.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MOST_BY_DEFAULT 8
/* Ranks that one processor serves at a time: mostly they wait. */
#define RANKS_OF_A_PROCESSOR 8
#define TICK_MS 50
#define DLPACK_CPU 1
#define END_GRACE_MS 10000

enum stage { WAITING, WAITING_ALONE, RUNNING, DONE };

struct job {
    pid_t pid; /* 0: none */
    int fd;
    int index; /* what it runs; -1: it is idle */
};

struct runner_jobs {
    struct runner *runner;
    int count;
    unsigned char *stages;       /* of everything planned, in all rounds */
    struct runner_again *agains; /* how often each was run without a verdict */
    int first_waiting;           /* nothing before it is WAITING */
    int alone_waiting;           /* how many are WAITING_ALONE */
    bool alone;                  /* what runs is to run alone */
    bool told;                   /* the jobs know that the run was interrupted */
    char bad_ends[192];          /* what was wrong with ranks that a job kept; empty: nothing */
    struct job jobs[RUNNER_MAX_JOBS];
};

static int processors(void) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof(cores), &cores) == 0)
        return CPU_COUNT(&cores);
    return (int)sysconf(_SC_NPROCESSORS_ONLN); /* more than the set can hold */
}

/* On a device cases would be in each other's way, and in one /dev/shm they would see each other's
 * names. What ranks print as they run is to lie beside their case, and ranks are kept where
 * starting them is dear. A launcher's engine spins while it waits. */
static int default_count(const struct runner *runner) {
    int count = processors() * RANKS_OF_A_PROCESSOR / runner->options.ranks;
    if (runner->arena->probe.device_type != DLPACK_CPU || runner->options.verbose ||
        runner->options.keep_ranks || runner->options.launcher != NULL || !runner->private_shm ||
        !private_shm_is_permitted())
        return 1;
    return count < 1 ? 1 : count > MOST_BY_DEFAULT ? MOST_BY_DEFAULT : count;
}

/* In a job's process. */
static void close_others(const struct runner_jobs *jobs) {
    for (int i = 0; i < jobs->count; i++)
        if (jobs->jobs[i].pid > 0)
            close(jobs->jobs[i].fd);
}

static bool start_job(struct runner_jobs *jobs, struct job *job) {
    int fds[2];
    *job = (struct job){.index = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        return false;
    job->pid = runner_fork(jobs->runner);
    if (job->pid == 0) {
        close(fds[0]);
        close_others(jobs);
        job_serve(jobs->runner, fds[1]);
    }
    close(fds[1]);
    job->fd = fds[0];
    if (job->pid > 0)
        return true;
    close(job->fd);
    job->pid = 0;
    return false;
}

static void forget_job(struct job *job) {
    close(job->fd);
    *job = (struct job){.index = -1};
}

/* Waits until the job has ended, at most until the deadline, and ends it then: its ranks end with
 * it. */
static int reap_job(struct job *job, uint64_t deadline_ns) {
    int status = 0;
    while (job->pid >= 2 && waitpid(job->pid, &status, WNOHANG) == 0) {
        if (arena_now_ns() > deadline_ns)
            kill(job->pid, SIGKILL);
        tk_sleep_ms(1);
    }
    forget_job(job);
    return status;
}

static int busy_jobs(const struct runner_jobs *jobs) {
    int busy = 0;
    for (int i = 0; i < jobs->count; i++)
        busy += jobs->jobs[i].index >= 0;
    return busy;
}

static void wait_alone(struct runner_jobs *jobs, int index) {
    jobs->stages[index] = WAITING_ALONE;
    jobs->alone_waiting++;
}

static bool is_large(const struct runner_jobs *jobs, int index) {
    const struct runner *runner = jobs->runner;
    return (runner->entries[index % runner->entry_count].test->flags & TK_LARGE) != 0;
}

/* The first before `end` that is in that stage, and large or not; -1: none. */
static int next_of(const struct runner_jobs *jobs, enum stage stage, bool large, int end) {
    for (int i = jobs->first_waiting; i < end; i++)
        if (jobs->stages[i] == stage && is_large(jobs, i) == large)
            return i;
    return -1;
}

static int next_alone(const struct runner_jobs *jobs, int end) {
    for (int i = 0; i < end && jobs->alone_waiting > 0; i++)
        if (jobs->stages[i] == WAITING_ALONE)
            return i;
    return -1;
}

/* Large ones first, for they take long, but only one at a time: the machine's memory is to be
 * enough for the largest, not for two. */
static int next_beside(const struct runner_jobs *jobs, int end) {
    int large = -1;
    for (int i = 0; i < jobs->count; i++)
        if (jobs->jobs[i].index >= 0 && is_large(jobs, jobs->jobs[i].index))
            return next_of(jobs, WAITING, false, end);
    large = next_of(jobs, WAITING, true, end);
    return large >= 0 ? large : next_of(jobs, WAITING, false, end);
}

static bool give(struct runner_jobs *jobs, struct job *job, int index) {
    struct job_order order = {index, runner_again_late_ms(&jobs->agains[index])};
    if (job->pid == 0 && !start_job(jobs, job))
        return false;
    if (write(job->fd, &order, sizeof(order)) != (ssize_t)sizeof(order))
        return false;
    jobs->alone = jobs->stages[index] == WAITING_ALONE;
    jobs->alone_waiting -= jobs->alone;
    jobs->stages[index] = RUNNING;
    job->index = index;
    return true;
}

static void give_to_idle(struct runner_jobs *jobs, int end) {
    for (int i = 0; i < jobs->count; i++) {
        int index = jobs->jobs[i].index >= 0 ? -1 : next_beside(jobs, end);
        if (index >= 0 && !give(jobs, &jobs->jobs[i], index))
            return; /* tried again at the next tick */
    }
}

/* Of the round that ends at `end`. */
static void give_work(struct runner_jobs *jobs, int end) {
    int busy = busy_jobs(jobs);
    int alone = next_alone(jobs, end);
    if (jobs->runner->interrupted != 0 || (busy > 0 && jobs->alone))
        return;
    if (alone < 0)
        give_to_idle(jobs, end);
    else if (busy == 0)
        (void)give(jobs, &jobs->jobs[0], alone);
}

/* A job that has ended by itself takes its case with it. */
static void blame(struct runner_jobs *jobs, struct job *job) {
    int index = job->index, length;
    int status = reap_job(job, arena_now_ns() + (uint64_t)END_GRACE_MS * 1000000u);
    struct runner *runner = jobs->runner;
    if (index < 0)
        return;
    struct runner_result *result = &runner->results[index];
    *result = (struct runner_result){.entry = &runner->entries[index % runner->entry_count],
                                     .repeat = index / runner->entry_count,
                                     .verdict = VERDICT_ERROR};
    length =
        WIFSIGNALED(status)
            ? asprintf(&result->reason, "the job that ran the case was ended by signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)))
            : asprintf(&result->reason, "the job that ran the case ended with status %d",
                       WEXITSTATUS(status));
    if (length < 0)
        result->reason = NULL;
    jobs->stages[index] = DONE;
}

static void take_result(struct runner_jobs *jobs, struct job *job) {
    struct runner_result result;
    int index = job->index;
    if (index < 0 || !job_receive(job->fd, &result)) {
        blame(jobs, job);
        return;
    }
    job->index = -1;
    if (runner_wants_again(jobs->runner, &result, &jobs->agains[index])) {
        runner_note_again(&jobs->agains[index], &result);
        findings_free(&result);
        wait_alone(jobs, index);
        return;
    }
    runner_tell_again(&result, &jobs->agains[index]);
    jobs->runner->results[index] = result;
    jobs->stages[index] = DONE;
}

static void tell_of_interrupt(struct runner_jobs *jobs) {
    for (int i = 0; i < jobs->count && !jobs->told; i++)
        if (jobs->jobs[i].pid >= 2)
            kill(jobs->jobs[i].pid, SIGTERM);
    jobs->told = true;
}

static void tick(struct runner_jobs *jobs) {
    struct pollfd polled[RUNNER_MAX_JOBS];
    for (int i = 0; i < jobs->count; i++)
        polled[i] =
            (struct pollfd){.fd = jobs->jobs[i].pid == 0 ? -1 : jobs->jobs[i].fd, .events = POLLIN};
    if (poll(polled, (nfds_t)jobs->count, TICK_MS) > 0)
        for (int i = 0; i < jobs->count; i++)
            if (polled[i].revents != 0)
                take_result(jobs, &jobs->jobs[i]);
    runner_take_interrupt(jobs->runner);
    if (jobs->runner->interrupted != 0)
        tell_of_interrupt(jobs);
    report_tick(jobs->runner);
}

bool jobs_await(struct runner_jobs *jobs, int index) {
    int entry_count = jobs->runner->entry_count;
    int end = (index / entry_count + 1) * entry_count;
    jobs->first_waiting = index; /* all before it are done */
    while (jobs->stages[index] != DONE) {
        give_work(jobs, end);
        tick(jobs);
        if (jobs->runner->interrupted != 0 && jobs->stages[index] != RUNNING &&
            jobs->stages[index] != DONE)
            return false;
    }
    return true;
}

int jobs_count(const struct runner *runner) {
    int count = runner->options.jobs > 0 ? runner->options.jobs : default_count(runner);
    return count > runner->planned_count ? runner->planned_count : count;
}

static void free_jobs(struct runner_jobs *jobs) {
    free(jobs->stages);
    free(jobs->agains);
    free(jobs);
}

struct runner_jobs *jobs_open(struct runner *runner) {
    struct runner_jobs *jobs = calloc(1, sizeof(*jobs));
    if (jobs == NULL)
        return NULL;
    jobs->stages = calloc((size_t)runner->planned_count, sizeof(*jobs->stages));
    jobs->agains = calloc((size_t)runner->planned_count, sizeof(*jobs->agains));
    if (jobs->stages == NULL || jobs->agains == NULL) {
        free_jobs(jobs);
        return NULL;
    }
    jobs->runner = runner;
    jobs->count = runner->jobs;
    for (int i = 0; i < jobs->count; i++)
        jobs->jobs[i].index = -1;
    return jobs;
}

/* One that still runs a case ends it as if the run was interrupted. */
static void end_job(struct runner_jobs *jobs, struct job *job, uint64_t deadline_ns) {
    struct pollfd polled = {.fd = job->fd, .events = POLLIN};
    struct runner_result last;
    while (arena_now_ns() < deadline_ns && poll(&polled, 1, TICK_MS) >= 0) {
        if (polled.revents == 0)
            continue;
        if (!job_receive(job->fd, &last))
            break;
        if (last.entry == NULL && jobs->bad_ends[0] == '\0' && last.reason != NULL)
            snprintf(jobs->bad_ends, sizeof(jobs->bad_ends), "%s", last.reason);
        findings_free(&last);
    }
    (void)reap_job(job, deadline_ns);
}

bool jobs_close(struct runner_jobs *jobs, char *text, size_t capacity) {
    struct runner *runner = jobs->runner;
    uint64_t deadline =
        arena_now_ns() + (uint64_t)(END_GRACE_MS * runner->options.timeout_scale) * 1000000u;
    for (int i = 0; i < jobs->count; i++)
        if (jobs->jobs[i].pid >= 2) {
            if (jobs->jobs[i].index >= 0)
                kill(jobs->jobs[i].pid, SIGTERM);
            shutdown(jobs->jobs[i].fd, SHUT_WR);
        }
    for (int i = 0; i < jobs->count; i++)
        if (jobs->jobs[i].pid >= 2)
            end_job(jobs, &jobs->jobs[i], deadline);
    for (int i = runner->result_count; i < runner->planned_count; i++)
        findings_free(&runner->results[i]); /* come, but not shown */
    bool good = jobs->bad_ends[0] == '\0';
    snprintf(text, capacity, "%s", jobs->bad_ends);
    free_jobs(jobs);
    return good;
}
