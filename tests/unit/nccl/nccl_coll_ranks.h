/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of a group that spans more than direct access, on a fake libnccl and a fake driver, and a
 * small all-reduce of theirs. Include it in one file of a program.
 */
#ifndef NCCL_SPAN_RANKS_H
#define NCCL_SPAN_RANKS_H

#include <symmem/ops.h>
#include <symmem/stream.h>

#include "nccl_ranks.h"
#include "coll_comm.h"

#define N 6 /* elements, of each rank where there is one part a rank */

static inline DLTensor tensor_of(rank_env *env, void *data, int ndim, int64_t *shape,
                                 uint8_t bits) {
    return (DLTensor){.data = data,
                      .device = {kDLCUDA, env->rank},
                      .ndim = ndim,
                      .dtype = {kDLInt, bits, 1},
                      .shape = shape};
}

/* What a rank's element i is before an operation. */
static inline int value(int32_t rank, int i) {
    return 100 * (rank + 1) + i;
}

static inline void fill(rank_env *env, int *data, int count) {
    env_meet(env);
    for (int i = 0; i < count; i++)
        data[i] = value(env->rank, i);
}

static inline int sum(rank_env *env, int i) {
    int total = 0;
    for (int32_t r = 0; r < env->world; r++)
        total += value(r, i);
    return total;
}

/* Less than NCCL_LOSS_MS: what NCCL says is told at the limit, and is no TIMEOUT. */
#define LIMIT_MS 300u

/* The call alone. */
static inline symmem_status begin_reduce(rank_env *env, symmem_handle *handle, void *data,
                                         symmem_stream *stream, uint32_t limit_ms) {
    int64_t count = N;
    DLTensor all = tensor_of(env, data, 1, &count, 32);
    return symmem_all_reduce(handle, &all, SYMMEM_SUM, &all, 0, limit_ms, stream);
}

static inline symmem_status reduce_within(rank_env *env, symmem_handle *handle, void *data,
                                          symmem_stream *stream, uint32_t limit_ms) {
    symmem_status status = begin_reduce(env, handle, data, stream, limit_ms);
    if (status == SYMMEM_OK && stream != NULL)
        status = symmem_stream_synchronize(stream, 10000);
    return status;
}

static inline symmem_status reduce_once(rank_env *env, symmem_handle *handle, void *data,
                                        symmem_stream *stream) {
    return reduce_within(env, handle, data, stream, LIMIT_MS);
}

/* Where all goes well, on all ranks: one that was kept from running is waited for. */
static inline void reduce_well(rank_env *env, symmem_handle *handle, void *data,
                               symmem_stream *stream) {
    CHECK_OK(env, reduce_within(env, handle, data, stream, 10000));
    env_meet(env);
}

/* A call on another thread of the rank. */
typedef struct other_call {
    rank_env *env;
    symmem_handle *handle;
    void *ptr;
    uint32_t limit_ms;
    symmem_status status;
} other_call;

static inline void *call_other(void *opaque) {
    other_call *o = opaque;
    o->status = reduce_within(o->env, o->handle, o->ptr, NULL, o->limit_ms);
    return NULL;
}

/* Until that one is the communicator's: from then on it waits in NCCL. */
static inline bool await_other_call(rank_env *env) {
    nccl_coll_comm *span = nccl_state_of(env->context->instance)->coll_comms;
    for (int i = 0; i < 10000; i++) {
        if (pthread_mutex_trylock(&span->call_lock) != 0)
            return true;
        pthread_mutex_unlock(&span->call_lock);
        usleep(1000);
    }
    return false;
}

static atomic_bool turn_is_kept, turn_goes_on;

static inline void *keep_turn(void *opaque) {
    nccl_coll_comm *span = opaque;
    pthread_mutex_lock(&span->call_lock);
    atomic_store(&turn_is_kept, true);
    AWAIT(15000, atomic_load(&turn_goes_on));
    pthread_mutex_unlock(&span->call_lock);
    return NULL;
}

/* As by a call that the driver keeps, whose queue is full; by `keep` on a thread. */
static inline void keep_by(rank_env *env, pthread_t *keeper, void *(*keep)(void *)) {
    atomic_store(&turn_is_kept, false);
    atomic_store(&turn_goes_on, false);
    CHECK(env, pthread_create(keeper, NULL, keep,
                              nccl_state_of(env->context->instance)->coll_comms) == 0);
}

/* As by a call that the driver keeps, whose queue is full. */
static inline void begin_keeping(rank_env *env, pthread_t *keeper) {
    keep_by(env, keeper, keep_turn);
    AWAIT(5000, atomic_load(&turn_is_kept));
    CHECK(env, atomic_load(&turn_is_kept));
}

static inline void end_keeping(rank_env *env, pthread_t keeper) {
    atomic_store(&turn_goes_on, true);
    CHECK(env, pthread_join(keeper, NULL) == 0);
}

static inline void run_apart(rank_body body, int argument) {
    run_on(PLAIN_NCCL, 1, 3, body, argument);
}

static inline void run_planned_apart(plan p) {
    run_on(PLAIN_NCCL, 1, p.world, p.body, p.argument);
}

/* RANKS_TEST of such ranks. */
#define APART_TEST(case_name, ...)                                                                 \
    RANKS_TEST_(case_name, __COUNTER__, run_planned_apart, .world = 3, __VA_ARGS__)

#endif
