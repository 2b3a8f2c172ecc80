/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL backend on a fake libnccl and a fake driver: versions, the environment, communicators
 * and windows as they should be. What a GPU does is not tested here.
 */
#include "nccl_ranks.h"
#include "unit_child.h"
#include "memory/memory.h"

/* --- versions and probing ----------------------------------------------------------- */

TEST("versions") {
    static const struct {
        int library, built;
        bool kernel, query;
        nccl_resolver wanted;
        const char *says;
    } cases[] = {
        {22605, 22809, true, false, NCCL_RESOLVE_UNSUPPORTED, "windows came with 2.27"},
        {22703, 22809, true, false, NCCL_RESOLVE_UNSUPPORTED, "pointers to peers came with 2.28"},
        {22803, 22809, true, false, NCCL_RESOLVE_BY_KERNEL, ""},
        {22809, 22803, true, false, NCCL_RESOLVE_BY_KERNEL, ""},
        {22809, 22809, false, false, NCCL_RESOLVE_UNSUPPORTED, "built without"},
        {22809, 22703, true, false, NCCL_RESOLVE_UNSUPPORTED, "built with 2.27.3"},
        {22809, 22902, true, false, NCCL_RESOLVE_UNSUPPORTED, "built with 2.29.2"},
        {22902, 22809, false, true, NCCL_RESOLVE_BY_HOST, ""},
        {23007, 22703, true, true, NCCL_RESOLVE_BY_HOST, ""},
        {22902, 22902, true, false, NCCL_RESOLVE_UNSUPPORTED, "no ncclGetPeerDevicePointer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char reason[200] = "";
        CU_ASSERT_EQUAL(nccl_choose_resolver(cases[i].library, cases[i].built, cases[i].kernel,
                                             cases[i].query, reason, sizeof reason),
                        cases[i].wanted);
        CU_ASSERT_PTR_NOT_NULL(strstr(reason, cases[i].says));
    }
}

static void expect_probe(const char *library, symmem_status wanted, const char *says) {
    char reason[200] = "";
    setenv("SYMMEM_NCCL_LIBRARY", library, 1);
    CU_ASSERT_EQUAL(nccl_table()->instance->probe(reason, sizeof reason), wanted);
    CU_ASSERT_PTR_NOT_NULL(strstr(reason, says));
}

TEST("probe") {
    unsetenv("NCCL_NVLS_ENABLE");
    driver_is_absent = true;
    expect_probe(PLAIN_NCCL, SYMMEM_UNSUPPORTED, "no driver");
    driver_is_absent = false;
    fake_fail_calls("cuInit", 0, 1, CUDA_ERROR_NO_DEVICE);
    expect_probe(PLAIN_NCCL, SYMMEM_UNSUPPORTED, "no device");
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
    expect_probe(UNIT_FAKE_DIR "/none.so", SYMMEM_UNSUPPORTED, "no libnccl");
    expect_probe(OLD_NCCL, SYMMEM_UNSUPPORTED, "libnccl 2.26.5 is too old");
    expect_probe("libm.so.6", SYMMEM_UNSUPPORTED, "does not tell its version");
    expect_probe(NCCL_WITHOUT_RECV, SYMMEM_UNSUPPORTED, "libnccl has no ncclRecv");
    expect_probe(PLAIN_NCCL, SYMMEM_OK, "libnccl 2.28.9, CUDA driver 13.0");
    expect_probe(NEW_NCCL, SYMMEM_OK, "libnccl 2.29.7, CUDA driver 13.0");
    with_kernels = false;
    expect_probe(NEW_NCCL, SYMMEM_UNSUPPORTED, "without kernels");
    with_kernels = true;
    CU_ASSERT_PTR_NULL(getenv("NCCL_NVLS_ENABLE")); /* probing leaves no trace */
}

/* The table is the CUDA backend's but for how memory is exchanged. */
TEST("table") {
    const symmem_backend *table = nccl_table();
    CU_ASSERT_STRING_EQUAL(table->name, "nccl");
    CU_ASSERT_PTR_NOT_NULL(strstr(table->description, "NCCL_NVLS_ENABLE=0"));
    CU_ASSERT_PTR_NULL(table->memory->share);
    CU_ASSERT_PTR_NULL(table->memory->map);
    CU_ASSERT_PTR_NULL(table->memory->unshare);
    CU_ASSERT_PTR_NOT_NULL(table->memory->exchange);
    CU_ASSERT(table->collective->run == cuda_table.collective->run &&
              table->copy->copy == cuda_table.copy->copy);
    CU_ASSERT_PTR_NOT_NULL(table->collective->run_apart);
    CU_ASSERT_PTR_NULL(table->multicast);
    CU_ASSERT_PTR_EQUAL(table->stream, cuda_table.stream);
    CU_ASSERT_EQUAL(table->flags & SYMMEM_CAP_OVERLAP, 0);
    CU_ASSERT_EQUAL(table->flags | SYMMEM_CAP_OVERLAP, cuda_table.flags | SYMMEM_CAP_OVERLAP);
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
    va_start(arguments, format);
    vsnprintf(last_text, sizeof last_text, format, arguments);
    va_end(arguments);
    return status;
}

static void host_notice(const symmem_host *host, const char *text) {
    snprintf(last_text, sizeof last_text, "%s", text);
}

static const struct environment {
    const char *library, *value;
    int32_t allowed;
    bool loaded;
    symmem_status wanted;
    const char *says, *after;
} environments[] = {
    {PLAIN_NCCL, NULL, 0, false, SYMMEM_OK, "NCCL_NVLS_ENABLE=0 was set", "0"},
    {PLAIN_NCCL, "0", 0, false, SYMMEM_OK, "", "0"},
    {PLAIN_NCCL, "0", 0, true, SYMMEM_OK, "", "0"},
    {PLAIN_NCCL, "1", 0, false, SYMMEM_UNSUPPORTED, "NCCL_NVLS_ENABLE=1", "1"},
    {PLAIN_NCCL, NULL, 0, true, SYMMEM_UNSUPPORTED, "in use already", ""},
    {PLAIN_NCCL, NULL, 1, false, SYMMEM_OK, "", ""},
    {PLAIN_NCCL, "2", 1, true, SYMMEM_OK, "", "2"},
    {SHARING_NCCL, NULL, 1, false, SYMMEM_OK, "NCCL_NVLS_ENABLE=0 was set", "0"},
    {SHARING_NCCL, "2", 1, false, SYMMEM_UNSUPPORTED,
     "ranks may share devices, but NCCL_NVLS_ENABLE=2", "2"},
    {SHARING_NCCL, NULL, 1, true, SYMMEM_UNSUPPORTED,
     "ranks may share devices, and libnccl is in use", ""},
};
static const struct environment *tried;

static void open_in_environment(void) {
    const symmem_host host = {.size = sizeof host, .fail = host_fail, .notice = host_notice};
    const symmem_backend_config config = {.size = sizeof config,
                                          .multicast_allowed = tried->allowed};
    void *instance = NULL;
    use_driver();
    setenv("SYMMEM_NCCL_LIBRARY", tried->library, 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    unsetenv("NCCL_NVLS_ENABLE");
    if (tried->value != NULL)
        setenv("NCCL_NVLS_ENABLE", tried->value, 1);
    if (tried->loaded && dlopen(tried->library, RTLD_NOW) == NULL)
        return;
    symmem_status status = nccl_table()->instance->open(&host, &config, &instance);
    const char *after = getenv("NCCL_NVLS_ENABLE");
    bool same = strcmp(after != NULL ? after : "", tried->after) == 0;
    if (status == SYMMEM_OK)
        nccl_table()->instance->close(instance);
    if (status == tried->wanted && strstr(last_text, tried->says) != NULL && same &&
        driver_is_as_before())
        _exit(CHOSEN);
    fprintf(stderr, "case %td: %d, %s\n", tried - environments, (int)status, last_text);
}

TEST("environment") {
    for (size_t i = 0; i < sizeof environments / sizeof environments[0]; i++) {
        tried = &environments[i];
        CU_ASSERT(has_chosen(end_in_child(open_in_environment)));
    }
}

/* --- what works --------------------------------------------------------------------- */

static void body_works(rank_env *env) {
    void *ptr = NULL, *other = NULL;
    symmem_handle *handle = env_handle(env, &ptr), *again = NULL;
    check_data(env, ptr, handle, 100);
    int before = atomic_load(&nccl->registrations);
    CHECK(env, before == 2 * env->world); /* the data, and pad with signals */
    CHECK_OK(env, meet_at(env, (char *)ptr + 64, 5000, &again));
    CHECK_OK(env, symmem_group_barrier(env->group, 5000));
    CHECK(env, atomic_load(&nccl->registrations) == before);
    CHECK_OK(env, symmem_group_barrier(env->group, 5000));
    symmem_handle_release(again);
    env_drop(env, handle, ptr);
    /* The next registration takes the freed windows along. */
    for (int i = 0; i < 5; i++)
        check_fresh(env);
    CHECK_OK(env, symmem_group_barrier(env->group, 5000));
    CHECK(env, atomic_load(&nccl->windows) <= 2 * env->world);
    CHECK(env, atomic_load(&nccl->deregistrations) >= 4 * 2 * env->world);
    CHECK_OK(env, symmem_group_barrier(env->group, 5000));
    /* Another device takes another communicator. */
    CHECK_OK(env, symmem_alloc(env->context, BYTES, (env->rank + 1) % env->world, NULL, &other));
    check_at(env, other);
    CHECK(env, atomic_load(&nccl->inits) == (env->world == 1 ? 1 : 2 * env->world));
    CHECK(env, atomic_load(&nccl->wide) == 0); /* none is for collectives of NCCL's */
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
NCCL_TEST("memory is whole", .world = 1) {
    symmem_memory small = {0};
    (void)env_kept_handle(env, NULL); /* brings the instance up */
    cuda_instance *instance = env->context->instance;
    CHECK_OK(env, nccl_table()->memory->alloc(instance, 0, 64, &small));
    const nccl_allocation *allocation = small.priv;
    const size_t least = (size_t)2 << 20; /* the driver's */
    CHECK(env, cuda_memory_mapped_bytes(&allocation->memory) == least);
    nccl_table()->memory->release(instance, &small);
}

/* Handles outlive their group; so does the communicator, until the last is released. */
NCCL_TEST("handles outlive groups", .world = 3) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    check_data(env, ptr, handle, 300);
    env_meet(env);
    CHECK_OK(env, symmem_group_destroy(env->group));
    env_meet(env);
    CHECK(env, atomic_load(&nccl->comms) == env->world);
    check_data_of_others(env, handle, 300);
    env_meet(env);
    env_drop(env, handle, ptr);
    env_meet(env);
    CHECK(env, atomic_load(&nccl->comms) == 0 && atomic_load(&nccl->windows) == 0);
}

/* --- what outlives an instance ------------------------------------------------------- */

/* If the driver refuses fabric handles, memory is made without them, and the driver is asked only
 * once. */
TEST("fabric handles are refused") {
    static const char *const refusals[] = {"create", "granularity"};
    for (int i = 0; i < 2; i++) {
        const int before = fake_fabric_refusals();
        setenv("FAKE_CUDA_REFUSAL", refusals[i], 1);
        run_on(PLAIN_NCCL, 0, 2, check_fresh, 0);
        CU_ASSERT_EQUAL(fake_fabric_refusals() - before, 2); /* a rank, a device */
    }
    unsetenv("FAKE_CUDA_REFUSAL");
}

/* If the driver refuses fabric handles and has no memory without them either, the next allocation
 * asks for them once more. */
NCCL_TEST("no room with or without them", .world = 1) {
    const int before = fake_fabric_refusals();
    fake_fail_calls("cuMemCreate", 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
    (void)env_memory(env);
    CHECK(env, fake_calls_failed() == 1);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
    CHECK(env, fake_fabric_refusals() - before == 2);
}

/* A capture that the driver begins and then says nothing of is ended, and leaves no graph. */
NCCL_TEST("a capture fails", .world = 1) {
    symmem_stream *stream = env_stream(env);
    const int before = fake_live();
    /* the first one asks whether there is one already */
    fake_fail_calls("cuStreamGetCaptureInfo", 1, 1, CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(env, symmem_stream_begin_capture(stream), SYMMEM_BACKEND);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
    CHECK(env, fake_live() == before);
}

/* The kernels of both backends, on each of two devices, by the ranks' instances of one run. */
static int loads_of_a_run(void) {
    const int before = fake_calls("cuModuleLoadData");
    run_threads((plan){.world = 2, .body = check_fresh, .backend = nccl_table()});
    return fake_calls("cuModuleLoadData") - before;
}

/* Modules stay for as long as their contexts do, if those can be told apart. */
static void keep_modules(void) {
    use_library(PLAIN_NCCL);
    unsetenv("FAKE_CUDA_NO_ID");
    if (loads_of_a_run() != 4 || loads_of_a_run() != 0)
        return;
    fake_reset_context(0);
    fake_reset_context(1);
    fake_use_devices();
    if (loads_of_a_run() != 4 || loads_of_a_run() != 0)
        return;
    setenv("FAKE_CUDA_NO_ID", "1", 1);
    if (loads_of_a_run() == 4 && loads_of_a_run() == 4)
        _exit(CHOSEN);
}

/* In a process of its own, for they stay. */
TEST("modules outlive instances") {
    CU_ASSERT(has_chosen(end_in_child(keep_modules)));
}

/* --- load/store domains smaller than the group ------------------------------------- */

static void body_domains(rank_env *env) {
    void *ptr = NULL;
    void *const *buffers = NULL;
    symmem_handle_info info;
    symmem_handle *handle = env_handle(env, &ptr);
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
    env_drop(env, handle, ptr);
    CHECK_OK(env, symmem_group_barrier(env->group, 20000));
    const int inits = atomic_load(&nccl->inits);
    env_meet(env);
    /* Another device takes another communicator, of the domain that is known. */
    CHECK_OK(env, symmem_alloc(env->context, BYTES, (env->rank + 1) % env->world, NULL, &ptr));
    handle = env_rendezvous(env, ptr);
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    CHECK(env, buffers[env->rank] == ptr && buffers[env->rank ^ 1] != NULL);
    env_meet(env);
    CHECK(env, atomic_load(&nccl->inits) == inits + env->world);
    env_drop(env, handle, ptr);
}

TEST("load/store domains") {
    run_on_both(2, 4, body_domains, 0);
}

/* One of the communicators for domains does not start. No rank has pointers then, and the next try
 * works. */
static void body_domain_fails(rank_env *env) {
    const bool is_init = env->plan->argument != 0;
    symmem_handle *handle = NULL;
    void *ptr = env_memory(env);
    /* The first one is of all ranks; its number in a domain is 0 or 1. */
    fail_after(env, 1, is_init ? FAKE_INIT : FAKE_UNIQUE_ID, FAKE_FAILS_AT_ONCE, is_init,
               ncclInvalidUsage);
    expect_agreed(env, meet_at(env, ptr, 10000, &handle), SYMMEM_BACKEND);
    fail_none(env);
    (void)env_kept_rendezvous(env, ptr);
}

TEST("a domain's communicator fails") {
    run_on(NEW_NCCL, 2, 4, body_domain_fails, 0);
    run_on(NEW_NCCL, 2, 4, body_domain_fails, 1);
}

/* Rank 0 hears that its domain is none in a group of two, or, if argument is 1, another one than
 * its peer hears of: no pointer is looked up, on no rank. */
static void body_nonsense(rank_env *env) {
    const bool differs = env->plan->argument == 1;
    symmem_handle *handle = NULL;
    expect_agreed(env, meet_at(env, env_memory(env), 5000, &handle),
                  differs ? SYMMEM_MISMATCH : SYMMEM_BACKEND);
    if (env->rank == 0 || differs)
        CHECK(env, strstr(last_record().message,
                          differs ? "NCCL_LSA_TEAM_SIZE" : "makes no sense") != NULL);
    env_meet(env);
    if (env->rank == 0)
        nccl->nonsense = NULL;
    env_meet(env);
    check_fresh(env);
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
