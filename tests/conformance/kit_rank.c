/* SPDX-License-Identifier: BSD-3-Clause */
/* Prologue, body and epilogue of one rank. */
#include "kit_internal.h"

#define CONTEXT_TIMEOUT_MS 20000
#define PROLOGUE_MEET_MS 60000
/* A rank that has ended its body keeps its context this long for ranks that are still at work. */
#define BODY_MEET_MS 5000
#define SCRATCH_SUFFIX 6 /* what mkdtemp drew */

static bool shares_devices(const struct kit_setup *setup) {
    const struct arena_probe *probe = &setup->arena->probe;
    return (probe->capabilities & SYMMEM_CAP_OVERLAP) != 0 &&
           setup->world_size > probe->device_count;
}

/* Large worlds take their time where cores are few and busy. */
static uint32_t default_timeout_ms(const struct kit_setup *setup) {
    const uint32_t of_case_ms = setup->timeout_ms / 4 * 3;
    const uint32_t own_ms =
        tk_scaled_ms(CONTEXT_TIMEOUT_MS) * (1 + (uint32_t)setup->world_size / 32);
    return of_case_ms < own_ms ? of_case_ms : own_ms;
}

symmem_context_options tk_options(struct tk *t) {
    const struct kit_setup *setup = t->own->setup;
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = t->rank;
    options.world_size = t->world_size;
    options.local_rank = t->rank;
    options.default_timeout_ms = default_timeout_ms(setup);
    options.store = t->store;
    options.backend = (setup->test->flags & TK_NO_BACKEND) != 0 ? NULL : setup->backend;
    /* A backend that can share a device need not have one for each rank. */
    options.allow_overlapping_devices = shares_devices(setup) ? 1 : -1;
    options.multicast = -1;
    options.check_collectives = 1;
    options.point = kit_point;
    options.point_arg = t;
    return options;
}

/* The seed would not do: runs of one seed may share a machine. */
void tk_short_path(const struct tk *t, const char *name, int32_t rank, char path[64]) {
    const size_t length = strlen(t->scratch_dir);
    const char *own = t->scratch_dir + (length < SCRATCH_SUFFIX ? 0 : length - SCRATCH_SUFFIX);
    if (rank < 0)
        snprintf(path, 64, "/tmp/symm-%s-%s", name, own);
    else
        snprintf(path, 64, "/tmp/symm-%s-%s-%d", name, own, (int)rank);
}

static bool open_store(struct tk *t) {
    const struct kit_setup *setup = t->own->setup;
    char path[300];
    if (setup->shared_store != NULL) {
        t->store = setup->shared_store;
        return true;
    }
    if (t->mode == TK_MODE_THREAD) {
        kit_fail_at(t, __FILE__, __LINE__, "prologue: no store for the ranks of this process");
        return false;
    }
    snprintf(path, sizeof(path), "%s/store", setup->scratch_dir);
    symmem_status status = symmem_store_open_file(path, &t->store);
    if (status != SYMMEM_OK)
        kit_fail_status_at(t, __FILE__, __LINE__, "prologue: symmem_store_open_file", status);
    return status == SYMMEM_OK;
}

static bool join(struct tk *t, symmem_context *context) {
    uint64_t capabilities = 0;
    if (symmem_backend_capabilities(context, &capabilities) != SYMMEM_OK ||
        (capabilities & SYMMEM_CAP_WORLD) == 0)
        return true;
    symmem_status status = symmem_join(context, NULL, tk_scaled_ms(PROLOGUE_MEET_MS));
    if (status != SYMMEM_OK)
        kit_fail_status_at(t, __FILE__, __LINE__, "symmem_join", status);
    return status == SYMMEM_OK;
}

void tk_join(struct tk *t, symmem_context *context) {
    TK_REQUIRE(t, join(t, context));
}

static bool open_context(struct tk *t) {
    symmem_context_options options = tk_options(t);
    symmem_status status = symmem_init(&options, &t->context);
    if (status != SYMMEM_OK) {
        kit_fail_status_at(t, __FILE__, __LINE__, "prologue: symmem_init", status);
        t->context = NULL;
    }
    t->own->target = t->context;
    return status == SYMMEM_OK &&
           ((t->own->setup->test->flags & TK_NOT_JOINED) != 0 || join(t, t->context));
}

static bool prologue(struct tk *t) {
    unsigned flags = t->own->setup->test->flags;
    return open_store(t) && ((flags & TK_NO_CONTEXT) != 0 || open_context(t));
}

void kit_end_context(struct tk *t) {
    if (t->context == NULL)
        return;
    kit_release_objects(t, t->context);
    symmem_status status = symmem_finalize(t->context);
    if (status != SYMMEM_OK && status != SYMMEM_NOT_INITIALIZED)
        kit_fail_status_at(t, __FILE__, __LINE__, "ending the context: symmem_finalize", status);
    symmem_context_free(t->context);
    t->context = NULL;
    t->own->target = NULL;
}

