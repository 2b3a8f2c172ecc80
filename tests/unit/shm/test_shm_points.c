/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The failpoints of the emulation that each call passes, in order. The suite's walks fail and kill
 * ranks only at points that they have seen passed, so no other test notices a point that is no
 * longer passed.
 */

#include "shm.h"
#include "shm_fake_host.h"
#include "unit_main.h"

#define BYTES 4096
#define RANKS 2

static fake_world *world;

/* The points that rank 0 has passed, and those of the others. A rank sleeps only when it has to. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char passed[2][4096];
static atomic_int sleeps;

static symmem_status note(const symmem_host *host, const char *name) {
    char *text = passed[world != NULL && host != &world->ranks[0].host.host];
    size_t length;
    if (strcmp(name, "shm.sleep*") == 0) {
        atomic_fetch_add(&sleeps, 1);
        return SYMMEM_OK;
    }
    pthread_mutex_lock(&lock);
    length = strlen(text);
    snprintf(text + length, sizeof passed[0] - length, "%s%s", length > 0 ? " " : "",
             strncmp(name, "shm.", 4) == 0 ? name + 4 : name);
    pthread_mutex_unlock(&lock);
    return SYMMEM_OK;
}

/* Since the last time. */
static void expect(const char *what, const char *expected) {
    pthread_mutex_lock(&lock);
    if (strcmp(passed[0], expected) != 0)
        printf("\n    %s: %s\n    instead of: %s\n", what, passed[0], expected);
    CU_ASSERT_STRING_EQUAL(passed[0], expected);
    passed[0][0] = passed[1][0] = '\0';
    pthread_mutex_unlock(&lock);
}

TEST("memory") {
    fake_host host;
    symmem_backend_config config = {.size = sizeof config, .world_size = 1};
    void *instance = NULL;
    symmem_memory memory, mapped;
    symmem_share share;
    world = NULL;
    fake_host_init(&host);
    host.host.point = note;
    CU_ASSERT_EQUAL_FATAL(backend->instance->open(&host.host, &config, &instance), SYMMEM_OK);
    expect("open", "open");
    CU_ASSERT_EQUAL_FATAL(backend->memory->alloc(instance, 0, BYTES, &memory), SYMMEM_OK);
    expect("alloc", "alloc.create alloc.size* alloc.backing alloc.map alloc.done");
    CU_ASSERT_EQUAL_FATAL(backend->memory->share(instance, &memory, &share), SYMMEM_OK);
    expect("export", "export export.done");
    CU_ASSERT_EQUAL_FATAL(backend->memory->map(instance, 0, &share, BYTES, &mapped), SYMMEM_OK);
    expect("import", "import.map import.done");
    backend->memory->unshare(instance, &share);
    expect("memory_unshare", "share.close*");
    backend->memory->release(instance, &mapped);
    backend->memory->release(instance, &memory);
    expect("release, twice", "release* release*");
    backend->instance->close(instance);
    expect("close", "close*");
}

static void open_world(void) {
    world = fake_world_open(RANKS, 1, BYTES);
    for (int i = 0; i < RANKS; i++)
        world->ranks[i].host.host.point = note;
    expect("nothing", "");
}

static int meet(fake_rank *rank) {
    int32_t other = 1 - rank->peers.rank;
    return fake_barrier(rank, 0, 5000, NULL) != SYMMEM_OK ||
           fake_put(rank, other, 0, 5000, NULL) != SYMMEM_OK ||
           fake_wait(rank, other, 0, 5000, NULL) != SYMMEM_OK;
}

TEST("signals") {
    void *tables[2];
    open_world();
    fake_rank *rank = &world->ranks[0];
    CU_ASSERT_EQUAL(fake_run_threads(world, meet), 0);
    expect("barrier, put, wait",
           "barrier.before_arrive barrier.arrive* barrier.wake* barrier.after_arrive barrier.done* "
           "put.before put.wake* put.done* wait.before wait.wake* wait.done*");
    backend->signal->poison(rank->instance, &rank->peers);
    expect("poison", "poison*");
    CU_ASSERT_EQUAL(backend->signal->reset(rank->instance, &rank->peers), SYMMEM_OK);
    expect("reset", "reset.before reset.done");
    backend->signal->peers_close(rank->instance, &rank->peers);
    expect("peers_close", "peers.close*");
    CU_ASSERT_EQUAL(
        backend->signal->peers_open(rank->instance, &rank->peers, &tables[0], &tables[1]),
        SYMMEM_OK);
    expect("peers_open", "peers.open");
    fake_world_close(world);
    world = NULL;
    passed[0][0] = '\0';
}

TEST("values and counted signals") {
    open_world();
    fake_rank *rank = &world->ranks[0];
    const symmem_exec alone = {.timeout_ms = 20};
    uint64_t word = 7;
    symmem_value_wait wait = {.size = sizeof wait, .word = &word, .value = 7, .bytes = 8};
    const symmem_window_wait own = {.rank = 0, .count = 3};
    CU_ASSERT_EQUAL(backend->signal->wait_value(rank->instance, &rank->peers, &wait, &alone),
                    SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->copy->write_value64(rank->instance, 0, &word, 1ull << 40, &alone),
                    SYMMEM_OK);
    CU_ASSERT_EQUAL(word, 1ull << 40);
    expect("wait_value, write_value64", "value.before value.done* write_value");
    CU_ASSERT_EQUAL(backend->signal->count(rank->instance, &rank->peers, 0, 1, 3, &alone),
                    SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->signal->wait_counts(rank->instance, &rank->peers, 1, &own, 1, &alone),
                    SYMMEM_OK);
    expect("count, wait_counts", "count.before count.wake* count.done* counts.before counts.done*");
    fake_world_close(world);
    world = NULL;
    passed[0][0] = '\0';
}

