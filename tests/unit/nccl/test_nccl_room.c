/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors that NCCL would miss, and the limit of them, which it raises: see room.c. */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "nccl_ranks.h"

/* Ranks are threads here: the limit is all ranks'. */
static struct rlimit limit_before;

/* So that the process may open `count` more. */
static void leave(int32_t count) {
    struct rlimit low = {.rlim_max = limit_before.rlim_max};
    for (; count > 0; low.rlim_cur++)
        count -= fcntl((int)low.rlim_cur, F_GETFD) < 0;
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &low), 0);
}

static void give_back(void) {
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &limit_before), 0);
}

static rlim_t limit_now(void) {
    struct rlimit now = {0};
    return getrlimit(RLIMIT_NOFILE, &now) == 0 ? now.rlim_cur : 0;
}

TEST("what is left is counted") {
    const rlim_t plenty = limit_now();
    leave(7);
    CU_ASSERT(nccl_has_descriptors(7));
    CU_ASSERT_FALSE(nccl_has_descriptors(8));
    CU_ASSERT(nccl_has_descriptors(0));
    give_back();
    CU_ASSERT_EQUAL(limit_now(), plenty);
    CU_ASSERT(nccl_has_descriptors(8));
}

static void expect_lack(rank_env *env, void *ptr, int32_t left) {
    symmem_handle *handle = NULL;
    const int inits = atomic_load(&nccl->inits), windows = atomic_load(&nccl->registrations);
    env_meet(env);
    if (env->rank == 0)
        leave(left);
    env_meet(env);
    const symmem_status status = meet_at(env, ptr, 20000, &handle);
    const symmem_error_record record = last_record();
    CHECK(env, handle == NULL && record.system_errno == EMFILE);
    CHECK(env, strstr(record.message, "for NCCL") != NULL);
    expect_agreed(env, status, SYMMEM_LIMIT);
    /* NCCL never heard of it. */
    CHECK(env, atomic_load(&nccl->inits) == inits);
    CHECK(env, atomic_load(&nccl->registrations) == windows);
    env_meet(env);
    if (env->rank == 0)
        give_back();
    env_meet(env);
}

/* Before a communicator, and before a registration with one that is there. */
static void body_lack(rank_env *env) {
    void *first = NULL, *second = NULL;
    symmem_handle *handle = NULL, *another = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &first));
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &second));
    CHECK_OK(env, symmem_group_barrier(env->group, 20000)); /* the hosts have their sockets */
    expect_lack(env, first, nccl_comm_descriptors(env->world) - 1);
    CHECK_OK(env, meet_at(env, first, 20000, &handle));
    expect_lack(env, second, nccl_window_descriptors(env->world) - 1);
    CHECK_OK(env, meet_at(env, second, 20000, &another));
    if (handle != NULL && another != NULL)
        check_data(env, second, another, 300);
    symmem_handle_release(handle);
    symmem_handle_release(another);
    CHECK_OK(env, symmem_free(env->context, first));
    CHECK_OK(env, symmem_free(env->context, second));
}

TEST("too few") {
    use_library(PLAIN_NCCL);
    run_nccl(3, body_lack, 0);
}

/* Whether a communicator comes up or not. */
static void body_limit(rank_env *env) {
    const rlim_t low = limit_before.rlim_max / 2;
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    env_meet(env);
    if (env->rank == 0) {
        CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &(struct rlimit){low, limit_before.rlim_max}), 0);
        nccl->way = FAKE_FAILS_AT_ONCE;
        nccl->result = ncclInvalidUsage;
        nccl->rank = 1;
        atomic_store(&nccl->skip, 0);
        nccl->call = env->plan->argument == 0 ? FAKE_INIT : FAKE_NO_CALL;
    }
    env_meet(env);
    expect_agreed(env, meet_at(env, ptr, 20000, &handle),
                  env->plan->argument == 0 ? SYMMEM_BACKEND : SYMMEM_OK);
    CHECK(env, limit_now() == low);
    env_meet(env);
    if (env->rank == 0) {
        nccl->call = FAKE_NO_CALL;
        give_back();
    }
    env_meet(env);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

static void meet_after(rank_env *env, int count, const char *point) {
    env->meet_count = count;
    atomic_store(&env->meet_point, point);
}

/* Two pairs of ranks, in this order: the first has its id, and so NCCL has raised the limit; the
 * second begins; the first is through; the second gets its id. */
static void body_limit_of_two(rank_env *env) {
    static const int32_t members[2][2] = {{0, 1}, {2, 3}};
    const rlim_t low = limit_before.rlim_max / 2;
    const int second = env->rank / 2;
    symmem_group *pair = NULL;
    symmem_handle *handle = NULL;
    void *ptr = NULL;
    CHECK_OK(env, symmem_group_create(env->context, second ? "second" : "first", members[second], 2,
                                      NULL, &pair));
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK_OK(env, symmem_group_barrier(pair, 20000));
    if (env->rank == 0) {
        CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &(struct rlimit){low, limit_before.rlim_max}), 0);
        meet_after(env, 2, "nccl.comm.init*");
    } else if (env->rank == 2) {
        meet_after(env, 3, "nccl.comm.before");
    }
    env_meet(env);
    for (int i = 0; second && i < 5000 && limit_now() == low; i++)
        usleep(1000);
    CHECK_OK(env, symmem_rendezvous(env->context, ptr, pair, 20000, &handle));
    if (env->rank == 0)
        atomic_fetch_add(&env_met, 1);
    env_meet(env);
    CHECK(env, atomic_load(&env_met) == 3 && limit_now() == low);
    env_meet(env);
    if (env->rank == 0)
        give_back();
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    CHECK_OK(env, symmem_group_destroy(pair));
}

TEST("the limit stays") {
    use_library(PLAIN_NCCL);
    run_nccl(2, body_limit, 0);
    run_nccl(2, body_limit, 1);
    run_nccl(4, body_limit_of_two, 0);
}

int unit_setup(void) {
    (void)getrlimit(RLIMIT_NOFILE, &limit_before);
    return 0;
}
