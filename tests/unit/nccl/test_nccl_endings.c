/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators whose end waits for a peer, on a fake libnccl and a fake driver: see ending.c. */
#include "nccl_ranks.h"
#include "driver/clock.h"

static pthread_t letting_go;

static void *let_go(void *unused) {
    usleep(600000);
    atomic_store(&nccl->held, 0);
    return unused;
}

/* As where the last rank of a process frees what all of them had, and a peer's kernel, for which
 * the driver waits then, waits for this rank: it has to go on. */
static void body_held(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    hold_aborts(env, true);
    uint64_t begin_ns = cuda_now_ns();
    env_drop(env, handle, ptr);
    CHECK_OK(env, symmem_group_destroy(env->group));
    CHECK(env, cuda_now_ns() - begin_ns < 5000 * CUDA_NS_PER_MS);
    CHECK(env, atomic_load(&nccl->comms) == env->world);
    env_meet(env);
    if (env->rank == 0)
        CHECK(env, pthread_create(&letting_go, NULL, let_go, NULL) == 0);
}

/* Closing waits for it: the library's thread may not find its instance gone. */
TEST("an abort that waits") {
    run_on(PLAIN_NCCL, 0, 2, body_held, 0);
    CU_ASSERT_EQUAL(pthread_join(letting_go, NULL), 0);
    CU_ASSERT_EQUAL(atomic_load(&nccl->windows), 0);
}

/* What looks after work that is over gives up the last use: of a group that has gone, and of a
 * handle that was released with work under way. No other call is to wait for that. */
NCCL_TEST("beside other calls", .world = 2) {
    symmem_group *group = NULL;
    symmem_handle *other = NULL;
    symmem_stream *stream = env_stream(env);
    (void)env_kept_handle(env, NULL);
    CHECK_OK(env, symmem_group_create(env->context, "passing", NULL, 0, NULL, &group));
    CHECK_OK(env, symmem_rendezvous(env->context, env_memory(env), group, 10000, &other));
    env_meet(env);
    if (env->rank == 0) {
        atomic_store(&held_stream, native_of(stream));
        CHECK_OK(env, symmem_barrier(other, 0, 10000, stream));
    }
    symmem_handle_release(other);
    CHECK_OK(env, symmem_group_destroy(group));
    if (env->rank == 0) {
        bool idle = false;
        atomic_store(&nccl->held, 1);
        atomic_store(&held_stream, NULL);
        usleep(200000); /* it has found out by then */
        const uint64_t begin_ns = cuda_now_ns();
        CHECK_OK(env, symmem_stream_query(stream, &idle));
        CHECK(env, idle);
        CHECK(env, cuda_now_ns() - begin_ns < 2000 * CUDA_NS_PER_MS);
        atomic_store(&nccl->held, 0);
    }
}
