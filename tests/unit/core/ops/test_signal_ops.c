/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals: checks, failures and their records, channel order across streams, reset. */
#include "link_ranks.h"

static void body_checks(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    symmem_handle_info info = {0};
    CHECK_OK(env, symmem_handle_get_info(handle, &info));
    int32_t last = info.channel_count - 1;
    CHECK_OK(env, symmem_barrier(handle, last, 10000, NULL));
    CHECK_STATUS(env, symmem_barrier(handle, last + 1, 100, NULL), SYMMEM_OUT_OF_RANGE);
    CHECK(env, last_record().expected == (uint64_t)info.channel_count &&
                   last_record().actual == (uint64_t)info.channel_count &&
                   last_record().channel == last + 1);
    CHECK_STATUS(env, symmem_barrier(handle, -1, 100, NULL), SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_put_signal(handle, env->world, 0, 100, NULL), SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_put_signal(handle, -1, 0, 100, NULL), SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_wait_signal(handle, env->world, 0, 100, NULL), SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_barrier(NULL, 0, 100, NULL), SYMMEM_INVALID_ARGUMENT);
    rank_env other = *env;
    symmem_stream *stream = NULL;
    env_open(&other);
    CHECK_OK(env, symmem_stream_create(other.context, -1, &stream));
    CHECK_STATUS(env, symmem_barrier(handle, 0, 100, stream), SYMMEM_INVALID_ARGUMENT);
    CHECK_OK(env, symmem_stream_destroy(stream));
    symmem_context_free(other.context);
    CHECK_OK(env, symmem_handle_status(handle, NULL));
    /* A ring of signals, a second put only after the first was consumed. */
    int next = (env->rank + 1) % env->world, before = (env->rank + env->world - 1) % env->world;
    for (int i = 0; i < 10; i++) {
        CHECK_OK(env, symmem_put_signal(handle, next, 2, 10000, NULL));
        CHECK_OK(env, symmem_wait_signal(handle, before, 2, 10000, NULL));
    }
    symmem_handle_release(handle);
}

TEST("checks") {
    run_threads((plan){.world = 1, .body = body_checks});
    run_threads((plan){.world = 3, .body = body_checks});
}

/* --- failures ----------------------------------------------------------------------- */

static void check_timeout_record(rank_env *env, const symmem_error_record *record, int absent) {
    CHECK(env, record->status == SYMMEM_TIMEOUT && record->channel == 1);
    CHECK(env, strcmp(record->operation, "barrier") == 0 && strcmp(record->group, "world") == 0);
    CHECK(env, record->rank == env->rank && record->world_size == env->world);
    CHECK(env, record->missing_count == 1 && symmem_error_is_missing(record, absent));
    CHECK(env, record->failed_rank == absent);
    CHECK(env, record->elapsed_ns >= 90000000);
    char wanted[32];
    snprintf(wanted, sizeof wanted, "rank %d did not", absent);
    CHECK(env, strstr(record->message, wanted) != NULL);
}

