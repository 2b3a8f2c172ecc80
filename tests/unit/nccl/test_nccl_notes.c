/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work that cannot be noted is refused before it is enqueued. No call waits for such work instead,
 * because the device may be busy for long. The calls are the CUDA backend's, which the NCCL backend
 * shares, on a fake driver.
 */
#include <symmem/ops.h>
#include <symmem/stream.h>

#include "nccl_ranks.h"
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/device.h"
#include "inflight/inflight.h"
#include "inflight/spare.h"

#define LATE_MS "50"
#define LONG_MS 5000u /* after that it goes on, so that a call which waits fails this test only */

/* --- what is short ------------------------------------------------------------------ */

static _Thread_local size_t short_of; /* bytes; 0: nothing */

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) {
    return short_of != 0 && size == short_of ? NULL : __real_calloc(count, size);
}

/* --- a stream with work that takes long ---------------------------------------------- */

static atomic_int launches;
static atomic_bool is_over, all_are_held;

static const char *_Atomic fails_then; /* the call that fails after one that has failed */

static void fail_next(const char *name, CUresult result) {
    fake_fail_calls(name, 0, 1, result);
}

static bool is_held_or_all(const void *stream) {
    if (atomic_load(&fails_then) != NULL && fake_calls_failed() == 1) {
        const char *then = atomic_exchange(&fails_then, NULL);
        if (then != NULL)
            fail_next(then, CUDA_ERROR_UNKNOWN);
    }
    return atomic_load(&all_are_held) || is_held(stream);
}

static symmem_cuda_fault *_Atomic last_fault; /* of a barrier, or an operation's first phase */

static void count_launch(const char *name, void **arguments, const void *stream) {
    if (strcmp(name, "symmem_barrier") == 0)
        atomic_store(&last_fault, ((const symmem_cuda_signal_args *)arguments[0])->fault);
    if (strcmp(name, "symmem_small_barrier") == 0)
        atomic_store(&last_fault,
                     ((const symmem_cuda_small_barrier_args *)arguments[0])->signal.fault);
    atomic_fetch_add(&launches, 1);
}

/* Writes the fault as the kernel does. */
static void write_fault(symmem_status status) {
    symmem_cuda_fault *fault = atomic_load(&last_fault);
    fault->failed_rank = 0;
    __atomic_store_n(&fault->code, -(uint32_t)status, __ATOMIC_RELEASE);
}

static void hold_launch(const char *name, void **arguments, const void *stream) {
    count_launch(name, arguments, stream);
    if (strncmp(name, "symmem_nccl", 11) != 0)
        atomic_store(&held_stream, stream);
}

static void *let_go(void *unused) {
    AWAIT(LONG_MS, atomic_load(&is_over));
    atomic_store(&held_stream, NULL);
    atomic_store(&all_are_held, false);
    return unused;
}

static uint64_t begin_ns;
static pthread_t letting_go;

static void begin(rank_env *env) {
    atomic_store(&launches, 0);
    atomic_store(&is_over, false);
    CHECK(env, pthread_create(&letting_go, NULL, let_go, NULL) == 0);
    begin_ns = cuda_now_ns();
}

static void end(rank_env *env) {
    CHECK(env, cuda_now_ns() - begin_ns < LONG_MS / 2 * CUDA_NS_PER_MS);
    atomic_store(&is_over, true);
    CHECK(env, pthread_join(letting_go, NULL) == 0);
    AWAIT(LONG_MS, fake_is_idle());
    short_of = 0;
}

/* Ranks whose streams may be held. */
static void run_held(plan p) {
    use_library(PLAIN_NCCL);
    launching = count_launch;
    fake_cuda_hooks.is_busy = is_held_or_all;
    run_nccl(p.world, p.body, p.argument);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
}

/* Which is late soon. */
static void run_late(plan p) {
    setenv("SYMMEM_CUDA_LATE_MS", LATE_MS, 1);
    run_held(p);
    unsetenv("SYMMEM_CUDA_LATE_MS");
}

#define HELD_TEST(case_name, ...) RANKS_TEST_(case_name, __COUNTER__, run_held, __VA_ARGS__)
#define LATE_TEST(case_name, ...) RANKS_TEST_(case_name, __COUNTER__, run_late, __VA_ARGS__)

static int pending_count(const rank_env *env) {
    return atomic_load(&((cuda_instance *)env->context->instance)->pending_count);
}

/* --- on a stream --------------------------------------------------------------------- */

static int retained;

