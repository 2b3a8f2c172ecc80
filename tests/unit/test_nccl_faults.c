/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL backend on a fake libnccl and a fake driver: what fails or hangs in NCCL, in the driver
 * or on another rank, and what NCCL must never see.
 */
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "nccl_ranks.h"

#define DEADLINE_MS 1500u

/* --- what fails --------------------------------------------------------------------- */

typedef struct fault {
    fake_nccl_call call;
    fake_nccl_way way;
    int rank, skip;
    ncclResult_t result;
    symmem_status wanted;
} fault;

/* With rank 0 the failure itself is the lowest; with another rank 0 waits in vain. */
static const fault faults[] = {
    {FAKE_UNIQUE_ID, FAKE_FAILS_AT_ONCE, 0, 0, ncclSystemError, SYMMEM_BACKEND},
    {FAKE_INIT, FAKE_FAILS_AT_ONCE, 0, 0, ncclInvalidUsage, SYMMEM_BACKEND},
    {FAKE_INIT, FAKE_FAILS_AT_ONCE, 2, 0, ncclInvalidUsage, SYMMEM_TIMEOUT},
    {FAKE_INIT, FAKE_FAILS_LATER, 0, 0, ncclRemoteError, SYMMEM_PEER_LOST},
    {FAKE_INIT, FAKE_FAILS_LATER, 0, 0, (ncclResult_t)77, SYMMEM_BACKEND},
    {FAKE_INIT, FAKE_FAILS_LATER, 1, 0, ncclSystemError, SYMMEM_TIMEOUT},
    {FAKE_INIT, FAKE_NEVER_ENDS, 1, 0, ncclSuccess, SYMMEM_TIMEOUT},
    {FAKE_REGISTER, FAKE_FAILS_AT_ONCE, 0, 0, ncclInvalidArgument, SYMMEM_BACKEND},
    {FAKE_REGISTER, FAKE_FAILS_AT_ONCE, 1, 1, ncclInvalidArgument, SYMMEM_TIMEOUT},
    {FAKE_REGISTER, FAKE_FAILS_LATER, 0, 1, ncclUnhandledCudaError, SYMMEM_BACKEND},
    {FAKE_REGISTER, FAKE_FAILS_LATER, 2, 0, ncclUnhandledCudaError, SYMMEM_TIMEOUT},
    {FAKE_REGISTER, FAKE_NEVER_ENDS, 2, 0, ncclSuccess, SYMMEM_TIMEOUT},
    {FAKE_REGISTER, FAKE_NEVER_ENDS, 0, 1, ncclSuccess, SYMMEM_TIMEOUT},
    {FAKE_REGISTER, FAKE_NO_WINDOW, 1, 0, ncclSuccess, SYMMEM_UNSUPPORTED},
    {FAKE_REGISTER, FAKE_HOST_WINDOW, 1, 1, ncclSuccess, SYMMEM_UNSUPPORTED},
};

static void arm(const fault *wanted) {
    nccl->way = wanted->way;
    nccl->rank = wanted->rank;
    nccl->result = wanted->result;
    atomic_store(&nccl->skip, wanted->skip);
    nccl->call = wanted->call;
}

