/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backends unlike the emulation: entries it has not, capabilities it lacks, and contexts that end
 * in the middle of a call.
 */
#include "link_ranks.h"

static const symmem_backend *shm(void) {
    return symmem_backend_entry(SYMMEM_BACKEND_ABI);
}

/* --- memory_exchange fails on one rank after the others have succeeded -------------- */

static _Thread_local bool exchange_fails;
static _Thread_local int imported, imported_at_close; /* this rank's registrations */

static symmem_status open_group(void *instance, const symmem_exchange *exchange, int32_t device,
                                void **group_p) {
    *group_p = instance;
    return SYMMEM_OK;
}

static void close_group(void *instance, void *group) {
    imported_at_close = imported;
}

static void release_memory(void *instance, symmem_memory *memory) {
    imported -= memory->imported;
    shm()->memory->release(instance, memory);
}

static symmem_status exchange_memory(void *instance, void *group, symmem_memory *own,
                                     const symmem_exchange *exchange, symmem_memory *peers) {
    symmem_share share = {.fd = -1}, shares[MAX_RANKS];
    int32_t other = (exchange->rank + 1) % exchange->world_size;
    if (exchange->peer_state(exchange, -1) != SYMMEM_PEER_ALIVE ||
        exchange->peer_state(exchange, exchange->world_size) != SYMMEM_PEER_ALIVE ||
        exchange->peer_state(exchange, other) != SYMMEM_PEER_ALIVE ||
        exchange->peer_is_ending(exchange, -1) ||
        exchange->peer_is_ending(exchange, exchange->world_size) ||
        exchange->peer_is_ending(exchange, other))
        return SYMMEM_BACKEND;
    symmem_status status = shm()->memory->share(instance, own, &share);
    if (status == SYMMEM_OK)
        status = exchange->all_gather(exchange, &share, sizeof share, shares);
    for (int32_t r = 0; status == SYMMEM_OK && r < exchange->world_size; r++) {
        if (r == 1 && exchange->rank == 0)
            continue; /* no access to that rank */
        shares[r].same_process = 1;
        status = shm()->memory->map(instance, own->device, &shares[r], own->bytes, &peers[r]);
        imported += status == SYMMEM_OK;
    }
    symmem_status met = exchange->barrier(exchange);
    shm()->memory->unshare(instance, &share);
    if (status == SYMMEM_OK)
        status = met;
    if (!exchange_fails || status != SYMMEM_OK)
        return status;
    for (int32_t r = 0; r < exchange->world_size; r++) {
        release_memory(instance, &peers[r]);
        peers[r] = (symmem_memory){0};
    }
    return SYMMEM_NO_SPACE;
}

RANKS_TEST("memory exchange fails late", .world = 3,
           .entries = {.memory_exchange = exchange_memory,
                       .memory_release = release_memory,
                       .group_open = open_group,
                       .group_close = close_group}) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    symmem_handle_info info = {0};
    void *const *buffers = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    exchange_fails = env->rank == env->world - 1;
    imported_at_close = -1;
    CHECK_STATUS(env, meet_at(env, ptr, 5000, &handle), SYMMEM_NO_SPACE);
    CHECK(env, last_record().failed_rank == env->world - 1);
    CHECK(env, imported_at_close == 0); /* a communicator ends after what was registered with it */
    exchange_fails = false;
    CHECK_OK(env, meet_at(env, ptr, 5000, &handle));
    CHECK_OK(env, symmem_handle_get_info(handle, &info));
    CHECK(env, info.world_within_direct_access == (env->rank != 0));
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    CHECK(env, (buffers[1] == NULL) == (env->rank == 0));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

/* --- shares, devices and names that do not suit ------------------------------------- */

static symmem_status export_nothing(void *instance, symmem_memory *memory, symmem_share *share) {
    symmem_status status = shm()->memory->share(instance, memory, share);
    if (status == SYMMEM_OK) {
        shm()->memory->unshare(instance, share);
        share->kind = SYMMEM_SHARE_FD;
    }
    return status;
}

