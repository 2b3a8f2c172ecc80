/* SPDX-License-Identifier: BSD-3-Clause */
/* Several threads of one rank. */
#include "case_help.h"

#define BYTES 1024
#define THREADS 4

struct worker {
    struct tk *t;
    symmem_handle *handle;
    int32_t number; /* of the thread; its channel too */
    int32_t rounds;
    const int *order;   /* in which the signals come */
    atomic_int *served; /* threads whose signal has come */
};

/* THREADS of them, numbered, with what `usual` has otherwise. */
static void run(struct tk *t, void *(*body)(void *), struct worker usual) {
    struct worker workers[THREADS];
    for (int32_t i = 0; i < THREADS; i++) {
        workers[i] = usual;
        workers[i].t = t;
        workers[i].number = i;
    }
    tk_in_threads(t, body, workers, sizeof(workers[0]), THREADS);
}

/* --- allocations ------------------------------------------------------------------------------ */

static void *allocate_in_thread(void *arg) {
    struct worker *own = arg;
    struct tk *t = own->t;
    for (int32_t round = 0; round < own->rounds; round++) {
        const size_t bytes = 64 + (size_t)(round * 300 + own->number * 17);
        char *ptr = NULL;
        uint8_t byte = (uint8_t)(own->number + 1), found = 0;
        size_t size = 0;
        if (!TK_OK(t, symmem_alloc(t->context, bytes, -1, NULL, (void **)&ptr)))
            return NULL;
        TK_OK(t, symmem_alloc_size(t->context, ptr + bytes / 2, &size));
        TK_EQ_SIZE(t, bytes, size);
        TK_CHECK(t, is_symmetric(t, ptr));
        TK_OK(t, symmem_copy(t->context, ptr + bytes - 1, &byte, 1, NULL));
        TK_OK(t, symmem_copy(t->context, &found, ptr + bytes - 1, 1, NULL));
        TK_EQ_INT(t, byte, found);
        TK_OK(t, symmem_free(t->context, ptr));
    }
    return NULL;
}

TK_TEST(thread, allocations_in_threads, "SM-THREAD-01", .max_ranks = 2) {
    run(t, allocate_in_thread, (struct worker){.rounds = 25});
}

/* --- handles and channels --------------------------------------------------------------------- */

/* A round of everything on one handle and one channel. */
static void *operate_in_thread(void *arg) {
    struct worker *own = arg;
    struct tk *t = own->t;
    const int32_t right = t->next;
    const int32_t left = t->previous;
    const size_t place = (size_t)own->number * 64;
    for (int32_t round = 0; round < own->rounds; round++) {
        uint32_t mine = (uint32_t)(t->rank * 1000 + own->number * 100 + round), found = 0;
        TK_OK(t, symmem_put(own->handle, right, place, &mine, sizeof(mine), NULL));
        TK_OK(t, symmem_put_signal(own->handle, right, own->number, LONG_MS, NULL));
        TK_OK(t, symmem_wait_signal(own->handle, left, own->number, LONG_MS, NULL));
        TK_OK(t, symmem_get(own->handle, t->rank, place, &found, sizeof(found), NULL));
        TK_EQ_INT(t, left * 1000 + own->number * 100 + round, found);
        TK_OK(t, symmem_barrier(own->handle, own->number, LONG_MS, NULL));
    }
    return NULL;
}

TK_TEST(thread, channels_in_threads, "SM-THREAD-01", .max_ranks = 3) {
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    run(t, operate_in_thread, (struct worker){.handle = handle, .rounds = 15});
}

TK_TEST(thread, handles_in_threads, "SM-THREAD-01", .max_ranks = 3) {
    struct worker workers[THREADS];
    for (int i = 0; i < THREADS; i++)
        workers[i] = (struct worker){.t = t,
                                     .handle = tk_handle(t, BYTES, tk_world_group(t)),
                                     .number = i % 2, /* two and two on the same channel */
                                     .rounds = 15};
    tk_in_threads(t, operate_in_thread, workers, sizeof(workers[0]), THREADS);
}

/* --- one channel ------------------------------------------------------------------------------ */

