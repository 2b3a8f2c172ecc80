/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks for the unit tests of rendezvous and handles: threads with a context each over one memory
 * store, or processes over a file store. CUnit's assertions are for one thread of one process only,
 * so ranks count their failures with CHECK, and the test asserts that there were none.
 */
#ifndef SYMMEM_TESTS_LINK_RANKS_H
#define SYMMEM_TESTS_LINK_RANKS_H

#include <dirent.h>
#include <setjmp.h>

#include "../flat_backend.h"
#include "folder.h"
#include "last_record.h"
#include "stream/channel.h"
#include "unit_main.h"

const symmem_backend *symmem_backend_entry(uint32_t abi);

#define MAX_RANKS 8
#define BYTES 65536u
#define SHORT_MS 400u

typedef struct plan plan;

typedef struct rank_env {
    const plan *plan;
    int32_t rank, world;
    symmem_context *context;
    symmem_group *group;
    int failures;
    int checks;
    const char *fault_point; /* fails once when reached */
    symmem_status fault_status;
    int fault_hits;
    /* Waits there, once, for others that do: `meet_count` of them in all. */
    const char *_Atomic meet_point;
    int meet_count;
    int notices;
    /* What ends after the body. */
    symmem_stream *streams[4];
    symmem_handle *handles[4];
    void *memory[4];
    int stream_count, handle_count, memory_count;
    jmp_buf out; /* of a body that cannot go on */
} rank_env;

typedef void (*rank_body)(rank_env *env);

/* What a test wants of its ranks. */
struct plan {
    int32_t world;
    rank_body body;
    int argument;
    int runs;                      /* of a RANKS_TEST, each with an argument one higher; 0: one */
    const symmem_backend *backend; /* NULL: the emulation */
    flat_backend entries;          /* that take the place of the emulation's; threads only */
    uint64_t without;              /* capabilities that it then has not */
    int32_t multicast;
    bool same_device;
    bool overlap;
    bool together; /* threads only: no rank is at its end before all are through with the body */
    symmem_store *store;
    pthread_barrier_t *meet;   /* threads only */
    const symmem_clock *clock; /* NULL: the machine's */
    int32_t killed;            /* processes: this rank ends by SIGKILL; 0: none */
    void (*settle)(void);      /* threads only: before descriptors are counted; may be NULL */
};