static _Thread_local int shares_open; /* this rank's */

/* As a backend does that forgets to say which way its share leads. */
static symmem_status export_untyped(void *instance, symmem_memory *memory, symmem_share *share) {
    symmem_status status = shm()->memory->share(instance, memory, share);
    shares_open += status == SYMMEM_OK;
    share->kind = SYMMEM_SHARE_NONE;
    return status;
}

static void close_untyped(void *instance, symmem_share *share) {
    shares_open--;
    shm()->memory->unshare(instance, share);
}

static _Thread_local uint8_t device_id;

static symmem_status identified(void *instance, int32_t device, symmem_device_info *info_p) {
    symmem_status status = shm()->instance->device_info(instance, device, info_p);
    info_p->unique_id[0] = device_id;
    return status;
}

enum { NO_DESCRIPTOR, NO_KIND, NO_POOL, SAME_ID, OTHER_ID, OTHER_NAME, ONE_CANNOT, UNSUITED };

static void body_unsuited(rank_env *env) {
    static const symmem_status expected[] = {SYMMEM_BACKEND, SYMMEM_BACKEND, SYMMEM_OK,
                                             SYMMEM_OVERLAP, SYMMEM_OK,      SYMMEM_MISMATCH,
                                             SYMMEM_OVERLAP};
    int kind = env->plan->argument;
    void *ptr = NULL;
    symmem_pool *pool = NULL;
    symmem_handle *handle = NULL;
    flat_backend other = flat_of(env->plan->backend);
    device_id = kind == OTHER_ID ? (uint8_t)(1 + env->rank) : 9;
    other.head.name = "other";
    if (kind == ONE_CANNOT && env->rank == 1)
        other.head.flags &= ~SYMMEM_CAP_OVERLAP;
    if (kind == ONE_CANNOT || (kind == OTHER_NAME && env->rank == 1)) {
        CHECK_OK(env, symmem_register_backend(env->context, flat_table(&other)));
        CHECK_OK(env, symmem_set_backend(env->context, "other"));
    }
    if (kind == NO_POOL)
        CHECK_STATUS(env, symmem_pool_create(env->context, -1, BYTES, &pool), SYMMEM_UNSUPPORTED);
    CHECK_OK(env, symmem_alloc(env->context, 64, -1, NULL, &ptr));
    CHECK_STATUS(env, meet_at(env, ptr, 5000, &handle), expected[kind]);
    if (expected[kind] != SYMMEM_OK)
        CHECK(env, last_record().failed_rank >= 0);
    if (kind == NO_KIND)
        CHECK(env, strstr(last_record().message, "SYMMEM_SHARE_BYTES") && shares_open == 0);
    if (kind == OTHER_NAME)
        CHECK(env, last_record().failed_rank == 1 && last_record().status == SYMMEM_MISMATCH &&
                       strcmp(last_record().stage, "metadata") == 0 &&
                       strstr(last_record().message, "rank 1 has other") != NULL);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
    CHECK_OK(env, symmem_finalize(env->context)); /* before `other` ends */
}

TEST("shares, devices and names") {
    for (int kind = 0; kind < UNSUITED; kind++) {
        flat_backend table = flat_of(shm());
        if (kind == NO_DESCRIPTOR)
            table.memory_share = export_nothing;
        if (kind == NO_KIND) {
            table.memory_share = export_untyped;
            table.memory_unshare = close_untyped;
        }
        if (kind == NO_POOL)
            table.head.flags &= ~SYMMEM_CAP_POOL;
        if (kind == SAME_ID || kind == OTHER_ID)
            table.device_info = identified;
        run_threads((plan){.world = 2,
                           .body = body_unsuited,
                           .backend = flat_table(&table),
                           .argument = kind,
                           .same_device = kind == OTHER_ID || kind == ONE_CANNOT,
                           .overlap = kind == ONE_CANNOT});
    }
}

static symmem_status untyped(void *instance, int32_t device, symmem_device_info *info_p) {
    symmem_status status = shm()->instance->device_info(instance, device, info_p);
    info_p->device_type = 0;
    return status;
}

