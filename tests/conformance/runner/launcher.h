/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that a foreign launcher starts (--launcher), such as mpirun. It starts a process for each
 * rank, the starter, which is this program again with `--start-rank DIRECTORY JOB`. The starter
 * comes to a socket in the case's directory, which only this user can open, says which rank it is,
 * and gets the memory that ranks and controller share. On an order it forks the rank, and then
 * tells how that ended. So a rank that dies takes nothing along: to the launcher its starter lives
 * on.
 */
#ifndef SYMMEM_RUNNER_LAUNCHER_H
#define SYMMEM_RUNNER_LAUNCHER_H

#include "runner.h"

#define STARTER_OPTION "--start-rank"
#define STARTER_SOCKET "starters"

/* By a starter, first. */
struct starter_hello {
    uint64_t job;
    int32_t rank;       /* -1: no launcher's variable says it */
    int32_t world_size; /* -1: no variable says it */
};

enum starter_order_kind { STARTER_RUN, STARTER_SIGNAL, STARTER_LEAVE };

/* To a starter. STARTER_RUN comes with descriptors of the arena, of what the ranks print and, if
 * has_lateness, of that. */
struct starter_order {
    enum starter_order_kind kind;
    int test; /* its index among the cases */
    int ranks;
    uint64_t seed;
    uint32_t timeout_ms, late_ms;
    int signal;
    bool group; /* the signal is for what the rank started, too */
    bool has_lateness;
    char scratch[256];
    char backend[1024];
};
#define STARTER_DESCRIPTORS 3

/* By a starter: its rank has started, or has ended with that status of waitpid's. */
struct starter_report {
    bool ended;
    int32_t pid;
    int32_t status;
};

/* Starts the ranks and returns when all run, or when run->launch_fault says why not. */
void launcher_launch(struct runner_run *run);
/* Takes off run->children who has ended. */
void launcher_collect(struct runner_run *run);
void launcher_signal(struct runner_run *run, int rank, int signal_number, bool group);
/* When the ranks have ended: lets the starters go and waits for the launcher's end. */
void launcher_finish(struct runner_run *run);
/* Before the first case: whether the launcher starts as many processes as it is to. If not, says
 * why on standard error. */
bool launcher_try(struct runner *runner);

/* The starter's program; its exit status. */
int starter_main(const char *directory, const char *job);
/* The socket's address, by a descriptor of its directory, for paths may be long. */
struct sockaddr_un;
void starter_address(struct sockaddr_un *address, int directory_fd);

#endif
