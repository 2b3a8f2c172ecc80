/* SPDX-License-Identifier: BSD-3-Clause */
/* What is walked. */
#include "walk.h"

#define BYTES 4096
#define CHANNEL WALK_CHANNEL
#define PERSISTENT_ID 77

static void prepare_group(struct walk_run *run) {
    run->group = walk_group(run, "group", -1);
}

static void prepare_memory(struct walk_run *run) {
    prepare_group(run);
    TK_REQUIRE_OK(run->t, symmem_alloc(run->context, BYTES, -1, NULL, &run->memory));
}

static symmem_status meet(struct walk_run *run) {
    if (run->handle != NULL)
        return SYMMEM_OK;
    return symmem_rendezvous(run->context, run->memory, run->group, run->limit_ms, &run->handle);
}

static void prepare_handle(struct walk_run *run) {
    prepare_memory(run);
    TK_REQUIRE_OK(run->t, meet(run));
}

static void prepare_products(struct walk_run *run) {
    prepare_handle(run);
    walk_fill_ones(run);
}

/* The group is up, and other memory is mapped. */
static void prepare_second(struct walk_run *run) {
    void *first = NULL;
    symmem_handle *handle = NULL;
    prepare_memory(run);
    TK_REQUIRE_OK(run->t, symmem_alloc(run->context, BYTES, -1, NULL, &first));
    TK_REQUIRE_OK(run->t,
                  symmem_rendezvous(run->context, first, run->group, run->limit_ms, &handle));
    symmem_handle_release(handle);
    TK_REQUIRE_OK(run->t, symmem_free(run->context, first));
}

/* From nothing to memory, all local but where the backend's engine starts on all ranks. */
static symmem_status start(struct walk_run *run) {
    if (run->context == NULL) {
        symmem_context_options options = walk_options(run);
        WALK_STEP(symmem_init(&options, &run->context));
    }
    if (run->group == NULL) {
        char name[SYMMEM_NAME_MAX];
        snprintf(name, sizeof(name), "walk.start.%d", run->number);
        WALK_STEP(symmem_group_create(run->context, name, NULL, 0, NULL, &run->group));
    }
    /* Joining is no rank's own: it fails on all of them, and memory comes after it. */
    if ((run->t->capabilities & SYMMEM_CAP_WORLD) == 0 && run->memory == NULL)
        WALK_STEP(symmem_alloc(run->context, BYTES, -1, NULL, &run->memory));
    return SYMMEM_OK;
}

static symmem_status allocate_persistent(struct walk_run *run) {
    symmem_alloc_options options;
    symmem_alloc_options_init(&options);
    options.alloc_id = PERSISTENT_ID;
    return symmem_alloc(run->context, BYTES, -1, &options, &run->memory);
}

static void prepare_persistent(struct walk_run *run) {
    prepare_group(run);
    TK_REQUIRE_OK(run->t, allocate_persistent(run));
    TK_REQUIRE_OK(run->t, meet(run));
    symmem_handle_release(run->handle);
    run->handle = NULL;
}

/* Freed, back again, and found by rendezvous without the others. */
static symmem_status persistent(struct walk_run *run) {
    if (run->stage == 0) {
        WALK_STEP(symmem_free(run->context, run->memory));
        run->memory = NULL;
        run->stage = 1;
    }
    if (run->memory == NULL)
        WALK_STEP(allocate_persistent(run));
    return meet(run);
}

static symmem_status pool(struct walk_run *run) {
    void *second = NULL;
    if (run->pool == NULL)
        WALK_STEP(symmem_pool_create(run->context, -1, 64 * 1024, &run->pool));
    if (run->stage == 0 && run->block == NULL)
        WALK_STEP(symmem_pool_alloc(run->pool, BYTES, &run->block));
    if (run->stage == 0) {
        WALK_STEP(symmem_pool_alloc(run->pool, BYTES, &second));
        run->stage = 1;
        run->memory = second; /* until it is freed below */
    }
    if (run->stage == 1) {
        WALK_STEP(symmem_pool_free(run->pool, run->memory));
        run->memory = NULL;
        run->stage = 2;
    }
    if (run->block != NULL) {
        WALK_STEP(symmem_pool_free(run->pool, run->block));
        run->block = NULL;
    }
    WALK_STEP(symmem_pool_destroy(run->pool));
    run->pool = NULL;
    return SYMMEM_OK;
}

static void prepare_pool(struct walk_run *run) {
    void *first = NULL;
    prepare_group(run);
    TK_REQUIRE_OK(run->t, symmem_pool_create(run->context, -1, 64 * 1024, &run->pool));
    TK_REQUIRE_OK(run->t, symmem_pool_alloc(run->pool, BYTES, &first));
    TK_REQUIRE_OK(run->t, symmem_pool_alloc(run->pool, BYTES, &run->block));
    TK_REQUIRE_OK(run->t,
                  symmem_rendezvous(run->context, first, run->group, run->limit_ms, &run->handle));
    symmem_handle_release(run->handle);
    run->handle = NULL;
    TK_REQUIRE_OK(run->t, symmem_pool_free(run->pool, first));
}

