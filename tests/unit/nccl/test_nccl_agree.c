/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ranks of the NCCL backend compare before NCCL hears of it, for NCCL hangs where they differ,
 * and which windows they use again or give up; on a fake libnccl and a fake driver.
 */
#include "nccl_ranks.h"
#include "driver/clock.h"
#include "memory/group_calls.h"

/* --- records that differ ------------------------------------------------------------ */

typedef struct direct {
    rank_env *env;
    const symmem_backend *backend;
    void *instance, *group;
    symmem_exchange exchange;
    symmem_memory own[48];
    int own_count;
} direct;

/* The backend's own entries under a real exchange, the core's checks left out. */
static direct direct_open(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr); /* brings the instance up */
    env_drop(env, handle, ptr);
    direct d = {.env = env, .backend = nccl_table(), .instance = env->context->instance};
    sm_group_exchange(env->group, cuda_now_ns() + 20000 * CUDA_NS_PER_MS, &d.exchange);
    CHECK_OK(env, d.backend->group->open(d.instance, &d.exchange, env->rank, &d.group));
    if (d.group == NULL)
        longjmp(env->out, 1);
    return d;
}

/* Allocates memory that direct_close releases. */
static symmem_memory *direct_memory(direct *d, int32_t device) {
    symmem_memory *own = &d->own[d->own_count++];
    CHECK_OK(d->env, d->backend->memory->alloc(d->instance, device, BYTES, own));
    return own;
}

static void direct_close(direct *d) {
    while (d->own_count > 0)
        d->backend->memory->release(d->instance, &d->own[--d->own_count]);
    d->backend->group->close(d->instance, d->group);
}

static symmem_status direct_exchange(direct *d, symmem_memory *own, symmem_memory *peers) {
    memset(peers, 0, sizeof *peers * MAX_RANKS);
    return d->backend->memory->exchange(d->instance, d->group, own, &d->exchange, peers);
}

static void direct_release(direct *d, symmem_memory *peers) {
    for (int32_t r = 0; r < d->env->world; r++)
        d->backend->memory->release(d->instance, &peers[r]);
}

/* Each rank's memory, and what rank 1 has otherwise than the others. */
typedef enum odd { ODD_SIZE, ODD_OFFSET, ODD_ORDER, ODD_VERSION } odd;

static const char *const names_of_odd[] = {"the size", "the offset", "the number of registrations",
                                           "another NCCL backend"};

static void make_odd(direct *d, odd what, symmem_memory *own) {
    nccl_group *group = d->group;
    switch (what) {
    case ODD_SIZE: /* the same on the device */
        own->bytes -= 64;
        break;
    case ODD_OFFSET:
        own->ptr = (char *)own->ptr + 64;
        break;
    case ODD_ORDER:
        group->last_serial++;
        break;
    case ODD_VERSION:
        nccl_state_of(d->instance)->library.version++;
        break;
    }
}

static void body_odd(rank_env *env) {
    direct d = direct_open(env);
    symmem_memory *own = direct_memory(&d, env->rank), peers[MAX_RANKS];
    symmem_memory shown = *own;
    shown.bytes = BYTES / 2;
    if (env->rank == 1)
        make_odd(&d, (odd)env->plan->argument, &shown);
    const int before = count_of(env, &nccl->registrations);
    expect_agreed(env, direct_exchange(&d, &shown, peers), SYMMEM_MISMATCH);
    CHECK(env, strstr(last_record().message, names_of_odd[env->plan->argument]) != NULL);
    CHECK(env, atomic_load(&nccl->registrations) == before); /* NCCL never saw it */
    /* The group is of no use until it was closed and opened. */
    expect_agreed(env, direct_exchange(&d, own, peers), SYMMEM_PEER_LOST);
    direct_close(&d);
}

/* The ranks compare the library's versions before they begin a communicator. */
static void body_versions(rank_env *env) {
    void *group = NULL;
    symmem_exchange exchange;
    (void)env_kept_handle(env, NULL);
    nccl_state *state = nccl_state_of(env->context->instance);
    env_meet(env);
    int before = atomic_load(&nccl->inits);
    state->library.version += env->rank == 1;
    sm_group_exchange(env->group, cuda_now_ns() + 20000 * CUDA_NS_PER_MS, &exchange);
    env_meet(env);
    expect_agreed(env,
                  nccl_table()->group->open(env->context->instance, &exchange, env->rank, &group),
                  SYMMEM_MISMATCH);
    CHECK(env, group == NULL && strstr(last_record().message, "rank 1 has") != NULL);
    CHECK(env, atomic_load(&nccl->inits) == before);
    env_meet(env);
    state->library.version -= env->rank == 1;
}