static void body_faults(rank_env *env) {
    const fault *wanted = &faults[env->plan->argument];
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    env_meet(env);
    if (env->rank == 0)
        arm(wanted);
    env_meet(env);
    uint64_t begin_ns = cuda_now_ns();
    symmem_status status = meet_at(env, ptr, DEADLINE_MS, &handle);
    CHECK(env, cuda_now_ns() - begin_ns < (DEADLINE_MS + 1000) * CUDA_NS_PER_MS);
    CHECK(env, handle == NULL && last_record().failed_rank >= 0);
    expect_agreed(env, status, wanted->wanted);
    if (env->rank == 0)
        CHECK(env, atomic_load(&nccl->skip) < 0); /* it did go wrong */
    if (env->rank == 0)
        nccl->call = FAKE_NO_CALL;
    env_meet(env);
    CHECK(env, atomic_load(&nccl->comms) == 0 && atomic_load(&nccl->threads) == 0);
    env_meet(env);
    CHECK_OK(env, meet_at(env, ptr, 20000, &handle));
    if (handle != NULL)
        check_data(env, ptr, handle, 400);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

static void test_faults(void) {
    use_library(PLAIN_NCCL);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        run_nccl(3, body_faults, (int)i);
    use_library(NEW_NCCL);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        if (faults[i].call == FAKE_UNIQUE_ID || faults[i].way == FAKE_NO_WINDOW)
            run_nccl(3, body_faults, (int)i);
    CU_ASSERT_EQUAL(atomic_load(&nccl->takers), 0);
}

/* A rank's own failure at each step of the backend: the others learn of it, nobody waits for long.
 */
static void body_points(rank_env *env) {
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

static void test_points(void) {
    use_library(PLAIN_NCCL);
    run_nccl(3, body_points, 0);
}

/* The driver fails one rank on the way from a window to pointers. */
static void body_driver(rank_env *env) {
    static const char *const calls[] = {"ModuleLoadData", "ModuleGetFunction", "LaunchKernel"};
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    env_meet(env);
    if (env->rank == 0) {
        fake_cuda.result = CUDA_ERROR_UNKNOWN;
        atomic_store(&fake_cuda.skip, 1);
        fake_cuda.fails = calls[env->plan->argument];
    }
    env_meet(env);
    expect_agreed(env, meet_at(env, ptr, 20000, &handle), SYMMEM_BACKEND);
    if (env->rank == 0)
        fake_cuda.fails = NULL;
    env_meet(env);
    CHECK_OK(env, meet_at(env, ptr, 20000, &handle));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

static void test_driver(void) {
    use_library(PLAIN_NCCL);
    for (int i = 0; i < 3; i++)
        run_nccl(3, body_driver, i);
}

/* A failed registration gives its communicator up, but not under the hands of other handles. */
static void body_others_stay(rank_env *env) {
    static const fault hang = {FAKE_REGISTER, FAKE_NEVER_ENDS, 1, 0, ncclSuccess, SYMMEM_TIMEOUT};
    void *ptr = NULL, *second = NULL;
    void *const *buffers = NULL;
    symmem_handle *handle = env_handle(env, &ptr), *none = NULL;
    if (handle == NULL)
        return;
    check_data(env, ptr, handle, 500);
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &second));
    env_meet(env);
    if (env->rank == 0)
        arm(&hang);
    env_meet(env);
    expect_agreed(env, meet_at(env, second, DEADLINE_MS, &none), SYMMEM_TIMEOUT);
    if (env->rank == 0)
        nccl->call = FAKE_NO_CALL;
    env_meet(env);
    CHECK(env, atomic_load(&nccl->comms) == env->world);
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    for (int32_t r = 0; r < env->world; r++)
        CHECK(env, *(int *)buffers[r] == 500 + r);
    CHECK_OK(env, meet_at(env, second, 20000, &none));
    if (none != NULL)
        check_data(env, second, none, 600);
    symmem_handle_release(none);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    CHECK_OK(env, symmem_free(env->context, second));
}

static void test_others_stay(void) {
    use_library(PLAIN_NCCL);
    run_nccl(3, body_others_stay, 0);
}

/* --- records that differ ------------------------------------------------------------ */

typedef struct direct {
    rank_env *env;
    const symmem_backend *backend;
    void *instance, *group;
    symmem_exchange exchange;
} direct;

/* The backend's own entries under a real exchange, the core's checks left out. */
static bool direct_open(rank_env *env, direct *d) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr); /* brings the instance up */
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    *d = (direct){.env = env, .backend = nccl_table(), .instance = env->context->instance};
    sm_group_exchange(env->group, cuda_now_ns() + 20000 * CUDA_NS_PER_MS, &d->exchange);
    CHECK_OK(env, d->backend->group_open(d->instance, &d->exchange, env->rank, &d->group));
    return d->group != NULL;
}

