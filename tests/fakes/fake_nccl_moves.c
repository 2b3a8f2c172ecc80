/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of the fake libnccl: of int32, or of bytes where nothing is reduced. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_nccl_internal.h"

/* --- what they compute -------------------------------------------------------------- */

static size_t type_bytes(ncclDataType_t type) {
    return type == ncclUint8 || type == ncclInt8 ? 1 : 4;
}

static int combine(ncclRedOp_t op, int a, int b) {
    return op == ncclMax ? (a > b ? a : b) : op == ncclMin ? (a < b ? a : b) : a + b;
}

/* Of all ranks' n-th call, elements [first, first + count). */
static void reduce(const struct ncclComm *comm, int n, size_t first, size_t count, int *result) {
    const move *moves = comm->meeting->moves[comm->move - 1];
    for (size_t i = 0; i < count; i++) {
        result[i] = ((const int *)moves[0].calls[n].in)[first + i];
        for (int r = 1; r < comm->world; r++)
            result[i] = combine(moves[r].calls[n].op, result[i],
                                ((const int *)moves[r].calls[n].in)[first + i]);
    }
}

/* The n-th send of a rank to another is for that one's n-th receipt. */
static void receive(const struct ncclComm *comm, const one_call *own, void *result) {
    const move *theirs = &comm->meeting->moves[comm->move - 1][own->peer];
    for (int i = 0; i < theirs->count; i++)
        if (theirs->calls[i].kind == SEND && theirs->calls[i].peer == comm->rank) {
            if (theirs->calls[i].count != own->count)
                abort();
            memcpy(result, theirs->calls[i].in, own->count);
        }
}

static size_t result_bytes(const struct ncclComm *comm, const one_call *own) {
    size_t bytes = own->count * type_bytes(own->type);
    return own->kind == ALL_GATHER ? bytes * (size_t)comm->world : own->kind == SEND ? 0 : bytes;
}

static void compute(const struct ncclComm *comm, int n, char *result) {
    const move *moves = comm->meeting->moves[comm->move - 1];
    const one_call *own = &moves[comm->rank].calls[n];
    size_t bytes = own->count * type_bytes(own->type);
    if (own->kind == ALL_REDUCE)
        reduce(comm, n, 0, own->count, (int *)(void *)result);
    else if (own->kind == REDUCE_SCATTER)
        reduce(comm, n, own->count * (size_t)comm->rank, own->count, (int *)(void *)result);
    else if (own->kind == BROADCAST)
        memcpy(result, moves[own->peer].calls[n].in, bytes);
    else if (own->kind == RECV)
        receive(comm, own, result);
    for (int r = 0; own->kind == ALL_GATHER && r < comm->world; r++)
        memcpy(result + (size_t)r * bytes, moves[r].calls[n].in, bytes);
}

static bool is_sent(const struct ncclComm *comm, const one_call *receipt) {
    const move *theirs = &comm->meeting->moves[comm->move - 1][receipt->peer];
    bool found = false;
    for (int i = 0; i < theirs->count; i++)
        found = found || (theirs->calls[i].kind == SEND && theirs->calls[i].peer == comm->rank);
    return found;
}

/* True if every transfer of this rank has its counterpart. Without one the calls never end, as
 * NCCL's. */
static bool have_partners(const struct ncclComm *comm) {
    const move *moves = comm->meeting->moves[comm->move - 1];
    bool found = true;
    for (int n = 0; n < moves[comm->rank].count; n++) {
        const one_call *own = &moves[comm->rank].calls[n];
        if (own->kind == RECV)
            found = found && is_sent(comm, own);
        for (int r = 0; own->kind != RECV && own->kind != SEND && r < comm->world; r++)
            found = found && moves[r].count > n;
    }
    return found;
}

static void await_abort(const struct ncclComm *comm) {
    while (!atomic_load(&comm->aborted))
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
}

/* All results before anybody writes one, for some are in place. */
ncclResult_t move_all(struct ncclComm *comm) {
    const move *own = &comm->meeting->moves[comm->move - 1][comm->rank];
    char *results[MAX_CALLS];
    if (!have_partners(comm)) {
        await_abort(comm);
        return ncclInternalError;
    }
    for (int n = 0; n < own->count; n++) {
        results[n] = calloc(1, result_bytes(comm, &own->calls[n]) + 1);
        if (results[n] == NULL)
            abort();
        compute(comm, n, results[n]);
    }
    atomic_fetch_add(&comm->meeting->left[comm->move - 1], 1);
    while (atomic_load(&comm->meeting->left[comm->move - 1]) < comm->world)
        if (atomic_load(&comm->aborted))
            break;
    for (int n = 0; n < own->count; n++) {
        if (own->calls[n].out != NULL)
            memcpy(own->calls[n].out, results[n], result_bytes(comm, &own->calls[n]));
        free(results[n]);
    }
    return ncclSuccess;
}

