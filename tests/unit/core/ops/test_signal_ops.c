/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals: failures and their records, channels that are taken, captures, reset. */
#include <fnmatch.h>

#include "link_ranks.h"
#include "unit_clock.h"
#include "rendezvous/link_poison.h"

/* --- failures ----------------------------------------------------------------------- */

#define FAULT(...)                                                                                 \
    { .operation = "wait_signal", .channel = 5, .failed_rank = 2, .elapsed_ns = 7, __VA_ARGS__ }
#define CALL(kind_, count_, dtype_)                                                                \
    { .kind = SYMMEM_CALL_##kind_, .count = count_, .dtype = SYMMEM_##dtype_ }

/* What is told of each; the first one stays the reason, unless it does not poison. */
static const struct {
    symmem_fault fault;
    const char *message;
    uint32_t missing;
    uint64_t expected, actual;
} faults[] = {
    {FAULT(.status = SYMMEM_MISMATCH, .own = CALL(BARRIER, 0, UINT8), .actual = 9,
           .other = CALL(ALL_GATHER, 6, FLOAT32)),
     "rank 2 called all_gather* of 6 float32 (sum), this rank barrier", 0, 0, 6},
    {FAULT(.status = SYMMEM_MISMATCH, .own = CALL(BROADCAST, 8, INT8),
           .other = CALL(BROADCAST, 8, INT8)),
     "rank 2 called broadcast of 8 int8 (sum) with another offset, root, shape or split, this rank "
     "too",
     0, 8, 8},
    {FAULT(.status = SYMMEM_PEER_LOST, .missing = {6}), "ranks 1, 2: process ended", 2, 0, 0},
    {FAULT(.status = SYMMEM_PEER_LOST, .missing = {4}), "rank 2: process ended", 1, 0, 0},
    {FAULT(.status = SYMMEM_CORRUPT, .actual = 9), "a word that ranks share holds 9", 0, 0, 9},
    {FAULT(.status = SYMMEM_POISONED), "an operation that failed elsewhere poisoned this one", 0, 0,
     0},
    {FAULT(.status = SYMMEM_TIMEOUT), "deadline passed", 0, 0, 0},
    {FAULT(.status = SYMMEM_TIMEOUT, .stage = "device"),
     "the device did not come to an end of it in time", 0, 0, 0},
    {FAULT(.status = SYMMEM_TIMEOUT, .stage = "other"), "deadline passed", 0, 0, 0},
    {FAULT(.status = SYMMEM_TIMEOUT, .missing = {1}), "rank 0 did not arrive in time", 1, 0, 0},
    {FAULT(.status = SYMMEM_TIMEOUT, .missing = {7, UINT64_MAX}),
     "ranks 0, 1, 2 did not arrive in time", 67, 0, 0},
    {FAULT(.status = SYMMEM_TIMEOUT, .missing = {2}, .actual = 3,
           .own = {.kind = SYMMEM_CALL_WAIT_VALUE, .op = SYMMEM_GE, .count = 7}),
     "rank 1 did not arrive in time; the word was 3, awaited was >= 7", 1, 7, 3},
    {FAULT(.status = SYMMEM_POISONED, .actual = UINT64_MAX,
           .own = {.kind = SYMMEM_CALL_WAIT_VALUE, .op = SYMMEM_LE, .count = 1ull << 40}),
     "an operation * this one; the word was 18446744073709551615, awaited was <= 1099511627776", 0,
     1ull << 40, UINT64_MAX},
    {FAULT(.status = SYMMEM_TIMEOUT, .missing = {1},
           .own = {.kind = SYMMEM_CALL_WAIT_VALUE, .op = SYMMEM_COMPARE_COUNT, .count = 7}),
     "rank 0 did not arrive in time", 1, 0, 0},
    {FAULT(.status = SYMMEM_LIMIT), "a resource limit *", 0, 0, 0},
    {FAULT(.status = (symmem_status)999), "the backend reported 999, which is no status", 0, 0, 0},
};

static void check_record(rank_env *env, size_t row, const symmem_error_record *record) {
    const symmem_fault *fault = &faults[row].fault;
    bool known = fault->status != (symmem_status)999;
    CHECK(env, fnmatch(faults[row].message, record->message, 0) == 0);
    if (fnmatch(faults[row].message, record->message, 0) != 0)
        fprintf(stderr, "    \"%s\"\n", record->message);
    CHECK(env, record->status == (known ? fault->status : SYMMEM_BACKEND));
    CHECK(env, record->missing_count == faults[row].missing);
    CHECK(env, memcmp(record->missing, fault->missing, sizeof record->missing) == 0);
    CHECK(env, record->expected == faults[row].expected && record->actual == faults[row].actual);
    CHECK(env, record->channel == 5 && record->failed_rank == 2 && record->elapsed_ns == 7);
    CHECK(env, record->rank == env->rank && record->world_size == 3);
    CHECK(env, strcmp(record->group, "world") == 0);
    CHECK(env, strcmp(record->operation, "wait_signal") == 0);
    CHECK(env, strcmp(record->stage, fault->stage != NULL ? fault->stage : "") == 0);
}

/* A rank that gives up because it is poisoned itself names who poisoned it. */
static void check_cause(rank_env *env, const symmem_error_record *record) {
    CHECK(env, record->status == SYMMEM_POISONED && record->failed_rank == 2);
    CHECK(env, record->missing_count == 2 && record->missing[0] == 6);
    CHECK(env, fnmatch("poisoned by wait_signal: PEER_LOST, ranks 1, 2: process ended*",
                       record->message, 0) == 0);
}

RANKS_TEST("records", .world = 3) {
    symmem_error_record record;
    symmem_handle *handle = env_kept_handle(env, NULL);
    const symmem_peers *peers = &handle->link->peers;
    for (size_t row = 0; row < sizeof faults / sizeof faults[0]; row++) {
        const bool poisoned = row > 2; /* calls that differ do not */
        CHECK(env, sm_link_is_poisoned(peers) == poisoned);
        sm_link_signal_failed(peers, &faults[row].fault, &record);
        if (faults[row].fault.status == SYMMEM_POISONED && env->rank == 2)
            check_cause(env, &record);
        else
            check_record(env, row, &record);
    }
    sm_link_signal_failed(peers, &faults[0].fault, NULL);
    CHECK(env, symmem_handle_status(handle, &record) == SYMMEM_PEER_LOST);
    check_record(env, 2, &record);
    CHECK_STATUS(env, symmem_barrier(handle, 0, 9, NULL), SYMMEM_POISONED);
    record = last_record();
    CHECK(env, strcmp(record.message,
                      "poisoned by wait_signal: PEER_LOST, ranks 1, 2: process ended") == 0);
    CHECK(env, record.failed_rank == 2 && record.channel == 5 && record.rank == env->rank);
    /* As many as fit are listed, whichever they are. */
    symmem_fault fault = {.operation = "barrier", .status = SYMMEM_PEER_LOST, .missing = {0, 64}};
    handle->link->group->world_size = SYMMEM_MAX_WORLD_SIZE;
    sm_link_signal_failed(peers, &fault, &record);
    CHECK(env, strcmp(record.message, "rank 70: process ended") == 0);
    memset(fault.missing, 0xff, sizeof fault.missing);
    sm_link_signal_failed(peers, &fault, &record);
    handle->link->group->world_size = 3;
    CHECK(env, record.missing_count == SYMMEM_MAX_WORLD_SIZE);
    CHECK(env, fnmatch("ranks 0, 1, 2, *, 32, 33: process ended", record.message, 0) == 0);
    for (int32_t rank = 0; rank < 3; rank++) {
        CHECK(env, sm_link_peer_state(peers, rank) == SYMMEM_PEER_ALIVE);
        CHECK(env, !sm_link_peer_is_ending(peers, rank));
    }
    env_meet(env);
    CHECK_OK(env, symmem_handle_reset(handle, 10000));
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
}

/* Both calls are under way before either one's limit begins. */
static atomic_int waiting;

static symmem_status wait_together(void *instance, const symmem_peers *peers, int32_t src_rank,
                                   int32_t channel, const symmem_exec *exec) {
    atomic_fetch_add(&waiting, 1);
    for (int i = 0; i < 20000 && atomic_load(&waiting) < 2; i++)
        sm_sleep_ns(1000000);
    return symmem_backend_entry(SYMMEM_BACKEND_ABI)
        ->signal->wait(instance, peers, src_rank, channel, exec);
}

/* Two calls without stream fail on two channels at once: each thread gets its own record. */
static void *wait_on_one(void *arg) {
    symmem_handle *handle = arg;
    if (symmem_wait_signal(handle, 0, 1, 30, NULL) == SYMMEM_OK)
        return NULL;
    return last_record().channel == 1 ? handle : NULL;
}

RANKS_TEST("a call gets its own record", .world = 1, .entries = {.wait_signal = wait_together}) {
    void *ptr = NULL, *result = NULL;
    pthread_t thread;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    CHECK(env, pthread_create(&thread, NULL, wait_on_one, handle) == 0);
    CHECK(env, symmem_wait_signal(handle, 0, 0, 30, NULL) != SYMMEM_OK);
    CHECK(env, last_record().channel == 0);
    pthread_join(thread, &result);
    CHECK(env, result == handle);
}

/* --- order -------------------------------------------------------------------------- */

static atomic_int meetings;

static symmem_status count_meeting(void *instance, const symmem_peers *peers, int32_t channel,
                                   const symmem_exec *exec) {
    atomic_fetch_add(&meetings, 1);
    return symmem_backend_entry(SYMMEM_BACKEND_ABI)
        ->signal->barrier(instance, peers, channel, exec);
}

/* As an operation of another thread fails: the call has looked for poison, and has no lock yet. */
static symmem_status fail_at_begin(void *arg, const char *point) {
    const symmem_handle *handle = arg;
    const symmem_fault fault = FAULT(.status = SYMMEM_TIMEOUT);
    if (strcmp(point, "barrier.begin") == 0)
        sm_link_signal_failed(&handle->link->peers, &fault, NULL);
    return SYMMEM_OK;
}

RANKS_TEST("poison behind the first look", .world = 1, .entries = {.barrier = count_meeting}) {
    symmem_handle *handle = env_kept_handle(env, NULL);
    symmem_stream *streams[2] = {NULL, env_stream(env)};
    const symmem_point_fn point = env->context->point;
    for (int i = 0; i < 2; i++) {
        const int before = atomic_load(&meetings);
        env->context->point = fail_at_begin;
        env->context->point_arg = handle;
        CHECK_STATUS(env, symmem_barrier(handle, 0, 1000, streams[i]), SYMMEM_POISONED);
        env->context->point = point;
        env->context->point_arg = env;
        CHECK(env, strncmp(last_record().message, "poisoned by wait_signal: ", 25) == 0);
        CHECK(env, atomic_load(&meetings) == before); /* the backend is not called */
        CHECK_OK(env, symmem_handle_reset(handle, 1000));
    }
}

/* Then one look is enough, unless there is something to tell or to wait for. */
RANKS_TEST("without failpoints", .world = 1, .entries = {.barrier = count_meeting}) {
    const symmem_fault fault = FAULT(.status = SYMMEM_TIMEOUT);
    symmem_handle *handle = env_kept_handle(env, NULL);
    symmem_stream *streams[2] = {NULL, env_stream(env)};
    env->context->point = NULL;
    CHECK_OK(env, symmem_barrier(handle, 0, 1000, NULL)); /* makes the channel */
    sm_timed_mutex *lock = &atomic_load(&handle->link->channels[0])->call_lock;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(env, symmem_barrier(handle, 0, 1000, streams[i]));
        CHECK_OK(env, symmem_stream_synchronize(streams[1], 1000));
        const int before = atomic_load(&meetings);
        sm_link_signal_failed(&handle->link->peers, &fault, NULL);
        CHECK_STATUS(env, symmem_barrier(handle, 0, 1000, streams[i]), SYMMEM_POISONED);
        CHECK(env, strncmp(last_record().message, "poisoned by wait_signal: ", 25) == 0);
        CHECK_OK(env, symmem_handle_reset(handle, 1000));
        CHECK(env, sm_timed_mutex_try_lock(lock));
        CHECK_STATUS(env, symmem_barrier(handle, 0, 20, streams[i]), SYMMEM_TIMEOUT);
        CHECK(env, strcmp(last_record().stage, "channel") == 0);
        sm_timed_mutex_unlock(lock);
        CHECK(env, atomic_load(&meetings) == before); /* the backend is not called */
        CHECK_OK(env, symmem_barrier(handle, 0, 1000, streams[i]));
    }
}

