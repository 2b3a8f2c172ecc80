/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which rank takes calls on which communicator, in groups that span more than direct access: after
 * resets, and where another communicator is made; on a fake libnccl and a fake driver.
 */
#include "nccl_coll_ranks.h"
#include "coll_comm.h"
#include "driver/clock.h"

/* --- what a reset and another communicator do to others -------------------------------------- */

static void fail_rendezvous(rank_env *env, const char *point) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    env->fault_point = env->rank == 1 ? point : NULL;
    env->fault_status = SYMMEM_NO_SPACE;
    CHECK_STATUS(env, meet_at(env, ptr, 10000, &handle), SYMMEM_NO_SPACE);
    CHECK(env, env->fault_point == NULL);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

/* The group is brought up anew with its next exchange, as after any failure that ranks do not
 * share.
 */
static void bring_down(rank_env *env) {
    env_meet(env);
    if (env->rank != 1)
        CHECK_STATUS(env, symmem_group_barrier(env->group, 50), SYMMEM_TIMEOUT);
    env_meet(env);
}

/* Rank 0 calls alone. Its communicator is given up, and those of its peers stay. */
static void fail_alone(rank_env *env, symmem_handle *handle, void *ptr) {
    env_meet(env);
    if (env->rank == 0)
        CHECK_STATUS(env, reduce_once(env, handle, ptr, NULL), SYMMEM_TIMEOUT);
    env_meet(env);
}

/* A flight of the communicator before, which a held stream keeps in the list, ends no other. */
static void body_old_flight(rank_env *env) {
    void *pa = NULL, *pb = NULL;
    symmem_handle *a = env_kept_handle(env, &pa), *b = env_kept_handle(env, &pb);
    symmem_stream *stream = env_stream(env);
    reduce_well(env, a, pa, NULL);
    if (env->rank == 0) {
        fail_nccl(FAKE_COLLECTIVE, FAKE_RUNS_ON, 0, ncclSuccess);
        atomic_store(&held_stream, native_of(stream));
        CHECK_OK(env, begin_reduce(env, b, pb, stream, 0));
        nccl->call = FAKE_NO_CALL;
    }
    fail_alone(env, a, pa);
    CHECK_OK(env, symmem_handle_reset(a, 5000));
    (void)env_kept_handle(env, NULL);
    usleep(50000); /* the watcher comes round */
    fill(env, pa, N);
    env_meet(env);
    reduce_well(env, a, pa, NULL);
    if (env->rank == 0) {
        atomic_store(&held_stream, NULL);
        CHECK_STATUS(env, symmem_stream_synchronize(stream, 5000), SYMMEM_POISONED);
    }
}

/* Nothing has failed: a reset of one handle is none of the other's business. */
static void body_healthy_reset(rank_env *env) {
    void *pa = NULL, *pb = NULL;
    symmem_handle *a = env_kept_handle(env, &pa), *b = env_kept_handle(env, &pb);
    reduce_well(env, a, pa, NULL);
    CHECK_OK(env, symmem_handle_reset(a, 5000));
    reduce_well(env, b, pb, NULL);
    reduce_well(env, a, pa, NULL);
}

/* STALE until the group's next rendezvous, which is the second here: the first fails, and the group
 * is opened anew. */
static void body_reopened(rank_env *env) {
    void *pa = NULL, *pb = NULL;
    symmem_handle *a = env_kept_handle(env, &pa);
    reduce_well(env, a, pa, NULL);
    if (env->plan->argument == 1)
        bring_down(env);
    fail_rendezvous(env, "nccl.window.before");
    reduce_well(env, a, pa, NULL); /* none of its business */
    fail_alone(env, a, pa);
    CHECK_OK(env, symmem_handle_reset(a, 5000));
    CHECK_STATUS(env, reduce_once(env, a, pa, NULL), SYMMEM_STALE);
    symmem_handle *b = env_kept_handle(env, &pb);
    env_meet(env);
    reduce_well(env, b, pb, NULL);
    reduce_well(env, a, pa, NULL);
}

/* The rendezvous that makes another communicator ends the one before, which takes its time: not all
 * of the rendezvous'. */
