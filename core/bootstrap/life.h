/* SPDX-License-Identifier: BSD-3-Clause */
/* A process's own sockets, by which others see whether it lives. See life.c. */
#ifndef SYMMEM_CORE_LIFE_H
#define SYMMEM_CORE_LIFE_H

#include <stdio.h>
#include <sys/un.h>
#include "base/base.h"

typedef struct sm_identity sm_identity; /* identity.h */

#define SM_LIFE_ID_BYTES 16
#define SM_IPC_ADDRESS_MAX 112 /* bytes of sockaddr_un that travel */
typedef struct sm_life_file sm_life_file;

/* A random number of this process's, also after a fork. */
symmem_status sm_life_id(uint8_t id[SM_LIFE_ID_BYTES]);
/* From here on others can see it by its name, until each such call that was OK is ended. */
symmem_status sm_life_begin(void);
void sm_life_end(void);
/* The same by a file in a directory, till that is taken back. NULL, without a record: not there. */
sm_life_file *sm_life_file_begin(const char *directory);
/* Gives it the name that others are told: then its path, with the mark behind the prefix. */
#define SM_LIFE_MARK '.'
void sm_life_file_make_known(sm_life_file *file);
const char *sm_life_file_path(const sm_life_file *file);
void sm_life_file_end(sm_life_file *file);
/* Lets go of those that have looked. Now and then. */
void sm_life_serve(void);
/* Around a fork, and in the child, as those of sockets below. */
void sm_life_lock_all(void);
void sm_life_unlock_all(void);
void sm_life_forget_all(void);

typedef enum sm_life_state {
    SM_LIFE_UNKNOWN = 0, /* no such file, no right, no descriptor left */
    SM_LIFE_LIVES,
    SM_LIFE_REFUSED, /* nobody has that name here */
    SM_LIFE_FOREIGN, /* another user has */
} sm_life_state;

typedef struct sm_life_answer {
    sm_life_state by_name, by_file;
    int pidfd;             /* of the process, the caller's; -1: not had */
    int32_t pid;           /* as seen from here, 0: it is not */
    bool cannot_hold;      /* the kernel has no pidfds for that */
    bool lacks_descriptor; /* this process has none left to look with */
} sm_life_answer;

/* One look at a process's sockets; never waits. `wants_process`: with a pidfd. Takes a descriptor
 * meanwhile, and without one knows nothing. */
void sm_life_ask(const sm_identity *identity, bool wants_process, sm_life_answer *answer);

#endif
