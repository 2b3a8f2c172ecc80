/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of groups that extend beyond direct access: their communicator, and the calls on
 * it. */
#include "coll_comm.h"
#include "comm.h"
#include "memory.h"

#include <stdlib.h>

#define POLL_NS 50000ull
#define GIVE_UP_NS (1000 * CUDA_NS_PER_MS)

/* --- the group's communicator ------------------------------------------------------ */

/* The state's lock is held. */
static nccl_coll_comm *find_coll_comm(const nccl_state *state, uint64_t group_uid) {
    nccl_coll_comm *coll = state->coll_comms;
    while (coll != NULL && coll->group_uid != group_uid)
        coll = coll->next;
    return coll;
}

nccl_coll_comm *nccl_coll_comm_take(cuda_instance *instance, uint64_t group_uid) {
    nccl_state *state = nccl_state_of(instance);
    nccl_coll_comm *fresh = calloc(1, sizeof *fresh);
    pthread_mutex_lock(&state->lock);
    nccl_coll_comm *coll = find_coll_comm(state, group_uid);
    if (coll == NULL && fresh != NULL) {
        coll = fresh;
        fresh = NULL;
        (void)pthread_mutex_init(&coll->call_lock, NULL);
        coll->group_uid = group_uid;
        coll->next = state->coll_comms;
        state->coll_comms = coll;
    }
    if (coll != NULL)
        coll->users++;
    pthread_mutex_unlock(&state->lock);
    free(fresh);
    return coll;
}

/* The state's lock is held. */
static void delist_coll_comm(nccl_state *state, const nccl_coll_comm *coll) {
    nccl_coll_comm **link = &state->coll_comms;
    while (*link != coll)
        link = &(*link)->next;
    *link = coll->next;
}

static void leave_coll_comm(cuda_instance *instance, nccl_coll_comm *coll, bool waits) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    bool last = --coll->users == 0;
    if (last)
        delist_coll_comm(state, coll);
    pthread_mutex_unlock(&state->lock);
    if (!last)
        return;
    if (coll->comm != NULL && waits)
        nccl_comm_leave(instance, coll->comm);
    else if (coll->comm != NULL)
        nccl_comm_drop(instance, coll->comm);
    (void)pthread_mutex_destroy(&coll->call_lock);
    free(coll);
}

void nccl_coll_comm_leave(cuda_instance *instance, nccl_coll_comm *coll) {
    if (coll != NULL)
        leave_coll_comm(instance, coll, true);
}

void nccl_coll_comm_drop(cuda_instance *instance, nccl_coll_comm *coll) {
    if (coll != NULL)
        leave_coll_comm(instance, coll, false);
}

/* Does not take the call_lock, which a call may keep until its deadline. */
bool nccl_coll_comm_is_ready(const nccl_coll_comm *coll) {
    return atomic_load(&coll->is_ready);
}

bool nccl_coll_comm_end(cuda_instance *instance, nccl_coll_comm *coll, uint64_t serial,
                        uint64_t until_ns) {
    /* the holder of the call_lock checks, and gives it up */
    nccl_coll_comm_mark_lost(instance, coll, serial);
    while (pthread_mutex_trylock(&coll->call_lock) != 0) {
        if (until_ns != 0 && cuda_now_ns() >= until_ns)
            return false;
        cuda_sleep_ns(POLL_NS);
    }
    const bool is_it = serial == NCCL_ANY_SERIAL || serial == coll->serial;
    nccl_comm *comm = is_it ? nccl_coll_comm_remove(instance, coll) : NULL;
    pthread_mutex_unlock(&coll->call_lock);
    if (comm != NULL)
        nccl_comm_leave_by(instance, comm, until_ns);
    return true;
}

void nccl_coll_comm_set(cuda_instance *instance, nccl_coll_comm *coll, nccl_comm *comm) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&coll->call_lock);
    coll->comm = comm;
    pthread_mutex_lock(&state->lock);
    coll->serial++;
    atomic_store(&coll->is_ready, true);
    pthread_mutex_unlock(&state->lock);
    pthread_mutex_unlock(&coll->call_lock);
}