#define CHECK(env, condition)                                                                      \
    do {                                                                                           \
        (env)->checks++;                                                                           \
        if (!(condition)) {                                                                        \
            (env)->failures++;                                                                     \
            fprintf(stderr, "%s:%d: rank %d of %d (%d): %s\n", __FILE__, __LINE__, (env)->rank,    \
                    (env)->world, (env)->plan->argument, #condition);                              \
        }                                                                                          \
    } while (0)

#define CHECK_STATUS(env, call, wanted)                                                            \
    do {                                                                                           \
        symmem_status found_ = (call);                                                             \
        (env)->checks++;                                                                           \
        if (found_ != (wanted)) {                                                                  \
            symmem_error_record record_;                                                           \
            symmem_last_error(&record_);                                                           \
            (env)->failures++;                                                                     \
            fprintf(stderr, "%s:%d: rank %d of %d (%d): %s is %s, not %s: %s/%s: %s\n", __FILE__,  \
                    __LINE__, (env)->rank, (env)->world, (env)->plan->argument, #call,             \
                    symmem_status_name(found_), symmem_status_name(wanted), record_.operation,     \
                    record_.stage, record_.message);                                               \
        }                                                                                          \
    } while (0)

#define CHECK_OK(env, call) CHECK_STATUS(env, call, SYMMEM_OK)

/* A fault that ends the process instead of failing. By SIGKILL: sanitizers take a second to exit.
 */
#define DIE ((symmem_status)-1000)
/* None, but waits there until a rank is about to DIE. */
#define AWAIT_DEATH ((symmem_status)-1001)

static atomic_int *env_dying; /* in memory that processes share; NULL: no rank waits for that */

/* Others are to learn of it in another way first, and wait only so long for it then: who slept here
 * might be kept from running for longer. */
static inline void die_soon(atomic_int *dying) {
    const uint64_t end_ns = sm_now_ns() + 10000000;
    atomic_store(dying, 1);
    while (sm_now_ns() < end_ns)
        continue;
    raise(SIGKILL);
}

static inline void await_death(const atomic_int *dying) {
    for (int i = 0; i < 200000 && atomic_load(dying) == 0; i++)
        sm_sleep_ns(100000);
}

static inline symmem_status env_fault(symmem_status status) {
    if (status == DIE && env_dying != NULL)
        die_soon(env_dying);
    else if (status == DIE)
        raise(SIGKILL);
    if (status != AWAIT_DEATH)
        return status;
    await_death(env_dying);
    return SYMMEM_OK;
}

/* Of a run's threads, at their meet_point. */
static atomic_int env_met;

/* Who came late would rightly be called missing: that all are there is certain from here on. */
static inline void env_meet_at_point(rank_env *env) {
    atomic_store(&env->meet_point, NULL);
    atomic_fetch_add(&env_met, 1);
    for (int i = 0; i < 20000 && atomic_load(&env_met) < env->meet_count; i++)
        sm_sleep_ns(1000000);
}

static inline symmem_status env_point(void *arg, const char *point) {
    rank_env *env = arg;
    const char *meet_point = atomic_load(&env->meet_point); /* a stream's thread may come, too */
    if (meet_point != NULL && strcmp(meet_point, point) == 0)
        env_meet_at_point(env);
    if (env->fault_point == NULL || strcmp(env->fault_point, point) != 0)
        return SYMMEM_OK;
    env->fault_point = NULL;
    env->fault_hits++;
    return env_fault(env->fault_status);
}

static inline void env_log(void *arg, const char *line) {
    rank_env *env = arg;
    env->notices++;
}

/* All ranks, threads or not, without the group under test. */
static inline void env_meet(rank_env *env) {
    if (env->plan->meet != NULL)
        pthread_barrier_wait(env->plan->meet);
}

static inline void env_open(rank_env *env) {
    const plan *p = env->plan;
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = env->rank;
    options.world_size = env->world;
    options.local_rank = p->same_device ? 0 : env->rank;
    options.store = p->store;
    options.default_timeout_ms = 20000;
    options.multicast = p->multicast;
    options.allow_overlapping_devices = p->overlap;
    options.point = env_point;
    options.point_arg = env;
    options.log = env_log;
    options.log_arg = env;
    options.clock = p->clock;
    const symmem_backend *backend =
        p->backend != NULL ? p->backend : symmem_backend_entry(SYMMEM_BACKEND_ABI);
    CHECK_OK(env, symmem_init(&options, &env->context));
    CHECK_OK(env, symmem_register_backend(env->context, backend));
    CHECK_OK(env, symmem_set_backend(env->context, backend->name));
    CHECK_OK(env, symmem_group_create(env->context, "world", NULL, 0, NULL, &env->group));
}

static inline void env_end(rank_env *env) {
    for (int i = 0; i < env->stream_count; i++)
        CHECK_OK(env, symmem_stream_destroy(env->streams[i]));
    for (int i = 0; i < env->handle_count; i++)
        symmem_handle_release(env->handles[i]);
    for (int i = 0; i < env->memory_count; i++)
        CHECK_OK(env, symmem_free(env->context, env->memory[i]));
}

static inline void *env_run(void *arg) {
    rank_env *env = arg;
    env_open(env);
    if (env->failures == 0 && setjmp(env->out) == 0)
        env->plan->body(env);
    if (env->plan->together)
        env_meet(env);
    env_end(env);
    symmem_context_free(env->context);
    return NULL;
}

static inline void env_init(rank_env *env, const plan *p, int32_t rank) {
    memset(env, 0, sizeof *env);
    env->plan = p;
    env->rank = rank;
    env->world = p->world;
}

static inline int open_descriptors(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        closedir(directory);
    return count;
}

static inline int open_mappings(void) {
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "symmem-") != NULL && strstr(line, "(deleted)") != NULL;
    if (maps != NULL)
        fclose(maps);
    return count;
}

