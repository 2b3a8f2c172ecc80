/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process has once and keeps, made before the ledger looks: a device that is opened, and
 * what its driver makes when it first runs a stream, a host function or a graph; and an engine that
 * all ranks start together, with what it makes for each pair of ranks.
 */
#include "kit_internal.h"

#define DEVICE_TYPE_CPU 1 /* kDLCPU */
#define WARM_MS 20000u
#define BYTES 4096
/* Drivers make what streams need for several at a time. */
#define STREAMS 40

static void *do_nothing(void *arg) {
    return arg;
}

static void call_nothing(void *arg) {
    (void)arg;
}

struct warmth {
    symmem_context *context;
    uint64_t capabilities;
    uint8_t *memory; /* BYTES for each stream */
    symmem_stream *streams[STREAMS];
};

static bool has(const struct warmth *warmth, uint64_t capabilities) {
    return (warmth->capabilities & capabilities) == capabilities;
}

/* All kinds of work that a stream knows, with copies behind other work. */
static bool enqueue(const struct warmth *warmth, int number, uint8_t *bytes) {
    symmem_stream *stream = warmth->streams[number];
    uint8_t *memory = warmth->memory + (ptrdiff_t)number * BYTES;
    return (!has(warmth, SYMMEM_CAP_HOST_FN) ||
            symmem_stream_host_fn(stream, call_nothing, NULL) == SYMMEM_OK) &&
           symmem_copy(warmth->context, memory, bytes, BYTES, stream) == SYMMEM_OK &&
           symmem_copy(warmth->context, bytes, memory, BYTES, stream) == SYMMEM_OK;
}

static bool run_graph(const struct warmth *warmth, uint8_t *bytes) {
    symmem_stream *stream = warmth->streams[0];
    symmem_graph *graph = NULL;
    if (!has(warmth, SYMMEM_CAP_CAPTURE))
        return true;
    if (symmem_stream_begin_capture(stream) != SYMMEM_OK)
        return false;
    (void)enqueue(warmth, 0, bytes);
    return symmem_stream_end_capture(stream, &graph) == SYMMEM_OK &&
           symmem_graph_launch(graph, stream) == SYMMEM_OK &&
           symmem_stream_synchronize(stream, tk_scaled_ms(WARM_MS)) == SYMMEM_OK &&
           symmem_graph_destroy(graph) == SYMMEM_OK;
}

static bool use_streams(struct warmth *warmth) {
    uint8_t bytes[STREAMS][BYTES] = {{0}};
    bool fine = true;
    for (int i = 0; i < STREAMS && fine; i++)
        fine = symmem_stream_create(warmth->context, -1, &warmth->streams[i]) == SYMMEM_OK &&
               enqueue(warmth, i, bytes[i]);
    for (int i = 0; i < STREAMS && fine; i++)
        fine = symmem_stream_synchronize(warmth->streams[i], tk_scaled_ms(WARM_MS)) == SYMMEM_OK;
    fine = fine && run_graph(warmth, bytes[0]);
    for (int i = 0; i < STREAMS; i++)
        fine = symmem_stream_destroy(warmth->streams[i]) == SYMMEM_OK && fine;
    return fine;
}

/* A library of its own may know how devices are linked, and asks each device for each of its links:
 * with eight devices hundreds of questions, which hold up all who use any of them. That a machine
 * does not tell is no failure. */
static void ask_connectivity(const struct warmth *warmth, int32_t devices) {
    int32_t *links = calloc((size_t)devices * (size_t)devices, sizeof(*links));
    if (links != NULL)
        (void)!symmem_connectivity(warmth->context, "nvlink", devices, links);
    free(links);
}

/* What the first handle and its operations leave with a driver. */
static bool meet_alone(const struct warmth *warmth) {
    const uint32_t limit_ms = tk_scaled_ms(WARM_MS);
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    uint8_t byte = 0;
    bool fine =
        symmem_group_create(warmth->context, "warm", NULL, 0, NULL, &group) == SYMMEM_OK &&
        symmem_rendezvous(warmth->context, warmth->memory, group, limit_ms, &handle) == SYMMEM_OK &&
        symmem_barrier(handle, 0, limit_ms, NULL) == SYMMEM_OK &&
        symmem_put(handle, 0, 0, &byte, 1, NULL) == SYMMEM_OK;
    symmem_handle_release(handle);
    return symmem_group_destroy(group) == SYMMEM_OK && fine;
}