static void *hold_channel(void *arg) {
    symmem_handle *handle = arg;
    return symmem_wait_signal(handle, 0, 0, 5000, NULL) == SYMMEM_OK ? handle : NULL;
}

/* A call under way in another thread: the channel is taken. */
RANKS_TEST("a channel that is taken", .world = 1) {
    void *ptr = NULL, *result = NULL;
    pthread_t thread;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    CHECK(env, pthread_create(&thread, NULL, hold_channel, handle) == 0);
    for (int i = 0; i < 1000 && symmem_handle_reset(handle, 1000) != SYMMEM_BUSY; i++)
        sm_sleep_ns(1000000);
    CHECK_STATUS(env, symmem_handle_reset(handle, 1000), SYMMEM_BUSY);
    CHECK_STATUS(env, symmem_barrier(handle, 0, 30, NULL), SYMMEM_TIMEOUT);
    /* Another handle of the same state, another process's way: the slot itself. */
    symmem_fault fault = {.operation = "wait_signal", .status = SYMMEM_TIMEOUT, .failed_rank = -1};
    sm_link_signal_failed(&handle->link->peers, &fault, NULL);
    pthread_join(thread, &result);
    CHECK(env, result == NULL);
    CHECK_OK(env, symmem_handle_reset(handle, 1000));
    CHECK_OK(env, symmem_barrier(handle, 0, 1000, NULL));
}

