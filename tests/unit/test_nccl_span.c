/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL backend's collectives for groups that span more than direct access, on a fake libnccl
 * and a fake driver: NCCL's own, with limits that the host keeps.
 */
#include <symmem/ops.h>
#include <symmem/stream.h>

#include <sys/mman.h>

#include "nccl_ranks.h"

#define N 6 /* elements, of each rank where there is one part a rank */

static DLTensor tensor_of(rank_env *env, void *data, int ndim, int64_t *shape, uint8_t bits) {
    return (DLTensor){.data = data,
                      .device = {kDLCUDA, env->rank},
                      .ndim = ndim,
                      .dtype = {kDLInt, bits, 1},
                      .shape = shape};
}

/* What a rank's element i is before an operation. */
static int value(int32_t rank, int i) {
    return 100 * (rank + 1) + i;
}

static void fill(rank_env *env, int *data, int count) {
    env_meet(env);
    for (int i = 0; i < count; i++)
        data[i] = value(env->rank, i);
}

static int sum(rank_env *env, int i) {
    int total = 0;
    for (int32_t r = 0; r < env->world; r++)
        total += value(r, i);
    return total;
}

/* --- what they compute -------------------------------------------------------------- */

typedef struct scene {
    rank_env *env;
    symmem_handle *handle;
    symmem_stream *stream; /* NULL: to completion */
    int *data;             /* symmetric */
    int out[64];
} scene;

static void done(scene *s, symmem_status status) {
    CHECK_OK(s->env, status);
    if (s->stream != NULL)
        CHECK_OK(s->env, symmem_stream_synchronize(s->stream, 5000));
}

static void all_reduces(scene *s) {
    rank_env *env = s->env;
    int64_t count = N;
    int in[N];
    DLTensor symmetric = tensor_of(env, s->data, 1, &count, 32);
    DLTensor private = tensor_of(env, s->out, 1, &count, 32);
    DLTensor other = tensor_of(env, in, 1, &count, 32);
    fill(env, s->data, N);
    done(s, symmem_all_reduce(s->handle, &symmetric, SYMMEM_SUM, &private, 0, 5000, s->stream));
    for (int i = 0; i < N; i++)
        CHECK(env, s->out[i] == sum(env, i) && s->data[i] == value(env->rank, i));
    fill(env, in, N);
    done(s, symmem_all_reduce(s->handle, &other, SYMMEM_MAX, &private, 1, 5000, s->stream));
    for (int i = 0; i < N; i++)
        CHECK(env, s->out[i] == value(env->world - 1, i));
    done(s, symmem_all_reduce(s->handle, &other, SYMMEM_SUM, &symmetric, 1, 5000, s->stream));
    for (int i = 0; i < N; i++)
        CHECK(env, s->data[i] == sum(env, i));
    fill(env, s->data, N);
    done(s, symmem_all_reduce(s->handle, &symmetric, SYMMEM_MIN, &symmetric, 0, 5000, s->stream));
    for (int i = 0; i < N; i++)
        CHECK(env, s->data[i] == value(0, i));
}

static void reduce_scatters(scene *s) {
    rank_env *env = s->env;
    int64_t whole[] = {2, (int64_t)N * env->world}, part[] = {2, N};
    DLTensor in = tensor_of(env, s->data, 2, whole, 32);
    DLTensor out = tensor_of(env, s->out, 2, part, 32);
    fill(env, s->data, 2 * N * env->world);
    done(s, symmem_reduce_scatter_out(s->handle, &in, SYMMEM_SUM, true, &out, 0, 5000, s->stream));
    for (int row = 0; row < 2; row++)
        for (int i = 0; i < N; i++)
            CHECK(env, s->out[row * N + i] == sum(env, (row * env->world + env->rank) * N + i));
    whole[0] = (int64_t)N * env->world;
    part[0] = N;
    in.ndim = out.ndim = 1;
    done(s, symmem_reduce_scatter_out(s->handle, &in, SYMMEM_SUM, false, &out, 0, 5000, s->stream));
    for (int i = 0; i < N; i++)
        CHECK(env, s->out[i] == sum(env, env->rank * N + i));
}

