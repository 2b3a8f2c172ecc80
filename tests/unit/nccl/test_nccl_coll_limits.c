/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits and ends of the NCCL backend's collectives for groups that span more than direct access,
 * on a fake libnccl and a fake driver: NCCL's kernels know none, so the host keeps them.
 */

#include "nccl_coll_ranks.h"
#include "coll_comm.h"
#include "comm.h"
#include "driver/clock.h"

/* --- limits ------------------------------------------------------------------------- */

typedef struct trouble {
    fake_nccl_way way;
    ncclResult_t result;
    symmem_status wanted; /* of the rank that it hits */
    bool on_stream;
    uint32_t limit_ms; /* 0: LIMIT_MS */
} trouble;

static const trouble troubles[] = {
    {FAKE_NEVER_ENDS, ncclSuccess, SYMMEM_TIMEOUT, false, 0},
    {FAKE_NEVER_ENDS, ncclSuccess, SYMMEM_TIMEOUT, true, 0},
    {FAKE_RUNS_ON, ncclSuccess, SYMMEM_TIMEOUT, false, 0},
    {FAKE_RUNS_ON, ncclSuccess, SYMMEM_TIMEOUT, true, 0},
    {FAKE_FAILS_AT_ONCE, ncclInvalidUsage, SYMMEM_BACKEND, false, 0},
    {FAKE_FAILS_AT_ONCE, ncclInvalidUsage, SYMMEM_BACKEND, true, 0},
    {FAKE_FAILS_LATER, ncclRemoteError, SYMMEM_PEER_LOST, true, 0},
    {FAKE_FAILS_LATER, ncclInternalError, SYMMEM_BACKEND, false, 0},
    {FAKE_FAILS_LATER, ncclInternalError, SYMMEM_BACKEND, true, 0},
    {FAKE_FAILS_LATER, ncclInternalError, SYMMEM_BACKEND, true, 1500},
};

/* Any rendezvous of the group gives all of its handles another communicator. */
static void reduce_anew(rank_env *env, symmem_handle *handle, void *ptr, symmem_stream *stream) {
    void *other = NULL;
    symmem_handle *second = env_kept_handle(env, &other);
    if (handle == NULL) { /* that is poisoned: the new one */
        handle = second;
        ptr = other;
    }
    fill(env, ptr, N);
    env_meet(env);
    reduce_well(env, handle, ptr, stream);
    for (int i = 0; i < N; i++)
        CHECK(env, ((int *)ptr)[i] == sum(env, i));
    env_meet(env);
}

/* The communicator is gone. */
static void mend(rank_env *env, symmem_handle *handle, void *ptr, symmem_stream *stream) {
    CHECK_OK(env, symmem_handle_reset(handle, 5000));
    CHECK_STATUS(env, reduce_once(env, handle, ptr, stream), SYMMEM_STALE);
    reduce_anew(env, handle, ptr, stream);
}

static uint64_t ms_since(uint64_t begin_ns) {
    return (cuda_now_ns() - begin_ns) / CUDA_NS_PER_MS;
}

/* Waits for the watcher to give communicators up, which it does after the failing call is told. */
static bool come_to(int comms) {
    AWAIT(10000, atomic_load(&nccl->comms) == comms);
    return atomic_load(&nccl->comms) == comms;
}

/* On a busy machine NCCL's error may come when the limit is nearly over, or only after it. */
static bool is_told_late(const trouble *wanted, uint64_t begin_ns) {
    const uint64_t failed_ns = atomic_load(&nccl->failed_ns); /* or of an earlier call */
    return wanted->way == FAKE_FAILS_LATER && wanted->limit_ms == 0 &&
           (failed_ns < begin_ns || failed_ns - begin_ns > LIMIT_MS / 3 * CUDA_NS_PER_MS);
}