/* Only a rank with a call in flight has given the communicator up. All ranks come here and take
 * no more calls there. Such calls would wait for ranks that do not call. */
void nccl_signal_lost(void *opaque, const symmem_peers *peers) {
    nccl_coll_comm *coll = nccl_coll_comm_find(opaque, peers->signals[peers->rank]);
    if (coll != NULL)
        nccl_coll_comm_mark_lost(opaque, coll, NCCL_ANY_SERIAL);
}

/* --- a call ------------------------------------------------------------------------ */

typedef struct coll_launch {
    cuda_launch launch; /* first, because enqueue gets it */
    nccl_coll_comm *coll;
    const symmem_collective *call;
} coll_launch;

/* NCCL enqueues its kernels only once it is ready, which for the first call of a kind needs the
 * peers. The call_lock is held. */
static void wait_ready(nccl_inflight *inflight, ncclResult_t result) {
    const nccl_library *library = &nccl_state_of(inflight->instance)->library;
    ncclComm_t comm = inflight->coll->comm->handle;
    while (result == ncclInProgress && nccl_inflight_check(inflight)) {
        cuda_sleep_ns(POLL_NS);
        ncclResult_t answer = library->CommGetAsyncError(comm, &result);
        if (answer != ncclSuccess)
            result = answer;
    }
    while (result != ncclSuccess && result != ncclInProgress &&
           !nccl_inflight_nccl_error(inflight, result))
        cuda_sleep_ns(POLL_NS);
}

/* The call_lock is held. Returns the communicator that was given up, for the caller to end, or
 * NULL. */
static nccl_comm *run_steps(nccl_inflight *inflight, const nccl_call *call) {
    int steps = nccl_call_steps(call->call);
    for (int step = 0; step < steps && nccl_inflight_check(inflight); step++) {
        sigset_t before;
        cuda_signals_block(&before);
        ncclResult_t result = nccl_call_step(call, step);
        cuda_signals_allow(&before);
        wait_ready(inflight, result);
    }
    return nccl_inflight_check(inflight)
               ? NULL
               : nccl_coll_comm_remove(inflight->instance, inflight->coll);
}

static nccl_inflight *make_flight(cuda_instance *instance, const coll_launch *l) {
    nccl_inflight *inflight = calloc(1, sizeof *inflight);
    if (inflight == NULL)
        return NULL;
    inflight->instance = instance;
    inflight->coll = l->coll;
    inflight->peers = l->launch.signal.peers;
    inflight->fault = l->launch.signal.fault;
    inflight->timeout_ms = l->launch.args.timeout_ms;
    return inflight;
}

/* Not a plain lock, because its holder may wait for peers longer than this call may. */
static bool lock_calls(nccl_inflight *inflight) {
    while (pthread_mutex_trylock(&inflight->coll->call_lock) != 0) {
        if (!nccl_inflight_check(inflight))
            return false;
        cuda_sleep_ns(POLL_NS);
    }
    return true;
}

/* After `begin` is on the stream every failure is the operation's. The call_lock is held.
 * *given_up_p is as in run_steps. */
static CUresult enqueue_with_callbacks(const coll_launch *l, nccl_inflight *inflight,
                                       CUstream native, nccl_comm **given_up_p) {
    cuda_instance *instance = inflight->instance;
    const symmem_peers *peers = inflight->peers;
    size_t word_at = symmem_cuda_split_table_at(peers->world_size, peers->channel_count,
                                                l->launch.signal.channel);
    CUresult result = instance->driver.LaunchHostFunc(native, nccl_inflight_begin, inflight);
    if (result != CUDA_SUCCESS)
        return result;
    if (l->coll->comm == NULL || !nccl_coll_comm_is_ready(l->coll) ||
        inflight->serial != l->coll->serial) { /* changed while it waited for its call_lock */
        nccl_inflight_fail(inflight, SYMMEM_POISONED, peers->rank);
        return CUDA_SUCCESS;
    }
    const nccl_call call = {.library = &nccl_state_of(instance)->library,
                            .peers = peers,
                            .call = l->call,
                            .comm = l->coll->comm->handle,
                            .native = native,
                            .word = (char *)peers->signals[peers->rank] + word_at};
    *given_up_p = run_steps(inflight, &call);
    return CUDA_SUCCESS;
}

