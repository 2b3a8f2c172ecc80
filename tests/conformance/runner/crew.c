/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks' processes that are kept from case to case, by --keep-ranks: where opening a device takes
 * seconds, a process for each case would take most of a run. Each member waits on a pipe for its
 * next case and tells by another that it is through. One that a case ends, as it announced, is
 * replaced for the next; the others go on, unless their engine started together with that of the
 * one that ended. A case gets new processes of its own if it leaves traces in them, or forks;
 * before such a case that opens a device, and after a case that did not pass, all members are
 * ended.
 */
#include "runner.h"

#include <sys/wait.h>

#define END_GRACE_MS 5000

struct member {
    pid_t pid; /* 0: none */
    int order_fd;
    int world; /* with how many ranks its engine has started; 0: it has not */
};

struct runner_crew {
    struct member members[ARENA_MAX_RANKS];
    int parked_read, parked_write; /* members' numbers, as they come to an end of their case */
    double timeout_scale;
    int bad_ends;        /* members that ended otherwise than they should */
    char first_bad[128]; /* which was the first, and how it ended */
};

/* What a member is told. Cases are where they were when it was forked. */
struct order {
    const struct tk_case *test; /* NULL: end */
    int ranks;
    uint64_t seed;
    uint32_t timeout_ms;
    uint32_t late_ms;
    char scratch[256];
};

struct runner_crew *crew_open(double timeout_scale) {
    struct runner_crew *crew = calloc(1, sizeof(*crew));
    int fds[2];
    if (crew == NULL || pipe2(fds, O_CLOEXEC) != 0) {
        free(crew);
        return NULL;
    }
    crew->timeout_scale = timeout_scale;
    crew->parked_read = fds[0];
    crew->parked_write = fds[1];
    fcntl(crew->parked_read, F_SETFL, O_NONBLOCK);
    return crew;
}

/* Without a backend no device is opened, and a new process costs nothing. What ranks that die leave
 * behind is outside of those that live. */
bool crew_takes(const struct runner_crew *crew, const struct tk_case *test) {
    const unsigned alone = TK_SETS_ENVIRONMENT | TK_NO_BACKEND | TK_FORKS;
    const bool leaks = (test->flags & (TK_MAY_LEAK | TK_MAY_DIE)) == TK_MAY_LEAK;
    return crew != NULL && !leaks && (test->flags & alone) == 0;
}

/* A device that idle members have open makes others' opening and ending slow: with four ranks on
 * one GPU cases with processes of their own took 8.7 s beside them and 4.6 s alone. New members
 * cost less. */
void crew_make_room(struct runner_crew *crew, const struct tk_case *test) {
    if ((test->flags & TK_NO_BACKEND) == 0)
        crew_end(crew);
}

bool crew_has(const struct runner_crew *crew, pid_t pid) {
    for (int i = 0; crew != NULL && i < ARENA_MAX_RANKS; i++)
        if (crew->members[i].pid == pid)
            return true;
    return false;
}