/* argument: the absent rank, + 8: the operations are on a stream */
static void body_poison(rank_env *env) {
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_error_record record, cause;
    symmem_handle_info info = {0};
    symmem_handle *handle = env_handle(env, &ptr);
    int absent = env->plan->argument % 8;
    if (env->plan->argument >= 8)
        CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    if (env->rank != absent) {
        env->meet_count = env->world - 1;
        env->meet_point = "shm.barrier.after_arrive";
        symmem_status status = symmem_barrier(handle, 1, 100, stream);
        if (stream != NULL) {
            CHECK(env, status == SYMMEM_OK);
            status = symmem_stream_synchronize(stream, 5000);
        }
        record = last_record();
        CHECK(env, env->meet_point == NULL);
        /* The first to give up tells the others. */
        CHECK(env, status == record.status);
        if (status != SYMMEM_POISONED)
            check_timeout_record(env, &record, absent);
        CHECK(env, symmem_handle_status(handle, &cause) == status);
        CHECK(env, memcmp(&cause, &record, sizeof cause) == 0);
        CHECK_OK(env, symmem_handle_get_info(handle, &info));
        CHECK(env, info.poisoned);
        CHECK_STATUS(env, symmem_barrier(handle, 0, 100, NULL), SYMMEM_POISONED);
        CHECK(env, last_record().channel == 1 && strstr(last_record().message, "barrier") != NULL);
        CHECK_STATUS(env, symmem_put_signal(handle, absent, 0, 100, stream), SYMMEM_POISONED);
        /* Data still flows. */
        CHECK_OK(env, symmem_put(handle, absent, 64 * (size_t)env->rank, &absent, 4, NULL));
    }
    env_meet(env);
    CHECK_OK(env, symmem_handle_reset(handle, 10000));
    CHECK_OK(env, symmem_handle_status(handle, &cause));
    CHECK_OK(env, symmem_barrier(handle, 1, 10000, stream));
    if (stream != NULL)
        CHECK_OK(env, symmem_stream_synchronize(stream, 10000));
    CHECK_OK(env, symmem_stream_destroy(stream));
    symmem_handle_release(handle);
}

TEST("poison and reset") {
    for (int absent = 0; absent < 3; absent++) {
        run_threads((plan){.world = 3, .body = body_poison, .argument = absent});
        run_threads((plan){.world = 3, .body = body_poison, .argument = 8 + absent});
    }
}

static symmem_fault make_fault(symmem_status status, int32_t channel) {
    return (symmem_fault){
        .operation = "wait_signal", .status = status, .channel = channel, .failed_rank = -1};
}

static void body_records(rank_env *env) {
    void *ptr = NULL;
    symmem_error_record record;
    symmem_handle *handle = env_handle(env, &ptr);
    const symmem_peers *peers = &handle->link->peers;
    symmem_fault fault = make_fault(SYMMEM_PEER_LOST, 0);
    CHECK(env, !sm_link_is_poisoned(peers));
    fault.missing[0] = 6;
    sm_link_signal_failed(peers, &fault, &record);
    CHECK(env, strcmp(record.message, "ranks 1, 2: process ended") == 0);
    CHECK(env, record.missing_count == 2 && sm_link_is_poisoned(peers));
    fault = make_fault(SYMMEM_CORRUPT, 1);
    fault.actual = 9;
    sm_link_signal_failed(peers, &fault, &record);
    CHECK(env, strstr(record.message, "holds 9") != NULL && record.actual == 9);
    /* The first failure stays the reason. */
    CHECK(env, symmem_handle_status(handle, &record) == SYMMEM_PEER_LOST);
    fault = make_fault(SYMMEM_POISONED, -1);
    sm_link_signal_failed(peers, &fault, &record);
    CHECK(env, record.status == SYMMEM_POISONED);
    fault = make_fault(SYMMEM_TIMEOUT, 0);
    sm_link_signal_failed(peers, &fault, NULL);
    fault = make_fault(SYMMEM_BACKEND, 0);
    sm_link_signal_failed(peers, &fault, &record);
    CHECK(env, strcmp(record.message, symmem_status_text(SYMMEM_BACKEND)) == 0);
    memset(fault.missing, 0xff, sizeof fault.missing);
    fault.status = SYMMEM_TIMEOUT;
    sm_link_signal_failed(peers, &fault, &record);
    CHECK(env, record.missing_count == SYMMEM_MAX_WORLD_SIZE);
    CHECK(env, sm_link_peer_state(peers, 0) == SYMMEM_PEER_ALIVE);
    CHECK(env, sm_link_peer_state(peers, 2) == SYMMEM_PEER_ALIVE);
    for (int32_t rank = 0; rank < 3; rank++)
        CHECK(env, !sm_link_peer_is_ending(peers, rank));
    env_meet(env);
    CHECK_OK(env, symmem_handle_reset(handle, 10000));
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    symmem_handle_release(handle);
}

