/* SPDX-License-Identifier: BSD-3-Clause */
/* What a foreign launcher starts for each rank, see launcher.h. It has no engine open, so it can
 * fork its rank, and it outlives the rank. When the controller is gone it ends both. */
#include "launcher.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

struct starter {
    int socket;
    int rank;
    pid_t pid; /* its rank's process; 0: there is none */
    struct runner runner;
};

/* What the user's environment says must not steer contexts that the kit or a test makes. A BLAS
 * that a backend loads shall start no threads: ranks are many already, and threads that stay would
 * be found left over. */
void runner_settle_environment(void) {
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "SYMMEM_BACKEND",
                                        "SYMMEM_STORE"};
    static const char *const threads[] = {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",
                                          "MKL_NUM_THREADS", "BLIS_NUM_THREADS"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++)
        setenv(threads[i], "1", 1);
}

/* As symmem_init reads them, but of a context of its own: the first that is set. */
static void read_place(struct starter_hello *hello) {
    static const char *const names[][2] = {{"RANK", "WORLD_SIZE"},
                                           {"PMIX_RANK", NULL},
                                           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"SLURM_PROCID", "SLURM_NTASKS"}};
    hello->rank = hello->world_size = -1;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *rank = getenv(names[i][0]);
        const char *size = names[i][1] == NULL ? NULL : getenv(names[i][1]);
        if (rank == NULL)
            continue;
        hello->rank = (int32_t)strtol(rank, NULL, 10);
        hello->world_size = size == NULL ? -1 : (int32_t)strtol(size, NULL, 10);
        return;
    }
}

static bool come(struct starter *starter, const char *directory, const char *job) {
    struct starter_hello hello = {.job = strtoull(job, NULL, 10)};
    struct sockaddr_un address;
    int at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    starter->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (at < 0 || starter->socket < 0)
        return false;
    starter_address(&address, at);
    read_place(&hello);
    starter->rank = hello.rank;
    bool good = connect(starter->socket, (struct sockaddr *)&address, sizeof(address)) == 0 &&
                send(starter->socket, &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello);
    close(at);
    return good;
}

static bool report(const struct starter *starter, bool ended, pid_t pid, int status) {
    const struct starter_report report = {ended, (int32_t)pid, status};
    return send(starter->socket, &report, sizeof(report), MSG_NOSIGNAL) == sizeof(report);
}

/* An order, with the descriptors that come with it; the others are -1. False: the controller is
 * gone. */
static bool hear_order(const struct starter *starter, struct starter_order *order,
                       int fds[STARTER_DESCRIPTORS]) {
    char control[CMSG_SPACE(STARTER_DESCRIPTORS * sizeof(int))] = {0};
    struct iovec part = {order, sizeof(*order)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    for (int i = 0; i < STARTER_DESCRIPTORS; i++)
        fds[i] = -1;
    if (recvmsg(starter->socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*order))
        return false;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    return true;
}

/* The memory is the controller's; the descriptors would be taken for the rank's. */
static bool take_memory(struct runner *runner, const int fds[STARTER_DESCRIPTORS]) {
    void *lateness =
        fds[2] < 0 ? NULL : mmap(NULL, sizeof(*runner->lateness), PROT_READ, MAP_SHARED, fds[2], 0);
    runner->arena = arena_create(fds[0]);
    runner->lateness = lateness == MAP_FAILED ? NULL : lateness;
    if (runner->arena != NULL)
        arena_seal_probe(runner->arena);
    if (dup2(fds[1], STDERR_FILENO) != STDERR_FILENO)
        return false;
    for (int i = 0; i < STARTER_DESCRIPTORS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return runner->arena != NULL;
}

static bool start_rank(struct starter *starter, const struct starter_order *order,
                       const int fds[STARTER_DESCRIPTORS]) {
    struct runner *runner = &starter->runner;
    struct runner_entry entry = {.ranks = order->ranks};
    struct runner_run run = {.runner = runner, .entry = &entry};
    if (starter->pid != 0 || order->test < 0 || order->test >= runner_case_count ||
        !take_memory(runner, fds))
        return false;
    entry.test = runner_case(order->test);
    run.seed = order->seed;
    run.timeout_ms = order->timeout_ms;
    run.late_ms = order->late_ms;
    memcpy(run.scratch, order->scratch, sizeof(run.scratch));
    runner->options.backend = order->backend;
    starter->pid = runner_fork(runner);
    if (starter->pid == 0) {
        close(starter->socket);
        signal(SIGCHLD, SIG_DFL);
        runner_child_run(&run, starter->rank);
        exit(RUNNER_RANK_DONE); /* not _exit: coverage and leak detection work at exit */
    }
    return starter->pid > 0 && report(starter, false, starter->pid, 0);
}

static bool obey(struct starter *starter, bool *stay_p) {
    struct starter_order order;
    int fds[STARTER_DESCRIPTORS];
    if (!hear_order(starter, &order, fds))
        return false;
    *stay_p = order.kind != STARTER_LEAVE;
    if (order.kind == STARTER_RUN)
        return start_rank(starter, &order, fds);
    if (order.kind == STARTER_SIGNAL && starter->pid >= 2) { /* not reaped: it is the rank's */
        if (order.group)
            kill(-starter->pid, order.signal);
        kill(starter->pid, order.signal);
    }
    return true;
}

static bool reap(struct starter *starter) {
    int status = 0;
    if (starter->pid == 0 || waitpid(starter->pid, &status, WNOHANG) != starter->pid)
        return true;
    pid_t pid = starter->pid;
    starter->pid = 0;
    return report(starter, true, pid, status);
}

static void do_nothing(int signal_number) {
    (void)signal_number;
}

/* A rank's end interrupts the wait, and comes at no other time. */
static void settle(struct starter *starter, sigset_t *waiting) {
    struct sigaction action = {.sa_handler = do_nothing};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, waiting);
    sigdelset(waiting, SIGCHLD);
    sigaction(SIGCHLD, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    runner_settle_environment();
    starter->runner.original_signals = *waiting;
    starter->runner.options.mode = TK_MODE_PROCESS;
}

int starter_main(const char *directory, const char *job) {
    static struct starter starter;
    sigset_t waiting;
    bool good = come(&starter, directory, job), stay = good;
    settle(&starter, &waiting);
    while (good && stay) {
        struct pollfd polled = {.fd = starter.socket, .events = POLLIN};
        good = reap(&starter);
        if (good && ppoll(&polled, 1, NULL, &waiting) > 0)
            good = obey(&starter, &stay);
    }
    if (starter.pid >= 2) {
        kill(-starter.pid, SIGKILL);
        kill(starter.pid, SIGKILL);
        (void)waitpid(starter.pid, NULL, 0);
    }
    return good ? 0 : 1;
}