/* The second block of a segment whose mapping is there. */
static symmem_status pool_rendezvous(struct walk_run *run) {
    return symmem_rendezvous(run->context, run->block, run->group, run->limit_ms, &run->handle);
}

/* A group of all but rank 0, whose members have their first rendezvous. */
static void prepare_subgroup(struct walk_run *run) {
    if (run->t->rank >= 1)
        run->group = walk_group(run, "sub", 0);
    TK_REQUIRE_OK(run->t, symmem_alloc(run->context, BYTES, -1, NULL, &run->memory));
}

static symmem_status subgroup(struct walk_run *run) {
    return run->t->rank == 0 ? SYMMEM_OK : meet(run);
}

/* Destroyed and made anew under its name, by every rank for itself. */
static symmem_status regroup(struct walk_run *run) {
    char name[SYMMEM_NAME_MAX];
    if (run->stage == 0) {
        WALK_STEP(symmem_group_destroy(run->group));
        run->group = NULL;
        run->stage = 1;
    }
    snprintf(name, sizeof(name), "walk.group.%d", run->number);
    if (run->group == NULL)
        WALK_STEP(symmem_group_create(run->context, name, NULL, 0, NULL, &run->group));
    return SYMMEM_OK;
}

static symmem_status give_back(struct walk_run *run) {
    symmem_handle_release(run->handle);
    run->handle = NULL;
    WALK_STEP(symmem_free(run->context, run->memory));
    run->memory = NULL;
    return SYMMEM_OK;
}

/* With a stream and all kinds of objects alive. No work: finalize does not tell of its failure. */
static void prepare_finalize(struct walk_run *run) {
    prepare_handle(run);
    if ((run->t->capabilities & SYMMEM_CAP_STREAMS) == 0)
        return;
    TK_REQUIRE_OK(run->t, symmem_stream_create(run->context, -1, &run->stream));
    TK_REQUIRE_OK(
        run->t, symmem_put_signal(run->handle, run->t->next, CHANNEL, run->limit_ms, run->stream));
    TK_REQUIRE_OK(run->t, symmem_stream_synchronize(run->stream, run->limit_ms));
}

static symmem_status finalize(struct walk_run *run) {
    tk_use_context(run->t, NULL);
    symmem_status status = symmem_finalize(run->context);
    symmem_status ended = symmem_stream_destroy(run->stream);
    symmem_handle_release(run->handle);
    symmem_context_free(run->context);
    run->stream = NULL;
    run->handle = NULL;
    run->memory = NULL;
    run->group = NULL;
    run->context = NULL;
    return status == SYMMEM_OK ? ended : status;
}

static symmem_status exchange(struct walk_run *run) {
    uint64_t own = (uint64_t)run->t->rank + 1, all[SYMMEM_MAX_WORLD_SIZE] = {0};
    WALK_STEP(symmem_group_all_gather(run->group, &own, sizeof(own), all, run->limit_ms));
    for (int32_t r = 0; r < run->t->world_size; r++)
        TK_EQ_INT(run->t, r + 1, all[r]);
    return symmem_group_barrier(run->group, run->limit_ms);
}

