/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators whose end waits for a peer, on a fake libnccl and a fake driver: see ending.c. */
#include "nccl_ranks.h"

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
    if (handle == NULL)
        return;
    env_meet(env);
    atomic_store(&nccl->held, 1);
    uint64_t begin_ns = cuda_now_ns();
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    CHECK_OK(env, symmem_group_destroy(env->group));
    CHECK(env, cuda_now_ns() - begin_ns < 5000 * CUDA_NS_PER_MS);
    CHECK(env, atomic_load(&nccl->comms) == env->world);
    env_meet(env);
    if (env->rank == 0)
        CHECK(env, pthread_create(&letting_go, NULL, let_go, NULL) == 0);
}

/* Closing waits for it: the library's thread may not find its instance gone. */
TEST("an abort that waits") {
    use_library(PLAIN_NCCL);
    run_nccl(2, body_held, 0);
    CU_ASSERT_EQUAL(pthread_join(letting_go, NULL), 0);
    CU_ASSERT_EQUAL(atomic_load(&nccl->windows), 0);
}

static const void *_Atomic held_stream;

static bool is_held(const void *stream) {
    return stream == atomic_load(&held_stream);
}

/* What looks after work that is over gives up the last use: of a group that has gone, and of a
 * handle that was released with work under way. No other call is to wait for that. */
static void body_looked_after(rank_env *env) {
    void *first = NULL, *second = NULL;
    symmem_group *group = NULL;
    symmem_handle *handle = env_handle(env, &first), *other = NULL;
    symmem_stream *stream = NULL;
    CHECK_OK(env, symmem_group_create(env->context, "passing", NULL, 0, NULL, &group));
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &second));
    CHECK_OK(env, symmem_rendezvous(env->context, second, group, 10000, &other));
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    env_meet(env);
    if (env->rank == 0) {
        bool idle = false;
        atomic_store(&held_stream, ((const cuda_stream *)stream->native)->native);
        CHECK_OK(env, symmem_barrier(other, 0, 10000, stream));
        symmem_handle_release(other);
        CHECK_OK(env, symmem_group_destroy(group));
        atomic_store(&nccl->held, 1);
        atomic_store(&held_stream, NULL);
        usleep(200000); /* it has found out by then */
        const uint64_t begin_ns = cuda_now_ns();
        CHECK_OK(env, symmem_stream_query(stream, &idle));
        CHECK(env, idle);
        CHECK(env, cuda_now_ns() - begin_ns < 2000 * CUDA_NS_PER_MS);
        atomic_store(&nccl->held, 0);
    } else {
        symmem_handle_release(other);
        CHECK_OK(env, symmem_group_destroy(group));
    }
    env_meet(env);
    CHECK_OK(env, symmem_stream_destroy(stream));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, first));
    CHECK_OK(env, symmem_free(env->context, second));
}

TEST("beside other calls") {
    use_library(PLAIN_NCCL);
    fake_cuda_hooks.is_busy = is_held;
    run_nccl(2, body_looked_after, 0);
}
