/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: names, call order, and the exchange that a backend gets. */
#include "unit.h"
#include "stream/channel.h"
#include "backend/registry.h"
#include "memory/group_calls.h"

#define RANKS 4
#define TIMEOUT_MS 20000u

static symmem_context *world(int32_t rank, int32_t world_size, symmem_store *store) {
    symmem_context *context = NULL;
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = rank;
    options.world_size = world_size;
    options.store = store;
    return symmem_init(&options, &context) == SYMMEM_OK ? context : NULL;
}

/* --- call order --------------------------------------------------------------------- */

TEST("turns") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_group *group = NULL;
    symmem_error_record record;
    uint8_t in = 1, out = 0;
    int fd = -1;
    EXPECT_OK(symmem_group_create(context, "turns", NULL, 0, NULL, &group));
    EXPECT_OK(sm_group_enter(group, "first", 0));
    EXPECT_FAIL(symmem_group_all_gather(group, &in, 1, &out, 20), SYMMEM_TIMEOUT,
                "group_all_gather");
    symmem_last_error(&record);
    CU_ASSERT_STRING_EQUAL(record.stage, "group");
    CU_ASSERT_STRING_EQUAL(record.group, "turns");
    CU_ASSERT_EQUAL(record.world_size, 1);
    CU_ASSERT_TRUE(record.elapsed_ns >= 19 * 1000 * 1000);
    EXPECT_FAIL(symmem_group_barrier(group, 1), SYMMEM_TIMEOUT, "group_barrier");
    EXPECT_FAIL(symmem_group_all_gather_fds(group, -1, &fd, 1), SYMMEM_TIMEOUT,
                "group_all_gather_fds");
    EXPECT_FAIL(symmem_group_broadcast_fds(group, 0, -1, &fd, 1), SYMMEM_TIMEOUT,
                "group_broadcast_fds");
    EXPECT_FAIL(symmem_group_send_fd(group, 0, -1, 1), SYMMEM_TIMEOUT, "group_send_fd");
    EXPECT_FAIL(symmem_group_recv_fd(group, 0, &fd, 1), SYMMEM_TIMEOUT, "group_recv_fd");
    CU_ASSERT_EQUAL(atomic_load(&group->references), 2);
    sm_group_leave(group);
    EXPECT_OK(symmem_group_barrier(group, TIMEOUT_MS));

    /* Destroyed, and the context ended, while a call is under way: the call's end cleans up. */
    EXPECT_OK(sm_context_use_backend(context, "test"));
    group->backend_group_open = true;
    EXPECT_OK(sm_group_enter(group, "first", 0));
    EXPECT_OK(symmem_group_destroy(group));
    CU_ASSERT_PTR_NOT_NULL(group->session);
    CU_ASSERT_EQUAL(atomic_load(&fake.groups_closed), 0);
    symmem_context_free(context);
    CU_ASSERT_EQUAL(atomic_load(&fake.closed), 0);
    sm_group_leave(group);
    CU_ASSERT_EQUAL(atomic_load(&fake.groups_closed), 1);
    CU_ASSERT_EQUAL(atomic_load(&fake.closed), 1);
}

static void *waits_for_turn(void *arg) {
    symmem_status status = symmem_group_barrier(arg, TIMEOUT_MS);
    return status == SYMMEM_STALE ? NULL : arg;
}

TEST("destroyed while waiting") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_group *group = NULL;
    pthread_t thread;
    void *failed = NULL;
    EXPECT_OK(symmem_group_create(context, "turns", NULL, 0, NULL, &group));
    EXPECT_OK(sm_group_enter(group, "first", 0));
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, waits_for_turn, group), 0);
    for (int i = 0; i < 20000 && atomic_load(&group->references) < 3; i++)
        sm_sleep_ns(1000 * 1000);
    CU_ASSERT_EQUAL(atomic_load(&group->references), 3);
    EXPECT_OK(symmem_group_destroy(group));
    sm_group_leave(group);
    CU_ASSERT_EQUAL(pthread_join(thread, &failed), 0);
    CU_ASSERT_PTR_NULL(failed);
    CU_ASSERT_PTR_NULL(group->session);
    CU_ASSERT_EQUAL(atomic_load(&group->references), 0);
    unit_end(context);
}

