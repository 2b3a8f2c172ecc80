/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a communicator, on a thread of its own. In one process the last rank's abort frees
 * what all of its ranks had, on all of their devices, and some of those calls wait for what runs
 * there: perhaps for a peer's kernel that waits for this rank. So whoever gave up the last use
 * waits a while, for what a communicator had is to be free again where that is possible, and then
 * goes on.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "nccl_internal.h"

#define WAIT_NS (1000 * CUDA_NS_PER_MS)
#define LATE_NS (10000 * CUDA_NS_PER_MS)

struct nccl_ending {
    struct nccl_ending *next;
    cuda_instance *instance;
    nccl_comm *comm;
    pthread_t thread;
    bool done; /* under the state's lock */
};

static void *run(void *opaque) {
    nccl_ending *ending = opaque;
    nccl_state *state = nccl_state_of(ending->instance);
    nccl_comm_end(ending->instance, ending->comm);
    pthread_mutex_lock(&state->lock);
    ending->done = true;
    pthread_cond_broadcast(&state->ended);
    pthread_mutex_unlock(&state->lock);
    return NULL;
}

static bool wait_for(nccl_state *state, const nccl_ending *ending, uint64_t limit_ns) {
    const uint64_t until_ns = cuda_now_ns() + limit_ns;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    pthread_mutex_lock(&state->lock);
    while (!ending->done && pthread_cond_timedwait(&state->ended, &state->lock, &until) == 0)
        continue;
    bool done = ending->done;
    pthread_mutex_unlock(&state->lock);
    return done;
}

static void finish(nccl_ending *ending) {
    (void)pthread_join(ending->thread, NULL);
    free(ending);
}

/* For the next one, or the end of the instance; there it is waited for here. */
static void keep(nccl_state *state, nccl_ending *ending) {
    pthread_mutex_lock(&state->lock);
    bool here = state->ends_here;
    if (!here) {
        ending->next = state->endings;
        state->endings = ending;
    }
    pthread_mutex_unlock(&state->lock);
    if (here)
        finish(ending);
}

static nccl_ending *take_all(nccl_state *state, bool closing) {
    pthread_mutex_lock(&state->lock);
    nccl_ending *first = state->endings;
    state->endings = NULL;
    state->ends_here = state->ends_here || closing;
    pthread_mutex_unlock(&state->lock);
    return first;
}

static void sweep(nccl_state *state) {
    nccl_ending *next;
    for (nccl_ending *ending = take_all(state, false); ending != NULL; ending = next) {
        next = ending->next;
        if (wait_for(state, ending, 0))
            finish(ending);
        else
            keep(state, ending);
    }
}

void nccl_ending_begin(cuda_instance *instance, nccl_comm *comm) {
    nccl_state *state = nccl_state_of(instance);
    sigset_t before;
    sweep(state);
    nccl_ending *ending = calloc(1, sizeof *ending);
    bool started = false;
    if (ending != NULL) {
        *ending = (nccl_ending){.instance = instance, .comm = comm};
        nccl_signals_off(&before);
        started = pthread_create(&ending->thread, NULL, run, ending) == 0;
        nccl_signals_on(&before);
    }
    if (!started) {
        free(ending);
        nccl_comm_end(instance, comm);
    } else if (wait_for(state, ending, WAIT_NS)) {
        finish(ending);
    } else {
        keep(state, ending);
    }
}

void nccl_endings_finish(cuda_instance *instance) {
    nccl_state *state = nccl_state_of(instance);
    nccl_ending *next;
    for (nccl_ending *ending = take_all(state, true); ending != NULL; ending = next) {
        next = ending->next;
        if (!wait_for(state, ending, LATE_NS))
            instance->host->notice(instance->host, "NCCL has not ended a communicator in ten "
                                                   "seconds: closing waits for it");
        finish(ending);
    }
}
