/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the NCCL backend share. An instance is one of the CUDA backend's, with
 * nccl_state as its extension. All entries that this backend does not replace are the CUDA
 * backend's.
 */
#ifndef SYMMEM_NCCL_INTERNAL_H
#define SYMMEM_NCCL_INTERNAL_H

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <symmem/backend.h>

#include "base/treap.h"
#include "cuda_internal.h"
#include "library.h"

#define NCCL_MAX_COMMS 16 /* of one group */

typedef struct nccl_coll_comm nccl_coll_comm; /* coll_comm.h */

/* Local memory. It is freed once its owner and all windows on it are gone. */
typedef struct nccl_allocation {
    int32_t users; /* this and what follows under the state's lock */
    sm_treap_node by_address;
    struct nccl_window *windows; /* of any group */
    nccl_coll_comm *coll; /* of the group that registered it last, if that has one; NULL: none */
    symmem_memory memory;
} nccl_allocation;

/* One registration. NCCL writes `handle` from a thread of its own, so it may not move. */
typedef struct nccl_window {
    struct nccl_window *next, *before; /* of the communicator */
    struct nccl_comm *comm;
    nccl_allocation *allocation;
    /* under the state's lock, as what follows */
    struct nccl_window *next_of_memory, *before_of_memory;
    sm_treap_node retired; /* by the serial, once no handle here uses it any more */
    uint64_t serial;       /* the same on all ranks */
    int32_t users;         /* entries of peers[] that still exist */
    ncclWindow_t handle;
} nccl_window;

/* Ranks that have pointers to each other's memory, as a run of the group's ranks. count 0: not
 * known. */
typedef struct nccl_lsa_team {
    int32_t first, count;
} nccl_lsa_team;

static inline nccl_lsa_team nccl_all_ranks(const symmem_exchange *exchange) {
    return (nccl_lsa_team){0, exchange->world_size};
}

/*
 * A communicator, and the windows that are registered with it. Bound to one device. It may outlive
 * its group, because windows are of use only while it exists. NCCL takes one call at a time for it,
 * from the thread that has exclusive use of the group, or after the group from the last user.
 */
typedef struct nccl_comm {
    struct nccl_comm *next_kept;
    int32_t users; /* under the state's lock: the group, and each window that has users */
    int32_t device;
    nccl_lsa_team ranks;       /* its ranks of the group */
    bool is_users;             /* handed in: never ended here */
    bool failed;               /* a registration failed: NCCL may work on it forever */
    cuda_private_stream *late; /* a resolve kernel was late; it still reads a window */
    ncclComm_t handle;
    /* used by the thread with exclusive use of the group, or by the last user */
    nccl_window *windows;
    sm_treap retired; /* of these; under the state's lock */
} nccl_comm;

typedef struct nccl_group {
    int32_t rank;
    int32_t world_size;
    bool failed; /* its communicators are only ended, not called again */
    uint64_t last_serial;
    uint64_t list_from;     /* the serial where ranks' lists of retired windows begin */
    nccl_lsa_team lsa_team; /* the ranks of its communicators for windows */
    int32_t comm_count;
    nccl_comm *comms[NCCL_MAX_COMMS]; /* at the same index on all ranks */
    nccl_coll_comm *coll;             /* its communicator is made at the next registration */
} nccl_group;

/* The core's services, as the CUDA backend's code gets them here. */
typedef struct nccl_host {
    symmem_host host; /* first, because failpoints are called with it */
    const symmem_host *cores;
} nccl_host;

typedef struct nccl_comm_abort nccl_comm_abort;

typedef struct nccl_state {
    nccl_host host;
    nccl_library library;
    pthread_mutex_t lock; /* of the counts above; never held during a call of NCCL */
    /* Also under the lock. */
    CUfunction resolvers[CUDA_MAX_DEVICES]; /* NULL: not loaded (resolve.c) */
    struct nccl_bootstrap_root *roots;
    sm_treap allocations; /* by address */
    nccl_coll_comm *coll_comms;
    struct nccl_inflight *inflights; /* NCCL's collectives in flight */
    pthread_cond_t ended;            /* with the monotonic clock */
    nccl_comm_abort *endings;
    bool ends_here; /* closing: no more threads */
    pthread_cond_t work;
    bool has_watcher, closing;
    pthread_t watcher;
} nccl_state;

static inline nccl_state *nccl_state_of(const cuda_instance *instance) {
    return instance->extension;
}