static inline void run_threads(plan p) {
    rank_env envs[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    pthread_barrier_t meet;
    flat_backend table = flat_of(symmem_backend_entry(SYMMEM_BACKEND_ABI));
    int before = open_descriptors();
    flat_without(&table, p.without);
    flat_replace(&table, &p.entries);
    if (p.entries.memory_exchange != NULL) { /* in place of these */
        table.memory_share = NULL;
        table.memory_map = NULL;
        table.memory_unshare = NULL;
    }
    if (p.backend == NULL)
        p.backend = flat_table(&table);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&p.store), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&meet, NULL, (unsigned)p.world), 0);
    p.meet = &meet;
    atomic_store(&env_met, 0);
    for (int32_t r = 0; r < p.world; r++) {
        env_init(&envs[r], &p, r);
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[r], NULL, env_run, &envs[r]), 0);
    }
    for (int32_t r = 0; r < p.world; r++) {
        pthread_join(threads[r], NULL);
        CU_ASSERT_EQUAL(envs[r].failures, 0);
        CU_ASSERT(envs[r].checks > 4);
    }
    pthread_barrier_destroy(&meet);
    symmem_store_close(p.store);
    if (p.settle != NULL)
        p.settle();
    CU_ASSERT_EQUAL(open_descriptors(), before);
    CU_ASSERT_EQUAL(open_mappings(), 0);
}

/* The parent waits with a limit of its own: a rank that hangs is ended. */
static inline void run_processes(plan p) {
    char path[FOLDER_BYTES];
    pid_t pids[MAX_RANKS];
    CU_ASSERT_FATAL(make_folder(path));
    (void)fflush(NULL);
    for (int32_t r = 0; r < p.world; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            rank_env env;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(60);
            if (symmem_store_open_file(path, &p.store) != SYMMEM_OK)
                _exit(2);
            env_init(&env, &p, r);
            env_run(&env);
            symmem_store_close(p.store);
            exit(env.failures == 0 && env.checks > 4 ? 0 : 1);
        }
    }
    for (int32_t r = 0; r < p.world; r++) {
        int code = -1;
        CU_ASSERT(pids[r] > 1);
        if (pids[r] > 1) {
            waitpid(pids[r], &code, 0);
            CU_ASSERT_EQUAL(code, p.killed != 0 && r == p.killed ? SIGKILL : 0);
        }
    }
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    CU_ASSERT_EQUAL(system(command), 0);
}

/* The usual beginning: one allocation and its handle. */
static inline symmem_status meet_at(rank_env *env, void *ptr, uint32_t timeout_ms,
                                    symmem_handle **handle_p) {
    return symmem_rendezvous(env->context, ptr, env->group, timeout_ms, handle_p);
}

/* Where that has to go well. */
static inline symmem_handle *env_rendezvous(rank_env *env, void *ptr) {
    symmem_handle *handle = NULL;
    CHECK_OK(env, meet_at(env, ptr, SYMMEM_TIMEOUT_DEFAULT, &handle));
    if (handle == NULL)
        longjmp(env->out, 1);
    return handle;
}

/* The usual beginning: one allocation and its handle. */
static inline symmem_handle *env_handle(rank_env *env, void **ptr_p) {
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, ptr_p));
    return env_rendezvous(env, *ptr_p);
}

