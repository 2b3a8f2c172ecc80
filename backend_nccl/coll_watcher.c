/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Watches NCCL's collectives in flight. An entry is in the state's list from before its first
 * kernel until the stream has passed it. Its fault is written under the state's lock while the
 * entry is in the list. So it is never written after the stream has passed and the fault's memory
 * is reused.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "coll_comm.h"

#define TICK_NS (1 * CUDA_NS_PER_MS)
/* for callbacks that never come because the device is lost */
#define CLOSING_NS (5000 * CUDA_NS_PER_MS)
#define PEERS_NS (10 * CUDA_NS_PER_MS)
#define FORGET_NS (100 * CUDA_NS_PER_MS)
#define LOSS_NS (NCCL_LOSS_MS * CUDA_NS_PER_MS)

/* --- failures ----------------------------------------------------------------------- */

/* During the call the time counts from the call, because NCCL waits for peers in it, and a call
 * that waits for the call_lock is not on the stream. 0: the stream has not reached it. */
static uint64_t start_of(const nccl_inflight *inflight) {
    uint64_t called_ns = atomic_load(&inflight->called_ns);
    return called_ns != 0 ? called_ns : atomic_load(&inflight->begun_ns);
}

/* The state's lock is held. The code is written last, because a thread that reads it may then read
 * the rest. */
static void record_failure(nccl_inflight *inflight, symmem_status status, int32_t rank) {
    symmem_cuda_fault *fault = inflight->fault;
    uint64_t start_ns = start_of(inflight);
    if (inflight->failed)
        return;
    inflight->failed = true;
    fault->failed_rank = rank;
    fault->elapsed_ns = start_ns != 0 ? cuda_now_ns() - start_ns : 0;
    if (status == SYMMEM_PEER_LOST && rank >= 0)
        fault->missing[rank / 32] |= 1u << (rank % 32);
    __atomic_store_n(&fault->code, -(uint32_t)status, __ATOMIC_RELEASE);
    cuda_note_failure(inflight->peers);
}

void nccl_inflight_fail(nccl_inflight *inflight, symmem_status status, int32_t rank) {
    nccl_state *state = nccl_state_of(inflight->instance);
    pthread_mutex_lock(&state->lock);
    record_failure(inflight, status, rank);
    pthread_mutex_unlock(&state->lock);
}

/* The state's lock is held. An entry of an earlier communicator ended with that. It may still be in
 * the list, because its stream has not reached it. */
static bool is_on(const nccl_inflight *inflight, const nccl_coll_comm *coll) {
    return inflight->coll == coll && inflight->serial == coll->serial;
}

/* The state's lock is held. */
static void mark_lost(nccl_state *state, nccl_coll_comm *coll) {
    atomic_store(&coll->is_ready, false);
    for (nccl_inflight *inflight = state->inflights; inflight != NULL; inflight = inflight->next)
        if (is_on(inflight, coll))
            record_failure(inflight, SYMMEM_POISONED, inflight->peers->rank);
}

void nccl_coll_comm_mark_lost(cuda_instance *instance, nccl_coll_comm *coll, uint64_t serial) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    if (serial == NCCL_ANY_SERIAL || serial == coll->serial)
        mark_lost(state, coll);
    pthread_mutex_unlock(&state->lock);
}

/* Everything that waits on it ends with it, though only one call has failed. */
nccl_comm *nccl_coll_comm_remove(cuda_instance *instance, nccl_coll_comm *coll) {
    nccl_comm *comm = coll->comm;
    nccl_coll_comm_mark_lost(instance, coll, NCCL_ANY_SERIAL);
    coll->comm = NULL;
    return comm;
}

/* The lock is held. */
static void find_peer_failure(nccl_inflight *inflight) {
    const symmem_peers *peers = inflight->peers;
    const symmem_host *host = peers->host;
    if (host->is_poisoned(peers))
        record_failure(inflight, SYMMEM_POISONED, peers->rank);
    for (int32_t r = 0; r < peers->world_size; r++)
        if (r != peers->rank && host->peer_state(peers, r) == SYMMEM_PEER_GONE)
            record_failure(inflight, SYMMEM_PEER_LOST, r);
}

static bool some_are_ending(const symmem_peers *peers) {
    for (int32_t r = 0; r < peers->world_size; r++)
        if (r != peers->rank && peers->host->peer_is_ending(peers, r))
            return true;
    return false;
}

/* Finds a failure: a deadline, a peer that ended, a poisoned state, and last NCCL's error, which
 * may be a consequence. The lock is held. */
static void find_failure(nccl_inflight *inflight) {
    uint64_t start_ns = start_of(inflight), now_ns = cuda_now_ns(); /* in that order */
    bool broken = inflight->broken_ns != 0;
    bool late = start_ns != 0 && inflight->timeout_ms != 0 &&
                now_ns - start_ns >= inflight->timeout_ms * CUDA_NS_PER_MS;
    bool over =
        broken &&
        (late || (now_ns - inflight->broken_ns >= LOSS_NS && !some_are_ending(inflight->peers)));
    if (late && !broken)
        record_failure(inflight, SYMMEM_TIMEOUT, -1);
    if (over || now_ns - inflight->asked_ns >= PEERS_NS) {
        inflight->asked_ns = now_ns;
        find_peer_failure(inflight);
    }
    if (over)
        record_failure(inflight,
                       inflight->broken == ncclRemoteError ? SYMMEM_PEER_LOST : SYMMEM_BACKEND, -1);
}