static void body_order(rank_env *env) {
    direct d = direct_open(env);
    symmem_memory *first = direct_memory(&d, env->rank), *second = direct_memory(&d, env->rank);
    symmem_memory one[MAX_RANKS], two[MAX_RANKS], three[MAX_RANKS];
    expect_agreed(env, direct_exchange(&d, first, one), SYMMEM_OK);
    int registrations = atomic_load(&nccl->registrations), inits = atomic_load(&nccl->inits);
    env_meet(env);
    /* The same memory again gives the same window without a call of NCCL. */
    expect_agreed(env, direct_exchange(&d, first, two), SYMMEM_OK);
    CHECK(env, one[0].priv == two[0].priv && one[0].ptr == two[0].ptr);
    CHECK(env, atomic_load(&nccl->registrations) == registrations);
    direct_release(&d, one);
    direct_release(&d, two);
    env_meet(env);
    /* Given up everywhere and wanted again before anybody swept. */
    expect_agreed(env, direct_exchange(&d, first, one), SYMMEM_OK);
    CHECK(env, atomic_load(&nccl->registrations) == registrations);
    env_meet(env);
    /* One rank brings memory that NCCL already knows, and the others bring new memory. NCCL would
     * hang, so another communicator takes it. */
    expect_agreed(env, direct_exchange(&d, env->rank == 0 ? first : second, three), SYMMEM_OK);
    CHECK(env, atomic_load(&nccl->inits) == inits + env->world);
    CHECK(env, one[0].priv != three[0].priv);
    direct_release(&d, one);
    direct_release(&d, three);
    direct_close(&d);
}

/* A window that one rank still uses stays registered on all. */
static void body_sweep(rank_env *env) {
    const int32_t user = env->plan->argument;
    direct d = direct_open(env);
    symmem_memory *own[3], peers[3][MAX_RANKS];
    for (int i = 0; i < 3; i++)
        own[i] = direct_memory(&d, env->rank);
    expect_agreed(env, direct_exchange(&d, own[0], peers[0]), SYMMEM_OK);
    if (env->rank != user)
        direct_release(&d, peers[0]);
    env_meet(env);
    int before = atomic_load(&nccl->deregistrations);
    expect_agreed(env, direct_exchange(&d, own[1], peers[1]), SYMMEM_OK);
    CHECK(env, atomic_load(&nccl->deregistrations) == before);
    if (env->rank == user)
        direct_release(&d, peers[0]);
    env_meet(env);
    expect_agreed(env, direct_exchange(&d, own[2], peers[2]), SYMMEM_OK);
    CHECK(env, atomic_load(&nccl->deregistrations) == before + env->world);
    env_meet(env);
    direct_release(&d, peers[1]);
    direct_release(&d, peers[2]);
    direct_close(&d);
}

/* One rank keeps more of the newer windows than ranks can tell each other at a time. */
static void body_sweep_old(rank_env *env) {
    enum { OLD = 2, ALL = 20 };
    direct d = direct_open(env);
    symmem_memory peers[ALL][MAX_RANKS], others[MAX_RANKS];
    for (int i = 0; i < ALL; i++)
        expect_agreed(env, direct_exchange(&d, direct_memory(&d, env->rank), peers[i]), SYMMEM_OK);
    for (int i = 0; i < (env->rank == 1 ? OLD : ALL); i++)
        direct_release(&d, peers[i]);
    int before = atomic_load(&nccl->deregistrations);
    env_meet(env);
    expect_agreed(env, direct_exchange(&d, direct_memory(&d, env->rank), others), SYMMEM_OK);
    CHECK(env, atomic_load(&nccl->deregistrations) == before + OLD * env->world);
    env_meet(env);
    for (int i = OLD; env->rank == 1 && i < ALL; i++)
        direct_release(&d, peers[i]);
    direct_release(&d, others);
    direct_close(&d);
}

/* One rank has given up more old windows than ranks can tell each other at a time. Windows that all
 * give up afterwards are still released, however many at a time. */
