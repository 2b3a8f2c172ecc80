/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts ranks, supervises them, and synchronizes them. */
#include "world.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define SPIN_COUNT 2000
#define LINE_PAUSE_NS 200000
#define GRACE_NS 3000000000u /* for the others, once a rank has failed */
#define NS_PER_S 1000000000u

/* --- barrier ------------------------------------------------------------------------ */

bool world_barrier(bench_world *self) {
    /* relaxed: the round does not change before this rank has arrived. */
    uint32_t round = atomic_load_explicit(&self->round.value, memory_order_relaxed);
    /* acq_rel: the last to arrive has seen what all wrote before. */
    uint32_t before = atomic_fetch_add_explicit(&self->arrived.value, 1, memory_order_acq_rel);
    if (before + 1 == (uint32_t)self->ranks) {
        atomic_store_explicit(&self->arrived.value, 0, memory_order_relaxed);
        /* release; pairs with: the load below */
        atomic_store_explicit(&self->round.value, round + 1, memory_order_release);
        return true;
    }
    /* Ends at the latest when the controller does: it has the deadline. */
    for (int spin = 0; atomic_load_explicit(&self->round.value, memory_order_acquire) == round;
         spin++) {
        if (atomic_load_explicit(&self->lost.value, memory_order_relaxed) != 0)
            return false;
        if (spin > SPIN_COUNT)
            sched_yield(); /* there may be more ranks than processors */
    }
    return true;
}

bool world_largest(bench_world *self, int rank, double value, double *largest_p) {
    self->values[rank] = value;
    if (!world_barrier(self))
        return false;
    double largest = 0;
    for (int i = 0; i < self->ranks; i++)
        largest = self->values[i] > largest ? self->values[i] : largest;
    *largest_p = largest;
    return world_barrier(self); /* before any rank writes the next value */
}

static void sleep_ns(long ns) {
    const struct timespec pause = {.tv_nsec = ns};
    nanosleep(&pause, NULL);
}

/* Sleeps, because another program may be measuring meanwhile. */
static bool await_line(bench_world *self, uint32_t count) {
    /* acquire; pairs with: the release in world_read_line */
    while (atomic_load_explicit(&self->lines.value, memory_order_acquire) == count) {
        if (atomic_load_explicit(&self->lost.value, memory_order_relaxed) != 0)
            return false;
        sleep_ns(LINE_PAUSE_NS);
    }
    return true;
}

bool world_read_line(bench_world *self, int rank, uint32_t *count_p, char line[WORLD_LINE]) {
    if (rank == 0) {
        if (fgets(self->line, WORLD_LINE, stdin) == NULL)
            self->line[0] = '\0';
        /* release: the line */
        atomic_store_explicit(&self->lines.value, *count_p + 1, memory_order_release);
    } else if (!await_line(self, *count_p)) {
        return false;
    }
    ++*count_p;
    memcpy(line, self->line, WORLD_LINE);
    bool ended = line[0] == '\0';
    line[strcspn(line, "\n")] = '\0';
    return world_barrier(self) && !ended; /* before the next one is read */
}

static bool seat_barrier(void *arg) {
    world_seat *seat = arg;
    return world_barrier(seat->world);
}

static bool seat_largest(void *arg, double value, double *largest_p) {
    world_seat *seat = arg;
    return world_largest(seat->world, seat->rank, value, largest_p);
}

bench_side world_side(world_seat *seat) {
    return (bench_side){
        .rank = seat->rank, .arg = seat, .barrier = seat_barrier, .largest = seat_largest};
}

/* --- ranks as threads of one child ---------------------------------------------------- */

typedef struct thread_rank {
    pthread_t thread;
    const bench_options *options;
    bench_world *world;
    world_main rank_main;
    void *arg;
    int rank;
    int status;
} thread_rank;

static void *run_thread(void *arg) {
    thread_rank *self = arg;
    bench_pin(self->options, self->rank);
    self->status = self->rank_main(self->world, self->rank, self->arg);
    if (self->status != BENCH_DONE)
        atomic_store_explicit(&self->world->lost.value, 1, memory_order_relaxed);
    return NULL;
}

static int run_threads(const bench_options *options, bench_world *self, world_main rank_main,
                       void *arg) {
    thread_rank *ranks = calloc((size_t)self->ranks, sizeof *ranks);
    int started = 0, status = BENCH_DONE;
    if (ranks == NULL)
        return BENCH_FAILED;
    for (; started < self->ranks; started++) {
        ranks[started] = (thread_rank){
            .options = options, .world = self, .rank_main = rank_main, .arg = arg, .rank = started};
        if (pthread_create(&ranks[started].thread, NULL, run_thread, &ranks[started]) != 0) {
            fprintf(stderr, "cannot start rank %d as a thread\n", started);
            atomic_store_explicit(&self->lost.value, 1, memory_order_relaxed);
            status = BENCH_FAILED;
            break;
        }
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(ranks[i].thread, NULL);
        status = ranks[i].status > status ? ranks[i].status : status;
    }
    free(ranks);
    return status;
}

/* --- child processes ------------------------------------------------------------------ */

typedef struct controller {
    const bench_options *options;
    bench_world *world;
    world_main rank_main;
    void *arg;
    pid_t *children; /* 0: has ended */
    int child_count;
    int running;
    int status;
    uint64_t deadline_ns;
    bool killed; /* all of them, because of the deadline or a signal */
} controller;

static void worsen(controller *self, int status) {
    self->status = status > self->status ? status : self->status;
}