void tk_end_context(struct tk *t) {
    uint32_t before = atomic_load_explicit(&t->own->slot->failures, memory_order_relaxed);
    kit_end_context(t);
    TK_CHECK(t, atomic_load_explicit(&t->own->slot->failures, memory_order_relaxed) == before);
}

void tk_reinit(struct tk *t, const symmem_context_options *options) {
    kit_end_context(t);
    TK_REQUIRE_OK(t, symmem_init(options, &t->context));
    t->own->target = t->context;
    if ((t->own->setup->test->flags & TK_NOT_JOINED) == 0)
        tk_join(t, t->context);
}

void tk_use_context(struct tk *t, symmem_context *context) {
    t->own->target = context != NULL ? context : t->context;
    t->own->world = NULL; /* a group belongs to its context */
}

static void epilogue(struct tk *t) {
    kit_release_objects(t, NULL);
    kit_end_context(t);
    if (t->own->setup->shared_store == NULL)
        symmem_store_close(t->store);
    free(t->own->objects);
}

/* Apart from its caller, whose locals a longjmp would make uncertain. */
static void run_body(struct tk *t) {
    const struct tk_case *test = t->own->setup->test;
    if (strchr(test->requirements, ',') == NULL)
        tk_requirement(t, test->requirements);
    if (setjmp(t->own->leave) == 0)
        test->body(t);
}

/* With ranks as threads the first one speaks for the process. */
static bool notes_names(const struct tk *t) {
    return t->mode == TK_MODE_PROCESS || t->rank == 0;
}

/* As a program has to where the engine moves bytes only inside calls: while it waits for other
 * ranks outside the library, it lets the engine work. */
static void serve_peers(void *arg) {
    const struct tk *t = arg;
    if (t->own->target != NULL)
        (void)!symmem_progress(t->own->target);
}

static bool needs_calls(const struct tk *t) {
    const uint64_t both = SYMMEM_CAP_REACH | SYMMEM_CAP_PASSIVE;
    return (t->capabilities & both) == SYMMEM_CAP_REACH;
}

static void run_phases(struct tk *t) {
    const struct kit_setup *setup = t->own->setup;
    struct arena *arena = setup->arena;
    bool ready = prologue(t);
    if (!ready)
        atomic_store_explicit(&arena->prologue_failed, 1, memory_order_release);
    arena_enter(arena, t->rank, ARENA_BODY);
    /* All bodies start together, and none does if some rank could not: the others would wait for
     * it. */
    ready = arena_meet(arena, ARENA_BODY, tk_scaled_ms(PROLOGUE_MEET_MS)) && ready &&
            atomic_load_explicit(&arena->prologue_failed, memory_order_acquire) == 0;
    if (ready && notes_names(t))
        kit_note_held(setup);
    if (ready)
        run_body(t);
    tk_note_delay(t);
    arena_enter(arena, t->rank, ARENA_BODY_DONE);
    arena_meet(arena, ARENA_BODY_DONE, tk_scaled_ms(BODY_MEET_MS));
    if (notes_names(t))
        kit_note_held(setup);
    arena_enter(arena, t->rank, ARENA_EPILOGUE);
    epilogue(t);
}

void kit_run_rank(const struct kit_setup *setup) {
    struct arena_rank *slot = &setup->arena->ranks[setup->rank];
    struct tk_rank own = {
        .setup = setup, .slot = slot, .file = "kit", .record = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    struct tk t = {
        .rank = setup->rank,
        .world_size = setup->world_size,
        .next = (setup->rank + 1) % setup->world_size,
        .previous = (setup->rank + setup->world_size - 1) % setup->world_size,
        .last = setup->world_size - 1,
        .mode = setup->mode,
        .seed = setup->seed,
        .backend = setup->backend,
        .capabilities = setup->arena->probe.capabilities,
        .device_type = setup->arena->probe.device_type,
        .scratch_dir = setup->scratch_dir,
        .own = &own,
    };
    struct kit_ledger *ledger = NULL;
    bool by_itself = setup->mode == TK_MODE_PROCESS;
    own.random_state = setup->seed ^ ((uint64_t)(setup->rank + 1) * 0xd6e8feb86659fd93u);
    if (by_itself) {
        atomic_store_explicit(&slot->process_id, (int32_t)getpid(), memory_order_release);
        kit_warm_up(setup);
    }
    arena_enter(setup->arena, setup->rank, ARENA_PROLOGUE);
    /* Who is late because of its device is not late for the others' first exchange. */
    (void)arena_meet(setup->arena, ARENA_PROLOGUE, tk_scaled_ms(ARENA_OPENING_MS));
    if (by_itself)
        ledger = kit_ledger_open(setup);
    arena_serve(needs_calls(&t) ? serve_peers : NULL, &t);
    run_phases(&t);
    arena_serve(NULL, NULL);
    if (by_itself)
        kit_ledger_close(ledger, setup->test->flags, slot->leak, sizeof(slot->leak));
    arena_enter(setup->arena, setup->rank, ARENA_DONE);
}