APART_TEST("limits", .runs = sizeof troubles / sizeof troubles[0]) {
    const trouble *wanted = &troubles[env->plan->argument];
    void *ptr = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    symmem_stream *stream = wanted->on_stream ? env_stream(env) : NULL;
    reduce_well(env, handle, ptr, stream);
    fail_after(env, 0, FAKE_COLLECTIVE, wanted->way, 1, wanted->result);
    uint64_t begin_ns = cuda_now_ns();
    uint32_t limit_ms = wanted->limit_ms != 0 ? wanted->limit_ms : LIMIT_MS;
    symmem_status status = reduce_within(env, handle, ptr, stream, limit_ms);
    uint64_t elapsed_ms = ms_since(begin_ns);
    CHECK(env, elapsed_ms < limit_ms + 4000);
    if (wanted->limit_ms != 0 && env->rank == 1) /* held back, and no longer than it should be */
        CHECK(env, elapsed_ms + 50 >= NCCL_LOSS_MS && elapsed_ms < wanted->limit_ms - 100);
    if (wanted->way == FAKE_RUNS_ON) /* whom it hits is open */
        CHECK(env, status == SYMMEM_TIMEOUT);
    else if (status != SYMMEM_TIMEOUT || !is_told_late(wanted, begin_ns))
        CHECK_STATUS(env, status, env->rank == 1 ? wanted->wanted : SYMMEM_TIMEOUT);
    fail_none(env);
    CHECK(env, come_to(env->world));
    env_meet(env);
    CHECK_STATUS(env, reduce_once(env, handle, ptr, stream), SYMMEM_POISONED);
    mend(env, handle, ptr, stream);
}

/* A rank that did not call has no work in flight, and still has to learn of the failure. */
APART_TEST("one rank calls", .runs = 2) {
    void *ptr = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    reduce_well(env, handle, ptr, NULL);
    if (env->rank == 0)
        CHECK_STATUS(env, reduce_once(env, handle, ptr, NULL), SYMMEM_TIMEOUT);
    env_meet(env);
    if (env->plan->argument == 1) /* and before any reset */
        reduce_anew(env, NULL, NULL, NULL);
    mend(env, handle, ptr, NULL);
}

/* A call that waits in NCCL for its peers does not keep another one beyond its limit. */
APART_TEST("one call beside another", .runs = 1) {
    void *pa = NULL, *pb = NULL;
    symmem_handle *a = env_kept_handle(env, &pa), *b = env_kept_handle(env, &pb);
    symmem_stream *stream = env_stream(env);
    reduce_well(env, a, pa, NULL);
    fail_after(env, 0, FAKE_COLLECTIVE, FAKE_RUNS_ON, 0, ncclSuccess);
    if (env->rank == 0) {
        uint64_t begin_ns = cuda_now_ns();
        CHECK_OK(env, begin_reduce(env, a, pa, stream, LIMIT_MS));
        CHECK_STATUS(env, reduce_within(env, b, pb, NULL, 6000), SYMMEM_POISONED);
        CHECK_STATUS(env, symmem_stream_synchronize(stream, 10000), SYMMEM_TIMEOUT);
        CHECK(env, cuda_now_ns() - begin_ns < 4000 * CUDA_NS_PER_MS);
    }
    fail_none(env);
}

static atomic_bool is_over, has_returned;

static bool is_running(const void *stream) {
    return !atomic_load(&is_over) && is_held(stream);
}

/* Lets go what would hold a call for ever, so that one without a limit fails this test only. The
 * fake driver goes on with a stream when it is asked for it. */
static void *let_go(void *stream) {
    bool idle = false;
    AWAIT(4000, atomic_load(&has_returned));
    atomic_store(&held_stream, NULL);
    atomic_store(&is_over, true);
    while (symmem_stream_query(stream, &idle) == SYMMEM_OK && !idle)
        usleep(1000);
    return NULL;
}

static void expect_at_limit(rank_env *env, uint64_t begin_ns) {
    uint64_t elapsed_ms = ms_since(begin_ns);
    CHECK(env, elapsed_ms >= LIMIT_MS && elapsed_ms < LIMIT_MS + 2500);
}

enum { LONG_LIMIT, NO_LIMIT };