static symmem_status direct_exchange(direct *d, symmem_memory *own, symmem_memory *peers) {
    memset(peers, 0, sizeof *peers * MAX_RANKS);
    return d->backend->memory_exchange(d->instance, d->group, own, &d->exchange, peers);
}

static void direct_release(direct *d, symmem_memory *peers) {
    for (int32_t r = 0; r < d->env->world; r++)
        d->backend->memory_release(d->instance, &peers[r]);
}

static void body_sizes(rank_env *env) {
    direct d;
    symmem_memory own = {0}, peers[MAX_RANKS];
    if (!direct_open(env, &d))
        return;
    size_t bytes = env->rank == 1 ? 2 * BYTES : BYTES;
    CHECK_OK(env, d.backend->memory_alloc(d.instance, env->rank, bytes, &own));
    env_meet(env);
    int before = atomic_load(&nccl->registrations);
    env_meet(env);
    expect_agreed(env, direct_exchange(&d, &own, peers), SYMMEM_MISMATCH);
    CHECK(env, strstr(last_record().message, "size") != NULL);
    CHECK(env, atomic_load(&nccl->registrations) == before); /* NCCL never saw it */
    /* The group is of no use until it was closed and opened. */
    expect_agreed(env, direct_exchange(&d, &own, peers), SYMMEM_PEER_LOST);
    d.backend->group_close(d.instance, d.group);
    d.backend->memory_release(d.instance, &own);
}

static void body_order(rank_env *env) {
    direct d;
    symmem_memory first = {0}, second = {0}, one[MAX_RANKS], two[MAX_RANKS], three[MAX_RANKS];
    if (!direct_open(env, &d))
        return;
    CHECK_OK(env, d.backend->memory_alloc(d.instance, env->rank, BYTES, &first));
    CHECK_OK(env, d.backend->memory_alloc(d.instance, env->rank, BYTES, &second));
    expect_agreed(env, direct_exchange(&d, &first, one), SYMMEM_OK);
    int registrations = atomic_load(&nccl->registrations), inits = atomic_load(&nccl->inits);
    env_meet(env);
    /* The same memory again: the same window, and no word to NCCL. */
    expect_agreed(env, direct_exchange(&d, &first, two), SYMMEM_OK);
    CHECK(env, one[0].priv == two[0].priv && one[0].ptr == two[0].ptr);
    CHECK(env, atomic_load(&nccl->registrations) == registrations);
    direct_release(&d, one);
    direct_release(&d, two);
    env_meet(env);
    /* Given up everywhere and wanted again before anybody swept. */
    expect_agreed(env, direct_exchange(&d, &first, one), SYMMEM_OK);
    CHECK(env, atomic_load(&nccl->registrations) == registrations);
    env_meet(env);
    /* One rank comes with memory that NCCL knows already, the others with new memory: NCCL would
     * hang, so another communicator takes it. */
    expect_agreed(env, direct_exchange(&d, env->rank == 0 ? &first : &second, three), SYMMEM_OK);
    CHECK(env, atomic_load(&nccl->inits) == inits + env->world);
    CHECK(env, one[0].priv != three[0].priv);
    direct_release(&d, one);
    direct_release(&d, three);
    d.backend->memory_release(d.instance, &first);
    d.backend->memory_release(d.instance, &second);
    d.backend->group_close(d.instance, d.group);
}

