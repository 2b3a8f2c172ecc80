/* SPDX-License-Identifier: BSD-3-Clause */
#include "helper.h"

#include <signal.h>

#include "wait.h"

/* One that was abandoned ends when its task does. */
static void *serve(void *arg) {
    symmem_kit_helper *helper = arg;
    pthread_mutex_lock(&helper->lock);
    const uint64_t own = helper->thread;
    while (helper->thread == own) {
        while (helper->task == NULL && helper->thread == own)
            pthread_cond_wait(&helper->changed, &helper->lock);
        if (helper->thread != own)
            break;
        symmem_kit_task_fn task = helper->task;
        void *task_arg = helper->arg;
        helper->task = NULL;
        pthread_mutex_unlock(&helper->lock);
        task(task_arg);
        pthread_mutex_lock(&helper->lock);
        if (helper->thread == own)
            helper->done++;
    }
    pthread_mutex_unlock(&helper->lock);
    return NULL;
}

/* Signals of the process are for the program's own threads. */
static int start_thread(symmem_kit_helper *helper) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t blocked, old;
    pthread_t thread;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &old);
    int error = pthread_create(&thread, NULL, serve, helper);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0)
        pthread_detach(thread);
    return error;
}

int symmem_kit_helper_start(symmem_kit_helper *helper) {
    pthread_mutex_lock(&helper->lock);
    int error = helper->running ? 0 : start_thread(helper);
    helper->running = error == 0;
    pthread_mutex_unlock(&helper->lock);
    return error;
}

/* The task's number; 0: another is under way. */
static uint64_t hand_over(symmem_kit_helper *helper, symmem_kit_task_fn task, void *arg) {
    if (helper->asked != helper->done)
        return 0;
    helper->task = task;
    helper->arg = arg;
    pthread_cond_signal(&helper->changed);
    return ++helper->asked;
}

bool symmem_kit_helper_run(symmem_kit_helper *helper, symmem_kit_task_fn task, void *arg,
                           uint64_t deadline_ns, bool (*over_fn)(void *over_arg), void *over_arg,
                           bool *began_p) {
    uint64_t number = 0;
    for (unsigned turns = 0;; turns++) {
        pthread_mutex_lock(&helper->lock);
        if (number == 0)
            number = hand_over(helper, task, arg);
        const bool done = number != 0 && helper->done >= number;
        pthread_mutex_unlock(&helper->lock);
        *began_p = number != 0;
        if (done)
            return true;
        if ((deadline_ns != 0 && symmem_kit_now_ns() >= deadline_ns) ||
            (over_fn != NULL && over_fn(over_arg)))
            return false;
        symmem_kit_pause(turns);
    }
}

/* Without a new thread every later call waits until its limit. */
void symmem_kit_helper_abandon(symmem_kit_helper *helper) {
    pthread_mutex_lock(&helper->lock);
    helper->thread++;
    helper->task = NULL;
    helper->done = helper->asked;
    helper->running = false;
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->lock);
    (void)symmem_kit_helper_start(helper);
}
