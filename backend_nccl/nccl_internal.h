/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the NCCL backend share. An instance is one of the CUDA backend's, with
 * nccl_state as its extension; all entries that this backend does not replace are the CUDA ones.
 */
#ifndef SYMMEM_NCCL_INTERNAL_H
#define SYMMEM_NCCL_INTERNAL_H

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <symmem/backend.h>

#include "base/places.h"
#include "cuda_internal.h"
#include "library.h"

#define NCCL_MAX_COMMS 16 /* of one group */

typedef struct nccl_span nccl_span; /* span.h */

/* Own memory. It is given back once its owner and all windows on it are gone. */
typedef struct nccl_allocation {
    int32_t users; /* this and what follows under the state's lock */
    sm_place by_address;
    struct nccl_window *windows; /* of any group */
    nccl_span *span; /* of the group that registered it last, where that has one; NULL: none */
    symmem_memory memory;
} nccl_allocation;

/* One registration. NCCL writes `handle` from a thread of its own, so it may not move. */
typedef struct nccl_window {
    struct nccl_window *next, *before; /* of the communicator */
    struct nccl_comm *comm;
    nccl_allocation *allocation;
    struct nccl_window *next_of_memory, *before_of_memory; /* under the state's lock, as what follows */
    sm_place retired; /* by the serial, once nobody here uses it any more */
    uint64_t serial;  /* the same on all ranks */
    int32_t users;    /* entries of peers[] that are still there */
    ncclWindow_t handle;
} nccl_window;

/* Ranks that have pointers to each other's memory, as a run of the group's. count 0: not known. */
typedef struct nccl_domain {
    int32_t first, count;
} nccl_domain;

static inline nccl_domain nccl_all_ranks(const symmem_exchange *exchange) {
    return (nccl_domain){0, exchange->world_size};
}

/*
 * A communicator, and the windows that are registered with it. Bound to one device. It may outlive
 * its group: windows are of use only as long as it is there. NCCL takes one call at a time for it:
 * whoever has the group's turn, or nobody else any more.
 */
typedef struct nccl_comm {
    struct nccl_comm *next_kept;
    int32_t users; /* under the state's lock: the group, and each window that has users */
    int32_t device;
    nccl_domain ranks; /* of the group: those that it has */
    bool is_users;     /* handed in: never ended here */
    bool failed;       /* a registration: NCCL may be at work on it for ever */
    cuda_lane *late;   /* a kernel that asks for pointers was not in time; it reads a window */
    ncclComm_t handle;
    nccl_window *windows; /* the list is the group's turn's, or the last user's */
    sm_places retired;    /* of these; under the state's lock */
} nccl_comm;

typedef struct nccl_group {
    int32_t rank;
    int32_t world_size;
    bool failed; /* its communicators are not called again, but to end them */
    uint64_t last_serial;
    uint64_t list_from; /* the serial where ranks' lists of retired windows begin */
    nccl_domain domain; /* what its communicators for windows have */
    int32_t comm_count;
    nccl_comm *comms[NCCL_MAX_COMMS]; /* the same places on all ranks */
    nccl_span *span;                  /* its communicator comes with the next registration */
} nccl_group;

/* The core's services, as the CUDA backend's code gets them here. */
typedef struct nccl_host {
    symmem_host host; /* first: points are asked with it */
    const symmem_host *cores;
} nccl_host;

typedef struct nccl_ending nccl_ending;

typedef struct nccl_state {
    nccl_host host;
    nccl_library library;
    pthread_mutex_t lock; /* of the counts above; never held during a call of NCCL */
    /* Under the lock, too. */
    CUfunction resolvers[CUDA_MAX_DEVICES]; /* NULL: not loaded (resolve.c) */
    struct nccl_root *roots;
    sm_places allocations; /* by address */
    nccl_span *spans;
    struct nccl_flight *flights; /* NCCL's collectives under way */
    pthread_cond_t ended;        /* by the monotonic clock */
    nccl_ending *endings;
    bool ends_here; /* closing: no more threads */
    pthread_cond_t work;
    bool has_watcher, closing;
    pthread_t watcher;
} nccl_state;

