/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Looks after NCCL's collectives under way. A flight is in the state's list from before its first
 * kernel until the stream has passed it; its fault is written under the state's lock while it is in
 * there, so never after the stream has passed and the fault's memory is another's.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "span.h"

#define TICK_NS (1 * CUDA_NS_PER_MS)
#define CLOSING_NS (5000 * CUDA_NS_PER_MS) /* for what never comes, the device being lost */
#define PEERS_NS (10 * CUDA_NS_PER_MS)
#define FORGET_NS (100 * CUDA_NS_PER_MS)
#define LOSS_NS (NCCL_LOSS_MS * CUDA_NS_PER_MS)

/* --- failures ----------------------------------------------------------------------- */

/* In the call its time counts from there, for NCCL waits for peers in it, and a call that waits for
 * its turn has not been on the stream. 0: the stream is not there yet. */
static uint64_t start_of(const nccl_flight *flight) {
    uint64_t called_ns = atomic_load(&flight->called_ns);
    return called_ns != 0 ? called_ns : atomic_load(&flight->begun_ns);
}

/* The state's lock is held. The code last: who reads it may take all then. */
static void tell(nccl_flight *flight, symmem_status status, int32_t rank) {
    symmem_cuda_fault *fault = flight->fault;
    uint64_t start_ns = start_of(flight);
    if (flight->failed)
        return;
    flight->failed = true;
    fault->failed_rank = rank;
    fault->elapsed_ns = start_ns != 0 ? cuda_now_ns() - start_ns : 0;
    if (status == SYMMEM_PEER_LOST && rank >= 0)
        fault->missing[rank / 32] |= 1u << (rank % 32);
    __atomic_store_n(&fault->code, -(uint32_t)status, __ATOMIC_RELEASE);
}

void nccl_flight_fail(nccl_flight *flight, symmem_status status, int32_t rank) {
    nccl_state *state = nccl_state_of(flight->instance);
    pthread_mutex_lock(&state->lock);
    tell(flight, status, rank);
    pthread_mutex_unlock(&state->lock);
}

/* The state's lock is held. What was on an earlier communicator ended with that, and may be in the
 * list still, for its stream is not there yet. */
static bool is_on(const nccl_flight *flight, const nccl_span *span) {
    return flight->span == span && flight->serial == span->serial;
}

/* The state's lock is held. */
static void lose(nccl_state *state, nccl_span *span) {
    atomic_store(&span->is_ready, false);
    for (nccl_flight *flight = state->flights; flight != NULL; flight = flight->next)
        if (is_on(flight, span))
            tell(flight, SYMMEM_POISONED, flight->peers->rank);
}

void nccl_span_lose(cuda_instance *instance, nccl_span *span, uint64_t serial) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    if (serial == NCCL_ANY_SERIAL || serial == span->serial)
        lose(state, span);
    pthread_mutex_unlock(&state->lock);
}

/* All that wait on it end with it, though only one has failed. */
nccl_comm *nccl_span_take_away(cuda_instance *instance, nccl_span *span) {
    nccl_comm *comm = span->comm;
    nccl_span_lose(instance, span, NCCL_ANY_SERIAL);
    span->comm = NULL;
    return comm;
}

/* The lock is held. */
static void look_at_peers(nccl_flight *flight) {
    const symmem_peers *peers = flight->peers;
    const symmem_host *host = peers->host;
    if (host->is_poisoned(peers))
        tell(flight, SYMMEM_POISONED, peers->rank);
    for (int32_t r = 0; r < peers->world_size; r++)
        if (r != peers->rank && host->peer_state(peers, r) == SYMMEM_PEER_GONE)
            tell(flight, SYMMEM_PEER_LOST, r);
}

static bool some_are_ending(const symmem_peers *peers) {
    for (int32_t r = 0; r < peers->world_size; r++)
        if (r != peers->rank && peers->host->peer_is_ending(peers, r))
            return true;
    return false;
}

/* What is wrong: a limit, a peer that ended, the state poisoned, and last what NCCL has said, for
 * that may be a consequence. The lock is held. */