static void *barrier_in_thread(void *arg) {
    struct worker *own = arg;
    for (int32_t round = 0; round < own->rounds; round++)
        TK_OK(own->t, symmem_barrier(own->handle, 1, LONG_MS, NULL));
    return NULL;
}

static void *signal_in_thread(void *arg) {
    struct worker *own = arg;
    struct tk *t = own->t;
    for (int32_t round = 0; round < own->rounds; round++) {
        if (t->rank == 0)
            TK_OK(t, symmem_put_signal(own->handle, 1, 2, LONG_MS, NULL));
        else
            TK_OK(t, symmem_wait_signal(own->handle, 0, 2, LONG_MS, NULL));
    }
    return NULL;
}

TK_TEST(thread, one_channel_in_turn, "SM-THREAD-02", .max_ranks = 3) {
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    run(t, barrier_in_thread, (struct worker){.handle = handle, .rounds = 10});
    TK_OK(t, symmem_barrier(handle, 1, LONG_MS, NULL)); /* no rank is a round ahead */
}

/* As many waits as puts, from several threads at both ends: no signal is lost or taken twice. */
TK_TEST(thread, signals_of_one_channel, "SM-THREAD-02", .ranks = {2, 2}) {
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    run(t, signal_in_thread, (struct worker){.handle = handle, .rounds = 10});
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    if (t->rank == 1)
        TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, 0, 2, 40, NULL));
    tk_out_of_band_barrier(t);
}

/* --- several waits ---------------------------------------------------------------------------- */

static void *wait_in_thread(void *arg) {
    struct worker *own = arg;
    struct tk *t = own->t;
    TK_OK(t, symmem_wait_signal(own->handle, 0, own->number, LONG_MS, NULL));
    /* This thread is the one that comes next. */
    TK_EQ_INT(t, own->number, own->order[atomic_fetch_add(own->served, 1)]);
    TK_OK(t, symmem_put_signal(own->handle, 0, own->number, LONG_MS, NULL));
    return NULL;
}

TK_TEST(thread, each_wait_ends_with_its_signal, "SM-THREAD-03", .ranks = {2, 2}) {
    static const int orders[3][THREADS] = {{3, 2, 1, 0}, {0, 1, 2, 3}, {2, 0, 3, 1}};
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    for (int i = 0; i < 3; i++) {
        atomic_int served = 0;
        if (t->rank == 1)
            run(t, wait_in_thread,
                (struct worker){.handle = handle, .order = orders[i], .served = &served});
        for (int k = 0; t->rank == 0 && k < THREADS; k++) {
            if (k == 0)
                tk_sleep_ms(20); /* let them all begin to wait */
            TK_OK(t, symmem_put_signal(handle, 1, orders[i][k], LONG_MS, NULL));
            TK_OK(t, symmem_wait_signal(handle, 1, orders[i][k], LONG_MS, NULL));
        }
    }
}

/* Waiting in one thread holds up neither queries nor other memory in another. */
static void *wait_long_in_thread(void *arg) {
    struct worker *own = arg;
    TK_OK(own->t, symmem_wait_signal(own->handle, 0, 0, LONG_MS, NULL));
    atomic_store(own->served, 1);
    return NULL;
}

TK_TEST(thread, waiting_holds_nothing_up, "SM-THREAD-01", .ranks = {2, 2}) {
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    symmem_handle *other = tk_handle(t, BYTES, tk_world_group(t));
    atomic_int ended = 0;
    struct worker waiter = {.t = t, .handle = handle, .served = &ended};
    pthread_t thread;
    bool started = false;
    if (t->rank == 1) {
        struct worker allocating = {.t = t, .rounds = 5};
        started = TK_CHECK(t, pthread_create(&thread, NULL, wait_long_in_thread, &waiter) == 0);
        tk_sleep_ms(20);
        (void)allocate_in_thread(&allocating);
        TK_EQ_INT(t, 0, atomic_load(&ended));
    }
    TK_OK(t, symmem_barrier(handle, 1, LONG_MS, NULL));
    TK_OK(t, symmem_barrier(other, 0, LONG_MS, NULL));
    (void)tk_handle(t, BYTES, tk_world_group(t));
    tk_out_of_band_barrier(t);
    TK_EQ_INT(t, 0, atomic_load(&ended));
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_OK(t, symmem_put_signal(handle, 1, 0, LONG_MS, NULL));
    if (started) {
        TK_EQ_INT(t, 0, pthread_join(thread, NULL));
        TK_EQ_INT(t, 1, atomic_load(&ended));
    }
}

