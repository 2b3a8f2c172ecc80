/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of other libraries that know no deadline: a resolver's, PMIx's. */
#ifndef SYMMEM_CORE_IN_TIME_H
#define SYMMEM_CORE_IN_TIME_H

#include "base/base.h"

typedef struct sm_task {
    void (*run)(struct sm_task *task);
    void (*destroy)(struct sm_task *task); /* by whoever is the last to need it */
    _Atomic int users;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
} sm_task;

/* Runs it in a thread of its own, which takes no signals. True: it is done, and the caller calls
 * sm_task_release. False: not by then, or no thread could be made (errno, else ETIMEDOUT); the
 * thread goes on by itself and destroys the task. */
bool sm_task_run(sm_task *task, uint64_t deadline_ns);
void sm_task_release(sm_task *task);

#endif
