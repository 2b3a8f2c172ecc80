/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators. They are made without blocking, under the caller's deadline, and ended without
 * waiting for peers. The context is pushed around every call, because NCCL would make another
 * device's current.
 */
#include <stdlib.h>
#include <string.h>

#include "nccl_internal.h"
#include "comm.h"
#include "bootstrap_root.h"
#include "comm_abort.h"
#include "error.h"
#include "fd_budget.h"
#include "lsa_team.h"
#include "memory.h"

#define POLL_NS 200000ull
#define PEERS_NS (10 * CUDA_NS_PER_MS)
/* checks for ended peers per check for failures, which are read from the store */
#define LOOKS_FOR_ONE 5
#define TELLING_NS (1000 * CUDA_NS_PER_MS)
#define LOSS_NS (NCCL_LOSS_MS * CUDA_NS_PER_MS)
#define GRACE_NS (100 * CUDA_NS_PER_MS)
/* NCCL's service threads check for an end every half second, and a rank's threads wait for those of
 * its peers. On two GPUs a second was sometimes not enough. */
#define END_NS (3000 * CUDA_NS_PER_MS)
#define LATE_MS 60000u /* the longest wait for a kernel that reads a window */
#define HEARSAY_NS (200 * CUDA_NS_PER_MS)

/* What the first rank of a communicator sends the others, and all compare. */
typedef struct id_record {
    int32_t version;
    int32_t status; /* of creating the id */
    ncclUniqueId id;
} id_record;

/* --- waiting ------------------------------------------------------------------------ */

uint64_t nccl_deadline(uint64_t deadline_ns) {
    uint64_t now_ns = cuda_now_ns();
    if (deadline_ns <= now_ns)
        return deadline_ns;
    uint64_t telling_ns = (deadline_ns - now_ns) / 4;
    return deadline_ns - (telling_ns < TELLING_NS ? telling_ns : TELLING_NS);
}

static symmem_status find_lost(const cuda_instance *instance, const symmem_exchange *exchange,
                               const char *what) {
    for (int32_t r = 0; r < exchange->world_size; r++)
        if (r != exchange->rank && exchange->peer_state(exchange, r) == SYMMEM_PEER_GONE)
            return instance->host->fail(instance->host, SYMMEM_PEER_LOST, 0, "rendezvous",
                                        "rank %d ended during NCCL's %s", (int)r, what);
    return SYMMEM_OK;
}

/* Checks which peers have ended and, less often, which have failed. Neither enters NCCL any
 * more. */
static symmem_status check_peers(const cuda_instance *instance, const symmem_exchange *exchange,
                                 const char *what, int look) {
    const int looks_for_one = exchange->world_size <= 16 ? LOOKS_FOR_ONE : 5 * LOOKS_FOR_ONE;
    symmem_status status = find_lost(instance, exchange, what);
    return status == SYMMEM_OK && look % looks_for_one == 0 ? exchange->peer_failure(exchange)
                                                            : status;
}

/* As far as is known. The order matters, because a peer that is no longer ending is gone. */
static bool all_live(const symmem_exchange *exchange) {
    for (int32_t r = 0; r < exchange->world_size; r++)
        if (r != exchange->rank && (exchange->peer_is_ending(exchange, r) ||
                                    exchange->peer_state(exchange, r) == SYMMEM_PEER_GONE))
            return false;
    return true;
}

/* Excludes what was wrong before the first call, and a lack of descriptors here. */
bool nccl_may_be_loss(ncclResult_t result) {
    return result != ncclInvalidArgument && result != ncclInvalidUsage &&
           cuda_descriptors_error() == 0;
}

/* A peer that failed breaks its connections. That may be seen before its message. */
static uint64_t time_for_peers(ncclResult_t result) {
    return LOSS_NS + (result == ncclRemoteError ? HEARSAY_NS : 0);
}

symmem_status nccl_comm_failed(const cuda_instance *instance, ncclResult_t result,
                               const symmem_exchange *exchange, const char *what) {
    const uint64_t deadline_ns = nccl_deadline(exchange->deadline_ns);
    const bool wait = exchange->world_size > 1 && nccl_may_be_loss(result);
    const uint64_t end_ns = cuda_now_ns() + (wait ? time_for_peers(result) : 0);
    for (int looks = 0;; looks++) {
        uint64_t now_ns = cuda_now_ns();
        bool over = (deadline_ns != 0 && now_ns >= deadline_ns) ||
                    (now_ns >= end_ns && (!wait || all_live(exchange)));
        symmem_status status = check_peers(instance, exchange, what, over ? 0 : looks);
        if (status != SYMMEM_OK)
            return status;
        if (over)
            return nccl_fail(instance, result, "rendezvous");
        cuda_sleep_ns(PEERS_NS);
    }
}

