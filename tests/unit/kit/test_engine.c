/* SPDX-License-Identifier: BSD-3-Clause */
/* The kit's groups instance and world over an engine that starts on all ranks, of which this
 * process is rank 0 of two: what rank 1 says is made up. */
#include "unit_main.h"

#include <stdarg.h>

#include "../../plugins/kit/engine.h"
#include "../../plugins/kit/wait.h"

#define NS_PER_MS UINT64_C(1000000)
#define HEAP_BYTES ((size_t)1 << 16)

/* --- a core and a second rank ----------------------------------------------------------------- */

static char message[256];

static symmem_status note_failure(const symmem_host *host, symmem_status status, int system_errno,
                                  const char *operation, const char *format, ...) {
    va_list args;
    (void)host, (void)system_errno, (void)operation;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    return status;
}

static symmem_status note_sizes(const symmem_host *host, symmem_status status, int system_errno,
                                const char *operation, uint64_t expected, uint64_t actual) {
    (void)host, (void)system_errno, (void)operation;
    CU_ASSERT(expected > actual);
    return status;
}

static const symmem_host host = {
    .size = sizeof(symmem_host), .fail = note_failure, .fail_sizes = note_sizes};

static int peer_error; /* of rank 1's heap */
static bool peer_has_none;
static bool peer_is_new, peer_met_others; /* its engine was not started, or elsewhere */
static const char *stage;                 /* the exchange's last */

static symmem_status all_gather(const symmem_exchange *exchange, const void *in, size_t bytes,
                                void *out) {
    char *second = (char *)out + bytes;
    (void)exchange;
    memcpy(out, in, bytes);
    memcpy(second, in, bytes);
    if (strcmp(stage, "engine.places") == 0)
        ((symmem_kit_place *)(void *)second)->error = peer_error;
    if (strcmp(stage, "engine.numbers") == 0 && peer_has_none)
        memset(second, 0, bytes);
    if (strcmp(stage, "engine.starts") == 0 && (peer_is_new || peer_met_others))
        memset(second, peer_is_new ? 0 : 1, sizeof(uint64_t));
    return SYMMEM_OK;
}

static const char *fails_at; /* a step behind which the exchange fails, once */

static symmem_status agree(const symmem_exchange *exchange, symmem_status own, const char *named) {
    (void)exchange;
    stage = named;
    if (fails_at != NULL && strcmp(stage, fails_at) == 0) {
        fails_at = NULL;
        return SYMMEM_SYSTEM;
    }
    if (own == SYMMEM_OK && strcmp(stage, "engine.heaps") == 0 && peer_error != 0)
        return SYMMEM_NO_SPACE;
    return own;
}

static symmem_peer_state peer_state(const symmem_exchange *exchange, int32_t rank) {
    (void)exchange, (void)rank;
    return SYMMEM_PEER_ALIVE;
}

static symmem_status peer_failed;

static symmem_status peer_failure(const symmem_exchange *exchange) {
    (void)exchange;
    return peer_failed;
}

/* --- an engine -------------------------------------------------------------------------------- */

static atomic_int starts, made, forgotten, hangs;
static _Atomic int32_t engine_size;
static int make_error;

static const char *start(symmem_kit_engine *engine) {
    starts++;
    while (atomic_load(&hangs) != 0)
        usleep(1000);
    engine->rank = 0;
    engine->size = engine_size;
    return engine_size < 0 ? "it does not like this machine" : NULL;
}

static int make_heap(symmem_kit_heap *heap) {
    made++;
    if (make_error == 0)
        heap->base = aligned_alloc(SYMMEM_ALIGNMENT, heap->bytes);
    return make_error;
}

static void end(const symmem_kit_engine *engine) {
    for (symmem_kit_heap *heap = engine->heaps; heap != NULL; heap = heap->next) {
        free(heap->base);
        heap->base = NULL;
    }
}