/* --- capture ------------------------------------------------------------------------ */

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
RANKS_TEST("two captures at once", .world = 1) {
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
        symmem_backend_entry(SYMMEM_BACKEND_ABI)->graph->capture_begin(instance, stream);
    void *ptr = NULL;
    symmem_context *context = beside.handle->link->context;
    beside.status = symmem_wait_signal(beside.handle, 0, 0, 10000, beside.stream);
    beside.alloc_status = symmem_alloc(context, 64, -1, NULL, &ptr);
    return status;
}

RANKS_TEST("what is captured at once", .world = 1, .entries = {.capture_begin = begin_and_use}) {
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

/* --- reset fails -------------------------------------------------------------------- */

static symmem_status no_reset(void *instance, const symmem_peers *peers) {
    return peers->rank == 1 ? SYMMEM_BACKEND : SYMMEM_OK;
}

RANKS_TEST("reset fails", .world = 2, .entries = {.signal_reset = no_reset}) {
    symmem_handle *handle = env_kept_handle(env, NULL);
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
}

/* --- entries that fail -------------------------------------------------------------- */

static symmem_status no_order(void *instance, void *stream, void *event) {
    return SYMMEM_BACKEND;
}

static symmem_status no_record(void *instance, void *event, void *stream) {
    return SYMMEM_BACKEND;
}

static symmem_status no_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                                const symmem_exec *exec) {
    return SYMMEM_BACKEND;
}