symmem_status nccl_comm_wait(const cuda_instance *instance, ncclComm_t handle,
                             const symmem_exchange *exchange, const char *what) {
    const nccl_library *library = &nccl_state_of(instance)->library;
    uint64_t deadline_ns = nccl_deadline(exchange->deadline_ns);
    uint64_t asked_ns = cuda_now_ns(), bad_ns = 0;
    int looks = 0;
    for (;;) {
        ncclResult_t state = ncclInProgress;
        ncclResult_t result = library->CommGetAsyncError(handle, &state);
        if (result == ncclSuccess)
            result = state;
        if (result != ncclInProgress)
            return result == ncclSuccess ? SYMMEM_OK
                                         : nccl_comm_failed(instance, result, exchange, what);
        uint64_t now_ns = cuda_now_ns();
        if (deadline_ns != 0 && now_ns >= deadline_ns)
            return instance->host->fail(instance->host, SYMMEM_TIMEOUT, 0, "rendezvous",
                                        "NCCL's %s did not end in time", what);
        if (now_ns - asked_ns >= PEERS_NS) {
            asked_ns = now_ns;
            symmem_status status = check_peers(instance, exchange, what, looks++);
            if (status != SYMMEM_OK && bad_ns == 0)
                bad_ns = now_ns;
            /* What the peer has already done may let this rank complete. */
            if (status != SYMMEM_OK && now_ns - bad_ns >= GRACE_NS)
                return status;
        }
        cuda_sleep_ns(POLL_NS);
    }
}

/* --- making ------------------------------------------------------------------------- */

static symmem_status check_id_records(const cuda_instance *instance,
                                      const symmem_exchange *exchange, const id_record *records) {
    const symmem_host *host = instance->host;
    for (int32_t r = 0; r < exchange->world_size; r++)
        if (records[r].status != SYMMEM_OK)
            return exchange->rank == r
                       ? (symmem_status)records[r].status
                       : host->fail(host, (symmem_status)records[r].status, 0, "rendezvous",
                                    "NCCL gave rank %d no id for a communicator", (int)r);
    for (int32_t r = 1; r < exchange->world_size; r++)
        if (records[r].version != records[0].version)
            return host->fail(host, SYMMEM_MISMATCH, 0, "rendezvous",
                              "rank 0 has libnccl %d, rank %d has %d", (int)records[0].version,
                              (int)r, (int)records[r].version);
    return SYMMEM_OK;
}

static symmem_status ask_for_id(cuda_instance *instance, int32_t device, ncclUniqueId *id,
                                nccl_bootstrap_root **root_p) {
    sigset_t before;
    symmem_status status = cuda_enter(instance, device, "rendezvous");
    if (status != SYMMEM_OK)
        return status;
    cuda_signals_block(&before);
    ncclResult_t result = nccl_state_of(instance)->library.GetUniqueId(id);
    cuda_signals_allow(&before);
    if (result == ncclSuccess)
        *root_p = nccl_bootstrap_root_find(id);
    else
        status = nccl_fail(instance, result, "rendezvous");
    cuda_leave(instance);
    return status;
}

/* From here until the peers connect, NCCL has a thread in the first rank that waits for all of
 * them. So this comes only once all are known to be ready. */
static symmem_status share_id(cuda_instance *instance, const symmem_exchange *exchange,
                              const nccl_comm *comm, id_record *records,
                              nccl_bootstrap_root **root_p) {
    const nccl_library *library = &nccl_state_of(instance)->library;
    id_record own = {.version = library->version, .status = SYMMEM_OK};
    if (exchange->rank == comm->ranks.first)
        own.status = ask_for_id(instance, comm->device, &own.id, root_p);
    symmem_status status = exchange->all_gather(exchange, &own, sizeof own, records);
    return status == SYMMEM_OK ? check_id_records(instance, exchange, records) : status;
}

/* NCCL prepares every channel that its kernels might use: 32 between eight GPUs, with 6 MiB of
 * device memory and some dozen calls of the driver each. */
static ncclConfig_t config_for(nccl_comm_use use) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (use == NCCL_FOR_WINDOWS)
        config.maxCTAs = 1;
    return config;
}