static int flush(void *heap, const int32_t *ranks, int count) {
    CU_ASSERT(heap != NULL && count == 1 && ranks[0] == 1);
    return 7;
}

static void explain(int error, char *text, size_t capacity) {
    snprintf(text, capacity, "error %d of the engine", error);
}

static void progress(void *member) {
    CU_ASSERT(((const symmem_kit_member *)member)->heap != NULL);
}

static void forget(symmem_kit_traffic *traffic) {
    CU_ASSERT(traffic != NULL);
    forgotten++;
}

static symmem_kit_engine new_engine(void) {
    starts = made = forgotten = hangs = 0;
    engine_size = 2;
    make_error = peer_error = 0;
    peer_has_none = false;
    return (symmem_kit_engine){.name = "engine",
                               .launcher = "launcher",
                               .record_bytes = sizeof(symmem_kit_heap),
                               .start = start,
                               .make_heap = make_heap,
                               .end = end,
                               .flush = flush,
                               .explain = explain,
                               .progress = progress,
                               .forget = forget,
                               .helper = SYMMEM_KIT_HELPER_INIT};
}

static void *open_member(symmem_kit_engine *engine, int32_t world_size) {
    const symmem_backend_config config = {.size = sizeof(config), .world_size = world_size};
    void *member = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_kit_member_open(engine, &host, &config, &member), SYMMEM_OK);
    return member;
}

static symmem_status join(void *member, size_t bytes, uint32_t limit_ms, symmem_memory *heap) {
    const int32_t world_size = ((symmem_kit_member *)member)->world_size;
    const symmem_exchange exchange = {.size = sizeof(exchange),
                                      .world_size = world_size,
                                      .deadline_ns = symmem_kit_now_ns() + limit_ms * NS_PER_MS,
                                      .all_gather = all_gather,
                                      .agree = agree,
                                      .peer_state = peer_state,
                                      .peer_failure = peer_failure};
    const symmem_world_config config = {
        .size = sizeof(config), .world_size = world_size, .heap_bytes = bytes};
    return symmem_kit_world_open(member, &exchange, &config, heap);
}

static void leave(void *member, symmem_memory *heap) {
    if (heap != NULL)
        symmem_kit_world_close(member, heap);
    symmem_kit_member_close(member);
}

/* --- what is checked -------------------------------------------------------------------------- */

TEST("an engine starts once, and its heaps serve one context after another") {
    static symmem_kit_engine engine;
    symmem_memory heaps[3] = {{0}};
    engine = new_engine();
    void *first = open_member(&engine, 2), *second = open_member(&engine, 2);
    CU_ASSERT_EQUAL(join(first, HEAP_BYTES, 5000, &heaps[0]), SYMMEM_OK);
    CU_ASSERT_EQUAL(join(second, HEAP_BYTES, 5000, &heaps[1]), SYMMEM_OK);
    CU_ASSERT(starts == 1 && made == 2);
    CU_ASSERT((uintptr_t)heaps[0].ptr % SYMMEM_ALIGNMENT == 0 && heaps[0].bytes == HEAP_BYTES);
    CU_ASSERT(heaps[0].ptr != heaps[1].ptr);
    leave(first, &heaps[0]);
    first = open_member(&engine, 2);
    CU_ASSERT_EQUAL(join(first, HEAP_BYTES / 2, 5000, &heaps[2]), SYMMEM_OK);
    CU_ASSERT(heaps[2].ptr == heaps[0].ptr && heaps[2].bytes == HEAP_BYTES / 2);
    CU_ASSERT(made == 2 && forgotten == 1);
    leave(first, &heaps[2]);
    peer_has_none = true; /* what only this rank has serves no context */
    first = open_member(&engine, 2);
    CU_ASSERT_EQUAL(join(first, HEAP_BYTES, 5000, &heaps[2]), SYMMEM_OK);
    CU_ASSERT(made == 3);
    leave(first, &heaps[2]);
    leave(second, &heaps[1]);
    /* What a peer's heap may still get keeps it from others: the flush fails. */
    peer_has_none = false;
    first = open_member(&engine, 2);
    CU_ASSERT_EQUAL(join(first, HEAP_BYTES, 5000, &heaps[0]), SYMMEM_OK);
    symmem_kit_traffic_put(((symmem_kit_member *)first)->traffic, 1);
    leave(first, &heaps[0]);
    first = open_member(&engine, 2);
    CU_ASSERT_EQUAL(join(first, HEAP_BYTES, 5000, &heaps[1]), SYMMEM_OK);
    CU_ASSERT(made == 3 && heaps[1].ptr != heaps[0].ptr);
    leave(first, &heaps[1]);
}