static void body_slow_end(rank_env *env) {
    void *pa = NULL, *pb = env_memory(env);
    symmem_handle *a = env_kept_handle(env, &pa), *b = NULL;
    reduce_well(env, a, pa, NULL);
    hold_aborts(env, true);
    fail_alone(env, a, pa);
    CHECK_OK(env, symmem_handle_reset(a, 5000));
    const uint64_t begin_ns = cuda_now_ns();
    CHECK_OK(env, meet_at(env, pb, 4000, &b));
    CHECK(env,
          cuda_now_ns() - begin_ns < 3500 * CUDA_NS_PER_MS); /* the end has half of the limit */
    hold_aborts(env, false);
    reduce_well(env, a, pa, NULL);
    symmem_handle_release(b);
}

/* A rendezvous does not wait beyond its limit for a call that holds the call lock on one rank. */
static void body_turn_kept(rank_env *env) {
    void *pa = NULL, *pb = env_memory(env);
    pthread_t keeper;
    symmem_handle *a = env_kept_handle(env, &pa), *b = NULL;
    reduce_well(env, a, pa, NULL);
    fail_alone(env, a, pa);
    CHECK_OK(env, symmem_handle_reset(a, 5000));
    if (env->rank == 0)
        begin_keeping(env, &keeper);
    env_meet(env);
    uint64_t begin_ns = cuda_now_ns();
    CHECK_STATUS(env, meet_at(env, pb, 2000, &b), SYMMEM_TIMEOUT);
    CHECK(env, cuda_now_ns() - begin_ns < 6000 * CUDA_NS_PER_MS);
    CHECK(env, last_record().failed_rank == 0);
    if (env->rank == 0)
        end_keeping(env, keeper);
    /* At once: no rank is an agreement ahead. */
    CHECK_OK(env, meet_at(env, pb, 5000, &b));
    env_meet(env);
    reduce_well(env, a, pa, NULL);
    symmem_handle_release(b);
}

/* Memory that another group had registered is that of this one now, and was the last thing that
 * needed the other's communicator, whose end takes its time: not the rendezvous'. */
static void body_other_group(rank_env *env) {
    void *ptr = env_memory(env);
    symmem_handle *handle = env_rendezvous(env, ptr);
    reduce_well(env, handle, ptr, NULL);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_group_destroy(env->group));
    CHECK_OK(env, symmem_group_create(env->context, "other", NULL, 0, NULL, &env->group));
    hold_aborts(env, true);
    uint64_t begin_ns = cuda_now_ns();
    CHECK_OK(env, meet_at(env, ptr, 2500, &handle));
    CHECK(env, cuda_now_ns() - begin_ns < 2000 * CUDA_NS_PER_MS);
    hold_aborts(env, false);
    reduce_well(env, handle, ptr, NULL);
    symmem_handle_release(handle);
}

/* The rendezvous that should make another communicator fails on one rank: none has one. */
static void body_half_made(rank_env *env) {
    void *pa = NULL;
    symmem_handle *a = env_kept_handle(env, &pa);
    reduce_well(env, a, pa, NULL);
    fail_alone(env, a, pa);
    CHECK_OK(env, symmem_handle_reset(a, 5000));
    fail_rendezvous(env, "nccl.comm.done");
    env_meet(env);
    CHECK_STATUS(env, reduce_once(env, a, pa, NULL), SYMMEM_STALE);
    (void)env_kept_handle(env, NULL);
    env_meet(env);
    reduce_well(env, a, pa, NULL);
}

/* A reset fails on one rank: all say the same of other handles. */
static void body_half_reset(rank_env *env) {
    void *pa = NULL, *pb = NULL;
    symmem_handle *a = env_kept_handle(env, &pa), *b = env_kept_handle(env, &pb);
    reduce_well(env, a, pa, NULL);
    fail_alone(env, a, pa);
    env->fault_point = env->rank == 1 ? "reset.state.before" : NULL;
    env->fault_status = SYMMEM_NO_SPACE;
    CHECK_STATUS(env, symmem_handle_reset(a, 5000), SYMMEM_NO_SPACE);
    env_meet(env);
    CHECK_STATUS(env, reduce_once(env, b, pb, NULL), SYMMEM_STALE);
}

/* The reset is the first to report that a call on a stream has failed. */
static void body_reset_at_once(rank_env *env) {
    void *pa = NULL, *pb = NULL;
    symmem_stream *stream = env_stream(env);
    symmem_handle *a = env_kept_handle(env, &pa), *b = env_kept_handle(env, &pb);
    symmem_status status = SYMMEM_BUSY;
    reduce_well(env, a, pa, NULL);
    if (env->rank == 0)
        CHECK_OK(env, begin_reduce(env, a, pa, stream, LIMIT_MS));
    while (status == SYMMEM_BUSY)
        status = symmem_handle_reset(a, 5000);
    CHECK_OK(env, status);
    CHECK_STATUS(env, reduce_once(env, b, pb, NULL), SYMMEM_STALE);
    if (env->rank == 0)
        CHECK_STATUS(env, symmem_stream_synchronize(stream, 5000), SYMMEM_TIMEOUT);
}

