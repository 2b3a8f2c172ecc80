/* SPDX-License-Identifier: BSD-3-Clause */
/* Backends that do not return. */
#include "../mutants/decorator/decorator.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void sleep_for_ever(void) {
    for (;;)
        pause();
}

/* Neither SIGTERM nor SIGALRM ends this one. */
static void spin_for_ever(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (;;)
        usleep(1000);
}

static symmem_status alloc_hangs(void *instance, int32_t device, size_t bytes,
                                 symmem_memory *memory) {
    (void)instance, (void)device, (void)bytes, (void)memory;
    sleep_for_ever();
    return SYMMEM_OK;
}

static symmem_status barrier_hangs(void *instance, const symmem_peers *peers, int32_t channel,
                                   const symmem_exec *exec) {
    (void)instance, (void)peers, (void)channel, (void)exec;
    spin_for_ever();
    return SYMMEM_OK;
}

static symmem_status barrier_stops(void *instance, const symmem_peers *peers, int32_t channel,
                                   const symmem_exec *exec) {
    raise(SIGSTOP);
    return real->barrier(instance, peers, channel, exec);
}

static symmem_status open_hangs(const symmem_host *host, const symmem_backend_config *config,
                                void **instance_p) {
    (void)host, (void)config, (void)instance_p;
    spin_for_ever();
    return SYMMEM_OK;
}

static void close_hangs(void *instance) {
    (void)instance;
    sleep_for_ever();
}

/* The runner's probe, a world of one, gets away with it. */
static bool in_a_case;

static symmem_status open_looks(const symmem_host *host, const symmem_backend_config *config,
                                void **instance_p) {
    in_a_case = config->world_size > 1;
    return real->open(host, config, instance_p);
}

static void close_hangs_later(void *instance) {
    if (in_a_case)
        sleep_for_ever();
    real->close(instance);
}

/* --- in a stream's thread --------------------------------------------------------- */

static void never_done(void *arg) {
    (void)arg;
    spin_for_ever();
}

/* What waits for the stream waits for ever, whatever limit it was given. */
static symmem_status copy_is_never_done(void *instance, int32_t device, void *dst, const void *src,
                                        size_t bytes, const symmem_exec *exec) {
    return exec->stream != NULL ? real->host_fn(instance, exec->stream, never_done, NULL)
                                : real->copy(instance, device, dst, src, bytes, exec);
}

static symmem_status synchronize_hangs(void *instance, void *stream, uint32_t timeout_ms,
                                       symmem_error_record *record_p) {
    symmem_status status;
    do
        status = real->stream_synchronize(instance, stream, timeout_ms, record_p);
    while (status == SYMMEM_TIMEOUT);
    return status;
}

/* --- after everything, and beside it ---------------------------------------------- */

static symmem_status open_for_a_bad_end(const symmem_host *host,
                                        const symmem_backend_config *config, void **instance_p) {
    /* not in the probe, which has a world of one */
    if (config->world_size > 1 && atexit(sleep_for_ever) != 0)
        return SYMMEM_SYSTEM;
    return real->open(host, config, instance_p);
}

/* Leaves a process that the runner does not know: a grandchild in a session of its own. The child
 * in between has ended when this returns; otherwise the runner would find the grandchild through
 * it. */
static symmem_status open_leaves_a_process(const symmem_host *host,
                                           const symmem_backend_config *config, void **instance_p) {
    pid_t pid = config->world_size > 1 ? fork() : -1;
    if (pid == 0) {
        if (setsid() > 0 && fork() == 0)
            spin_for_ever();
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return real->open(host, config, instance_p);
}

static void entry(flat_backend *table) {
    (void)table;
    spin_for_ever();
}

const struct mutant bad_hanging[] = {
    {"hang.entry", .change = entry},
    {"hang.open", .entries.open = open_hangs},
    {"hang.alloc", .entries.memory_alloc = alloc_hangs},
    {"hang.barrier", .entries.barrier = barrier_hangs},
    {"hang.close", .entries = {.open = open_looks, .close = close_hangs_later}},
    {"hang.close_at_once", .entries.close = close_hangs},
    {"hang.stream",
     .entries = {.copy = copy_is_never_done, .stream_synchronize = synchronize_hangs}},
    {"hang.exit", .entries.open = open_for_a_bad_end},
    {"hang.stopped", .entries.barrier = barrier_stops},
    {"hang.process", .entries.open = open_leaves_a_process},
    {.name = NULL},
};
