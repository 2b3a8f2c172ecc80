/* SPDX-License-Identifier: BSD-3-Clause */
/* Rendezvous: two threads of a rank, and what fails it. */
#include "backend/lease.h"
#include "link_ranks.h"

/* --- caching ---------------------------------------------------------------------------------- */

static void *meet_in_thread(void *arg) {
    rank_env *env = arg;
    symmem_handle *handle = NULL;
    void *ptr = NULL;
    CHECK_OK(env, symmem_alloc_query(env->context, env->context, NULL) == SYMMEM_OK ? SYMMEM_BACKEND
                                                                                    : SYMMEM_OK);
    sm_allocation *allocation = SM_CONTAINER(env->context->allocations.next, sm_allocation, node);
    ptr = allocation->memory.ptr;
    CHECK_OK(env, meet_at(env, ptr, 10000, &handle));
    symmem_handle_release(handle);
    return NULL;
}

RANKS_TEST("two threads, one rendezvous", .world = 2) {
    void *ptr = NULL;
    pthread_t thread;
    rank_env other = *env;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK(env, pthread_create(&thread, NULL, meet_in_thread, &other) == 0);
    symmem_handle *handle = NULL;
    CHECK_OK(env, meet_at(env, ptr, 10000, &handle));
    pthread_join(thread, NULL);
    env->failures += other.failures;
    CHECK(env, handle != NULL && sm_list_empty(&handle->link->cached.node) == false);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

/* --- failures ----------------------------------------------------------------------- */

RANKS_TEST("after the commit nothing fails", .world = 2) {
    env->fault_point = "rendezvous.commit.after";
    env->fault_status = SYMMEM_PERMISSION;
    check_works(env);
    CHECK(env, env->fault_hits == 1);
}

RANKS_TEST("neither memory nor group", .world = 1) {
    int local = 0;
    symmem_handle *handle = NULL;
    CHECK_STATUS(env, symmem_rendezvous(env->context, &local, NULL, 1000, &handle),
                 SYMMEM_NOT_SYMMETRIC);
    CHECK(env, handle == NULL);
}

RANKS_TEST("another allocation", .world = 2) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    for (int turn = 0; turn < 2; turn++) { /* of another size, then also not the same one */
        if (env->rank == turn)
            CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
        CHECK_OK(env, symmem_alloc(env->context, BYTES + (size_t)env->rank, -1, NULL, &ptr));
        CHECK_STATUS(env, meet_at(env, ptr, 10000, &handle), SYMMEM_MISMATCH);
        CHECK(env, last_record().actual == BYTES + 1 && last_record().failed_rank == 1);
        CHECK(env, (strstr(last_record().message, "of the same number") != NULL) == (turn == 0));
    }
}

/* --- ranks whose end no rank can see ---------------------------------------------------------- */

static atomic_bool is_hidden; /* ranks from 1 on */
static char noticed[3][256];  /* by each rank */

bool __real_sm_liveness_sees(sm_liveness *liveness, int32_t rank);
bool __wrap_sm_liveness_sees(sm_liveness *liveness, int32_t rank);
bool __wrap_sm_liveness_sees(sm_liveness *liveness, int32_t rank) {
    return (!atomic_load(&is_hidden) || rank == 0) && __real_sm_liveness_sees(liveness, rank);
}

void __wrap_sm_context_notice(symmem_context *context, const char *text);
void __wrap_sm_context_notice(symmem_context *context, const char *text) {
    snprintf(noticed[context->rank], sizeof(noticed[0]), "%s", text);
}

RANKS_TEST("ranks that cannot be seen", .world = 3) {
    static const char *const told[] = {
        "of 2 of its ranks cannot be seen from rank 0 (the first is rank 1",
        "of 1 of its ranks cannot be seen from rank 1 (the first is rank 2",
        "of 1 of its ranks cannot be seen from rank 2 (the first is rank 1"};
    const char *text = noticed[env->rank];
    check_works(env);
    CHECK(env, text[0] == '\0'); /* all are */
    env_meet(env);
    atomic_store(&is_hidden, true);
    check_works(env);
    CHECK(env, strstr(text, told[env->rank]) != NULL);
    env_meet(env);
    atomic_store(&is_hidden, false);
}

/* --- a heap whose words the host cannot read -------------------------------------------------- */

/* An engine of ranks that are threads. Its copy is an entry like any other: it may give memory
 * back, and may take long. */
static struct engine {
    symmem_memory odd_heap; /* what world_open answers instead, if its size is not 0 */
    char *heaps[2];
    int opened;
    atomic_int closed;
    atomic_bool unreachable;
    symmem_ref kept[8]; /* what copies held, to be given back by the next one */
    int kept_count;
    bool keeps, gives_back;
    atomic_bool closed_gate, in_copy;
} engine;