/* A window that one rank still uses stays registered on all. */
static void body_sweep(rank_env *env) {
    direct d;
    symmem_memory first = {0}, second = {0}, third = {0};
    symmem_memory one[MAX_RANKS], two[MAX_RANKS], three[MAX_RANKS];
    if (!direct_open(env, &d))
        return;
    CHECK_OK(env, d.backend->memory_alloc(d.instance, env->rank, BYTES, &first));
    CHECK_OK(env, d.backend->memory_alloc(d.instance, env->rank, BYTES, &second));
    CHECK_OK(env, d.backend->memory_alloc(d.instance, env->rank, BYTES, &third));
    expect_agreed(env, direct_exchange(&d, &first, one), SYMMEM_OK);
    if (env->rank != 0)
        direct_release(&d, one);
    env_meet(env);
    int before = atomic_load(&nccl->deregistrations);
    expect_agreed(env, direct_exchange(&d, &second, two), SYMMEM_OK);
    CHECK(env, atomic_load(&nccl->deregistrations) == before);
    if (env->rank == 0)
        direct_release(&d, one);
    env_meet(env);
    expect_agreed(env, direct_exchange(&d, &third, three), SYMMEM_OK);
    CHECK(env, atomic_load(&nccl->deregistrations) == before + env->world);
    env_meet(env);
    direct_release(&d, two);
    direct_release(&d, three);
    d.backend->memory_release(d.instance, &first);
    d.backend->memory_release(d.instance, &second);
    d.backend->memory_release(d.instance, &third);
    d.backend->group_close(d.instance, d.group);
}

/* A further communicator that one rank does not get: the others do not wait for it in NCCL. */
static void body_further(rank_env *env) {
    direct d;
    symmem_memory own = {0}, peers[MAX_RANKS];
    if (!direct_open(env, &d))
        return;
    int32_t device = (env->rank + 1) % env->world;
    CHECK_OK(env, d.backend->memory_alloc(d.instance, device, BYTES, &own));
    env->fault_status = SYMMEM_PERMISSION;
    env->fault_point = env->rank == 1 ? "nccl.comm.done" : NULL;
    env_meet(env);
    int before = atomic_load(&nccl->registrations);
    env_meet(env);
    expect_agreed(env, direct_exchange(&d, &own, peers), SYMMEM_PERMISSION);
    CHECK(env, atomic_load(&nccl->registrations) == before);
    d.backend->group_close(d.instance, d.group);
    d.backend->memory_release(d.instance, &own);
}

static void test_records(void) {
    use_library(PLAIN_NCCL);
    atomic_store(&nccl->windows, 0);
    run_nccl(3, body_sizes, 0);
    run_nccl(3, body_order, 0);
    run_nccl(3, body_sweep, 0);
    run_nccl(3, body_further, 0);
    CU_ASSERT_EQUAL(atomic_load(&nccl->windows), 0);
}

/* --- ranks that end ----------------------------------------------------------------- */

static void body_ends(rank_env *env) {
    static const char *const points[] = {"nccl.comm.before", "nccl.comm.init*",
                                         "nccl.window.before", "nccl.window.register*"};
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    symmem_error_record record;
    int inits = atomic_load(&nccl->inits);
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK_OK(env, symmem_group_barrier(env->group, 20000));
    env->fault_status = DIE;
    env->fault_point = env->rank == 1 ? points[env->plan->argument % 4] : NULL;
    if (env->rank != 1 && env->plan->argument >= 4) /* this process's library */
        arm(&(fault){.call = env->plan->argument % 4 == 1 ? FAKE_INIT : FAKE_REGISTER,
                     .way = env->plan->argument < 8 ? FAKE_FAILS_LATER : FAKE_FAILS_AT_ONCE,
                     .rank = env->rank,
                     .result = ncclInternalError});
    uint64_t begin_ns = cuda_now_ns();
    CHECK_STATUS(env, meet_at(env, ptr, 20000, &handle), SYMMEM_PEER_LOST);
    symmem_last_error(&record);
    CHECK(env, symmem_error_is_missing(&record, 1));
    CHECK(env, cuda_now_ns() - begin_ns < 5000 * CUDA_NS_PER_MS);
    CHECK(env, atomic_load(&nccl->comms) == 0 && atomic_load(&nccl->threads) == 0);
    CHECK_OK(env, symmem_free(env->context, ptr));
    if (env->rank != 0)
        return;
    CHECK(env, nccl->roots() == 0);
    symmem_context_free(env->context); /* no rank is needed for that */
    env->context = NULL;
    /* One whose ranks do not meet would stay: none is begun for the sake of another. */
    CHECK(env, atomic_load(&nccl->inits) <= inits + 1);
}