static symmem_kit_traffic *late; /* that a word is under way in, which ends when all ranks meet */
static int meetings;
static bool still_late;

static void meet(void) {
    meetings++;
    if (!still_late)
        symmem_kit_traffic_end(late, 1);
}

TEST("what is late when a context ends is waited for when all ranks come to the next") {
    static symmem_kit_engine engine;
    symmem_memory heaps[3] = {{0}};
    engine = new_engine();
    engine.meet = meet;
    meetings = 0;
    for (int i = 0; i < 3; i++) {
        still_late = i == 1; /* so the second context has another heap */
        symmem_kit_member *member = open_member(&engine, 2);
        CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heaps[i]), SYMMEM_OK);
        CU_ASSERT(meetings == i && forgotten == (i == 2) && made == (i == 0 ? 1 : 2));
        late = member->traffic;
        if (i < 2)
            symmem_kit_traffic_begin(late, 1);
        leave(member, &heaps[i]);
    }
    CU_ASSERT(heaps[1].ptr != heaps[0].ptr && heaps[2].ptr == heaps[1].ptr);
}

TEST("an exchange that fails is no failure of the engine's") {
    static const char *const steps[] = {"engine.thread", "engine.prepare", "engine.start",
                                        "engine.world",  "engine.records", "kit.traffic",
                                        "engine.record", "engine.heap",    "engine.heaps"};
    static symmem_kit_engine engines[sizeof(steps) / sizeof(*steps)];
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        symmem_memory heap = {0};
        engines[i] = new_engine();
        void *member = open_member(&engines[i], 2);
        fails_at = steps[i];
        CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_SYSTEM);
        CU_ASSERT_PTR_NULL(fails_at);
        CU_ASSERT_EQUAL_FATAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_OK);
        CU_ASSERT(starts == 1 && made == 1);
        leave(member, &heap);
    }
}

TEST("a world of one has no need of its engine") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0};
    engine = new_engine();
    void *member = open_member(&engine, 1);
    const symmem_exec exec = {0};
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_kit_engine_quiet(member, NULL, &exec), SYMMEM_OK);
    symmem_kit_engine_progress(member);
    CU_ASSERT(starts == 0 && heap.bytes == HEAP_BYTES);
    leave(member, &heap);
}

TEST("a world that differs from the launcher's is refused") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0};
    engine = new_engine();
    engine_size = 3;
    void *member = open_member(&engine, 2);
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_BACKEND);
    CU_ASSERT(strstr(message, "3 ranks, the context 2") != NULL);
    CU_ASSERT_EQUAL(made, 0);
    leave(member, NULL);
}

