/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the fake libnccl share. */
#ifndef FAKE_NCCL_INTERNAL_H
#define FAKE_NCCL_INTERNAL_H

#include <pthread.h>

#include "fake_nccl.h"

#define PUBLIC __attribute__((visibility("default")))
#define MAX_MEETINGS 512
#define MAX_STEPS 1024
#define MAX_MOVES 64
#define MAX_CALLS 16

/* One call of a collective, or several in a group. */
typedef enum call_kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECV } call_kind;

typedef struct one_call {
    call_kind kind;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or root */
} one_call;

typedef struct move {
    int count;
    one_call calls[MAX_CALLS];
} move;

enum { NO_ROOT = 0, ROOT_WAITS, ROOT_ENDS };

/* Of one id. In memory that forked ranks share; 0 at the start. */
typedef struct meeting {
    atomic_int root;      /* whether a root waits for the ranks of this id */
    atomic_bool raised;   /* who waits there has raised the limit of descriptors */
    atomic_int announced; /* how many, by the first that came */
    atomic_int joined;
    atomic_int devices[FAKE_NCCL_RANKS]; /* and one; 0: no driver tells */
    atomic_int registered[MAX_STEPS];
    _Atomic(void *) buffers[MAX_STEPS][FAKE_NCCL_RANKS];
    atomic_int came[MAX_MOVES], left[MAX_MOVES];
    move moves[MAX_MOVES][FAKE_NCCL_RANKS];
} meeting;

struct ncclComm {
    int rank, world;
    meeting *meeting;
    _Atomic int state; /* ncclResult_t */
    atomic_bool aborted;
    int step; /* registrations so far */
    int move; /* and collectives */
    pthread_t thread;
    bool has_thread, has_joined;
    bool has_met; /* all ranks of it */
    void *pinned; /* NULL where no fake driver is loaded */
    /* Of the operation under way. */
    atomic_int *count;
    bool fails, hangs, no_window, host_window;
    ncclResult_t result;
    size_t bytes;
    ncclWindow_t *window_p; /* NULL: not a registration */
    fake_window *windows;
    bool moves;
};

extern PUBLIC fake_nccl_state fake_nccl;

/* fake_nccl.c */
/* Of the fake driver's own, loaded as the driver or linked into the program; NULL: neither. */
void *driver_function(const char *name);
/* Whether this call is the one that the test wants to go wrong. */
bool goes_wrong(fake_nccl_call call, int rank);
/* One operation under way, which goes wrong if the test said so. */
ncclResult_t launch(struct ncclComm *comm, fake_nccl_call call, atomic_int *count);

/* fake_nccl_moves.c */
/* All ranks are there: computes this rank's results. */
ncclResult_t move_all(struct ncclComm *comm);
bool is_running(const void *stream);
void stop_running(ncclComm_t comm);

#endif
