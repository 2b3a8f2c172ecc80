/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of groups that span more than direct access: the communicator, and a call's way. */
#include "span.h"

#include <stdlib.h>

#define POLL_NS 50000ull
#define GIVE_UP_NS (1000 * CUDA_NS_PER_MS)

/* --- the group's -------------------------------------------------------------------- */

/* The state's lock is held. */
static nccl_span *find(const nccl_state *state, uint64_t group_uid) {
    nccl_span *span = state->spans;
    while (span != NULL && span->group_uid != group_uid)
        span = span->next;
    return span;
}

nccl_span *nccl_span_take(cuda_instance *instance, uint64_t group_uid) {
    nccl_state *state = nccl_state_of(instance);
    nccl_span *fresh = calloc(1, sizeof *fresh);
    pthread_mutex_lock(&state->lock);
    nccl_span *span = find(state, group_uid);
    if (span == NULL && fresh != NULL) {
        span = fresh;
        fresh = NULL;
        (void)pthread_mutex_init(&span->turn, NULL);
        span->group_uid = group_uid;
        span->next = state->spans;
        state->spans = span;
    }
    if (span != NULL)
        span->users++;
    pthread_mutex_unlock(&state->lock);
    free(fresh);
    return span;
}

/* The state's lock is held. */
static void delist(nccl_state *state, const nccl_span *span) {
    nccl_span **link = &state->spans;
    while (*link != span)
        link = &(*link)->next;
    *link = span->next;
}

static void leave(cuda_instance *instance, nccl_span *span, bool waits) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    bool last = --span->users == 0;
    if (last)
        delist(state, span);
    pthread_mutex_unlock(&state->lock);
    if (!last)
        return;
    if (span->comm != NULL && waits)
        nccl_comm_leave(instance, span->comm);
    else if (span->comm != NULL)
        nccl_comm_drop(instance, span->comm);
    (void)pthread_mutex_destroy(&span->turn);
    free(span);
}

void nccl_span_leave(cuda_instance *instance, nccl_span *span) {
    if (span != NULL)
        leave(instance, span, true);
}

void nccl_span_drop(cuda_instance *instance, nccl_span *span) {
    if (span != NULL)
        leave(instance, span, false);
}

/* Without the turn, which a call may keep until its limit. */
bool nccl_span_is_ready(const nccl_span *span) {
    return atomic_load(&span->is_ready);
}

bool nccl_span_end(cuda_instance *instance, nccl_span *span, uint64_t serial, uint64_t until_ns) {
    nccl_span_lose(instance, span, serial); /* who has the turn looks, and gives it */
    while (pthread_mutex_trylock(&span->turn) != 0) {
        if (until_ns != 0 && cuda_now_ns() >= until_ns)
            return false;
        cuda_sleep_ns(POLL_NS);
    }
    const bool is_it = serial == NCCL_ANY_SERIAL || serial == span->serial;
    nccl_comm *comm = is_it ? nccl_span_take_away(instance, span) : NULL;
    pthread_mutex_unlock(&span->turn);
    if (comm != NULL)
        nccl_comm_leave_by(instance, comm, until_ns);
    return true;
}

void nccl_span_set(cuda_instance *instance, nccl_span *span, nccl_comm *comm) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&span->turn);
    span->comm = comm;
    pthread_mutex_lock(&state->lock);
    span->serial++;
    atomic_store(&span->is_ready, true);
    pthread_mutex_unlock(&state->lock);
    pthread_mutex_unlock(&span->turn);
}

/* Only who had a call under way has given the communicator up. All ranks come here, and so take no
 * call there any more, which would wait for those that do not. */
void nccl_signal_lost(void *opaque, const symmem_peers *peers) {
    nccl_span *span = nccl_span_find(opaque, peers->signals[peers->rank]);
    if (span != NULL)
        nccl_span_lose(opaque, span, NCCL_ANY_SERIAL);
}

/* --- a call ------------------------------------------------------------------------- */

typedef struct span_launch {
    cuda_launch launch; /* first: enqueue gets it */
    nccl_span *span;
    const symmem_collective *call;
} span_launch;

/* NCCL enqueues its kernels only once it is ready, which for the first of a kind takes the peers.
 * The turn is held. */
static void wait_ready(nccl_flight *flight, ncclResult_t result) {
    const nccl_library *library = &nccl_state_of(flight->instance)->library;
    ncclComm_t comm = flight->span->comm->handle;
    while (result == ncclInProgress && nccl_flight_look(flight)) {
        cuda_sleep_ns(POLL_NS);
        ncclResult_t answer = library->CommGetAsyncError(comm, &result);
        if (answer != ncclSuccess)
            result = answer;
    }
    while (result != ncclSuccess && result != ncclInProgress && !nccl_flight_broken(flight, result))
        cuda_sleep_ns(POLL_NS);
}

/* The turn is held. What was given up, for the caller to end; NULL: it is well under way. */
static nccl_comm *run_steps(nccl_flight *flight, const nccl_call *call) {
    int steps = nccl_call_steps(call->call);
    for (int step = 0; step < steps && nccl_flight_look(flight); step++) {
        sigset_t before;
        cuda_signals_block(&before);
        ncclResult_t result = nccl_call_step(call, step);
        cuda_signals_allow(&before);
        wait_ready(flight, result);
    }
    return nccl_flight_look(flight) ? NULL : nccl_span_take_away(flight->instance, flight->span);
}

static nccl_flight *make_flight(cuda_instance *instance, const span_launch *l) {
    nccl_flight *flight = calloc(1, sizeof *flight);
    if (flight == NULL)
        return NULL;
    flight->instance = instance;
    flight->span = l->span;
    flight->peers = l->launch.signal.peers;
    flight->fault = l->launch.signal.fault;
    flight->timeout_ms = l->launch.args.timeout_ms;
    return flight;
}