/* symmem_memory.priv: an nccl_allocation for local memory, an nccl_window for an entry of
 * peers[]. */

/* error.c */
symmem_status nccl_fail(const cuda_instance *instance, ncclResult_t result, const char *operation);

/* backend.c */
const symmem_backend *nccl_table(void);

/* host_shim.c */
void nccl_host_init(nccl_host *own, const symmem_host *cores);

/* comm.c */
/* Calls of NCCL that may start threads stand between cuda_signals_block and cuda_signals_allow,
 * because NCCL leaves its threads open to the program's signals. */
/* A communicator for windows never runs a kernel of NCCL's. */
typedef enum nccl_comm_use { NCCL_FOR_WINDOWS, NCCL_FOR_COLLECTIVES } nccl_comm_use;
/* Collective: all ranks get a communicator, or none. One for windows is of the LSA team, which is
 * determined if it is not known. Others are of all ranks, and `lsa_team` is NULL. */
symmem_status nccl_comm_make(cuda_instance *instance, const symmem_exchange *exchange,
                             int32_t device, nccl_comm_use use, nccl_lsa_team *lsa_team,
                             nccl_comm **comm_p);
/* Local. Adopts the user's communicator, for any device. */
symmem_status nccl_comm_adopt(cuda_instance *instance, const symmem_exchange *exchange,
                              nccl_comm **comm_p);
symmem_status nccl_communicator_check(void *instance, void *communicator, int32_t rank,
                                      int32_t world_size);
/* A collective NCCL call may fail because a peer died. NCCL notices when the peer's sockets close;
 * our liveness check only when the process is fully gone, its device's context included. So the
 * peers are polled for this long, and as long as one is ending, within the deadline. The error is
 * PEER_LOST if one is gone. */
#define NCCL_LOSS_MS 400
bool nccl_may_be_loss(ncclResult_t result);
symmem_status nccl_comm_failed(const cuda_instance *instance, ncclResult_t result,
                               const symmem_exchange *exchange, const char *what);
/* Returns an earlier deadline for long waits, which leaves time to tell the other ranks the result.
 * 0: none. */
uint64_t nccl_deadline(uint64_t deadline_ns);
/* Waits for what NCCL does in the background. */
symmem_status nccl_comm_wait(const cuda_instance *instance, ncclComm_t handle,
                             const symmem_exchange *exchange, const char *what);
/* Gives up one use; the last one frees everything. It waits for no peer's call. It waits for NCCL
 * and the driver, which may wait for a peer's kernel, at most three seconds and within the deadline
 * of this thread's public call. It does not wait at all while it collects finished work. */
void nccl_comm_leave(cuda_instance *instance, nccl_comm *comm);
/* The same, but not after until_ns; 0: no such limit. */
void nccl_comm_leave_by(cuda_instance *instance, nccl_comm *comm, uint64_t until_ns);
/* The same, without waiting. */
void nccl_comm_drop(cuda_instance *instance, nccl_comm *comm);
/* What giving up the last use does. */
void nccl_comm_end(cuda_instance *instance, nccl_comm *comm);
/* The context is current. Undoes a registration. */
void nccl_window_end(cuda_instance *instance, nccl_window *window);

/* lsa_team.c */
/* Returns what NCCL says about a communicator of all ranks. A context is current. Local. */
symmem_status nccl_lsa_team_of(const cuda_instance *instance, ncclComm_t handle,
                               const symmem_exchange *exchange, nccl_lsa_team *lsa_team);
/* Finds the ranks that a communicator for windows can have, from a communicator of all ranks.
 * Collective: all ranks get one answer. */
symmem_status nccl_lsa_team_find(cuda_instance *instance, const nccl_comm *comm,
                                 const symmem_exchange *exchange, nccl_lsa_team *lsa_team);

/* comm_abort.c: aborts of communicators, which may take long */
/* Waits for it until until_ns; 0: not at all. */
void nccl_comm_abort_begin(cuda_instance *instance, nccl_comm *comm, uint64_t until_ns);
/* Waits for all of them. An abort that begins later runs in its caller. */
void nccl_comm_aborts_finish(cuda_instance *instance);