/* A call waits for the call lock, which another call holds in NCCL while its peers do not come. The
 * first call waits neither beyond its limit nor for the communicator's end, which takes long if the
 * other call has no limit. */
static void body_behind(rank_env *env) {
    const bool without = env->plan->argument == NO_LIMIT;
    void *pa = NULL, *pb = NULL;
    pthread_t thread;
    symmem_handle *a = env_kept_handle(env, &pa), *b = env_kept_handle(env, &pb);
    other_call first = {env, a, pa, without ? 0 : 7000, SYMMEM_OK};
    reduce_well(env, a, pa, NULL);
    if (env->rank == 0) {
        CHECK(env, pthread_create(&thread, NULL, call_other, &first) == 0);
        CHECK(env, await_other_call(env));
        usleep(20000);
        atomic_store(&nccl->held, without);
        uint64_t begin_ns = cuda_now_ns();
        CHECK_STATUS(env, reduce_within(env, b, pb, NULL, LIMIT_MS), SYMMEM_TIMEOUT);
        expect_at_limit(env, begin_ns);
        CHECK(env, last_record().elapsed_ns >= LIMIT_MS * CUDA_NS_PER_MS);
        atomic_store(&nccl->held, 0);
        CHECK(env, pthread_join(thread, NULL) == 0);
        CHECK_STATUS(env, first.status, SYMMEM_POISONED);
        CHECK(env, ms_since(begin_ns) < 5000);
        CHECK_STATUS(env, reduce_once(env, b, pb, NULL), SYMMEM_POISONED);
    }
    env_meet(env);
    CHECK_OK(env, symmem_handle_reset(b, 5000));
    mend(env, a, pa, NULL);
}

/* A handle and a stream on which a collective has gone well. */
static symmem_handle *begin_on_stream(rank_env *env, void **ptr, symmem_stream **stream) {
    symmem_handle *handle = env_kept_handle(env, ptr);
    *stream = env_stream(env);
    reduce_well(env, handle, *ptr, *stream);
    return handle;
}

/* Calls on the stream, and is let go when the limit is over. */
static void call_held(rank_env *env, symmem_handle *handle, void *ptr, symmem_stream *stream) {
    pthread_t thread;
    atomic_store(&has_returned, false);
    CHECK(env, pthread_create(&thread, NULL, let_go, stream) == 0);
    uint64_t begin_ns = cuda_now_ns();
    CHECK_OK(env, begin_reduce(env, handle, ptr, stream, LIMIT_MS));
    expect_at_limit(env, begin_ns);
    atomic_store(&has_returned, true);
    CHECK_STATUS(env, symmem_stream_synchronize(stream, 5000), SYMMEM_TIMEOUT);
    CHECK(env, pthread_join(thread, NULL) == 0);
}

/* NCCL waits for peers in the call, whatever keeps the stream from getting there. */
static void body_late_stream(rank_env *env) {
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_handle *handle = begin_on_stream(env, &ptr, &stream);
    if (env->rank == 0) {
        atomic_store(&held_stream, native_of(stream));
        call_held(env, handle, ptr, stream);
    }
    env_meet(env);
    mend(env, handle, ptr, stream);
}

/* After the call has left NCCL, its limit counts from when the stream reaches the work. */
static void body_stream_in_time(rank_env *env) {
    const uint32_t limit_ms = 3000; /* in which all streams get there */
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_handle *handle = begin_on_stream(env, &ptr, &stream);
    if (env->rank == 0)
        atomic_store(&held_stream, native_of(stream));
    env_meet(env);
    CHECK_OK(env, begin_reduce(env, handle, ptr, stream, limit_ms));
    usleep((limit_ms + 200) * 1000);
    env_meet(env);
    atomic_store(&held_stream, NULL);
    CHECK_OK(env, symmem_stream_synchronize(stream, 5000));
}

/* The driver does not take the callback behind the collective, whose kernel does not end: the call
 * waits for the stream, and the limit ends that; also where the stream is behind other work, of
 * which no limit is known. */