RANKS_TEST("devices without a type", .world = 1, .entries = {.device_info = untyped}) {
    int32_t type = -7;
    CHECK_STATUS(env, symmem_device_type(env->context, &type), SYMMEM_BACKEND);
    CHECK(env, type == -7 && strstr(last_record().message, "device_type"));
}

/* A device's type is no part of each call's price. */
static atomic_int questions;

static symmem_status count_question(void *instance, int32_t device, symmem_device_info *info_p) {
    atomic_fetch_add(&questions, 1);
    return shm()->instance->device_info(instance, device, info_p);
}

RANKS_TEST("a device is asked for its type once", .world = 1,
           .entries = {.device_info = count_question}) {
    int64_t count = 8;
    char *memory = NULL;
    CHECK_OK(env, symmem_alloc(env->context, 64, -1, NULL, (void **)&memory));
    symmem_handle *handle = env_rendezvous(env, memory);
    DLTensor words = {.data = memory,
                      .device = {.device_type = kDLCPU, .device_id = 1},
                      .ndim = 1,
                      .dtype = {.code = kDLInt, .bits = 32, .lanes = 1},
                      .shape = &count};
    for (int i = 0; i < 3; i++) {
        int before = atomic_load(&questions);
        CHECK_OK(env, symmem_two_shot_all_reduce(handle, &words, SYMMEM_SUM, 0, 10000, NULL));
        CHECK(env, atomic_load(&questions) - before == (i == 0 ? 1 : 0));
    }
    words.device.device_type = kDLCUDA;
    CHECK_STATUS(env, symmem_two_shot_all_reduce(handle, &words, SYMMEM_SUM, 0, 10000, NULL),
                 SYMMEM_INVALID_ARGUMENT);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, memory));
}

/* --- signals: devices that are asked, peers that are not told, streams that cannot capture --- */

static _Thread_local int checks; /* of this rank's calls */

static void count_check(void *instance, const symmem_peers *peers) {
    checks++;
}

static void body_signals(rank_env *env) {
    symmem_stream *stream = NULL;
    symmem_handle *handle = env_kept_handle(env, NULL);
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    int before = checks;
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, stream));
    CHECK_OK(env, symmem_stream_synchronize(stream, 10000));
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    CHECK(env, checks - before == 2); /* each call once */
    CHECK_STATUS(env, symmem_wait_signal(handle, env->rank, 0, 30, NULL), SYMMEM_TIMEOUT);
    CHECK_STATUS(env, symmem_barrier(handle, 0, 30, stream), SYMMEM_POISONED);
    CHECK_OK(env, symmem_stream_destroy(stream));
    CHECK_OK(env, symmem_handle_reset(handle, 10000));
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
}

TEST("signals") {
    flat_backend table = flat_of(shm());
    flat_without(&table, SYMMEM_CAP_CAPTURE);
    table.signal_poison = NULL;
    table.signal_check = count_check;
    run_threads((plan){.world = 2, .body = body_signals, .backend = flat_table(&table)});
}

static atomic_int poisonings;

static void count_poisoning(void *instance, const symmem_peers *peers) {
    atomic_fetch_add(&poisonings, 1);
    shm()->signal->poison(instance, peers);
}

static void wait_until_open(void *open) {
    for (int i = 0; i < 10000 && atomic_load((atomic_int *)open) == 0; i++)
        sm_sleep_ns(1000000);
}