TEST("records") {
    run_threads((plan){.world = 3, .body = body_records});
}

/* Both calls are under way before either one's limit begins. */
static atomic_int waiting;

static symmem_status wait_together(void *instance, const symmem_peers *peers, int32_t src_rank,
                                   int32_t channel, const symmem_exec *exec) {
    atomic_fetch_add(&waiting, 1);
    for (int i = 0; i < 20000 && atomic_load(&waiting) < 2; i++)
        sm_sleep_ns(1000000);
    return symmem_backend_entry(SYMMEM_BACKEND_ABI)
        ->wait_signal(instance, peers, src_rank, channel, exec);
}

/* Two calls without stream fail on two channels at once: each thread gets its own record. */
static void *wait_on_one(void *arg) {
    symmem_handle *handle = arg;
    if (symmem_wait_signal(handle, 0, 1, 30, NULL) == SYMMEM_OK)
        return NULL;
    return last_record().channel == 1 ? handle : NULL;
}

static void body_own_record(rank_env *env) {
    void *ptr = NULL, *result = NULL;
    pthread_t thread;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK(env, pthread_create(&thread, NULL, wait_on_one, handle) == 0);
    CHECK(env, symmem_wait_signal(handle, 0, 0, 30, NULL) != SYMMEM_OK);
    CHECK(env, last_record().channel == 0);
    pthread_join(thread, &result);
    CHECK(env, result == handle);
    symmem_handle_release(handle);
}

TEST("a call gets its own record") {
    symmem_backend table = *symmem_backend_entry(SYMMEM_BACKEND_ABI);
    table.wait_signal = wait_together;
    atomic_store(&waiting, 0);
    run_threads((plan){.world = 1, .body = body_own_record, .backend = &table});
}

/* --- order -------------------------------------------------------------------------- */

static void hold(void *arg) {
    atomic_int *gate = arg;
    for (int i = 0; i < 10000 && atomic_load(gate) == 0; i++)
        sm_sleep_ns(1000000);
}

static void body_order(rank_env *env) {
    void *ptr = NULL;
    bool idle = true;
    symmem_stream *a = NULL, *b = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    atomic_int gate = 0;
    CHECK_OK(env, symmem_stream_create(env->context, -1, &a));
    CHECK_OK(env, symmem_stream_create(env->context, -1, &b));
    /* a is held up: what follows on the channel waits, on another stream too. */
    CHECK_OK(env, symmem_stream_host_fn(a, hold, &gate));
    CHECK_OK(env, symmem_put_signal(handle, env->rank, 0, 10000, a));
    CHECK_OK(env, symmem_put_signal(handle, env->rank, 1, 10000, b));
    CHECK_OK(env, symmem_stream_synchronize(b, 10000)); /* another channel does not wait */
    CHECK_OK(env, symmem_wait_signal(handle, env->rank, 0, 10000, b));
    sm_sleep_ns(20000000);
    CHECK_OK(env, symmem_stream_query(b, &idle));
    CHECK(env, !idle);
    CHECK_STATUS(env, symmem_put_signal(handle, env->rank, 0, 50, NULL), SYMMEM_TIMEOUT);
    CHECK(env, strstr(last_record().message, "busy") != NULL);
    CHECK_OK(env, symmem_handle_status(handle, NULL));
    CHECK_STATUS(env, symmem_handle_reset(handle, 1000), SYMMEM_BUSY);
    CHECK(env, last_record().channel == 0);
    atomic_store(&gate, 1);
    /* Without a stream it waits for the streams before it. */
    CHECK_OK(env, symmem_put_signal(handle, env->rank, 0, 10000, NULL));
    CHECK_OK(env, symmem_wait_signal(handle, env->rank, 0, 0, NULL));
    CHECK_OK(env, symmem_stream_synchronize(a, 10000));
    CHECK_OK(env, symmem_stream_synchronize(b, 10000));
    CHECK_OK(env, symmem_handle_reset(handle, 10000)); /* the signal on channel 1 is gone */
    CHECK_STATUS(env, symmem_wait_signal(handle, env->rank, 1, 30, NULL), SYMMEM_TIMEOUT);
    CHECK_OK(env, symmem_stream_destroy(a));
    CHECK_OK(env, symmem_stream_destroy(b));
    symmem_handle_release(handle);
}

