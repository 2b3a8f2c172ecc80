/* SPDX-License-Identifier: BSD-3-Clause */
/* Rendezvous with backends whose entries fail, with multicast, and with memory_exchange. */
#include "link_ranks.h"

/* --- backends that fail ------------------------------------------------------------- */

static atomic_int countdown; /* of the calls to the failing entry; 0 fails */

static bool fails_now(void) {
    return atomic_fetch_sub_explicit(&countdown, 1, memory_order_relaxed) == 1;
}

static symmem_status fail_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory) {
    if (fails_now())
        return SYMMEM_NO_SPACE;
    return symmem_backend_entry(SYMMEM_BACKEND_ABI)->memory->alloc(instance, device, bytes, memory);
}

static symmem_status fail_export(void *instance, symmem_memory *memory, symmem_share *share) {
    if (fails_now())
        return SYMMEM_LIMIT;
    return symmem_backend_entry(SYMMEM_BACKEND_ABI)->memory->share(instance, memory, share);
}

static symmem_status fail_import(void *instance, int32_t device, const symmem_share *share,
                                 size_t bytes, symmem_memory *memory) {
    if (fails_now())
        return SYMMEM_LIMIT;
    return symmem_backend_entry(SYMMEM_BACKEND_ABI)
        ->memory->map(instance, device, share, bytes, memory);
}

static symmem_status fail_peers(void *instance, symmem_peers *peers, void **buffers, void **pads) {
    if (fails_now())
        return SYMMEM_OUT_OF_MEMORY;
    return symmem_backend_entry(SYMMEM_BACKEND_ABI)
        ->signal->peers_open(instance, peers, buffers, pads);
}