static bool asks_links(const struct kit_setup *setup) {
    return (setup->test->needs & setup->arena->probe.capabilities & SYMMEM_CAP_CONNECTIVITY) != 0;
}

static bool warm_device(const struct kit_setup *setup, int32_t rank) {
    struct warmth warmth = {.capabilities = setup->arena->probe.capabilities};
    symmem_context_options options;
    symmem_store *store = NULL;
    void *memory = NULL;
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    options.local_rank = rank;
    options.backend = setup->backend;
    if (symmem_store_open_memory(&store) != SYMMEM_OK)
        return false;
    options.store = store;
    if (symmem_init(&options, &warmth.context) != SYMMEM_OK) {
        symmem_store_close(store);
        return false;
    }
    bool fine =
        symmem_alloc(warmth.context, (size_t)STREAMS * BYTES, -1, NULL, &memory) == SYMMEM_OK;
    warmth.memory = memory;
    fine = fine && meet_alone(&warmth);
    if (fine && has(&warmth, SYMMEM_CAP_STREAMS))
        fine = use_streams(&warmth);
    if (fine && asks_links(setup))
        ask_connectivity(&warmth, setup->arena->probe.device_count);
    fine = symmem_free(warmth.context, memory) == SYMMEM_OK && fine;
    symmem_context_free(warmth.context);
    symmem_store_close(store);
    return fine;
}

static void warm_devices(const struct kit_setup *setup, int32_t first_rank, int32_t ranks) {
    if (setup->arena->probe.device_type == DEVICE_TYPE_CPU)
        return;
    /* What fails here fails again, and is reported, where it is needed. */
    for (int32_t rank = first_rank; rank < first_rank + ranks; rank++)
        if (!warm_device(setup, rank))
            fprintf(stderr, "symmem-conformance: device of rank %d: warming up failed\n", rank);
}

/* --- engines that all ranks start together --------------------------------------------------- */

static void let_peers_in(void *context) {
    (void)!symmem_progress(context);
}

/* What an engine makes for each pair of ranks when it is first used. */
static bool use_pairs(symmem_handle *handle, int32_t rank, int32_t ranks) {
    const uint32_t limit_ms = tk_scaled_ms(WARM_MS);
    uint8_t bytes[BYTES] = {0};
    bool fine = symmem_barrier(handle, 0, limit_ms, NULL) == SYMMEM_OK;
    for (int32_t i = 1; i < ranks && fine; i++) {
        const int32_t to = (rank + i) % ranks, from = (rank + ranks - i) % ranks;
        fine = symmem_put(handle, to, 0, bytes, sizeof(bytes), NULL) == SYMMEM_OK &&
               symmem_get(handle, to, 0, bytes, sizeof(bytes), NULL) == SYMMEM_OK &&
               symmem_put_signal(handle, to, 0, limit_ms, NULL) == SYMMEM_OK &&
               symmem_wait_signal(handle, from, 0, limit_ms, NULL) == SYMMEM_OK;
    }
    return symmem_barrier(handle, 0, limit_ms, NULL) == SYMMEM_OK && fine;
}

/* Every pair of ranks moves bytes. Ranks that come to its end
 * serve those that have not. */
static bool meet_all(const struct kit_setup *setup, symmem_context *context) {
    const uint32_t limit_ms = tk_scaled_ms(WARM_MS);
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    void *memory = NULL;
    bool fine = symmem_group_create(context, "warm", NULL, 0, NULL, &group) == SYMMEM_OK &&
                symmem_alloc(context, BYTES, -1, NULL, &memory) == SYMMEM_OK &&
                symmem_rendezvous(context, memory, group, limit_ms, &handle) == SYMMEM_OK &&
                use_pairs(handle, setup->rank, setup->world_size);
    arena_serve(let_peers_in, context);
    arena_enter(setup->arena, setup->rank, ARENA_WARM);
    fine = arena_meet(setup->arena, ARENA_WARM, limit_ms) && fine;
    arena_serve(NULL, NULL);
    symmem_handle_release(handle);
    fine = (memory == NULL || symmem_free(context, memory) == SYMMEM_OK) && fine;
    return symmem_group_destroy(group) == SYMMEM_OK && fine;
}

