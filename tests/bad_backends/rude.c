/* SPDX-License-Identifier: BSD-3-Clause */
/* Backends that work, but do as they like with the process that uses them, or with its neighbors.
 */
#include "../mutants/decorator/decorator.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int32_t own_rank;

static symmem_status open_rudely(const symmem_host *host, const symmem_backend_config *config,
                                 void **instance_p) {
    if (config->world_size > 1) /* not in the probe */
        mutant->rudeness();
    return real->open(host, config, instance_p);
}

static symmem_status barrier_rudely(void *instance, const symmem_peers *peers, int32_t channel,
                                    const symmem_exec *exec) {
    own_rank = peers->rank;
    mutant->rudeness();
    return real->barrier(instance, peers, channel, exec);
}

/* --- settings of the process ------------------------------------------------------ */

static void ignore(int number) {
    (void)number;
}

static void block_signals(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
}

static void change_settings(void) {
    struct rlimit limit = {.rlim_cur = 64, .rlim_max = 64};
    block_signals();
    setrlimit(RLIMIT_NOFILE, &limit);
    signal(SIGUSR1, ignore);
    alarm(3600);
    if (chdir("/") != 0)
        abort();
}

static void change_execution(void) {
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    (void)!nice(5);
    fesetround(FE_DOWNWARD);
}

/* Flushes subnormal numbers to zero for the process, as linking with -ffast-math does. */
static void flush_subnormals(void) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined(__aarch64__)
    unsigned long control;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(control));
    __asm__ __volatile__("msr fpcr, %0" : : "r"(control | 1ul << 24));
#endif
}

/* --- ends ------------------------------------------------------------------------- */

static void end_thread(void) {
    pthread_exit(NULL);
}

static void become_another(void) {
    execl("/bin/true", "true", (char *)NULL);
}

static void end_at_exit(void) {
    _exit(0);
}

static void arm_exit(void) {
    if (atexit(end_at_exit) != 0)
        abort();
}

static bool ends_in_destructor;

static void arm_destructor(void) {
    ends_in_destructor = true;
}

__attribute__((destructor)) static void destructor(void) {
    if (ends_in_destructor)
        _exit(0);
}

__attribute__((constructor)) static void constructor(void) {
    const char *name = getenv("SYMMEM_MUTANT");
    if (name != NULL && strcmp(name, "rude.constructor") == 0)
        raise(SIGSEGV);
}

/* --- neighbors ------------------------------------------------------------------- */

/* The other ranks: our parent's other children. */
static void kill_siblings(void) {
    char path[64];
    int pid;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)getppid(), (int)getppid());
    FILE *list = fopen(path, "re");
    while (list != NULL && fscanf(list, "%d", &pid) == 1)
        if (pid > 1 && pid != (int)getpid())
            kill(pid, SIGKILL);
    if (list != NULL)
        fclose(list);
}

static void end_controller(void) {
    if (getppid() < 2)
        abort();
    kill(getppid(), SIGTERM);
}

/* The same, by one rank, but while the controller does not look: it wakes with all ranks at their
 * ends. */
static void end_controller_unseen(void) {
    static bool done;
    pid_t controller = getppid(), helper;
    if (controller < 2)
        abort();
    if (done || own_rank != 0)
        return;
    done = true;
    kill(controller, SIGSTOP);
    helper = fork();
    if (helper < 0)
        abort();
    if (helper > 0)
        return;
    usleep(500000);
    kill(controller, SIGTERM);
    kill(controller, SIGCONT);
    for (;;)
        pause(); /* the controller ends it */
}

/* Two processes go on as one rank. */
static void fork_and_go_on(void) {
    static bool done;
    if (!done && fork() < 0)
        abort();
    done = true;
}

static void print_for_ever(void) {
    char text[4096];
    memset(text, 'x', sizeof text);
    for (;;)
        if (write(STDOUT_FILENO, text, sizeof text) + write(STDERR_FILENO, text, sizeof text) < 0)
            break;
}

static void close_everything(void) {
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
}

const struct mutant bad_rude[] = {
    {"rude.settings", .entries.open = open_rudely, .rudeness = change_settings},
    {"rude.execution", .entries.open = open_rudely, .rudeness = change_execution},
    {"rude.flushes_subnormals", .entries.open = open_rudely, .rudeness = flush_subnormals},
    {"rude.ends_thread", .entries.barrier = barrier_rudely, .rudeness = end_thread},
    {"rude.becomes_another", .entries.barrier = barrier_rudely, .rudeness = become_another},
    {"rude.ends_at_exit", .entries.open = open_rudely, .rudeness = arm_exit},
    {"rude.ends_in_destructor", .entries.open = open_rudely, .rudeness = arm_destructor},
    {.name = "rude.constructor"},
    {"rude.kills_siblings", .entries.barrier = barrier_rudely, .rudeness = kill_siblings},
    {"rude.ends_controller", .entries.barrier = barrier_rudely, .rudeness = end_controller},
    {"rude.ends_controller_unseen", .entries.barrier = barrier_rudely,
     .rudeness = end_controller_unseen},
    {"rude.forks", .entries.open = open_rudely, .rudeness = fork_and_go_on},
    {"rude.prints", .entries.barrier = barrier_rudely, .rudeness = print_for_ever},
    {"rude.closes_everything", .entries.barrier = barrier_rudely, .rudeness = close_everything},
    {.name = NULL},
};