/* However many operations fail, the peers are told once, and again after a reset. */
RANKS_TEST("peers are told of a poisoning once", .world = 1,
           .entries = {.signal_poison = count_poisoning}) {
    symmem_stream *streams[2] = {NULL, NULL};
    symmem_handle *handle = env_kept_handle(env, NULL);
    for (int i = 0; i < 2; i++)
        CHECK_OK(env, symmem_stream_create(env->context, -1, &streams[i]));
    for (int round = 1; round <= 2; round++) {
        /* Both are enqueued before one can fail. */
        atomic_int open = 0;
        for (int i = 0; i < 2; i++) {
            CHECK_OK(env, symmem_stream_host_fn(streams[i], wait_until_open, &open));
            CHECK_OK(env, symmem_wait_signal(handle, env->rank, i, 20, streams[i]));
        }
        atomic_store(&open, 1);
        for (int i = 0; i < 2; i++)
            CHECK(env, symmem_stream_synchronize(streams[i], 10000) != SYMMEM_OK);
        CHECK(env, atomic_load(&poisonings) == round);
        CHECK_OK(env, symmem_handle_reset(handle, 10000));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(env, symmem_stream_destroy(streams[i]));
}

static _Thread_local int own_poisonings;
static _Thread_local bool reset_is_busy;

/* What fails in it is no failure of the caller's. */
static void count_own_poisoning(void *instance, const symmem_peers *peers) {
    own_poisonings++;
    shm()->signal->poison(instance, peers);
    (void)peers->host->fail(peers->host, SYMMEM_OUT_OF_MEMORY, 0, "poison", "no room to note it");
}

static symmem_status reset_or_busy(void *instance, const symmem_peers *peers) {
    return reset_is_busy ? SYMMEM_BUSY : shm()->signal->reset(instance, peers);
}

/* A rank that was reset before another one could not be has forgotten what it had told. Who waits
 * longer than the other is poisoned by it: either failure is the first of its rank. */
RANKS_TEST("peers are told again after half a reset", .world = 2,
           .entries = {.signal_poison = count_own_poisoning, .signal_reset = reset_or_busy}) {
    symmem_handle *handle = env_kept_handle(env, NULL);
    symmem_status waited = symmem_wait_signal(handle, 1 - env->rank, 0, 20, NULL);
    CHECK(env, waited == SYMMEM_TIMEOUT || waited == SYMMEM_POISONED);
    CHECK(env, own_poisonings == 1 && last_record().status == waited);
    reset_is_busy = env->rank == 0;
    CHECK(env, symmem_handle_reset(handle, 10000) == SYMMEM_BUSY);
    CHECK(env, own_poisonings == 2 && last_record().status == SYMMEM_BUSY);
    CHECK(env, symmem_barrier(handle, 0, 10000, NULL) == SYMMEM_POISONED);
    reset_is_busy = false;
    CHECK_OK(env, symmem_handle_reset(handle, 10000));
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
}

/* --- streams of others -------------------------------------------------------------- */

static int foreign, bad;

static symmem_status wrap_stream(void *instance, int32_t device, void *native, void **stream_p) {
    return native == &foreign ? shm()->stream->create(instance, device, stream_p) : SYMMEM_LIMIT;
}

RANKS_TEST("streams of others", .world = 1, .entries = {.stream_wrap = wrap_stream}) {
    symmem_stream *stream = NULL;
    symmem_context *context = env->context;
    bool idle = false;
    CHECK_STATUS(env, symmem_stream_wrap(NULL, 0, &foreign, &stream), SYMMEM_NOT_INITIALIZED);
    CHECK_STATUS(env, symmem_stream_wrap(context, 0, NULL, &stream), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_wrap(context, 0, &foreign, NULL), SYMMEM_INVALID_ARGUMENT);
    CHECK_STATUS(env, symmem_stream_wrap(context, 9, &foreign, &stream), SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, symmem_stream_wrap(context, 0, &bad, &stream), SYMMEM_LIMIT);
    CHECK(env, stream == NULL && strcmp(last_record().stage, "stream_wrap") == 0);
    CHECK_OK(env, symmem_stream_wrap(context, 0, &foreign, &stream));
    CHECK_OK(env, symmem_stream_query(stream, &idle));
    CHECK(env, idle);
    CHECK_OK(env, symmem_stream_destroy(stream));
}

/* --- an end of work that cannot be marked --------------------------------------------- */

static _Thread_local bool marks_fail;

static symmem_status fail_mark(void *instance, void *event, void *stream) {
    return marks_fail ? SYMMEM_BACKEND : shm()->stream->event_record(instance, event, stream);
}

static void slow_work(void *arg) {
    sm_sleep_ns(20000000);
    atomic_store((atomic_bool *)arg, true);
}

/* Nothing could wait for such work later: the call does. */
RANKS_TEST("an end that cannot be marked", .world = 1, .entries = {.event_record = fail_mark}) {
    atomic_bool done = false;
    symmem_graph *graph = NULL;
    symmem_handle *handle = env_kept_handle(env, NULL);
    symmem_stream *stream = env_stream(env);
    CHECK_OK(env, symmem_stream_begin_capture(stream));
    CHECK_OK(env, symmem_stream_host_fn(stream, slow_work, &done));
    CHECK_OK(env, symmem_stream_end_capture(stream, &graph));
    marks_fail = true;
    CHECK_STATUS(env, symmem_graph_launch(graph, stream), SYMMEM_BACKEND);
    CHECK(env, atomic_load(&done));
    CHECK(env, strcmp(last_record().operation, "graph_launch") == 0);
    CHECK(env, strcmp(last_record().stage, "event_record") == 0);
    atomic_store(&done, false);
    CHECK_OK(env, symmem_stream_host_fn(stream, slow_work, &done));
    CHECK_STATUS(env, symmem_barrier(handle, 0, 10000, stream), SYMMEM_BACKEND);
    CHECK(env, atomic_load(&done));
    marks_fail = false;
    CHECK_OK(env, symmem_barrier(handle, 0, 10000, NULL));
    CHECK_OK(env, symmem_graph_launch(graph, stream));
    CHECK_OK(env, symmem_graph_destroy(graph));
}

/* --- a call that fails when a part of its work is on the stream ------------------------------- */

static _Thread_local bool half_fails;
static atomic_bool half_done;

static symmem_status half(void *instance, const symmem_exec *exec) {
    symmem_status status = shm()->stream->host_fn(instance, exec->stream, slow_work, &half_done);
    return status == SYMMEM_OK ? SYMMEM_LIMIT : status;
}

static symmem_status half_a_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                                    const symmem_exec *exec) {
    return half_fails ? half(instance, exec)
                      : shm()->signal->barrier(instance, peers, channel, exec);
}

