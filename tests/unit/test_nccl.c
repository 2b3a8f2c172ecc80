/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL backend on a fake libnccl and a fake driver: versions, the environment, communicators
 * and windows that come up, fail or hang. What a GPU does is not tested here.
 */
#include "nccl_ranks.h"

#define DEADLINE_MS 1500u

/* --- versions and probing ----------------------------------------------------------- */

static void test_versions(void) {
    static const struct {
        int library, built;
        bool kernel, query;
        nccl_resolver wanted;
        const char *says;
    } cases[] = {
        {22605, 22809, true, false, NCCL_RESOLVE_NOT, "windows came with 2.27"},
        {22703, 22809, true, false, NCCL_RESOLVE_NOT, "pointers to peers came with 2.28"},
        {22803, 22809, true, false, NCCL_RESOLVE_BY_KERNEL, ""},
        {22809, 22803, true, false, NCCL_RESOLVE_BY_KERNEL, ""},
        {22809, 22809, false, false, NCCL_RESOLVE_NOT, "built without"},
        {22809, 22703, true, false, NCCL_RESOLVE_NOT, "built with 2.27.3"},
        {22809, 22902, true, false, NCCL_RESOLVE_NOT, "built with 2.29.2"},
        {22902, 22809, false, true, NCCL_RESOLVE_BY_HOST, ""},
        {23007, 22703, true, true, NCCL_RESOLVE_BY_HOST, ""},
        {22902, 22902, true, false, NCCL_RESOLVE_NOT, "no ncclGetPeerDevicePointer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char reason[200] = "";
        CU_ASSERT_EQUAL(nccl_choose_resolver(cases[i].library, cases[i].built, cases[i].kernel,
                                             cases[i].query, reason, sizeof reason),
                        cases[i].wanted);
        CU_ASSERT_PTR_NOT_NULL(strstr(reason, cases[i].says));
    }
}

static void expect_probe(symmem_status wanted, const char *says) {
    char reason[200] = "";
    CU_ASSERT_EQUAL(nccl_table()->probe(reason, sizeof reason), wanted);
    CU_ASSERT_PTR_NOT_NULL(strstr(reason, says));
}

static void test_probe(void) {
    unsetenv("NCCL_NVLS_ENABLE");
    fake_cuda.absent = true;
    expect_probe(SYMMEM_UNSUPPORTED, "no driver");
    fake_cuda.absent = false;
    fake_cuda.init = CUDA_ERROR_NO_DEVICE;
    expect_probe(SYMMEM_UNSUPPORTED, "no device");
    fake_cuda.init = CUDA_SUCCESS;
    setenv("SYMMEM_NCCL_LIBRARY", UNIT_FAKE_DIR "/none.so", 1);
    expect_probe(SYMMEM_UNSUPPORTED, "no libnccl");
    setenv("SYMMEM_NCCL_LIBRARY", OLD_NCCL, 1);
    expect_probe(SYMMEM_UNSUPPORTED, "libnccl 2.26.5 is too old");
    setenv("SYMMEM_NCCL_LIBRARY", PLAIN_NCCL, 1);
    expect_probe(SYMMEM_OK, "");
    setenv("SYMMEM_NCCL_LIBRARY", NEW_NCCL, 1);
    expect_probe(SYMMEM_OK, "");
    with_kernels = false;
    expect_probe(SYMMEM_UNSUPPORTED, "without kernels");
    with_kernels = true;
    CU_ASSERT_PTR_NULL(getenv("NCCL_NVLS_ENABLE")); /* probing leaves no trace */
}

/* The table is the CUDA backend's but for how memory is exchanged. */
static void test_table(void) {
    const symmem_backend *table = nccl_table();
    CU_ASSERT_STRING_EQUAL(table->name, "nccl");
    CU_ASSERT_PTR_NOT_NULL(strstr(table->description, "NCCL_NVLS_ENABLE=0"));
    CU_ASSERT_PTR_NULL(table->memory_export);
    CU_ASSERT_PTR_NULL(table->memory_import);
    CU_ASSERT_PTR_NULL(table->share_close);
    CU_ASSERT_PTR_NOT_NULL(table->memory_exchange);
    CU_ASSERT(table->collective == cuda_table.collective && table->copy == cuda_table.copy);
    CU_ASSERT_EQUAL(table->capabilities & (SYMMEM_CAP_OVERLAP | SYMMEM_CAP_MULTICAST), 0);
    CU_ASSERT_EQUAL(table->capabilities | SYMMEM_CAP_OVERLAP,
                    cuda_table.capabilities | SYMMEM_CAP_CROSS_HOST | SYMMEM_CAP_OVERLAP);
}

/* --- the environment: in a process for each case, for there is one try in each ------- */

static char last_text[256];

static symmem_status host_fail(const symmem_host *host, symmem_status status, int system_errno,
                               const char *operation, const char *format, ...) {
    va_list arguments;
    (void)host, (void)system_errno, (void)operation;
    va_start(arguments, format);
    vsnprintf(last_text, sizeof last_text, format, arguments);
    va_end(arguments);
    return status;
}

static void host_notice(const symmem_host *host, const char *text) {
    (void)host;
    snprintf(last_text, sizeof last_text, "%s", text);
}

static bool open_says(const char *value, int32_t allowed, bool loaded, symmem_status wanted,
                      const char *says, const char *value_after) {
    const symmem_host host = {.size = sizeof host, .fail = host_fail, .notice = host_notice};
    const symmem_backend_config config = {.size = sizeof config, .multicast_allowed = allowed};
    void *instance = NULL;
    setenv("SYMMEM_NCCL_LIBRARY", PLAIN_NCCL, 1);
    unsetenv("NCCL_NVLS_ENABLE");
    if (value != NULL)
        setenv("NCCL_NVLS_ENABLE", value, 1);
    if (loaded && dlopen(PLAIN_NCCL, RTLD_NOW) == NULL)
        return false;
    last_text[0] = '\0';
    symmem_status status = nccl_table()->open(&host, &config, &instance);
    const char *after = getenv("NCCL_NVLS_ENABLE");
    bool same = after == value_after ||
                (after != NULL && value_after != NULL && strcmp(after, value_after) == 0);
    if (status == SYMMEM_OK)
        nccl_table()->close(instance);
    return status == wanted && strstr(last_text, says) != NULL && same &&
           atomic_load(&fake_cuda.live) == 0;
}

static void test_environment(void) {
    static const struct {
        const char *value;
        int32_t allowed;
        bool loaded;
        symmem_status wanted;
        const char *says, *after;
    } cases[] = {
        {NULL, 0, false, SYMMEM_OK, "NCCL_NVLS_ENABLE=0 was set", "0"},
        {"0", 0, false, SYMMEM_OK, "", "0"},
        {"0", 0, true, SYMMEM_OK, "", "0"},
        {"1", 0, false, SYMMEM_UNSUPPORTED, "NCCL_NVLS_ENABLE=1", "1"},
        {NULL, 0, true, SYMMEM_UNSUPPORTED, "in use already", NULL},
        {NULL, 1, false, SYMMEM_OK, "", NULL},
        {"2", 1, true, SYMMEM_OK, "", "2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = -1;
        fflush(NULL);
        pid_t child = fork();
        CU_ASSERT_FATAL(child >= 0);
        if (child == 0)
            _exit(open_says(cases[i].value, cases[i].allowed, cases[i].loaded, cases[i].wanted,
                            cases[i].says, cases[i].after)
                      ? 0
                      : 1);
        CU_ASSERT_EQUAL(waitpid(child, &code, 0), child);
        CU_ASSERT_EQUAL(code, 0);
        if (code != 0)
            fprintf(stderr, "case %zu\n", i);
    }
}

/* --- what works --------------------------------------------------------------------- */

static void body_works(rank_env *env) {
    void *ptr = NULL, *other = NULL;
    symmem_handle *handle = env_handle(env, &ptr), *again = NULL;
    if (handle == NULL)
        return;
    check_data(env, ptr, handle, 100);
    int before = atomic_load(&nccl->registrations);
    CHECK(env, before == 2 * env->world); /* the data, and pad with signals */
    CHECK_OK(env, meet_at(env, (char *)ptr + 64, 5000, &again));
    CHECK_OK(env, symmem_group_barrier(env->group, 5000));
    CHECK(env, atomic_load(&nccl->registrations) == before);
    CHECK_OK(env, symmem_group_barrier(env->group, 5000));
    symmem_handle_release(again);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    /* The next registration takes the freed windows along. */
    for (int i = 0; i < 5; i++)
        check_fresh(env);
    CHECK_OK(env, symmem_group_barrier(env->group, 5000));
    CHECK(env, atomic_load(&nccl->windows) <= 2 * env->world);
    CHECK(env, atomic_load(&nccl->deregistrations) >= 4 * 2 * env->world);
    CHECK_OK(env, symmem_group_barrier(env->group, 5000));
    /* Another device takes another communicator. */
    CHECK_OK(env, symmem_alloc(env->context, BYTES, (env->rank + 1) % env->world, NULL, &other));
    CHECK_OK(env, meet_at(env, other, 5000, &handle));
    check_data(env, other, handle, 200);
    CHECK(env, atomic_load(&nccl->inits) == (env->world == 1 ? 1 : 2 * env->world));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, other));
    check_fresh(env);
}