static void retain(void *object) {
    retained++;
}

static void release(void *object) {
    retained--;
}

static void call(void *count) {
    ++*(int *)count;
}

typedef struct target {
    symmem_handle *handle;
    char *ptr; /* of device memory */
    symmem_stream *stream;
    int calls;    /* of a host function */
    void *others; /* memory without a handle */
} target;

static target target_of(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    return (target){.handle = handle, .ptr = ptr, .stream = env_stream(env)};
}

static void hold(const target *t) {
    atomic_store(&held_stream, native_of(t->stream));
}

static DLTensor ints(void *data, int64_t *count) {
    return (DLTensor){
        .data = data, .device = {kDLCUDA, 0}, .ndim = 1, .dtype = {kDLInt, 32, 1}, .shape = count};
}

/* Below the core, where it is only there that an operation comes. */
static symmem_exec exec_of(const target *t) {
    static const symmem_ref ref = {retain, release, NULL};
    return (symmem_exec){.stream = t->stream->native, .refs = &ref, .ref_count = 1};
}

static symmem_status by_barrier(rank_env *env, target *t) {
    return symmem_barrier(t->handle, 0, 1000, t->stream);
}

static symmem_status by_host_copy(rank_env *env, target *t) {
    static const int number = 5; /* by way of staging */
    return symmem_put(t->handle, env->rank, 0, &number, sizeof number, t->stream);
}

static symmem_status by_host_fn(rank_env *env, target *t) {
    return symmem_stream_host_fn(t->stream, call, &t->calls);
}

static symmem_status by_reduction(rank_env *env, target *t) {
    const symmem_local_reduce reduce = {.size = sizeof reduce,
                                        .dtype = SYMMEM_INT32,
                                        .op = SYMMEM_SUM,
                                        .src_count = 1,
                                        .count = 1,
                                        .src = t->ptr,
                                        .src_stride = 4,
                                        .dst = t->ptr + 64};
    const symmem_exec exec = exec_of(t);
    return nccl_table()->matmul->reduce_local(env->context->instance, env->rank, &reduce, &exec);
}

static symmem_status (*const ways[])(rank_env *env, target *t) = {by_barrier, by_host_copy,
                                                                  by_host_fn, by_reduction};

static void expect_refused(rank_env *env, target *t, size_t way, symmem_status wanted) {
    hold(t);
    begin(env);
    short_of = wanted == SYMMEM_OUT_OF_MEMORY ? sizeof(cuda_pending) : 0;
    CHECK_STATUS(env, ways[way](env, t), wanted);
    end(env);
    CHECK(env, atomic_load(&launches) == 0 && t->calls == 0 && retained == 0);
}

/* Entries and events that are kept from work that is over. */
static void use_no_kept(rank_env *env) {
    cuda_instance *instance = env->context->instance;
    CHECK_OK(env, cuda_enter(instance, 0, "events"));
    cuda_spares_end(instance, 0);
    cuda_kept_events_end(instance, 0);
    cuda_leave(instance);
}

HELD_TEST("on a stream", .world = 1) {
    target t = target_of(env);
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        CHECK_OK(env, ways[way](env, &t)); /* with all that is made once */
        CHECK_OK(env, symmem_stream_synchronize(t.stream, 5000));
        t.calls = 0;
        use_no_kept(env);
        expect_refused(env, &t, way, SYMMEM_OUT_OF_MEMORY);
        use_no_kept(env);
        fake_fail_calls("cuEventCreate", 0, 1, CUDA_ERROR_OUT_OF_MEMORY);
        expect_refused(env, &t, way, SYMMEM_NO_SPACE);
        fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
        CHECK_OK(env, symmem_stream_synchronize(t.stream, 5000));
        CHECK_OK(env, ways[way](env, &t));
        CHECK_OK(env, symmem_stream_synchronize(t.stream, 5000));
        CHECK(env, retained == 0 && t.calls == (ways[way] == by_host_fn));
        t.calls = 0;
    }
}

/* --- without a stream ---------------------------------------------------------------- */

/* The device does not reach the kernel, so the call would be stopped at the launch timeout. */
LATE_TEST("without a stream", .world = 1, .runs = 2) {
    symmem_handle *handle = env_kept_handle(env, NULL);
    begin(env);
    launching = hold_launch;
    short_of = env->plan->argument == 0 ? sizeof(cuda_pending) : sizeof(cuda_stream);
    CHECK_STATUS(env, symmem_barrier(handle, 0, 100, NULL), SYMMEM_OUT_OF_MEMORY);
    CHECK(env, atomic_load(&launches) == 0);
    end(env);
    begin(env);
    CHECK_STATUS(env, symmem_barrier(handle, 0, 100, NULL), SYMMEM_TIMEOUT);
    CHECK(env, atomic_load(&launches) == 1);
    end(env);
}

