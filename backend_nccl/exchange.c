/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One collective registration. NCCL hangs if ranks differ, so they compare all arguments first, and
 * decide alike from the same records:
 *   - sizes, offset and the number of registrations so far have to agree
 *   - windows that no rank uses any more are deregistered, after all ranks have synchronized
 *   - a window that all ranks have of this very memory is used again
 *   - otherwise the first communicator that suits all ranks registers it: one on the memory's
 *     device that has no window of it, because NCCL synchronizes its peers only for memory that is
 *     new to it. If there is none a new one is made.
 */
#include <stdlib.h>
#include <string.h>

#include "coll_comm.h"
#include "exchange.h"
#include "comm.h"
#include "fd_budget.h"
#include "memory.h"
#include "resolve.h"

#define RECORD_MAGIC 0x6e63636cu
#define MAX_RETIRED 16 /* at a time */

/* No padding. */
typedef struct record {
    uint32_t magic;
    int32_t version; /* of libnccl */
    uint64_t bytes, mapped_bytes, offset;
    uint64_t last_serial;
    uint64_t own_window;        /* the serial of a window of this memory; 0: none */
    uint64_t suitable;          /* bit i: comms[i] can register it */
    uint64_t beyond_lsa;        /* some of this rank's earlier pointers were NULL */
    uint64_t is_ready;          /* and it has the communicator for collectives */
    uint64_t lacks_descriptors; /* for a registration */
    uint64_t retired[MAX_RETIRED];
} record;

typedef struct registration {
    cuda_instance *instance;
    nccl_group *group;
    const symmem_exchange *exchange;
    symmem_memory *own;
    nccl_allocation *allocation;
    nccl_window *window; /* the new one, until a communicator owns it; then the one to use */
    record *records;
    void **pointers;
    symmem_memory *peers;
} registration;

/* --- this rank's record ------------------------------------------------------------ */

/* Notes the oldest retired windows. Even if a rank keeps many newer ones, all ranks list the same
 * old ones. The next ones are listed later, because a rank may keep old ones, which are then all
 * that others list. */
static void note_retired(record *own, uint64_t serial) {
    for (int i = 0; serial != 0 && i < MAX_RETIRED; i++)
        if (own->retired[i] == 0 || serial < own->retired[i]) {
            uint64_t later = own->retired[i];
            own->retired[i] = serial;
            serial = later;
        }
}

static nccl_window *retired_window(sm_treap_node *node) {
    return (nccl_window *)((char *)node - offsetof(nccl_window, retired));
}

/* The state's lock is held. Finds a window of this memory in that communicator. */
static nccl_window *own_window(const registration *r, const nccl_comm *comm) {
    nccl_window *window = r->allocation->windows;
    while (window != NULL && window->comm != comm)
        window = window->next_of_memory;
    return window;
}

/* Lists the oldest ones, as many as the record holds. */
static void describe_retired(const registration *r, const nccl_comm *comm, record *own) {
    sm_treap_node *node = sm_treap_at_or_above(&comm->retired, r->group->list_from);
    for (int noted = 0; node != NULL && noted < MAX_RETIRED;) {
        if (retired_window(node)->allocation != r->allocation) {
            note_retired(own, node->key);
            noted++;
        }
        node = sm_treap_at_or_above(&comm->retired, node->key + 1);
    }
}

static void describe_windows(const registration *r, record *own) {
    const nccl_group *group = r->group;
    for (int32_t i = 0; i < group->comm_count; i++) {
        const nccl_comm *comm = group->comms[i];
        const nccl_window *window = own_window(r, comm);
        if (window != NULL)
            own->own_window = window->serial;
        else if (comm->device == r->own->device)
            own->suitable |= (uint64_t)1 << i;
        describe_retired(r, comm, own);
    }
}