/* What a case left running is found when its parent ends. */
static bool has_children(void) {
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* A member that must not go on ends as a rank of a single case does. */
static void serve(struct runner_run *run, struct runner_crew *crew, int number, int order_fd)
    __attribute__((noreturn));
static void serve(struct runner_run *run, struct runner_crew *crew, int number, int order_fd) {
    struct runner_entry entry = {0};
    struct order order;
    run->entry = &entry;
    while (job_read(order_fd, &order, sizeof(order)) && order.test != NULL) {
        entry.test = order.test;
        entry.ranks = order.ranks;
        run->seed = order.seed;
        run->timeout_ms = order.timeout_ms;
        run->late_ms = order.late_ms;
        memcpy(run->scratch, order.scratch, sizeof(run->scratch));
        runner_child_run(run, number);
        fflush(NULL); /* what it printed is this case's */
        if (has_children() || write(crew->parked_write, &number, sizeof(number)) < 0)
            break;
    }
    exit(RUNNER_RANK_DONE); /* not _exit: coverage and leak detection work at exit */
}

static bool start_member(struct runner_run *run, int number) {
    struct runner_crew *crew = run->runner->crew;
    struct member *member = &crew->members[number];
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return false;
    member->world = 0;
    member->pid = runner_fork(run->runner);
    if (member->pid == 0) {
        close(fds[1]);
        serve(run, crew, number, fds[0]);
    }
    close(fds[0]);
    member->order_fd = fds[1];
    if (member->pid > 0)
        return true;
    close(fds[1]);
    member->pid = 0;
    return false;
}

static bool send_order(const struct member *member, const struct order *order) {
    return write(member->order_fd, order, sizeof(*order)) == (ssize_t)sizeof(*order);
}

static void note_bad_end(struct runner_crew *crew, int number, const char *when, int status) {
    char *text = crew->first_bad;
    if (crew->bad_ends++ > 0)
        return;
    if (WIFSIGNALED(status))
        snprintf(text, sizeof(crew->first_bad), "rank %d was ended by signal %d (%s)%s", number,
                 WTERMSIG(status), strsignal(WTERMSIG(status)), when);
    else
        snprintf(text, sizeof(crew->first_bad), "rank %d ended with status %d%s", number,
                 WEXITSTATUS(status), when);
}

/* It was not told to end. */
void crew_lost(struct runner_crew *crew, pid_t pid, int status) {
    for (int i = 0; i < ARENA_MAX_RANKS; i++)
        if (crew->members[i].pid == pid)
            note_bad_end(crew, i, " while it waited for a case", status);
    crew_forget(crew, pid);
}

/* Those that ended while they waited. */
static void forget_ended(struct runner_crew *crew) {
    int status = 0;
    for (int i = 0; i < ARENA_MAX_RANKS; i++) {
        pid_t pid = crew->members[i].pid;
        if (pid != 0 && waitpid(pid, &status, WNOHANG) == pid)
            crew_lost(crew, pid, status);
    }
}

/* The case makes the ranks' engines start, which they do once in a process, all together. */
static bool starts_engines(const struct runner_run *run) {
    return (run->runner->arena->probe.capabilities & SYMMEM_CAP_WORLD) != 0 && run->child_count > 1;
}

/* Who has started without one of the others, or with more, can be no rank beside them. */
static bool can_meet(const struct runner_crew *crew, int ranks) {
    const struct member *first = &crew->members[0];
    const int world = first->pid == 0 ? 0 : first->world;
    for (int i = 1; i < ranks; i++)
        if ((crew->members[i].pid == 0 ? 0 : crew->members[i].world) != world)
            return false;
    return world == 0 || world == ranks;
}

void crew_launch(struct runner_run *run) {
    struct runner_crew *crew = run->runner->crew;
    const bool starts = starts_engines(run);
    struct order order = {.test = run->entry->test,
                          .ranks = run->entry->ranks,
                          .seed = run->seed,
                          .timeout_ms = run->timeout_ms,
                          .late_ms = run->late_ms};
    memcpy(order.scratch, run->scratch, sizeof(order.scratch));
    forget_ended(crew);
    crew_collect(run); /* of a case before, which is not waited for */
    if (starts && !can_meet(crew, run->child_count))
        crew_end(crew);
    for (int i = 0; i < run->child_count; i++) {
        struct member *member = &crew->members[i];
        if ((member->pid == 0 && !start_member(run, i)) || !send_order(member, &order)) {
            run->fork_failed = true;
            return;
        }
        member->world = starts ? run->child_count : member->world;
        run->children[i].pid = member->pid;
        run->children[i].started = true;
    }
}

/* Who is through counts as ended well: it is no longer the case's. */
void crew_collect(struct runner_run *run) {
    struct runner_crew *crew = run->runner->crew;
    int number;
    while (crew != NULL &&
           read(crew->parked_read, &number, sizeof(number)) == (ssize_t)sizeof(number))
        if (number >= 0 && number < run->child_count && run->children[number].pid != 0) {
            run->children[number].pid = 0;
            run->children[number].status = RUNNER_RANK_DONE << 8;
        }
}

void crew_forget(struct runner_crew *crew, pid_t pid) {
    for (int i = 0; crew != NULL && i < ARENA_MAX_RANKS; i++)
        if (crew->members[i].pid == pid && pid != 0) {
            close(crew->members[i].order_fd);
            crew->members[i].pid = 0;
        }
}

/* Waits for the member until the deadline, then ends it. */
static void reap_member(struct runner_crew *crew, int number, uint64_t grace_ms,
                        uint64_t deadline_ns) {
    struct member *member = &crew->members[number];
    char when[48] = "";
    int status = 0;
    while (waitpid(member->pid, &status, WNOHANG) == 0) {
        if (arena_now_ns() > deadline_ns) {
            snprintf(when, sizeof(when), ", for it ran on for %llu ms",
                     (unsigned long long)grace_ms);
            kill(-member->pid, SIGKILL);
            kill(member->pid, SIGKILL);
        }
        tk_sleep_ms(1);
    }
    close(member->order_fd);
    member->pid = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != RUNNER_RANK_DONE)
        note_bad_end(crew, number, when, status);
}

/* Many processes on one device end slowly, too. */
void crew_end(struct runner_crew *crew) {
    const struct order end = {.test = NULL};
    if (crew == NULL)
        return;
    uint64_t grace_ms = (uint64_t)(END_GRACE_MS * crew->timeout_scale);
    uint64_t deadline = arena_now_ns() + grace_ms * 1000000u;
    for (int i = 0; i < ARENA_MAX_RANKS; i++)
        if (crew->members[i].pid != 0)
            (void)send_order(&crew->members[i], &end);
    for (int i = 0; i < ARENA_MAX_RANKS; i++)
        if (crew->members[i].pid != 0)
            reap_member(crew, i, grace_ms, deadline);
}

bool crew_close(struct runner_crew *crew, char *text, size_t capacity) {
    if (crew == NULL)
        return true;
    crew_end(crew);
    bool good = crew->bad_ends == 0;
    if (!good)
        snprintf(text, capacity, "%d kept rank(s) did not end as they should: %s", crew->bad_ends,
                 crew->first_bad);
    close(crew->parked_read);
    close(crew->parked_write);
    free(crew);
    return good;
}