static symmem_status start_comm(cuda_instance *instance, const symmem_exchange *exchange,
                                nccl_comm_use use, nccl_comm *comm, const ncclUniqueId *id) {
    const nccl_library *library = &nccl_state_of(instance)->library;
    ncclConfig_t config = config_for(use);
    symmem_status status = cuda_enter(instance, comm->device, "rendezvous");
    if (status != SYMMEM_OK)
        return status;
    (void)cuda_failpoint(instance, "nccl.comm.init*");
    sigset_t before;
    cuda_signals_block(&before);
    ncclResult_t result = library->CommInitRankConfig(&comm->handle, comm->ranks.count, *id,
                                                      exchange->rank - comm->ranks.first, &config);
    cuda_signals_allow(&before);
    if (result != ncclSuccess && result != ncclInProgress)
        status = nccl_comm_failed(instance, result, exchange, "communicator");
    else
        status = nccl_comm_wait(instance, comm->handle, exchange, "communicator");
    cuda_leave(instance);
    return status;
}

static symmem_status prepare_comm(cuda_instance *instance, const symmem_exchange *exchange,
                                  int32_t device, const nccl_lsa_team *ranks, id_record **records_p,
                                  nccl_comm **comm_p) {
    symmem_status status = cuda_failpoint(instance, "nccl.comm.before");
    *records_p = calloc((size_t)exchange->world_size, sizeof **records_p);
    *comm_p = calloc(1, sizeof **comm_p);
    if (status == SYMMEM_OK && (*records_p == NULL || *comm_p == NULL))
        status = cuda_no_memory(instance, "rendezvous");
    if (status == SYMMEM_OK && ranks->count > 1 &&
        !nccl_has_descriptors(nccl_comm_descriptors(ranks->count)))
        status = nccl_lacks_descriptors(instance);
    if (status == SYMMEM_OK)
        **comm_p = (nccl_comm){.users = 1, .device = device, .ranks = *ranks};
    return exchange->agree(exchange, status, "nccl communicator");
}

/* Makes a communicator of those ranks. */
static symmem_status make(cuda_instance *instance, const symmem_exchange *exchange, int32_t device,
                          nccl_comm_use use, const nccl_lsa_team *ranks, nccl_comm **comm_p) {
    id_record *records;
    nccl_comm *comm;
    nccl_bootstrap_root *root = NULL;
    nccl_fd_limit_keep();
    nccl_bootstrap_roots_end(instance, true); /* of earlier attempts */
    symmem_status status = prepare_comm(instance, exchange, device, ranks, &records, &comm);
    if (status == SYMMEM_OK)
        status = share_id(instance, exchange, comm, records, &root);
    if (status == SYMMEM_OK) {
        status = start_comm(instance, exchange, use, comm, &records[ranks->first].id);
        if (status == SYMMEM_OK)
            status = cuda_failpoint(instance, "nccl.comm.done");
        /* Comes before an abort, which takes long. Others may wait in NCCL for a rank that
         * failed. */
        status = exchange->agree(exchange, status, "nccl communicator");
    }
    if (status == SYMMEM_OK)
        *comm_p = comm;
    else if (comm != NULL && comm->handle != NULL)
        nccl_comm_leave(instance, comm);
    else
        free(comm);
    /* Comes after the abort, if there is time. A rank that connects to a root that has gone retries
     * for a while. */
    if (status != SYMMEM_OK)
        nccl_bootstrap_root_end(instance, root);
    else
        free(root); /* all ranks have connected */
    nccl_fd_limit_restore();
    free(records);
    return status;
}

symmem_status nccl_comm_make(cuda_instance *instance, const symmem_exchange *exchange,
                             int32_t device, nccl_comm_use use, nccl_lsa_team *lsa_team,
                             nccl_comm **comm_p) {
    const nccl_lsa_team all = nccl_all_ranks(exchange);
    nccl_comm *wide = NULL;
    if (use != NCCL_FOR_WINDOWS)
        return make(instance, exchange, device, use, &all, comm_p);
    if (lsa_team->count != 0)
        return make(instance, exchange, device, use, lsa_team, comm_p);
    symmem_status status = make(instance, exchange, device, use, &all, &wide);
    if (status != SYMMEM_OK)
        return status;
    status = nccl_lsa_team_find(instance, wide, exchange, lsa_team);
    if (status == SYMMEM_OK && lsa_team->count == all.count) {
        *comm_p = wide;
        return SYMMEM_OK;
    }
    nccl_comm_drop(instance, wide);
    return status == SYMMEM_OK ? make(instance, exchange, device, use, lsa_team, comm_p) : status;
}

/* --- ending ------------------------------------------------------------------------- */