/* A wait without success sleeps a few times, on the word that will change. On another word, which
 * does not have the expected value, it would not sleep but look again and again. */
static void expect_sleep(const char *what, symmem_status status) {
    int count = atomic_exchange(&sleeps, 0);
    CU_ASSERT_EQUAL(status, SYMMEM_TIMEOUT);
    if (count < 1 || count > 20)
        printf("\n    %s: %d sleeps\n", what, count);
    CU_ASSERT(count >= 1 && count <= 20);
    fake_world_reset(world);
}

TEST("sleep") {
    open_world();
    fake_rank *rank = &world->ranks[0];
    atomic_store(&sleeps, 0);
    for (int i = 0; i < 2; i++) { /* each behind the others, of which something may be left over */
        CU_ASSERT_EQUAL(fake_put(rank, 1, 0, 100, NULL), SYMMEM_OK);
        expect_sleep("a second put", fake_put(rank, 1, 0, 100, NULL));
        expect_sleep("a wait", fake_wait(rank, 1, 0, 100, NULL));
        CU_ASSERT_EQUAL(fake_put(rank, 1, 0, 100, NULL), SYMMEM_OK);
        expect_sleep("a second put", fake_put(rank, 1, 0, 100, NULL));
        expect_sleep("a barrier", fake_barrier(rank, 0, 100, NULL));
        expect_sleep("a wait", fake_wait(rank, 1, 0, 100, NULL));
    }
    fake_world_close(world);
    world = NULL;
    passed[0][0] = '\0';
}

static void keep(void *object) {}

TEST("streams") {
    open_world();
    fake_rank *rank = &world->ranks[0];
    void *self = rank->instance, *stream = NULL, *event = NULL, *graph = NULL;
    uint32_t words[4] = {0};
    symmem_error_record record;
    CU_ASSERT_EQUAL_FATAL(backend->stream->create(self, 0, &stream), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(backend->stream->event_create(self, 0, &event), SYMMEM_OK);
    expect("stream_create, event_create", "stream.thread");
    /* Work with a reference passes the points around each operation. */
    symmem_ref ref = {.retain = keep, .release = keep};
    const symmem_exec exec = {.stream = stream, .refs = &ref, .ref_count = 1};
    const symmem_exec alone = {.stream = NULL};
    CU_ASSERT_EQUAL(backend->copy->copy(self, 0, words, words + 2, 8, &exec), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->synchronize(self, stream, 5000, &record), SYMMEM_OK);
    expect("copy, synchronize", "enqueue op.before* copy op.done*");
    CU_ASSERT_EQUAL(backend->copy->memset32(self, 0, words, 1, 2, &alone), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->copy->write_value32(self, 0, words, 1, &alone), SYMMEM_OK);
    expect("memset32, write_value32", "memset write_value");
    CU_ASSERT_EQUAL(backend->stream->event_record(self, event, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->wait_event(self, stream, event), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->synchronize(self, stream, 5000, &record), SYMMEM_OK);
    expect("record, wait", "event.record event.wait");
    CU_ASSERT_EQUAL(backend->graph->capture_begin(self, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->copy->copy(self, 0, words, words + 2, 8, &exec), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(backend->graph->capture_end(self, stream, &graph), SYMMEM_OK);
    expect("capture", "capture.begin enqueue graph.create");
    CU_ASSERT_EQUAL(backend->graph->launch(self, graph, stream), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->synchronize(self, stream, 5000, &record), SYMMEM_OK);
    expect("launch", "graph.launch graph.built op.before* copy op.done*");
    backend->graph->destroy(self, graph);
    backend->stream->event_destroy(self, event);
    backend->stream->destroy(self, stream);
    expect("destroy", "graph.destroy* stream.destroy*");
    fake_world_close(world);
    world = NULL;
    passed[0][0] = '\0';
}

TEST("multicast") {
    open_world();
    fake_rank *rank = &world->ranks[0];
    void *self = rank->instance, *object = NULL, *bound[RANKS] = {NULL}, *address = NULL;
    uint32_t words[4] = {1, 2, 3, 4};
    symmem_share share;
    const symmem_exec exec = {.stream = NULL};
    CU_ASSERT_EQUAL_FATAL(backend->multicast->create(self, 0, RANKS, BYTES, &object, &share),
                          SYMMEM_OK);
    expect("create",
           "multicast.create alloc.create alloc.size* alloc.backing alloc.map multicast.created");
    for (int i = RANKS; i-- > 0;)
        CU_ASSERT_EQUAL_FATAL(
            backend->multicast->attach(world->ranks[i].instance, i, &share, BYTES, &bound[i]),
            SYMMEM_OK);
    expect("attach", "multicast.attach multicast.attached");
    CU_ASSERT_EQUAL_FATAL(
        backend->multicast->bind(self, bound[0], &rank->buffer, &rank->peers, &address), SYMMEM_OK);
    expect("bind", "multicast.bind multicast.bound");
    CU_ASSERT_EQUAL(
        backend->multicast->store(self, &rank->peers, address, words, sizeof words, &exec),
        SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->multicast->ld_reduce(self, &rank->peers, address, words, 4,
                                                  SYMMEM_UINT32, SYMMEM_SUM, &exec),
                    SYMMEM_OK);
    expect("store, reduce", "store store.peer* store.peer* reduce");
    backend->memory->unshare(self, &share);
    for (int i = 0; i < RANKS; i++)
        backend->multicast->release(world->ranks[i].instance, bound[i]);
    backend->multicast->release(self, object);
    expect("release", "share.close* multicast.release* multicast.release*");
    fake_world_close(world);
    world = NULL;
    passed[0][0] = '\0';
}
