/* SPDX-License-Identifier: BSD-3-Clause */
/* A call in a thread of its own, so that its caller can leave it to itself. */
#include "store/in_time.h"

#include <errno.h>
#include <time.h>

void sm_task_release(sm_task *task) {
    if (atomic_fetch_sub_explicit(&task->users, 1, memory_order_acq_rel) != 1)
        return;
    (void)pthread_cond_destroy(&task->changed);
    (void)pthread_mutex_destroy(&task->lock);
    task->destroy(task);
}

static void *run(void *arg) {
    sm_task *task = arg;
    task->run(task);
    (void)pthread_mutex_lock(&task->lock);
    task->done = true;
    (void)pthread_cond_signal(&task->changed);
    (void)pthread_mutex_unlock(&task->lock);
    sm_task_release(task);
    return NULL;
}

/* By the machine's clock: so does what the task does. */
static bool wait_for(sm_task *task, uint64_t deadline_ns) {
    const struct timespec until = {(time_t)(deadline_ns / 1000000000ull),
                                   (long)(deadline_ns % 1000000000ull)};
    int error = 0;
    (void)pthread_mutex_lock(&task->lock);
    while (!task->done && error != ETIMEDOUT)
        error = deadline_ns == 0 ? pthread_cond_wait(&task->changed, &task->lock)
                                 : pthread_cond_timedwait(&task->changed, &task->lock, &until);
    const bool done = task->done;
    (void)pthread_mutex_unlock(&task->lock);
    return done;
}

bool sm_task_run(sm_task *task, uint64_t deadline_ns) {
    pthread_t thread;
    atomic_init(&task->users, 2);
    task->done = false;
    task->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    int error = sm_cond_init(&task->changed);
    if (error != 0) {
        (void)pthread_mutex_destroy(&task->lock);
        task->destroy(task);
        errno = error;
        return false;
    }
    error = sm_thread_create(&thread, run, task);
    if (error != 0) {
        sm_task_release(task);
        sm_task_release(task);
        errno = error;
        return false;
    }
    if (wait_for(task, deadline_ns)) {
        (void)pthread_join(thread, NULL); /* it only has to return */
        return true;
    }
    (void)pthread_detach(thread);
    sm_task_release(task);
    errno = ETIMEDOUT;
    return false;
}
