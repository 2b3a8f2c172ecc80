/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work that cannot be noted is refused before it is enqueued: nobody waits for it, for the device
 * may be at something that takes long. The CUDA backend's calls, which are the NCCL backend's too,
 * on a fake driver.
 */
#include <symmem/ops.h>
#include <symmem/stream.h>

#include "nccl_ranks.h"

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

static const void *_Atomic held_stream;
static atomic_int launches;
static atomic_bool is_over, all_are_held;

static const char *_Atomic fails_then; /* the call that fails after one that has failed */

static void fail_next(const char *name, CUresult result) {
    fake_fail_calls(name, 0, 1, result);
}

static bool is_held(const void *stream) {
    if (atomic_load(&fails_then) != NULL && fake_calls_failed() == 1) {
        const char *then = atomic_exchange(&fails_then, NULL);
        if (then != NULL)
            fail_next(then, CUDA_ERROR_UNKNOWN);
    }
    return atomic_load(&all_are_held) || stream == atomic_load(&held_stream);
}

static symmem_cuda_fault *_Atomic last_fault; /* of a barrier, or an operation's first meeting */

static void count_launch(const char *name, void **arguments, const void *stream) {
    (void)stream;
    if (strcmp(name, "symmem_barrier") == 0)
        atomic_store(&last_fault, ((const symmem_cuda_signal_args *)arguments[0])->fault);
    if (strcmp(name, "symmem_near_barrier") == 0)
        atomic_store(&last_fault, ((const symmem_cuda_near_args *)arguments[0])->signal.fault);
    atomic_fetch_add(&launches, 1);
}

/* As the kernel does. */
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
    for (unsigned i = 0; i < LONG_MS && !atomic_load(&is_over); i++)
        usleep(1000);
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
    for (unsigned i = 0; i < LONG_MS && !fake_is_idle(); i++)
        usleep(1000);
    short_of = 0;
}

static int pending_count(const rank_env *env) {
    return atomic_load(&((cuda_instance *)env->context->instance)->pending_count);
}

/* --- on a stream --------------------------------------------------------------------- */

static int retained;

static void retain(void *object) {
    (void)object;
    retained++;
}

static void release(void *object) {
    (void)object;
    retained--;
}

static void call(void *count) {
    ++*(int *)count;
}

typedef struct target {
    symmem_handle *handle;
    char *ptr; /* of device memory */
    symmem_stream *stream;
    int calls; /* of a host function */
} target;

/* Below the core, where it is only there that an operation comes. */
static symmem_exec exec_of(const target *t) {
    static const symmem_ref ref = {retain, release, NULL};
    return (symmem_exec){.stream = t->stream->native, .refs = &ref, .ref_count = 1};
}

static symmem_status by_barrier(rank_env *env, target *t) {
    (void)env;
    return symmem_barrier(t->handle, 0, 1000, t->stream);
}

static symmem_status by_host_copy(rank_env *env, target *t) {
    static const int number = 5; /* by way of staging */
    return symmem_put(t->handle, env->rank, 0, &number, sizeof number, t->stream);
}

static symmem_status by_host_fn(rank_env *env, target *t) {
    (void)env;
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
    return nccl_table()->reduce_local(env->context->instance, env->rank, &reduce, &exec);
}

static symmem_status (*const ways[])(rank_env *env, target *t) = {by_barrier, by_host_copy,
                                                                  by_host_fn, by_reduction};

static void expect_refused(rank_env *env, target *t, size_t way, symmem_status wanted) {
    atomic_store(&held_stream, ((const cuda_stream *)t->stream->native)->native);
    begin(env);
    short_of = wanted == SYMMEM_OUT_OF_MEMORY ? sizeof(cuda_pending) : 0;
    CHECK_STATUS(env, ways[way](env, t), wanted);
    end(env);
    CHECK(env, atomic_load(&launches) == 0 && t->calls == 0 && retained == 0);
}