/* In the child. Never returns. */
static void be_child(const controller *self, int index, pid_t parent, const sigset_t *mask) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(BENCH_FAILED);
    sigprocmask(SIG_SETMASK, mask, NULL);
    int status;
    if (self->options->threads) {
        status = run_threads(self->options, self->world, self->rank_main, self->arg);
    } else {
        bench_pin(self->options, index);
        status = self->rank_main(self->world, index, self->arg);
    }
    status = bench_printed(status);
    atomic_store_explicit(&self->world->ends[index], 1 + (uint32_t)status, memory_order_relaxed);
    exit(status);
}

static void start_children(controller *self, const sigset_t *mask) {
    pid_t parent = getpid();
    fflush(NULL);
    for (int i = 0; i < self->child_count; i++) {
        pid_t pid = fork();
        if (pid == 0)
            be_child(self, i, parent, mask);
        if (pid < 0) {
            perror("cannot start a rank");
            atomic_store_explicit(&self->world->lost.value, 1, memory_order_relaxed);
            worsen(self, BENCH_FAILED);
            return;
        }
        self->children[i] = pid;
        self->running++;
    }
}

static void tell(const controller *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void tell(const controller *self, const char *format, ...) {
    char text[BENCH_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", text);
    if (self->options->serve)
        bench_print_error(text);
}

/* A library may end a process, or change its status on the way out, and say nothing. False: this
 * was not the rank's own end. */
static bool check_end(const controller *self, int index, int status) {
    uint32_t meant = atomic_load_explicit(&self->world->ends[index], memory_order_relaxed);
    if (WIFSIGNALED(status) && !self->killed)
        tell(self, "rank process %d was ended by signal %d", index, WTERMSIG(status));
    else if (WIFEXITED(status) && meant == 0)
        tell(self, "rank process %d was ended in its midst, with status %d", index,
             WEXITSTATUS(status));
    else if (WIFEXITED(status) && (uint32_t)WEXITSTATUS(status) + 1 != meant)
        tell(self, "rank process %d ended with status %d in place of %u", index,
             WEXITSTATUS(status), meant - 1);
    return WIFEXITED(status) && meant != 0;
}

static void reap(controller *self) {
    for (int i = 0; i < self->child_count; i++) {
        int status = 0;
        if (self->children[i] < 2 || waitpid(self->children[i], &status, WNOHANG) <= 0)
            continue;
        self->children[i] = 0;
        self->running--;
        const bool own = check_end(self, i, status);
        worsen(self, WIFEXITED(status) && WEXITSTATUS(status) > 0 ? WEXITSTATUS(status)
                     : own                                        ? BENCH_DONE
                                                                  : BENCH_FAILED);
        if (status != 0 || !own) {
            uint64_t grace_ns = bench_now_ns() + GRACE_NS;
            atomic_store_explicit(&self->world->lost.value, 1, memory_order_relaxed);
            self->deadline_ns = grace_ns < self->deadline_ns ? grace_ns : self->deadline_ns;
        }
    }
}

static void kill_children(const controller *self) {
    for (int i = 0; i < self->child_count; i++)
        if (self->children[i] >= 2)
            kill(self->children[i], SIGKILL);
}

/* Sleeps until a child ends, a signal asks the run to end, or the deadline. Returns the signal. */
static int sleep_for_signal(const controller *self, const sigset_t *signals) {
    uint64_t now_ns = bench_now_ns();
    uint64_t left_ns = now_ns < self->deadline_ns ? self->deadline_ns - now_ns : 0;
    struct timespec limit = {.tv_sec = (time_t)(left_ns / NS_PER_S),
                             .tv_nsec = (long)(left_ns % NS_PER_S)};
    return sigtimedwait(signals, NULL, &limit);
}

static bool is_end(int signal_number) {
    return signal_number == SIGINT || signal_number == SIGTERM || signal_number == SIGHUP;
}

static void watch(controller *self, const sigset_t *signals) {
    reap(self);
    while (self->running > 0) {
        int signal_number = sleep_for_signal(self, signals);
        reap(self);
        bool late = bench_now_ns() >= self->deadline_ns;
        if (self->running > 0 && (late || is_end(signal_number))) {
            if (late && self->status == BENCH_DONE)
                tell(self, "not done after %d s; ended", self->options->timeout_s);
            kill_children(self);
            self->killed = true;
            worsen(self, BENCH_FAILED);
            self->deadline_ns = UINT64_MAX; /* what was killed ends */
        }
    }
}

/* As under nohup; blocked it would come all the same. */
static bool hangup_is_ignored(void) {
    struct sigaction action;
    return sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static int run_children(controller *self) {
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (!hangup_is_ignored())
        sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &before);
    self->deadline_ns = bench_now_ns() + (uint64_t)self->options->timeout_s * NS_PER_S;
    start_children(self, &before);
    watch(self, &signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return self->status;
}

int world_run(const bench_options *options, world_main rank_main, void *arg) {
    bench_world *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    controller self = {.options = options, .world = shared, .rank_main = rank_main, .arg = arg};
    if (shared == MAP_FAILED) {
        perror("no memory for the ranks");
        return BENCH_FAILED;
    }
    shared->ranks = options->ranks;
    shared->threads = options->threads;
    self.child_count = options->threads ? 1 : options->ranks;
    self.children = calloc((size_t)self.child_count, sizeof *self.children);
    int status = self.children != NULL ? run_children(&self) : BENCH_FAILED;
    free(self.children);
    munmap(shared, sizeof *shared);
    return status;
}