static record describe(const registration *r) {
    nccl_state *state = nccl_state_of(r->instance);
    record own = {
        .magic = RECORD_MAGIC,
        .version = state->library.version,
        .bytes = r->own->bytes,
        .mapped_bytes = cuda_memory_mapped_bytes(&r->allocation->memory),
        .offset = (uint64_t)((char *)r->own->ptr - (char *)r->allocation->memory.ptr),
        .last_serial = r->group->last_serial,
        .beyond_lsa = atomic_load(&r->group->coll->beyond_lsa),
        .is_ready = nccl_coll_comm_is_ready(r->group->coll),
        .lacks_descriptors =
            r->exchange->world_size > 1 &&
            !nccl_has_descriptors(nccl_window_descriptors(r->exchange->world_size)),
    };
    pthread_mutex_lock(&state->lock);
    describe_windows(r, &own);
    pthread_mutex_unlock(&state->lock);
    return own;
}

/* --- decisions of all ranks -------------------------------------------------------- */

static symmem_status check_records(const registration *r) {
    static const struct {
        const char *what;
        size_t at;
    } fields[] = {
        {"size", offsetof(record, bytes)},
        {"size on the device", offsetof(record, mapped_bytes)},
        {"offset", offsetof(record, offset)},
        {"number of registrations", offsetof(record, last_serial)},
    };
    const symmem_host *host = r->instance->host;
    for (int32_t rank = 0; rank < r->exchange->world_size; rank++) {
        const record *first = &r->records[0], *theirs = &r->records[rank];
        if (theirs->magic != RECORD_MAGIC || theirs->version != first->version)
            return host->fail(host, SYMMEM_MISMATCH, 0, "rendezvous",
                              "rank %d has another NCCL backend than rank 0", (int)rank);
        for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
            uint64_t expected, actual;
            memcpy(&expected, (const char *)first + fields[i].at, sizeof expected);
            memcpy(&actual, (const char *)theirs + fields[i].at, sizeof actual);
            if (actual != expected)
                return host->fail(host, SYMMEM_MISMATCH, 0, "rendezvous",
                                  "ranks disagree on the %s of a window: rank 0 has %llu, rank %d "
                                  "has %llu",
                                  fields[i].what, (unsigned long long)expected, (int)rank,
                                  (unsigned long long)actual);
        }
    }
    return SYMMEM_OK;
}

static bool retired_by(const record *theirs, uint64_t serial) {
    for (int i = 0; i < MAX_RETIRED; i++)
        if (theirs->retired[i] == serial)
            return true;
    return false;
}

static bool retired_by_all(const registration *r, uint64_t serial) {
    for (int32_t rank = 0; rank < r->exchange->world_size; rank++)
        if (!retired_by(&r->records[rank], serial))
            return false;
    return true;
}

/* NULL: it is in another communicator. */
static nccl_window *find_retired(const registration *r, const nccl_comm *comm, uint64_t serial) {
    nccl_state *state = nccl_state_of(r->instance);
    pthread_mutex_lock(&state->lock);
    sm_treap_node *node = sm_treap_at_or_below(&comm->retired, serial);
    pthread_mutex_unlock(&state->lock);
    return node != NULL && node->key == serial ? retired_window(node) : NULL;
}

/* The allgather was the barrier: no rank uses its pointers into these windows any more. The order
 * is that of their serials, which is the same on all ranks. */
static void sweep_comm(const registration *r, nccl_comm *comm) {
    const uint64_t *serials = r->records[r->exchange->rank].retired;
    bool entered = cuda_enter(r->instance, comm->device, "release") == SYMMEM_OK;
    for (int i = 0; entered && i < MAX_RETIRED && serials[i] != 0; i++) {
        nccl_window *window = find_retired(r, comm, serials[i]);
        if (window == NULL || !retired_by_all(r, serials[i]))
            continue;
        nccl_window_end(r->instance, window);
        nccl_window_free(r->instance, window);
    }
    if (entered)
        cuda_leave(r->instance);
}