static symmem_status half_a_put(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, const symmem_exec *exec) {
    return half(instance, exec);
}

static symmem_status half_a_collective(void *instance, const symmem_peers *peers, int32_t channel,
                                       const symmem_collective *call, const symmem_exec *exec) {
    return half(instance, exec);
}

enum { HALF_BARRIER, HALF_PUT, HALF_COLLECTIVE, HALVES };

static symmem_status do_half(int what, symmem_handle *handle, void *ptr, symmem_stream *stream) {
    int64_t count = 4;
    DLTensor values = {
        .data = ptr, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 32, 1}, .shape = &count};
    half_fails = true;
    symmem_status status =
        what == HALF_BARRIER ? symmem_barrier(handle, 0, 10000, stream)
        : what == HALF_PUT
            ? symmem_put_signal(handle, 0, 0, 10000, stream)
            : symmem_two_shot_all_reduce(handle, &values, SYMMEM_SUM, 0, 10000, stream);
    half_fails = false;
    return status;
}

/* The channel's next operation comes behind that part, with another stream and without one. */
RANKS_TEST("a call fails behind a part of its work", .world = 1,
           .entries = {.barrier = half_a_barrier,
                       .put_signal = half_a_put,
                       .collective = half_a_collective}) {
    void *ptr = NULL;
    symmem_stream *streams[2] = {NULL, NULL};
    symmem_handle *handle = env_kept_handle(env, &ptr);
    for (int i = 0; i < 2; i++)
        CHECK_OK(env, symmem_stream_create(env->context, -1, &streams[i]));
    for (int i = 0; i < 2 * HALVES; i++) {
        static const char *const entries[] = {"barrier", "put_signal", "collective"};
        CHECK_OK(env, symmem_barrier(handle, 0, 10000, streams[1]));
        CHECK_OK(env, symmem_stream_synchronize(streams[1], 10000));
        atomic_store(&half_done, false);
        symmem_clear_error(); /* or it would be taken for what the backend tells */
        CHECK_STATUS(env, do_half(i / 2, handle, ptr, streams[0]), SYMMEM_LIMIT);
        CHECK(env, strcmp(last_record().stage, entries[i / 2]) == 0);
        CHECK_OK(env, symmem_barrier(handle, 0, 10000, i % 2 == 0 ? streams[1] : NULL));
        CHECK_OK(env, symmem_stream_synchronize(streams[1], 10000));
        CHECK(env, atomic_load(&half_done));
        CHECK_OK(env, symmem_stream_synchronize(streams[0], 10000));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(env, symmem_stream_destroy(streams[i]));
}

/* A graph is not taken from under its launch, whatever the backend would make of that. */
static atomic_bool launched_work_done;

static void destroy_after_work(void *instance, void *graph) {
    if (!atomic_load(&launched_work_done))
        abort();
    shm()->graph->destroy(instance, graph);
}

RANKS_TEST("a graph is destroyed after its launch", .world = 1,
           .entries = {.graph_destroy = destroy_after_work}) {
    symmem_graph *graph = NULL;
    symmem_stream *stream = env_stream(env);
    CHECK_OK(env, symmem_stream_begin_capture(stream));
    CHECK_OK(env, symmem_stream_host_fn(stream, slow_work, &launched_work_done));
    CHECK_OK(env, symmem_stream_end_capture(stream, &graph));
    CHECK_OK(env, symmem_graph_launch(graph, stream));
    CHECK_OK(env, symmem_graph_destroy(graph));
}

/* --- a context that another thread ends while one makes something ------------------- */

static symmem_context *ending; /* to be finalized at the next call of the entry */

static void end_context(void) {
    if (ending == NULL)
        return;
    symmem_context *context = ending;
    ending = NULL;
    if (symmem_finalize(context) != SYMMEM_OK)
        abort();
}

static symmem_status late_count(void *instance, int32_t *count_p) {
    end_context();
    return shm()->instance->device_count(instance, count_p);
}

static symmem_status late_stream(void *instance, int32_t device, void **stream_p) {
    end_context();
    return shm()->stream->create(instance, device, stream_p);
}

static symmem_status late_event(void *instance, int32_t device, void **event_p) {
    end_context();
    return shm()->stream->event_create(instance, device, event_p);
}

static symmem_status late_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory) {
    end_context();
    return shm()->memory->alloc(instance, device, bytes, memory);
}

