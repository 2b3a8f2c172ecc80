/* SPDX-License-Identifier: BSD-3-Clause */
/* Rendezvous: agreement, mismatches, absent ranks, faults at every step, caching, multicast. */
#include "link_ranks.h"

TEST("works for 1 to 5 ranks") {
    for (int32_t world = 1; world <= 5; world++)
        run_threads((plan){.world = world, .body = check_works});
}

TEST("works between processes") {
    for (int32_t world = 1; world <= 4; world += 3)
        run_processes((plan){.world = world, .body = check_works, .multicast = 1});
}

/* --- caching ---------------------------------------------------------------------------------- */

static void body_cached(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *first = env_handle(env, &ptr), *second = NULL;
    symmem_handle_info info;
    /* Local: only rank 0 calls. */
    if (env->rank == 0) {
        CHECK_OK(env, meet_at(env, (char *)ptr + 64, 100, &second));
        CHECK(env, second != first && second->link == first->link);
        CHECK_OK(env, symmem_handle_get_info(second, &info));
        CHECK(env, info.offset == 64);
        symmem_handle_release(second);
    }
    symmem_handle_release(first);
    env_meet(env);
    /* The cache keeps it without any handle. */
    CHECK_OK(env, meet_at(env, ptr, 100, &second));
    symmem_handle_release(second);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("a later rendezvous is local") {
    run_threads((plan){.world = 3, .body = body_cached});
}

static void *meet_in_thread(void *arg) {
    rank_env *env = arg;
    symmem_handle *handle = NULL;
    void *ptr = NULL;
    CHECK_OK(env, symmem_alloc_query(env->context, env->context, NULL) == SYMMEM_OK ? SYMMEM_BACKEND
                                                                                    : SYMMEM_OK);
    sm_allocation *allocation = SM_CONTAINER(env->context->allocations.next, sm_allocation, node);
    ptr = allocation->memory.ptr;
    CHECK_OK(env, meet_at(env, ptr, 10000, &handle));
    symmem_handle_release(handle);
    return NULL;
}

static void body_two_threads(rank_env *env) {
    void *ptr = NULL;
    pthread_t thread;
    rank_env other = *env;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK(env, pthread_create(&thread, NULL, meet_in_thread, &other) == 0);
    symmem_handle *handle = NULL;
    CHECK_OK(env, meet_at(env, ptr, 10000, &handle));
    pthread_join(thread, NULL);
    env->failures += other.failures;
    CHECK(env, handle != NULL && sm_list_empty(&handle->link->node) == false);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("two threads, one rendezvous") {
    run_threads((plan){.world = 2, .body = body_two_threads});
}

/* --- one odd rank ------------------------------------------------------------------- */

enum { ODD_SIZE, ODD_PAD, ODD_ID, ODD_OFFSET, ODD_BLOCK, ODD_POINTER, ODD_FREED, ODD_COUNT };

/* argument: kind * 8 + odd rank */
static void body_odd(rank_env *env) {
    int kind = env->plan->argument / 8;
    bool odd = env->plan->argument % 8 == env->rank;
    void *ptr = NULL, *other = NULL;
    symmem_handle *handle = (symmem_handle *)env;
    symmem_alloc_options options;
    symmem_alloc_options_init(&options);
    if (kind == ODD_PAD && odd)
        CHECK_OK(env, symmem_set_signal_pad_size(env->context, 4096));
    if (kind == ODD_ID)
        options.alloc_id = odd ? 7 : 8;
    symmem_pool *pool = NULL;
    if (kind == ODD_OFFSET || kind == ODD_BLOCK) {
        CHECK_OK(env, symmem_pool_create(env->context, -1, BYTES, &pool));
        if (kind == ODD_OFFSET && odd)
            CHECK_OK(env, symmem_pool_alloc(pool, 512, &other));
        CHECK_OK(env, symmem_pool_alloc(pool, kind == ODD_BLOCK && odd ? 1024 : 2048, &ptr));
    } else {
        CHECK_OK(env, symmem_alloc(env->context, kind == ODD_SIZE && odd ? 2 * BYTES : BYTES, -1,
                                   &options, &ptr));
    }
    if (kind == ODD_FREED && odd)
        CHECK_OK(env, symmem_free(env->context, ptr));
    symmem_status wanted =
        kind == ODD_POINTER || kind == ODD_FREED ? SYMMEM_NOT_SYMMETRIC : SYMMEM_MISMATCH;
    CHECK_STATUS(env, meet_at(env, kind == ODD_POINTER && odd ? env : ptr, 10000, &handle), wanted);
    CHECK(env, handle == NULL);
    symmem_error_record record = last_record();
    int32_t odd_rank = env->plan->argument % 8;
    /* With rank 0 as the odd one, rank 1 is the first that differs from it. */
    CHECK(env, record.failed_rank == (wanted == SYMMEM_MISMATCH && odd_rank == 0 ? 1 : odd_rank));
    CHECK(env, strcmp(record.operation, "rendezvous") == 0 && record.stage[0] != '\0');
    CHECK(env, strcmp(record.group, "world") == 0 && record.rank == env->rank);
    CHECK(env, wanted != SYMMEM_MISMATCH || record.expected != record.actual);
    if (kind == ODD_PAD && odd)
        CHECK_OK(env, symmem_set_signal_pad_size(env->context, 0));
    check_works(env);
}

TEST("an odd rank is named everywhere") {
    for (int kind = 0; kind < ODD_COUNT; kind++)
        for (int odd = 0; odd < 3; odd++)
            run_threads((plan){.world = 3, .body = body_odd, .argument = kind * 8 + odd});
}

static void body_small_pad(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_set_signal_pad_size(env->context, 8));
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK_STATUS(env, meet_at(env, ptr, 10000, &handle), SYMMEM_OUT_OF_RANGE);
    CHECK(env, last_record().expected == 12 && last_record().actual == 8);
    CHECK_OK(env, symmem_free(env->context, ptr));
    CHECK_OK(env, symmem_set_signal_pad_size(env->context, 12));
    symmem_handle_info info = {0};
    handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_handle_get_info(handle, &info));
    CHECK(env, info.channel_count == 1);
    symmem_handle_release(handle);
}