static void body_refused(rank_env *env) {
    void *ptr = NULL;
    target t = {.handle = env_handle(env, &ptr)};
    t.ptr = ptr;
    CHECK_OK(env, symmem_stream_create(env->context, -1, &t.stream));
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        CHECK_OK(env, ways[way](env, &t)); /* with all that is made once */
        CHECK_OK(env, symmem_stream_synchronize(t.stream, 5000));
        t.calls = 0;
        expect_refused(env, &t, way, SYMMEM_OUT_OF_MEMORY);
        fake_fail_calls("cuEventCreate", 0, 1, CUDA_ERROR_OUT_OF_MEMORY);
        expect_refused(env, &t, way, SYMMEM_NO_SPACE);
        fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
        CHECK_OK(env, symmem_stream_synchronize(t.stream, 5000));
        CHECK_OK(env, ways[way](env, &t));
        CHECK_OK(env, symmem_stream_synchronize(t.stream, 5000));
        CHECK(env, retained == 0 && t.calls == (ways[way] == by_host_fn));
        t.calls = 0;
    }
    CHECK_OK(env, symmem_stream_destroy(t.stream));
    symmem_handle_release(t.handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("on a stream") {
    use_library(PLAIN_NCCL);
    launching = count_launch;
    fake_cuda_hooks.is_busy = is_held;
    run_nccl(1, body_refused, 0);
}

/* --- without a stream ---------------------------------------------------------------- */

/* The device does not come to the kernel, and so it would be withdrawn and left behind. */
static void body_no_stream(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    begin(env);
    launching = hold_launch;
    short_of = (size_t)env->plan->argument;
    CHECK_STATUS(env, symmem_barrier(handle, 0, 100, NULL), SYMMEM_OUT_OF_MEMORY);
    CHECK(env, atomic_load(&launches) == 0);
    end(env);
    begin(env);
    CHECK_STATUS(env, symmem_barrier(handle, 0, 100, NULL), SYMMEM_TIMEOUT);
    CHECK(env, atomic_load(&launches) == 1);
    end(env);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("without a stream") {
    use_library(PLAIN_NCCL);
    fake_cuda_hooks.is_busy = is_held;
    setenv("SYMMEM_CUDA_LATE_MS", LATE_MS, 1);
    run_nccl(1, body_no_stream, (int)sizeof(cuda_pending));
    launching = NULL;
    run_nccl(1, body_no_stream, (int)sizeof(cuda_stream));
    unsetenv("SYMMEM_CUDA_LATE_MS");
}

/* --- what is under way --------------------------------------------------------------- */

/* The second kernel of an operation is refused when the first is on its stream, which is behind:
 * that is waited for as long as calls wait that have no limit, and then noted; until it is over
 * there is no reset. */
static void body_half(rank_env *env) {
    int64_t count = 1 << 18; /* a kernel for each step */
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_handle *handle = NULL;
    CHECK_OK(env, symmem_alloc(env->context, (size_t)count * 4, -1, NULL, &ptr));
    CHECK_OK(env, meet_at(env, ptr, 5000, &handle));
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    env_meet(env);
    if (env->rank == 0) {
        DLTensor all = {.data = ptr,
                        .device = {kDLCUDA, 0},
                        .ndim = 1,
                        .dtype = {kDLInt, 32, 1},
                        .shape = &count};
        atomic_store(&held_stream, ((const cuda_stream *)stream->native)->native);
        begin(env);
        fake_fail_calls("cuLaunchKernel", 1, 1, CUDA_ERROR_UNKNOWN);
        CHECK_STATUS(env, symmem_all_reduce(handle, &all, SYMMEM_SUM, &all, 5, 1000, stream),
                     SYMMEM_BACKEND);
        fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
        CHECK(env, atomic_load(&launches) == 1);
        CHECK(env, atomic_load(&((cuda_instance *)env->context->instance)->pending_count) == 1);
        write_fault(SYMMEM_POISONED);
        CHECK_STATUS(env, symmem_handle_reset(handle, 5000), SYMMEM_BUSY);
        end(env);
        /* It has been told by the call. */
        CHECK_OK(env, symmem_stream_synchronize(stream, 5000));
        CHECK(env, atomic_load(&((cuda_instance *)env->context->instance)->pending_count) == 0);
    }
    if (env->rank != 0)
        CHECK_STATUS(env, symmem_handle_reset(handle, 5000), SYMMEM_BUSY);
    env_meet(env);
    CHECK_OK(env, symmem_handle_reset(handle, 5000));
    CHECK_OK(env, symmem_stream_destroy(stream));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("a part of it fails") {
    use_library(PLAIN_NCCL);
    launching = count_launch;
    fake_cuda_hooks.is_busy = is_held;
    setenv("SYMMEM_CUDA_LATE_MS", LATE_MS, 1);
    run_nccl(2, body_half, 0);
    unsetenv("SYMMEM_CUDA_LATE_MS");
}

/* What is under way and has no mark is over then, which the watcher finds out. */
static void lose_context(rank_env *env) {
    fail_next("cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
    for (unsigned i = 0; i < LONG_MS && pending_count(env) != 0; i++)
        usleep(1000);
    CHECK(env, pending_count(env) == 0);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
}

/* The driver takes a barrier and does not mark its end. It is waited for as above, and what the
 * stream does then is told as ever. */
static void body_unmarked(rank_env *env) {
    const bool is_late = env->plan->argument != 0;
    void *ptr = NULL;
    target t = {.handle = env_handle(env, &ptr)};
    CHECK_OK(env, symmem_stream_create(env->context, -1, &t.stream));
    const void *native = ((const cuda_stream *)t.stream->native)->native;
    atomic_store(&held_stream, is_late ? native : NULL);
    begin(env);
    fail_next("cuEventRecord", CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(env, by_barrier(env, &t), SYMMEM_BACKEND);
    CHECK(env, cuda_now_ns() - begin_ns >= (is_late ? 50 : 0) * CUDA_NS_PER_MS);
    atomic_store(&held_stream, native);
    CHECK_OK(env, by_barrier(env, &t));
    CHECK(env, pending_count(env) == 1 + is_late);
    write_fault(SYMMEM_TIMEOUT);
    end(env);
    CHECK_STATUS(env, symmem_stream_synchronize(t.stream, 5000), SYMMEM_TIMEOUT);
    CHECK(env, pending_count(env) == is_late);
    CHECK_STATUS(env, symmem_handle_reset(t.handle, 5000), is_late ? SYMMEM_BUSY : SYMMEM_OK);
    if (is_late)
        lose_context(env);
    CHECK_OK(env, symmem_stream_destroy(t.stream));
    symmem_handle_release(t.handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("its end is not marked") {
    use_library(PLAIN_NCCL);
    launching = count_launch;
    fake_cuda_hooks.is_busy = is_held;
    setenv("SYMMEM_CUDA_LATE_MS", LATE_MS, 1);
    run_nccl(1, body_unmarked, false);
    run_nccl(1, body_unmarked, true);
    unsetenv("SYMMEM_CUDA_LATE_MS");
}

/* What is told is why the operation failed, and not that what is left of it has no mark. */
static void body_why(rank_env *env) {
    void *ptr = NULL;
    target t = {.handle = env_handle(env, &ptr)};
    t.ptr = ptr;
    CHECK_OK(env, symmem_stream_create(env->context, -1, &t.stream));
    atomic_store(&held_stream, ((const cuda_stream *)t.stream->native)->native);
    begin(env);
    fail_next("cuLaunchKernel", CUDA_ERROR_OUT_OF_MEMORY);
    atomic_store(&fails_then, "cuEventRecord");
    CHECK_STATUS(env, by_reduction(env, &t), SYMMEM_NO_SPACE);
    CHECK(env, last_record().status == SYMMEM_NO_SPACE);
    CHECK(env, atomic_load(&fails_then) == NULL && pending_count(env) == 1 && retained == 1);
    end(env);
    lose_context(env);
    CHECK(env, retained == 0);
    CHECK_OK(env, symmem_stream_destroy(t.stream));
    symmem_handle_release(t.handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("why it fails") {
    use_library(PLAIN_NCCL);
    fake_cuda_hooks.is_busy = is_held;
    setenv("SYMMEM_CUDA_LATE_MS", LATE_MS, 1);
    run_nccl(1, body_why, 0);
    unsetenv("SYMMEM_CUDA_LATE_MS");
}

static char own[BYTES]; /* ordinary memory, for two pieces */

/* A copy to ordinary memory that failed when its pieces were under way: the memory is the caller's
 * when the call is back. */
static void body_given_up(rank_env *env) {
    const bool is_unmarked = env->plan->argument != 0;
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    atomic_store(&held_stream, ((const cuda_stream *)stream->native)->native);
    begin(env);
    fake_fail_calls(is_unmarked ? "cuEventRecord" : "cuMemcpyAsync", is_unmarked ? 0 : 1, 1,
                    CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(env, symmem_get(handle, env->rank, 0, own, sizeof own, stream), SYMMEM_BACKEND);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
    CHECK(env, pending_count(env) == 1);
    memset(own, 7, sizeof own);
    end(env);
    CHECK_OK(env, symmem_stream_synchronize(stream, 5000));
    size_t kept = 0;
    while (kept < sizeof own && own[kept] == 7)
        kept++;
    CHECK(env, kept == sizeof own);
    if (is_unmarked)
        lose_context(env);
    CHECK(env, pending_count(env) == 0);
    CHECK_OK(env, symmem_stream_destroy(stream));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("it copies to ordinary memory") {
    use_library(PLAIN_NCCL);
    fake_cuda_hooks.is_busy = is_held;
    setenv("SYMMEM_CUDA_LATE_MS", LATE_MS, 1);
    run_nccl(1, body_given_up, false);
    run_nccl(1, body_given_up, true);
    unsetenv("SYMMEM_CUDA_LATE_MS");
}

/* What writes to memory when a call's time is over: without a note of that the memory is kept for
 * good. */
static void body_kept(rank_env *env) {
    void *first = NULL, *second = NULL;
    symmem_handle *handle = env_handle(env, &first), *none = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &second));
    begin(env);
    short_of = sizeof(cuda_pending);
    atomic_store(&all_are_held, true);
    CHECK_STATUS(env, meet_at(env, second, 400, &none), SYMMEM_TIMEOUT); /* its signals' zeros */
    end(env);
    begin(env);
    short_of = sizeof(cuda_pending);
    atomic_store(&all_are_held, true);
    CHECK_STATUS(env, symmem_handle_reset(handle, 400), SYMMEM_TIMEOUT);
    end(env);
    CHECK_OK(env, symmem_handle_reset(handle, 5000));
    CHECK_OK(env, meet_at(env, second, 5000, &none));
    symmem_handle_release(none);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, first));
    CHECK_OK(env, symmem_free(env->context, second));
}

TEST("what is kept for good") {
    use_library(PLAIN_NCCL);
    fake_cuda_hooks.is_busy = is_held;
    run_processes((plan){.world = 1, .body = body_kept, .backend = nccl_table()});
}

/* --- the first part of an operation -------------------------------------------------- */

/* An operation of a copy, if its input is not in place, and barriers. */
typedef struct gathering {
    void *ptr, *others;
    symmem_handle *handle;
    symmem_stream *stream;
    bool in_place;
} gathering;

static gathering begin_gathering(rank_env *env) {
    gathering g = {.in_place = env->plan->argument == 0};
    g.handle = env_handle(env, &g.ptr);
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &g.others));
    CHECK_OK(env, symmem_stream_create(env->context, -1, &g.stream));
    return g;
}

static symmem_status gather(const gathering *g) {
    int64_t count = 16;
    DLTensor in = {.data = g->in_place ? g->ptr : g->others,
                   .device = {kDLCUDA, 0},
                   .ndim = 1,
                   .dtype = {kDLInt, 32, 1},
                   .shape = &count};
    DLTensor out = in;
    out.data = (char *)g->others + 256;
    return symmem_low_contention_all_gather_out(g->handle, &in, &out, 0, 1000, g->stream);
}

static void expect_half(rank_env *env, const gathering *g) {
    fail_next(g->in_place ? "cuLaunchKernel" : "cuMemcpyAsync", CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(env, gather(g), SYMMEM_BACKEND);
    CHECK(env, fake_calls_failed() == 1);
}

static void end_gathering(rank_env *env, const gathering *g) {
    CHECK_OK(env, symmem_stream_destroy(g->stream));
    symmem_handle_release(g->handle);
    CHECK_OK(env, symmem_free(env->context, g->others));
    CHECK_OK(env, symmem_free(env->context, g->ptr));
}

/* It begins by clearing the state of its channel, which is on the stream when the rest of it is
 * refused, and is not to come when the memory is another's. */
static void body_first_part(rank_env *env) {
    const gathering g = begin_gathering(env);
    atomic_store(&held_stream, ((const cuda_stream *)g.stream->native)->native);
    begin(env);
    expect_half(env, &g);
    CHECK(env, pending_count(env) == 1);
    end(env);
    CHECK_OK(env, symmem_stream_synchronize(g.stream, 5000));
    CHECK(env, pending_count(env) == 0);
    CHECK_OK(env, gather(&g));
    end_gathering(env, &g);
}

TEST("its first part fails") {
    use_library(PLAIN_NCCL);
    launching = count_launch;
    fake_cuda_hooks.is_busy = is_held;
    run_nccl(1, body_first_part, false);
    run_nccl(1, body_first_part, true);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
}

/* Likewise in a capture, which goes on: its graph may be launched when the handle is gone. */
static void body_captured(rank_env *env) {
    const gathering g = begin_gathering(env);
    const cuda_instance *instance = env->context->instance;
    symmem_graph *graph = NULL;
    CHECK_OK(env, symmem_stream_begin_capture(g.stream));
    expect_half(env, &g);
    const cuda_captured *held = instance->captures->held;
    CHECK(env, held != NULL && held->ref_count > 0);
    fake_fail_calls("cuGraphInstantiateWithFlags", 0, 1, CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(env, symmem_stream_end_capture(g.stream, &graph), SYMMEM_BACKEND);
    CHECK(env, instance->captures == NULL);
    end_gathering(env, &g);
}

TEST("it is captured") {
    use_library(PLAIN_NCCL);
    launching = count_launch;
    run_nccl(1, body_captured, false);
    run_nccl(1, body_captured, true);
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
}
