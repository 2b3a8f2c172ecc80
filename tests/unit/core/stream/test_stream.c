/* SPDX-License-Identifier: BSD-3-Clause */
/* What a backend lacks, and the last work that a stream has had. */
#include "link_ranks.h"

static void bump(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void hold(void *arg) {
    for (int i = 0; i < 10000 && atomic_load((atomic_int *)arg) == 0; i++)
        sm_sleep_ns(1000000);
}

/* --- the instance ends with the last work ------------------------------------------- */

static pthread_t worker;
static atomic_int closed; /* 1; 2: by the stream's own thread */

static void note_close(void *instance) {
    bool inside = pthread_equal(pthread_self(), worker);
    symmem_backend_entry(SYMMEM_BACKEND_ABI)->instance->close(instance);
    atomic_store(&closed, inside ? 2 : 1);
}

static void note_worker(void *arg) {
    worker = pthread_self();
    hold(arg);
}

enum { LAST_LINK, LAST_ALLOCATION, LAST_INSTANCE, LAST_KINDS };

static void enqueue_last(rank_env *env, const uint32_t *from, void *to, symmem_stream *stream) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    switch (env->plan->argument) {
    case LAST_LINK:
        handle = env_handle(env, &ptr);
        CHECK_OK(env, symmem_get(handle, 0, 0, to, 4, stream));
        symmem_handle_release(handle);
        break;
    case LAST_ALLOCATION:
        CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
        CHECK_OK(env, symmem_copy(env->context, to, ptr, 4, stream));
        break;
    default:
        CHECK_OK(env, symmem_copy(env->context, to, from, 4, stream));
        break;
    }
}

/* close may wait for the stream's thread, so nothing that runs there may call it. */
RANKS_TEST("last work", .world = 1, .runs = LAST_KINDS, .entries = {.close = note_close}) {
    symmem_stream *stream = NULL;
    atomic_int gate = 0;
    uint32_t from = 0;
    _Atomic uint32_t to = 1;
    atomic_store(&closed, 0);
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    CHECK_OK(env, symmem_stream_host_fn(stream, note_worker, &gate));
    enqueue_last(env, &from, &to, stream);
    env->context->default_timeout_ms = 20;
    CHECK_STATUS(env, symmem_stream_destroy(stream), SYMMEM_TIMEOUT);
    symmem_context_free(env->context);
    env->context = NULL;
    CHECK(env, atomic_load(&closed) == 0);
    atomic_store(&gate, 1);
    for (int i = 0; i < 10000 && atomic_load(&closed) == 0; i++)
        sm_sleep_ns(1000000);
    CHECK(env, atomic_load(&closed) == 1);
    for (int i = 0; i < 10000 && atomic_load(&to) != 0;
         i++) /* closed too early: it is written yet */
        sm_sleep_ns(1000000);
    CHECK(env, atomic_load(&to) == 0);
}

/* --- capabilities that lack -------------------------------------------------------------- */

static void body_lacking(rank_env *env) {
    symmem_context *context = env->context;
    symmem_stream *stream = NULL;
    symmem_event *event = NULL;
    symmem_graph *graph = NULL;
    bool flag;
    if (env->plan->argument == 0) { /* no streams at all */
        CHECK_STATUS(env, symmem_stream_create(context, 0, &stream), SYMMEM_UNSUPPORTED);
        CHECK_STATUS(env, symmem_event_create(context, 0, &event), SYMMEM_UNSUPPORTED);
        return;
    }
    CHECK_OK(env, symmem_stream_create(context, 0, &stream));
    CHECK_STATUS(env, symmem_stream_begin_capture(stream), SYMMEM_UNSUPPORTED);
    CHECK_STATUS(env, symmem_stream_is_capturing(stream, &flag), SYMMEM_UNSUPPORTED);
    CHECK_STATUS(env, symmem_stream_end_capture(stream, &graph), SYMMEM_UNSUPPORTED);
    CHECK_STATUS(env, symmem_stream_host_fn(stream, bump, NULL), SYMMEM_UNSUPPORTED);
    CHECK_OK(env, symmem_stream_synchronize(stream, 100));
    CHECK_OK(env, symmem_stream_destroy(stream));
}

