/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a test tells the library of fake_nccl.c, and asks it. The library holds one of these, under
 * the name fake_nccl; ranks may be threads, or processes forked after it was loaded.
 */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_NCCL_RANKS 8

typedef enum fake_nccl_call {
    FAKE_NO_CALL,
    FAKE_UNIQUE_ID,
    FAKE_INIT,
    FAKE_REGISTER,
    FAKE_COLLECTIVE,
    FAKE_NOTED,  /* one within a group */
    FAKE_POINTER /* the host's query */
} fake_nccl_call;

typedef enum fake_nccl_way {
    FAKE_FAILS_AT_ONCE,
    FAKE_FAILS_LATER, /* as the asynchronous state */
    FAKE_NEVER_ENDS,
    FAKE_NO_WINDOW,   /* success, and the window untouched */
    FAKE_HOST_WINDOW, /* success, and a window that is none */
    FAKE_RUNS_ON,     /* a collective: success, and its kernel never ends */
} fake_nccl_way;

/* What the device finds behind a window. */
typedef struct fake_window {
    struct fake_window *next; /* of the communicator's */
    int first, count;         /* the ranks of the load/store domain */
    void *pointers[FAKE_NCCL_RANKS];
    bool own[FAKE_NCCL_RANKS]; /* a mapping of this window's */
    size_t bytes;
} fake_window;

typedef struct fake_nccl_state {
    int version;
    int domain; /* ranks of a load/store domain; 0: all */
    /* What rank 0 hears of its domain, if not NULL: how many ranks, its place, and the stride. */
    const int *nonsense;
    /* One call of one rank, the skip-th of its kind there, goes wrong. */
    fake_nccl_call call;
    fake_nccl_way way;
    int rank;
    atomic_int skip;
    ncclResult_t result;
    /* Alive in this process. */
    atomic_int comms, windows, threads, root_threads;
    /* Since the start. */
    atomic_int registrations, deregistrations, inits, aborts, collectives;
    atomic_int wide;    /* of the inits, those without a limit of blocks per kernel */
    atomic_int misuses; /* calls that NCCL forbids */
    atomic_int takers;  /* threads with another mask than they should have */
    atomic_int held;    /* aborts wait, as for a peer's kernel, until this is 0 or 6 s are over */
    bool nvls_at_first; /* NCCL_NVLS_ENABLE was not 0 at the first call */
    bool called;
    _Atomic uint64_t failed_ns;             /* when a call failed later, by the monotonic clock */
    bool (*is_running)(const void *stream); /* a kernel of a collective that runs on */
    int (*roots)(void);                     /* that wait for ranks of their id, in all processes */
} fake_nccl_state;

#endif