enum { HEALTHY, FAILED, MEETS };

/* Rank 0 calls on the other handle before a reset, its peers after it. If nothing has failed, the
 * calls succeed. Otherwise rank 0's call ends, though it has no limit. In the third case a
 * rendezvous at that time keeps its limit. */
static void body_between(rank_env *env) {
    const int way = env->plan->argument;
    void *pa = NULL, *pb = NULL, *pc = env_memory(env);
    pthread_t thread;
    symmem_handle *a = env_kept_handle(env, &pa), *b = env_kept_handle(env, &pb), *c = NULL;
    other_call o = {env, b, pb, way == FAILED ? 0 : 8000, SYMMEM_OK};
    reduce_well(env, a, pa, NULL);
    if (env->rank == 0) {
        CHECK(env, pthread_create(&thread, NULL, call_other, &o) == 0);
        CHECK(env, await_other_call(env));
        usleep(20000);
    }
    env_meet(env);
    if (way == FAILED && env->rank == 1)
        CHECK_STATUS(env, reduce_once(env, a, pa, NULL), SYMMEM_TIMEOUT);
    env_meet(env);
    uint64_t begin_ns = cuda_now_ns();
    if (way == MEETS) {
        CHECK_OK(env, meet_at(env, pc, 3000, &c));
        CHECK(env, cuda_now_ns() - begin_ns < 6000 * CUDA_NS_PER_MS);
        env_meet(env);
    } else {
        CHECK_OK(env, symmem_handle_reset(a, 5000));
    }
    if (env->rank == 0) {
        CHECK(env, pthread_join(thread, NULL) == 0);
        CHECK_STATUS(env, o.status, way == FAILED ? SYMMEM_POISONED : SYMMEM_OK);
    } else {
        CHECK_STATUS(env, reduce_within(env, b, pb, NULL, 8000),
                     way == FAILED ? SYMMEM_STALE : SYMMEM_OK);
    }
    env_meet(env);
    symmem_handle_release(c);
}

/* A group that was opened anew has a mapping of the segment, and registers signals only. */
static void body_pool_reopened(rank_env *env) {
    symmem_pool *pool = NULL;
    void *one = NULL, *two = NULL;
    CHECK_OK(env, symmem_pool_create(env->context, -1, BYTES, &pool));
    CHECK_OK(env, symmem_pool_alloc(pool, 1024, &one));
    CHECK_OK(env, symmem_pool_alloc(pool, 2048, &two));
    symmem_handle *first = env_rendezvous(env, one);
    reduce_well(env, first, one, NULL);
    if (env->plan->argument == 1)
        bring_down(env);
    fail_rendezvous(env, "nccl.window.before");
    symmem_handle *second = env_rendezvous(env, two);
    env_meet(env);
    reduce_well(env, second, two, NULL);
    symmem_handle_release(first);
    symmem_handle_release(second);
    CHECK_OK(env, symmem_pool_free(pool, one));
    CHECK_OK(env, symmem_pool_free(pool, two));
    CHECK_OK(env, symmem_pool_destroy(pool));
}

TEST("resets") {
    run_apart(body_healthy_reset, 0);
    run_apart(body_half_reset, 0);
    run_apart(body_reset_at_once, 0);
    run_apart(body_between, HEALTHY);
}

TEST("another communicator") {
    run_apart(body_old_flight, 0);
    run_apart(body_reopened, 0);
    run_apart(body_reopened, 1);
    run_apart(body_half_made, 0);
    run_apart(body_slow_end, 0);
    run_apart(body_turn_kept, 0);
    run_apart(body_other_group, 0);
    run_apart(body_between, MEETS);
    run_apart(body_pool_reopened, 0);
    run_apart(body_pool_reopened, 1);
}

/* Last, and not at all where something is wrong: it would not come to an end. */
TEST("a call without a limit") {
    CU_ASSERT_EQUAL_FATAL(CU_get_number_of_failures(), 0);
    run_apart(body_between, FAILED);
}
