/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that wait for a peer without limit when their context or group ends. */
#include <sys/resource.h>

#include "case_help.h"

/* A world of two whose other rank never comes, so that every collective call waits. */
struct lonely {
    symmem_store *store;
    symmem_context *context;
    symmem_group *group;
    void *memory;
    symmem_status (*call)(struct lonely *lonely);
    symmem_status status;
    atomic_int ended;
};

static symmem_status wait_in_barrier(struct lonely *lonely) {
    return symmem_group_barrier(lonely->group, 0);
}

static symmem_status wait_in_rendezvous(struct lonely *lonely) {
    symmem_handle *handle = NULL;
    return symmem_rendezvous(lonely->context, lonely->memory, lonely->group, 0, &handle);
}

static void *call_in_thread(void *arg) {
    struct lonely *lonely = arg;
    lonely->status = lonely->call(lonely);
    /* pairs with: the load in expect_end */
    atomic_store_explicit(&lonely->ended, 1, memory_order_release);
    return NULL;
}

static void set_up(struct tk *t, struct lonely *lonely,
                   symmem_status (*call)(struct lonely *lonely)) {
    symmem_context_options options = tk_options(t);
    memset(lonely, 0, sizeof(*lonely));
    lonely->call = call;
    TK_REQUIRE_OK(t, symmem_store_open_memory(&lonely->store));
    options.rank = 0;
    options.world_size = 2;
    options.store = lonely->store;
    TK_REQUIRE_OK(t, symmem_init(&options, &lonely->context));
    TK_REQUIRE_OK(t, symmem_group_create(lonely->context, "two", NULL, 0, NULL, &lonely->group));
    TK_REQUIRE_OK(t, symmem_alloc(lonely->context, 64, -1, NULL, &lonely->memory));
}

static void tear_down(struct lonely *lonely) {
    symmem_context_free(lonely->context);
    symmem_store_close(lonely->store);
}

static bool expect_end(struct tk *t, struct lonely *lonely, symmem_status status) {
    uint64_t limit_ms = tk_now_ms() + tk_limit_ms(t, 1000);
    while (!atomic_load_explicit(&lonely->ended, memory_order_acquire) && tk_now_ms() < limit_ms)
        tk_sleep_ms(5);
    if (!TK_CHECK_MSG(t, atomic_load_explicit(&lonely->ended, memory_order_acquire) != 0,
                      "the call waits on"))
        return false;
    TK_EQ_STR(t, symmem_status_name(status), symmem_status_name(lonely->status));
    return true;
}

/* Ends what the call depends on while it waits. */
static void end_it(struct tk *t, symmem_status (*call)(struct lonely *lonely), bool finalize) {
    struct lonely lonely;
    pthread_t thread;
    set_up(t, &lonely, call);
    TK_REQUIRE(t, pthread_create(&thread, NULL, call_in_thread, &lonely) == 0);
    tk_sleep_ms(60);
    TK_CHECK(t, atomic_load_explicit(&lonely.ended, memory_order_acquire) == 0);
    if (finalize)
        TK_OK(t, symmem_finalize(lonely.context));
    else
        TK_OK(t, symmem_group_destroy(lonely.group));
    /* Not freed under a thread that is still in there: the case then ends as it is. */
    TK_REQUIRE(t, expect_end(t, &lonely, finalize ? SYMMEM_NOT_INITIALIZED : SYMMEM_STALE));
    TK_EQ_INT(t, 0, pthread_join(thread, NULL));
    tear_down(&lonely);
}

TK_TEST(under_way, finalize_ends_calls, "SM-CONTEXT-10", .max_ranks = 1, .flags = TK_UNMET) {
    end_it(t, wait_in_barrier, true);
    end_it(t, wait_in_rendezvous, true);
}

TK_TEST(under_way, destroy_ends_calls, "SM-GROUP-10", .max_ranks = 1, .flags = TK_UNMET) {
    end_it(t, wait_in_barrier, false);
    end_it(t, wait_in_rendezvous, false);
}

/* --- waits for signals ------------------------------------------------------------------------ */

struct waiter {
    symmem_handle *handle;
    symmem_status status;
    atomic_int ended;
};

static void *wait_in_thread(void *arg) {
    struct waiter *waiter = arg;
    waiter->status = symmem_wait_signal(waiter->handle, 0, 0, 0, NULL);
    atomic_store_explicit(&waiter->ended, 1, memory_order_release);
    return NULL;
}

