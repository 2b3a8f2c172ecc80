/* SPDX-License-Identifier: BSD-3-Clause */
/* The instance's thread. It watches work in flight while no other thread does. */
#include <errno.h>

#include "watcher.h"
#include "backend.h"
#include "driver/clock.h"
#include "driver/exit.h"
#include "inflight/inflight.h"
#include "inflight/chunk_wait.h"

#define TICK_NS (10 * CUDA_NS_PER_MS)

static void watch_signal(const cuda_signal_op *signal, bool given_up) {
    if (signal->fault == NULL)
        return;
    cuda_watch_peers(signal);
    if (given_up && signal->peers == NULL)
        cuda_cancel_chunk_waits(signal);
}

/* Launches of one graph wait one after the other, on the same host word. */
static bool is_wanted(const cuda_instance *instance, const cuda_graph *graph) {
    const cuda_pending *pending = instance->pending;
    while (pending != NULL && (pending->graph != graph || pending->stream->given_up))
        pending = pending->next;
    return graph->is_launched || pending != NULL;
}

static void watch(const cuda_instance *instance, const cuda_pending *pending) {
    const bool given_up = pending->stream->given_up;
    watch_signal(&pending->signal, given_up);
    if (pending->graph == NULL)
        return;
    const bool in_vain = given_up && !is_wanted(instance, pending->graph);
    for (const cuda_captured *held = pending->graph->held; held != NULL; held = held->next)
        watch_signal(&held->signal, in_vain);
}

/* The graph may run at any time. Its kernels learn of a poison from cuda_signal_poison. */
static void check_foreign_capture(const cuda_capture *capture) {
    for (const cuda_captured *held = capture->watched; held != NULL; held = held->next_watched)
        cuda_watch_lost(&held->signal);
}

/* `collecting` keeps the peers. */
static void watch_all(cuda_instance *instance) {
    pthread_mutex_lock(&instance->collecting);
    pthread_mutex_lock(&instance->lock);
    for (const cuda_pending *pending = instance->pending; pending != NULL; pending = pending->next)
        watch(instance, pending);
    for (const cuda_capture *capture = instance->foreign_captures; capture != NULL;
         capture = capture->next)
        check_foreign_capture(capture);
    pthread_mutex_unlock(&instance->lock);
    pthread_mutex_unlock(&instance->collecting);
}

/* Returns false if the instance is closed and no work is left. */
static bool wait_for_work(cuda_instance *instance) {
    pthread_mutex_lock(&instance->lock);
    while (!instance->closing && instance->pending == NULL && instance->foreign_captures == NULL)
        pthread_cond_wait(&instance->work, &instance->lock);
    bool closing = instance->closing;
    pthread_mutex_unlock(&instance->lock);
    return !closing || atomic_load(&instance->pending_count) != 0;
}

/* A process that ends by exit may leave graphs and work behind. */
static void look_after(cuda_instance *instance) {
    if (!cuda_busy_begin())
        return;
    cuda_collect(instance);
    watch_all(instance);
    cuda_busy_end();
}

static void *run_watcher(void *opaque) {
    cuda_instance *instance = opaque;
    while (wait_for_work(instance)) {
        cuda_sleep_ns(TICK_NS);
        look_after(instance);
    }
    if (instance->left) {
        (void)pthread_detach(pthread_self());
        if (!cuda_busy_begin())
            return NULL; /* the instance ends with the process */
        cuda_instance_end(instance);
        cuda_busy_end();
    }
    return NULL;
}

symmem_status cuda_watcher_start(cuda_instance *instance) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigset_t before;
    (void)pthread_once(&once, cuda_await_at_exit);
    cuda_signals_block(&before);
    int error = pthread_create(&instance->watcher, NULL, run_watcher, instance);
    cuda_signals_allow(&before);
    if (error == 0)
        return SYMMEM_OK;
    return instance->host->fail(instance->host, error == EAGAIN ? SYMMEM_LIMIT : SYMMEM_SYSTEM,
                                error, "open", "starting a thread");
}

/* Also waits until the thread that counted the last work as done has left cuda_collect. */
static void end_watching(cuda_instance *instance, bool leave) {
    pthread_mutex_lock(&instance->collecting);
    pthread_mutex_unlock(&instance->collecting);
    pthread_mutex_lock(&instance->lock);
    instance->left = leave;
    instance->closing = true;
    pthread_cond_signal(&instance->work);
    pthread_mutex_unlock(&instance->lock);
}

void cuda_watcher_leave(cuda_instance *instance) {
    end_watching(instance, true);
}

void cuda_watcher_stop(cuda_instance *instance) {
    end_watching(instance, false);
    (void)pthread_join(instance->watcher, NULL);
}