static void body_ends(rank_env *env) {
    symmem_stream *stream = NULL;
    symmem_event *event = NULL;
    symmem_pool *pool = NULL;
    void *ptr = NULL;
    symmem_status status = SYMMEM_OK;
    symmem_clear_error();
    ending = env->context;
    switch (env->plan->argument) {
    case 0:
        status = symmem_stream_create(env->context, -1, &stream);
        break;
    case 1:
        status = symmem_event_create(env->context, -1, &event);
        break;
    case 2:
        status = symmem_pool_create(env->context, -1, BYTES, &pool);
        break;
    default:
        status = symmem_alloc(env->context, BYTES, -1, NULL, &ptr);
        break;
    }
    CHECK(env, ending == NULL || env->plan->argument == 2);
    ending = NULL;
    CHECK(env, status == SYMMEM_NOT_INITIALIZED || env->plan->argument == 2);
    CHECK(env, last_record().status == status);
    CHECK(env, stream == NULL && event == NULL && ptr == NULL);
    (void)!symmem_pool_destroy(pool);
}

TEST("contexts that end meanwhile") {
    static const flat_backend late[] = {
        {.device_count = late_count},
        {.stream_create = late_stream, .event_create = late_event, .memory_alloc = late_alloc}};
    for (int kind = 0; kind < 4; kind++)
        for (int i = 0; i < 2; i++)
            run_threads(
                (plan){.world = 1, .body = body_ends, .entries = late[i], .argument = kind});
}
