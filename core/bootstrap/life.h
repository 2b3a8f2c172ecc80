/* SPDX-License-Identifier: BSD-3-Clause */
/* A process's sockets by which other processes see whether it lives. See life.c. */
#ifndef SYMMEM_CORE_LIFE_H
#define SYMMEM_CORE_LIFE_H

#include <stdio.h>
#include <sys/un.h>
#include "base/base.h"

typedef struct sm_identity sm_identity; /* identity.h */

#define SM_LIFE_ID_BYTES 16
#define SM_IPC_ADDRESS_MAX 112 /* bytes of sockaddr_un that travel */
typedef struct sm_life_file sm_life_file;

/* Returns this process's random number. The child of a fork gets another one. */
symmem_status sm_life_id(uint8_t id[SM_LIFE_ID_BYTES]);
/* Lets other processes see by name that this one lives. sm_life_end undoes one call that was OK. */
symmem_status sm_life_begin(void);
void sm_life_end(void);
/* Does the same through a file in a directory, until sm_life_file_end. Returns NULL without a
 * record if there is no file. */
sm_life_file *sm_life_file_begin(const char *directory);
/* Gives the file a second name, which peers are told. It has SM_LIFE_MARK behind the prefix, in
 * place of SM_LIFE_UNTOLD. */
#define SM_LIFE_MARK '.'
#define SM_LIFE_UNTOLD '+'
void sm_life_file_make_known(sm_life_file *file);
/* Peers have been told: only that name stays. */
void sm_life_file_settle(sm_life_file *file);
const char *sm_life_file_path(const sm_life_file *file);
void sm_life_file_end(sm_life_file *file);
/* Drops the connections of processes that have looked. To be called now and then. */
void sm_life_serve(void);
/* Called around a fork and in the child, like sm_ipc_lock_all and its companions. */
void sm_life_lock_all(void);
void sm_life_unlock_all(void);
void sm_life_forget_all(void);

typedef enum sm_life_state {
    SM_LIFE_UNKNOWN = 0, /* no such file, no right, no descriptor left */
    SM_LIFE_LIVES,
    SM_LIFE_REFUSED, /* no socket has that name here */
    SM_LIFE_FOREIGN, /* a socket of another user has that name */
} sm_life_state;

typedef struct sm_life_answer {
    sm_life_state by_name, by_file;
    int pidfd;             /* of the process, for the caller to close; -1: none */
    int32_t pid;           /* as seen from here; 0: not visible */
    bool cannot_hold;      /* the kernel offers no pidfd for this */
    bool lacks_descriptor; /* this process has none left for the look */
} sm_life_answer;

/* Looks once at a process's sockets and never waits. With `wants_process` the answer has a pidfd. A
 * look needs a free descriptor; without one the answer is UNKNOWN. */
void sm_life_ask(const sm_identity *identity, bool wants_process, sm_life_answer *answer);

#endif