static inline nccl_state *nccl_state_of(const cuda_instance *instance) {
    return instance->extension;
}

/* symmem_memory.priv: an nccl_allocation for own memory, an nccl_window for an entry of peers[]. */

/* backend.c */
const symmem_backend *nccl_table(void);
symmem_status nccl_fail(const cuda_instance *instance, ncclResult_t result, const char *operation);

/* host_shim.c */
void nccl_host_init(nccl_host *own, const symmem_host *cores);

/* comm.c */
/* Calls of NCCL that may start threads stand between cuda_signals_block and cuda_signals_allow:
 * NCCL leaves its threads open to the program's signals. */
/* A communicator for windows never runs a kernel of NCCL's. */
typedef enum nccl_comm_use { NCCL_FOR_WINDOWS, NCCL_FOR_COLLECTIVES } nccl_comm_use;
/* Collective: all ranks have it, or none. One for windows is of the domain, which is found out if
 * it is not known; others are of all ranks, and `domain` is NULL. */
symmem_status nccl_comm_make(cuda_instance *instance, const symmem_exchange *exchange,
                             int32_t device, nccl_comm_use use, nccl_domain *domain,
                             nccl_comm **comm_p);
/* Local. The user's, whatever device it is for. */
symmem_status nccl_comm_adopt(cuda_instance *instance, const symmem_exchange *exchange,
                              nccl_comm **comm_p);
symmem_status nccl_communicator_check(void *instance, void *communicator, int32_t rank,
                                      int32_t world_size);
/* An error of NCCL's in what all ranks do together may be a peer's end. NCCL learns of that when
 * the process's sockets close, we when all of it is gone, its device's context too. So for a while,
 * as long as one is ending, and within the limit, the peers are looked at: PEER_LOST if one is
 * gone.
 */
#define NCCL_LOSS_MS 400
bool nccl_may_be_loss(ncclResult_t result);
symmem_status nccl_comm_failed(const cuda_instance *instance, ncclResult_t result,
                               const symmem_exchange *exchange, const char *what);
/* For what may wait long: a part of the time is left for telling the others how it went. 0: none.
 */
uint64_t nccl_deadline(uint64_t deadline_ns);
/* Waits for what NCCL does in the background. */
symmem_status nccl_comm_wait(const cuda_instance *instance, ncclComm_t handle,
                             const symmem_exchange *exchange, const char *what);
/* Gives up one use; the last one gives everything back. Waits for no peer's call, and for NCCL and
 * the driver, who may wait for a peer's kernel, at most three seconds, and within the limit of the
 * call that this thread is in; not at all where it looks after finished work. */
void nccl_comm_leave(cuda_instance *instance, nccl_comm *comm);
/* The same, and no longer than until then; 0: no such limit. */
void nccl_comm_leave_by(cuda_instance *instance, nccl_comm *comm, uint64_t until_ns);
/* The same, and waits for nobody. */
void nccl_comm_drop(cuda_instance *instance, nccl_comm *comm);
/* What the last use comes to. */
void nccl_comm_end(cuda_instance *instance, nccl_comm *comm);
/* The context is current. Undoes a registration. */
void nccl_window_end(cuda_instance *instance, nccl_window *window);

/* domain.c */
/* What NCCL says of a communicator of all ranks; a context is current. Local. */
symmem_status nccl_domain_of(const cuda_instance *instance, ncclComm_t handle,
                             const symmem_exchange *exchange, nccl_domain *domain);
/* The ranks that a communicator for windows can have, by one of all. Collective: all ranks get one
 * answer. */
symmem_status nccl_domain_find(cuda_instance *instance, const nccl_comm *comm,
                               const symmem_exchange *exchange, nccl_domain *domain);

/* comm_abort.c: communicators' ends, which may take long */
/* Waits for it until then, 0: not at all. */
void nccl_ending_begin(cuda_instance *instance, nccl_comm *comm, uint64_t until_ns);
/* Waits for all of them; what ends later ends in its caller. */
void nccl_endings_finish(cuda_instance *instance);

