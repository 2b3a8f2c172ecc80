/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every resource that the emulation asks for is refused once, in turn: the call says so with the
 * right status, outputs stay untouched, and nothing leaks. Likewise every test point.
 */

#include "shm.h"
#include "shm_fake_host.h"
#include "unit_main.h"

/* Refusals left until the one that counts, in the armed thread; -1: not armed. */
static _Thread_local int until_refusal = -1;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void __libc_free(void *old);

static atomic_int live_count; /* allocations not yet freed, in the whole program */

static bool refused(void) {
    if (until_refusal < 0)
        return false;
    return until_refusal-- == 0;
}

static void *counted(void *fresh) {
    if (fresh)
        atomic_fetch_add(&live_count, 1);
    else
        errno = ENOMEM;
    return fresh;
}

void *malloc(size_t bytes) {
    return counted(refused() ? NULL : __libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes) {
    return counted(refused() ? NULL : __libc_calloc(count, bytes));
}

void *realloc(void *old, size_t bytes) {
    void *fresh = refused() ? NULL : __libc_realloc(old, bytes);
    if (!old)
        return counted(fresh);
    if (!fresh)
        errno = ENOMEM;
    return fresh;
}

void free(void *old) {
    if (old)
        atomic_fetch_sub(&live_count, 1);
    __libc_free(old);
}

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes) {
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    if (refused())
        return ENOMEM;
    *mutex = fresh;
    return 0;
}

int pthread_condattr_init(pthread_condattr_t *attributes) {
    if (refused())
        return ENOMEM;
    memset(attributes, 0, sizeof *attributes);
    return 0;
}

typedef struct scenario {
    fake_host host;
    void *instance;
    symmem_memory own;
    symmem_memory peer;
    symmem_share share;
    symmem_peers peers;
    void *buffers[1];
    void *streams[2];
    void *event;
    void *graph;
    void *object;
    void *view;
    symmem_share object_share;
    uint32_t words[4];
} scenario;

#define STEP(call)                                                                                 \
    do {                                                                                           \
        symmem_status status_ = (call);                                                            \
        if (status_ != SYMMEM_OK)                                                                  \
            return status_;                                                                        \
    } while (0)

static symmem_status use_memory(scenario *s) {
    STEP(backend->memory->alloc(s->instance, 0, 100000, &s->own));
    STEP(backend->memory->share(s->instance, &s->own, &s->share));
    STEP(backend->memory->map(s->instance, 0, &s->share, 100000, &s->peer));
    s->buffers[0] = s->own.ptr;
    s->peers = (symmem_peers){.size = sizeof s->peers,
                              .host = &s->host.host,
                              .world_size = 1,
                              .channel_count = 1,
                              .buffers = s->buffers,
                              .buffer_bytes = 100000,
                              .pads = s->buffers,
                              .signals = s->buffers,
                              .local_rank_count = 1};
    void *tables[2];
    return backend->signal->peers_open(s->instance, &s->peers, &tables[0], &tables[1]);
}

static symmem_status use_streams(scenario *s) {
    for (int i = 0; i < 2; i++)
        STEP(backend->stream->create(s->instance, 0, &s->streams[i]));
    STEP(backend->stream->event_create(s->instance, 0, &s->event));
    symmem_exec exec = {.stream = s->streams[0]};
    STEP(backend->copy->memset32(s->instance, 0, s->words, 5, 2, &exec));
    STEP(backend->stream->event_record(s->instance, s->event, s->streams[0]));
    STEP(backend->stream->wait_event(s->instance, s->streams[1], s->event));
    return backend->stream->device_synchronize(s->instance, 0, 5000);
}