/* --- what is under way --------------------------------------------------------------- */

/* The second kernel of an operation is refused when the first is on its stream, which is behind:
 * that is waited for as long as calls wait that have no limit, and then noted; until it is over
 * there is no reset. */
LATE_TEST("a part of it fails", .world = 2) {
    int64_t count = 1 << 18; /* a kernel for each step */
    target t = {.stream = env_stream(env)};
    void *ptr = NULL;
    CHECK_OK(env, symmem_alloc(env->context, (size_t)count * 4, -1, NULL, &ptr));
    t.handle = env_rendezvous(env, ptr);
    env_meet(env);
    if (env->rank == 0) {
        DLTensor all = ints(ptr, &count);
        hold(&t);
        begin(env);
        fake_fail_calls("cuLaunchKernel", 1, 1, CUDA_ERROR_UNKNOWN);
        CHECK_STATUS(env, symmem_all_reduce(t.handle, &all, SYMMEM_SUM, &all, 5, 1000, t.stream),
                     SYMMEM_BACKEND);
        fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
        CHECK(env, atomic_load(&launches) == 1);
        CHECK(env, pending_count(env) == 1);
        write_fault(SYMMEM_POISONED);
        CHECK_STATUS(env, symmem_handle_reset(t.handle, 5000), SYMMEM_BUSY);
        end(env);
        /* The call has reported it. */
        CHECK_OK(env, symmem_stream_synchronize(t.stream, 5000));
        CHECK(env, pending_count(env) == 0);
    } else {
        CHECK_STATUS(env, symmem_handle_reset(t.handle, 5000), SYMMEM_BUSY);
    }
    env_meet(env);
    CHECK_OK(env, symmem_handle_reset(t.handle, 5000));
    env_drop(env, t.handle, ptr);
}