static void test_works(void) {
    static const char *const libraries[] = {PLAIN_NCCL, NEW_NCCL};
    for (int i = 0; i < 2; i++) {
        use_library(libraries[i]);
        for (int32_t world = 1; world <= 4; world++) {
            atomic_store(&nccl->registrations, 0);
            atomic_store(&nccl->deregistrations, 0);
            atomic_store(&nccl->inits, 0);
            run_nccl(world, body_works, 0);
            CU_ASSERT_EQUAL(atomic_load(&nccl->windows), 0);
        }
    }
}

/* Handles outlive their group; so does the communicator, until the last is released. */
static void body_outlives(rank_env *env) {
    void *ptr = NULL;
    void *const *buffers = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    if (handle == NULL)
        return;
    check_data(env, ptr, handle, 300);
    env_meet(env);
    CHECK_OK(env, symmem_group_destroy(env->group));
    env_meet(env);
    CHECK(env, atomic_load(&nccl->comms) == env->world);
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    for (int32_t r = 0; r < env->world; r++)
        CHECK(env, *(int *)buffers[r] == 300 + r);
    env_meet(env);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    env_meet(env);
    CHECK(env, atomic_load(&nccl->comms) == 0 && atomic_load(&nccl->windows) == 0);
    env_meet(env);
}