static symmem_status use_graph(scenario *s) {
    symmem_exec exec = {.stream = s->streams[1]};
    symmem_error_record record;
    STEP(backend->graph->capture_begin(s->instance, s->streams[0]));
    STEP(backend->stream->event_record(s->instance, s->event, s->streams[0]));
    STEP(backend->stream->wait_event(s->instance, s->streams[1], s->event));
    STEP(backend->copy->write_value32(s->instance, 0, &s->words[3], 9, &exec));
    STEP(backend->stream->event_record(s->instance, s->event, s->streams[1]));
    STEP(backend->stream->wait_event(s->instance, s->streams[0], s->event));
    STEP(backend->graph->capture_end(s->instance, s->streams[0], &s->graph));
    STEP(backend->graph->launch(s->instance, s->graph, s->streams[0]));
    STEP(backend->graph->launch(s->instance, s->graph, s->streams[1]));
    STEP(backend->stream->synchronize(s->instance, s->streams[0], 5000, &record));
    return backend->stream->synchronize(s->instance, s->streams[1], 5000, &record);
}

static symmem_status use_multicast(scenario *s) {
    STEP(backend->multicast->create(s->instance, 0, 1, 100000, &s->object, &s->object_share));
    STEP(backend->multicast->attach(s->instance, 0, &s->object_share, 100000, &s->view));
    void *address;
    return backend->multicast->bind(s->instance, s->view, &s->own, &s->peers, &address);
}

static symmem_status use_all(scenario *s) {
    STEP(use_memory(s));
    STEP(use_streams(s));
    STEP(use_graph(s));
    return use_multicast(s);
}

static void give_all_back(scenario *s) {
    symmem_error_record record;
    if (s->view)
        backend->multicast->release(s->instance, s->view);
    if (s->object) {
        backend->multicast->release(s->instance, s->object);
        backend->memory->unshare(s->instance, &s->object_share);
    }
    for (int i = 0; i < 2; i++)
        if (s->streams[i]) /* CAPTURE where a capture was cut short */
            (void)backend->stream->synchronize(s->instance, s->streams[i], 5000, &record);
    if (s->graph)
        backend->graph->destroy(s->instance, s->graph);
    if (s->event)
        backend->stream->event_destroy(s->instance, s->event);
    for (int i = 0; i < 2; i++)
        if (s->streams[i])
            backend->stream->destroy(s->instance, s->streams[i]);
    if (s->peers.priv)
        backend->signal->peers_close(s->instance, &s->peers);
    backend->memory->release(s->instance, &s->peer);
    if (s->share.kind)
        backend->memory->unshare(s->instance, &s->share);
    backend->memory->release(s->instance, &s->own);
    backend->instance->close(s->instance);
}

static symmem_status run_scenario(scenario *s) {
    symmem_backend_config config = {.size = sizeof config, .world_size = 1};
    symmem_status status = backend->instance->open(&s->host.host, &config, &s->instance);
    return status == SYMMEM_OK ? use_all(s) : status;
}

TEST("resources") {
    int descriptors = fake_count_descriptors();
    int mappings = fake_count_shared_mappings();
    int threads = fake_count_threads();
    int live = 0;
    bool finished = false;
    int count = -2; /* first two rounds without a refusal, for what is allocated once */
    for (; count < 500 && !finished; count++) {
        scenario s;
        memset(&s, 0, sizeof s);
        fake_host_init(&s.host);
        until_refusal = count < 0 ? -1 : count;
        symmem_status status = run_scenario(&s);
        finished = until_refusal >= 0; /* there were fewer requests than that */
        until_refusal = -1;
        if (finished) {
            CU_ASSERT_EQUAL(status, SYMMEM_OK);
            CU_ASSERT_EQUAL(s.words[1], 5);
            CU_ASSERT_EQUAL(s.words[3], 9);
        } else if (status != SYMMEM_OK) { /* stdio's own buffers can be done without */
            CU_ASSERT_EQUAL(status, SYMMEM_OUT_OF_MEMORY);
            CU_ASSERT_EQUAL(atomic_load(&s.host.fail_count), 1);
        }
        if (s.instance)
            give_all_back(&s);
        pthread_mutex_destroy(&s.host.lock);
        if (count == -1)
            live = atomic_load(&live_count);
    }
    CU_ASSERT(finished);
    CU_ASSERT(count > 40);
    CU_ASSERT_EQUAL(fake_count_descriptors(), descriptors);
    CU_ASSERT_EQUAL(fake_count_shared_mappings(), mappings);
    CU_ASSERT(fake_threads_settle(threads));
    CU_ASSERT_EQUAL(atomic_load(&live_count), live);
}
