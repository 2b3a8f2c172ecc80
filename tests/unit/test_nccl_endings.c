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
static void test_held(void) {
    use_library(PLAIN_NCCL);
    run_nccl(2, body_held, 0);
    CU_ASSERT_EQUAL(pthread_join(letting_go, NULL), 0);
    CU_ASSERT_EQUAL(atomic_load(&nccl->windows), 0);
}

static const named_test tests[] = {
    {"an abort that waits", test_held},
};

int main(void) {
    return RUN_TESTS("nccl_endings", tests);
}
