/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL backend with communicators that the user hands in, on a fake libnccl and a fake driver:
 * used, looked at, never ended.
 */
#include "nccl_ranks.h"
#include "driver/clock.h"

static struct library {
    __typeof__(ncclGetUniqueId) *GetUniqueId;
    __typeof__(ncclCommInitRankConfig) *CommInitRankConfig;
    __typeof__(ncclCommGetAsyncError) *CommGetAsyncError;
    __typeof__(ncclCommAbort) *CommAbort;
    __typeof__(ncclAllReduce) *AllReduce;
} user;

static void find(rank_env *env, void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    CHECK(env, symbol != NULL);
    memcpy(function, &symbol, sizeof symbol);
}

/* In the library in use. */
static void find_all(rank_env *env) {
    void *library = dlopen(getenv("SYMMEM_NCCL_LIBRARY"), RTLD_NOW);
    find(env, library, "ncclGetUniqueId", &user.GetUniqueId);
    find(env, library, "ncclCommInitRankConfig", &user.CommInitRankConfig);
    find(env, library, "ncclCommGetAsyncError", &user.CommGetAsyncError);
    find(env, library, "ncclCommAbort", &user.CommAbort);
    find(env, library, "ncclAllReduce", &user.AllReduce);
}

static void await_comm(rank_env *env, ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress)
        CHECK(env, user.CommGetAsyncError(comm, &state) == ncclSuccess);
    CHECK(env, state == ncclSuccess);
}

static ncclComm_t make_comm(rank_env *env, ncclUniqueId id, int world, int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = 0;
    CHECK(env, user.CommInitRankConfig(&comm, world, id, rank, &config) == ncclInProgress);
    await_comm(env, comm);
    return comm;
}

static ncclUniqueId shared_id;

/* Over all ranks that are threads. */
static ncclComm_t user_comm(rank_env *env) {
    if (env->rank == 0) {
        find_all(env);
        CHECK(env, user.GetUniqueId(&shared_id) == ncclSuccess);
    }
    env_meet(env);
    return make_comm(env, shared_id, env->world, env->rank);
}

static void user_end(rank_env *env, ncclComm_t comm) {
    env_meet(env);
    CHECK(env, atomic_load(&nccl->comms) == env->world); /* the users', which still exist */
    env_meet(env);
    CHECK(env, user.CommAbort(comm) == ncclSuccess);
    env_meet(env);
}

/* --- used --------------------------------------------------------------------------- */

static void body_used(rank_env *env) {
    void *ptr = NULL, *other = NULL;
    ncclComm_t comm = user_comm(env);
    int inits = atomic_load(&nccl->inits);
    CHECK_OK(env, symmem_group_set_communicator(env->group, comm));
    CHECK_OK(env, symmem_group_set_communicator(env->group, NULL));
    CHECK_OK(env, symmem_group_set_communicator(env->group, comm));
    symmem_handle *handle = env_handle(env, &ptr);
    check_data(env, ptr, handle, 100);
    CHECK(env, atomic_load(&nccl->inits) == inits);
    CHECK_STATUS(env, symmem_group_set_communicator(env->group, comm), SYMMEM_BUSY);
    CHECK_STATUS(env, symmem_group_set_communicator(env->group, NULL), SYMMEM_BUSY);
    env_meet(env);
    /* Memory of another device is not for it. */
    CHECK_OK(env, symmem_alloc(env->context, BYTES, (env->rank + 1) % env->world, NULL, &other));
    check_at(env, other);
    CHECK(env, atomic_load(&nccl->inits) == (env->world == 1 ? inits : inits + env->world));
    env_meet(env);
    CHECK_OK(env, symmem_free(env->context, other));
    env_meet(env);
    CHECK_OK(env, symmem_group_destroy(env->group));
    check_data_of_others(env, handle, 100);
    env_meet(env);
    env_drop(env, handle, ptr);
    env_meet(env);
    CHECK(env, atomic_load(&nccl->windows) == 0);
    user_end(env, comm);
}

TEST("used") {
    for (int32_t world = 1; world <= 4; world++)
        run_on_both(0, world, body_used, 0);
}

/* From 2.29 on a communicator of several load/store domains has no windows. It is the user's still.
 */
static void body_apart(rank_env *env) {
    void *ptr = NULL;
    void *const *buffers = NULL;
    ncclComm_t comm = user_comm(env);
    CHECK_OK(env, symmem_group_set_communicator(env->group, comm));
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    for (int32_t r = 0; r < env->world; r++)
        CHECK(env, (buffers[r] != NULL) == (r / 2 == env->rank / 2));
    env_meet(env);
    env_drop(env, handle, ptr);
    CHECK_OK(env, symmem_group_destroy(env->group));
    user_end(env, comm);
}

TEST("across domains") {
    run_on_both(2, 4, body_apart, 0);
}

/* --- refused ------------------------------------------------------------------------ */

