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
#include "span.h"

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

static inline symmem_status reduce_within(rank_env *env, symmem_handle *handle, void *data,
                                          symmem_stream *stream, uint32_t limit_ms) {
    int64_t count = N;
    DLTensor all = tensor_of(env, data, 1, &count, 32);
    symmem_status status = symmem_all_reduce(handle, &all, SYMMEM_SUM, &all, 0, limit_ms, stream);
    if (status == SYMMEM_OK && stream != NULL)
        status = symmem_stream_synchronize(stream, 10000);
    return status;
}

static inline symmem_status reduce_once(rank_env *env, symmem_handle *handle, void *data,
                                        symmem_stream *stream) {
    return reduce_within(env, handle, data, stream, LIMIT_MS);
}

/* Where all goes well: a rank that was kept from running is waited for. */
static inline symmem_status reduce_well(rank_env *env, symmem_handle *handle, void *data,
                                        symmem_stream *stream) {
    return reduce_within(env, handle, data, stream, 10000);
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
    nccl_span *span = nccl_state_of(env->context->instance)->spans;
    for (int i = 0; i < 10000; i++) {
        if (pthread_mutex_trylock(&span->turn) != 0)
            return true;
        pthread_mutex_unlock(&span->turn);
        usleep(1000);
    }
    return false;
}

static const void *_Atomic held_stream; /* other work, before the collective, that takes long */

static inline bool is_held(const void *stream) {
    return stream == atomic_load(&held_stream) || nccl->is_running(stream);
}

static inline void hold(const symmem_stream *stream) {
    fake_cuda_hooks.is_busy = is_held;
    atomic_store(&held_stream, ((const cuda_stream *)stream->native)->native);
}

static atomic_bool turn_is_kept, turn_goes_on;

static inline void *keep_turn(void *opaque) {
    nccl_span *span = opaque;
    pthread_mutex_lock(&span->turn);
    atomic_store(&turn_is_kept, true);
    for (int i = 0; i < 15000 && !atomic_load(&turn_goes_on); i++)
        usleep(1000);
    pthread_mutex_unlock(&span->turn);
    return NULL;
}

/* As by a call that the driver keeps, whose queue is full. */
static inline void begin_keeping(rank_env *env, pthread_t *keeper) {
    atomic_store(&turn_is_kept, false);
    atomic_store(&turn_goes_on, false);
    CHECK(env, pthread_create(keeper, NULL, keep_turn,
                              nccl_state_of(env->context->instance)->spans) == 0);
    for (int i = 0; i < 50000 && !atomic_load(&turn_is_kept); i++)
        usleep(100);
    CHECK(env, atomic_load(&turn_is_kept));
}

static inline void end_keeping(rank_env *env, pthread_t keeper) {
    atomic_store(&turn_goes_on, true);
    CHECK(env, pthread_join(keeper, NULL) == 0);
}

static inline void run_apart(rank_body body, int argument) {
    use_library(PLAIN_NCCL);
    nccl->domain = 1;
    run_nccl(3, body, argument);
    nccl->domain = 0;
}

static inline void run_planned_apart(plan p) {
    run_apart(p.body, p.argument);
}

/* RANKS_TEST of such ranks. */
#define APART_TEST(case_name) RANKS_TEST_(case_name, __COUNTER__, run_planned_apart, .argument = 0)

#endif