/* Returns where the next lists begin, the same on all ranks: after what every rank could list, or
 * at the oldest again if all listed everything. So what all ranks have retired when the lists begin
 * at the oldest is listed by all of them before they begin there again. */
static uint64_t next_list(const registration *r) {
    uint64_t last = UINT64_MAX;
    for (int32_t rank = 0; rank < r->exchange->world_size; rank++) {
        const uint64_t theirs = r->records[rank].retired[MAX_RETIRED - 1]; /* 0: not full */
        if (theirs != 0 && theirs < last)
            last = theirs;
    }
    return last == UINT64_MAX ? 0 : last + 1;
}

static nccl_window *common_window(const registration *r) {
    nccl_state *state = nccl_state_of(r->instance);
    nccl_window *common = NULL;
    uint64_t serial = r->records[0].own_window;
    for (int32_t rank = 1; rank < r->exchange->world_size; rank++)
        if (r->records[rank].own_window != serial)
            return NULL;
    pthread_mutex_lock(&state->lock);
    for (int32_t i = 0; serial != 0 && i < r->group->comm_count; i++) {
        nccl_window *window = own_window(r, r->group->comms[i]);
        if (window != NULL && window->serial == serial)
            common = window;
    }
    pthread_mutex_unlock(&state->lock);
    return common;
}

/* NCCL's remaining work must not lack time. */
static uint64_t half_way_to(uint64_t deadline_ns) {
    uint64_t now_ns = cuda_now_ns();
    return deadline_ns <= now_ns ? deadline_ns : now_ns + (deadline_ns - now_ns) / 2;
}

/* Ends the communicator before another is made. Kernels of the previous one may never end and would
 * block. If one rank fails all do, because it would be one agreement ahead of the others. */
static symmem_status end_coll(const registration *r) {
    symmem_status status = SYMMEM_OK;
    if (!nccl_coll_comm_end(r->instance, r->group->coll, NCCL_ANY_SERIAL,
                            half_way_to(r->exchange->deadline_ns)))
        status = r->instance->host->fail(r->instance->host, SYMMEM_TIMEOUT, 0, "rendezvous",
                                         "the driver keeps a call across domains that was given "
                                         "up");
    return r->exchange->agree(r->exchange, status, "nccl collectives");
}

/* The first registration of a group shows whether the group extends beyond direct access. Its first
 * rendezvous has another registration, of pad and signals, and there all ranks know. A group that
 * is opened again may register only signals. It knows from its collectives' communicator, which the
 * registered memory has kept. */
static symmem_status ensure_coll(const registration *r) {
    bool needed = false, ready = true;
    for (int32_t rank = 0; rank < r->exchange->world_size; rank++) {
        needed = needed || r->records[rank].beyond_lsa != 0;
        ready = ready && r->records[rank].is_ready != 0;
    }
    if (!needed || ready)
        return SYMMEM_OK;
    symmem_status status = end_coll(r);
    if (status != SYMMEM_OK)
        return status;
    nccl_comm *comm = NULL;
    status =
        nccl_comm_make(r->instance, r->exchange, r->own->device, NCCL_FOR_COLLECTIVES, NULL, &comm);
    if (status == SYMMEM_OK)
        nccl_coll_comm_set(r->instance, r->group->coll, comm);
    return status;
}

static symmem_status add_comm(const registration *r) {
    nccl_group *group = r->group;
    if (group->comm_count == NCCL_MAX_COMMS) /* the same on all ranks */
        return r->instance->host->fail(r->instance->host, SYMMEM_LIMIT, 0, "rendezvous",
                                       "a group has at most %d communicators", NCCL_MAX_COMMS);
    nccl_comm *comm = NULL;
    symmem_status status = nccl_comm_make(r->instance, r->exchange, r->own->device,
                                          NCCL_FOR_WINDOWS, &group->lsa_team, &comm);
    if (status == SYMMEM_OK)
        group->comms[group->comm_count++] = comm;
    return status;
}