static void gathers(scene *s) {
    rank_env *env = s->env;
    int64_t part = N, whole = (int64_t)N * env->world;
    int in[N];
    DLTensor from = tensor_of(env, s->data, 1, &part, 32);
    DLTensor to = tensor_of(env, s->out, 1, &whole, 32);
    fill(env, s->data, N);
    done(s, symmem_all_gather_out(s->handle, &from, &to, 0, 5000, s->stream));
    for (int i = 0; i < N * env->world; i++)
        CHECK(env, s->out[i] == value(i / N, i % N));
    from.data = in;
    to.data = s->data;
    fill(env, in, N);
    done(s, symmem_all_gather_out(s->handle, &from, &to, 0, 5000, s->stream));
    for (int i = 0; i < N * env->world; i++)
        CHECK(env, s->data[i] == value(i / N, i % N));
    from = tensor_of(env, s->data, 1, &part, 32);
    for (int32_t root = 0; root < env->world; root++) {
        fill(env, s->data, N);
        done(s, symmem_broadcast(s->handle, &from, root, 0, 5000, s->stream));
        for (int i = 0; i < N; i++)
            CHECK(env, s->data[i] == value(root, i));
    }
}

static size_t split(int32_t from, int32_t to) {
    return (size_t)(2 * from + to) % 3;
}

static void all_to_alls(scene *s) {
    rank_env *env = s->env;
    size_t in_splits[MAX_RANKS], out_splits[MAX_RANKS];
    int64_t sent = 0, got = 0;
    for (int32_t r = 0; r < env->world; r++) {
        in_splits[r] = split(env->rank, r);
        out_splits[r] = split(r, env->rank);
        sent += (int64_t)in_splits[r];
        got += (int64_t)out_splits[r];
    }
    DLTensor in = tensor_of(env, s->data, 1, &sent, 32), out = tensor_of(env, s->out, 1, &got, 32);
    fill(env, s->data, (int)sent);
    done(s, symmem_all_to_all_out(s->handle, &in, in_splits, &out, out_splits, 0, 5000, s->stream));
    const int *at = s->out;
    for (int32_t r = 0; r < env->world; r++) {
        int before = 0;
        for (int32_t p = 0; p < env->rank; p++)
            before += (int)split(r, p);
        for (int i = 0; i < (int)split(r, env->rank); i++)
            CHECK(env, *at++ == value(r, before + i));
    }
}

static void nothing_and_refusals(scene *s) {
    rank_env *env = s->env;
    int64_t none = 0, count = N;
    DLTensor empty = tensor_of(env, s->data, 1, &none, 32);
    DLTensor shorts = tensor_of(env, s->data, 1, &count, 16);
    env_meet(env);
    int before = atomic_load(&nccl->collectives);
    env_meet(env);
    done(s, symmem_all_reduce(s->handle, &empty, SYMMEM_SUM, &empty, 0, 5000, s->stream));
    env_meet(env);
    CHECK(env, atomic_load(&nccl->collectives) == before + env->world); /* they met */
    env_meet(env);
    CHECK_STATUS(env,
                 symmem_all_reduce(s->handle, &shorts, SYMMEM_SUM, &shorts, 0, 5000, s->stream),
                 SYMMEM_UNSUPPORTED);
    CHECK(env, strstr(last_record().message, "NCCL") != NULL);
    CHECK_OK(env, symmem_broadcast(s->handle, &shorts, 0, 0, 5000, NULL));
    CHECK_STATUS(env, symmem_barrier(s->handle, 0, 1000, NULL), SYMMEM_UNREACHABLE);
    env_meet(env);
    if (s->stream != NULL) {
        if (env->rank == 0)
            fake_cuda.captures = true;
        env_meet(env);
        before = atomic_load(&nccl->collectives);
        CHECK_STATUS(env, symmem_broadcast(s->handle, &shorts, 0, 0, 5000, s->stream),
                     SYMMEM_UNSUPPORTED);
        CHECK(env, atomic_load(&nccl->collectives) == before);
        env_meet(env);
        if (env->rank == 0)
            fake_cuda.captures = false;
        env_meet(env);
    }
}