static const symmem_backend *emulation(void) {
    return symmem_backend_entry(SYMMEM_BACKEND_ABI);
}

static symmem_status heap_open(void *instance, const symmem_exchange *exchange,
                               const symmem_world_config *config, symmem_memory *heap) {
    symmem_status status =
        emulation()->memory->alloc(instance, config->device, config->heap_bytes, heap);
    engine.heaps[config->rank] = heap->ptr;
    if (config->rank == 0)
        engine.opened++;
    if (engine.odd_heap.bytes != 0) {
        heap->bytes = engine.odd_heap.bytes;
        heap->ptr = engine.odd_heap.ptr == NULL ? NULL : (char *)heap->ptr + 8;
        if (engine.odd_heap.imported)
            heap->ptr = engine.heaps[config->rank];
    }
    return status;
}

static void heap_close(void *instance, symmem_memory *heap) {
    engine.closed++;
    emulation()->memory->release(instance, heap);
}

static void *heap_address(void *instance, const symmem_memory *heap, int32_t rank) {
    return engine.unreachable ? NULL : engine.heaps[rank];
}

static symmem_status heap_copy(void *instance, int32_t device, void *dst, const void *src,
                               size_t bytes, const symmem_exec *exec) {
    for (int32_t i = 0; engine.keeps && i < exec->ref_count && engine.kept_count < 8; i++) {
        exec->refs[i].retain(exec->refs[i].object);
        engine.kept[engine.kept_count++] = exec->refs[i];
    }
    while (engine.gives_back && engine.kept_count > 0) {
        engine.kept_count--;
        engine.kept[engine.kept_count].release(engine.kept[engine.kept_count].object);
    }
    atomic_store(&engine.in_copy, true);
    for (int i = 0; i < 10000 && atomic_load(&engine.closed_gate); i++)
        sm_sleep_ns(1000000);
    return emulation()->copy->copy(instance, device, dst, src, bytes, exec);
}

#define ENGINE ENGINE_OF(1)
#define ENGINE_OF(ranks)                                                                           \
    .world = (ranks), .together = true, .without = SYMMEM_CAP_HOST_ACCESS,                         \
    .entries = {.world_open = heap_open,                                                           \
                .world_close = heap_close,                                                         \
                .world_address = heap_address,                                                     \
                .copy = heap_copy}

enum { HEAP_BYTES = 4 << 20, HALF_BYTES = HEAP_BYTES / 2 };

static symmem_status join_heap(rank_env *env) {
    const symmem_join_options join = {.size = sizeof join, .heap_bytes = HEAP_BYTES};
    return symmem_join(env->context, &join, 10000);
}

static void join_engine(rank_env *env) {
    if (env->rank == 0)
        memset(&engine, 0, sizeof engine);
    env_meet(env);
    CHECK_OK(env, join_heap(env));
}

static void *heap_alloc(rank_env *env, size_t bytes) {
    void *ptr = NULL;
    CHECK_OK(env, symmem_alloc(env->context, bytes, -1, NULL, &ptr));
    return ptr;
}

/* Leaves a half of the heap that is free once someone has read the words of its lease. */
static void lease_half(rank_env *env) {
    void *ptr = heap_alloc(env, HALF_BYTES);
    symmem_handle_release(env_rendezvous(env, ptr));
    CHECK_OK(env, symmem_free(env->context, ptr));
    atomic_store(&engine.in_copy, false);
}