/* The state's lock is held. The holder of the call_lock gives the communicator up for all. */
static bool has_other_failed(const nccl_state *state, const nccl_inflight *inflight) {
    for (const nccl_inflight *other = state->inflights; other != NULL; other = other->next)
        if (other != inflight && is_on(other, inflight->coll) && other->failed)
            return true;
    return false;
}

bool nccl_inflight_check(nccl_inflight *inflight) {
    nccl_state *state = nccl_state_of(inflight->instance);
    pthread_mutex_lock(&state->lock);
    find_failure(inflight);
    if (is_on(inflight, inflight->coll) && has_other_failed(state, inflight))
        record_failure(inflight, SYMMEM_POISONED, inflight->peers->rank);
    bool failed = inflight->failed;
    pthread_mutex_unlock(&state->lock);
    return !failed;
}

/* The state's lock is held. */
static void check_nccl_error(nccl_inflight *inflight, ncclResult_t result) {
    if (inflight->broken_ns == 0) {
        inflight->broken = result;
        inflight->broken_ns = cuda_now_ns() - (nccl_may_be_loss(result) ? 0 : LOSS_NS);
        inflight->asked_ns = 0; /* at once */
    }
    find_failure(inflight);
}

bool nccl_inflight_nccl_error(nccl_inflight *inflight, ncclResult_t result) {
    nccl_state *state = nccl_state_of(inflight->instance);
    pthread_mutex_lock(&state->lock);
    check_nccl_error(inflight, result);
    bool failed = inflight->failed;
    pthread_mutex_unlock(&state->lock);
    return failed;
}

/* --- the list ----------------------------------------------------------------------- */

void nccl_inflight_begin(void *opaque) {
    nccl_inflight *inflight = opaque;
    nccl_state *state = nccl_state_of(inflight->instance);
    pthread_mutex_lock(&state->lock);
    atomic_store(&inflight->begun_ns, cuda_now_ns());
    const bool left = inflight->left;
    pthread_mutex_unlock(&state->lock);
    if (left)
        free(inflight);
}

/* The state's lock is held. */
static void delist_call(nccl_state *state, const nccl_inflight *inflight) {
    nccl_inflight **link = &state->inflights;
    while (*link != NULL && *link != inflight)
        link = &(*link)->next;
    if (*link != NULL)
        *link = inflight->next;
}

void nccl_inflight_end(void *opaque) {
    nccl_inflight *inflight = opaque;
    nccl_state *state = nccl_state_of(inflight->instance);
    pthread_mutex_lock(&state->lock);
    delist_call(state, inflight);
    pthread_mutex_unlock(&state->lock);
    free(inflight);
}

void nccl_inflight_leave(nccl_inflight *inflight) {
    nccl_state *state = nccl_state_of(inflight->instance);
    pthread_mutex_lock(&state->lock);
    delist_call(state, inflight);
    inflight->left = true;
    const bool begun = atomic_load(&inflight->begun_ns) != 0;
    pthread_mutex_unlock(&state->lock);
    if (begun)
        free(inflight);
}

/* Its callbacks, which may never come, own it from there on. NULL: they have come. */
static nccl_coll_comm *take_out(nccl_state *state, const symmem_cuda_fault *fault,
                                uint64_t *serial_p) {
    nccl_coll_comm *coll = NULL;
    pthread_mutex_lock(&state->lock);
    const nccl_inflight *inflight = state->inflights;
    while (inflight != NULL && inflight->fault != fault)
        inflight = inflight->next;
    if (inflight != NULL) {
        *serial_p = inflight->serial;
        coll = inflight->coll;
        coll->users++;
        delist_call(state, inflight);
    }
    pthread_mutex_unlock(&state->lock);
    return coll;
}

/* The peers may wait in NCCL, without a deadline, for a call that does not come. A thread that
 * holds the call_lock for longer than that checks by itself. */
void nccl_inflight_forget(cuda_instance *instance, const symmem_cuda_fault *fault) {
    uint64_t serial;
    nccl_coll_comm *coll = take_out(nccl_state_of(instance), fault, &serial);
    if (coll == NULL)
        return;
    (void)nccl_coll_comm_end(instance, coll, serial, cuda_now_ns() + FORGET_NS);
    nccl_coll_comm_drop(instance, coll);
}

/* Its peers may wait for it in NCCL, and this rank's next call there would be taken for it. */
void nccl_inflight_abandon(nccl_inflight *inflight) {
    nccl_state *state = nccl_state_of(inflight->instance);
    pthread_mutex_lock(&state->lock);
    if (is_on(inflight, inflight->coll))
        mark_lost(state, inflight->coll);
    pthread_mutex_unlock(&state->lock);
    nccl_inflight_end(inflight);
}