static void body_no_callback(rank_env *env) {
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_handle *handle = begin_on_stream(env, &ptr, &stream);
    if (env->rank == 0) {
        fail_nccl(FAKE_COLLECTIVE, FAKE_RUNS_ON, 0, ncclSuccess);
        atomic_store(&is_over, false);
        fake_cuda_hooks.is_busy = is_running;
        fake_fail_calls("cuLaunchHostFunc", 1, 1, CUDA_ERROR_UNKNOWN);
        if (env->plan->argument != 0)
            atomic_store(&held_stream, native_of(stream));
        call_held(env, handle, ptr, stream);
        CHECK(env, fake_calls_failed() == 1);
        fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
        nccl->call = FAKE_NO_CALL;
    }
    env_meet(env);
    mend(env, handle, ptr, stream);
}

/* A call that ends before it has the call lock was not in NCCL, where its peers may be. No call
 * goes on with that communicator. */
static void body_no_turn(rank_env *env) {
    void *pa = NULL, *pb = NULL;
    pthread_t thread;
    symmem_handle *a = env_kept_handle(env, &pa), *b = env_kept_handle(env, &pb);
    reduce_well(env, a, pa, NULL);
    if (env->rank == 0) {
        begin_keeping(env, &thread);
        uint64_t begin_ns = cuda_now_ns();
        CHECK_STATUS(env, reduce_once(env, a, pa, NULL), SYMMEM_TIMEOUT);
        expect_at_limit(env, begin_ns);
        CHECK_STATUS(env, reduce_once(env, b, pb, NULL), SYMMEM_STALE);
        end_keeping(env, thread);
    }
    env_meet(env);
    mend(env, a, pa, NULL);
}

/* The driver refuses a call that is about to begin, and the peers do not know that. No call goes on
 * with that communicator, because NCCL would pair the peers' next call with this one. */
static void body_no_begin(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    reduce_well(env, handle, ptr, NULL);
    if (env->rank == 0) {
        fake_fail_calls("cuLaunchHostFunc", 0, 1, CUDA_ERROR_UNKNOWN);
        CHECK_STATUS(env, reduce_once(env, handle, ptr, NULL), SYMMEM_BACKEND);
        fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
        CHECK_STATUS(env, reduce_once(env, handle, ptr, NULL), SYMMEM_STALE);
    }
    env_meet(env);
    reduce_anew(env, handle, ptr, NULL);
}

TEST("one call behind another") {
    run_apart(body_no_turn, 0);
    run_apart(body_no_begin, 0);
    run_apart(body_behind, LONG_LIMIT);
    CU_ASSERT_EQUAL_FATAL(CU_get_number_of_failures(), 0); /* the next one would not end */
    run_apart(body_behind, NO_LIMIT);
}

TEST("a stream that is behind") {
    run_apart(body_stream_in_time, 0);
    run_apart(body_late_stream, 0);
    run_apart(body_no_callback, 0);
    run_apart(body_no_callback, 1);
}

/* --- what is short ------------------------------------------------------------------ */

static _Thread_local bool is_short; /* of threads */

__typeof__(pthread_create) __real_pthread_create, __wrap_pthread_create;
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *argument) {
    return is_short ? EAGAIN : __real_pthread_create(thread, attributes, body, argument);
}

/* No rank has called NCCL by then, so all ranks take part in the next call. */
APART_TEST("no thread for the limits", .runs = 1) {
    void *ptr = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    is_short = true;
    CHECK_STATUS(env, reduce_once(env, handle, ptr, NULL), SYMMEM_LIMIT);
    is_short = false;
    CHECK(env, last_record().system_errno == EAGAIN);
    CHECK(env, strstr(last_record().message, "thread") != NULL);
    env_meet(env);
    reduce_well(env, handle, ptr, NULL);
}

/* --- a device that is lost ---------------------------------------------------------- */

static atomic_bool is_broken;

static sm_link *_Atomic breaks_with; /* as soon as that is poisoned; NULL: it does not */