static void body_refused(rank_env *env) {
    symmem_group *mirrored = NULL, *pair = NULL;
    const int32_t mirror[] = {2, 1, 0}, first[] = {0, 1};
    ncclComm_t comm = user_comm(env);
    CHECK_OK(env, symmem_group_create(env->context, "mirror", mirror, 3, NULL, &mirrored));
    CHECK_STATUS(env, symmem_group_set_communicator(mirrored, comm),
                 env->rank == 1 ? SYMMEM_OK : SYMMEM_INVALID_ARGUMENT);
    CHECK_OK(env, symmem_group_set_communicator(mirrored, NULL));
    if (env->rank < 2) {
        CHECK_OK(env, symmem_group_create(env->context, "pair", first, 2, NULL, &pair));
        CHECK_STATUS(env, symmem_group_set_communicator(pair, comm), SYMMEM_INVALID_ARGUMENT);
        CHECK(env, strstr(last_record().message, "of 3") != NULL);
    }
    user_end(env, comm);
}

/* Only some ranks set a communicator. No rank waits for NCCL, and all can agree to go without. */
static void body_some(rank_env *env) {
    symmem_handle *handle = NULL;
    ncclComm_t comm = user_comm(env);
    void *ptr = env_memory(env);
    if (env->rank == env->plan->argument)
        CHECK_OK(env, symmem_group_set_communicator(env->group, comm));
    expect_agreed(env, meet_at(env, ptr, 20000, &handle), SYMMEM_MISMATCH);
    CHECK(env, strstr(last_record().message, "handed in a communicator") != NULL);
    CHECK_OK(env, symmem_group_set_communicator(env->group, NULL));
    check_at(env, ptr);
    CHECK_OK(env, symmem_group_destroy(env->group));
    user_end(env, comm);
}

TEST("refused") {
    run_on(PLAIN_NCCL, 0, 3, body_refused, 0);
    run_on(PLAIN_NCCL, 0, 3, body_some, 0);
    run_on(PLAIN_NCCL, 0, 3, body_some, 2);
}

/* --- a registration that does not end ---------------------------------------------- */

/* The communicator is not ours to abort, so NCCL stays at work; the ranks go on without it. */
static void body_hangs(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    ncclUniqueId id;
    find_all(env);
    if (env->rank == 0)
        CHECK(env, user.GetUniqueId(&id) == ncclSuccess);
    ncclUniqueId ids[MAX_RANKS];
    CHECK_OK(env, symmem_group_all_gather(env->group, &id, sizeof id, ids, 20000));
    ncclComm_t comm = make_comm(env, ids[0], env->world, env->rank);
    CHECK_OK(env, symmem_group_set_communicator(env->group, comm));
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    int aborts = atomic_load(&nccl->aborts);
    fail_nccl(FAKE_REGISTER, FAKE_NEVER_ENDS, 1, ncclSuccess);
    const uint64_t begin_ns = cuda_now_ns();
    CHECK_STATUS(env, meet_at(env, ptr, 4000, &handle), SYMMEM_TIMEOUT);
    CHECK(env, cuda_now_ns() - begin_ns < 3950 * CUDA_NS_PER_MS); /* no rank waits for NCCL then */
    nccl->call = FAKE_NO_CALL;
    CHECK(env, atomic_load(&nccl->comms) == 1 && atomic_load(&nccl->aborts) == aborts);
    CHECK_STATUS(env, symmem_group_set_communicator(env->group, comm), SYMMEM_BUSY);
    CHECK_OK(env, symmem_group_set_communicator(env->group, NULL));
    CHECK_OK(env, meet_at(env, ptr, 20000, &handle));
    CHECK(env, handle != NULL && atomic_load(&nccl->comms) == 2);
    env_drop(env, handle, ptr);
    CHECK_OK(env, symmem_group_destroy(env->group));
    CHECK(env, atomic_load(&nccl->comms) == 1);
    /* NCCL may yet write the window, and look for its memory. */
    CHECK(env, nccl_state_of(env->context->instance)->allocations.root != NULL);
    CHECK(env, user.CommAbort(comm) == ncclSuccess);
}

TEST("hangs") {
    use_library(PLAIN_NCCL);
    run_processes((plan){.world = 3, .body = body_hangs, .backend = nccl_table()});
}

/* --- at work for the user ------------------------------------------------------------ */

static void users_call(rank_env *env, ncclComm_t comm, const symmem_stream *stream) {
    static int words[MAX_RANKS];
    int *word = &words[env->rank];
    cudaStream_t native = (cudaStream_t)native_of(stream);
    CHECK(env, user.AllReduce(word, word, 1, ncclInt32, ncclSum, comm, native) == ncclInProgress);
}

/* One rank's call waits for its peer when the group's last use there ends. */
NCCL_TEST("at work", .world = 2) {
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    ncclComm_t comm = user_comm(env);
    CHECK_OK(env, symmem_group_set_communicator(env->group, comm));
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    env_meet(env);
    if (env->rank == 0)
        users_call(env, comm, stream);
    env_meet(env);
    if (env->rank == 1) {
        usleep(300000);
        users_call(env, comm, stream);
        await_comm(env, comm);
    }
    env_drop(env, handle, ptr);
    CHECK_OK(env, symmem_group_destroy(env->group));
    CHECK(env, nccl_state_of(env->context->instance)->allocations.root == NULL);
    CHECK_OK(env, symmem_stream_destroy(stream));
    user_end(env, comm);
}