static inline void env_drop(rank_env *env, symmem_handle *handle, void *ptr) {
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

/* Memory, a handle for some, and both, that end after the body. `ptr_p` may be NULL. */
static inline void *env_memory(rank_env *env) {
    void *ptr = NULL;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    return env->memory[env->memory_count++] = ptr;
}

static inline symmem_handle *env_kept_rendezvous(rank_env *env, void *ptr) {
    return env->handles[env->handle_count++] = env_rendezvous(env, ptr);
}

static inline symmem_handle *env_kept_handle(rank_env *env, void **ptr_p) {
    void *ptr = env_memory(env);
    if (ptr_p != NULL)
        *ptr_p = ptr;
    return env_kept_rendezvous(env, ptr);
}

/* It is destroyed after the body. */
static inline symmem_stream *env_stream(rank_env *env) {
    symmem_stream *stream = NULL;
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    env->streams[env->stream_count++] = stream;
    return stream;
}

/* A fresh rendezvous works and data moves both ways. */
static inline void check_works(rank_env *env) {
    void *ptr = NULL;
    void *const *buffers = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    *(int *)ptr = 100 + env->rank;
    CHECK_OK(env, symmem_barrier(handle, 0, SYMMEM_TIMEOUT_DEFAULT, NULL));
    CHECK_OK(env, symmem_handle_buffer_ptrs(handle, &buffers));
    for (int32_t r = 0; r < env->world; r++)
        CHECK(env, *(int *)buffers[r] == 100 + r);
    CHECK_OK(env, symmem_barrier(handle, 0, SYMMEM_TIMEOUT_DEFAULT, NULL));
    env_drop(env, handle, ptr);
}

/* Two blocks of one segment: one mapping, signals and bounds of their own. */
static inline void body_pool(rank_env *env) {
    symmem_pool *pool = NULL;
    void *one = NULL, *two = NULL;
    symmem_handle *first = NULL, *second = NULL;
    symmem_handle_info info;
    CHECK_OK(env, symmem_pool_create(env->context, -1, BYTES, &pool));
    CHECK_OK(env, symmem_pool_alloc(pool, 1024, &one));
    CHECK_OK(env, symmem_pool_alloc(pool, 2048, &two));
    CHECK_OK(env, meet_at(env, one, 10000, &first));
    CHECK_OK(env, meet_at(env, (char *)two + 4, 10000, &second));
    CHECK(env, first->link != second->link && first->link->mapping == second->link->mapping);
    CHECK_OK(env, symmem_handle_get_info(second, &info));
    CHECK(env, info.block_size == 2048 && info.offset == second->link->block_offset + 4);
    /* Blocks do not share signals: a signal of one is none of the other. */
    CHECK_OK(env, symmem_put_signal(first, env->rank, 0, 1000, NULL));
    CHECK_STATUS(env, symmem_wait_signal(second, env->rank, 0, 50, NULL), SYMMEM_TIMEOUT);
    CHECK_OK(env, symmem_wait_signal(first, env->rank, 0, 1000, NULL));
    CHECK_STATUS(env, symmem_put(second, env->rank, 2044, &info, 1, NULL), SYMMEM_OUT_OF_RANGE);
    symmem_handle_release(first);
    symmem_handle_release(second);
    CHECK_OK(env, symmem_pool_free(pool, one));
    CHECK_OK(env, symmem_pool_free(pool, two));
    CHECK_OK(env, symmem_pool_destroy(pool));
}

/* RANKS_TEST("what is checked", .world = 2) { ... }, by each of the ranks that a plan describes,
 * which are threads and `env`. */
#define RANKS_TEST(case_name, ...) RANKS_TEST_(case_name, __COUNTER__, run_threads, __VA_ARGS__)
#define RANKS_TEST_(case_name, place, run, ...)                                                    \
    RANKS_PLACED_TEST_(case_name, place, run, __VA_ARGS__)
#define RANKS_PLACED_TEST_(case_name, place, run, ...)                                             \
    static void body_##place(rank_env *env);                                                       \
    TEST(case_name) {                                                                              \
        plan described = {.body = body_##place, __VA_ARGS__};                                      \
        do                                                                                         \
            run(described);                                                                        \
        while (++described.argument < described.runs);                                             \
    }                                                                                              \
    static void body_##place(rank_env *env)

/* The emulation has a device for each of the ranks. */
__attribute__((constructor)) static void have_devices(void) {
    setenv("SYMMEM_SHM_DEVICES", "8", 1);
}

#endif