/* Not by a plain lock: who has it may wait for his peers longer than this call may. */
static bool take_turn(nccl_flight *flight) {
    while (pthread_mutex_trylock(&flight->span->turn) != 0) {
        if (!nccl_flight_look(flight))
            return false;
        cuda_sleep_ns(POLL_NS);
    }
    return true;
}

/* After `begin` is on the stream there is no way back: what fails is the operation's failure. The
 * turn is held. *given_up_p: as that of run_steps. */
static CUresult fly(const span_launch *l, nccl_flight *flight, CUstream native,
                    nccl_comm **given_up_p) {
    cuda_instance *instance = flight->instance;
    const symmem_peers *peers = flight->peers;
    size_t word_at =
        symmem_cuda_split_table_at(peers->world_size, peers->channel_count, l->launch.signal.channel);
    CUresult result = instance->driver.LaunchHostFunc(native, nccl_flight_begin, flight);
    if (result != CUDA_SUCCESS)
        return result;
    if (l->span->comm == NULL || !nccl_span_is_ready(l->span) ||
        flight->serial != l->span->serial) { /* while it waited for its turn */
        nccl_flight_fail(flight, SYMMEM_POISONED, peers->rank);
        return CUDA_SUCCESS;
    }
    const nccl_call call = {.library = &nccl_state_of(instance)->library,
                            .peers = peers,
                            .call = l->call,
                            .comm = l->span->comm->handle,
                            .native = native,
                            .word = (char *)peers->signals[peers->rank] + word_at};
    *given_up_p = run_steps(flight, &call);
    return CUDA_SUCCESS;
}

/* It has been told of its failure, and nobody looks at it once it has ended: so the communicator's
 * end comes before. Whoever has the turn for longer than that takes looks himself. */
static void give_up(const span_launch *l, nccl_flight *flight) {
    (void)nccl_span_end(flight->instance, l->span, flight->serial, cuda_now_ns() + GIVE_UP_NS);
    nccl_flight_leave(flight);
}

/* Without the turn, for nobody else has to wait for the stream; the watcher looks meanwhile. */
static void land(const span_launch *l, nccl_flight *flight, CUstream native) {
    cuda_instance *instance = flight->instance;
    if (l->launch.args.stream != SYMMEM_CUDA_NO_STREAM)
        atomic_store(&flight->called_ns, 0); /* the rest is the stream's time */
    if (instance->driver.LaunchHostFunc(native, nccl_flight_end, flight) == CUDA_SUCCESS)
        return;
    atomic_store(&flight->called_ns, cuda_now_ns()); /* it is this call's time again */
    while (instance->driver.StreamQuery(native) == CUDA_ERROR_NOT_READY) {
        if (!nccl_flight_look(flight)) {
            give_up(l, flight);
            return;
        }
        cuda_sleep_ns(POLL_NS);
    }
    nccl_flight_end(flight);
}

static CUresult enqueue(cuda_instance *instance, cuda_launch *opaque, CUstream native) {
    const span_launch *l = (const span_launch *)opaque;
    nccl_flight *flight = make_flight(instance, l);
    nccl_comm *given_up = NULL;
    if (flight == NULL) { /* peers may wait in NCCL for this call */
        nccl_span_lose(instance, l->span, NCCL_ANY_SERIAL);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    nccl_flight_enlist(flight);
    if (!take_turn(flight)) {
        nccl_flight_quit(flight);
        return CUDA_SUCCESS; /* nothing is on the stream, and the fault says why */
    }
    CUresult result = fly(l, flight, native, &given_up);
    pthread_mutex_unlock(&l->span->turn);
    if (given_up != NULL) /* before `end`: NCCL may be about to launch a kernel */
        nccl_comm_leave(instance, given_up);
    if (result == CUDA_SUCCESS)
        land(l, flight, native);
    else
        nccl_flight_quit(flight);
    return result;
}

/* What is refused here is refused on every rank, before NCCL hears of it. */
static symmem_status check(cuda_instance *instance, nccl_span *span, const symmem_collective *call,
                           const symmem_exec *exec) {
    const symmem_host *host = instance->host;
    uint64_t capture = 0;
    symmem_status status = nccl_call_check(instance, call);
    if (status == SYMMEM_OK && exec->stream != NULL)
        status = cuda_capture_id(instance, exec->stream, &capture);
    if (status != SYMMEM_OK)
        return status;
    if (capture != 0)
        return host->fail(host, SYMMEM_UNSUPPORTED, 0, call->name,
                          "NCCL, which serves this group, cannot be captured with a limit");
    if (span == NULL || !nccl_span_is_ready(span))
        return host->fail(host, SYMMEM_STALE, 0, call->name,
                          "the group's communicator was given up: its next rendezvous makes "
                          "another");
    return SYMMEM_OK;
}

symmem_status nccl_collective_apart(void *opaque, const symmem_peers *peers, int32_t channel,
                                    const symmem_collective *call, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    nccl_span *span = nccl_span_find(instance, peers->signals[peers->rank]);
    symmem_status status = check(instance, span, call, exec);
    if (status == SYMMEM_OK)
        status = nccl_watcher_start(instance, call->name);
    if (status != SYMMEM_OK)
        return status;
    (void)cuda_point(instance, "nccl.collective*"); /* peers count on this rank by now */
    /* NCCL's kernels know no stop. */
    span_launch l = {
        .span = span,
        .call = call,
        .launch = {.enqueue = enqueue, .signal = {.operation = call->name}, .stays = true}};
    return cuda_launch_run(instance, peers, -1, channel, exec, &l.launch);
}
