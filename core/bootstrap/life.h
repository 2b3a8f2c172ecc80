/* SPDX-License-Identifier: BSD-3-Clause */
/* A process's sockets by which other processes see whether it lives. See life.c. */
#ifndef SYMMEM_CORE_LIFE_H
#define SYMMEM_CORE_LIFE_H

#include <stdio.h>
#include <sys/stat.h>
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
/* Does the same through a file in a directory, until sm_life_file_end. `rank` is that of the
 * context. Returns NULL without a record if there is no file. */
sm_life_file *sm_life_file_begin(const char *directory, int32_t rank);
/* Behind the prefix of a file's name. The second one stands there until the file is marked as
 * unsettled. */
#define SM_LIFE_MARK '.'
#define SM_LIFE_UNTOLD '+'
/* Returns the rank in the name of a file, or -1. */
int32_t sm_life_rank_of(const char *name);
/* The rank's key in the store tells of the file from now on. */
void sm_life_file_settle(sm_life_file *file);
/* The key will not tell of the file any more: anybody may remove the file once its process has
 * ended. */
bool sm_life_unsettle(const char *path);
bool sm_life_is_unsettled(const struct stat *file);
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
