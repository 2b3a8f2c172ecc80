/* SPDX-License-Identifier: BSD-3-Clause */
/* A process's own sockets, by which others see whether it lives. See life.c. */
#ifndef SYMMEM_CORE_LIFE_H
#define SYMMEM_CORE_LIFE_H

#include "internal.h"

#include <stdio.h>
#include <sys/un.h>

typedef enum sm_life_state {
    SM_LIFE_UNKNOWN = 0, /* no such file, no right, no descriptor left */
    SM_LIFE_LIVES,
    SM_LIFE_REFUSED, /* nobody has that name here */
    SM_LIFE_FOREIGN, /* another user has */
} sm_life_state;

typedef struct sm_life_answer {
    sm_life_state by_name, by_file;
    int pidfd;        /* of the process, the caller's; -1: not had */
    int32_t pid;      /* as seen from here, 0: it is not */
    bool cannot_hold; /* the kernel has no pidfds for that */
} sm_life_answer;

/* One look at a process's sockets; never waits. `wants_process`: with a pidfd. Takes a descriptor
 * meanwhile, and without one knows nothing. */
void sm_life_ask(const sm_identity *identity, bool wants_process, sm_life_answer *answer);

#endif
