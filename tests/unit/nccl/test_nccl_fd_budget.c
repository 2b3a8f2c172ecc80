/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors that NCCL would miss, and the limit of them, which it raises: see room.c. */

#include "nccl_ranks.h"
#include "fd_budget.h"

/* Ranks are threads here: the limit is all ranks'. */
static struct rlimit limit_before;

/* So that the process may open `count` more. */
static void leave(int32_t count) {
    struct rlimit low = {.rlim_max = limit_before.rlim_max};
    for (; count > 0; low.rlim_cur++)
        count -= fcntl((int)low.rlim_cur, F_GETFD) < 0;
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &low), 0);
}

static void give_back(int32_t unused) {
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &limit_before), 0);
}

/* So that NCCL raises the limit. */
static void halve(int32_t unused) {
    const struct rlimit half = {limit_before.rlim_max / 2, limit_before.rlim_max};
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &half), 0);
}

/* While the others wait. */
static void by_rank_0(rank_env *env, int32_t count, void (*do_it)(int32_t count)) {
    env_meet(env);
    if (env->rank == 0)
        do_it(count);
    env_meet(env);
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
    give_back(0);
    CU_ASSERT_EQUAL(limit_now(), plenty);
    CU_ASSERT(nccl_has_descriptors(8));
}

static void expect_lack(rank_env *env, void *ptr, int32_t left) {
    symmem_handle *handle = NULL;
    const int inits = atomic_load(&nccl->inits), windows = atomic_load(&nccl->registrations);
    by_rank_0(env, left, leave);
    const symmem_status status = meet_at(env, ptr, 20000, &handle);
    const symmem_error_record record = last_record();
    CHECK(env, handle == NULL && record.system_errno == EMFILE);
    CHECK(env, strstr(record.message, "for NCCL") != NULL);
    expect_agreed(env, status, SYMMEM_LIMIT);
    /* NCCL never heard of it. */
    CHECK(env, atomic_load(&nccl->inits) == inits);
    CHECK(env, atomic_load(&nccl->registrations) == windows);
    by_rank_0(env, 0, give_back);
}

/* Before a communicator, and before a registration with one that is there. */
NCCL_TEST("too few", .world = 3) {
    void *first = env_memory(env), *second = env_memory(env);
    CHECK_OK(env, symmem_group_barrier(env->group, 20000)); /* the hosts have their sockets */
    expect_lack(env, first, nccl_comm_descriptors(env->world) - 1);
    (void)env_kept_rendezvous(env, first);
    expect_lack(env, second, nccl_window_descriptors(env->world) - 1);
    check_at(env, second);
}

/* Whether a communicator comes up or not. */
static void body_limit(rank_env *env) {
    const bool fails = env->plan->argument == 0;
    symmem_handle *handle = NULL;
    void *ptr = env_memory(env);
    by_rank_0(env, 0, halve);
    fail_after(env, 0, fails ? FAKE_INIT : FAKE_NO_CALL, FAKE_FAILS_AT_ONCE, 1, ncclInvalidUsage);
    expect_agreed(env, meet_at(env, ptr, 20000, &handle), fails ? SYMMEM_BACKEND : SYMMEM_OK);
    CHECK(env, limit_now() == limit_before.rlim_max / 2);
    fail_none(env);
    by_rank_0(env, 0, give_back);
    symmem_handle_release(handle);
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
    void *ptr = env_memory(env);
    CHECK_OK(env, symmem_group_create(env->context, second ? "second" : "first", members[second], 2,
                                      NULL, &pair));
    CHECK_OK(env, symmem_group_barrier(pair, 20000));
    if (env->rank == 0)
        meet_after(env, 2, "nccl.comm.init*");
    else if (env->rank == 2)
        meet_after(env, 3, "nccl.comm.before");
    by_rank_0(env, 0, halve);
    AWAIT(second ? 5000 : 0, limit_now() != low);
    CHECK_OK(env, symmem_rendezvous(env->context, ptr, pair, 20000, &handle));
    if (env->rank == 0)
        atomic_fetch_add(&env_met, 1);
    env_meet(env);
    CHECK(env, atomic_load(&env_met) == 3 && limit_now() == low);
    by_rank_0(env, 0, give_back);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_group_destroy(pair));
}

TEST("the limit stays") {
    run_on(PLAIN_NCCL, 0, 2, body_limit, 0);
    run_on(PLAIN_NCCL, 0, 2, body_limit, 1);
    run_on(PLAIN_NCCL, 0, 4, body_limit_of_two, 0);
}

int unit_setup(void) {
    (void)getrlimit(RLIMIT_NOFILE, &limit_before);
    return 0;
}