TEST("order of a channel") {
    run_threads((plan){.world = 1, .body = body_order});
}

static void *hold_channel(void *arg) {
    symmem_handle *handle = arg;
    return symmem_wait_signal(handle, 0, 0, 5000, NULL) == SYMMEM_OK ? handle : NULL;
}

/* A call under way in another thread: the channel is taken. */
static void body_taken(rank_env *env) {
    void *ptr = NULL, *result = NULL;
    pthread_t thread;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK(env, pthread_create(&thread, NULL, hold_channel, handle) == 0);
    for (int i = 0; i < 1000 && symmem_handle_reset(handle, 1000) != SYMMEM_BUSY; i++)
        sm_sleep_ns(1000000);
    CHECK_STATUS(env, symmem_handle_reset(handle, 1000), SYMMEM_BUSY);
    CHECK_STATUS(env, symmem_barrier(handle, 0, 30, NULL), SYMMEM_TIMEOUT);
    /* Another handle of the same state, another process's way: the slot itself. */
    symmem_fault fault = make_fault(SYMMEM_TIMEOUT, 0);
    sm_link_signal_failed(&handle->link->peers, &fault, NULL);
    pthread_join(thread, &result);
    CHECK(env, result == NULL);
    CHECK_OK(env, symmem_handle_reset(handle, 1000));
    CHECK_OK(env, symmem_barrier(handle, 0, 1000, NULL));
    symmem_handle_release(handle);
}

TEST("a channel that is taken") {
    run_threads((plan){.world = 1, .body = body_taken});
}

/* --- capture ------------------------------------------------------------------------ */

static void body_capture(rank_env *env) {
    void *ptr = NULL;
    symmem_stream *a = NULL, *b = NULL;
    symmem_event *fork = NULL, *join = NULL;
    symmem_graph *graph = NULL;
    int value = 0;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_stream_create(env->context, -1, &a));
    CHECK_OK(env, symmem_stream_create(env->context, -1, &b));
    CHECK_OK(env, symmem_event_create(env->context, -1, &fork));
    CHECK_OK(env, symmem_event_create(env->context, -1, &join));
    int next = (env->rank + 1) % env->world;
    CHECK_OK(env, symmem_stream_begin_capture(a));
    CHECK_OK(env, symmem_event_record(fork, a));
    CHECK_OK(env, symmem_stream_wait_event(b, fork));
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, a));
    CHECK_OK(env, symmem_put(handle, next, 0, &value, 4, a));
    /* Ordered after the first by the channel alone. */
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, b));
    CHECK_OK(env, symmem_event_record(join, b));
    CHECK_OK(env, symmem_stream_wait_event(a, join));
    CHECK_OK(env, symmem_stream_end_capture(a, &graph));
    /* Nothing ran; an eager barrier is not behind it. */
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    for (int i = 1; i <= 3; i++) {
        value = 10 * i + env->rank;
        CHECK_OK(env, symmem_graph_launch(graph, i == 2 ? b : a));
        CHECK_OK(env, symmem_stream_synchronize(i == 2 ? b : a, 10000));
        CHECK_OK(env, symmem_barrier(handle, 1, 10000, NULL));
        CHECK(env, *(int *)ptr == 10 * i + (env->rank + env->world - 1) % env->world);
        CHECK_OK(env, symmem_barrier(handle, 1, 10000, NULL));
    }
    /* A second capture starts its own order. */
    CHECK_OK(env, symmem_graph_destroy(graph));
    CHECK_OK(env, symmem_stream_begin_capture(b));
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, b));
    CHECK_OK(env, symmem_stream_end_capture(b, &graph));
    /* The graph keeps the memory when all else is gone. */
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    CHECK_OK(env, symmem_graph_launch(graph, a));
    CHECK_OK(env, symmem_stream_synchronize(a, 10000));
    CHECK_OK(env, symmem_graph_destroy(graph));
    symmem_event_destroy(fork);
    symmem_event_destroy(join);
    CHECK_OK(env, symmem_stream_destroy(a));
    CHECK_OK(env, symmem_stream_destroy(b));
}