/* Loses the context. The watcher then finds that work without a mark is over. */
static void lose_context(rank_env *env) {
    fail_next("cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
    AWAIT(LONG_MS, pending_count(env) == 0);
    CHECK(env, pending_count(env) == 0);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
}

/* The driver takes a barrier and does not mark its end. It is waited for as above, and what the
 * stream does then is told as ever. */
LATE_TEST("its end is not marked", .world = 1, .runs = 2) {
    const bool is_late = env->plan->argument != 0;
    target t = target_of(env);
    atomic_store(&held_stream, is_late ? native_of(t.stream) : NULL);
    begin(env);
    fail_next("cuEventRecord", CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(env, by_barrier(env, &t), SYMMEM_BACKEND);
    CHECK(env, cuda_now_ns() - begin_ns >= (is_late ? 50 : 0) * CUDA_NS_PER_MS);
    hold(&t);
    CHECK_OK(env, by_barrier(env, &t));
    /* What is over stays until the next look, at the latest the watcher's. */
    CHECK(env, pending_count(env) >= 1 + is_late && pending_count(env) <= 2);
    write_fault(SYMMEM_TIMEOUT);
    end(env);
    CHECK_STATUS(env, symmem_stream_synchronize(t.stream, 5000), SYMMEM_TIMEOUT);
    CHECK(env, pending_count(env) == is_late);
    CHECK_STATUS(env, symmem_handle_reset(t.handle, 5000), is_late ? SYMMEM_BUSY : SYMMEM_OK);
    if (is_late)
        lose_context(env);
}

/* The record tells why the operation failed, and not that its remaining work has no mark. */
LATE_TEST("why it fails", .world = 1) {
    target t = target_of(env);
    hold(&t);
    begin(env);
    fail_next("cuLaunchKernel", CUDA_ERROR_OUT_OF_MEMORY);
    atomic_store(&fails_then, "cuEventRecord");
    CHECK_STATUS(env, by_reduction(env, &t), SYMMEM_NO_SPACE);
    CHECK(env, last_record().status == SYMMEM_NO_SPACE);
    CHECK(env, atomic_load(&fails_then) == NULL && pending_count(env) == 1 && retained == 1);
    end(env);
    lose_context(env);
    CHECK(env, retained == 0);
}

static char own[BYTES]; /* ordinary memory, for two pieces */

/* A copy to ordinary memory that failed when its pieces were under way: the memory is the caller's
 * when the call is back. */
LATE_TEST("it copies to ordinary memory", .world = 1, .runs = 2) {
    const bool is_unmarked = env->plan->argument != 0;
    target t = target_of(env);
    hold(&t);
    begin(env);
    fake_fail_calls(is_unmarked ? "cuEventRecord" : "cuMemcpyAsync", is_unmarked ? 0 : 1, 1,
                    CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(env, symmem_get(t.handle, env->rank, 0, own, sizeof own, t.stream),
                 SYMMEM_BACKEND);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
    CHECK(env, pending_count(env) == 1);
    memset(own, 7, sizeof own);
    end(env);
    CHECK_OK(env, symmem_stream_synchronize(t.stream, 5000));
    size_t kept = 0;
    while (kept < sizeof own && own[kept] == 7)
        kept++;
    CHECK(env, kept == sizeof own);
    if (is_unmarked)
        lose_context(env);
    CHECK(env, pending_count(env) == 0);
}

/* Begins work that writes to memory after the call's limit. Without a note of the work the memory
 * is kept for good. */
static void begin_unnoted(rank_env *env) {
    begin(env);
    short_of = sizeof(cuda_pending);
    atomic_store(&all_are_held, true);
}

/* The memory of such work is kept for good. */
static void body_kept(rank_env *env) {
    symmem_handle *handle = env_kept_handle(env, NULL), *none = NULL;
    void *second = env_memory(env);
    begin_unnoted(env);
    CHECK_STATUS(env, meet_at(env, second, 400, &none), SYMMEM_TIMEOUT); /* its signals' zeros */
    end(env);
    begin_unnoted(env);
    CHECK_STATUS(env, symmem_handle_reset(handle, 400), SYMMEM_TIMEOUT);
    end(env);
    CHECK_OK(env, symmem_handle_reset(handle, 5000));
    (void)env_kept_rendezvous(env, second);
}

TEST("what is kept for good") {
    use_library(PLAIN_NCCL);
    fake_cuda_hooks.is_busy = is_held_or_all;
    run_processes((plan){.world = 1, .body = body_kept, .backend = nccl_table()});
}

/* --- the first part of an operation -------------------------------------------------- */

static bool is_in_place(const rank_env *env) {
    return env->plan->argument == 0;
}

/* An operation of a copy, if its input is not in place, and barriers. */

static symmem_status gather(rank_env *env, const target *t) {
    int64_t count = 16;
    DLTensor in = ints(is_in_place(env) ? t->ptr : t->others, &count);
    DLTensor out = ints((char *)t->others + 256, &count);
    return symmem_low_contention_all_gather_out(t->handle, &in, &out, 0, 1000, t->stream);
}

static void expect_half(rank_env *env, const target *t) {
    fail_next(is_in_place(env) ? "cuLaunchKernel" : "cuMemcpyAsync", CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(env, gather(env, t), SYMMEM_BACKEND);
    CHECK(env, fake_calls_failed() == 1);
}

/* The operation begins by clearing the state of its channel. The clearing is on the stream when the
 * rest is refused, and must not run after the memory is reused. */
HELD_TEST("its first part fails", .world = 1, .runs = 2) {
    target t = target_of(env);
    t.others = env_memory(env);
    env->context->check_collectives = is_in_place(env); /* or a small one is not composed */
    hold(&t);
    begin(env);
    expect_half(env, &t);
    CHECK(env, pending_count(env) == 1);
    end(env);
    CHECK_OK(env, symmem_stream_synchronize(t.stream, 5000));
    CHECK(env, pending_count(env) == 0);
    CHECK_OK(env, gather(env, &t));
}

/* The same in a capture, which goes on: its graph may be launched after the handle is released. */
HELD_TEST("it is captured", .world = 1, .runs = 2) {
    target t = target_of(env);
    const cuda_instance *instance = env->context->instance;
    symmem_graph *graph = NULL;
    t.others = env_memory(env);
    CHECK_OK(env, symmem_stream_begin_capture(t.stream));
    expect_half(env, &t);
    const cuda_captured *held = instance->captures->held;
    CHECK(env, held != NULL && held->ref_count > 0);
    fake_fail_calls("cuGraphInstantiateWithFlags", 0, 1, CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(env, symmem_stream_end_capture(t.stream, &graph), SYMMEM_BACKEND);
    CHECK(env, instance->captures == NULL);
}
