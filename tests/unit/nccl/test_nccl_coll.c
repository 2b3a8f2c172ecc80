/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL backend's collectives for groups that span more than direct access, on a fake libnccl
 * and a fake driver: NCCL's own.
 */
#include "nccl_coll_ranks.h"

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
    int before = count_of(env, &nccl->collectives);
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
        symmem_graph *graph = NULL;
        CHECK_OK(env, symmem_stream_begin_capture(s->stream));
        before = atomic_load(&nccl->collectives);
        CHECK_STATUS(env, symmem_broadcast(s->handle, &shorts, 0, 0, 5000, s->stream),
                     SYMMEM_UNSUPPORTED);
        CHECK(env, atomic_load(&nccl->collectives) == before);
        CHECK_OK(env, symmem_stream_end_capture(s->stream, &graph));
        CHECK_OK(env, symmem_graph_destroy(graph));
        env_meet(env);
    }
}

static void body_works(rank_env *env) {
    void *ptr = NULL;
    scene s = {.env = env};
    s.handle = env_kept_handle(env, &ptr);
    s.data = ptr;
    CHECK(env, atomic_load(&nccl->comms) == 2 * env->world);
    CHECK(env, atomic_load(&nccl->wide) == env->world); /* and the other is for windows alone */
    if (env->plan->argument)
        s.stream = env_stream(env);
    all_reduces(&s);
    reduce_scatters(&s);
    gathers(&s);
    all_to_alls(&s);
    nothing_and_refusals(&s);
}

TEST("works") {
    static const char *const libraries[] = {PLAIN_NCCL, NEW_NCCL};
    for (int i = 0; i < 2; i++) {
        static const struct {
            int domain, world, on_stream;
        } runs[] = {{2, 4, 0}, {2, 4, 1}, {1, 2, 0}, {1, 2, 1}};
        for (int j = 0; j < 4; j++) {
            use_library(libraries[i]);
            atomic_store(&nccl->wide, 0);
            run_on(libraries[i], runs[j].domain, runs[j].world, body_works, runs[j].on_stream);
        }
        CU_ASSERT_EQUAL(atomic_load(&nccl->takers), 0);
    }
}

/* Within direct access NCCL has nothing to do with them. */
NCCL_TEST("within direct access", .world = 3) {
    (void)env_kept_handle(env, NULL);
    CHECK(env, atomic_load(&nccl->comms) == env->world);
    env_meet(env);
    CHECK(env, nccl_table()->collective->run == cuda_table.collective->run);
}

/* NCCL refuses one of the calls of a group, so the group does only a part of its work. */
APART_TEST("a call of a group is refused", .runs = 2) {
    const bool scatters = env->plan->argument != 0;
    void *ptr = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    const size_t splits[] = {1, 1, 1};
    int64_t count = 3, whole[] = {2, 3}, part[] = {2, 1};
    int out[3] = {0};
    DLTensor in = tensor_of(env, ptr, 1, &count, 32), to = tensor_of(env, out, 1, &count, 32);
    DLTensor rows = tensor_of(env, ptr, 2, whole, 32), row = tensor_of(env, out, 2, part, 32);
    /* The refused rank waits for no peer. In an all-to-all, the ranks have a barrier phase
     * before. */
    const uint32_t others_ms = scatters ? LIMIT_MS : 2000;
    const uint32_t limit_ms = env->rank == 1 ? 10000 : others_ms;
    fail_after(env, 1, FAKE_NOTED, FAKE_FAILS_AT_ONCE, 1, ncclInvalidArgument);
    symmem_status status =
        scatters
            ? symmem_reduce_scatter_out(handle, &rows, SYMMEM_SUM, true, &row, 0, limit_ms, NULL)
            : symmem_all_to_all_out(handle, &in, splits, &to, splits, 0, limit_ms, NULL);
    if (env->rank == 1)
        CHECK_STATUS(env, status, SYMMEM_BACKEND);
    else if (status != SYMMEM_OK || scatters) /* some have all that they want */
        CHECK_STATUS(env, status, SYMMEM_TIMEOUT);
    fail_none(env);
    CHECK_OK(env, symmem_handle_reset(handle, 5000));
    CHECK_STATUS(env, reduce_once(env, handle, ptr, NULL), SYMMEM_STALE);
}
