/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL backend on a fake libnccl and a fake driver: what fails or hangs in NCCL, in the driver
 * or on another rank.
 */

#include "nccl_ranks.h"
#include "driver/clock.h"

#define DEADLINE_MS 1500u
#define SLOW_MS 1600u /* less than an end is waited for otherwise */
#define END_MS 3000u

/* --- what fails --------------------------------------------------------------------- */

typedef struct fault {
    fake_nccl_call call;
    fake_nccl_way way;
    int rank, skip;
    ncclResult_t result;
    symmem_status wanted;
} fault;

/* A failure of one rank is the result of all ranks, though the others wait in NCCL. */
static const fault faults[] = {
    {FAKE_UNIQUE_ID, FAKE_FAILS_AT_ONCE, 0, 0, ncclSystemError, SYMMEM_BACKEND},
    {FAKE_INIT, FAKE_FAILS_AT_ONCE, 0, 0, ncclInvalidUsage, SYMMEM_BACKEND},
    {FAKE_INIT, FAKE_FAILS_AT_ONCE, 2, 0, ncclInvalidUsage, SYMMEM_BACKEND},
    {FAKE_INIT, FAKE_FAILS_LATER, 0, 0, ncclRemoteError, SYMMEM_PEER_LOST},
    {FAKE_INIT, FAKE_FAILS_LATER, 0, 0, (ncclResult_t)77, SYMMEM_BACKEND},
    {FAKE_INIT, FAKE_FAILS_LATER, 1, 0, ncclSystemError, SYMMEM_BACKEND},
    {FAKE_INIT, FAKE_NEVER_ENDS, 1, 0, ncclSuccess, SYMMEM_TIMEOUT},
    {FAKE_REGISTER, FAKE_FAILS_AT_ONCE, 0, 0, ncclInvalidArgument, SYMMEM_BACKEND},
    {FAKE_REGISTER, FAKE_FAILS_AT_ONCE, 1, 1, ncclInvalidArgument, SYMMEM_BACKEND},
    {FAKE_REGISTER, FAKE_FAILS_LATER, 0, 1, ncclUnhandledCudaError, SYMMEM_BACKEND},
    {FAKE_REGISTER, FAKE_FAILS_LATER, 2, 0, ncclUnhandledCudaError, SYMMEM_BACKEND},
    {FAKE_REGISTER, FAKE_NEVER_ENDS, 2, 0, ncclSuccess, SYMMEM_TIMEOUT},
    {FAKE_REGISTER, FAKE_NEVER_ENDS, 0, 1, ncclSuccess, SYMMEM_TIMEOUT},
    {FAKE_REGISTER, FAKE_NO_WINDOW, 1, 0, ncclSuccess, SYMMEM_UNSUPPORTED},
    {FAKE_REGISTER, FAKE_HOST_WINDOW, 1, 1, ncclSuccess, SYMMEM_UNSUPPORTED},
};

/* The end of a communicator takes time. No call waits for it beyond the call's limit. */
#define SLOW 256

static bool all_have_ended(int within_ms) {
    AWAIT((unsigned)within_ms, atomic_load(&nccl->comms) + atomic_load(&nccl->threads) == 0);
    return atomic_load(&nccl->comms) == 0 && atomic_load(&nccl->threads) == 0;
}