static void test_outlives(void) {
    use_library(PLAIN_NCCL);
    run_nccl(3, body_outlives, 0);
}

/* --- load/store domains smaller than the group ------------------------------------- */

static void body_domains(rank_env *env) {
    void *ptr = NULL;
    void *const *buffers = NULL;
    symmem_handle_info info;
    symmem_handle *handle = env_handle(env, &ptr);
    if (handle == NULL)
        return;
    CHECK_OK(env, symmem_handle_get_info(handle, &info));
    CHECK(env, !info.world_within_direct_access);
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    for (int32_t r = 0; r < env->world; r++)
        CHECK(env, (buffers[r] != NULL) == (r / 2 == env->rank / 2));
    CHECK_STATUS(env, symmem_barrier(handle, 0, 1000, NULL), SYMMEM_UNREACHABLE);
    int32_t far = (env->rank + 2) % env->world;
    CHECK_STATUS(env, symmem_put_signal(handle, far, 0, 1000, NULL), SYMMEM_UNREACHABLE);
    CHECK_STATUS(env, symmem_wait_signal(handle, far, 0, 1000, NULL), SYMMEM_UNREACHABLE);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

static void test_domains(void) {
    static const char *const libraries[] = {PLAIN_NCCL, NEW_NCCL};
    for (int i = 0; i < 2; i++) {
        use_library(libraries[i]);
        nccl->domain = 2;
        run_nccl(4, body_domains, 0);
        nccl->domain = 0;
    }
}

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
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK_OK(env, symmem_group_barrier(env->group, 20000));
    env->fault_status = DIE;
    env->fault_point = env->rank == 1 ? points[env->plan->argument] : NULL;
    uint64_t begin_ns = cuda_now_ns();
    CHECK_STATUS(env, meet_at(env, ptr, 20000, &handle), SYMMEM_PEER_LOST);
    CHECK(env, cuda_now_ns() - begin_ns < 5000 * CUDA_NS_PER_MS);
    CHECK(env, atomic_load(&nccl->comms) == 0 && atomic_load(&nccl->threads) == 0);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

static void test_ends(void) {
    use_library(PLAIN_NCCL);
    for (int i = 0; i < 4; i++)
        run_processes(
            (plan){.world = 3, .body = body_ends, .argument = i, .backend = nccl_table()});
}

static const named_test tests[] = {
    {"versions", test_versions},
    {"probe", test_probe},
    {"table", test_table},
    {"environment", test_environment},
    {"rendezvous", test_works},
    {"handles outlive groups", test_outlives},
    {"load/store domains", test_domains},
    {"calls of NCCL fail", test_faults},
    {"steps fail", test_points},
    {"the driver fails", test_driver},
    {"other handles stay", test_others_stay},
    {"records differ", test_records},
    {"ranks end", test_ends},
};

int main(void) {
    return RUN_TESTS("nccl", tests);
}