static symmem_status no_id(void *instance, void *stream, uint64_t *id_p) {
    return SYMMEM_BACKEND;
}

static symmem_status no_wait(void *instance, void *event, uint32_t timeout_ms) {
    return SYMMEM_BACKEND;
}

static symmem_status no_query(void *instance, void *event, bool *reached_p) {
    return SYMMEM_BACKEND;
}

enum { NO_ORDER, NO_RECORD, NO_BARRIER, NO_ID, NO_WAIT, NO_QUERY, NO_COUNT };

static void body_entries(rank_env *env) {
    int kind = env->plan->argument;
    symmem_stream *a = NULL, *b = NULL;
    symmem_handle *handle = env_kept_handle(env, NULL);
    a = env_stream(env);
    b = env_stream(env);
    bool at_once = kind == NO_RECORD || kind == NO_BARRIER || kind == NO_ID;
    CHECK_STATUS(env, symmem_barrier(handle, 0, 1000, a), at_once ? SYMMEM_BACKEND : SYMMEM_OK);
    CHECK(env, !at_once || strcmp(last_record().operation, "barrier") == 0);
    CHECK_STATUS(env, symmem_barrier(handle, 0, 1000, b),
                 at_once || kind == NO_ORDER ? SYMMEM_BACKEND : SYMMEM_OK);
    if (kind == NO_BARRIER || kind == NO_WAIT)
        CHECK_STATUS(env, symmem_barrier(handle, 0, 1000, NULL), SYMMEM_BACKEND);
    if (kind == NO_QUERY)
        CHECK_STATUS(env, symmem_handle_reset(handle, 1000), SYMMEM_BACKEND);
}

