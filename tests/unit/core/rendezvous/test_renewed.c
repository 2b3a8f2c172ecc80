/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that a rank mapped before is that of the peer's segment of then. A peer that comes with
 * another one is mapped anew, for each rank's pools and contexts end and begin when it likes.
 */
#include "link_ranks.h"

enum { POOL_OF_ONE, CONTEXT_OF_ONE, OTHER_OF_TWO };

static void *take(rank_env *env, symmem_pool *pool) {
    void *ptr = NULL;
    CHECK_OK(env, symmem_pool_alloc(pool, 1024, &ptr));
    return ptr;
}

static void give(rank_env *env, symmem_pool *pool, void *ptr) {
    CHECK_OK(env, symmem_pool_free(pool, ptr));
}

/* --- memory exchanged by the backend, for which all ranks open a group ---------------------------
 */

static symmem_status exchange_memory(void *instance, void *group, symmem_memory *own,
                                     const symmem_exchange *exchange, symmem_memory *peers) {
    const symmem_backend *shm = symmem_backend_entry(SYMMEM_BACKEND_ABI);
    symmem_share share = {.fd = -1}, shares[MAX_RANKS];
    symmem_status status =
        exchange->agree(exchange, shm->memory->share(instance, own, &share), "exchange");
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

/* All ranks, or none. */
static symmem_status open_group(void *instance, const symmem_exchange *exchange, int32_t device,
                                void **group_p) {
    *group_p = instance;
    return exchange->barrier(exchange);
}

static void close_group(void *instance, void *group) {}

static flat_backend exchanging(void) {
    flat_backend table = flat_of(symmem_backend_entry(SYMMEM_BACKEND_ABI));
    table.memory_exchange = exchange_memory;
    table.memory_share = NULL;
    table.memory_map = NULL;
    table.memory_unshare = NULL;
    table.group_open = open_group;
    table.group_close = close_group;
    table.head.name = "exchanging";
    return table;
}

/* --- ranks --------------------------------------------------------------------------------------
 */

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

static void body_pool_of_one(rank_env *env) {
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

static void body_context_of_one(rank_env *env) {
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

static void body_other_of_two(rank_env *env) {
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

static void body(rank_env *env) {
    switch (env->plan->argument) {
    case POOL_OF_ONE:
        body_pool_of_one(env);
        break;
    case CONTEXT_OF_ONE:
        body_context_of_one(env);
        break;
    default:
        body_other_of_two(env);
        break;
    }
}

TEST("a rank's pool begins anew") {
    run_threads((plan){.world = 2, .body = body, .argument = POOL_OF_ONE});
}

TEST("a rank's context begins anew") {
    run_threads((plan){.world = 2, .body = body, .argument = CONTEXT_OF_ONE});
}

TEST("ranks come with another segment than before") {
    run_threads((plan){.world = 2, .body = body, .argument = OTHER_OF_TWO});
}

TEST("the backend exchanges memory") {
    flat_backend table = exchanging();
    for (int which = POOL_OF_ONE; which <= OTHER_OF_TWO; which++)
        run_threads(
            (plan){.world = 2, .body = body, .argument = which, .backend = flat_table(&table)});
}