/* The failure is reported, and the entry is not checked once it has ended. So the communicator is
 * ended first. A thread that holds the call_lock for longer than that checks by itself. */
static void give_up(const coll_launch *l, nccl_inflight *inflight) {
    (void)nccl_coll_comm_end(inflight->instance, l->coll, inflight->serial,
                             cuda_now_ns() + GIVE_UP_NS);
    nccl_inflight_leave(inflight);
}

/* Without the call_lock, because no other thread has to wait for the stream. The watcher checks
 * meanwhile. */
static void wait_on_stream(const coll_launch *l, nccl_inflight *inflight, CUstream native) {
    cuda_instance *instance = inflight->instance;
    if (l->launch.args.stream != SYMMEM_CUDA_NO_STREAM)
        atomic_store(&inflight->called_ns, 0); /* from here the stream's time counts */
    if (instance->driver.LaunchHostFunc(native, nccl_inflight_end, inflight) == CUDA_SUCCESS)
        return;
    atomic_store(&inflight->called_ns, cuda_now_ns()); /* from here this call's time counts again */
    while (instance->driver.StreamQuery(native) == CUDA_ERROR_NOT_READY) {
        if (!nccl_inflight_check(inflight)) {
            give_up(l, inflight);
            return;
        }
        cuda_sleep_ns(POLL_NS);
    }
    nccl_inflight_end(inflight);
}

static CUresult enqueue(cuda_instance *instance, cuda_launch *opaque, CUstream native) {
    const coll_launch *l = (const coll_launch *)opaque;
    nccl_inflight *inflight = make_flight(instance, l);
    nccl_comm *given_up = NULL;
    if (inflight == NULL) { /* peers may wait in NCCL for this call */
        nccl_coll_comm_mark_lost(instance, l->coll, NCCL_ANY_SERIAL);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    nccl_inflight_add(inflight);
    if (!lock_calls(inflight)) {
        nccl_inflight_abandon(inflight);
        return CUDA_SUCCESS; /* nothing is on the stream, and the fault says why */
    }
    CUresult result = enqueue_with_callbacks(l, inflight, native, &given_up);
    pthread_mutex_unlock(&l->coll->call_lock);
    if (given_up != NULL) /* before `end`, because NCCL may be about to launch a kernel */
        nccl_comm_leave(instance, given_up);
    if (result == CUDA_SUCCESS)
        wait_on_stream(l, inflight, native);
    else
        nccl_inflight_abandon(inflight);
    return result;
}

/* What is refused here is refused on every rank, before NCCL is called. */
static symmem_status check_coll_comm(cuda_instance *instance, nccl_coll_comm *coll,
                                     const symmem_collective *call, const symmem_exec *exec) {
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
    if (coll == NULL || !nccl_coll_comm_is_ready(coll))
        return host->fail(host, SYMMEM_STALE, 0, call->name,
                          "the group's communicator was given up: its next rendezvous makes "
                          "another");
    return SYMMEM_OK;
}

symmem_status nccl_collective_apart(void *opaque, const symmem_peers *peers, int32_t channel,
                                    const symmem_collective *call, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    nccl_coll_comm *coll = nccl_coll_comm_find(instance, peers->signals[peers->rank]);
    symmem_status status = check_coll_comm(instance, coll, call, exec);
    if (status == SYMMEM_OK)
        status = nccl_watcher_start(instance, call->name);
    if (status != SYMMEM_OK)
        return status;
    (void)cuda_failpoint(instance, "nccl.collective*"); /* peers count on this rank by now */
    /* NCCL's kernels cannot be stopped. */
    coll_launch l = {
        .coll = coll,
        .call = call,
        .launch = {.enqueue = enqueue, .signal = {.operation = call->name}, .stays = true}};
    return cuda_launch_run(instance, peers, -1, channel, exec, &l.launch);
}