/* A rank may have been replaced by a new process, or both may come from jobs that differ. */
TEST("engines that were not started together are told apart") {
    static symmem_kit_engine engine;
    symmem_memory heaps[2] = {{0}};
    engine = new_engine();
    void *first = open_member(&engine, 2), *second = open_member(&engine, 2);
    peer_met_others = true;
    CU_ASSERT_EQUAL(join(first, HEAP_BYTES, 5000, &heaps[0]), SYMMEM_BACKEND);
    CU_ASSERT(starts == 0 && strstr(message, "of rank 1 was not started with this one") != NULL);
    peer_met_others = false;
    CU_ASSERT_EQUAL(join(first, HEAP_BYTES, 5000, &heaps[0]), SYMMEM_OK);
    for (int i = 0; i < 2; i++) {
        peer_is_new = i == 0;
        peer_met_others = i == 1;
        message[0] = '\0';
        CU_ASSERT_EQUAL(join(second, HEAP_BYTES, 5000, &heaps[1]), SYMMEM_BACKEND);
        CU_ASSERT(strstr(message, "of rank 1 was not started with this one") != NULL);
    }
    peer_met_others = false;
    CU_ASSERT(starts == 1 && made == 1);
    CU_ASSERT_EQUAL(join(second, HEAP_BYTES, 5000, &heaps[1]), SYMMEM_OK);
    leave(first, &heaps[0]);
    leave(second, &heaps[1]);
}

TEST("an engine that does not start says why, each time") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0};
    engine = new_engine();
    engine_size = -1;
    void *member = open_member(&engine, 2);
    for (int i = 0; i < 2; i++) {
        message[0] = '\0';
        CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_BACKEND);
        CU_ASSERT(strstr(message, "does not like") != NULL);
    }
    CU_ASSERT_EQUAL(starts, 1);
    leave(member, NULL);
}

TEST("a heap that is too large for the machine or the engine has no space") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0};
    engine = new_engine();
    void *member = open_member(&engine, 2);
    CU_ASSERT_EQUAL(join(member, (size_t)1 << 50, 5000, &heap), SYMMEM_NO_SPACE);
    CU_ASSERT_EQUAL(starts, 0);
    make_error = peer_error = SYMMEM_KIT_FULL;
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_NO_SPACE);
    make_error = peer_error = 5;
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_BACKEND);
    CU_ASSERT(strstr(message, "error 5 of the engine") != NULL);
    make_error = peer_error = 0; /* it failed everywhere, so the engine is whole */
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_OK);
    leave(member, &heap);
}

static const char *prepare(symmem_kit_engine *engine) {
    engine->room = 3 * HEAP_BYTES;
    return engine->first_bytes == HEAP_BYTES ? NULL : "it is not prepared for that";
}

TEST("no rank asks its engine for more than it has room for") {
    static symmem_kit_engine engine;
    symmem_memory heaps[2] = {{0}};
    engine = new_engine();
    engine.prepare = prepare;
    void *first = open_member(&engine, 2), *second = open_member(&engine, 2);
    CU_ASSERT_EQUAL(join(first, 2 * HEAP_BYTES, 5000, &heaps[0]), SYMMEM_BACKEND);
    CU_ASSERT(starts == 0 && strstr(message, "not prepared") != NULL);
    CU_ASSERT_EQUAL(join(first, HEAP_BYTES, 5000, &heaps[0]), SYMMEM_OK);
    CU_ASSERT_EQUAL(join(second, 2 * HEAP_BYTES, 5000, &heaps[1]), SYMMEM_NO_SPACE);
    CU_ASSERT_EQUAL(made, 1);
    CU_ASSERT_EQUAL(join(second, HEAP_BYTES, 5000, &heaps[1]), SYMMEM_OK);
    leave(first, &heaps[0]);
    leave(second, &heaps[1]);
}

static symmem_status introduced;

static symmem_status introduce(const symmem_kit_member *self, const symmem_exchange *exchange) {
    CU_ASSERT(self->rank == 0 && self->engine->room == 0 && exchange->world_size == 2);
    return introduced;
}

TEST("what ranks tell each other comes before the start") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0};
    engine = new_engine();
    engine.introduce = introduce;
    engine.prepare = prepare;
    void *member = open_member(&engine, 2);
    introduced = SYMMEM_UNSUPPORTED;
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_UNSUPPORTED);
    CU_ASSERT(starts == 0 && engine.room == 0);
    introduced = SYMMEM_OK;
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_OK);
    CU_ASSERT_EQUAL(starts, 1);
    leave(member, &heap);
}