static void body_works(rank_env *env) {
    void *ptr = NULL;
    scene s = {.env = env};
    s.handle = env_handle(env, &ptr);
    if (s.handle == NULL)
        return;
    s.data = ptr;
    CHECK(env, atomic_load(&nccl->comms) == 2 * env->world);
    if (env->plan->argument)
        CHECK_OK(env, symmem_stream_create(env->context, -1, &s.stream));
    all_reduces(&s);
    reduce_scatters(&s);
    gathers(&s);
    all_to_alls(&s);
    nothing_and_refusals(&s);
    env_meet(env);
    if (s.stream != NULL)
        CHECK_OK(env, symmem_stream_destroy(s.stream));
    symmem_handle_release(s.handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

static void test_works(void) {
    static const char *const libraries[] = {PLAIN_NCCL, NEW_NCCL};
    for (int i = 0; i < 2; i++) {
        use_library(libraries[i]);
        nccl->domain = 2;
        run_nccl(4, body_works, 0);
        run_nccl(4, body_works, 1);
        nccl->domain = 1;
        run_nccl(2, body_works, i);
        nccl->domain = 0;
        CU_ASSERT_EQUAL(atomic_load(&nccl->takers), 0);
    }
}

/* Within direct access NCCL has nothing to do with them. */
static void body_within(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK(env, atomic_load(&nccl->comms) == env->world);
    env_meet(env);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    CHECK(env, nccl_table()->collective == cuda_table.collective);
}

static void test_within(void) {
    use_library(PLAIN_NCCL);
    run_nccl(3, body_within, 0);
}

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

/* Less than NCCL_LOSS_MS: what NCCL says is told at the limit, and is no TIMEOUT. */
#define LIMIT_MS 300u

static symmem_status reduce_within(rank_env *env, symmem_handle *handle, void *data,
                                   symmem_stream *stream, uint32_t limit_ms) {
    int64_t count = N;
    DLTensor all = tensor_of(env, data, 1, &count, 32);
    symmem_status status = symmem_all_reduce(handle, &all, SYMMEM_SUM, &all, 0, limit_ms, stream);
    if (status == SYMMEM_OK && stream != NULL)
        status = symmem_stream_synchronize(stream, 10000);
    return status;
}

static symmem_status reduce_once(rank_env *env, symmem_handle *handle, void *data,
                                 symmem_stream *stream) {
    return reduce_within(env, handle, data, stream, LIMIT_MS);
}

/* Any rendezvous of the group gives all of its handles another communicator. */
static void reduce_anew(rank_env *env, symmem_handle *handle, void *ptr, symmem_stream *stream) {
    void *other = NULL;
    symmem_handle *second = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &other));
    CHECK_OK(env, meet_at(env, other, 10000, &second));
    if (handle == NULL) { /* that is poisoned: the new one */
        handle = second;
        ptr = other;
    }
    fill(env, ptr, N);
    env_meet(env);
    CHECK_OK(env, reduce_once(env, handle, ptr, stream));
    for (int i = 0; i < N; i++)
        CHECK(env, ((int *)ptr)[i] == sum(env, i));
    env_meet(env);
    symmem_handle_release(second);
    CHECK_OK(env, symmem_free(env->context, other));
}

/* The communicator is gone. */
static void mend(rank_env *env, symmem_handle *handle, void *ptr, symmem_stream *stream) {
    CHECK_OK(env, symmem_handle_reset(handle, 5000));
    CHECK_STATUS(env, reduce_once(env, handle, ptr, stream), SYMMEM_STALE);
    reduce_anew(env, handle, ptr, stream);
}

