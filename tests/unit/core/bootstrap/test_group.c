/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: create, destroy, queries, turns, and the exchange between ranks that are threads. */
#include "unit.h"
#include "objects.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

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

TEST("names and ranks") {
    static const char create[] = "group_create";
    symmem_store *store = NULL;
    EXPECT_OK(symmem_store_open_memory(&store));
    symmem_context *context = world(2, RANKS, store);
    CU_ASSERT_PTR_NOT_NULL_FATAL(context);
    symmem_group *group = NULL;
    char name[SYMMEM_NAME_MAX + 1];
    memset(name, 'n', sizeof(name));
    name[SYMMEM_NAME_MAX] = 0;
    EXPECT_FAIL(symmem_group_create(NULL, "g", NULL, 0, NULL, &group), SYMMEM_NOT_INITIALISED,
                create);
    EXPECT_FAIL(symmem_group_create(context, "g", NULL, 0, NULL, NULL), SYMMEM_INVALID_ARGUMENT,
                create);
    EXPECT_FAIL(symmem_group_create(context, NULL, NULL, 0, NULL, &group), SYMMEM_INVALID_ARGUMENT,
                create);
    EXPECT_FAIL(symmem_group_create(context, "", NULL, 0, NULL, &group), SYMMEM_INVALID_ARGUMENT,
                create);
    EXPECT_FAIL(symmem_group_create(context, name, NULL, 0, NULL, &group), SYMMEM_INVALID_ARGUMENT,
                create);
    EXPECT_FAIL(symmem_group_create(context, "a\nb", NULL, 0, NULL, &group),
                SYMMEM_INVALID_ARGUMENT, create);
    EXPECT_FAIL(symmem_group_create(context, "a\x7f", NULL, 0, NULL, &group),
                SYMMEM_INVALID_ARGUMENT, create);
    static const struct {
        int32_t ranks[RANKS + 1], count;
        symmem_status expected;
    } lists[] = {
        {{2}, 0, SYMMEM_INVALID_ARGUMENT},
        {{2}, -1, SYMMEM_INVALID_ARGUMENT},
        {{0, 1}, 2, SYMMEM_INVALID_ARGUMENT},
        {{2, 2}, 2, SYMMEM_INVALID_ARGUMENT},
        {{2, RANKS}, 2, SYMMEM_OUT_OF_RANGE},
        {{2, -1}, 2, SYMMEM_OUT_OF_RANGE},
        {{0, 1, 2, 3, 0}, 5, SYMMEM_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        EXPECT_FAIL(symmem_group_create(context, "g", lists[i].ranks, lists[i].count, NULL, &group),
                    lists[i].expected, create);
    EXPECT_FAIL(symmem_group_create(context, "g", NULL, 3, NULL, &group), SYMMEM_INVALID_ARGUMENT,
                create);
    CU_ASSERT_PTR_NULL(group);

    name[SYMMEM_NAME_MAX - 1] = 0; /* as long as allowed */
    static const int32_t some[] = {3, 2};
    symmem_group *first = NULL, *other = NULL;
    EXPECT_OK(symmem_group_create(context, name, some, 2, NULL, &first));
    EXPECT_FAIL(symmem_group_create(context, name, NULL, 0, NULL, &group), SYMMEM_EXISTS, create);
    EXPECT_OK(symmem_group_create(context, "tp 0/1: \xc3\xa9", some, 2, NULL, &other));
    CU_ASSERT_STRING_NOT_EQUAL(first->prefix, other->prefix);
    CU_ASSERT_EQUAL(strspn(other->prefix, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                          "0123456789._-/:"),
                    strlen(other->prefix));
    symmem_group *alike = NULL; /* reads the same in the store's alphabet */
    EXPECT_OK(symmem_group_create(context, "tp_0/1: \xc3\xa9", some, 2, NULL, &alike));
    CU_ASSERT_STRING_NOT_EQUAL(alike->prefix, other->prefix);
    char old_prefix[sizeof(first->prefix)];
    memcpy(old_prefix, first->prefix, sizeof(old_prefix));
    EXPECT_OK(symmem_group_destroy(first));
    EXPECT_OK(symmem_group_create(context, name, NULL, 0, NULL, &group));
    CU_ASSERT_STRING_NOT_EQUAL(group->prefix, old_prefix);
    CU_ASSERT_NOT_EQUAL(group->uid, first->uid);
    symmem_context_free(context);
    symmem_store_close(store);
}

TEST("queries") {
    symmem_store *store = NULL;
    static const int32_t ranks[] = {3, 1, 2};
    symmem_group *group = NULL, *all = NULL, *found = NULL;
    int32_t number = -1;
    const char *name = NULL;
    EXPECT_OK(symmem_store_open_memory(&store));
    symmem_context *context = world(1, RANKS, store);
    CU_ASSERT_PTR_NOT_NULL_FATAL(context);
    EXPECT_OK(symmem_group_create(context, "some", ranks, 3, NULL, &group));
    EXPECT_OK(symmem_group_create(context, "all", NULL, 0, NULL, &all));
    EXPECT_OK(symmem_group_rank(group, &number));
    CU_ASSERT_EQUAL(number, 1);
    EXPECT_OK(symmem_group_world_size(group, &number));
    CU_ASSERT_EQUAL(number, 3);
    EXPECT_OK(symmem_group_name(group, &name));
    CU_ASSERT_STRING_EQUAL(name, "some");
    EXPECT_OK(symmem_group_global_rank(group, 0, &number));
    CU_ASSERT_EQUAL(number, 3);
    EXPECT_FAIL(symmem_group_global_rank(group, 3, &number), SYMMEM_OUT_OF_RANGE,
                "group_global_rank");
    EXPECT_FAIL(symmem_group_global_rank(group, -1, &number), SYMMEM_OUT_OF_RANGE,
                "group_global_rank");
    EXPECT_OK(symmem_group_world_size(all, &number));
    CU_ASSERT_EQUAL(number, RANKS);
    EXPECT_OK(symmem_group_rank(all, &number));
    CU_ASSERT_EQUAL(number, 1);
    EXPECT_FAIL(symmem_group_rank(NULL, &number), SYMMEM_INVALID_ARGUMENT, "group_rank");
    EXPECT_FAIL(symmem_group_rank(group, NULL), SYMMEM_INVALID_ARGUMENT, "group_rank");
    EXPECT_FAIL(symmem_group_name(group, NULL), SYMMEM_INVALID_ARGUMENT, "group_name");

    EXPECT_OK(symmem_group_find(context, "some", &found));
    CU_ASSERT_PTR_EQUAL(found, group);
    EXPECT_FAIL(symmem_group_find(context, "none", &found), SYMMEM_NOT_FOUND, "group_find");
    EXPECT_FAIL(symmem_group_find(context, NULL, &found), SYMMEM_INVALID_ARGUMENT, "group_find");
    EXPECT_FAIL(symmem_group_find(context, "all", NULL), SYMMEM_INVALID_ARGUMENT, "group_find");
    EXPECT_FAIL(symmem_group_find(NULL, "all", &found), SYMMEM_NOT_INITIALISED, "group_find");

    EXPECT_OK(symmem_group_destroy(NULL));
    EXPECT_OK(symmem_group_destroy(group));
    EXPECT_FAIL(symmem_group_destroy(group), SYMMEM_STALE, "group_destroy");
    EXPECT_FAIL(symmem_group_rank(group, &number), SYMMEM_STALE, "group_rank");
    EXPECT_FAIL(symmem_group_barrier(group, 100), SYMMEM_STALE, "group_barrier");
    EXPECT_FAIL(symmem_group_find(context, "some", &found), SYMMEM_NOT_FOUND, "group_find");
    EXPECT_OK(symmem_finalize(context));
    EXPECT_FAIL(symmem_group_rank(all, &number), SYMMEM_NOT_INITIALISED, "group_rank");
    EXPECT_FAIL(symmem_group_destroy(all), SYMMEM_NOT_INITIALISED, "group_destroy");
    symmem_context_free(context);
    symmem_store_close(store);
}

/* A world of one without a store: every call works. */
TEST("alone") {
    symmem_context *context = world(0, 1, NULL);
    symmem_group *group = NULL;
    uint32_t in = 77, out = 0;
    int fd = -1, fds[2] = {-1, -1};
    CU_ASSERT_PTR_NOT_NULL_FATAL(context);
    EXPECT_OK(symmem_group_create(context, "alone", NULL, 0, NULL, &group));
    EXPECT_OK(symmem_group_all_gather(group, &in, sizeof(in), &out, TIMEOUT_MS));
    CU_ASSERT_EQUAL(out, 77);
    EXPECT_OK(symmem_group_barrier(group, SYMMEM_TIMEOUT_DEFAULT));
    CU_ASSERT_EQUAL_FATAL(pipe2(fds, O_CLOEXEC), 0);
    EXPECT_OK(symmem_group_all_gather_fds(group, fds[0], &fd, TIMEOUT_MS));
    CU_ASSERT_TRUE(fd >= 0 && fd != fds[0]);
    close(fd);
    EXPECT_OK(symmem_group_broadcast_fds(group, 0, fds[1], &fd, TIMEOUT_MS));
    CU_ASSERT_TRUE(fd >= 0 && fd != fds[1]);
    close(fd);
    close(fds[0]);
    close(fds[1]);
    symmem_context_free(context);
}

TEST("bad calls") {
    static const char gather[] = "group_all_gather";
    symmem_context *context = world(0, 1, NULL);
    symmem_group *group = NULL;
    symmem_error_record record;
    static uint8_t data[64 * 1024 + 1], out[64 * 1024 + 1];
    int fd = -1;
    CU_ASSERT_PTR_NOT_NULL_FATAL(context);
    EXPECT_OK(symmem_group_create(context, "bad", NULL, 0, NULL, &group));
    EXPECT_FAIL(symmem_group_all_gather(NULL, data, 1, out, 1), SYMMEM_INVALID_ARGUMENT, gather);
    EXPECT_FAIL(symmem_group_all_gather(group, NULL, 1, out, 1), SYMMEM_INVALID_ARGUMENT, gather);
    EXPECT_FAIL(symmem_group_all_gather(group, data, 1, NULL, 1), SYMMEM_INVALID_ARGUMENT, gather);
    EXPECT_FAIL(symmem_group_all_gather(group, data, 0, out, 1), SYMMEM_INVALID_ARGUMENT, gather);
    EXPECT_FAIL(symmem_group_all_gather(group, data, sizeof(data), out, 1), SYMMEM_OUT_OF_RANGE,
                gather);
    symmem_last_error(&record);
    CU_ASSERT_EQUAL(record.expected, 64 * 1024);
    CU_ASSERT_STRING_EQUAL(record.group, "bad");
    EXPECT_OK(symmem_group_all_gather(group, data, sizeof(data) - 1, out, TIMEOUT_MS));
    EXPECT_FAIL(symmem_group_barrier(NULL, 1), SYMMEM_INVALID_ARGUMENT, "group_barrier");
    EXPECT_FAIL(symmem_group_all_gather_fds(NULL, -1, &fd, 1), SYMMEM_INVALID_ARGUMENT,
                "group_all_gather_fds");
    EXPECT_FAIL(symmem_group_all_gather_fds(group, -2, &fd, 1), SYMMEM_INVALID_ARGUMENT,
                "group_all_gather_fds");
    EXPECT_FAIL(symmem_group_all_gather_fds(group, -1, NULL, 1), SYMMEM_INVALID_ARGUMENT,
                "group_all_gather_fds");
    EXPECT_FAIL(symmem_group_broadcast_fds(group, 1, -1, &fd, 1), SYMMEM_OUT_OF_RANGE,
                "group_broadcast_fds");
    EXPECT_FAIL(symmem_group_broadcast_fds(group, 0, -2, &fd, 1), SYMMEM_INVALID_ARGUMENT,
                "group_broadcast_fds");
    EXPECT_FAIL(symmem_group_broadcast_fds(group, 0, -1, NULL, 1), SYMMEM_INVALID_ARGUMENT,
                "group_broadcast_fds");
    EXPECT_FAIL(symmem_group_send_fd(group, 1, -1, 1), SYMMEM_OUT_OF_RANGE, "group_send_fd");
    EXPECT_FAIL(symmem_group_send_fd(group, 0, -2, 1), SYMMEM_INVALID_ARGUMENT, "group_send_fd");
    EXPECT_FAIL(symmem_group_recv_fd(group, -1, &fd, 1), SYMMEM_OUT_OF_RANGE, "group_recv_fd");
    EXPECT_FAIL(symmem_group_recv_fd(group, 0, NULL, 1), SYMMEM_INVALID_ARGUMENT, "group_recv_fd");
    symmem_context_free(context);
}

/* --- turns -------------------------------------------------------------------------- */

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
    CU_ASSERT_STRING_EQUAL(record.stage, "turn");
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

static int gather_body(symmem_context *context, int32_t rank) {
    symmem_group *group = NULL;
    int32_t out[RANKS];
    NEED(symmem_group_create(context, "all", NULL, 0, NULL, &group) == SYMMEM_OK);
    for (int32_t round = 0; round < 5; round++) {
        int32_t in = 100 * round + rank;
        NEED(symmem_group_all_gather(group, &in, sizeof(in), out, TIMEOUT_MS) == SYMMEM_OK);
        for (int32_t i = 0; i < RANKS; i++)
            NEED(out[i] == 100 * round + i);
        NEED(symmem_group_barrier(group, TIMEOUT_MS) == SYMMEM_OK);
    }
    return 0;
}

/* A permuted subset, its name used again with other members after a destroy. */
static int subset_body(symmem_context *context, int32_t rank) {
    static const int32_t ranks[] = {3, 0, 2};
    symmem_group *group = NULL;
    int32_t out[RANKS];
    if (rank != 1) {
        NEED(symmem_group_create(context, "some", ranks, 3, NULL, &group) == SYMMEM_OK);
        NEED(symmem_group_all_gather(group, &rank, sizeof(rank), out, TIMEOUT_MS) == SYMMEM_OK);
        for (int32_t i = 0; i < 3; i++)
            NEED(out[i] == ranks[i]);
        NEED(symmem_group_barrier(group, TIMEOUT_MS) == SYMMEM_OK);
        NEED(symmem_group_destroy(group) == SYMMEM_OK);
    }
    NEED(symmem_group_create(context, "some", NULL, 0, NULL, &group) == SYMMEM_OK);
    NEED(symmem_group_all_gather(group, &rank, sizeof(rank), out, TIMEOUT_MS) == SYMMEM_OK);
    for (int32_t i = 0; i < RANKS; i++)
        NEED(out[i] == i);
    NEED(symmem_group_barrier(group, TIMEOUT_MS) == SYMMEM_OK);
    return 0;
}

static int fds_body(symmem_context *context, int32_t rank) {
    symmem_group *group = NULL;
    int own[2], fds[RANKS], fd = -1;
    char letter = (char)('a' + rank), got = 0;
    NEED(symmem_group_create(context, "fds", NULL, 0, NULL, &group) == SYMMEM_OK);
    NEED(pipe2(own, O_CLOEXEC) == 0);
    NEED(symmem_group_all_gather_fds(group, own[1], fds, TIMEOUT_MS) == SYMMEM_OK);
    /* Everybody writes into the next rank's pipe. */
    NEED(write(fds[(rank + 1) % RANKS], &letter, 1) == 1);
    for (int i = 0; i < RANKS; i++)
        NEED(close(fds[i]) == 0);
    NEED(read(own[0], &got, 1) == 1);
    NEED(got == 'a' + (rank + RANKS - 1) % RANKS);
    NEED(symmem_group_broadcast_fds(group, 2, rank == 2 ? own[1] : -1, &fd, TIMEOUT_MS) ==
         SYMMEM_OK);
    NEED(write(fd, &letter, 1) == 1);
    NEED(close(fd) == 0);
    for (int i = 0; i < RANKS && rank == 2; i++)
        NEED(read(own[0], &got, 1) == 1);
    if (rank == 0)
        NEED(symmem_group_send_fd(group, 3, own[1], TIMEOUT_MS) == SYMMEM_OK);
    if (rank == 3) {
        NEED(symmem_group_recv_fd(group, 0, &fd, TIMEOUT_MS) == SYMMEM_OK);
        NEED(write(fd, "x", 1) == 1);
        NEED(close(fd) == 0);
    }
    if (rank == 0)
        NEED(read(own[0], &got, 1) == 1 && got == 'x');
    NEED(symmem_group_barrier(group, TIMEOUT_MS) == SYMMEM_OK);
    NEED(close(own[0]) == 0 && close(own[1]) == 0);
    return 0;
}

/* What a backend gets. */
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

TEST("gather") {
    run_ranks(gather_body);
}

TEST("subsets") {
    run_ranks(subset_body);
}

TEST("descriptors") {
    run_ranks(fds_body);
}

TEST("a backend's exchange") {
    run_ranks(exchange_body);
}
