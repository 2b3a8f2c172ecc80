/* SPDX-License-Identifier: BSD-3-Clause */
/* What would harm the machine, and so does something only inside. */
#include "decorator.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* True in a PID namespace other than the one that OUTER_PID_NAMESPACE names, with few processes
 * allowed. In doubt false: the mutant then does nothing, and the driver reports a survivor. */
static bool is_contained(void) {
    char own[64];
    const char *outer = getenv("OUTER_PID_NAMESPACE");
    struct rlimit processes;
    ssize_t length = readlink("/proc/self/ns/pid", own, sizeof own - 1);
    if (!outer || strncmp(outer, "pid:[", 5) != 0 || length <= 0)
        return false;
    own[length] = '\0';
    if (strncmp(own, "pid:[", 5) != 0 || strcmp(own, outer) == 0)
        return false;
    return getrlimit(RLIMIT_NPROC, &processes) == 0 && processes.rlim_max <= 2000;
}

/* Fills whatever room for processes there is. */
static symmem_status fork_without_end(void *instance, int32_t device, size_t bytes,
                                      symmem_memory *memory) {
    if (is_contained())
        for (;;)
            if (fork() < 0)
                mutant_sleep_ms(10); /* and again: the limit has to hold for good */
    return real->memory_alloc(instance, device, bytes, memory);
}

/* Kills all that it can reach. */
static symmem_status kill_all(void *instance, int32_t device, size_t bytes, symmem_memory *memory) {
    if (is_contained())
        kill(-1, SIGKILL);
    return real->memory_alloc(instance, device, bytes, memory);
}

const struct mutant contained_mutants[] = {
    {"forks_without_end", .entries.memory_alloc = fork_without_end},
    {"kills_at_random", .entries.memory_alloc = kill_all},
    {.name = NULL},
};