static int make_far_heap(symmem_kit_heap *heap) {
    made++;
    heap->base = (char *)(uintptr_t)SYMMEM_ALIGNMENT; /* no memory of the host's */
    return 0;
}

static void end_nothing(const symmem_kit_engine *engine) {
    (void)engine;
}

TEST("the host's memory is not asked of heaps that lie on devices") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0};
    engine = new_engine();
    engine.off_host = true;
    engine.make_heap = make_far_heap;
    engine.end = end_nothing;
    void *member = open_member(&engine, 2);
    CU_ASSERT_EQUAL(join(member, (size_t)1 << 50, 5000, &heap), SYMMEM_OK);
    CU_ASSERT(made == 1 && heap.ptr == (char *)(uintptr_t)SYMMEM_ALIGNMENT);
    leave(member, &heap);
}

TEST("a heap that only one rank has is the end of the engine") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0};
    engine = new_engine();
    void *member = open_member(&engine, 2);
    peer_error = SYMMEM_KIT_FULL;
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_NO_SPACE);
    peer_error = 0;
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_BACKEND);
    CU_ASSERT_EQUAL(made, 1);
    leave(member, NULL);
}

TEST("a start that hangs is given up, for good") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0};
    engine = new_engine();
    hangs = 1;
    void *member = open_member(&engine, 2);
    const uint64_t begin_ns = symmem_kit_now_ns();
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 50, &heap), SYMMEM_TIMEOUT);
    /* A quarter is left to tell the others. */
    const uint64_t took_ns = symmem_kit_now_ns() - begin_ns;
    CU_ASSERT(took_ns >= 37 * NS_PER_MS);
    hangs = 0;
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_BACKEND);
    CU_ASSERT_EQUAL(starts, 1);
    leave(member, NULL);
}

TEST("a start is given up when a peer's has failed") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0};
    engine = new_engine();
    hangs = 1;
    peer_failed = SYMMEM_LIMIT;
    void *member = open_member(&engine, 2);
    const uint64_t begin_ns = symmem_kit_now_ns();
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 20000, &heap), SYMMEM_LIMIT);
    CU_ASSERT(symmem_kit_now_ns() - begin_ns < 10000 * NS_PER_MS);
    peer_failed = SYMMEM_OK;
    hangs = 0;
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_BACKEND);
    leave(member, NULL);
}

TEST("a child of the process that has started an engine does not use it") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0}, other = {0};
    int status = -1;
    engine = new_engine();
    void *member = open_member(&engine, 2), *second = open_member(&engine, 2);
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_OK);
    pid_t pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid == 0)
        _exit(join(second, HEAP_BYTES, 5000, &other) == SYMMEM_BACKEND ? 3 : 4);
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    leave(second, NULL);
    leave(member, &heap);
}

TEST("of two contexts that join at once one is busy") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0};
    engine = new_engine();
    engine.joining = true;
    void *member = open_member(&engine, 2);
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_BUSY);
    engine.joining = false;
    CU_ASSERT_EQUAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_OK);
    leave(member, &heap);
}

TEST("what a flush says is the engine's word") {
    static symmem_kit_engine engine;
    symmem_memory heap = {0};
    const symmem_exec exec = {.timeout_ms = 5000};
    engine = new_engine();
    symmem_kit_member *member = open_member(&engine, 2);
    CU_ASSERT_EQUAL_FATAL(join(member, HEAP_BYTES, 5000, &heap), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_kit_engine_quiet(member, NULL, &exec), SYMMEM_OK);
    symmem_kit_traffic_put(member->traffic, 1);
    CU_ASSERT_EQUAL(symmem_kit_engine_quiet(member, NULL, &exec), SYMMEM_BACKEND);
    CU_ASSERT(strstr(message, "error 7 of the engine") != NULL);
    leave(member, &heap);
}