TEST("signal pad too small") {
    run_threads((plan){.world = 3, .body = body_small_pad});
}

static void body_overlap(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    if (env->plan->argument == env->rank)
        CHECK_OK(env, symmem_set_allow_overlapping_devices(env->context, 0));
    CHECK_OK(env, symmem_alloc(env->context, BYTES, 0, NULL, &ptr));
    if (env->plan->argument < 0) {
        CHECK_OK(env, meet_at(env, ptr, 10000, &handle));
        symmem_handle_release(handle);
    } else {
        CHECK_STATUS(env, meet_at(env, ptr, 10000, &handle), SYMMEM_OVERLAP);
        CHECK(env, last_record().failed_rank == 1);
    }
}

TEST("overlapping devices") {
    for (int refusing = -1; refusing < 3; refusing++)
        run_threads((plan){.world = 3,
                           .body = body_overlap,
                           .argument = refusing,
                           .same_device = true,
                           .overlap = true});
}

/* --- local refusals ----------------------------------------------------------------- */

static void body_local(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    symmem_context *context = env->context;
    CHECK_OK(env, symmem_alloc(context, BYTES, -1, NULL, &ptr));
    CHECK_STATUS(env, symmem_rendezvous(context, ptr, env->group, 100, NULL),
                 SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_rendezvous(NULL, ptr, env->group, 100, &handle),
                 SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_rendezvous(context, ptr, NULL, 100, &handle), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_rendezvous(context, env, NULL, 100, &handle), SYMMEM_NOT_SYMMETRIC);
    rank_env other = *env;
    env_open(&other);
    CHECK_STATUS(env, symmem_rendezvous(context, ptr, other.group, 100, &handle),
                 SYMMEM_INVALID_ARGUMENT);
    symmem_context_free(other.context);
    symmem_group *gone = NULL;
    CHECK_OK(env, symmem_group_create(context, "gone", NULL, 0, NULL, &gone));
    CHECK_OK(env, symmem_group_destroy(gone));
    CHECK_STATUS(env, symmem_rendezvous(context, ptr, gone, 100, &handle), SYMMEM_STALE);
    CHECK_OK(env, symmem_free(context, ptr));

    symmem_alloc_options options;
    symmem_alloc_options_init(&options);
    options.default_group = env->group;
    CHECK_OK(env, symmem_alloc(context, BYTES, -1, &options, &ptr));
    CHECK_OK(env, symmem_rendezvous(context, ptr, NULL, 100, &handle));
    symmem_handle_release(handle);
}