/* While NCCL works on the communicator only an abort is allowed. */
static bool is_busy(const nccl_library *library, const nccl_comm *comm) {
    ncclResult_t state = ncclInProgress;
    return library->CommGetAsyncError(comm->handle, &state) != ncclSuccess ||
           state == ncclInProgress;
}

void nccl_window_end(cuda_instance *instance, nccl_window *window) {
    const nccl_library *library = &nccl_state_of(instance)->library;
    if (window->handle != NULL && !is_busy(library, window->comm))
        (void)library->CommWindowDeregister(window->comm->handle, window->handle);
}

/* A resolve kernel that was late still reads a window, which NCCL must not free, never if the
 * kernel never ends. A user's communicator is not waited for, because the user ends it. */
static bool is_read(cuda_instance *instance, nccl_comm *comm) {
    if (comm->late == NULL)
        return false;
    if (cuda_wait_idle(instance, comm->late->native, comm->is_users ? 1 : LATE_MS, NULL) ==
        CUDA_ERROR_NOT_READY)
        return true;
    cuda_private_stream_give(instance, comm->device, comm->late);
    comm->late = NULL;
    return false;
}

/* Aborts instead of finalize and destroy, because an abort waits for no peer. The windows go first,
 * because 2.28 keeps the memory of windows that are left over. */
static void end_in_nccl(cuda_instance *instance, nccl_comm *comm) {
    for (nccl_window *window = comm->windows; window != NULL; window = window->next)
        nccl_window_end(instance, window);
    if (!comm->is_users)
        (void)nccl_state_of(instance)->library.CommAbort(comm->handle);
}

/* NCCL may read or write their windows as long as the process lives. */
static _Atomic(nccl_comm *) kept_for_good;

static void keep(nccl_comm *comm) {
    comm->next_kept = atomic_load(&kept_for_good);
    while (!atomic_compare_exchange_weak(&kept_for_good, &comm->next_kept, comm))
        continue;
}

/* The allocations of the windows are released last, because NCCL accesses them. A user's
 * communicator that is still busy keeps its last window, which NCCL may yet write. */
void nccl_comm_end(cuda_instance *instance, nccl_comm *comm) {
    const nccl_library *library = &nccl_state_of(instance)->library;
    (void)cuda_failpoint(instance, "nccl.comm.end*");
    bool entered = cuda_enter(instance, comm->device, "release") == SYMMEM_OK;
    bool read = entered && is_read(instance, comm);
    bool left_over = read || (comm->is_users && is_busy(library, comm));
    if (!read)
        end_in_nccl(instance, comm);
    if (entered)
        cuda_leave(instance);
    if (left_over) {
        keep(comm);
        return;
    }
    while (comm->windows != NULL)
        nccl_window_free(instance, comm->windows);
    free(comm);
}

/* NCCL deregisters nothing while it works on calls that the user made between rendezvous. */
static void await_users_work(const cuda_instance *instance, const nccl_comm *comm,
                             uint64_t until_ns) {
    const nccl_library *library = &nccl_state_of(instance)->library;
    while (!comm->failed && is_busy(library, comm) && cuda_now_ns() < until_ns)
        cuda_sleep_ns(POLL_NS);
}

static void leave_comm(cuda_instance *instance, nccl_comm *comm, uint64_t until_ns) {
    nccl_state *state = nccl_state_of(instance);
    pthread_mutex_lock(&state->lock);
    bool last = --comm->users == 0;
    pthread_mutex_unlock(&state->lock);
    if (last && comm->is_users) {
        await_users_work(instance, comm, until_ns);
        nccl_comm_end(instance, comm); /* after that the user may do anything with it */
    } else if (last) {
        nccl_comm_abort_begin(instance, comm, until_ns);
    }
}

static uint64_t earlier(uint64_t one_ns, uint64_t other_ns) {
    return other_ns != 0 && other_ns < one_ns ? other_ns : one_ns;
}

void nccl_comm_leave_by(cuda_instance *instance, nccl_comm *comm, uint64_t until_ns) {
    const uint64_t call_ns = cuda_call_deadline(instance->host);
    if (cuda_is_collecting())
        nccl_comm_drop(instance, comm);
    else
        leave_comm(instance, comm, earlier(earlier(cuda_now_ns() + END_NS, call_ns), until_ns));
}

void nccl_comm_leave(cuda_instance *instance, nccl_comm *comm) {
    nccl_comm_leave_by(instance, comm, 0);
}

void nccl_comm_drop(cuda_instance *instance, nccl_comm *comm) {
    leave_comm(instance, comm, 0);
}