static void body_faults(rank_env *env) {
    const fault *wanted = &faults[env->plan->argument % SLOW];
    const bool slow = env->plan->argument >= SLOW;
    void *ptr = env_memory(env);
    symmem_handle *handle = NULL;
    hold_aborts(env, slow);
    fail_after(env, wanted->skip, wanted->call, wanted->way, wanted->rank, wanted->result);
    const bool hangs = wanted->way == FAKE_NEVER_ENDS;
    uint64_t begin_ns = cuda_now_ns();
    const uint32_t limit_ms = slow ? SLOW_MS : hangs ? DEADLINE_MS : 10000;
    symmem_status status = meet_at(env, ptr, limit_ms, &handle);
    const uint64_t most_ms = slow ? END_MS : hangs ? DEADLINE_MS + 3000 : 6000;
    CHECK(env, cuda_now_ns() - begin_ns < most_ms * CUDA_NS_PER_MS);
    CHECK(env, handle == NULL && last_record().failed_rank >= 0);
    CHECK(env,
          hangs || wanted->wanted == SYMMEM_PEER_LOST || last_record().failed_rank == wanted->rank);
    expect_agreed(env, status, wanted->wanted);
    if (env->rank == 0)
        CHECK(env, atomic_load(&nccl->skip) < 0); /* it did go wrong */
    fail_none(env);
    atomic_store(&nccl->held, 0);
    CHECK(env, all_have_ended(slow || hangs ? 5000 : 0)); /* at the limit no call waits for that */
    env_meet(env);
    check_at(env, ptr);
}

static bool is_last_of_kind(size_t i) {
    return i + 1 == sizeof faults / sizeof faults[0] || faults[i].call != faults[i + 1].call ||
           faults[i].way != faults[i + 1].way;
}

TEST("calls of NCCL fail") {
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        run_on(PLAIN_NCCL, 0, 3, body_faults, (int)i);
        if (is_last_of_kind(i))
            run_on(PLAIN_NCCL, 0, 3, body_faults, SLOW + (int)i);
        if (faults[i].call == FAKE_UNIQUE_ID || faults[i].way == FAKE_NO_WINDOW)
            run_on(NEW_NCCL, 0, 3, body_faults, (int)i);
    }
    CU_ASSERT_EQUAL(atomic_load(&nccl->takers), 0);
}

/* A rank fails at each step of the backend. The others learn of it, and no rank waits for long. */
NCCL_TEST("steps fail", .world = 3) {
    static const char *const points[] = {"nccl.comm.before", "nccl.comm.done", "nccl.window.before",
                                         "nccl.window.done", "nccl.resolve"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        void *ptr = NULL;
        symmem_handle *handle = NULL;
        CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
        env_meet(env);
        env->fault_status = SYMMEM_PERMISSION;
        env->fault_point = env->rank == 1 ? points[i] : NULL;
        uint64_t begin_ns = cuda_now_ns();
        symmem_status status = meet_at(env, ptr, 20000, &handle);
        CHECK(env, cuda_now_ns() - begin_ns < 5000 * CUDA_NS_PER_MS);
        CHECK(env, env->rank != 1 || env->fault_hits == (int)i + 1);
        expect_agreed(env, status, SYMMEM_PERMISSION);
        CHECK(env, last_record().failed_rank == 1);
        CHECK_OK(env, symmem_free(env->context, ptr));
        if (i >= 2) /* and with a communicator that is there and in use */
            continue;
        check_fresh(env);
        CHECK_OK(env, symmem_group_destroy(env->group));
        CHECK_OK(env, symmem_group_create(env->context, i == 0 ? "one" : "two", NULL, 0, NULL,
                                          &env->group));
    }
    check_fresh(env);
}

/* The driver fails one rank on the way from a window to pointers. */
NCCL_TEST("the driver fails", .world = 3, .runs = 3) {
    static const char *const calls[] = {"cuModuleLoadData", "cuModuleGetFunction",
                                        "cuLaunchKernel"};
    symmem_handle *handle = NULL;
    void *ptr = env_memory(env);
    env_meet(env);
    if (env->rank == 0)
        fake_fail_calls(calls[env->plan->argument], 1, 1, CUDA_ERROR_UNKNOWN);
    env_meet(env);
    expect_agreed(env, meet_at(env, ptr, 20000, &handle), SYMMEM_BACKEND);
    if (env->rank == 0)
        fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
    env_meet(env);
    (void)env_kept_rendezvous(env, ptr);
}

static _Thread_local nccl_state *loader;
static _Thread_local int loads, kept_waiting;

/* Notes whether the lock is free during a load, because the load may wait for a callback that takes
 * it. */
static void note_lock(void) {
    if (loader == NULL)
        return;
    loads++;
    if (pthread_mutex_trylock(&loader->lock) == 0)
        pthread_mutex_unlock(&loader->lock);
    else
        kept_waiting++;
}

