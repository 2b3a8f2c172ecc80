/* SPDX-License-Identifier: BSD-3-Clause */
/* The controller's side of ranks that a foreign launcher starts, see launcher.h. */
#include "launcher.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define COME_MS 60000  /* for all starters to come */
#define HELLO_MS 2000  /* for what a starter says first */
#define START_MS 10000 /* for a starter to fork its rank */
#define LEAVE_MS 20000 /* for a launcher whose starters have been let go */
#define TERM_MS 2000
#define LOOK_MS 5

struct runner_launcher {
    pid_t pid;      /* 0: it was not started, or has ended */
    int status;     /* as waitpid gives it, once it has ended */
    int directory;  /* of the socket */
    int socket;     /* to which starters come */
    uint64_t job;   /* of this launch; who names another is none of its starters */
    int come_count; /* starters that have come */
    bool come[ARENA_MAX_RANKS];
    int fds[ARENA_MAX_RANKS]; /* to the starters; -1: it has not come, or is gone */
};

__attribute__((format(printf, 2, 3))) static void blame(struct runner_run *run, const char *format,
                                                        ...) {
    va_list args;
    if (run->launch_fault[0] != '\0')
        return; /* the first is the cause */
    va_start(args, format);
    vsnprintf(run->launch_fault, sizeof(run->launch_fault), format, args);
    va_end(args);
}

void starter_address(struct sockaddr_un *address, int directory_fd) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/%s", directory_fd,
             STARTER_SOCKET);
}

/* --- the launcher's process ------------------------------------------------------------------ */

static bool listen_for_starters(struct runner_launcher *launcher, const char *scratch) {
    struct sockaddr_un address;
    launcher->directory = open(scratch, O_PATH | O_DIRECTORY | O_CLOEXEC);
    launcher->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (launcher->directory < 0 || launcher->socket < 0)
        return false;
    starter_address(&address, launcher->directory);
    return bind(launcher->socket, (struct sockaddr *)&address, sizeof(address)) == 0 &&
           listen(launcher->socket, ARENA_MAX_RANKS) == 0;
}

/* The command with the number of ranks in place of each %n, and the starter's own behind it; NULL
 * without memory. */
static char *launch_command(const char *pattern, int ranks) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (memory == NULL)
        return NULL;
    fputs("exec ", memory);
    for (; *pattern != '\0'; pattern++)
        if (pattern[0] == '%' && pattern[1] == 'n') {
            fprintf(memory, "%d", ranks);
            pattern++;
        } else {
            fputc(*pattern, memory);
        }
    fputs(" \"$@\"", memory);
    return fclose(memory) == 0 ? text : NULL;
}

/* In the launcher's process. A launcher that reads standard input would take it from its caller. */
__attribute__((noreturn)) static void become_launcher(const struct runner_run *run,
                                                      const struct runner_launcher *launcher) {
    char self[PATH_MAX] = "", job[32];
    char *command = launch_command(run->runner->options.launcher, run->entry->ranks);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    snprintf(job, sizeof(job), "%llu", (unsigned long long)launcher->job);
    if (command != NULL && nothing >= 0 && dup2(nothing, STDIN_FILENO) == STDIN_FILENO &&
        readlink("/proc/self/exe", self, sizeof(self) - 1) > 0)
        execl("/bin/sh", "sh", "-c", command, "sh", self, STARTER_OPTION, run->scratch, job,
              (char *)NULL);
    _exit(126);
}

static bool has_ended(struct runner_launcher *launcher) {
    if (launcher->pid != 0 && waitpid(launcher->pid, &launcher->status, WNOHANG) == launcher->pid)
        launcher->pid = 0;
    return launcher->pid == 0;
}