static void judge(nccl_flight *flight) {
    uint64_t start_ns = start_of(flight), now_ns = cuda_now_ns(); /* in that order */
    bool broken = flight->broken_ns != 0;
    bool late = start_ns != 0 && flight->timeout_ms != 0 &&
                now_ns - start_ns >= flight->timeout_ms * CUDA_NS_PER_MS;
    bool over =
        broken &&
        (late || (now_ns - flight->broken_ns >= LOSS_NS && !some_are_ending(flight->peers)));
    if (late && !broken)
        tell(flight, SYMMEM_TIMEOUT, -1);
    if (over || now_ns - flight->asked_ns >= PEERS_NS) {
        flight->asked_ns = now_ns;
        look_at_peers(flight);
    }
    if (over)
        tell(flight, flight->broken == ncclRemoteError ? SYMMEM_PEER_LOST : SYMMEM_BACKEND, -1);
}

/* The state's lock is held. Whoever has the turn gives the communicator up for all. */
static bool has_other_failed(const nccl_state *state, const nccl_flight *flight) {
    for (const nccl_flight *other = state->flights; other != NULL; other = other->next)
        if (other != flight && is_on(other, flight->span) && other->failed)
            return true;
    return false;
}

bool nccl_flight_look(nccl_flight *flight) {
    nccl_state *state = nccl_state_of(flight->instance);
    pthread_mutex_lock(&state->lock);
    judge(flight);
    if (is_on(flight, flight->span) && has_other_failed(state, flight))
        tell(flight, SYMMEM_POISONED, flight->peers->rank);
    bool failed = flight->failed;
    pthread_mutex_unlock(&state->lock);
    return !failed;
}

/* The state's lock is held. */
static void judge_broken(nccl_flight *flight, ncclResult_t result) {
    if (flight->broken_ns == 0) {
        flight->broken = result;
        flight->broken_ns = cuda_now_ns() - (nccl_may_be_loss(result) ? 0 : LOSS_NS);
        flight->asked_ns = 0; /* at once */
    }
    judge(flight);
}

bool nccl_flight_broken(nccl_flight *flight, ncclResult_t result) {
    nccl_state *state = nccl_state_of(flight->instance);
    pthread_mutex_lock(&state->lock);
    judge_broken(flight, result);
    bool failed = flight->failed;
    pthread_mutex_unlock(&state->lock);
    return failed;
}

/* --- the list ----------------------------------------------------------------------- */

void nccl_flight_begin(void *opaque) {
    nccl_flight *flight = opaque;
    nccl_state *state = nccl_state_of(flight->instance);
    pthread_mutex_lock(&state->lock);
    atomic_store(&flight->begun_ns, cuda_now_ns());
    const bool left = flight->left;
    pthread_mutex_unlock(&state->lock);
    if (left)
        free(flight);
}

/* The state's lock is held. */
static void delist(nccl_state *state, const nccl_flight *flight) {
    nccl_flight **link = &state->flights;
    while (*link != NULL && *link != flight)
        link = &(*link)->next;
    if (*link != NULL)
        *link = flight->next;
}

void nccl_flight_end(void *opaque) {
    nccl_flight *flight = opaque;
    nccl_state *state = nccl_state_of(flight->instance);
    pthread_mutex_lock(&state->lock);
    delist(state, flight);
    pthread_mutex_unlock(&state->lock);
    free(flight);
}

void nccl_flight_leave(nccl_flight *flight) {
    nccl_state *state = nccl_state_of(flight->instance);
    pthread_mutex_lock(&state->lock);
    delist(state, flight);
    flight->left = true;
    const bool begun = atomic_load(&flight->begun_ns) != 0;
    pthread_mutex_unlock(&state->lock);
    if (begun)
        free(flight);
}

/* Its callbacks, which may never come, have it from there on. NULL: they have come. */
static nccl_span *take_out(nccl_state *state, const symmem_cuda_fault *fault, uint64_t *serial_p) {
    nccl_span *span = NULL;
    pthread_mutex_lock(&state->lock);
    const nccl_flight *flight = state->flights;
    while (flight != NULL && flight->fault != fault)
        flight = flight->next;
    if (flight != NULL) {
        *serial_p = flight->serial;
        span = flight->span;
        span->users++;
        delist(state, flight);
    }
    pthread_mutex_unlock(&state->lock);
    return span;
}

/* The peers may be waiting in NCCL for what does not come any more, without a limit. Who has the
 * turn for longer than that looks himself. */
void nccl_flight_forget(cuda_instance *instance, const symmem_cuda_fault *fault) {
    uint64_t serial;
    nccl_span *span = take_out(nccl_state_of(instance), fault, &serial);
    if (span == NULL)
        return;
    (void)nccl_span_end(instance, span, serial, cuda_now_ns() + FORGET_NS);
    nccl_span_drop(instance, span);
}