/* A wait without limit on memory that is still there, and on memory that is freed meanwhile. */
TK_TEST(under_way, finalize_ends_waits, "SM-CONTEXT-12", .max_ranks = 1, .flags = TK_UNMET) {
    for (int freed = 0; freed < 2; freed++) {
        symmem_context_options options = tk_options(t);
        pthread_t thread;
        options.store = NULL;
        struct own_world w = own_world_begin(t, &options, 64);
        struct waiter waiter = {.handle = w.handle};
        TK_REQUIRE(t, pthread_create(&thread, NULL, wait_in_thread, &waiter) == 0);
        tk_sleep_ms(40);
        TK_EQ_INT(t, 0, atomic_load(&waiter.ended));
        if (freed)
            TK_OK(t, symmem_free(w.context, w.memory));
        uint64_t begin_ms = tk_now_ms();
        TK_OK(t, symmem_finalize(w.context));
        while (!atomic_load_explicit(&waiter.ended, memory_order_acquire) &&
               tk_now_ms() - begin_ms < tk_scaled_ms(1000) + tk_late_ms(t, begin_ms))
            tk_sleep_ms(2);
        TK_REQUIRE(t, TK_TIMELY(t, atomic_load(&waiter.ended) != 0,
                                "a wait outlives its context (memory %s)",
                                freed ? "freed" : "not freed"));
        TK_EQ_INT(t, 0, pthread_join(thread, NULL));
        TK_CHECK_MSG(t, waiter.status == SYMMEM_POISONED || waiter.status == SYMMEM_NOT_INITIALIZED,
                     "%s", symmem_status_name(waiter.status));
        symmem_handle_release(w.handle);
        symmem_context_free(w.context);
    }
}

/* --- no descriptors left ------------------------------------------------------------ */

/* With `spare` more descriptors than now on rank `poor`: the status, the same on every rank. */
static symmem_status rendezvous_with(struct tk *t, int32_t poor, rlim_t spare) {
    symmem_group *group = tk_world_group(t);
    symmem_handle *handle = NULL;
    void *memory = tk_alloc(t, 4096);
    struct rlimit before;
    tk_group_barrier(t, group);
    TK_REQUIRE(t, getrlimit(RLIMIT_NOFILE, &before) == 0);
    if (t->rank == poor) {
        int lowest_free = dup(STDERR_FILENO);
        struct rlimit low = {.rlim_cur = (rlim_t)lowest_free + spare, .rlim_max = before.rlim_max};
        TK_REQUIRE(t, lowest_free >= 0 && close(lowest_free) == 0);
        TK_REQUIRE(t, setrlimit(RLIMIT_NOFILE, &low) == 0);
    }
    symmem_status status =
        symmem_rendezvous(t->context, memory, group, tk_limit_ms(t, 5000), &handle);
    TK_CHECK(t, setrlimit(RLIMIT_NOFILE, &before) == 0);
    TK_CHECK(t, (handle != NULL) == (status == SYMMEM_OK));
    tk_share_u64(t, 0, (uint64_t)(int64_t)status);
    tk_out_of_band_barrier(t);
    for (int32_t r = 0; r < t->world_size; r++)
        TK_EQ_INT(t, status, (int64_t)tk_read_u64(t, r, 0));
    symmem_handle_release(handle);
    /* With descriptors again it works, failed or not. */
    handle = tk_rendezvous(t, memory, group);
    TK_OK(t, symmem_barrier(handle, 0, tk_limit_ms(t, 5000), NULL));
    tk_out_of_band_barrier(t);
    return status;
}

/* One rank has none to spare, then one, then two, until there are enough. */
TK_TEST(under_way, out_of_descriptors, "SM-RDV-20", .ranks = {4, 4}, .flags = TK_PROCESS_ONLY) {
    for (int32_t poor = 0; poor < 2; poor++) {
        rlim_t enough = 4u * (rlim_t)t->world_size + 64;
        symmem_status status = SYMMEM_LIMIT;
        for (rlim_t spare = 0; spare <= enough && status != SYMMEM_OK; spare += 1 + spare / 3) {
            status = rendezvous_with(t, poor, spare);
            tk_checkpoint(t, "%d spare: %s", (int)spare, symmem_status_name(status));
            TK_CHECK_MSG(t, status == SYMMEM_LIMIT || status == SYMMEM_OK, "%d spare: %s",
                         (int)spare, symmem_status_name(status));
        }
        TK_EQ_INT(t, SYMMEM_OK, status);
    }
}