static void test_ends(void) {
    use_library(PLAIN_NCCL);
    for (int i = 0; i < 4; i++)
        run_processes((plan){
            .world = 3, .body = body_ends, .argument = i, .backend = nccl_table(), .killed = 1});
    /* NCCL knows of it first, as an error: inside the communicator, inside the registration, later
     * and at once. */
    for (int i = 5; i < 12; i += 2)
        run_processes((plan){
            .world = 3, .body = body_ends, .argument = i, .backend = nccl_table(), .killed = 1});
}

/* --- what waits for the ranks of an id ---------------------------------------------- */

static int listen_anywhere(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CU_ASSERT_FATAL(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CU_ASSERT_EQUAL_FATAL(listen(fd, 1), 0);
    return fd;
}

static bool listens(int fd) {
    int found = 0;
    socklen_t length = sizeof found;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &found, &length) == 0 && found != 0;
}

static ncclUniqueId new_id(void) {
    ncclResult_t (*get)(ncclUniqueId *) = NULL;
    ncclUniqueId id = {{0}};
    void *library = dlopen(PLAIN_NCCL, RTLD_NOW);
    void *found = dlsym(library, "ncclGetUniqueId");
    memcpy(&get, &found, sizeof get);
    CU_ASSERT_EQUAL_FATAL(get(&id), ncclSuccess);
    dlclose(library);
    return id;
}

/* Another one's socket, with the address that a root had. */
static int take_address_of(const ncclUniqueId *id, nccl_root *root, cuda_instance *instance) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    int taken = -1;
    for (int fd = 0; fd < 1024 && taken < 0; fd++) {
        socklen_t length = sizeof address;
        if (listens(fd) && getsockname(fd, (struct sockaddr *)&address, &length) == 0 &&
            memmem(id->internal, sizeof id->internal, &address, 8) != NULL)
            taken = fd;
    }
    CU_ASSERT_FATAL(taken >= 0);
    nccl_root_end(instance, root);
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    CU_ASSERT_EQUAL_FATAL(listen(fd, 1), 0);
    return fd;
}

/* To end one takes a descriptor, so where there is none it is noted. Nobody else's goes, whatever
 * address it has. */
static void test_roots(void) {
    nccl_state state = {.lock = PTHREAD_MUTEX_INITIALIZER};
    cuda_instance instance = {.extension = &state};
    struct rlimit limit, none;
    use_library(PLAIN_NCCL);
    int strangers = listen_anywhere();
    ncclUniqueId first_id = new_id(), second_id = new_id(), third_id = new_id();
    nccl_root *first = nccl_root_find(&first_id), *second = nccl_root_find(&second_id);
    nccl_root *third = nccl_root_find(&third_id), *again = nccl_root_find(&third_id);
    CU_ASSERT(first != NULL && second != NULL && third != NULL && again != NULL);
    CU_ASSERT_EQUAL(nccl->roots(), 3);
    nccl_root_end(&instance, second);
    CU_ASSERT_EQUAL(nccl->roots(), 2);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    nccl_root_end(&instance, first);
    nccl_roots_end(&instance, true);
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
    CU_ASSERT_EQUAL(nccl->roots(), 2);
    CU_ASSERT_PTR_NOT_NULL(state.roots);
    nccl_roots_end(&instance, true);
    CU_ASSERT_EQUAL(nccl->roots(), 1);
    CU_ASSERT_PTR_NULL(state.roots);
    int later = take_address_of(&third_id, third, &instance);
    CU_ASSERT_EQUAL(nccl->roots(), 0);
    nccl_root_end(&instance, again);
    nccl_root_end(&instance, NULL);
    CU_ASSERT(listens(strangers) && listens(later));
    close(strangers);
    close(later);
}

static const named_test tests[] = {
    {"calls of NCCL fail", test_faults},  {"steps fail", test_points},
    {"the driver fails", test_driver},    {"other handles stay", test_others_stay},
    {"records differ", test_records},     {"ranks end", test_ends},
    {"what waits for ranks", test_roots},
};

int main(void) {
    return RUN_TESTS("nccl_faults", tests);
}
