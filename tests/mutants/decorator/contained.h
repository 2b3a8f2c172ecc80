/* SPDX-License-Identifier: BSD-3-Clause */
/* For mutants that would harm the machine: whether they run inside. */
#ifndef SYMMEM_MUTANTS_CONTAINED_H
#define SYMMEM_MUTANTS_CONTAINED_H

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "decorator.h"

/* True in a PID namespace other than the one that OUTER_PID_NAMESPACE names, with few processes
 * allowed. In doubt false: the mutant then does nothing, and the driver reports a survivor. */
static inline bool is_contained(void) {
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

#endif