TEST("entries that fail") {
    static const flat_backend failing[NO_COUNT] = {
        [NO_ORDER] = {.stream_wait_event = no_order}, [NO_RECORD] = {.event_record = no_record},
        [NO_BARRIER] = {.barrier = no_barrier},       [NO_ID] = {.capture_id = no_id},
        [NO_WAIT] = {.event_synchronize = no_wait},   [NO_QUERY] = {.event_query = no_query}};
    for (int kind = 0; kind < NO_COUNT; kind++)
        run_threads(
            (plan){.world = 1, .body = body_entries, .entries = failing[kind], .argument = kind});
}

/* --- a mark that is a moment behind what it marks ------------------------------------- */

static int late_answers; /* not reached yet */

static symmem_status late_query(void *instance, void *event, bool *reached_p) {
    symmem_status status =
        symmem_backend_entry(SYMMEM_BACKEND_ABI)->stream->event_query(instance, event, reached_p);
    if (late_answers > 0) {
        late_answers--;
        *reached_p = false;
    }
    return status;
}

RANKS_TEST("a mark that is behind", .world = 1, .entries = {.event_query = late_query}) {
    symmem_handle *handle = env_kept_handle(env, NULL);
    symmem_stream *stream = env_stream(env);
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
}

/* --- a clock of the program's ---------------------------------------------------------- */

#define MINUTE_NS UINT64_C(60000000000)

static void body_clock(rank_env *env) {
    void *ptr = NULL;
    symmem_stream *stream = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    plan by_the_machine = *env->plan;
    rank_env other = *env;
    by_the_machine.clock = NULL;
    other.plan = &by_the_machine;
    env_open(&other); /* each context's calls go by its own */
    CHECK(env, symmem_context_rank(env->context, &other.rank) == SYMMEM_OK);
    uint64_t begin_ns = sm_now_ns();
    CHECK_STATUS(env, symmem_wait_signal(handle, 0, 1, 60000, NULL), SYMMEM_TIMEOUT);
    CHECK(env, last_record().elapsed_ns == MINUTE_NS && sm_now_ns() - begin_ns == MINUTE_NS);
    CHECK_OK(env, symmem_handle_reset(handle, 10000));
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    begin_ns = sm_now_ns();
    CHECK_OK(env, symmem_wait_signal(handle, 0, 1, 60000, stream));
    symmem_context_free(other.context);
    CHECK_STATUS(env, symmem_stream_synchronize(stream, 10000), SYMMEM_TIMEOUT);
    CHECK(env, last_record().elapsed_ns == MINUTE_NS / 6);
    CHECK_STATUS(env, symmem_stream_synchronize(stream, 0), SYMMEM_TIMEOUT);
    CHECK(env, last_record().elapsed_ns == MINUTE_NS && sm_now_ns() - begin_ns == MINUTE_NS);
    CHECK_OK(env, symmem_stream_destroy(stream));
    symmem_handle_release(handle);
}

/* To the nanosecond. The machine's would be late by some. */
TEST("a clock of the program's") {
    unit_clock *clock = unit_clock_open();
    CU_ASSERT_PTR_NOT_NULL_FATAL(clock);
    run_threads((plan){.world = 1, .body = body_clock, .clock = &clock->clock});
    CU_ASSERT_EQUAL(clock->threads, 1);
    unit_clock_close(clock);
}