static void close_all(int *fds, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Each rank's descriptor to all, then rank 0's. */
static symmem_status descriptors(struct walk_run *run) {
    const int32_t count = run->t->world_size;
    int own = open("/dev/null", O_RDONLY | O_CLOEXEC), all[SYMMEM_MAX_WORLD_SIZE], one = -1;
    for (int32_t i = 0; i < count; i++)
        all[i] = -1;
    TK_REQUIRE(run->t, own >= 0);
    symmem_status status = symmem_group_all_gather_fds(run->group, own, all, run->limit_ms);
    for (int32_t i = 0; i < count; i++)
        TK_CHECK(run->t, (all[i] >= 0) == (status == SYMMEM_OK));
    if (status == SYMMEM_OK)
        status = symmem_group_broadcast_fds(run->group, 0, own, &one, run->limit_ms);
    TK_CHECK(run->t, status != SYMMEM_OK || one >= 0);
    close_all(all, count);
    close_all(&one, 1);
    close(own);
    return status;
}

/* One rank's wait that no rank serves. */
static void prepare_reset(struct walk_run *run) {
    prepare_handle(run);
    if (run->t->rank == 0)
        TK_STATUS(run->t, SYMMEM_TIMEOUT, symmem_wait_signal(run->handle, 0, CHANNEL, 1, NULL));
}

static symmem_status reset(struct walk_run *run) {
    WALK_STEP(symmem_handle_reset(run->handle, run->limit_ms));
    return SYMMEM_OK;
}

/* A wait for a word that no rank writes. */
static symmem_status own_value(struct walk_run *run, symmem_stream *stream) {
    if ((run->t->capabilities & SYMMEM_CAP_VALUES) == 0)
        return SYMMEM_OK;
    return symmem_wait_value64(run->handle, run->t->rank, BYTES - 8, SYMMEM_EQ, 0, run->t->rank,
                               run->limit_ms, stream);
}

/* Data with a signal round the ring, and with a counted one. */
static symmem_status window(struct walk_run *run, symmem_stream *stream) {
    const int32_t next = run->t->next;
    const symmem_window_wait wait = {run->t->previous, 2};
    static const uint32_t word = 7;
    WALK_STEP(symmem_put_with_signal(run->handle, next, BYTES / 2, &word, sizeof(word), CHANNEL,
                                     run->limit_ms, stream));
    WALK_STEP(symmem_wait_signal(run->handle, run->t->previous, CHANNEL, run->limit_ms, stream));
    if ((run->t->capabilities & SYMMEM_CAP_WINDOW) == 0)
        return SYMMEM_OK;
    WALK_STEP(symmem_window_put_signal(run->handle, next, BYTES / 2 + 8, &word, sizeof(word),
                                       CHANNEL, run->limit_ms, stream));
    WALK_STEP(symmem_window_signal(run->handle, next, CHANNEL, 1, run->limit_ms, stream));
    return symmem_window_wait_signal(run->handle, 1, &wait, CHANNEL, run->limit_ms, stream);
}

static symmem_status signals(struct walk_run *run) {
    WALK_STEP(symmem_barrier(run->handle, CHANNEL, run->limit_ms, NULL));
    WALK_STEP(symmem_put_signal(run->handle, run->t->next, CHANNEL, run->limit_ms, NULL));
    WALK_STEP(symmem_wait_signal(run->handle, run->t->previous, CHANNEL, run->limit_ms, NULL));
    WALK_STEP(own_value(run, NULL));
    WALK_STEP(window(run, NULL));
    return symmem_barrier(run->handle, CHANNEL, run->limit_ms, NULL);
}

/* One-sided copies and a fill, by the calling thread. */
static symmem_status data(struct walk_run *run) {
    uint32_t words[WALK_WORDS] = {1, 2, 3};
    char *memory = run->memory;
    /* Each to a place where no other rank writes. */
    WALK_STEP(symmem_put(run->handle, run->t->next, 0, words, sizeof(words), NULL));
    WALK_STEP(symmem_get(run->handle, run->t->previous, 1024, words, sizeof(words), NULL));
    WALK_STEP(symmem_copy(run->context, memory + 2048, memory + 1024, 64, NULL));
    int64_t count;
    DLTensor tensor = walk_words(run, &count);
    return symmem_memset32(run->context, &tensor, 0, 7, count, NULL);
}

static symmem_status multimem(struct walk_run *run) {
    uint32_t words[WALK_WORDS] = {1, 2, 3};
    size_t offset = (size_t)run->t->rank * sizeof(words); /* this rank's alone */
    WALK_STEP(symmem_multimem_store(run->handle, offset, words, sizeof(words), NULL));
    WALK_STEP(symmem_multimem_ld_reduce(run->handle, offset, words, WALK_WORDS, SYMMEM_INT32,
                                        SYMMEM_SUM, NULL));
    TK_EQ_INT(run->t, 3 * run->t->world_size, words[2]);
    return SYMMEM_OK;
}

static symmem_status enqueue(struct walk_run *run) {
    char *memory = run->memory;
    WALK_STEP(symmem_barrier(run->handle, CHANNEL, run->limit_ms, run->stream));
    int64_t count;
    DLTensor tensor = walk_words(run, &count);
    WALK_STEP(symmem_copy(run->context, memory + 256, memory, 64, run->stream));
    WALK_STEP(symmem_stream_write_value32(run->context, &tensor, 0, 7, run->stream));
    WALK_STEP(symmem_put_signal(run->handle, run->t->next, CHANNEL, run->limit_ms, run->stream));
    WALK_STEP(
        symmem_wait_signal(run->handle, run->t->previous, CHANNEL, run->limit_ms, run->stream));
    WALK_STEP(own_value(run, run->stream));
    WALK_STEP(window(run, run->stream));
    return symmem_barrier(run->handle, CHANNEL, run->limit_ms, run->stream);
}

/* The failure of the call, or else of the work. Work that has failed already makes later calls
 * POISONED, which is then not the first failure. */
static symmem_status settle(struct walk_run *run, symmem_status called) {
    symmem_error_record record = last_record();
    symmem_status worked = symmem_stream_synchronize(run->stream, tk_scaled_ms(WALK_LIMIT_MS));
    if (called == SYMMEM_OK || (called == SYMMEM_POISONED && worked != SYMMEM_OK))
        return worked;
    run->failure = record;
    return called;
}

static symmem_status stream(struct walk_run *run) {
    if (run->stream == NULL)
        WALK_STEP(symmem_stream_create(run->context, -1, &run->stream));
    return settle(run, enqueue(run));
}

static symmem_status record_graph(struct walk_run *run) {
    symmem_graph *graph = NULL;
    WALK_STEP(symmem_stream_begin_capture(run->stream));
    symmem_status status = enqueue(run);
    symmem_error_record record = last_record();
    symmem_status ended = symmem_stream_end_capture(run->stream, &graph);
    if (status == SYMMEM_OK) {
        run->graph = graph;
        return ended;
    }
    if (graph != NULL)
        TK_OK(run->t, symmem_graph_destroy(graph));
    run->failure = record;
    return status;
}

static void prepare_graph(struct walk_run *run) {
    prepare_handle(run);
    TK_REQUIRE_OK(run->t, symmem_stream_create(run->context, -1, &run->stream));
}

static symmem_status graph(struct walk_run *run) {
    if (run->graph == NULL)
        WALK_STEP(record_graph(run));
    for (int i = 0; i < 2; i++)
        WALK_STEP(settle(run, symmem_graph_launch(run->graph, run->stream)));
    return SYMMEM_OK;
}

#define SCENARIO(name_, outcome_, prepare_, act_, ...)                                             \
    { .name = name_, .outcome = outcome_, .prepare = prepare_, .act = act_, __VA_ARGS__ }

const struct walk_scenario walk_scenarios[] = {
    SCENARIO("start", WALK_LOCAL, NULL, start),
    SCENARIO("first_rendezvous", WALK_AGREED, prepare_memory, meet),
    SCENARIO("second_rendezvous", WALK_AGREED, prepare_second, meet),
    SCENARIO("multicast", WALK_AGREED, prepare_memory, meet, .needs = SYMMEM_CAP_MULTICAST,
             .multicast = true),
    SCENARIO("persistent", WALK_LOCAL, prepare_persistent, persistent),
    SCENARIO("pool", WALK_LOCAL, prepare_group, pool, .needs = SYMMEM_CAP_POOL),
    SCENARIO("pool_rendezvous", WALK_AGREED, prepare_pool, pool_rendezvous,
             .needs = SYMMEM_CAP_POOL),
    SCENARIO("subgroup", WALK_AGREED, prepare_subgroup, subgroup, .from = 1),
    SCENARIO("regroup", WALK_LOCAL, prepare_handle, regroup),
    SCENARIO("exchange", WALK_AGREED, prepare_group, exchange),
    SCENARIO("descriptors", WALK_AGREED, prepare_group, descriptors),
    SCENARIO("reset", WALK_AGREED, prepare_reset, reset),
    SCENARIO("signals", WALK_SIGNALS, prepare_handle, signals, .vain_ms = 400),
    SCENARIO("collective", WALK_SIGNALS, prepare_handle, walk_collective,
             .needs = SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_DIRECT_ACCESS, .vain_ms = 400),
    SCENARIO("composed", WALK_SIGNALS, prepare_handle, walk_composed,
             .needs = SYMMEM_CAP_DIRECT_ACCESS, .vain_ms = 400),
    SCENARIO("fused", WALK_SIGNALS, prepare_products, walk_fused,
             .needs = SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_MATMUL, .vain_ms = 400),
    SCENARIO("data", WALK_LOCAL, prepare_handle, data),
    SCENARIO("multimem", WALK_LOCAL, prepare_handle, multimem, .needs = SYMMEM_CAP_MULTICAST,
             .multicast = true),
    SCENARIO("stream", WALK_SIGNALS, prepare_handle, stream, .needs = SYMMEM_CAP_STREAMS,
             .vain_ms = 400),
    SCENARIO("graph", WALK_SIGNALS, prepare_graph, graph, .needs = SYMMEM_CAP_CAPTURE,
             .vain_ms = 400),
    SCENARIO("free", WALK_LOCAL, prepare_handle, give_back),
    SCENARIO("finalize", WALK_LOCAL, prepare_finalize, finalize, .ends = true),
};
const int walk_scenario_count = (int)(sizeof(walk_scenarios) / sizeof(walk_scenarios[0]));

const struct walk_scenario *walk_find(const char *name) {
    for (int i = 0; i < walk_scenario_count; i++)
        if (strcmp(walk_scenarios[i].name, name) == 0)
            return &walk_scenarios[i];
    return NULL;
}