/* --- who releases last ------------------------------------------------------------------------ */

/* A thread that looks at its handle and gives it back. It makes no check meanwhile, and nothing
 * else with it: the order of the two threads is the library's business alone. */
struct releaser {
    symmem_handle *handle;
    symmem_status status;
};

static void *look_and_release(void *arg) {
    struct releaser *own = arg;
    symmem_handle_info info;
    own->status = symmem_handle_get_info(own->handle, &info);
    symmem_handle_release(own->handle);
    return NULL;
}

/* Two threads hold one handle, or one link with a handle for each. The last one takes it down,
 * after all that the other did. */
TK_TEST(thread, last_release_comes_last, "SM-HANDLE-12,SM-THREAD-01", .max_ranks = 2) {
    TK_REQ(t, "SM-HANDLE-12");
    for (int round = 0; round < 10; round++) {
        void *memory = tk_alloc(t, 64);
        struct releaser own, others;
        pthread_t other;
        TK_REQUIRE_OK(
            t, symmem_rendezvous(t->context, memory, tk_world_group(t), LONG_MS, &own.handle));
        others.handle = own.handle;
        if (round % 2 == 0)
            TK_REQUIRE_OK(t, symmem_handle_retain(own.handle));
        else
            TK_REQUIRE_OK(t, symmem_rendezvous(t->context, memory, tk_world_group(t), LONG_MS,
                                               &others.handle));
        tk_free(t, memory);
        TK_REQUIRE(t, pthread_create(&other, NULL, look_and_release, &others) == 0);
        (void)look_and_release(&own);
        TK_EQ_INT(t, 0, pthread_join(other, NULL));
        TK_EQ_INT(t, SYMMEM_OK, own.status);
        TK_EQ_INT(t, SYMMEM_OK, others.status);
    }
}

/* --- one stream and one event ----------------------------------------------------------------- */

struct shared {
    struct tk *t;
    symmem_stream *streams[2];
    symmem_event *event;
    char *memory;
    atomic_int number; /* of the next thread */
};

static void *share_in_thread(void *arg) {
    struct shared *shared = arg;
    struct tk *t = shared->t;
    const int number = atomic_fetch_add(&shared->number, 1);
    char *own = shared->memory + 64 * number;
    symmem_stream *stream = shared->streams[number % 2], *other = shared->streams[1 - number % 2];
    for (uint32_t round = 1; round <= 40; round++) {
        uint32_t found = 0;
        bool flag = false;
        void *memory = NULL;
        TK_OK(t, symmem_copy(t->context, own, &round, sizeof(round), stream));
        TK_OK(t, symmem_event_record(shared->event, stream));
        TK_OK(t, symmem_stream_wait_event(other, shared->event));
        TK_OK(t, symmem_event_query(shared->event, &flag));
        TK_OK(t, symmem_stream_query(other, &flag));
        TK_OK(t, symmem_event_synchronize(shared->event, LONG_MS));
        TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
        TK_OK(t, symmem_copy(t->context, &found, own, sizeof(found), NULL));
        TK_EQ_INT(t, round, found);
        if (round % 10 == 0 && TK_OK(t, symmem_alloc(t->context, 64, -1, NULL, &memory)))
            TK_OK(t, symmem_free(t->context, memory)); /* waits for the device's streams */
    }
    return NULL;
}

TK_TEST(thread, stream_in_threads, "SM-THREAD-04", .needs = SYMMEM_CAP_STREAMS, .max_ranks = 2) {
    struct shared shared = {.t = t, .memory = tk_alloc(t, 64 * THREADS)};
    for (int i = 0; i < 2; i++)
        shared.streams[i] = tk_stream(t);
    shared.event = tk_event(t);
    tk_in_threads(t, share_in_thread, &shared, 0, THREADS); /* all get the same */
}
