/* SPDX-License-Identifier: BSD-3-Clause */
/* A child process that sends who it is. */
#ifndef SYMMEM_IDENTITY_CHILD_H
#define SYMMEM_IDENTITY_CHILD_H

#include "bootstrap/bootstrap.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static inline void *sleep_a_minute(void *arg) {
    for (int i = 0; i < 60; i++)
        sleep(1);
    return arg;
}

/* It does `first`, sends its identity, does `then` and sleeps. It ends with its parent. -1: there
 * is none. */
static inline pid_t start_child(sm_identity *identity_p, bool (*first)(void), void (*then)(void)) {
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        sm_identity identity;
        memset(&identity, 0, sizeof(identity));
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent || !first() ||
            sm_identity_self(&identity) != SYMMEM_OK ||
            write(ends[1], &identity, sizeof(identity)) != sizeof(identity))
            _exit(1);
        then();
        (void)sleep_a_minute(NULL);
        _exit(0);
    }
    close(ends[1]);
    bool got = pid > 1 && read(ends[0], identity_p, sizeof(*identity_p)) == sizeof(*identity_p);
    close(ends[0]);
    return got ? pid : -1;
}

#endif
