/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Aborts communicators, each on a thread of its own. In one process the last rank's abort frees the
 * memory of all its ranks, on all their devices. Some of those calls wait for what runs there,
 * perhaps for a peer's kernel that waits for this rank. So the thread that gave up the last use
 * waits for a while, because a communicator's resources should be free again if possible, and then
 * goes on.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "nccl_internal.h"
#include "comm_abort.h"
#include "comm.h"

#define LATE_NS (10000 * CUDA_NS_PER_MS)

/* In the state's list from its start until it is joined. */
struct nccl_comm_abort {
    struct nccl_comm_abort *next;
    cuda_instance *instance;
    nccl_comm *comm;
    pthread_t thread;
    bool waited_for; /* by the thread that began it and joins it */
    bool done;
};

/* An abort may give up the last use of another communicator, and so begin another abort. */
static void *run_abort(void *opaque) {
    nccl_comm_abort *ending = opaque;
    nccl_state *state = nccl_state_of(ending->instance);
    const cuda_driver driver = ending->instance->driver;
    if (cuda_busy_begin()) {
        cuda_relax(&driver);
        nccl_comm_end(ending->instance, ending->comm);
        cuda_restore(&driver);
        cuda_busy_end();
    }
    pthread_mutex_lock(&state->lock);
    ending->done = true;
    pthread_cond_broadcast(&state->ended);
    pthread_mutex_unlock(&state->lock);
    return NULL;
}

/* The lock is held. */
static void unlist(nccl_state *state, const nccl_comm_abort *ending) {
    nccl_comm_abort **link = &state->endings;
    while (*link != ending)
        link = &(*link)->next;
    *link = ending->next;
    pthread_cond_broadcast(&state->ended);
}

static void finish(nccl_comm_abort *ending) {
    (void)pthread_join(ending->thread, NULL);
    free(ending);
}

/* The lock is held. Returns the first abort that no thread waits for; with done_only only one that
 * is done. */
static nccl_comm_abort *find_left(const nccl_state *state, bool done_only) {
    nccl_comm_abort *ending = state->endings;
    while (ending != NULL && (ending->waited_for || (done_only && !ending->done)))
        ending = ending->next;
    return ending;
}

/* Joins those that took longer and are done by now. */
static void sweep(nccl_state *state) {
    nccl_comm_abort *ending;
    pthread_mutex_lock(&state->lock);
    while ((ending = find_left(state, true)) != NULL) {
        unlist(state, ending);
        pthread_mutex_unlock(&state->lock);
        finish(ending);
        pthread_mutex_lock(&state->lock);
    }
    pthread_mutex_unlock(&state->lock);
}

/* Returns false if it has to end in the calling thread. */
static bool start_abort(nccl_state *state, nccl_comm_abort *ending) {
    sigset_t before;
    bool started = false;
    cuda_signals_block(&before);
    pthread_mutex_lock(&state->lock);
    if (!state->ends_here && pthread_create(&ending->thread, NULL, run_abort, ending) == 0) {
        ending->next = state->endings;
        state->endings = ending;
        started = true;
    }
    pthread_mutex_unlock(&state->lock);
    cuda_signals_allow(&before);
    return started;
}

/* The lock is held. */
static void wait_for(nccl_state *state, const nccl_comm_abort *ending, uint64_t until_ns) {
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    while (!ending->done && pthread_cond_timedwait(&state->ended, &state->lock, &until) == 0)
        continue;
}

static void wait_a_while(nccl_state *state, nccl_comm_abort *ending, uint64_t until_ns) {
    pthread_mutex_lock(&state->lock);
    wait_for(state, ending, until_ns);
    ending->waited_for = false;
    const bool done = ending->done;
    if (done)
        unlist(state, ending);
    else
        pthread_cond_broadcast(&state->ended); /* the closing thread has it to wait for now */
    pthread_mutex_unlock(&state->lock);
    if (done)
        finish(ending);
}

void nccl_comm_abort_begin(cuda_instance *instance, nccl_comm *comm, uint64_t until_ns) {
    nccl_state *state = nccl_state_of(instance);
    const bool waits = until_ns != 0;
    sweep(state);
    nccl_comm_abort *ending = calloc(1, sizeof *ending);
    if (ending != NULL)
        *ending = (nccl_comm_abort){.instance = instance, .comm = comm, .waited_for = waits};
    if (ending != NULL && start_abort(state, ending)) {
        if (waits)
            wait_a_while(state, ending, until_ns);
        return;
    }
    free(ending);
    nccl_comm_end(instance, comm);
}

void nccl_comm_aborts_finish(cuda_instance *instance) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    state->ends_here = true;
    while (state->endings != NULL) {
        nccl_comm_abort *ending = find_left(state, false);
        if (ending == NULL) {
            pthread_cond_wait(&state->ended, &state->lock);
            continue;
        }
        ending->waited_for = true; /* from here on */
        wait_for(state, ending, cuda_now_ns() + LATE_NS);
        const bool late = !ending->done;
        unlist(state, ending);
        pthread_mutex_unlock(&state->lock);
        if (late)
            instance->host->notice(instance->host, "NCCL has not ended a communicator in ten "
                                                   "seconds: closing waits for it");
        finish(ending);
        pthread_mutex_lock(&state->lock);
    }
    pthread_mutex_unlock(&state->lock);
}