/* fd_budget.c */
/* What a registration needs, and a communicator with its first registration. */
int32_t nccl_window_descriptors(int32_t world_size);
int32_t nccl_comm_descriptors(int32_t world_size);
/* Returns whether the process may open `count` more. */
bool nccl_has_descriptors(int32_t count);
symmem_status nccl_lacks_descriptors(const cuda_instance *instance);
/* Keep and restore the program's limit of descriptors around what may raise it. Calls may nest. */
void nccl_fd_limit_keep(void);
void nccl_fd_limit_restore(void);

/* bootstrap_root.c: what NCCL keeps in this process for an id whose communicator did not come up */
typedef struct nccl_bootstrap_root nccl_bootstrap_root;
/* Called right after the id was made. NULL: not found, for example because another process has
 * it. */
nccl_bootstrap_root *nccl_bootstrap_root_find(const ncclUniqueId *id);
/* Ends and frees it; NULL is a no-op. A root that cannot be ended now, for lack of a descriptor, is
 * remembered. */
void nccl_bootstrap_root_end(cuda_instance *instance, nccl_bootstrap_root *root);
/* Ends those that were remembered. `keep`: those that still cannot be ended are remembered
 * again. */
void nccl_bootstrap_roots_end(cuda_instance *instance, bool keep);

/* group.c */
symmem_status nccl_group_open(void *instance, const symmem_exchange *exchange, int32_t device,
                              void **group_p);
void nccl_group_close(void *instance, void *group);

/* memory.c */
symmem_status nccl_memory_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory);
void nccl_memory_release(void *instance, symmem_memory *memory);
void nccl_allocation_leave(cuda_instance *instance, nccl_allocation *allocation);
/* Lists a new window of its allocation and communicator. nccl_window_free frees one that ended. */
void nccl_window_enlist(cuda_instance *instance, nccl_window *window);
void nccl_window_free(cuda_instance *instance, nccl_window *window);
/* Finds it from an address in a registered allocation, which has to exist meanwhile. */
nccl_coll_comm *nccl_coll_comm_find(cuda_instance *instance, const void *address);

/* exchange.c */
symmem_status nccl_memory_exchange(void *instance, void *group, symmem_memory *own,
                                   const symmem_exchange *exchange, symmem_memory *peers);

/* resolve.c */
/* pointers[0..world_size): each rank's part of the window, NULL if it cannot be reached. Local,
 * within the exchange's deadline. */
symmem_status nccl_resolve(cuda_instance *instance, const nccl_window *window,
                           const symmem_exchange *exchange, void **pointers);
void nccl_modules_release(cuda_instance *instance);

/* coll_comm.c: NCCL's own collectives, see coll_comm.h */
/* Returns the group's, if it still exists, or a new one. NULL: no memory. */
nccl_coll_comm *nccl_coll_comm_take(cuda_instance *instance, uint64_t group_uid);
void nccl_coll_comm_leave(cuda_instance *instance, nccl_coll_comm *coll);
/* The same, without waiting. */
void nccl_coll_comm_drop(cuda_instance *instance, nccl_coll_comm *coll);
bool nccl_coll_comm_is_ready(const nccl_coll_comm *coll);
#define NCCL_ANY_SERIAL UINT64_MAX
/* Gives up the communicator, if there is one with that serial, and what is in flight on it, until
 * until_ns; 0: no limit. Returns false if a call that the driver delays still has it. */
bool nccl_coll_comm_end(cuda_instance *instance, nccl_coll_comm *coll, uint64_t serial,
                        uint64_t until_ns);
/* Takes ownership of the communicator. There is none before. */
void nccl_coll_comm_set(cuda_instance *instance, nccl_coll_comm *coll, nccl_comm *comm);
symmem_status nccl_collective_apart(void *instance, const symmem_peers *peers, int32_t channel,
                                    const symmem_collective *call, const symmem_exec *exec);
/* No rank takes calls on the group's communicator any more. */
void nccl_signal_lost(void *instance, const symmem_peers *peers);
void nccl_watcher_stop(cuda_instance *instance);
/* Forgets what is in flight with that fault although its work is over, and gives up its
 * communicator. */
void nccl_inflight_forget(cuda_instance *instance, const symmem_cuda_fault *fault);

/* image.c */
/* The compiled resolve.cu. NULL: built without. */
const void *nccl_image(void);

/* signal_guard.c: the CUDA backend's signal operations, if all pointers they need exist */
symmem_status nccl_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                           const symmem_exec *exec);
symmem_status nccl_put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, const symmem_exec *exec);
symmem_status nccl_wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                               int32_t channel, const symmem_exec *exec);

#endif