TEST("local refusals") {
    run_threads((plan){.world = 1, .body = body_local});
}

static void body_capture(rank_env *env) {
    symmem_stream *stream = NULL;
    symmem_graph *graph = NULL;
    symmem_handle *handle = NULL;
    void *ptr = NULL, *known = NULL;
    symmem_handle *cached = env_handle(env, &known);
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    if (env->rank == env->plan->argument)
        CHECK_OK(env, symmem_stream_begin_capture(stream));
    CHECK_STATUS(env, meet_at(env, ptr, 10000, &handle), SYMMEM_CAPTURE);
    CHECK(env, last_record().failed_rank == env->plan->argument);
    CHECK_OK(env, meet_at(env, known, 100, &handle));
    symmem_handle_release(handle);
    if (env->rank == env->plan->argument)
        CHECK_OK(env, symmem_stream_end_capture(stream, &graph));
    CHECK_OK(env, meet_at(env, ptr, 10000, &handle));
    symmem_handle_release(handle);
    symmem_handle_release(cached);
    CHECK_OK(env, symmem_graph_destroy(graph));
    CHECK_OK(env, symmem_stream_destroy(stream));
}

TEST("capture") {
    for (int rank = 0; rank < 2; rank++)
        run_threads((plan){.world = 2, .body = body_capture, .argument = rank});
}

/* --- absent ranks and faults -------------------------------------------------------- */

static void body_absent(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    const bool session_is_up = env->plan->argument >= 8;
    if (session_is_up)
        CHECK_OK(env, symmem_group_barrier(env->group, 10000));
    int absent = env->plan->argument % 8;
    env_meet(env); /* or who starts late is missing too */
    if (env->rank != absent) {
        env->meet_count = env->world - 1;
        env->meet_point = session_is_up ? "exchange.publish.after" : "session.join.published";
        /* In the bring-up who has come is seen once in a while only: not if it leaves at once. */
        const uint32_t limit_ms = session_is_up ? SHORT_MS : 3 * SHORT_MS;
        CHECK_STATUS(env, meet_at(env, ptr, limit_ms, &handle), SYMMEM_TIMEOUT);
        symmem_error_record record = last_record();
        CHECK(env, env->meet_point == NULL);
        CHECK(env, symmem_error_is_missing(&record, absent));
        CHECK(env, record.missing_count == 1 && record.failed_rank == absent);
        CHECK(env, record.elapsed_ns >= limit_ms * 900000ull);
    }
    env_meet(env);
    CHECK_OK(env, meet_at(env, ptr, 10000, &handle));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    check_works(env);
}

TEST("absent rank") {
    for (int absent = 0; absent < 3; absent++) {
        run_threads((plan){.world = 3, .body = body_absent, .argument = absent});
        run_threads((plan){.world = 3, .body = body_absent, .argument = 8 + absent});
    }
}

static void body_dies(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK_OK(env, symmem_group_barrier(env->group, 10000));
    env->fault_point = env->rank == 1 ? "rendezvous.map.before" : NULL;
    env->fault_status = DIE;
    uint64_t begin_ns = sm_now_ns();
    CHECK_STATUS(env, meet_at(env, ptr, 20000, &handle), SYMMEM_PEER_LOST);
    /* The other survivor may have ended as well by the time this one looks. */
    symmem_error_record record = last_record();
    CHECK(env, record.failed_rank == 1 || symmem_error_is_missing(&record, 1));
    CHECK(env, sm_now_ns() - begin_ns < 3000000000u);
}

TEST("a rank that ends") {
    run_processes((plan){.world = 3, .body = body_dies, .killed = 1});
}

