/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread for calls of an engine that may wait for other ranks and know no limit. Who needs such a
 * call has the thread make it, and waits for that with a limit. A call that is given up goes on,
 * and so its argument has to stay.
 */
#ifndef SYMMEM_KIT_HELPER_H
#define SYMMEM_KIT_HELPER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef void (*symmem_kit_task_fn)(void *arg);

typedef struct symmem_kit_helper {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    symmem_kit_task_fn task; /* NULL: there is none under way */
    void *arg;
    uint64_t asked, done; /* tasks */
    uint64_t thread;      /* the number of the one that serves */
    bool running;
} symmem_kit_helper;

#define SYMMEM_KIT_HELPER_INIT                                                                     \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER }

/* Unless it runs already. It takes no signals but those of faults, and lives as long as the
 * process. 0 or an errno. */
int symmem_kit_helper_start(symmem_kit_helper *helper);
/* Has the thread run task(arg) after those of other callers, and waits for its end. Gives up and
 * returns false at deadline_ns, of CLOCK_MONOTONIC, where 0 is no limit. It does so too when
 * over_fn returns true, which is called again and again while the caller waits, unless it is NULL.
 * *began_p says whether the task has `arg` then. */
bool symmem_kit_helper_run(symmem_kit_helper *helper, symmem_kit_task_fn task, void *arg,
                           uint64_t deadline_ns, bool (*over_fn)(void *over_arg), void *over_arg,
                           bool *began_p);
/* The task under way may never end: those that come next are for a thread of their own. */
void symmem_kit_helper_abandon(symmem_kit_helper *helper);

#endif