int unit_setup(void) {
    fake_cuda_hooks.loading = note_lock;
    return 0;
}

/* The driver's callbacks take the lock at collectives' ends. */
NCCL_TEST("the driver loads a kernel", .world = 3) {
    void *ptr = env_memory(env);
    loads = kept_waiting = 0;
    loader = nccl_state_of(env->context->instance);
    symmem_handle *handle = env_kept_rendezvous(env, ptr);
    loader = NULL;
    CHECK(env, loads == 1 && kept_waiting == 0);
    check_data(env, ptr, handle, 800);
}

/* One rank's kernel that asks for the pointers waits behind other work on its stream. */
static _Thread_local bool gets_stuck;

static void launch_behind(const char *name, void **arguments, const void *stream) {
    if (gets_stuck && strcmp(name, "symmem_nccl_resolve") == 0)
        atomic_store(&held_stream, stream);
}

static void body_stuck(rank_env *env) {
    symmem_handle *handle = NULL;
    void *ptr = env_memory(env);
    env_meet(env);
    gets_stuck = env->rank == 1;
    const int aborts = atomic_load(&nccl->aborts);
    env_meet(env);
    uint64_t begin_ns = cuda_now_ns();
    symmem_status status = meet_at(env, ptr, DEADLINE_MS, &handle);
    gets_stuck = false;
    CHECK(env, cuda_now_ns() - begin_ns < (DEADLINE_MS + 2000) * CUDA_NS_PER_MS);
    CHECK(env, last_record().failed_rank == 1);
    CHECK(env, env->rank != 1 || strstr(last_record().message, "the kernel") != NULL);
    expect_agreed(env, status, SYMMEM_TIMEOUT);
    AWAIT(5000, atomic_load(&nccl->aborts) - aborts >= 2);
    cuda_sleep_ns(300 * CUDA_NS_PER_MS);
    CHECK(env, atomic_load(&nccl->aborts) - aborts == 2); /* the kernel would read what is gone */
    env_meet(env);
    atomic_store(&held_stream, NULL);
    env_meet(env);
    check_at(env, ptr);
}

TEST("the device does not get to a kernel") {
    use_library(PLAIN_NCCL);
    launching = launch_behind;
    run_threads((plan){.world = 3, .body = body_stuck, .backend = nccl_table()});
    CU_ASSERT_EQUAL(atomic_load(&nccl->comms), 0);
}

/* A failed registration gives its communicator up, but not under the hands of other handles. */
NCCL_TEST("other handles stay", .world = 3) {
    void *ptr = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr), *none = NULL;
    void *second = env_memory(env);
    check_data(env, ptr, handle, 500);
    fail_after(env, 0, FAKE_REGISTER, FAKE_NEVER_ENDS, 1, ncclSuccess);
    expect_agreed(env, meet_at(env, second, DEADLINE_MS, &none), SYMMEM_TIMEOUT);
    fail_none(env);
    CHECK(env, atomic_load(&nccl->comms) == env->world);
    check_data_of_others(env, handle, 500);
    check_at(env, second);
}

/* --- groups that end ---------------------------------------------------------------- */

typedef struct meeting {
    rank_env *env;
    void *ptr;
    symmem_status status;
    uint64_t ended_ns;
} meeting;

static void *meet_elsewhere(void *opaque) {
    meeting *m = opaque;
    symmem_handle *handle = NULL;
    m->status = meet_at(m->env, m->ptr, 4000, &handle);
    m->ended_ns = cuda_now_ns();
    atomic_store(&nccl->held, 0);
    return NULL;
}

static _Atomic uint64_t begins_ns[2]; /* of each rank */

/* Their ranks are in NCCL, and all give up what would never end, one a little later. A group's end
 * does not wait for an abort that takes long; with the context's the instance ends, which does. */