/* --- the thread --------------------------------------------------------------------- */

/* Checks what NCCL reports, for example a broken connection. The call_lock is held. */
static void ask_nccl(cuda_instance *instance, nccl_coll_comm *coll) {
    nccl_state *state = nccl_state_of(instance);
    ncclResult_t result = ncclSuccess;
    if (coll->comm == NULL ||
        (state->library.CommGetAsyncError(coll->comm->handle, &result) == ncclSuccess &&
         (result == ncclSuccess || result == ncclInProgress)))
        return;
    pthread_mutex_lock(&state->lock);
    for (nccl_inflight *inflight = state->inflights; inflight != NULL; inflight = inflight->next)
        if (is_on(inflight, coll))
            check_nccl_error(inflight, result);
    pthread_mutex_unlock(&state->lock);
}

/* Returns the communicator of the list's entry number `*at_p`, which is checked, with a use for the
 * caller. NULL: there are no more. */
static nccl_coll_comm *next_coll(nccl_state *state, int *at_p) {
    int at = 0;
    nccl_coll_comm *coll = NULL;
    pthread_mutex_lock(&state->lock);
    for (nccl_inflight *inflight = state->inflights; inflight != NULL && coll == NULL;
         inflight = inflight->next)
        if (at++ == *at_p) {
            find_failure(inflight);
            coll = inflight->coll;
            coll->users++;
        }
    (*at_p)++;
    pthread_mutex_unlock(&state->lock);
    return coll;
}

static bool has_failed(nccl_state *state, const nccl_coll_comm *coll) {
    bool failed = false;
    pthread_mutex_lock(&state->lock);
    for (const nccl_inflight *inflight = state->inflights; inflight != NULL;
         inflight = inflight->next)
        failed = failed || (is_on(inflight, coll) && inflight->failed);
    pthread_mutex_unlock(&state->lock);
    return failed;
}

/* The holder of the call_lock checks by itself. */
static void watch(cuda_instance *instance) {
    nccl_state *state = nccl_state_of(instance);
    nccl_coll_comm *coll;
    for (int at = 0; (coll = next_coll(state, &at)) != NULL;) {
        if (pthread_mutex_trylock(&coll->call_lock) == 0) {
            ask_nccl(instance, coll);
            nccl_comm *comm =
                has_failed(state, coll) ? nccl_coll_comm_remove(instance, coll) : NULL;
            if (comm != NULL) /* others' deadlines must not wait for that */
                nccl_comm_drop(instance, comm);
            pthread_mutex_unlock(&coll->call_lock);
        }
        nccl_coll_comm_drop(instance, coll);
    }
}

static void *run_watcher(void *opaque) {
    cuda_instance *instance = opaque;
    nccl_state *state = nccl_state_of(instance);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)instance->driver.ThreadExchangeStreamCaptureMode(&mode);
    uint64_t closing_ns = 0;
    for (;;) {
        pthread_mutex_lock(&state->lock);
        while (!state->closing && state->inflights == NULL)
            pthread_cond_wait(&state->work, &state->lock);
        bool closing = state->closing, idle = state->inflights == NULL;
        pthread_mutex_unlock(&state->lock);
        if (closing && closing_ns == 0)
            closing_ns = cuda_now_ns();
        if (closing && (idle || cuda_now_ns() - closing_ns > CLOSING_NS))
            return NULL;
        cuda_sleep_ns(TICK_NS);
        if (!cuda_busy_begin())
            continue; /* the process ends */
        watch(instance);
        cuda_busy_end();
    }
}

/* The state's lock is held. Signals belong to the program, so the thread takes none. */
static int start_watcher(cuda_instance *instance) {
    nccl_state *state = nccl_state_of(instance);
    sigset_t before;
    if (state->has_watcher)
        return 0;
    cuda_signals_block(&before);
    int error = pthread_create(&state->watcher, NULL, run_watcher, instance);
    cuda_signals_allow(&before);
    state->has_watcher = error == 0;
    return error;
}

symmem_status nccl_watcher_start(cuda_instance *instance, const char *operation) {
    const symmem_host *host = instance->host;
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    int error = start_watcher(instance);
    pthread_mutex_unlock(&state->lock);
    if (error == 0)
        return SYMMEM_OK;
    return host->fail(host, error == EAGAIN ? SYMMEM_LIMIT : SYMMEM_SYSTEM, error, operation,
                      "starting a thread");
}

void nccl_inflight_add(nccl_inflight *inflight) {
    nccl_state *state = nccl_state_of(inflight->instance);
    pthread_mutex_lock(&state->lock);
    inflight->serial = inflight->coll->serial;
    atomic_store(&inflight->called_ns, cuda_now_ns());
    inflight->next = state->inflights;
    state->inflights = inflight;
    pthread_cond_signal(&state->work);
    pthread_mutex_unlock(&state->lock);
}

void nccl_watcher_stop(cuda_instance *instance) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    bool has_watcher = state->has_watcher;
    state->closing = true;
    pthread_cond_signal(&state->work);
    pthread_mutex_unlock(&state->lock);
    if (has_watcher)
        pthread_join(state->watcher, NULL);
}