static bool is_lost(const void *stream) {
    const sm_link *link = atomic_load(&breaks_with);
    const bool broken = atomic_load(&is_broken) || (link != NULL && atomic_load(&link->poisoned));
    return broken && nccl->is_running(stream);
}

static void *break_soon(void *unused) {
    usleep(100000);
    atomic_store(&is_broken, true);
    return unused;
}

/* Whether no call in flight is watched any more. A watched call keeps its handle and the memory of
 * its failure. */
static bool are_forgotten(nccl_state *state) {
    pthread_mutex_lock(&state->lock);
    const bool none = state->inflights == NULL;
    pthread_mutex_unlock(&state->lock);
    return none;
}

enum { LOST_ON_STREAM, LOST_IN_CALL, LOST_WITHDRAWN };

static int calls_before; /* of NCCL */

/* Takes the call lock after the next call, which holds it for as long as it is in NCCL. */
static void *keep_turn_next(void *span) {
    AWAIT(10000, atomic_load(&nccl->collectives) != calls_before);
    return keep_turn(span);
}

static void begin_keeping_next(rank_env *env, pthread_t *keeper) {
    calls_before = atomic_load(&nccl->collectives);
    keep_by(env, keeper, keep_turn_next);
}

/* The last call exceeds its limit, and nothing can end its communicator. */
static void call_and_lose(rank_env *env, symmem_handle *handle, void *ptr, symmem_stream *stream) {
    const int way = env->plan->argument;
    pthread_t thread;
    if (way == LOST_WITHDRAWN) {
        atomic_store(&breaks_with, handle->link);
        begin_keeping_next(env, &thread);
        CHECK_STATUS(env, reduce_once(env, handle, ptr, NULL), SYMMEM_TIMEOUT);
        CHECK(env, are_forgotten(nccl_state_of(env->context->instance)));
        end_keeping(env, thread);
        return;
    }
    CHECK(env, pthread_create(&thread, NULL, break_soon, NULL) == 0);
    CHECK_STATUS(env, begin_reduce(env, handle, ptr, way == LOST_ON_STREAM ? stream : NULL, 20000),
                 way == LOST_ON_STREAM ? SYMMEM_OK : SYMMEM_BACKEND);
    CHECK(env, pthread_join(thread, NULL) == 0);
}

static void lose_device(rank_env *env, symmem_handle *handle, void *ptr, symmem_stream *stream) {
    cuda_instance *instance = env->context->instance;
    nccl_state *state = nccl_state_of(instance);
    fail_nccl(FAKE_COLLECTIVE, FAKE_RUNS_ON, 0, ncclSuccess);
    call_and_lose(env, handle, ptr, stream);
    AWAIT(5000, atomic_load(&instance->pending_count) == 0);
    CHECK(env, atomic_load(&instance->pending_count) == 0);
    CHECK(env, are_forgotten(state));
    if (env->plan->argument != LOST_WITHDRAWN) /* peers may wait in NCCL, without a limit */
        CHECK(env, come_to(2 * env->world - 1));
    nccl->call = FAKE_NO_CALL;
    CHECK(env, nccl_coll_comm_end(instance, state->coll_comms, NCCL_ANY_SERIAL,
                                  cuda_now_ns() + 10000 * CUDA_NS_PER_MS));
    atomic_store(&is_broken, false);
    atomic_store(&breaks_with, NULL);
}

/* The driver makes no callbacks on a lost device. */
static void body_lost(rank_env *env) {
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_handle *handle = begin_on_stream(env, &ptr, &stream);
    if (env->rank == 0)
        lose_device(env, handle, ptr, stream);
}

TEST("a device that is lost") {
    fake_cuda_hooks.is_lost = is_lost; /* before there are streams that ask */
    setenv("SYMMEM_CUDA_LATE_MS", "50", 1);
    for (int way = LOST_ON_STREAM; way <= LOST_WITHDRAWN; way++)
        run_apart(body_lost, way);
    unsetenv("SYMMEM_CUDA_LATE_MS");
    fake_cuda_hooks.is_lost = NULL;
}