static symmem_status choose_comm(const registration *r, nccl_comm **comm_p) {
    uint64_t suitable = r->records[0].suitable;
    for (int32_t rank = 1; rank < r->exchange->world_size; rank++)
        suitable &= r->records[rank].suitable;
    if (suitable != 0) {
        int index = __builtin_ctzll(suitable);
        if (index >= r->group->comm_count) /* this rank's record went around, too */
            return r->instance->host->fail(r->instance->host, SYMMEM_CORRUPT, 0, "rendezvous",
                                           "the ranks agree on communicator %d of %d", index,
                                           (int)r->group->comm_count);
        *comm_p = r->group->comms[index];
        return SYMMEM_OK;
    }
    symmem_status status = add_comm(r);
    if (status == SYMMEM_OK)
        *comm_p = r->group->comms[r->group->comm_count - 1];
    return status;
}

/* Reported to all ranks here. Otherwise NCCL would fail somewhere inside, and not on all ranks. */
static symmem_status check_fd_budget(const registration *r) {
    const uint64_t own_lack = r->records[r->exchange->rank].lacks_descriptors;
    bool all_have = true;
    for (int32_t rank = 0; rank < r->exchange->world_size; rank++)
        all_have = all_have && r->records[rank].lacks_descriptors == 0;
    if (all_have)
        return SYMMEM_OK;
    return r->exchange->agree(r->exchange,
                              own_lack ? nccl_lacks_descriptors(r->instance) : SYMMEM_OK,
                              "nccl descriptors");
}

/* --- registering -------------------------------------------------------------------- */

/* The communicator takes ownership of the window at once, because NCCL may write it until an
 * abort. */
static void adopt_window(registration *r, nccl_comm *comm) {
    r->window->allocation = r->allocation;
    r->window->comm = comm;
    r->window->serial = ++r->group->last_serial;
    nccl_window_enlist(r->instance, r->window);
}

static symmem_status register_new(registration *r, nccl_comm *comm) {
    cuda_instance *instance = r->instance;
    symmem_status status = cuda_enter(instance, comm->device, "rendezvous");
    if (status != SYMMEM_OK) {
        free(r->window);
        return status;
    }
    adopt_window(r, comm);
    (void)cuda_failpoint(instance, "nccl.window.register*");
    /* Not NCCL_WIN_COLL_SYMMETRIC, which prepares kernels of NCCL's own. */
    sigset_t before;
    cuda_signals_block(&before);
    ncclResult_t result = nccl_state_of(instance)->library.CommWindowRegister(
        comm->handle, r->own->ptr, r->own->bytes, &r->window->handle, NCCL_WIN_DEFAULT);
    cuda_signals_allow(&before);
    if (result != ncclSuccess && result != ncclInProgress)
        status = nccl_comm_failed(instance, result, r->exchange, "registration");
    else
        status = nccl_comm_wait(instance, comm->handle, r->exchange, "registration");
    comm->failed = status != SYMMEM_OK;
    cuda_leave(instance);
    if (status == SYMMEM_OK && r->window->handle == NULL && comm->ranks.count > 1)
        status = instance->host->fail(instance->host, SYMMEM_UNSUPPORTED, 0, "rendezvous",
                                      "NCCL makes no windows here: some ranks of a host cannot "
                                      "reach each other's memory, or NCCL_WIN_ENABLE or "
                                      "NCCL_CUMEM_ENABLE is 0");
    return status == SYMMEM_OK ? cuda_failpoint(instance, "nccl.window.done") : status;
}

