/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of groups that span more than direct access: NCCL's own, on a communicator of their
 * own, for a failure ends it and windows must not go with it. NCCL's kernels know no limit, so the
 * host watches them: where one is over, or a peer has ended, it writes the failure where a kernel
 * of ours would have, and aborts the communicator, which ends the kernels.
 */
#ifndef SYMMEM_NCCL_SPAN_H
#define SYMMEM_NCCL_SPAN_H

#include "nccl_internal.h"

/* Of a group. It outlives the group as long as memory registered there is alive, and where the
 * group is opened anew after a rendezvous that failed it is that one's, too. */
struct nccl_span {
    struct nccl_span *next; /* this and the next three under the state's lock */
    int32_t users;          /* the group, and its allocations */
    uint64_t group_uid;
    uint64_t serial;       /* of the communicator, each another; changes with the turn held */
    pthread_mutex_t turn;  /* NCCL takes one call at a time. Taken before the state's lock */
    nccl_comm *comm;       /* under the turn; NULL: none, or given up */
    _Atomic bool is_ready; /* takes calls: no rank is known to have given the communicator up */
    _Atomic bool spans;    /* some pointer of the group's was NULL */
};

/* One collective, from the call to its end on the stream. */
typedef struct nccl_flight {
    struct nccl_flight *next;
    cuda_instance *instance;
    nccl_span *span;
    uint64_t serial; /* of the communicator that it is for */
    const symmem_peers *peers;
    symmem_cuda_fault *fault;
    uint32_t timeout_ms;
    _Atomic uint64_t called_ns; /* 0: the call has returned, and the rest is the stream's */
    _Atomic uint64_t begun_ns;  /* 0: the stream is not there yet */
    uint64_t asked_ns;          /* for peers, last */
    uint64_t broken_ns;         /* under the state's lock: NCCL first said so; 0: it has not */
    ncclResult_t broken;        /* and what */
    bool failed;                /* under the state's lock: the fault is written */
    bool left;                  /* likewise: the callback before it is all that comes */
} nccl_flight;

/* span_watch.c */
/* Unless it is there. Described if it cannot be, and before anything is on a stream: what fails
 * later is taken for the driver's. */
symmem_status nccl_watcher_start(cuda_instance *instance, const char *operation);
/* The watcher, which has been started, knows it from here until the stream is through with it. */
void nccl_flight_enlist(nccl_flight *flight);
/* A callback of the driver's, too: calls neither the driver nor NCCL. Frees it. */
void nccl_flight_end(void *flight);
/* The callback before it. */
void nccl_flight_begin(void *flight);
/* In place of the end, where the stream may not have come to the beginning. */
void nccl_flight_leave(nccl_flight *flight);
/* In place of both, for one that has failed before NCCL heard of it: its communicator takes no more
 * calls. */
void nccl_flight_quit(nccl_flight *flight);
/* The state of what is under way, as it is now; tells the flight of a failure that it finds. */
bool nccl_flight_look(nccl_flight *flight);
/* NCCL reports an error: whether the flight has been told of one by now. Not at once, for a peer's
 * end may be the reason, which NCCL can know of first. */
bool nccl_flight_broken(nccl_flight *flight, ncclResult_t result);
/* Tells it, unless it has been told. */
void nccl_flight_fail(nccl_flight *flight, symmem_status status, int32_t rank);
/* Takes no more calls there and tells what is under way on it; any thread. Nothing if the
 * communicator is another one by now. */
void nccl_span_lose(cuda_instance *instance, nccl_span *span, uint64_t serial);
/* And gives up the communicator, whose end, which is the caller's, ends all that; NULL: there is
 * none. The turn is held. */
nccl_comm *nccl_span_take_away(cuda_instance *instance, nccl_span *span);

/* span_calls.c */
typedef struct nccl_call {
    const nccl_library *library;
    const symmem_peers *peers;
    const symmem_collective *call;
    ncclComm_t comm;
    CUstream native;
    void *word; /* four bytes of this rank's that nobody uses, of the channel */
} nccl_call;

/* What NCCL can do; described if it cannot. The same on every rank. */
symmem_status nccl_call_check(const cuda_instance *instance, const symmem_collective *call);
/* How many calls of NCCL it takes, each to be complete before the next. */
int nccl_call_steps(const symmem_collective *call);
ncclResult_t nccl_call_step(const nccl_call *call, int step);

#endif
