/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, events, graphs: checks, failures, finalise with live objects. */
#include "link_ranks.h"

static void bump(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void hold(void *arg) {
    for (int i = 0; i < 10000 && atomic_load((atomic_int *)arg) == 0; i++)
        sm_sleep_ns(1000000);
}

static void body_streams(rank_env *env) {
    symmem_context *context = env->context;
    symmem_stream *stream = NULL;
    atomic_int count = 0, gate = 0;
    bool idle = false;
    CHECK_STATUS(env, symmem_stream_create(NULL, 0, &stream), SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_stream_create(context, 0, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_create(context, 8, &stream), SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_stream_wrap(context, 0, &count, &stream), SYMMEM_UNSUPPORTED);
    CHECK_STATUS(env, symmem_stream_wrap(context, 0, NULL, &stream), SYMMEM_UNSUPPORTED);
    CHECK_STATUS(env, symmem_stream_wrap(context, 0, &count, NULL), SYMMEM_UNSUPPORTED);
    CHECK_STATUS(env, symmem_stream_wrap(NULL, 0, &count, &stream), SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_stream_wrap(context, 9, &count, &stream), SYMMEM_UNSUPPORTED);
    CHECK(env, stream == NULL);
    CHECK_OK(env, symmem_stream_create(context, 0, &stream));
    CHECK_OK(env, symmem_stream_host_fn(stream, bump, &count));
    CHECK_OK(env, symmem_stream_synchronize(stream, 10000));
    CHECK(env, atomic_load(&count) == 1);
    CHECK_STATUS(env, symmem_stream_host_fn(stream, NULL, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_host_fn(NULL, bump, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_OK(env, symmem_stream_host_fn(stream, hold, &gate));
    CHECK_OK(env, symmem_stream_query(stream, &idle));
    CHECK(env, !idle);
    CHECK_STATUS(env, symmem_stream_query(stream, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_query(NULL, &idle), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_synchronize(stream, 30), SYMMEM_TIMEOUT);
    CHECK(env, strcmp(last_record().operation, "stream_synchronize") == 0);
    CHECK_STATUS(env, symmem_stream_synchronize(NULL, 30), SYMMEM_INVALID_ARGUMENT);
    atomic_store(&gate, 1);
    CHECK_OK(env, symmem_stream_destroy(stream));
    CHECK_OK(env, symmem_stream_destroy(NULL));
}

TEST("streams") {
    run_threads((plan){.world = 1, .body = body_streams});
}

static void body_events(rank_env *env) {
    symmem_context *context = env->context;
    symmem_stream *a = NULL, *b = NULL;
    symmem_event *event = NULL;
    atomic_int gate = 0, count = 0;
    bool reached = false;
    CHECK_STATUS(env, symmem_event_create(NULL, 0, &event), SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_event_create(context, 0, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_event_create(context, 8, &event), SYMMEM_OUT_OF_RANGE);
    CHECK_OK(env, symmem_event_create(context, 0, &event));
    CHECK_OK(env, symmem_stream_create(context, 0, &a));
    CHECK_OK(env, symmem_stream_create(context, 0, &b));
    CHECK_OK(env, symmem_event_query(event, &reached)); /* never recorded: reached */
    CHECK(env, reached);
    CHECK_OK(env, symmem_event_synchronize(event, 10));
    CHECK_OK(env, symmem_stream_host_fn(a, hold, &gate));
    CHECK_OK(env, symmem_event_record(event, a));
    CHECK_OK(env, symmem_stream_wait_event(b, event));
    CHECK_OK(env, symmem_stream_host_fn(b, bump, &count));
    CHECK_OK(env, symmem_event_query(event, &reached));
    CHECK(env, !reached && atomic_load(&count) == 0);
    CHECK_STATUS(env, symmem_event_synchronize(event, 30), SYMMEM_TIMEOUT);
    atomic_store(&gate, 1);
    CHECK_OK(env, symmem_event_synchronize(event, 10000));
    CHECK_OK(env, symmem_stream_synchronize(b, 10000));
    CHECK(env, atomic_load(&count) == 1);
    CHECK_STATUS(env, symmem_event_record(NULL, a), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_event_record(event, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_wait_event(NULL, event), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_event_query(event, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_event_query(NULL, &reached), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_event_synchronize(NULL, 1), SYMMEM_INVALID_ARGUMENT);
    rank_env other = *env;
    symmem_event *foreign = NULL;
    env_open(&other);
    CHECK_OK(env, symmem_event_create(other.context, 0, &foreign));
    CHECK_STATUS(env, symmem_event_record(foreign, a), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_wait_event(a, foreign), SYMMEM_INVALID_ARGUMENT);
    symmem_event_destroy(foreign);
    symmem_context_free(other.context);
    symmem_event_destroy(event);
    symmem_event_destroy(NULL);
    CHECK_OK(env, symmem_stream_destroy(a));
    CHECK_OK(env, symmem_stream_destroy(b));
}

TEST("events") {
    run_threads((plan){.world = 1, .body = body_events});
}

static void body_graphs(rank_env *env) {
    symmem_context *context = env->context;
    symmem_stream *a = NULL, *b = NULL;
    symmem_event *event = NULL;
    symmem_graph *graph = NULL, *none = NULL;
    atomic_int count = 0, gate = 0;
    bool capturing = true;
    CHECK_OK(env, symmem_stream_create(context, 0, &a));
    CHECK_OK(env, symmem_stream_create(context, 0, &b));
    CHECK_OK(env, symmem_event_create(context, 0, &event));
    CHECK_STATUS(env, symmem_stream_end_capture(a, &graph), SYMMEM_CAPTURE);
    CHECK_OK(env, symmem_stream_is_capturing(a, &capturing));
    CHECK(env, !capturing);
    CHECK_OK(env, symmem_stream_begin_capture(a));
    CHECK(env, atomic_load(&context->captures) == 1);
    CHECK_STATUS(env, symmem_stream_begin_capture(a), SYMMEM_CAPTURE);
    CHECK_STATUS(env, symmem_stream_synchronize(a, 10), SYMMEM_CAPTURE);
    CHECK_OK(env, symmem_stream_is_capturing(a, &capturing));
    CHECK(env, capturing);
    CHECK_STATUS(env, symmem_stream_end_capture(a, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_OK(env, symmem_stream_host_fn(a, bump, &count));
    CHECK_OK(env, symmem_stream_end_capture(a, &graph));
    CHECK(env, atomic_load(&context->captures) == 0 && atomic_load(&count) == 0);
    CHECK_OK(env, symmem_graph_launch(graph, a));
    CHECK_OK(env, symmem_stream_synchronize(a, 10000));
    CHECK(env, atomic_load(&count) == 1);
    /* A launch waits for the one before it, on another stream too. */
    CHECK_OK(env, symmem_stream_host_fn(a, hold, &gate));
    CHECK_OK(env, symmem_graph_launch(graph, a));
    CHECK_OK(env, symmem_graph_launch(graph, b));
    sm_sleep_ns(20000000);
    CHECK(env, atomic_load(&count) == 1);
    atomic_store(&gate, 1);
    CHECK_OK(env, symmem_stream_synchronize(b, 10000));
    CHECK(env, atomic_load(&count) == 3);

    CHECK_STATUS(env, symmem_graph_launch(NULL, a), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_graph_launch(graph, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_begin_capture(NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_end_capture(NULL, &none), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_is_capturing(a, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_is_capturing(NULL, &capturing), SYMMEM_INVALID_ARGUMENT);
    /* Launching into a capture, an unjoined fork. */
    CHECK_OK(env, symmem_stream_begin_capture(a));
    CHECK_STATUS(env, symmem_graph_launch(graph, a), SYMMEM_CAPTURE);
    CHECK_OK(env, symmem_event_record(event, a));
    CHECK_OK(env, symmem_stream_wait_event(b, event));
    CHECK_OK(env, symmem_stream_host_fn(b, bump, &count));
    CHECK_STATUS(env, symmem_stream_end_capture(a, &none), SYMMEM_CAPTURE);
    CHECK(env, none == NULL && atomic_load(&context->captures) == 0);
    CHECK_OK(env, symmem_stream_synchronize(a, 10000));
    /* A stream destroyed while it captures. */
    CHECK_OK(env, symmem_stream_begin_capture(a));
    CHECK_OK(env, symmem_stream_destroy(a));
    CHECK(env, atomic_load(&context->captures) == 0);
    CHECK_OK(env, symmem_graph_destroy(graph));
    CHECK_OK(env, symmem_graph_destroy(NULL));
    symmem_event_destroy(event);
    CHECK_OK(env, symmem_stream_destroy(b));
}

TEST("graphs") {
    run_threads((plan){.world = 1, .body = body_graphs});
}

/* --- finalise ----------------------------------------------------------------------- */

static void body_finalise(rank_env *env) {
    symmem_context *context = env->context;
    symmem_stream *stream = NULL, *capturing = NULL;
    symmem_event *event = NULL;
    symmem_graph *graph = NULL, *none = NULL;
    atomic_int count = 0;
    void *ptr = NULL;
    bool flag = false;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_stream_create(context, -1, &stream));
    CHECK_OK(env, symmem_stream_create(context, -1, &capturing));
    CHECK_OK(env, symmem_event_create(context, -1, &event));
    CHECK_OK(env, symmem_stream_begin_capture(stream));
    CHECK_OK(env, symmem_stream_host_fn(stream, bump, &count));
    CHECK_OK(env, symmem_stream_end_capture(stream, &graph));
    CHECK_OK(env, symmem_graph_launch(graph, stream));
    CHECK_OK(env, symmem_stream_begin_capture(capturing));
    /* A wait that no peer ends: finalise must not wait for it. */
    CHECK_OK(env, symmem_wait_signal(handle, 0, 0, 0, stream));
    uint64_t begin_ns = sm_now_ns();
    CHECK_OK(env, symmem_finalize(context));
    CHECK(env, sm_now_ns() - begin_ns < 3000000000u);
    CHECK(env, atomic_load(&count) == 1);
    CHECK(env, stream->native == NULL && event->native == NULL && graph->native == NULL);
    CHECK_STATUS(env, symmem_stream_synchronize(stream, 10), SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_stream_query(stream, &flag), SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_event_query(event, &flag), SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_graph_launch(graph, stream), SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_stream_end_capture(capturing, &none), SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_barrier(handle, 0, 10, stream), SYMMEM_NOT_INITIALISED);
    CHECK_STATUS(env, symmem_stream_create(context, 0, &stream), SYMMEM_NOT_INITIALISED);
    symmem_handle_release(handle);
    if (env->plan->argument == 1) {
        /* The shells outlive the context's user. */
        symmem_context_free(context);
        env->context = NULL;
    }
    CHECK_OK(env, symmem_graph_destroy(graph));
    symmem_event_destroy(event);
    CHECK_OK(env, symmem_stream_destroy(capturing));
    CHECK_OK(env, symmem_stream_destroy(stream));
}

TEST("finalise with live objects") {
    run_threads((plan){.world = 2, .body = body_finalise, .argument = 0});
    run_threads((plan){.world = 1, .body = body_finalise, .argument = 1});
}

/* --- the instance ends with the last work ------------------------------------------- */

static pthread_t worker;
static atomic_int closed; /* 1; 2: by the stream's own thread */

static void note_close(void *instance) {
    bool inside = pthread_equal(pthread_self(), worker);
    symmem_backend_entry(SYMMEM_BACKEND_ABI)->close(instance);
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
static void body_last_work(rank_env *env) {
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

TEST("last work") {
    symmem_backend table = *symmem_backend_entry(SYMMEM_BACKEND_ABI);
    table.close = note_close;
    for (int kind = 0; kind < LAST_KINDS; kind++)
        run_threads(
            (plan){.world = 1, .body = body_last_work, .backend = &table, .argument = kind});
}

/* --- entries that fail, capabilities that lack -------------------------------------- */

static symmem_status no_stream(void *instance, int32_t device, void **stream_p) {
    (void)instance, (void)device, (void)stream_p;
    return SYMMEM_LIMIT;
}

static symmem_status fail_two(void *instance, void *one) {
    (void)instance, (void)one;
    return SYMMEM_BACKEND;
}

static symmem_status fail_three(void *instance, void *one, void *two) {
    (void)instance, (void)one, (void)two;
    return SYMMEM_BACKEND;
}

static symmem_status fail_flag(void *instance, void *one, bool *flag_p) {
    (void)instance, (void)one, (void)flag_p;
    return SYMMEM_BACKEND;
}

static symmem_status fail_wait(void *instance, void *event, uint32_t timeout_ms) {
    (void)instance, (void)event, (void)timeout_ms;
    return SYMMEM_BACKEND;
}

static symmem_status fail_host_fn(void *instance, void *stream, void (*fn)(void *), void *arg) {
    (void)instance, (void)stream, (void)fn, (void)arg;
    return SYMMEM_BACKEND;
}

static void body_lacking(rank_env *env) {
    symmem_context *context = env->context;
    symmem_stream *stream = NULL;
    symmem_event *event = NULL;
    symmem_graph *graph = NULL;
    bool flag;
    switch (env->plan->argument) {
    case 0: /* no streams at all */
        CHECK_STATUS(env, symmem_stream_create(context, 0, &stream), SYMMEM_UNSUPPORTED);
        CHECK_STATUS(env, symmem_event_create(context, 0, &event), SYMMEM_UNSUPPORTED);
        return;
    case 1: /* no capture, no host functions */
        CHECK_OK(env, symmem_stream_create(context, 0, &stream));
        CHECK_STATUS(env, symmem_stream_begin_capture(stream), SYMMEM_UNSUPPORTED);
        CHECK_STATUS(env, symmem_stream_is_capturing(stream, &flag), SYMMEM_UNSUPPORTED);
        CHECK_STATUS(env, symmem_stream_end_capture(stream, &graph), SYMMEM_UNSUPPORTED);
        CHECK_STATUS(env, symmem_stream_host_fn(stream, bump, NULL), SYMMEM_UNSUPPORTED);
        CHECK_OK(env, symmem_stream_synchronize(stream, 100));
        break;
    case 2: /* nothing can be made */
        CHECK_STATUS(env, symmem_stream_create(context, 0, &stream), SYMMEM_LIMIT);
        CHECK(env, strcmp(last_record().operation, "stream_create") == 0);
        CHECK_STATUS(env, symmem_event_create(context, 0, &event), SYMMEM_LIMIT);
        return;
    default:
        CHECK_OK(env, symmem_stream_create(context, 0, &stream));
        CHECK_OK(env, symmem_event_create(context, 0, &event));
        CHECK_STATUS(env, symmem_stream_query(stream, &flag), SYMMEM_BACKEND);
        CHECK_STATUS(env, symmem_stream_host_fn(stream, bump, NULL), SYMMEM_BACKEND);
        CHECK_STATUS(env, symmem_event_record(event, stream), SYMMEM_BACKEND);
        CHECK_STATUS(env, symmem_stream_wait_event(stream, event), SYMMEM_BACKEND);
        CHECK_STATUS(env, symmem_event_query(event, &flag), SYMMEM_BACKEND);
        CHECK_STATUS(env, symmem_event_synchronize(event, 10), SYMMEM_BACKEND);
        CHECK_STATUS(env, symmem_stream_begin_capture(stream), SYMMEM_BACKEND);
        CHECK(env, atomic_load(&context->captures) == 0);
        symmem_event_destroy(event);
        break;
    }
    CHECK_OK(env, symmem_stream_destroy(stream));
}

TEST("lacking") {
    for (int kind = 0; kind < 4; kind++) {
        symmem_backend table = *symmem_backend_entry(SYMMEM_BACKEND_ABI);
        if (kind <= 1) {
            table.capabilities &= ~(SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN);
            table.capture_begin = NULL;
            table.capture_end = NULL;
            table.capture_id = NULL;
            table.graph_launch = NULL;
            table.graph_destroy = NULL;
            table.host_fn = NULL;
        }
        if (kind == 0) {
            table.capabilities &= ~SYMMEM_CAP_STREAMS;
            table.stream_create = NULL;
            table.stream_destroy = NULL;
            table.stream_synchronize = NULL;
            table.stream_query = NULL;
            table.device_synchronize = NULL;
            table.event_create = NULL;
            table.event_destroy = NULL;
            table.event_record = NULL;
            table.stream_wait_event = NULL;
            table.event_synchronize = NULL;
            table.event_query = NULL;
        }
        if (kind == 2) {
            table.stream_create = no_stream;
            table.event_create = no_stream;
        }
        if (kind == 3) {
            table.stream_query = fail_flag;
            table.event_query = fail_flag;
            table.host_fn = fail_host_fn;
            table.event_record = fail_three;
            table.stream_wait_event = fail_three;
            table.event_synchronize = fail_wait;
            table.capture_begin = fail_two;
        }
        run_threads((plan){.world = 1, .body = body_lacking, .backend = &table, .argument = kind});
    }
}
