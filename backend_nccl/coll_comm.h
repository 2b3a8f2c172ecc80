/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of groups that extend beyond direct access. They use NCCL's collectives, on a
 * communicator of their own, because a failure ends it and windows must survive that. NCCL's
 * kernels know no deadline, so the host watches them. If one is late, or a peer has ended, the host
 * writes the failure where a kernel of ours would have. Then it aborts the communicator, which ends
 * the kernels.
 */
#ifndef SYMMEM_NCCL_COLL_COMM_H
#define SYMMEM_NCCL_COLL_COMM_H

#include "nccl_internal.h"

/* Belongs to a group. It outlives the group while memory registered there exists. A group that is
 * opened again after a failed rendezvous gets the same one. */
struct nccl_coll_comm {
    struct nccl_coll_comm *next; /* this and the next three under the state's lock */
    int32_t users;               /* the group, and its allocations */
    uint64_t group_uid;
    uint64_t serial;           /* differs for each communicator; changes with the call_lock held */
    pthread_mutex_t call_lock; /* NCCL takes one call at a time. Taken before the state's lock */
    nccl_comm *comm;           /* under the call_lock; NULL: none, or given up */
    _Atomic bool is_ready;     /* takes calls: no rank is known to have given the communicator up */
    _Atomic bool beyond_lsa;   /* some pointer of the group was NULL */
};

/* One collective, from the call to its end on the stream. */
typedef struct nccl_inflight {
    struct nccl_inflight *next;
    cuda_instance *instance;
    nccl_coll_comm *coll;
    uint64_t serial; /* of its communicator */
    const symmem_peers *peers;
    symmem_cuda_fault *fault;
    uint32_t timeout_ms;
    _Atomic uint64_t called_ns; /* 0: the call has returned, and only the stream's time counts */
    _Atomic uint64_t begun_ns;  /* 0: the stream has not reached it */
    uint64_t asked_ns;          /* when the peers were last checked */
    /* under the state's lock: when NCCL first reported an error; 0: it has not */
    uint64_t broken_ns;
    ncclResult_t broken; /* that error */
    bool failed;         /* under the state's lock: the fault is written */
    bool left;           /* under the state's lock: only the callback before it will come */
} nccl_inflight;

/* coll_watcher.c */
/* Starts the watcher unless it runs. A failure is described, and comes before anything is on a
 * stream, because later failures are attributed to the driver. */
symmem_status nccl_watcher_start(cuda_instance *instance, const char *operation);
/* The watcher, which runs, watches it from here until the stream has passed it. */
void nccl_inflight_add(nccl_inflight *inflight);
/* Also a callback of the driver, so it calls neither the driver nor NCCL. Frees it. */
void nccl_inflight_end(void *inflight);
/* The callback before it. */
void nccl_inflight_begin(void *inflight);
/* Replaces the end, if the stream may not have reached the beginning. */
void nccl_inflight_leave(nccl_inflight *inflight);
/* Replaces both callbacks, if the call failed before NCCL was called. Its communicator takes no
 * more calls. */
void nccl_inflight_abandon(nccl_inflight *inflight);
/* Checks the collective now and records a failure that it finds. Returns false if it has failed. */
bool nccl_inflight_check(nccl_inflight *inflight);
/* NCCL reported an error. Returns whether a failure is recorded by now. It is not recorded at once,
 * because a peer's end may be the reason, which NCCL can notice first. */
bool nccl_inflight_nccl_error(nccl_inflight *inflight, ncclResult_t result);
/* Records a failure, unless there is one. */
void nccl_inflight_fail(nccl_inflight *inflight, symmem_status status, int32_t rank);
/* Takes no more calls on the communicator and fails what is in flight on it. Any thread. A no-op
 * if the communicator has changed. */
void nccl_coll_comm_mark_lost(cuda_instance *instance, nccl_coll_comm *coll, uint64_t serial);
/* Also removes the communicator. The caller ends it, which ends everything in flight. NULL: there
 * is none. The call_lock is held. */
nccl_comm *nccl_coll_comm_remove(cuda_instance *instance, nccl_coll_comm *coll);

/* coll_calls.c */
typedef struct nccl_call {
    const nccl_library *library;
    const symmem_peers *peers;
    const symmem_collective *call;
    ncclComm_t comm;
    CUstream native;
    void *word; /* four unused bytes of this rank, for the channel */
} nccl_call;

/* Returns whether NCCL supports the call; a failure is described. The same on every rank. */
symmem_status nccl_call_check(const cuda_instance *instance, const symmem_collective *call);
/* Returns the number of NCCL calls, of which each must complete before the next. */
int nccl_call_steps(const symmem_collective *call);
ncclResult_t nccl_call_step(const nccl_call *call, int step);

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

#endif
