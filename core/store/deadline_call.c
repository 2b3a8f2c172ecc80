/* SPDX-License-Identifier: BSD-3-Clause */
/* A call in a thread of its own, which its caller can leave behind. */
#include "store/deadline_call.h"

#include <errno.h>
#include <time.h>

void sm_deadline_call_release(sm_deadline_call *call) {
    if (atomic_fetch_sub_explicit(&call->users, 1, memory_order_acq_rel) != 1)
        return;
    (void)pthread_cond_destroy(&call->changed);
    (void)pthread_mutex_destroy(&call->lock);
    call->destroy(call);
}

static void *run_call(void *arg) {
    sm_deadline_call *call = arg;
    call->run(call);
    (void)pthread_mutex_lock(&call->lock);
    call->done = true;
    (void)pthread_cond_signal(&call->changed);
    (void)pthread_mutex_unlock(&call->lock);
    sm_deadline_call_release(call);
    return NULL;
}

/* The deadline is of the machine's clock, as those of the called libraries are. */
static bool wait_until_done(sm_deadline_call *call, uint64_t deadline_ns) {
    const struct timespec until = {(time_t)(deadline_ns / 1000000000ull),
                                   (long)(deadline_ns % 1000000000ull)};
    int error = 0;
    (void)pthread_mutex_lock(&call->lock);
    while (!call->done && error != ETIMEDOUT)
        error = deadline_ns == 0 ? pthread_cond_wait(&call->changed, &call->lock)
                                 : pthread_cond_timedwait(&call->changed, &call->lock, &until);
    const bool done = call->done;
    (void)pthread_mutex_unlock(&call->lock);
    return done;
}

bool sm_deadline_call_run(sm_deadline_call *call, uint64_t deadline_ns) {
    pthread_t thread;
    atomic_init(&call->users, 2);
    call->done = call->is_left = false;
    call->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    int error = sm_cond_init(&call->changed);
    if (error != 0) {
        (void)pthread_mutex_destroy(&call->lock);
        call->destroy(call);
        errno = error;
        return false;
    }
    error = sm_thread_create(&thread, run_call, call);
    if (error != 0) {
        sm_deadline_call_release(call);
        sm_deadline_call_release(call);
        errno = error;
        return false;
    }
    if (wait_until_done(call, deadline_ns)) {
        (void)pthread_join(thread, NULL); /* it only has to return */
        return true;
    }
    (void)pthread_detach(thread);
    call->is_left = true;
    sm_deadline_call_release(call);
    errno = ETIMEDOUT;
    return false;
}