/* Its peers may wait for it in NCCL, and this rank's next call there would be taken for it. */
void nccl_flight_quit(nccl_flight *flight) {
    nccl_state *state = nccl_state_of(flight->instance);
    pthread_mutex_lock(&state->lock);
    if (is_on(flight, flight->span))
        lose(state, flight->span);
    pthread_mutex_unlock(&state->lock);
    nccl_flight_end(flight);
}

/* --- the thread --------------------------------------------------------------------- */

/* What NCCL says itself: a connection broke. The turn is held. */
static void ask_nccl(cuda_instance *instance, nccl_span *span) {
    nccl_state *state = nccl_state_of(instance);
    ncclResult_t result = ncclSuccess;
    if (span->comm == NULL ||
        (state->library.CommGetAsyncError(span->comm->handle, &result) == ncclSuccess &&
         (result == ncclSuccess || result == ncclInProgress)))
        return;
    pthread_mutex_lock(&state->lock);
    for (nccl_flight *flight = state->flights; flight != NULL; flight = flight->next)
        if (is_on(flight, span))
            judge_broken(flight, result);
    pthread_mutex_unlock(&state->lock);
}

/* That of the list's flight number `*at_p`, which is judged; kept for the caller. NULL: there are
 * no more. */
static nccl_span *next_span(nccl_state *state, int *at_p) {
    int at = 0;
    nccl_span *span = NULL;
    pthread_mutex_lock(&state->lock);
    for (nccl_flight *flight = state->flights; flight != NULL && span == NULL;
         flight = flight->next)
        if (at++ == *at_p) {
            judge(flight);
            span = flight->span;
            span->users++;
        }
    (*at_p)++;
    pthread_mutex_unlock(&state->lock);
    return span;
}

static bool has_failed(nccl_state *state, const nccl_span *span) {
    bool failed = false;
    pthread_mutex_lock(&state->lock);
    for (const nccl_flight *flight = state->flights; flight != NULL; flight = flight->next)
        failed = failed || (is_on(flight, span) && flight->failed);
    pthread_mutex_unlock(&state->lock);
    return failed;
}

/* Who has the turn looks himself. */
static void watch(cuda_instance *instance) {
    nccl_state *state = nccl_state_of(instance);
    nccl_span *span;
    for (int at = 0; (span = next_span(state, &at)) != NULL;) {
        if (pthread_mutex_trylock(&span->turn) == 0) {
            ask_nccl(instance, span);
            nccl_comm *comm = has_failed(state, span) ? nccl_span_take_away(instance, span) : NULL;
            if (comm != NULL) /* others' limits are not to wait for that */
                nccl_comm_drop(instance, comm);
            pthread_mutex_unlock(&span->turn);
        }
        nccl_span_drop(instance, span);
    }
}

static void *run(void *opaque) {
    cuda_instance *instance = opaque;
    nccl_state *state = nccl_state_of(instance);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)instance->driver.ThreadExchangeStreamCaptureMode(&mode);
    uint64_t closing_ns = 0;
    for (;;) {
        pthread_mutex_lock(&state->lock);
        while (!state->closing && state->flights == NULL)
            pthread_cond_wait(&state->work, &state->lock);
        bool closing = state->closing, idle = state->flights == NULL;
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

/* The state's lock is held. Signals are the program's: the thread takes none. */
static int start(cuda_instance *instance) {
    nccl_state *state = nccl_state_of(instance);
    sigset_t before;
    if (state->has_watcher)
        return 0;
    cuda_signals_block(&before);
    int error = pthread_create(&state->watcher, NULL, run, instance);
    cuda_signals_allow(&before);
    state->has_watcher = error == 0;
    return error;
}

symmem_status nccl_watcher_start(cuda_instance *instance, const char *operation) {
    const symmem_host *host = instance->host;
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    int error = start(instance);
    pthread_mutex_unlock(&state->lock);
    if (error == 0)
        return SYMMEM_OK;
    return host->fail(host, error == EAGAIN ? SYMMEM_LIMIT : SYMMEM_SYSTEM, error, operation,
                      "starting a thread");
}

void nccl_flight_enlist(nccl_flight *flight) {
    nccl_state *state = nccl_state_of(flight->instance);
    pthread_mutex_lock(&state->lock);
    flight->serial = flight->span->serial;
    atomic_store(&flight->called_ns, cuda_now_ns());
    flight->next = state->flights;
    state->flights = flight;
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