/* Cases have two contexts at a time, and each takes memory of the engine's. */
#define CONTEXTS 2

/* in_pairs: each two ranks use it, too. */
static bool warm_engine(const struct kit_setup *setup, int number, bool in_pairs) {
    symmem_context_options options;
    symmem_context *contexts[CONTEXTS] = {NULL};
    symmem_store *store = NULL;
    char path[300];
    bool fine = true;
    symmem_context_options_init(&options);
    options.rank = options.local_rank = setup->rank;
    options.world_size = setup->world_size;
    options.backend = setup->backend;
    snprintf(path, sizeof(path), "%s/warm.%d", setup->scratch_dir, number);
    if (symmem_store_open_file(path, &store) != SYMMEM_OK)
        return false;
    options.store = store;
    for (int i = 0; i < CONTEXTS && fine; i++)
        fine = symmem_init(&options, &contexts[i]) == SYMMEM_OK &&
               symmem_join(contexts[i], NULL, tk_scaled_ms(WARM_MS)) == SYMMEM_OK;
    fine = fine && (!in_pairs || meet_all(setup, contexts[0]));
    for (int i = 0; i < CONTEXTS; i++)
        symmem_context_free(contexts[i]);
    symmem_store_close(store);
    return fine;
}

/* Not where the ranks' children start it. */
static bool warms_engine(const struct kit_setup *setup) {
    const unsigned by_children = TK_FORKS | TK_NO_CONTEXT;
    return (setup->arena->probe.capabilities & SYMMEM_CAP_WORLD) != 0 &&
           setup->mode == TK_MODE_PROCESS && (setup->test->flags & by_children) != by_children;
}

/* A rank that was warmed up alone has yet to start with others. */
static void warm_up_engine(const struct kit_setup *setup) {
    static int32_t met; /* of this process: with how many ranks it was warmed up */
    if (met >= setup->world_size || !warms_engine(setup))
        return;
    arena_enter(setup->arena, setup->rank, ARENA_OPENING);
    if (!warm_engine(setup, 0, true))
        fprintf(stderr, "symmem-conformance: engine of rank %d: warming up failed\n", setup->rank);
    met = setup->world_size;
}

/* Cases of a process come one after the other. What asks for links later than the first case is
 * warmed once more, which is simple and seldom. */
static void warm_up_devices(const struct kit_setup *setup) {
    static bool warm, has_asked; /* of this process */
    const int32_t devices = setup->arena->probe.device_count;
    /* Cases in which ranks die count as well: the ledger of those that live is compared. */
    if ((setup->test->flags & (TK_NO_BACKEND | TK_FORKS)) != 0 ||
        (warm && (has_asked || !asks_links(setup))))
        return;
    arena_enter(setup->arena, setup->rank, ARENA_OPENING);
    if (setup->mode == TK_MODE_PROCESS)
        warm_devices(setup, setup->rank, 1);
    else
        warm_devices(setup, 0, devices < setup->world_size ? devices : setup->world_size);
    arena_enter(setup->arena, setup->rank, ARENA_IDLE);
    warm = true;
    has_asked = has_asked || asks_links(setup);
}

void kit_warm_up(const struct kit_setup *setup) {
    pthread_t thread;
    /* With a process' first thread ThreadSanitizer starts one of its own, which stays. */
    if (pthread_create(&thread, NULL, do_nothing, NULL) == 0)
        pthread_join(thread, NULL);
    warm_up_devices(setup);
    warm_up_engine(setup);
}

void tk_open_device(struct tk *t) {
    warm_devices(t->own->setup, t->rank, 1);
}

void tk_open_engine(struct tk *t, int number) {
    const struct kit_setup *setup = t->own->setup;
    if ((t->capabilities & SYMMEM_CAP_WORLD) != 0 && setup->mode == TK_MODE_PROCESS)
        TK_CHECK(t, warm_engine(setup, number, false));
}