/* A signal that its own rank waits for in the graph: nothing but that handle is busy meanwhile. */
static void launch_beside(rank_env *env, symmem_graph *graph, symmem_stream *stream,
                          symmem_handle *handle, symmem_handle *other) {
    CHECK_OK(env, symmem_graph_launch(graph, stream));
    CHECK_STATUS(env, symmem_handle_reset(handle, 10000), SYMMEM_BUSY);
    CHECK_OK(env, symmem_handle_reset(other, 10000));
    CHECK_OK(env, symmem_put_signal(handle, env->rank, 0, 10000, NULL));
    CHECK_OK(env, symmem_stream_synchronize(stream, 10000));
    CHECK_OK(env, symmem_handle_reset(handle, 10000));
}

/* Of two captures at once each graph knows its own handle, and not the other's. */
static void body_two_captures(rank_env *env) {
    void *memory[2];
    symmem_handle *handles[2];
    symmem_stream *streams[2];
    symmem_graph *graphs[2];
    for (int i = 0; i < 2; i++) {
        handles[i] = env_handle(env, &memory[i]);
        CHECK_OK(env, symmem_stream_create(env->context, -1, &streams[i]));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(env, symmem_stream_begin_capture(streams[i]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(env, symmem_wait_signal(handles[i], env->rank, 0, 10000, streams[i]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(env, symmem_stream_end_capture(streams[i], &graphs[i]));
    for (int i = 0; i < 2; i++)
        launch_beside(env, graphs[i], streams[i], handles[i], handles[1 - i]);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(env, symmem_graph_destroy(graphs[i]));
        CHECK_OK(env, symmem_stream_destroy(streams[i]));
        symmem_handle_release(handles[i]);
        CHECK_OK(env, symmem_free(env->context, memory[i]));
    }
}

TEST("two captures at once") {
    run_threads((plan){.world = 1, .body = body_two_captures});
}

/* What another thread does once the backend captures: here it is this one, in the entry. */
static _Thread_local struct {
    symmem_handle *handle;
    symmem_stream *stream;
    symmem_status status, alloc_status;
} beside;

static symmem_status begin_and_use(void *instance, void *stream) {
    if (beside.handle == NULL)
        return SYMMEM_LIMIT;
    symmem_status status =
        symmem_backend_entry(SYMMEM_BACKEND_ABI)->capture_begin(instance, stream);
    void *ptr = NULL;
    symmem_context *context = beside.handle->link->context;
    beside.status = symmem_wait_signal(beside.handle, 0, 0, 10000, beside.stream);
    beside.alloc_status = symmem_alloc(context, 64, -1, NULL, &ptr);
    return status;
}

static void body_captured_at_once(rank_env *env) {
    void *memory[2], *ptr = NULL;
    symmem_handle *handles[2];
    symmem_stream *stream = NULL;
    symmem_graph *graph = NULL;
    for (int i = 0; i < 2; i++)
        handles[i] = env_handle(env, &memory[i]);
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    beside.handle = handles[0];
    beside.stream = stream;
    CHECK_OK(env, symmem_stream_begin_capture(stream));
    CHECK_OK(env, beside.status);
    CHECK_STATUS(env, beside.alloc_status, SYMMEM_CAPTURE);
    CHECK_OK(env, symmem_stream_end_capture(stream, &graph));
    launch_beside(env, graph, stream, handles[0], handles[1]);
    CHECK_OK(env, symmem_graph_destroy(graph));
    CHECK_OK(env, symmem_stream_destroy(stream));
    /* One that does not begin leaves nothing. */
    beside.handle = NULL;
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    CHECK_STATUS(env, symmem_stream_begin_capture(stream), SYMMEM_LIMIT);
    CHECK_OK(env, symmem_alloc(env->context, 64, -1, NULL, &ptr));
    CHECK_OK(env, symmem_stream_destroy(stream));
    for (int i = 0; i < 2; i++)
        symmem_handle_release(handles[i]);
}

TEST("what is captured at once") {
    symmem_backend table = *symmem_backend_entry(SYMMEM_BACKEND_ABI);
    table.capture_begin = begin_and_use;
    run_threads((plan){.world = 1, .body = body_captured_at_once, .backend = &table});
}

TEST("capture and replay") {
    run_threads((plan){.world = 3, .body = body_capture});
    run_processes((plan){.world = 2, .body = body_capture});
}

/* --- reset fails -------------------------------------------------------------------- */

static symmem_status no_reset(void *instance, const symmem_peers *peers) {
    (void)instance;
    return peers->rank == 1 ? SYMMEM_BACKEND : SYMMEM_OK;
}

static void body_reset_fails(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    if (env->rank != 0)
        CHECK_STATUS(env, symmem_handle_reset(handle, 100), SYMMEM_TIMEOUT);
    env_meet(env);
    CHECK_OK(env, symmem_handle_status(handle, NULL));
    /* Rank 1 starts over when rank 0 is waiting already. */
    if (env->rank == 1)
        sm_sleep_ns(50000000);
    CHECK_STATUS(env, symmem_handle_reset(handle, 10000), SYMMEM_BACKEND);
    CHECK(env, last_record().failed_rank == 1);
    /* Half reset is unusable. */
    CHECK(env, symmem_handle_status(handle, NULL) == SYMMEM_BACKEND);
    CHECK_STATUS(env, symmem_handle_reset(NULL, 100), SYMMEM_INVALID_ARGUMENT);
    symmem_handle_release(handle);
}

TEST("reset fails") {
    symmem_backend table = *symmem_backend_entry(SYMMEM_BACKEND_ABI);
    table.signal_reset = no_reset;
    run_threads((plan){.world = 2, .body = body_reset_fails, .backend = &table});
}

/* --- a rank that ends --------------------------------------------------------------- */

static void body_dies(rank_env *env) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    if (env->rank == 1)
        _exit(0);
    uint64_t begin_ns = sm_now_ns();
    symmem_status status = symmem_barrier(handle, 0, 20000, NULL);
    CHECK(env, status == SYMMEM_PEER_LOST || status == SYMMEM_POISONED);
    CHECK(env, sm_now_ns() - begin_ns < 3000000000u);
    /* The other survivor may have ended as well by the time this one looks. */
    symmem_error_record record = last_record();
    CHECK(env, status == SYMMEM_POISONED || record.failed_rank == 1 ||
                   symmem_error_is_missing(&record, 1));
    symmem_handle_release(handle);
}

TEST("a rank that ends") {
    run_processes((plan){.world = 3, .body = body_dies});
}

/* --- entries that fail -------------------------------------------------------------- */

static symmem_status no_order(void *instance, void *stream, void *event) {
    (void)instance, (void)stream, (void)event;
    return SYMMEM_BACKEND;
}

static symmem_status no_record(void *instance, void *event, void *stream) {
    (void)instance, (void)stream, (void)event;
    return SYMMEM_BACKEND;
}

static symmem_status no_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                                const symmem_exec *exec) {
    (void)instance, (void)peers, (void)channel, (void)exec;
    return SYMMEM_BACKEND;
}

static symmem_status no_id(void *instance, void *stream, uint64_t *id_p) {
    (void)instance, (void)stream, (void)id_p;
    return SYMMEM_BACKEND;
}

static symmem_status no_wait(void *instance, void *event, uint32_t timeout_ms) {
    (void)instance, (void)event, (void)timeout_ms;
    return SYMMEM_BACKEND;
}

static symmem_status no_query(void *instance, void *event, bool *reached_p) {
    (void)instance, (void)event, (void)reached_p;
    return SYMMEM_BACKEND;
}

enum { NO_ORDER, NO_RECORD, NO_BARRIER, NO_ID, NO_WAIT, NO_QUERY, NO_COUNT };

static void body_entries(rank_env *env) {
    void *ptr = NULL;
    int kind = env->plan->argument;
    symmem_stream *a = NULL, *b = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_stream_create(env->context, -1, &a));
    CHECK_OK(env, symmem_stream_create(env->context, -1, &b));
    bool at_once = kind == NO_RECORD || kind == NO_BARRIER || kind == NO_ID;
    CHECK_STATUS(env, symmem_barrier(handle, 0, 1000, a), at_once ? SYMMEM_BACKEND : SYMMEM_OK);
    CHECK(env, !at_once || strcmp(last_record().operation, "barrier") == 0);
    CHECK_STATUS(env, symmem_barrier(handle, 0, 1000, b),
                 at_once || kind == NO_ORDER ? SYMMEM_BACKEND : SYMMEM_OK);
    if (kind == NO_BARRIER || kind == NO_WAIT)
        CHECK_STATUS(env, symmem_barrier(handle, 0, 1000, NULL), SYMMEM_BACKEND);
    if (kind == NO_QUERY)
        CHECK_STATUS(env, symmem_handle_reset(handle, 1000), SYMMEM_BACKEND);
    CHECK_OK(env, symmem_stream_destroy(a));
    CHECK_OK(env, symmem_stream_destroy(b));
    symmem_handle_release(handle);
}

TEST("entries that fail") {
    for (int kind = 0; kind < NO_COUNT; kind++) {
        symmem_backend table = *symmem_backend_entry(SYMMEM_BACKEND_ABI);
        if (kind == NO_ORDER)
            table.stream_wait_event = no_order;
        if (kind == NO_RECORD)
            table.event_record = no_record;
        if (kind == NO_BARRIER)
            table.barrier = no_barrier;
        if (kind == NO_ID)
            table.capture_id = no_id;
        if (kind == NO_WAIT)
            table.event_synchronize = no_wait;
        if (kind == NO_QUERY)
            table.event_query = no_query;
        run_threads((plan){.world = 1, .body = body_entries, .backend = &table, .argument = kind});
    }
}

/* --- a mark that is a moment behind what it marks ------------------------------------- */

static int late_answers; /* not reached yet */

static symmem_status late_query(void *instance, void *event, bool *reached_p) {
    symmem_status status =
        symmem_backend_entry(SYMMEM_BACKEND_ABI)->event_query(instance, event, reached_p);
    if (late_answers > 0) {
        late_answers--;
        *reached_p = false;
    }
    return status;
}

static void body_late_mark(rank_env *env) {
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    CHECK_OK(env, symmem_barrier(handle, 0, 1000, stream));
    CHECK_OK(env, symmem_stream_synchronize(stream, 5000));
    late_answers = 2;
    CHECK_OK(env, symmem_handle_reset(handle, 5000));
    late_answers = 1000000;
    CHECK_STATUS(env, symmem_handle_reset(handle, 5000), SYMMEM_BUSY);
    late_answers = 1000000; /* a look each millisecond, and not beyond the limit */
    CHECK_STATUS(env, symmem_handle_reset(handle, 10), SYMMEM_BUSY);
    CHECK(env, late_answers >= 1000000 - 10);
    late_answers = 0;
    CHECK_OK(env, symmem_stream_destroy(stream));
    symmem_handle_release(handle);
}

TEST("a mark that is behind") {
    symmem_backend table = *symmem_backend_entry(SYMMEM_BACKEND_ABI);
    table.event_query = late_query;
    run_threads((plan){.world = 1, .body = body_late_mark, .backend = &table});
}