static void body_backend_fails(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    env_meet(env);
    if (env->rank == 0)
        atomic_store(&countdown, env->plan->argument);
    env_meet(env);
    symmem_status status = meet_at(env, ptr, 5000, &handle);
    CHECK(env,
          status == SYMMEM_NO_SPACE || status == SYMMEM_LIMIT || status == SYMMEM_OUT_OF_MEMORY);
    CHECK(env, last_record().failed_rank >= 0);
    CHECK(env, strncmp(last_record().stage, "memory_", 7) == 0 ||
                   strcmp(last_record().stage, "peers_open") == 0);
    /* Whose memory it was, beside who could not map it. */
    int who = -1, whose = -1;
    if (strcmp(last_record().stage, "memory_map") == 0) {
        CHECK(env, sscanf(last_record().message, "rank %d cannot map the memory of rank %d:", &who,
                          &whose) == 2);
        CHECK(env, who == last_record().failed_rank && whose >= 0 && whose < 3 && whose != who);
    }
    check_works(env);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("backend entries fail") {
    static const flat_backend failing[] = {{.memory_alloc = fail_alloc},
                                           {.memory_share = fail_export},
                                           {.memory_map = fail_import},
                                           {.peers_open = fail_peers}};
    for (size_t entry = 0; entry < sizeof failing / sizeof failing[0]; entry++)
        for (int call = 1; call <= 3; call++) {
            atomic_store(&countdown, 0);
            run_threads((plan){.world = 3,
                               .body = body_backend_fails,
                               .entries = failing[entry],
                               .argument = call});
        }
}

/* Memory that bytes lead to as well: a descriptor that does not come is still the failure of the
 * rank that did not send it, and no rank imports without. */
static atomic_int imports_without;

static symmem_status export_both(void *instance, symmem_memory *memory, symmem_share *share) {
    symmem_status status =
        symmem_backend_entry(SYMMEM_BACKEND_ABI)->memory->share(instance, memory, share);
    share->kind |= SYMMEM_SHARE_BYTES;
    return status;
}

static symmem_status import_both(void *instance, int32_t device, const symmem_share *share,
                                 size_t bytes, symmem_memory *memory) {
    symmem_share with = *share;
    with.kind = SYMMEM_SHARE_FD;
    if (share->fd >= 0)
        return symmem_backend_entry(SYMMEM_BACKEND_ABI)
            ->memory->map(instance, device, &with, bytes, memory);
    atomic_fetch_add(&imports_without, 1);
    return SYMMEM_UNREACHABLE;
}

RANKS_TEST("a descriptor is lost", .world = 3,
           .entries = {.memory_share = export_both, .memory_map = import_both}) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    if (env->rank == 1) {
        env->fault_point = "ipc.send.before";
        env->fault_status = SYMMEM_NO_SPACE;
    }
    CHECK_STATUS(env, meet_at(env, ptr, 5000, &handle), SYMMEM_NO_SPACE);
    CHECK(env, last_record().failed_rank == 1 && atomic_load(&imports_without) == 0);
    check_works(env);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

/* Again and again, with an entry that gives no reason: none is found in what an earlier call said.
 */
RANKS_TEST("a backend entry fails again", .world = 2, .entries = {.memory_alloc = fail_alloc}) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    for (int turn = 0; turn < 3; turn++) {
        env_meet(env);
        if (env->rank == 0)
            atomic_store(&countdown, 1);
        env_meet(env);
        CHECK_STATUS(env, meet_at(env, ptr, 5000, &handle), SYMMEM_NO_SPACE);
        CHECK(env, strstr(last_record().message, "gave no reason") != NULL);
        CHECK(env, strncmp(last_record().message, "rank ", 5) == 0);
        CHECK(env, strstr(last_record().message + 5, "rank ") == NULL);
    }
    check_works(env);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

/* --- multicast ---------------------------------------------------------------------- */

static symmem_status fail_create(void *instance, int32_t device, int32_t world, size_t bytes,
                                 void **object, symmem_share *share) {
    if (fails_now())
        return SYMMEM_LIMIT;
    return symmem_backend_entry(SYMMEM_BACKEND_ABI)
        ->multicast->create(instance, device, world, bytes, object, share);
}

static symmem_status fail_attach(void *instance, int32_t device, const symmem_share *share,
                                 size_t bytes, void **multicast) {
    if (fails_now())
        return SYMMEM_BACKEND;
    return symmem_backend_entry(SYMMEM_BACKEND_ABI)
        ->multicast->attach(instance, device, share, bytes, multicast);
}

static symmem_status fail_bind(void *instance, void *multicast, symmem_memory *own,
                               const symmem_peers *peers, void **address) {
    if (fails_now())
        return SYMMEM_BACKEND;
    return symmem_backend_entry(SYMMEM_BACKEND_ABI)
        ->multicast->bind(instance, multicast, own, peers, address);
}

static void body_multicast(rank_env *env) {
    void *const *buffers = NULL;
    symmem_handle_info info = {0};
    symmem_clear_error();
    symmem_handle *handle = env_kept_handle(env, NULL);
    CHECK(env, last_record().status == SYMMEM_OK);
    CHECK_OK(env, symmem_handle_get_info(handle, &info));
    bool works = env->plan->argument == 0;
    CHECK(env, (info.multicast_ptr != NULL) == works);
    CHECK(env, env->notices == !works);
    float value = 77 + (float)env->rank, sum = 0;
    CHECK_STATUS(env, symmem_multimem_store(handle, 4 * (size_t)env->rank, &value, 4, NULL),
                 works ? SYMMEM_OK : SYMMEM_UNSUPPORTED);
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    for (int32_t r = 0; works && r < env->world; r++)
        for (int32_t q = 0; q < env->world; q++)
            CHECK(env, ((float *)buffers[r])[q] == 77 + (float)q);
    CHECK_STATUS(env,
                 symmem_multimem_ld_reduce(handle, 0, &sum, 1, SYMMEM_FLOAT32, SYMMEM_SUM, NULL),
                 works ? SYMMEM_OK : SYMMEM_UNSUPPORTED);
    CHECK(env, sum == (works ? 77 * (float)env->world : 0));
    if (works) {
        symmem_reduce_op no_op = SYMMEM_REDUCE_OP_COUNT;
        symmem_dtype no_type = SYMMEM_DTYPE_COUNT;
        CHECK_STATUS(env, symmem_multimem_store(handle, BYTES, &value, 4, NULL),
                     SYMMEM_OUT_OF_RANGE);
        CHECK_STATUS(env, symmem_multimem_store(handle, 0, NULL, 4, NULL), SYMMEM_INVALID_ARGUMENT);
        CHECK_STATUS(env, symmem_multimem_ld_reduce(handle, 0, &sum, 1, no_type, SYMMEM_SUM, NULL),
                     SYMMEM_INVALID_ARGUMENT);
        CHECK_STATUS(env,
                     symmem_multimem_ld_reduce(handle, 0, &sum, 1, SYMMEM_FLOAT32, no_op, NULL),
                     SYMMEM_INVALID_ARGUMENT);
        CHECK_STATUS(env,
                     symmem_multimem_ld_reduce(handle, 0, &sum, SIZE_MAX / 2, SYMMEM_FLOAT32,
                                               SYMMEM_SUM, NULL),
                     SYMMEM_OVERFLOW);
        CHECK_STATUS(
            env, symmem_multimem_ld_reduce(handle, 2, &sum, 1, SYMMEM_FLOAT32, SYMMEM_SUM, NULL),
            SYMMEM_MISALIGNED);
    }
    CHECK_STATUS(env, symmem_multimem_store(NULL, 0, &value, 4, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
}

TEST("multicast") {
    static const flat_backend steps[] = {{.memory_alloc = NULL}, /* none fails */
                                         {.multicast_create = fail_create},
                                         {.multicast_attach = fail_attach},
                                         {.multicast_bind = fail_bind}};
    for (int step = 0; step < 4; step++)
        for (int call = 1; call <= (step < 2 ? 1 : 3); call++) {
            atomic_store(&countdown, call);
            run_threads((plan){.world = 3,
                               .body = body_multicast,
                               .entries = steps[step],
                               .argument = step,
                               .multicast = 1});
        }
}

/* --- a backend that exchanges memory itself ----------------------------------------- */

static atomic_bool has_failed; /* a rank of the exchange */
static atomic_int told;        /* others of that */

/* As a library's own call that waits for all ranks: it has to be told of one that does not come. */
static symmem_status await_peers(const symmem_exchange *exchange) {
    bool fails = atomic_load(&countdown) > 0;
    symmem_status status = SYMMEM_OK;
    for (int i = 0; i < 50 && fails && !atomic_load(&has_failed); i++)
        usleep(10000);
    for (int i = 0; i < 250 && status == SYMMEM_OK && (i == 0 || atomic_load(&has_failed)); i++) {
        usleep(i == 0 ? 0 : 20000);
        status = exchange->peer_failure(exchange);
    }
    if (status == SYMMEM_NO_SPACE && last_record().failed_rank >= 0)
        atomic_fetch_add(&told, 1);
    return status;
}

/* The emulation's own memory, described to all ranks of this process through the exchange. */
static symmem_status exchange_memory(void *instance, void *group, symmem_memory *own,
                                     const symmem_exchange *exchange, symmem_memory *peers) {
    const symmem_backend *shm = symmem_backend_entry(SYMMEM_BACKEND_ABI);
    symmem_share share = {.fd = -1}, shares[MAX_RANKS];
    if (group != instance)
        return SYMMEM_BACKEND;
    symmem_status status = SYMMEM_NO_SPACE;
    if (fails_now())
        atomic_store(&has_failed, true);
    else
        status = await_peers(exchange);
    if (status == SYMMEM_OK)
        status = shm->memory->share(instance, own, &share);
    status = exchange->agree(exchange, status, "exchange");
    if (status == SYMMEM_OK)
        status = exchange->all_gather(exchange, &share, sizeof share, shares);
    for (int32_t r = 0; status == SYMMEM_OK && r < exchange->world_size; r++) {
        shares[r].same_process = 1;
        status = shm->memory->map(instance, own->device, &shares[r], own->bytes, &peers[r]);
    }
    symmem_status met = exchange->barrier(exchange);
    shm->memory->unshare(instance, &share);
    return status == SYMMEM_OK ? met : status;
}

static symmem_status open_group(void *instance, const symmem_exchange *exchange, int32_t device,
                                void **group_p) {
    if (exchange->group_id == 0 || fails_now())
        return SYMMEM_BACKEND;
    *group_p = instance;
    return SYMMEM_OK;
}

static void close_group(void *instance, void *group) {}

static void body_exchange(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    if (env->plan->argument > 0) {
        CHECK(env, meet_at(env, ptr, 5000, &handle) != SYMMEM_OK);
        CHECK(env, last_record().failed_rank >= 0);
    }
    env_meet(env);
    atomic_store(&has_failed, false);
    env_meet(env);
    check_works(env);
    CHECK_OK(env, meet_at(env, ptr, 5000, &handle));
    symmem_handle_release(handle);
    static const char *const points[] = {"rendezvous.map.before", "rendezvous.open.after",
                                         "rendezvous.register.after"};
    env->fault_status = SYMMEM_PERMISSION;
    for (int i = 0; i < 3; i++) {
        env_meet(env);
        env->fault_point = env->rank == 1 ? points[i] : NULL;
        CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
        CHECK_STATUS(env, meet_at(env, ptr, 5000, &handle), SYMMEM_PERMISSION);
        CHECK(env, last_record().failed_rank == 1);
        CHECK(env, env->rank != 1 || strcmp(last_record().stage, points[i]) == 0);
        CHECK_OK(env, meet_at(env, ptr, 5000, &handle));
        CHECK_OK(env, symmem_barrier(handle, 0, 5000, NULL));
        symmem_handle_release(handle);
        CHECK_OK(env, symmem_free(env->context, ptr));
    }
    body_pool(env);
}

static void run_exchanging(int fails_at, plan p) {
    atomic_store(&countdown, fails_at);
    atomic_store(&has_failed, false);
    atomic_store(&told, 0);
    p.entries.memory_exchange = exchange_memory;
    p.entries.group_close = close_group;
    run_threads(p);
}

TEST("memory exchanged by the backend") {
    for (int call = 0; call <= 9; call += 2) {
        run_exchanging(call, (plan){.world = 3,
                                    .body = body_exchange,
                                    .entries = {.group_open = open_group},
                                    .argument = call});
        CU_ASSERT_EQUAL(atomic_load(&told), call >= 4 ? 2 : 0);
    }
}

/* --- another segment than before ------------------------------------------------------ */

/* Memory that a rank mapped before is that of the peer's segment of then. A peer that comes with
 * another one is mapped anew, for each rank's pools and contexts end and begin when it likes. */

static void *take(rank_env *env, symmem_pool *pool) {
    void *ptr = NULL;
    CHECK_OK(env, symmem_pool_alloc(pool, 1024, &ptr));
    return ptr;
}

static void give(rank_env *env, symmem_pool *pool, void *ptr) {
    CHECK_OK(env, symmem_pool_free(pool, ptr));
}

/* Each rank's word reaches the memory that the other one came with. */
static void exchange_words(rank_env *env, void *ptr, uint32_t word) {
    symmem_handle *handle = NULL;
    const uint32_t sent = word + (uint32_t)env->rank, expected = word + 1 - (uint32_t)env->rank;
    CHECK_OK(env, meet_at(env, ptr, 10000, &handle));
    if (handle == NULL)
        return;
    CHECK_OK(env, symmem_put(handle, 1 - env->rank, 0, &sent, sizeof sent, NULL));
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    CHECK(env, *(uint32_t *)ptr == expected);
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    symmem_handle_release(handle);
}

static symmem_pool *new_pool(rank_env *env) {
    symmem_pool *pool = NULL;
    CHECK_OK(env, symmem_pool_create(env->context, -1, BYTES, &pool));
    return pool;
}

static void pool_begins_anew(rank_env *env) {
    symmem_pool *pool = new_pool(env);
    void *ptr = take(env, pool);
    exchange_words(env, ptr, 100);
    give(env, pool, ptr);
    if (env->rank == 1) {
        CHECK_OK(env, symmem_pool_destroy(pool));
        pool = new_pool(env);
    }
    ptr = take(env, pool);
    exchange_words(env, ptr, 200);
    /* What was made anew is kept. */
    void *other = take(env, pool);
    exchange_words(env, other, 300);
    give(env, pool, other);
    give(env, pool, ptr);
    CHECK_OK(env, symmem_pool_destroy(pool));
}

static void context_begins_anew(rank_env *env) {
    symmem_pool *pool = new_pool(env);
    void *ptr = take(env, pool);
    exchange_words(env, ptr, 100);
    give(env, pool, ptr);
    if (env->rank == 1) {
        symmem_context_free(env->context);
        env_open(env);
        pool = new_pool(env);
    }
    ptr = take(env, pool);
    exchange_words(env, ptr, 200);
    give(env, pool, ptr);
    CHECK_OK(env, symmem_pool_destroy(pool));
}

static void another_segment(rank_env *env) {
    symmem_pool *pools[2] = {new_pool(env), new_pool(env)};
    for (uint32_t i = 0; i < 2; i++) {
        void *ptr = take(env, pools[i]);
        exchange_words(env, ptr, 100 + 10 * i);
        give(env, pools[i], ptr);
    }
    void *ptr = take(env, pools[env->rank]);
    exchange_words(env, ptr, 200);
    give(env, pools[env->rank], ptr);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(env, symmem_pool_destroy(pools[i]));
}

static const rank_body renewals[] = {pool_begins_anew, context_begins_anew, another_segment};

TEST("a rank's pool begins anew") {
    run_threads((plan){.world = 2, .body = pool_begins_anew});
}

TEST("a rank's context begins anew") {
    run_threads((plan){.world = 2, .body = context_begins_anew});
}

TEST("ranks come with another segment than before") {
    run_threads((plan){.world = 2, .body = another_segment});
}

/* All ranks, or none. */
static symmem_status open_together(void *instance, const symmem_exchange *exchange, int32_t device,
                                   void **group_p) {
    *group_p = instance;
    return exchange->barrier(exchange);
}

TEST("the backend exchanges memory") {
    for (size_t i = 0; i < sizeof renewals / sizeof renewals[0]; i++)
        run_exchanging(
            0, (plan){.world = 2, .body = renewals[i], .entries = {.group_open = open_together}});
}