/* Whoever fails is told first; then the watcher gives the communicator up. */
static bool are_given_up(const rank_env *env) {
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 10000 && atomic_load(&nccl->comms) != env->world; i++)
        nanosleep(&pause, NULL);
    return atomic_load(&nccl->comms) == env->world;
}

static void body_troubles(rank_env *env) {
    const trouble *wanted = &troubles[env->plan->argument];
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    if (handle == NULL)
        return;
    if (wanted->on_stream)
        CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    CHECK_OK(env, reduce_once(env, handle, ptr, stream));
    env_meet(env);
    if (env->rank == 0) {
        nccl->way = wanted->way;
        nccl->rank = 1;
        nccl->result = wanted->result;
        atomic_store(&nccl->skip, 0);
        nccl->call = FAKE_COLLECTIVE;
    }
    env_meet(env);
    uint64_t begin_ns = cuda_now_ns();
    uint32_t limit_ms = wanted->limit_ms != 0 ? wanted->limit_ms : LIMIT_MS;
    symmem_status status = reduce_within(env, handle, ptr, stream, limit_ms);
    uint64_t elapsed_ms = (cuda_now_ns() - begin_ns) / CUDA_NS_PER_MS;
    CHECK(env, elapsed_ms < limit_ms + 4000);
    if (wanted->limit_ms != 0 && env->rank == 1) /* held back, and no longer than it should be */
        CHECK(env, elapsed_ms + 50 >= NCCL_LOSS_MS && elapsed_ms < wanted->limit_ms - 100);
    if (wanted->way == FAKE_RUNS_ON) /* whom it hits is open */
        CHECK(env, status == SYMMEM_TIMEOUT);
    else
        CHECK_STATUS(env, status, env->rank == 1 ? wanted->wanted : SYMMEM_TIMEOUT);
    env_meet(env);
    if (env->rank == 0)
        nccl->call = FAKE_NO_CALL;
    env_meet(env);
    CHECK(env, are_given_up(env));
    env_meet(env);
    CHECK_STATUS(env, reduce_once(env, handle, ptr, stream), SYMMEM_POISONED);
    mend(env, handle, ptr, stream);
    if (stream != NULL)
        CHECK_OK(env, symmem_stream_destroy(stream));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

static void test_troubles(void) {
    use_library(PLAIN_NCCL);
    nccl->domain = 1;
    for (size_t i = 0; i < sizeof troubles / sizeof troubles[0]; i++)
        run_nccl(3, body_troubles, (int)i);
    nccl->domain = 0;
}

/* One of the calls of a group is refused: what the group then does is not the whole of it. */
static void body_refused(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    if (handle == NULL)
        return;
    const size_t splits[] = {1, 1, 1};
    int64_t count = 3, whole[] = {2, 3}, part[] = {2, 1};
    int out[3] = {0};
    DLTensor in = tensor_of(env, ptr, 1, &count, 32), to = tensor_of(env, out, 1, &count, 32);
    DLTensor rows = tensor_of(env, ptr, 2, whole, 32), row = tensor_of(env, out, 2, part, 32);
    if (env->rank == 0) {
        nccl->rank = 1;
        nccl->result = ncclInvalidArgument;
        atomic_store(&nccl->skip, 1);
        nccl->call = FAKE_NOTED;
    }
    env_meet(env);
    symmem_status status =
        env->plan->argument == 0
            ? symmem_all_to_all_out(handle, &in, splits, &to, splits, 0, LIMIT_MS, NULL)
            : symmem_reduce_scatter_out(handle, &rows, SYMMEM_SUM, true, &row, 0, LIMIT_MS, NULL);
    if (env->rank == 1)
        CHECK_STATUS(env, status, SYMMEM_BACKEND);
    env_meet(env);
    if (env->rank == 0)
        nccl->call = FAKE_NO_CALL;
    CHECK(env, are_given_up(env));
    env_meet(env);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

static void test_refused(void) {
    use_library(PLAIN_NCCL);
    nccl->domain = 1;
    run_nccl(3, body_refused, 0);
    run_nccl(3, body_refused, 1);
    nccl->domain = 0;
}

/* Who did not call has nothing under way, and has to hear of it all the same. */
static void body_one_calls(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    if (handle == NULL)
        return;
    CHECK_OK(env, reduce_once(env, handle, ptr, NULL));
    env_meet(env);
    if (env->rank == 0)
        CHECK_STATUS(env, reduce_once(env, handle, ptr, NULL), SYMMEM_TIMEOUT);
    env_meet(env);
    if (env->plan->argument == 1) /* and before any reset */
        reduce_anew(env, NULL, NULL, NULL);
    mend(env, handle, ptr, NULL);
    env_meet(env);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

static void test_one_calls(void) {
    use_library(PLAIN_NCCL);
    nccl->domain = 1;
    run_nccl(3, body_one_calls, 0);
    run_nccl(3, body_one_calls, 1);
    nccl->domain = 0;
}

enum { ON_STREAM = 1, NCCL_FIRST = 2 };
static atomic_int *leaving; /* in memory that the processes share */

/* A rank that is no more, of which NCCL may know first, as an error. */
static void body_ends(rank_env *env) {
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    if (handle == NULL)
        return;
    if ((env->plan->argument & ON_STREAM) != 0)
        CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    CHECK_OK(env, symmem_group_barrier(env->group, 20000));
    bool nccl_first = (env->plan->argument & NCCL_FIRST) != 0;
    if (env->rank == 1) {
        atomic_store(leaving, 1);
        usleep(nccl_first ? 10000 : 0);
        raise(SIGKILL); /* sanitizers take a second to exit */
    }
    while (nccl_first && atomic_load(leaving) == 0)
        usleep(100);
    if (nccl_first) { /* this process's library */
        nccl->way = FAKE_FAILS_LATER;
        nccl->rank = env->rank;
        nccl->result = ncclInternalError;
        atomic_store(&nccl->skip, 0);
        nccl->call = FAKE_COLLECTIVE;
    }
    int64_t count = N;
    DLTensor all = tensor_of(env, ptr, 1, &count, 32);
    uint64_t begin_ns = cuda_now_ns();
    symmem_status status = symmem_all_reduce(handle, &all, SYMMEM_SUM, &all, 0, 0, stream);
    if (status == SYMMEM_OK && stream != NULL)
        status = symmem_stream_synchronize(stream, 10000);
    CHECK_STATUS(env, status, SYMMEM_PEER_LOST);
    CHECK(env, last_record().failed_rank == 1);
    CHECK(env, cuda_now_ns() - begin_ns < 4000 * CUDA_NS_PER_MS);
    usleep(700000); /* nobody is to miss this rank as well */
    if (stream != NULL)
        CHECK_OK(env, symmem_stream_destroy(stream));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

static void test_ends(void) {
    use_library(PLAIN_NCCL);
    nccl->domain = 1;
    leaving =
        mmap(NULL, sizeof *leaving, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(leaving, MAP_FAILED);
    for (int i = 0; i <= (ON_STREAM | NCCL_FIRST); i++) {
        atomic_store(leaving, 0);
        run_processes((plan){
            .world = 3, .body = body_ends, .argument = i, .backend = nccl_table(), .killed = 1});
    }
    munmap(leaving, sizeof *leaving);
    nccl->domain = 0;
}

static const named_test tests[] = {
    {"works", test_works},     {"within direct access", test_within},
    {"limits", test_troubles}, {"one rank calls", test_one_calls},
    {"ranks end", test_ends},  {"a call of a group is refused", test_refused},
};

int main(void) {
    return RUN_TESTS("nccl_span", tests);
}