static void describe_end(int status, char *text, size_t capacity) {
    if (WIFSIGNALED(status))
        snprintf(text, capacity, "was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, capacity, "ended with status %d", WEXITSTATUS(status));
}

/* Keeps what is printed flowing, or a launcher that prints would wait. */
static void look_around(struct runner *runner) {
    (void)output_drain(runner->output);
    runner_take_interrupt(runner);
    report_tick(runner);
}

/* --- who comes ------------------------------------------------------------------------------- */

static void send_leave(int fd) {
    const struct starter_order leave = {.kind = STARTER_LEAVE};
    (void)!send(fd, &leave, sizeof(leave), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Only this user can open the socket, and a socket knows who is at its other end. */
static bool hear_hello(int fd, struct starter_hello *hello) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    struct ucred peer;
    socklen_t length = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid() &&
           poll(&polled, 1, (int)tk_scaled_ms(HELLO_MS)) == 1 &&
           recv(fd, hello, sizeof(*hello), MSG_DONTWAIT) == (ssize_t)sizeof(*hello);
}

/* False: it is no rank of this run, or one that is there already. */
static bool admit(struct runner_run *run, const struct starter_hello *hello) {
    const struct runner_launcher *launcher = run->launcher;
    const int ranks = run->entry->ranks;
    if (hello->job != launcher->job)
        return false;
    if (hello->rank < 0)
        blame(run, "the launcher tells the processes that it starts no rank: none of RANK, "
                   "PMIX_RANK, OMPI_COMM_WORLD_RANK, PMI_RANK and SLURM_PROCID is set");
    else if (hello->world_size >= 0 && hello->world_size != ranks)
        blame(run, "the launcher starts a world of %d ranks, asked for %d", hello->world_size,
              ranks);
    else if (hello->rank >= ranks)
        blame(run, "the launcher starts rank %d, asked for %d ranks", hello->rank, ranks);
    else if (launcher->come[hello->rank])
        blame(run, "the launcher starts rank %d twice", hello->rank);
    else
        return true;
    return false;
}

/* A launcher that has seen one process end badly may end the others just when they end anyway. */
static void note_starter(struct runner *runner, int fd, int32_t rank) {
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
        runner->starters[rank] = peer.pid;
}

static void take_comers(struct runner_run *run) {
    struct runner_launcher *launcher = run->launcher;
    int fd;
    while ((fd = accept4(launcher->socket, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct starter_hello hello;
        if (hear_hello(fd, &hello) && admit(run, &hello)) {
            launcher->fds[hello.rank] = fd;
            note_starter(run->runner, fd, hello.rank);
            launcher->come[hello.rank] = true;
            launcher->come_count++;
        } else {
            send_leave(fd);
            close(fd);
        }
    }
}

static void name_absent(const struct runner_run *run, char *text, size_t capacity) {
    struct runner_ranks absent = {{0}};
    for (int rank = 0; rank < run->entry->ranks; rank++)
        if (!run->launcher->come[rank])
            runner_add_rank(&absent, rank);
    runner_rank_list(&absent, text, capacity);
}

static void await_comers(struct runner_run *run) {
    struct runner_launcher *launcher = run->launcher;
    const unsigned own_s = run->runner->options.timeout_s;
    const uint32_t limit_ms = tk_scaled_ms(own_s != 0 ? own_s * 1000u : COME_MS);
    const uint64_t deadline = arena_now_ns() + (uint64_t)limit_ms * 1000000u;
    struct pollfd polled = {.fd = launcher->socket, .events = POLLIN};
    char absent[128], end[96];
    while (launcher->come_count < run->entry->ranks && run->launch_fault[0] == '\0' &&
           run->runner->interrupted == 0) {
        bool ended = has_ended(launcher); /* before the look at who has come until then */
        (void)poll(&polled, 1, ended ? 0 : LOOK_MS);
        take_comers(run);
        look_around(run->runner);
        name_absent(run, absent, sizeof(absent));
        if (launcher->come_count == run->entry->ranks)
            return;
        describe_end(launcher->status, end, sizeof(end));
        if (ended)
            blame(run, "the launcher %s, and %s did not come", end, absent);
        else if (arena_now_ns() > deadline)
            blame(run, "%s of the launcher did not come within %.1f s", absent, limit_ms / 1000.0);
    }
}

/* --- ranks ----------------------------------------------------------------------------------- */

static int case_index(const struct tk_case *test) {
    for (int i = 0; i < runner_case_count; i++)
        if (runner_case(i) == test)
            return i;
    return -1;
}

static bool send_order(int fd, const struct starter_order *order, const int *fds, int count) {
    char control[CMSG_SPACE(STARTER_DESCRIPTORS * sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)order, sizeof(*order)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, (size_t)count * sizeof(int));
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(*order);
}

static void order_ranks(struct runner_run *run) {
    const struct runner *runner = run->runner;
    struct starter_order order = {.kind = STARTER_RUN,
                                  .test = case_index(run->entry->test),
                                  .ranks = run->entry->ranks,
                                  .seed = run->seed,
                                  .timeout_ms = run->timeout_ms,
                                  .late_ms = run->late_ms,
                                  .has_lateness = runner->lateness != NULL};
    const int fds[STARTER_DESCRIPTORS] = {runner->arena_fd, output_descriptor(runner->output),
                                          runner->lateness_fd};
    snprintf(order.scratch, sizeof(order.scratch), "%s", run->scratch);
    snprintf(order.backend, sizeof(order.backend), "%s", runner->options.backend);
    for (int rank = 0; rank < run->entry->ranks; rank++) {
        if (!send_order(run->launcher->fds[rank], &order, fds, 2 + order.has_lateness)) {
            blame(run, "the launcher ended rank %d before the case began", rank);
            return;
        }
        run->children[rank].pid = 1; /* known when the starter has started it */
        run->children[rank].started = true;
    }
}

/* What the starter is no more to be asked for. */
static void lose(struct runner_run *run, int rank) {
    struct runner_child *child = &run->children[rank];
    close(run->launcher->fds[rank]);
    run->launcher->fds[rank] = -1;
    if (child->pid == 0)
        return;
    child->pid = 0;
    child->lost = true;
    child->status = SIGKILL; /* its rank's, when the starter ends */
}

/* All that the starter has to tell. */
static void hear(struct runner_run *run, int rank) {
    struct runner_child *child = &run->children[rank];
    struct starter_report report;
    while (run->launcher->fds[rank] >= 0) {
        ssize_t got = recv(run->launcher->fds[rank], &report, sizeof(report), MSG_DONTWAIT);
        if (got == 0) /* the last report may have come between the kernel's two looks */
            got = recv(run->launcher->fds[rank], &report, sizeof(report), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got != (ssize_t)sizeof(report)) {
            lose(run, rank);
        } else if (report.ended) {
            child->pid = 0;
            child->status = report.status;
        } else if (report.pid >= 2) {
            child->pid = report.pid;
        }
    }
}

static bool all_started(const struct runner_run *run) {
    for (int rank = 0; rank < run->entry->ranks; rank++)
        if (run->children[rank].pid == 1)
            return false;
    return true;
}

static void await_ranks(struct runner_run *run) {
    uint64_t deadline = arena_now_ns() + (uint64_t)tk_scaled_ms(START_MS) * 1000000u;
    while (run->launch_fault[0] == '\0') {
        for (int rank = 0; rank < run->entry->ranks; rank++)
            hear(run, rank);
        if (all_started(run))
            return;
        if (arena_now_ns() > deadline)
            blame(run, "a process of the launcher did not start its rank");
        tk_sleep_ms(1);
    }
}

void launcher_collect(struct runner_run *run) {
    if (run->launcher == NULL)
        return;
    take_comers(run);
    for (int rank = 0; rank < run->entry->ranks; rank++)
        hear(run, rank);
}

void launcher_signal(struct runner_run *run, int rank, int signal_number, bool group) {
    const struct starter_order order = {
        .kind = STARTER_SIGNAL, .signal = signal_number, .group = group};
    if (run->launcher != NULL && run->launcher->fds[rank] >= 0)
        (void)!send(run->launcher->fds[rank], &order, sizeof(order), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* --- one launch ------------------------------------------------------------------------------ */

static void start_launcher(struct runner_run *run) {
    struct runner_launcher *launcher = calloc(1, sizeof(*launcher));
    if (launcher == NULL) {
        blame(run, "no memory for a launch");
        return;
    }
    run->launcher = launcher;
    launcher->socket = launcher->directory = -1;
    memset(run->runner->starters, 0, sizeof(run->runner->starters));
    for (int rank = 0; rank < ARENA_MAX_RANKS; rank++)
        launcher->fds[rank] = -1;
    launcher->job = arena_now_ns() ^ (uint64_t)getpid() << 40;
    if (!listen_for_starters(launcher, run->scratch)) {
        blame(run, "no socket for the launcher's processes: %s", strerror(errno));
        return;
    }
    launcher->pid = runner_fork(run->runner);
    if (launcher->pid == 0)
        become_launcher(run, launcher);
    if (launcher->pid < 0) {
        launcher->pid = 0;
        blame(run, "the launcher could not be started: %s", strerror(errno));
    }
}

void launcher_launch(struct runner_run *run) {
    start_launcher(run);
    if (run->launch_fault[0] == '\0')
        await_comers(run);
    if (run->launch_fault[0] == '\0' && run->runner->interrupted == 0)
        order_ranks(run);
    await_ranks(run);
    for (int i = 0; i < run->child_count && run->launch_fault[0] != '\0'; i++)
        run->children[i] = (struct runner_child){0}; /* no case has begun */
}

/* True if it ended by itself in time. One starter too many is noticed whenever it comes. */
static bool await_end(struct runner_run *run, uint32_t limit_ms) {
    struct runner_launcher *launcher = run->launcher;
    uint64_t deadline = arena_now_ns() + (uint64_t)tk_scaled_ms(limit_ms) * 1000000u;
    while (!has_ended(launcher)) {
        take_comers(run);
        look_around(run->runner);
        if (arena_now_ns() > deadline)
            return false;
        tk_sleep_ms(LOOK_MS);
    }
    return true;
}

/* Not reaped, so the number is still its own; and its group's. */
static void end_launcher(struct runner_run *run) {
    struct runner_launcher *launcher = run->launcher;
    if (launcher->pid < 2)
        return;
    kill(-launcher->pid, SIGTERM);
    if (await_end(run, TERM_MS))
        return;
    kill(-launcher->pid, SIGKILL);
    kill(launcher->pid, SIGKILL);
    while (waitpid(launcher->pid, &launcher->status, 0) < 0 && errno == EINTR)
        continue;
    launcher->pid = 0;
}

/* Of a rank whose own child had the engine, and died, only the launcher's status tells. */
static bool all_ended_well(const struct runner_run *run) {
    if ((run->entry->test->flags & (TK_FORKS | TK_MAY_DIE)) != 0)
        return false;
    for (int i = 0; i < run->child_count; i++) {
        int status = run->children[i].status;
        if (!run->children[i].started || !WIFEXITED(status) ||
            WEXITSTATUS(status) != RUNNER_RANK_DONE)
            return false;
    }
    return true;
}

void launcher_finish(struct runner_run *run) {
    struct runner_launcher *launcher = run->launcher;
    char end[96];
    if (launcher == NULL)
        return;
    const bool well = run->launch_fault[0] == '\0' && run->runner->interrupted == 0;
    take_comers(run);
    for (int rank = 0; rank < run->entry->ranks; rank++)
        if (launcher->fds[rank] >= 0) {
            send_leave(launcher->fds[rank]);
            close(launcher->fds[rank]);
        }
    if (well && !await_end(run, LEAVE_MS))
        blame(run, "the launcher did not end within %.1f s of its ranks",
              tk_scaled_ms(LEAVE_MS) / 1000.0);
    end_launcher(run);
    describe_end(launcher->status, end, sizeof(end));
    if (well && launcher->status != 0 && all_ended_well(run))
        blame(run, "the launcher %s, though all ranks ended well", end);
    close(launcher->socket);
    close(launcher->directory);
    free(launcher);
    run->launcher = NULL;
}

/* Its starters come, and are let go. What the launcher prints is told: it says more than a status.
 */
bool launcher_try(struct runner *runner) {
    const struct tk_case none = {0};
    const struct runner_entry entry = {.test = &none, .ranks = runner->options.ranks};
    struct runner_run run = {.runner = runner, .entry = &entry};
    if (!scratch_create(run.scratch, sizeof(run.scratch))) {
        fputs("symmem-conformance: no directory for a launch\n", stderr);
        return false;
    }
    start_launcher(&run);
    if (run.launch_fault[0] == '\0')
        await_comers(&run);
    run.children = calloc((size_t)entry.ranks, sizeof(*run.children));
    launcher_finish(&run);
    free(run.children);
    scratch_remove(run.scratch);
    if (run.launch_fault[0] != '\0')
        fprintf(stderr, "symmem-conformance: --launcher '%s': %s\n", runner->options.launcher,
                run.launch_fault);
    return run.launch_fault[0] == '\0' && runner->interrupted == 0;
}