static const char *const points[] = {
    "rendezvous.begin",
    "rendezvous.metadata.before",
    "rendezvous.metadata.after",
    "rendezvous.descriptors.before",
    "rendezvous.descriptors.after",
    "rendezvous.map.before",
    "rendezvous.map.after",
    "rendezvous.commit.before",
    "ipc.send.before",
    "ipc.recv.after",
};
#define POINT_COUNT (int)(sizeof points / sizeof points[0])

static void body_fault(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    int faulty = env->plan->argument % 8;
    const char *point = points[env->plan->argument / 8];
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    if (env->rank == faulty) {
        env->fault_point = point;
        env->fault_status = SYMMEM_PERMISSION;
    }
    CHECK_STATUS(env, meet_at(env, ptr, 5000, &handle), SYMMEM_PERMISSION);
    CHECK(env, handle == NULL);
    CHECK(env, last_record().failed_rank == faulty);
    CHECK(env, env->rank != faulty || env->fault_hits == 1);
    CHECK(env, strstr(point, last_record().stage) != NULL || strcmp(point, "ipc") > 0);
    CHECK(env, sm_list_empty(
                   &SM_CONTAINER(env->context->allocations.next, sm_allocation, node)->mappings));
    CHECK_OK(env, symmem_free(env->context, ptr));
    check_works(env);
}

TEST("fault at each point on each rank") {
    for (int point = 0; point < POINT_COUNT; point++)
        for (int faulty = 0; faulty < 3; faulty++)
            run_threads((plan){.world = 3,
                               .body = body_fault,
                               .argument = point * 8 + faulty,
                               .multicast = point % 2});
}

/* Between processes descriptors really matter: the rank that could not send them is named. */
TEST("faults between processes") {
    for (int point = 3; point < POINT_COUNT; point += 5)
        for (int faulty = 0; faulty < 3; faulty++)
            run_processes((plan){.world = 3, .body = body_fault, .argument = point * 8 + faulty});
}

static void body_after_commit(rank_env *env) {
    env->fault_point = "rendezvous.commit.after";
    env->fault_status = SYMMEM_PERMISSION;
    check_works(env);
    CHECK(env, env->fault_hits == 1);
}

TEST("after the commit nothing fails") {
    run_threads((plan){.world = 2, .body = body_after_commit});
}

/* --- lifetimes ---------------------------------------------------------------------- */

static void body_lifetimes(rank_env *env) {
    void *ptr = NULL;
    void *const *buffers = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    CHECK_OK(env, symmem_free(env->context, ptr));
    /* The handle keeps all memory, own and peers'. */
    *(int *)buffers[env->rank] = 7 * env->rank;
    CHECK_OK(env, symmem_barrier(handle, 1, 10000, NULL));
    for (int32_t r = 0; r < env->world; r++)
        CHECK(env, *(int *)buffers[r] == 7 * r);
    CHECK_OK(env, symmem_barrier(handle, 1, 10000, NULL));
    CHECK_OK(env, symmem_group_destroy(env->group));
    CHECK_OK(env, symmem_barrier(handle, 1, 10000, NULL));
    CHECK_STATUS(env, symmem_handle_reset(handle, 100), SYMMEM_STALE);
    const char *name = NULL;
    CHECK_OK(env, symmem_handle_group_name(handle, &name));
    CHECK(env, strcmp(name, "world") == 0);
    if (env->plan->argument == 0) {
        symmem_handle_release(handle);
        return;
    }
    CHECK_OK(env, symmem_finalize(env->context));
    CHECK_STATUS(env, symmem_barrier(handle, 1, 100, NULL), SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_handle_status(handle, NULL), SYMMEM_NOT_INITIALISED);
    *(int *)buffers[env->rank] = 3;
    symmem_handle_release(handle);
}

TEST("lifetimes") {
    run_threads((plan){.world = 3, .body = body_lifetimes, .argument = 0});
    run_threads((plan){.world = 3, .body = body_lifetimes, .argument = 1});
}

/* --- pool --------------------------------------------------------------------------- */

TEST("pool blocks") {
    run_threads((plan){.world = 3, .body = body_pool});
}