/* --- a kernel that goes on ----------------------------------------------------------- */

#define STAY_MS 1000u /* a limit before which the keeper or the watcher has the call lock */

static void *go_on_late(void *unused) {
    usleep(1000 * (STAY_MS + 1500));
    atomic_store(&turn_goes_on, true);
    return unused;
}

/* NCCL's kernels cannot be told to leave the caller's memory alone: a call without a stream that is
 * over its limit does not return before they have ended. */
static void stay_with_kernel(rank_env *env, symmem_handle *handle, void *ptr) {
    cuda_instance *instance = env->context->instance;
    pthread_t keeper, helper;
    fail_nccl(FAKE_COLLECTIVE, FAKE_RUNS_ON, 0, ncclSuccess);
    begin_keeping_next(env, &keeper);
    CHECK(env, pthread_create(&helper, NULL, go_on_late, NULL) == 0);
    CHECK_STATUS(env, reduce_within(env, handle, ptr, NULL, STAY_MS), SYMMEM_TIMEOUT);
    CHECK(env, atomic_load(&turn_goes_on));
    CHECK(env, atomic_load(&instance->pending_count) == 0);
    nccl->call = FAKE_NO_CALL;
    CHECK(env, pthread_join(helper, NULL) == 0);
    end_keeping(env, keeper);
}

static void body_stays(rank_env *env) {
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_handle *handle = begin_on_stream(env, &ptr, &stream);
    if (env->rank == 0)
        stay_with_kernel(env, handle, ptr);
}

TEST("a kernel that goes on") {
    setenv("SYMMEM_CUDA_LATE_MS", "50", 1);
    run_apart(body_stays, 0);
    unsetenv("SYMMEM_CUDA_LATE_MS");
}

/* --- ends --------------------------------------------------------------------------- */

enum { ON_STREAM = 1, NCCL_FIRST = 2 };
/* In memory that the processes share: whether rank 1 is, and how many have seen all of it. */
static atomic_int *leaving, *through;

/* Waits until all ranks have looked, so that none misses another rank as well. */
static void leave_together(int ranks) {
    atomic_fetch_add(through, 1);
    AWAIT(20000, atomic_load(through) >= ranks);
}

/* A rank that is no more, of which NCCL may know first, as an error. */
static void body_ends(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    symmem_stream *stream = (env->plan->argument & ON_STREAM) != 0 ? env_stream(env) : NULL;
    CHECK_OK(env, symmem_group_barrier(env->group, 20000));
    bool nccl_first = (env->plan->argument & NCCL_FIRST) != 0;
    if (env->rank == 1 && nccl_first)
        die_soon(leaving);
    else if (env->rank == 1)
        raise(SIGKILL); /* sanitizers take a second to exit */
    if (nccl_first) {
        await_death(leaving);
        fail_nccl(FAKE_COLLECTIVE, FAKE_FAILS_LATER, env->rank,
                  ncclInternalError); /* this process's library */
    }
    uint64_t begin_ns = cuda_now_ns();
    CHECK_STATUS(env, reduce_within(env, handle, ptr, stream, 0), SYMMEM_PEER_LOST);
    CHECK(env, last_record().failed_rank == 1);
    CHECK(env, cuda_now_ns() - begin_ns < 4000 * CUDA_NS_PER_MS);
    leave_together(2);
}

TEST("ranks end") {
    use_library(PLAIN_NCCL);
    nccl->domain = 1;
    leaving =
        mmap(NULL, 2 * sizeof *leaving, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(leaving, MAP_FAILED);
    through = leaving + 1;
    for (int i = 0; i <= (ON_STREAM | NCCL_FIRST); i++) {
        atomic_store(leaving, 0);
        atomic_store(through, 0);
        run_processes((plan){
            .world = 3, .body = body_ends, .argument = i, .backend = nccl_table(), .killed = 1});
    }
    munmap(leaving, 2 * sizeof *leaving);
    nccl->domain = 0;
}
