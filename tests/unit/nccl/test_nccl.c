/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL backend on a fake libnccl and a fake driver: versions, the environment, communicators
 * and windows as they should be. What a GPU does is not tested here.
 */
#include "nccl_ranks.h"

/* --- versions and probing ----------------------------------------------------------- */

TEST("versions") {
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

TEST("probe") {
    unsetenv("NCCL_NVLS_ENABLE");
    driver_is_absent = true;
    expect_probe(SYMMEM_UNSUPPORTED, "no driver");
    driver_is_absent = false;
    fake_fail_calls("cuInit", 0, 1, CUDA_ERROR_NO_DEVICE);
    expect_probe(SYMMEM_UNSUPPORTED, "no device");
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
    setenv("SYMMEM_NCCL_LIBRARY", UNIT_FAKE_DIR "/none.so", 1);
    expect_probe(SYMMEM_UNSUPPORTED, "no libnccl");
    setenv("SYMMEM_NCCL_LIBRARY", OLD_NCCL, 1);
    expect_probe(SYMMEM_UNSUPPORTED, "libnccl 2.26.5 is too old");
    setenv("SYMMEM_NCCL_LIBRARY", "libm.so.6", 1);
    expect_probe(SYMMEM_UNSUPPORTED, "does not tell its version");
    setenv("SYMMEM_NCCL_LIBRARY", NCCL_WITHOUT_RECV, 1);
    expect_probe(SYMMEM_UNSUPPORTED, "libnccl has no ncclRecv");
    setenv("SYMMEM_NCCL_LIBRARY", PLAIN_NCCL, 1);
    expect_probe(SYMMEM_OK, "libnccl 2.28.9, CUDA driver 13.0");
    setenv("SYMMEM_NCCL_LIBRARY", NEW_NCCL, 1);
    expect_probe(SYMMEM_OK, "libnccl 2.29.7, CUDA driver 13.0");
    with_kernels = false;
    expect_probe(SYMMEM_UNSUPPORTED, "without kernels");
    with_kernels = true;
    CU_ASSERT_PTR_NULL(getenv("NCCL_NVLS_ENABLE")); /* probing leaves no trace */
}

/* The table is the CUDA backend's but for how memory is exchanged. */
TEST("table") {
    const symmem_backend *table = nccl_table();
    CU_ASSERT_STRING_EQUAL(table->name, "nccl");
    CU_ASSERT_PTR_NOT_NULL(strstr(table->description, "NCCL_NVLS_ENABLE=0"));
    CU_ASSERT_PTR_NULL(table->memory_export);
    CU_ASSERT_PTR_NULL(table->memory_import);
    CU_ASSERT_PTR_NULL(table->share_close);
    CU_ASSERT_PTR_NOT_NULL(table->memory_exchange);
    CU_ASSERT(table->collective == cuda_table.collective && table->copy == cuda_table.copy);
    CU_ASSERT_EQUAL(table->capabilities & (SYMMEM_CAP_OVERLAP | SYMMEM_CAP_MULTICAST), 0);
    CU_ASSERT_NOT_EQUAL(table->capabilities & SYMMEM_CAP_CROSS_HOST, 0);
    CU_ASSERT_NOT_EQUAL(table->capabilities & SYMMEM_CAP_COLLECTIVES_APART, 0);
    const uint64_t not_of_it =
        SYMMEM_CAP_OVERLAP | SYMMEM_CAP_MULTICAST | SYMMEM_CAP_COLLECTIVES_APART;
    CU_ASSERT_EQUAL(table->capabilities | not_of_it, cuda_table.capabilities | not_of_it);
}

/* Ranks may share a device if NCCL can, and is asked to. */
TEST("ranks that share a device") {
    static const struct {
        const char *library, *asked;
        bool wanted;
    } cases[] = {
        {SHARING_NCCL, NULL, false},
        {SHARING_NCCL, "0", false},
        {SHARING_NCCL, "", false},
        {SHARING_NCCL, "no", false},
        {SHARING_NCCL, "1", true},
        {SHARING_NCCL, "0x2", true},
        {NEW_NCCL, "1", false},
        {PLAIN_NCCL, "1", false},
        {UNIT_FAKE_DIR "/none.so", "1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv("SYMMEM_NCCL_LIBRARY", cases[i].library, 1);
        unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
        if (cases[i].asked != NULL)
            setenv("NCCL_MULTI_RANK_GPU_ENABLE", cases[i].asked, 1);
        CU_ASSERT_EQUAL(nccl_allows_sharing(), cases[i].wanted);
    }
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
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

static bool open_says(const char *library, const char *value, int32_t allowed, bool loaded,
                      symmem_status wanted, const char *says, const char *value_after) {
    const symmem_host host = {.size = sizeof host, .fail = host_fail, .notice = host_notice};
    const symmem_backend_config config = {.size = sizeof config, .multicast_allowed = allowed};
    void *instance = NULL;
    use_driver();
    setenv("SYMMEM_NCCL_LIBRARY", library, 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    unsetenv("NCCL_NVLS_ENABLE");
    if (value != NULL)
        setenv("NCCL_NVLS_ENABLE", value, 1);
    if (loaded && dlopen(library, RTLD_NOW) == NULL)
        return false;
    last_text[0] = '\0';
    symmem_status status = nccl_table()->open(&host, &config, &instance);
    const char *after = getenv("NCCL_NVLS_ENABLE");
    bool same = after == value_after ||
                (after != NULL && value_after != NULL && strcmp(after, value_after) == 0);
    if (status == SYMMEM_OK)
        nccl_table()->close(instance);
    return status == wanted && strstr(last_text, says) != NULL && same && driver_is_as_before();
}

TEST("environment") {
    static const struct {
        const char *value;
        int32_t allowed;
        bool loaded;
        symmem_status wanted;
        const char *says, *after;
        const char *library;
    } cases[] = {
        {NULL, 0, false, SYMMEM_OK, "NCCL_NVLS_ENABLE=0 was set", "0", PLAIN_NCCL},
        {"0", 0, false, SYMMEM_OK, "", "0", PLAIN_NCCL},
        {"0", 0, true, SYMMEM_OK, "", "0", PLAIN_NCCL},
        {"1", 0, false, SYMMEM_UNSUPPORTED, "NCCL_NVLS_ENABLE=1", "1", PLAIN_NCCL},
        {NULL, 0, true, SYMMEM_UNSUPPORTED, "in use already", NULL, PLAIN_NCCL},
        {NULL, 1, false, SYMMEM_OK, "", NULL, PLAIN_NCCL},
        {"2", 1, true, SYMMEM_OK, "", "2", PLAIN_NCCL},
        {NULL, 1, false, SYMMEM_OK, "NCCL_NVLS_ENABLE=0 was set", "0", SHARING_NCCL},
        {"2", 1, false, SYMMEM_UNSUPPORTED, "ranks may share devices, but NCCL_NVLS_ENABLE=2", "2",
         SHARING_NCCL},
        {NULL, 1, true, SYMMEM_UNSUPPORTED, "ranks may share devices, and libnccl is in use", NULL,
         SHARING_NCCL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = -1;
        fflush(NULL);
        pid_t child = fork();
        CU_ASSERT_FATAL(child >= 0);
        if (child == 0)
            _exit(open_says(cases[i].library, cases[i].value, cases[i].allowed, cases[i].loaded,
                            cases[i].wanted, cases[i].says, cases[i].after)
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
    CHECK(env, atomic_load(&nccl->wide) == 0); /* none is for collectives of NCCL's */
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, other));
    check_fresh(env);
}

TEST("rendezvous") {
    static const char *const libraries[] = {PLAIN_NCCL, NEW_NCCL};
    for (int i = 0; i < 2; i++) {
        use_library(libraries[i]);
        for (int32_t world = 1; world <= 4; world++) {
            atomic_store(&nccl->registrations, 0);
            atomic_store(&nccl->deregistrations, 0);
            atomic_store(&nccl->inits, 0);
            atomic_store(&nccl->wide, 0);
            run_nccl(world, body_works, 0);
            CU_ASSERT_EQUAL(atomic_load(&nccl->windows), 0);
            CU_ASSERT_EQUAL(atomic_load(&nccl->takers), 0);
        }
    }
}

/* NCCL registers allocations of the driver's: none is a part of one, small as it may be. */
static void body_whole(rank_env *env) {
    void *ptr = NULL;
    symmem_memory small = {0};
    symmem_handle *handle = env_handle(env, &ptr); /* brings the instance up */
    cuda_instance *instance = env->context->instance;
    CHECK_OK(env, nccl_table()->memory_alloc(instance, 0, 64, &small));
    const nccl_allocation *allocation = small.priv;
    CHECK(env, cuda_memory_mapped_bytes(&allocation->memory) == (size_t)2
                                                                    << 20); /* the driver's least */
    nccl_table()->memory_release(instance, &small);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("memory is whole") {
    use_library(PLAIN_NCCL);
    run_nccl(1, body_whole, 0);
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

TEST("handles outlive groups") {
    use_library(PLAIN_NCCL);
    run_nccl(3, body_outlives, 0);
}

/* --- what outlives an instance ------------------------------------------------------- */

static void body_fresh(rank_env *env) {
    check_fresh(env);
}

/* Where the driver refuses fabric handles memory is made without them, and it is asked but once. */
TEST("fabric handles are refused") {
    static const char *const refusals[] = {"create", "granularity"};
    use_library(PLAIN_NCCL);
    for (int i = 0; i < 2; i++) {
        const int before = fake_fabric_refusals();
        setenv("FAKE_CUDA_REFUSAL", refusals[i], 1);
        run_nccl(2, body_fresh, 0);
        CU_ASSERT_EQUAL(fake_fabric_refusals() - before, 2); /* a rank, a device */
    }
    unsetenv("FAKE_CUDA_REFUSAL");
}

/* Where the driver refuses them and has no room for memory without, that is asked for once more as
 * before. */
static void body_fabric_no_room(rank_env *env) {
    void *ptr = NULL;
    const int before = fake_fabric_refusals();
    fake_fail_calls("cuMemCreate", 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK(env, fake_calls_failed() == 1);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
    CHECK(env, fake_fabric_refusals() - before == 2);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("no room with or without them") {
    use_library(PLAIN_NCCL);
    run_nccl(1, body_fabric_no_room, 0);
}

/* A capture that the driver begins and then says nothing of is ended, and leaves no graph. */
static void body_capture(rank_env *env) {
    symmem_stream *stream = NULL;
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    const int before = fake_live();
    /* the first one asks whether there is one already */
    fake_fail_calls("cuStreamGetCaptureInfo", 1, 1, CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(env, symmem_stream_begin_capture(stream), SYMMEM_BACKEND);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
    CHECK(env, fake_live() == before);
    CHECK_OK(env, symmem_stream_destroy(stream));
}

TEST("a capture fails") {
    use_library(PLAIN_NCCL);
    run_nccl(1, body_capture, 0);
}

/* The kernels of both backends, on each of two devices, by the ranks' instances of one run. */
static int loads_of_a_run(void) {
    const int before = fake_calls("cuModuleLoadData");
    run_threads((plan){.world = 2, .body = body_fresh, .backend = nccl_table()});
    return fake_calls("cuModuleLoadData") - before;
}

/* Modules stay for as long as their contexts do, if those can be told apart. */
static bool modules_stay(void) {
    use_library(PLAIN_NCCL);
    unsetenv("FAKE_CUDA_NO_ID");
    if (loads_of_a_run() != 4 || loads_of_a_run() != 0)
        return false;
    fake_reset_context(0);
    fake_reset_context(1);
    fake_use_devices();
    if (loads_of_a_run() != 4 || loads_of_a_run() != 0)
        return false;
    setenv("FAKE_CUDA_NO_ID", "1", 1);
    return loads_of_a_run() == 4 && loads_of_a_run() == 4;
}

/* In a process of its own, for they stay. */
TEST("modules outlive instances") {
    int code = -1;
    fflush(NULL);
    pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0)
        _exit(modules_stay() ? 0 : 1);
    CU_ASSERT_EQUAL(waitpid(child, &code, 0), child);
    CU_ASSERT_EQUAL(code, 0);
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
    *(int *)ptr = 500 + env->rank;
    CHECK_OK(env, symmem_group_barrier(env->group, 20000));
    CHECK(env, buffers[env->rank] == ptr);
    CHECK(env, *(int *)buffers[env->rank ^ 1] == 500 + (env->rank ^ 1));
    CHECK_OK(env, symmem_group_barrier(env->group, 20000));
    CHECK_STATUS(env, symmem_barrier(handle, 0, 1000, NULL), SYMMEM_UNREACHABLE);
    int32_t far = (env->rank + 2) % env->world;
    CHECK_STATUS(env, symmem_put_signal(handle, far, 0, 1000, NULL), SYMMEM_UNREACHABLE);
    CHECK_STATUS(env, symmem_wait_signal(handle, far, 0, 1000, NULL), SYMMEM_UNREACHABLE);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    CHECK_OK(env, symmem_group_barrier(env->group, 20000));
    const int inits = atomic_load(&nccl->inits);
    env_meet(env);
    /* Another device takes another communicator, of the domain that is known. */
    CHECK_OK(env, symmem_alloc(env->context, BYTES, (env->rank + 1) % env->world, NULL, &ptr));
    CHECK_OK(env, meet_at(env, ptr, 5000, &handle));
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    CHECK(env, buffers[env->rank] == ptr && buffers[env->rank ^ 1] != NULL);
    env_meet(env);
    CHECK(env, atomic_load(&nccl->inits) == inits + env->world);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("load/store domains") {
    static const char *const libraries[] = {PLAIN_NCCL, NEW_NCCL};
    for (int i = 0; i < 2; i++) {
        use_library(libraries[i]);
        nccl->domain = 2;
        run_nccl(4, body_domains, 0);
        nccl->domain = 0;
    }
}

/* Of communicators for domains one does not come up: no rank has pointers, and the next try works.
 */
static void body_domain_fails(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    env_meet(env);
    if (env->rank == 0) {
        nccl->way = FAKE_FAILS_AT_ONCE;
        nccl->result = ncclInvalidUsage;
        nccl->rank = env->plan->argument == 0 ? 0 : 1; /* its number in a domain */
        atomic_store(&nccl->skip, 1);                  /* the first one is of all ranks */
        nccl->call = env->plan->argument == 0 ? FAKE_UNIQUE_ID : FAKE_INIT;
    }
    env_meet(env);
    expect_agreed(env, meet_at(env, ptr, 10000, &handle), SYMMEM_BACKEND);
    if (env->rank == 0)
        nccl->call = FAKE_NO_CALL;
    env_meet(env);
    CHECK_OK(env, meet_at(env, ptr, 20000, &handle));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("a domain's communicator fails") {
    use_library(NEW_NCCL);
    nccl->domain = 2;
    run_nccl(4, body_domain_fails, 0);
    run_nccl(4, body_domain_fails, 1);
    nccl->domain = 0;
}

/* Rank 0 hears that its domain is none in a group of two, or, if argument is 1, another one than
 * its peer hears of: no pointer is looked up, on no rank. */
static void body_nonsense(rank_env *env) {
    const bool differs = env->plan->argument == 1;
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    expect_agreed(env, meet_at(env, ptr, 5000, &handle),
                  differs ? SYMMEM_MISMATCH : SYMMEM_BACKEND);
    if (env->rank == 0 || differs)
        CHECK(env, strstr(last_record().message,
                          differs ? "NCCL_LSA_TEAM_SIZE" : "makes no sense") != NULL);
    env_meet(env);
    if (env->rank == 0)
        nccl->nonsense = NULL;
    env_meet(env);
    check_fresh(env);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("domains that make no sense") {
    static const int teams[][3] = {{0, 0, 1}, {-1, 0, 1}, {2, 2, 1}, {2, -1, 1},
                                   {2, 1, 1}, {3, 0, 1},  {2, 0, 2}, {2, 0, 0}};
    static const char *const libraries[] = {PLAIN_NCCL, NEW_NCCL};
    for (int library = 0; library < 2; library++) {
        use_library(libraries[library]);
        for (size_t i = 0; i < sizeof teams / sizeof teams[0]; i++) {
            nccl->nonsense = teams[i];
            run_nccl(2, body_nonsense, 0);
        }
    }
    static const int alone[] = {1, 0, 1};
    nccl->nonsense = alone;
    run_nccl(2, body_nonsense, 1);
}
