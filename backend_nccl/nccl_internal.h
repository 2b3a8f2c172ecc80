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
#include "cuda_device.h"
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

typedef struct nccl_comm_abort nccl_comm_abort;

typedef struct nccl_state {
    cuda_named_host host; /* as the CUDA backend's code gets it */
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

/* comm.c */
/* Calls of NCCL that may start threads stand between cuda_signals_block and cuda_signals_allow,
 * because NCCL leaves its threads open to the program's signals. */

/* backend.c */
const symmem_backend *nccl_table(void);

#endif