/* fd_budget.c */
/* What a registration needs, and a communicator with its first. */
int32_t nccl_window_descriptors(int32_t world_size);
int32_t nccl_comm_descriptors(int32_t world_size);
/* Whether the process may open that many more. */
bool nccl_has_descriptors(int32_t count);
symmem_status nccl_lacks_descriptors(const cuda_instance *instance);
/* The limit of descriptors is the program's. Around what may raise it, by any number at once. */
void nccl_limit_keep(void);
void nccl_limit_restore(void);

/* bootstrap_root.c: what NCCL keeps in this process for an id whose communicator did not come up */
typedef struct nccl_root nccl_root;
/* Right after the id was made; NULL: not found, as where another process has it. */
nccl_root *nccl_root_find(const ncclUniqueId *id);
/* Ends and frees it, NULL too. What cannot be ended now, for want of a descriptor, is noted. */
void nccl_root_end(cuda_instance *instance, nccl_root *root);
/* Those that were noted; `keep`: what cannot be ended still is noted again. */
void nccl_roots_end(cuda_instance *instance, bool keep);

/* group.c */
symmem_status nccl_group_open(void *instance, const symmem_exchange *exchange, int32_t device,
                              void **group_p);
void nccl_group_close(void *instance, void *group);

/* memory.c */
symmem_status nccl_memory_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory);
void nccl_memory_release(void *instance, symmem_memory *memory);
void nccl_allocation_leave(cuda_instance *instance, nccl_allocation *allocation);
/* A new window of r->allocation's and comm's; and one that has ended, which is freed. */
void nccl_window_enlist(cuda_instance *instance, nccl_window *window);
void nccl_window_free(cuda_instance *instance, nccl_window *window);
/* Of the allocation that an address is in; it has to stay meanwhile. */
nccl_span *nccl_span_find(cuda_instance *instance, const void *address);

/* exchange.c */
symmem_status nccl_memory_exchange(void *instance, void *group, symmem_memory *own,
                                   const symmem_exchange *exchange, symmem_memory *peers);

/* resolve.c */
/* pointers[0..world_size): each rank's part of the window, NULL where it cannot be reached. Local,
 * within the exchange's limit. */
symmem_status nccl_resolve(cuda_instance *instance, const nccl_window *window,
                           const symmem_exchange *exchange, void **pointers);
void nccl_modules_give(cuda_instance *instance);

/* span.c: NCCL's own collectives, see span.h */
/* The group's, if something of it is there still, or a new one; NULL: no memory. */
nccl_span *nccl_span_take(cuda_instance *instance, uint64_t group_uid);
void nccl_span_leave(cuda_instance *instance, nccl_span *span);
/* The same, and waits for nobody. */
void nccl_span_drop(cuda_instance *instance, nccl_span *span);
bool nccl_span_is_ready(const nccl_span *span);
#define NCCL_ANY_SERIAL UINT64_MAX
/* Gives up the communicator, if there is one and it is that with the serial, and what is under way
 * on it, until then; 0: as long as it takes. False: a call that the driver keeps has it yet. */
bool nccl_span_end(cuda_instance *instance, nccl_span *span, uint64_t serial, uint64_t until_ns);
/* Takes the communicator over; there is none before. */
void nccl_span_set(cuda_instance *instance, nccl_span *span, nccl_comm *comm);
symmem_status nccl_collective_apart(void *instance, const symmem_peers *peers, int32_t channel,
                                    const symmem_collective *call, const symmem_exec *exec);
/* No rank takes calls on the group's communicator any more. */
void nccl_signal_lost(void *instance, const symmem_peers *peers);
void nccl_watcher_stop(cuda_instance *instance);
/* What is under way with that fault, though its work is over, is looked at no more, and told of
 * nothing; its communicator is given up. */
void nccl_flight_forget(cuda_instance *instance, const symmem_cuda_fault *fault);

/* image.c */
/* The compiled resolve.cu; NULL: built without. */
const void *nccl_image(void);

/* signal_guard.c: the CUDA backend's signal operations where all pointers they need are there */
symmem_status nccl_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                           const symmem_exec *exec);
symmem_status nccl_put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, const symmem_exec *exec);
symmem_status nccl_wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                               int32_t channel, const symmem_exec *exec);

#endif
