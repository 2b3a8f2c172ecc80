/* SPDX-License-Identifier: BSD-3-Clause */
/* A process in a rank's place, and the line beside a verdict. */
#include "kit_internal.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define POLL_MS 1
#define DEVICE_TYPE_CPU 1 /* kDLCPU */

/* Apart from its caller, whose locals a longjmp would make uncertain. */
static void run_body(struct tk *t, void (*body)(struct tk *t, void *arg), void *arg) {
    if (setjmp(t->own->leave) == 0)
        body(t, arg);
}

/* `threads`: the parent's. */
static void be_child(struct tk *t, pid_t parent, int threads, void (*body)(struct tk *t, void *arg),
                     void *arg, struct kit_points *points) __attribute__((noreturn));
static void be_child(struct tk *t, pid_t parent, int threads, void (*body)(struct tk *t, void *arg),
                     void *arg, struct kit_points *points) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    t->own->is_child = true;
    t->context = NULL;
    run_body(t, body, arg);
    *points = t->own->record.points;
    /* LeakSanitizer would wait forever for its allocator's lock if another thread of the parent had
     * it at the fork. */
    if (KIT_ADDRESS_SANITIZER && threads != 1)
        _exit(0);
    exit(0); /* not _exit: coverage and leak detection work at exit */
}

static void end(pid_t child, int *status) {
    if (child > 1)
        kill(child, SIGKILL);
    while (waitpid(child, status, 0) < 0 && errno == EINTR) {
    }
}

/* False: it had to be ended. */
static bool wait_for(pid_t child, uint32_t limit_ms, int *status) {
    uint64_t end_ms = tk_now_ms() + limit_ms;
    for (;;) {
        pid_t ended = waitpid(child, status, WNOHANG);
        if (ended == child)
            return true;
        if ((ended < 0 && errno != EINTR) || tk_now_ms() > end_ms)
            break;
        tk_sleep_ms(POLL_MS);
    }
    end(child, status);
    return false;
}

static bool may_fork(const struct tk *t) {
    return t->device_type == DEVICE_TYPE_CPU || (t->own->setup->test->flags & TK_FORKS) != 0;
}

enum tk_child_end tk_run_child(struct tk *t, void (*body)(struct tk *t, void *arg), void *arg,
                               uint32_t limit_ms) {
    pid_t parent = getpid();
    int status = 0;
    struct kit_points *points;
    TK_REQUIRE(t, t->mode == TK_MODE_PROCESS);
    TK_REQUIRE(t, TK_CHECK_MSG(t, may_fork(t), "a case without TK_FORKS forks beside a device"));
    tk_share_u64(t, TK_DEATH_SLOT, 0);
    tk_share_u64(t, TK_ENDED_SLOT, 0);
    points = mmap(NULL, sizeof(*points), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TK_REQUIRE(t, points != MAP_FAILED);
    *points = t->own->record.points;
    const int threads = kit_threads();
    pid_t child = fork();
    if (child == 0)
        be_child(t, parent, threads, body, arg, points);
    bool ended = child > 0 && wait_for(child, limit_ms, &status);
    tk_share_u64(t, TK_ENDED_SLOT, tk_now_ms());
    t->own->record.points = *points;
    munmap(points, sizeof(*points));
    if (child < 0) {
        TK_CHECK_MSG(t, false, "cannot start a process: %s", strerror(errno));
        return TK_CHILD_FAILED;
    }
    if (!ended) {
        TK_TIMELY(t, false, "the process in this rank's place hung for %u ms", limit_ms);
        return TK_CHILD_HUNG;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return TK_CHILD_DONE;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
        tk_read_u64(t, t->rank, TK_DEATH_SLOT))
        return TK_CHILD_KILLED;
    TK_CHECK_MSG(t, false, "the process in this rank's place ended with %s %d",
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return TK_CHILD_FAILED;
}

void tk_note(struct tk *t, const char *format, ...) {
    struct arena *arena = t->own->setup->arena;
    va_list args;
    va_start(args, format);
    vsnprintf(arena->note, sizeof(arena->note), format, args);
    va_end(args);
}