RANKS_TEST("memory comes back while a lease is read", ENGINE) {
    char text[16] = "held by a copy";
    join_engine(env);
    void *source = heap_alloc(env, 4096);
    engine.keeps = true;
    CHECK_OK(env, symmem_copy(env->context, text, source, sizeof text, NULL));
    engine.keeps = false;
    CHECK(env, engine.kept_count > 0);
    CHECK_OK(env, symmem_free(env->context, source));
    lease_half(env);
    engine.gives_back = true;
    void *ptr = heap_alloc(env, HALF_BYTES);
    CHECK(env, engine.kept_count == 0);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

static void *alloc_in_thread(void *arg) {
    rank_env *env = arg;
    void *ptr = heap_alloc(env, HALF_BYTES / 2);
    CHECK_OK(env, symmem_free(env->context, ptr));
    return NULL;
}

/* Both find room in what one of them looks for. */
RANKS_TEST("two threads look for what came back", ENGINE) {
    pthread_t first, second;
    rank_env others[2] = {*env, *env};
    join_engine(env);
    void *filling = heap_alloc(env, HALF_BYTES * 3 / 4);
    lease_half(env);
    atomic_store(&engine.closed_gate, true);
    CHECK(env, pthread_create(&first, NULL, alloc_in_thread, &others[0]) == 0);
    for (int i = 0; i < 10000 && !atomic_load(&engine.in_copy); i++)
        sm_sleep_ns(1000000);
    CHECK(env, pthread_create(&second, NULL, alloc_in_thread, &others[1]) == 0);
    sm_sleep_ns(50000000); /* one that does not wait fails in that time */
    atomic_store(&engine.closed_gate, false);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    env->failures += others[0].failures + others[1].failures;
    CHECK(env, atomic_load(&engine.in_copy));
    CHECK_OK(env, symmem_free(env->context, filling));
}

RANKS_TEST("what an engine may not answer", ENGINE) {
    static char nowhere;
    const symmem_memory odd[] = {{.bytes = HEAP_BYTES},                     /* no heap */
                                 {.bytes = HEAP_BYTES, .ptr = &nowhere},    /* misaligned */
                                 {.bytes = HEAP_BYTES - 1, .imported = 1}}; /* too small */
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        memset(&engine, 0, sizeof engine);
        engine.odd_heap = odd[i];
        CHECK_STATUS(env, join_heap(env), SYMMEM_BACKEND);
        CHECK(env, strcmp(last_record().stage, "world_open") == 0);
        CHECK(env, engine.opened == 1 && engine.closed == 1);
    }
    join_engine(env);
    void *ptr = heap_alloc(env, 64);
    CHECK_STATUS(env, symmem_alloc(env->context, 64, 1, NULL, &ptr), SYMMEM_INVALID_ARGUMENT);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

/* With neither an address nor the group reach. */
RANKS_TEST("no way to a peer", ENGINE_OF(2)) {
    symmem_handle *handle = NULL;
    join_engine(env);
    void *ptr = heap_alloc(env, 64);
    engine.unreachable = true;
    env_meet(env);
    CHECK_STATUS(env, meet_at(env, ptr, 10000, &handle), SYMMEM_UNREACHABLE);
    env_meet(env);
    engine.unreachable = false;
    env_meet(env);
    CHECK_OK(env, meet_at(env, ptr, 10000, &handle));
    env_drop(env, handle, ptr);
}

/* Where a ticket says that a piece and its words lie. */
RANKS_TEST("what a peer may not share", ENGINE) {
    static const struct {
        uint64_t offset, lease_offset, bytes;
        symmem_status status;
    } rows[] = {{0, 0, 64, SYMMEM_OK},
                {HEAP_BYTES - 64, HEAP_BYTES, 64, SYMMEM_OK},
                {0, 0, 63, SYMMEM_CORRUPT},
                {HEAP_BYTES + 1, 0, 64, SYMMEM_CORRUPT},
                {HEAP_BYTES - 63, 0, 64, SYMMEM_CORRUPT},
                {0, HEAP_BYTES + 1, 64, SYMMEM_CORRUPT}};
    join_engine(env);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        symmem_share share = {.kind = SYMMEM_SHARE_BYTES};
        symmem_memory memory = {0};
        memcpy(share.bytes, &rows[i], 3 * sizeof(uint64_t));
        CHECK_STATUS(env, sm_memory_map(env->context, 0, &share, 64, 0, 0, &memory),
                     rows[i].status);
        if (rows[i].status == SYMMEM_OK)
            sm_memory_release(env->context, &memory);
    }
}

static atomic_bool peer_is_gone;

/* A piece that a peer has not given back is free once it has ended, and not before. */
RANKS_TEST("a peer ends with a view", ENGINE_OF(2)) {
    join_engine(env);
    void *ptr = heap_alloc(env, HALF_BYTES);
    symmem_handle *handle = env_rendezvous(env, ptr);
    if (env->rank == 0) {
        void *other = NULL;
        symmem_handle_release(handle);
        CHECK_OK(env, symmem_free(env->context, ptr));
        void *small = heap_alloc(env, 64);
        CHECK_STATUS(env, symmem_alloc(env->context, HALF_BYTES, -1, NULL, &other),
                     SYMMEM_NO_SPACE);
        CHECK(env, strstr(last_record().message, "; 2 pieces of ") != NULL); /* and signal memory */
        atomic_store(&peer_is_gone, true);
        ptr = heap_alloc(env, HALF_BYTES);
        atomic_store(&peer_is_gone, false);
        CHECK_OK(env, symmem_free(env->context, small));
    } else {
        symmem_handle_release(handle);
    }
    env_meet(env);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

symmem_peer_state __real_sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                            const sm_identity *identity);
symmem_peer_state __wrap_sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                            const sm_identity *identity);
symmem_peer_state __wrap_sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                            const sm_identity *identity) {
    return atomic_load(&peer_is_gone) ? SYMMEM_PEER_GONE
                                      : __real_sm_liveness_ask_of(liveness, rank, identity);
}