static symmem_status obtain(registration *r) {
    for (int32_t i = 0; i < r->group->comm_count; i++)
        sweep_comm(r, r->group->comms[i]);
    r->group->list_from = next_list(r);
    symmem_status status = ensure_coll(r);
    if (status != SYMMEM_OK) {
        free(r->window);
        return status;
    }
    nccl_window *common = common_window(r);
    if (common != NULL) {
        free(r->window);
        r->window = common;
        return SYMMEM_OK;
    }
    nccl_comm *comm = NULL;
    status = choose_comm(r, &comm);
    if (status == SYMMEM_OK)
        status = check_fd_budget(r);
    if (status == SYMMEM_OK)
        return register_new(r, comm);
    free(r->window);
    return status;
}

/* Calls find the communicator from the memory. */
static void remember_coll(const registration *r) {
    nccl_state *state = nccl_state_of(r->instance);
    nccl_group *group = r->group;
    for (int32_t rank = 0; rank < r->exchange->world_size; rank++)
        if (r->pointers[rank] == NULL)
            atomic_store(&group->coll->beyond_lsa, true);
    if (!atomic_load(&group->coll->beyond_lsa))
        return;
    pthread_mutex_lock(&state->lock);
    nccl_coll_comm *before = r->allocation->coll;
    r->allocation->coll = group->coll;
    group->coll->users++;
    pthread_mutex_unlock(&state->lock);
    nccl_coll_comm_drop(r->instance, before); /* its end takes NCCL a while */
}

static void fill_peers(const registration *r) {
    nccl_state *state = nccl_state_of(r->instance);
    for (int32_t rank = 0; rank < r->exchange->world_size; rank++)
        r->peers[rank] = (symmem_memory){
            /* NCCL maps this rank's part a second time. Users see the pointer they allocated. */
            .ptr = rank == r->exchange->rank ? r->own->ptr : r->pointers[rank],
            .bytes = r->own->bytes,
            .device = r->own->device,
            .imported = 1,
            .priv = r->window,
        };
    pthread_mutex_lock(&state->lock);
    if (r->window->users == 0) {
        sm_treap_remove(&r->window->comm->retired, &r->window->retired);
        r->window->comm->users++;
    }
    r->window->users += r->exchange->world_size;
    pthread_mutex_unlock(&state->lock);
    remember_coll(r);
}

static symmem_status prepare_registration(registration *r) {
    size_t count = (size_t)r->exchange->world_size;
    r->window = calloc(1, sizeof *r->window);
    r->records = calloc(count, sizeof *r->records);
    r->pointers = calloc(count, sizeof *r->pointers);
    if (r->window == NULL || r->records == NULL || r->pointers == NULL)
        return cuda_no_memory(r->instance, "rendezvous");
    if (r->group->failed)
        return r->instance->host->fail(r->instance->host, SYMMEM_PEER_LOST, 0, "rendezvous",
                                       "the group's communicator was given up");
    return cuda_failpoint(r->instance, "nccl.window.before");
}

static symmem_status run_registration(registration *r) {
    symmem_status status = r->exchange->agree(r->exchange, prepare_registration(r), "nccl window");
    if (status == SYMMEM_OK) {
        record own = describe(r);
        status = r->exchange->all_gather(r->exchange, &own, sizeof own, r->records);
    }
    if (status == SYMMEM_OK)
        status = check_records(r);
    if (status != SYMMEM_OK) {
        free(r->window);
        return status;
    }
    status = obtain(r);
    if (status == SYMMEM_OK)
        status = nccl_resolve(r->instance, r->window, r->exchange, r->pointers);
    if (status == SYMMEM_OK)
        fill_peers(r);
    return status;
}

symmem_status nccl_memory_exchange(void *opaque, void *group, symmem_memory *own,
                                   const symmem_exchange *exchange, symmem_memory *peers) {
    registration r = {
        .instance = opaque,
        .group = group,
        .exchange = exchange,
        .own = own,
        .allocation = own->priv,
        .peers = peers,
    };
    symmem_status status = run_registration(&r);
    if (status != SYMMEM_OK)
        r.group->failed = true; /* the core closes it */
    free(r.records);
    free(r.pointers);
    return status;
}