/* --- several ranks ------------------------------------------------------------------ */

typedef struct rank_job {
    pthread_t thread;
    int32_t rank;
    symmem_store *store;
    int (*body)(symmem_context *context, int32_t rank); /* the line that failed, or 0 */
    int failed;
} rank_job;

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    } while (0)

static void *run_rank(void *arg) {
    rank_job *job = arg;
    symmem_context *context = world(job->rank, RANKS, job->store);
    job->failed = context ? job->body(context, job->rank) : -1;
    symmem_context_free(context);
    return NULL;
}

static void run_ranks(int (*body)(symmem_context *context, int32_t rank)) {
    rank_job jobs[RANKS];
    symmem_store *store = NULL;
    EXPECT_OK(symmem_store_open_memory(&store));
    for (int32_t i = 0; i < RANKS; i++) {
        jobs[i] = (rank_job){.rank = i, .store = store, .body = body};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&jobs[i].thread, NULL, run_rank, &jobs[i]), 0);
    }
    for (int32_t i = 0; i < RANKS; i++) {
        CU_ASSERT_EQUAL(pthread_join(jobs[i].thread, NULL), 0);
        CU_ASSERT_EQUAL(jobs[i].failed, 0);
        if (jobs[i].failed)
            (void)fprintf(stderr, "rank %d failed at line %d\n", (int)i, jobs[i].failed);
    }
    symmem_store_close(store);
}

/* Uses the exchange that a backend gets. */
static int exchange_body(symmem_context *context, int32_t rank) {
    symmem_group *group = NULL;
    symmem_exchange exchange;
    symmem_error_record record;
    uint64_t ids[RANKS];
    NEED(symmem_group_create(context, "backend", NULL, 0, NULL, &group) == SYMMEM_OK);
    uint64_t deadline_ns = sm_deadline_ns(TIMEOUT_MS);
    NEED(sm_group_enter(group, "rendezvous", deadline_ns) == SYMMEM_OK);
    sm_group_exchange(group, deadline_ns, &exchange);
    NEED(exchange.rank == rank && exchange.world_size == RANKS && exchange.global_ranks[3] == 3);
    NEED(strcmp(exchange.group_name, "backend") == 0);
    NEED(exchange.all_gather(&exchange, &exchange.group_id, 8, ids) == SYMMEM_OK);
    for (int i = 0; i < RANKS; i++)
        NEED(ids[i] == ids[0] && ids[0] != 0);
    NEED(exchange.barrier(&exchange) == SYMMEM_OK);
    NEED(exchange.agree(&exchange, SYMMEM_OK, "fine") == SYMMEM_OK);
    symmem_status own = SYMMEM_OK;
    if (rank == 2)
        own = sm_fail(SYMMEM_LIMIT, "rendezvous", "window", "no slot");
    NEED(exchange.agree(&exchange, own, "window") == SYMMEM_LIMIT);
    symmem_last_error(&record);
    NEED(record.failed_rank == 2);
    sm_group_leave(group);
    return symmem_group_barrier(group, TIMEOUT_MS) == SYMMEM_OK ? 0 : __LINE__;
}

TEST("a backend's exchange") {
    run_ranks(exchange_body);
}

TEST("names") {
    char name[SYMMEM_NAME_MAX + 1];
    const char *const names[] = {NULL, "", name, "a\nb", "a\x7f"};
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_group *group = NULL;
    memset(name, 'n', sizeof(name));
    name[SYMMEM_NAME_MAX] = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        EXPECT_FAIL(symmem_group_create(context, names[i], NULL, 0, NULL, &group),
                    SYMMEM_INVALID_ARGUMENT, "group_create");
    unit_end(context);
}