NCCL_TEST("groups end", .world = 2, .runs = 2) {
    const bool all_of_it = env->plan->argument != 0;
    meeting m = {.env = env};
    pthread_t thread;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &m.ptr));
    fail_after(env, 0, FAKE_INIT, FAKE_NEVER_ENDS, 1, ncclSuccess);
    hold_aborts(env, !all_of_it);
    const int inits = atomic_load(&nccl->inits);
    env_meet(env);
    CHECK(env, pthread_create(&thread, NULL, meet_elsewhere, &m) == 0);
    AWAIT(5000, atomic_load(&nccl->inits) >= inits + env->world);
    env_meet(env);
    if (env->rank == 1)
        usleep(60000);
    const uint64_t begin_ns = cuda_now_ns();
    atomic_store(&begins_ns[env->rank], begin_ns);
    CHECK_OK(env, all_of_it ? symmem_finalize(env->context) : symmem_group_destroy(env->group));
    CHECK(env, pthread_join(thread, NULL) == 0);
    CHECK(env, (int64_t)(m.ended_ns - begin_ns) < (int64_t)(1000 * CUDA_NS_PER_MS));
    env_meet(env);
    /* On a busy machine it may come so late that what it learns first is that the other gave up. */
    const bool is_late = begin_ns > atomic_load(&begins_ns[1 - env->rank]) + 100 * CUDA_NS_PER_MS;
    if (!is_late || m.status != SYMMEM_TIMEOUT)
        CHECK_STATUS(env, m.status, all_of_it ? SYMMEM_NOT_INITIALIZED : SYMMEM_STALE);
    if (env->rank == 0)
        nccl->call = FAKE_NO_CALL;
}

/* --- ranks that end ----------------------------------------------------------------- */

static void body_ends(rank_env *env) {
    static const char *const points[] = {"nccl.comm.before", "nccl.comm.init*",
                                         "nccl.window.before", "nccl.window.register*"};
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    int inits = atomic_load(&nccl->inits);
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK_OK(env, symmem_group_barrier(env->group, 20000));
    const bool nccl_first = env->plan->argument >= 4;
    env->fault_status = env->rank == 1 ? DIE : AWAIT_DEATH;
    env->fault_point = env->rank == 1 || nccl_first ? points[env->plan->argument % 4] : NULL;
    if (env->rank != 1 && nccl_first) /* this process's library */
        fail_nccl(env->plan->argument % 4 == 1 ? FAKE_INIT : FAKE_REGISTER,
                  env->plan->argument < 8 ? FAKE_FAILS_LATER : FAKE_FAILS_AT_ONCE, env->rank,
                  ncclInternalError);
    uint64_t begin_ns = cuda_now_ns();
    CHECK_STATUS(env, meet_at(env, ptr, 20000, &handle), SYMMEM_PEER_LOST);
    const symmem_error_record record = last_record();
    CHECK(env, symmem_error_is_missing(&record, 1));
    CHECK(env, cuda_now_ns() - begin_ns < 5000 * CUDA_NS_PER_MS);
    CHECK(env, atomic_load(&nccl->comms) == 0 && atomic_load(&nccl->threads) == 0);
    CHECK_OK(env, symmem_free(env->context, ptr));
    if (env->rank != 0)
        return;
    CHECK(env, roots_come_to(0));
    symmem_context_free(env->context); /* no rank is needed for that */
    env->context = NULL;
    /* A communicator that some rank never joins would stay, so the backend begins no second one. */
    CHECK(env, atomic_load(&nccl->inits) <= inits + 1);
}

TEST("ranks end") {
    plan p = {.world = 3, .body = body_ends, .backend = nccl_table(), .killed = 1};
    use_library(PLAIN_NCCL);
    for (; p.argument < 4; p.argument++)
        run_processes(p);
    /* NCCL knows of it first, as an error: inside the communicator, inside the registration, later
     * and at once. */
    env_dying =
        mmap(NULL, sizeof *env_dying, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(env_dying, MAP_FAILED);
    for (p.argument = 5; p.argument < 12; p.argument += 2) {
        atomic_store(env_dying, 0);
        run_processes(p);
    }
    munmap(env_dying, sizeof *env_dying);
    env_dying = NULL;
}