TEST("lacking") {
    const uint64_t some = SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN;
    for (int kind = 0; kind < 2; kind++)
        run_threads((plan){.world = 1,
                           .body = body_lacking,
                           .without = kind == 0 ? some | SYMMEM_CAP_STREAMS : some,
                           .argument = kind});
}

/* --- an index whose keys are all the same ------------------------------------------------ */

static atomic_bool keys_collide;

uint64_t __real_sm_index_key(const void *object, uint64_t number);
uint64_t __wrap_sm_index_key(const void *object, uint64_t number);
uint64_t __wrap_sm_index_key(const void *object, uint64_t number) {
    return atomic_load(&keys_collide) ? 7 : __real_sm_index_key(object, number);
}

static symmem_graph *capture_barriers(rank_env *env, symmem_stream *stream, symmem_handle *first,
                                      symmem_handle *second) {
    symmem_graph *graph = NULL;
    CHECK_OK(env, symmem_stream_begin_capture(stream));
    CHECK_OK(env, symmem_barrier(first, 0, 10000, stream));
    CHECK_OK(env, symmem_barrier(first, 0, 10000, stream));
    CHECK_OK(env, symmem_barrier(second, 1, 10000, stream));
    CHECK_OK(env, symmem_stream_end_capture(stream, &graph));
    return graph;
}

/* Only what a graph uses is busy while it runs. */
static void check_busy(rank_env *env, symmem_graph *graph, symmem_handle *used,
                       symmem_handle *unused) {
    atomic_int gate = 0;
    symmem_stream *stream = NULL;
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    CHECK_OK(env, symmem_stream_host_fn(stream, hold, &gate));
    CHECK_OK(env, symmem_graph_launch(graph, stream));
    CHECK_STATUS(env, symmem_handle_reset(used, 10000), SYMMEM_BUSY);
    CHECK_OK(env, symmem_handle_reset(unused, 10000));
    atomic_store(&gate, 1);
    CHECK_OK(env, symmem_stream_synchronize(stream, 10000));
    CHECK_OK(env, symmem_handle_reset(used, 10000));
    CHECK_OK(env, symmem_stream_destroy(stream));
}

RANKS_TEST("all keys are one", .world = 1) {
    symmem_group *other = NULL;
    symmem_handle *again = NULL, *elsewhere = NULL;
    void *ptr = NULL;
    atomic_store(&keys_collide, true);
    symmem_handle *first = env_kept_handle(env, &ptr), *second = env_kept_handle(env, NULL),
                  *third = env_kept_handle(env, NULL);
    CHECK_OK(env, symmem_group_create(env->context, "other", NULL, 0, NULL, &other));
    CHECK_OK(env, symmem_rendezvous(env->context, ptr, other, 10000, &elsewhere));
    CHECK_OK(env, meet_at(env, ptr, 10000, &again));
    CHECK(env, again->link == first->link && elsewhere->link != first->link);
    CHECK(env, second->link != first->link && third->link != second->link);
    symmem_handle_release(again);
    symmem_handle_release(elsewhere);
    symmem_stream *stream = env_stream(env), *beside = env_stream(env);
    CHECK_OK(env, symmem_stream_begin_capture(beside)); /* another capture at the same time */
    CHECK_OK(env, symmem_barrier(third, 0, 10000, beside));
    symmem_graph *graphs[2] = {capture_barriers(env, stream, first, second),
                               capture_barriers(env, stream, second, second)};
    symmem_graph *none = NULL;
    CHECK_OK(env, symmem_stream_end_capture(beside, &none));
    check_busy(env, graphs[0], first, third);
    check_busy(env, graphs[0], second, third);
    check_busy(env, graphs[1], second, first);
    check_busy(env, none, third, second);
    CHECK_OK(env, symmem_graph_destroy(graphs[0]));
    CHECK_OK(env, symmem_graph_destroy(graphs[1]));
    CHECK_OK(env, symmem_graph_destroy(none));
    CHECK_OK(env, symmem_group_destroy(other));
    atomic_store(&keys_collide, false);
}