/* --- collectives, as they are called ------------------------------------------------ */

static _Thread_local struct {
    int depth;
    ncclComm_t comm;
    void *stream;
    move move;
} group;

/* Kernels that run for ever, from when their stream gets there. */
static pthread_mutex_t running_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    ncclComm_t comm;
    void *stream;
    uint64_t number;
    bool has_begun;
} running[16];

bool is_running(const void *stream) {
    bool found = false;
    pthread_mutex_lock(&running_lock);
    for (size_t i = 0; i < sizeof running / sizeof running[0]; i++)
        found = found ||
                (running[i].comm != NULL && running[i].has_begun && running[i].stream == stream);
    pthread_mutex_unlock(&running_lock);
    return found;
}

static void begin_running(void *number) {
    pthread_mutex_lock(&running_lock);
    for (size_t i = 0; i < sizeof running / sizeof running[0]; i++)
        if (running[i].number == *(const uint64_t *)number)
            running[i].has_begun = true;
    pthread_mutex_unlock(&running_lock);
}

static void run_on(ncclComm_t comm, void *stream) {
    static uint64_t last_number;
    int (*enqueue)(void *, void (*)(void *), const void *, size_t) = NULL;
    void *found = driver_function("fake_cuda_enqueue");
    size_t i = 0;
    pthread_mutex_lock(&running_lock);
    while (running[i].comm != NULL)
        i++;
    uint64_t number = ++last_number;
    running[i].comm = comm;
    running[i].stream = stream;
    running[i].number = number;
    running[i].has_begun = false;
    pthread_mutex_unlock(&running_lock);
    memcpy(&enqueue, &found, sizeof enqueue);
    if (enqueue == NULL || enqueue(stream, begin_running, &number, sizeof number) != 0)
        abort();
}

void stop_running(ncclComm_t comm) {
    pthread_mutex_lock(&running_lock);
    for (size_t i = 0; i < sizeof running / sizeof running[0]; i++)
        if (running[i].comm == comm)
            running[i].comm = NULL;
    pthread_mutex_unlock(&running_lock);
}

static ncclResult_t move_off(void) {
    ncclComm_t comm = group.comm;
    if (comm == NULL)
        return ncclSuccess;
    group.comm = NULL;
    if (atomic_load(&comm->state) == ncclInProgress || comm->move == MAX_MOVES) {
        atomic_fetch_add(&fake_nccl.misuses, 1);
        return ncclInvalidArgument;
    }
    int index = comm->move++;
    comm->meeting->moves[index][comm->rank] = group.move;
    atomic_fetch_add(&fake_nccl.collectives, 1);
    if (fake_nccl.way == FAKE_RUNS_ON && goes_wrong(FAKE_COLLECTIVE, fake_nccl.rank)) {
        run_on(comm, group.stream);
        return ncclSuccess;
    }
    return launch(comm, FAKE_COLLECTIVE, &comm->meeting->came[index]);
}

PUBLIC ncclResult_t ncclGroupStart(void);
PUBLIC ncclResult_t ncclGroupEnd(void);
PUBLIC ncclResult_t ncclGroupStart(void) {
    if (group.depth++ == 0) {
        group.comm = NULL;
        group.move.count = 0;
    }
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclGroupEnd(void) {
    return --group.depth == 0 ? move_off() : ncclSuccess;
}

/* In a group a call is but noted, which NCCL may answer either way. */
static ncclResult_t add(ncclComm_t comm, void *stream, one_call call) {
    if (group.depth > 0 && goes_wrong(FAKE_NOTED, comm->rank))
        return fake_nccl.result;
    ncclGroupStart();
    if (group.move.count == MAX_CALLS)
        abort();
    group.comm = comm;
    group.stream = stream;
    group.move.calls[group.move.count++] = call;
    ncclResult_t result = ncclGroupEnd();
    return group.depth > 0 && group.move.count % 2 != 0 ? ncclInProgress : result;
}

PUBLIC ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, (one_call){ALL_REDUCE, in, out, count, type, op, 0});
}

PUBLIC ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, (one_call){REDUCE_SCATTER, in, out, count, type, op, 0});
}

PUBLIC ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, (one_call){ALL_GATHER, in, out, count, type, ncclSum, 0});
}

PUBLIC ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type,
                                  int root, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, (one_call){BROADCAST, in, out, count, type, ncclSum, root});
}

PUBLIC ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, (one_call){SEND, in, NULL, count, type, ncclSum, peer});
}

#ifndef FAKE_WITHOUT_RECV
PUBLIC ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, (one_call){RECV, NULL, out, count, type, ncclSum, peer});
}
#endif