static void body_hoard(rank_env *env) {
    enum { OLD = 40, CYCLES = 12, MOST = 3 };
    const int count = env->plan->argument;
    direct d = direct_open(env);
    symmem_memory own[MOST] = {{0}}, kept[OLD][MAX_RANKS], peers[MOST][MAX_RANKS];
    for (int i = 0; i < OLD; i++) {
        CHECK_OK(env, direct_exchange(&d, direct_memory(&d, env->rank), kept[i]));
        if (env->rank == 1)
            direct_release(&d, kept[i]);
    }
    env_meet(env);
    const int before = atomic_load(&nccl->windows);
    for (int i = 0; i < CYCLES * count; i++) {
        CHECK_OK(env, d.backend->memory->alloc(d.instance, env->rank, BYTES, &own[i % count]));
        CHECK_OK(env, direct_exchange(&d, &own[i % count], peers[i % count]));
        for (int j = 0; i % count == count - 1 && j < count; j++) {
            direct_release(&d, peers[j]);
            d.backend->memory->release(d.instance, &own[j]);
        }
    }
    env_meet(env);
    CHECK(env, atomic_load(&nccl->windows) - before <= 2 * MOST * env->world);
    env_meet(env);
    for (int i = 0; env->rank != 1 && i < OLD; i++)
        direct_release(&d, kept[i]);
    direct_close(&d);
}

/* A window without users that is used again must not be deregistered. */
static void body_again(rank_env *env) {
    direct d = direct_open(env);
    symmem_memory *own = direct_memory(&d, env->rank), peers[MAX_RANKS];
    symmem_memory other = {0}, others[MAX_RANKS];
    CHECK_OK(env, direct_exchange(&d, own, peers));
    direct_release(&d, peers);
    CHECK_OK(env, direct_exchange(&d, own, peers));
    env_meet(env);
    const int before = atomic_load(&nccl->windows);
    env_meet(env);
    CHECK_OK(env, d.backend->memory->alloc(d.instance, env->rank, BYTES, &other));
    CHECK_OK(env, direct_exchange(&d, &other, others));
    env_meet(env);
    CHECK(env, atomic_load(&nccl->windows) == before + env->world);
    env_meet(env);
    direct_release(&d, others);
    d.backend->memory->release(d.instance, &other);
    direct_release(&d, peers);
    direct_close(&d);
}

/* A further communicator that one rank does not get: the others do not wait for it in NCCL. */
static void body_further(rank_env *env) {
    direct d = direct_open(env);
    symmem_memory *own = direct_memory(&d, (env->rank + 1) % env->world), peers[MAX_RANKS];
    env->fault_status = SYMMEM_PERMISSION;
    env->fault_point = env->rank == 1 ? "nccl.comm.done" : NULL;
    const int before = count_of(env, &nccl->registrations);
    d.exchange.deadline_ns = cuda_now_ns() + 3000 * CUDA_NS_PER_MS; /* if they do wait */
    expect_agreed(env, direct_exchange(&d, own, peers), SYMMEM_PERMISSION);
    CHECK(env, atomic_load(&nccl->registrations) == before);
    direct_close(&d);
}

TEST("records differ") {
    use_library(PLAIN_NCCL);
    for (int i = ODD_SIZE; i <= ODD_VERSION; i++)
        run_nccl(3, body_odd, i);
    run_nccl(3, body_versions, 0);
}

TEST("windows are used again") {
    use_library(PLAIN_NCCL);
    atomic_store(&nccl->windows, 0);
    run_nccl(3, body_order, 0);
    run_nccl(3, body_sweep, 0);
    run_nccl(3, body_sweep, 2);
    run_nccl(3, body_sweep_old, 0);
    run_nccl(3, body_again, 0);
    for (int count = 1; count <= 3; count++)
        run_nccl(3, body_hoard, count);
    run_nccl(3, body_further, 0);
    CU_ASSERT_EQUAL(atomic_load(&nccl->windows), 0);
}

/* --- where NCCL makes no windows ---------------------------------------------------- */

/* NCCL reports that it makes no windows by an invalid window, perhaps on one rank only. */
static void body_windowless(rank_env *env) {
    static const char *const says[] = {"NCCL makes no windows here", "without a window"};
    const int way = env->plan->argument;
    symmem_handle *handle = NULL;
    void *ptr = env_memory(env);
    fail_after(env, 0, FAKE_REGISTER, way == 0 ? FAKE_NO_WINDOW : FAKE_HOST_WINDOW, 0, ncclSuccess);
    expect_agreed(env, meet_at(env, ptr, 5000, &handle), SYMMEM_UNSUPPORTED);
    CHECK(env, handle == NULL && last_record().failed_rank == 0);
    if (env->rank == 0)
        CHECK(env, strstr(last_record().message, says[way]) != NULL);
    fail_none(env);
    check_fresh(env);
}

/* If a kernel asks NCCL for pointers, they may point to host memory. */
TEST("no windows") {
    run_on_both(0, 2, body_windowless, 0);
    run_on(PLAIN_NCCL, 0, 2, body_windowless, 1);
}
