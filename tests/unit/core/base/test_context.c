/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts: options, environment, store, identity and end. Also lists and call order. */
#include "unit.h"
#include "stream/channel.h"
#include "last_record.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static const char *const variables[] = {"RANK",
                                        "PMIX_RANK",
                                        "OMPI_COMM_WORLD_RANK",
                                        "PMI_RANK",
                                        "SLURM_PROCID",
                                        "WORLD_SIZE",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE",
                                        "SLURM_NTASKS",
                                        "LOCAL_RANK",
                                        "PMIX_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "MPI_LOCALRANKID",
                                        "SLURM_LOCALID",
                                        "SYMMEM_STORE",
                                        "SYMMEM_BACKEND",
                                        "SYMMEM_SOCKET_DIR"};

static void clear_environment(void) {
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
}

static symmem_context_options world_of(int32_t rank, int32_t world_size) {
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = rank;
    options.world_size = world_size;
    return options;
}

/* init must refuse the options and leave nothing behind. */
static void expect_refused(const symmem_context_options *options, symmem_status expected) {
    symmem_context *context = (void *)&context;
    EXPECT_FAIL(symmem_init(options, &context), expected, "init");
    CU_ASSERT_PTR_NULL(context);
}

TEST("bad options") {
    symmem_context_options options = world_of(0, 1);
    clear_environment();
    EXPECT_FAIL(symmem_init(&options, NULL), SYMMEM_INVALID_ARGUMENT, "init");
    expect_refused(NULL, SYMMEM_INVALID_ARGUMENT); /* no world size anywhere */
    options.size = 8;
    expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
    static const int32_t worlds[][2] = {{-1, 1}, {0, -1}, {0, 0},  {0, -2},     {0, 1025},
                                        {1, 1},  {2, 1},  {-2, 1}, {1024, 1024}};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        options = world_of(worlds[i][0], worlds[i][1]);
        expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
    }
    options = world_of(0, 1);
    options.local_rank = -2;
    expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
    options = world_of(0, 1);
    options.allow_overlapping_devices = 2;
    expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
    options = world_of(0, 1);
    options.multicast = -2;
    expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
    options = world_of(0, 2); /* no store */
    expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
    setenv("SYMMEM_STORE", "tcp:somewhere", 1);
    expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
    setenv("SYMMEM_STORE", "file:", 1);
    expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
    clear_environment();
    symmem_context_options_init(NULL);
    symmem_alloc_options_init(NULL);
}

static bool published(symmem_store *store, int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_member member;
    size_t bytes = 0;
    sm_identity_key("symmem", rank, key, sizeof(key));
    symmem_status status = symmem_store_get(store, key, &member, sizeof(member), &bytes, 1000);
    return status == SYMMEM_OK && bytes == sizeof(member) && member.identity.pid == getpid();
}

static symmem_status point_fails(void *arg, const char *point) {
    return strcmp(arg, point) == 0 ? SYMMEM_SYSTEM : SYMMEM_OK;
}

/* SM-ERROR-12 */
TEST("flags in the environment") {
    static const char *const names[] = {"SYMMEM_ALLOW_OVERLAPPING_DEVICES",
                                        "SYMMEM_CHECK_COLLECTIVES", "SYMMEM_MULTICAST"};
    symmem_context_options options = world_of(0, 1);
    clear_environment();
    for (int i = 0; i < 3; i++) {
        setenv(names[i], "no", 1);
        expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, names[i]));
        unsetenv(names[i]);
    }
}

/* The program's working directory makes the path too long. */
TEST("a relative socket directory") {
    char deep[150] = "/tmp/", message[sizeof(last_record().message)];
    memset(deep + 5, 'd', 100);
    symmem_store *store = NULL;
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_context_options options = world_of(0, 2);
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    clear_environment();
    CU_ASSERT_FATAL(here >= 0 && mkdir(deep, 0700) == 0 && chdir(deep) == 0);
    EXPECT_OK(symmem_store_open_memory(&store));
    options.store = store;
    options.socket_dir = "sockets";
    EXPECT_OK(symmem_init(&options, &context));
    CU_ASSERT_FATAL(fchdir(here) == 0 && rmdir(deep) == 0);
    EXPECT_OK(symmem_group_create(context, "world", NULL, 0, NULL, &group));
    EXPECT_FAIL(symmem_group_barrier(group, 100), SYMMEM_PATH_TOO_LONG, "group_barrier");
    sm_copy_text(message, sizeof(message), last_record().message);
    CU_ASSERT_PTR_NOT_NULL(strstr(message, "/tmp/ddd"));
    CU_ASSERT_PTR_NOT_NULL(strstr(message, "the relative 'sockets' as seen at init"));
    symmem_context_free(context);
    symmem_store_close(store);
    close(here);
}

TEST("identity") {
    symmem_context *context = NULL;
    symmem_context_options options = world_of(1, 2);
    symmem_store *store = NULL;
    EXPECT_OK(symmem_store_open_memory(&store));
    options.store = store;
    EXPECT_OK(symmem_init(&options, &context));
    CU_ASSERT_TRUE(published(store, 1));
    CU_ASSERT_FALSE(published(store, 0));
    CU_ASSERT_TRUE(sm_liveness_knows(context->liveness, 1));
    options.point = point_fails;
    options.point_arg = "init.identity"; /* before the set: the other's key stays */
    expect_refused(&options, SYMMEM_SYSTEM);
    CU_ASSERT_TRUE(published(store, 1));
    EXPECT_OK(symmem_finalize(context));
    CU_ASSERT_FALSE(published(store, 1));
    symmem_context_free(context);
    options.point_arg = "init.done";
    expect_refused(&options, SYMMEM_SYSTEM);
    CU_ASSERT_FALSE(published(store, 1));
    symmem_store_close(store);
}

/* A missing value counts as empty, and the default's own name selects the default. */
TEST("nothing said") {
    symmem_context_options options = world_of(0, 1);
    for (int i = 0; i < 2; i++) {
        symmem_context *context = NULL;
        options.socket_dir = i == 0 ? "" : ".";
        options.default_timeout_ms = i == 0 ? SYMMEM_TIMEOUT_DEFAULT : 5;
        setenv("SYMMEM_STORE", "", 1);
        setenv("SYMMEM_ALL_REDUCE_TABLE", "", 1);
        EXPECT_OK(symmem_init(&options, &context));
        CU_ASSERT_EQUAL(context->default_timeout_ms == 5, i == 1);
        CU_ASSERT_EQUAL(context->socket_dir != NULL, i == 1);
        CU_ASSERT(i == 0 || context->socket_dir[0] == '/'); /* wherever the program goes */
        symmem_context_free(context);
    }
    options = world_of(0, 2);
    expect_refused(&options, SYMMEM_INVALID_ARGUMENT); /* no store */
    unsetenv("SYMMEM_STORE");
    unsetenv("SYMMEM_ALL_REDUCE_TABLE");
}

static char logged[1024];
static void keep_line(void *arg, const char *line) {
    (void)arg;
    (void)snprintf(logged, sizeof(logged), "%s", line);
}

/* A store that nobody named is said to the log, if there is one. */
TEST("which store was chosen") {
    static const struct {
        bool has_log, is_named, says;
    } rows[] = {{true, false, true}, {true, true, false}, {false, false, false}};
    struct sockaddr_in nobody = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(nobody);
    char port[16], wanted[96], named[96];
    clear_environment();
    /* A port that is taken, and at which nobody listens. */
    const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL_FATAL(bind(taken, (const struct sockaddr *)&nobody, sizeof(nobody)), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(taken, (struct sockaddr *)&nobody, &bytes), 0);
    snprintf(port, sizeof(port), "%d", ntohs(nobody.sin_port) - 1);
    snprintf(named, sizeof(named), "tcp://127.0.0.1:%d/word", ntohs(nobody.sin_port));
    snprintf(wanted, sizeof(wanted), "the ranks share the store tcp://127.0.0.1:%d: of MASTER_ADDR",
             ntohs(nobody.sin_port));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        symmem_context_options options = world_of(1, 2);
        options.default_timeout_ms = 30;
        options.log = rows[i].has_log ? keep_line : NULL;
        logged[0] = '\0';
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        setenv("MASTER_PORT", port, 1);
        if (rows[i].is_named)
            setenv("SYMMEM_STORE", named, 1);
        expect_refused(&options, SYMMEM_TIMEOUT);
        CU_ASSERT_EQUAL(strstr(logged, wanted) != NULL, rows[i].says);
        unsetenv("SYMMEM_STORE");
    }
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    close(taken);
}

/* The values that the named launcher lacks are reported. Any launcher may give the local rank. */
TEST("launchers") {
    symmem_context *context = NULL;
    symmem_context_options options = world_of(-1, -1);
    clear_environment();
    setenv("SYMMEM_LAUNCHER", "ompi", 1);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "OMPI_COMM_WORLD_RANK is not set"));
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "OMPI_COMM_WORLD_SIZE is not set"));
    options.rank = 0;
    expect_refused(&options, SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "OMPI_COMM_WORLD_SIZE is not set"));
    clear_environment();
    unsetenv("SYMMEM_LAUNCHER");
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "5", 1);
    options = world_of(0, 1);
    EXPECT_OK(symmem_init(&options, &context));
    CU_ASSERT_EQUAL(context->local_rank, 5);
    symmem_context_free(context);
    clear_environment();
}

/* A store whose every call fails. */
static symmem_status broken_set(void *self, const char *key, const void *value, size_t bytes,
                                uint32_t timeout_ms) {
    return sm_fail(SYMMEM_PERMISSION, "store_set", "", "broken");
}

/* Sets the key in another store, which is `self`. */
static symmem_status fine_set(void *self, const char *key, const void *value, size_t bytes,
                              uint32_t timeout_ms) {
    return symmem_store_set(self, key, value, bytes, timeout_ms);
}

static symmem_status fine_get(void *self, const char *key, void *value, size_t capacity,
                              size_t *bytes_p, uint32_t timeout_ms) {
    return symmem_store_get(self, key, value, capacity, bytes_p, timeout_ms);
}

static symmem_status broken_get(void *self, const char *key, void *value, size_t capacity,
                                size_t *bytes_p, uint32_t timeout_ms) {
    return broken_set(self, key, value, capacity, timeout_ms);
}

static symmem_status broken_wait(void *self, const char *key, uint32_t timeout_ms) {
    return broken_set(self, key, NULL, 0, timeout_ms);
}

static symmem_status broken_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                                uint32_t timeout_ms) {
    return broken_set(self, key, NULL, 0, timeout_ms);
}

static void broken_close(void *self) {}

TEST("broken store") {
    static const symmem_store_ops ops = {sizeof(ops), broken_set,  broken_get,  broken_wait,
                                         broken_add,  broken_wait, broken_close};
    symmem_context *context = NULL;
    symmem_context_options options = world_of(0, 2);
    symmem_store *store = NULL;
    symmem_error_record record;
    EXPECT_OK(symmem_store_open_custom(&ops, NULL, &store));
    options.store = store;
    CU_ASSERT_EQUAL(symmem_init(&options, &context), SYMMEM_PERMISSION);
    CU_ASSERT_PTR_NULL(context);
    symmem_last_error(&record);
    CU_ASSERT_EQUAL(record.status, SYMMEM_PERMISSION);
    symmem_store_close(store);
}

/* A store that fails keeps no context from ending and leaves no record. */
static void end_with(const symmem_store_ops *ops) {
    symmem_context *context = NULL;
    symmem_context_options options = world_of(0, 2);
    symmem_store *store = NULL, *inner = NULL;
    symmem_error_record record;
    EXPECT_OK(symmem_store_open_memory(&inner));
    EXPECT_OK(symmem_store_open_custom(ops, inner, &store));
    options.store = store;
    EXPECT_OK(symmem_init(&options, &context));
    symmem_clear_error();
    EXPECT_OK(symmem_finalize(context));
    symmem_last_error(&record);
    CU_ASSERT_EQUAL(record.status, SYMMEM_OK);
    symmem_context_free(context);
    symmem_store_close(store);
    symmem_store_close(inner);
}

TEST("a store that breaks later") {
    symmem_store_ops ops = {sizeof(ops), fine_set,    broken_get,  broken_wait,
                            broken_add,  broken_wait, broken_close};
    end_with(&ops);
    ops.get = fine_get;
    end_with(&ops);
}

/* The rank's next process may have come before this one ended. */
TEST("a successor keeps its identity") {
    symmem_context *context = NULL;
    symmem_context_options options = world_of(1, 2);
    symmem_store *store = NULL;
    sm_member member, found;
    size_t bytes = 0;
    EXPECT_OK(symmem_store_open_memory(&store));
    options.store = store;
    EXPECT_OK(symmem_init(&options, &context));
    EXPECT_OK(symmem_store_get(store, "symmem/id/1", &member, sizeof member, &bytes, 0));
    member.identity.start_time++;
    member.token[0]++;
    EXPECT_OK(symmem_store_set(store, "symmem/id/1", &member, sizeof member, 0));
    symmem_clear_error();
    symmem_context_free(context);
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_OK);
    EXPECT_OK(symmem_store_get(store, "symmem/id/1", &found, sizeof found, &bytes, 0));
    CU_ASSERT_EQUAL(memcmp(&member, &found, sizeof found), 0);
    symmem_store_close(store);
}

TEST("default backend") {
    symmem_context *context = NULL;
    symmem_context_options options = world_of(0, 1);
    clear_environment();
    options.backend = "no_such_backend";
    EXPECT_FAIL(symmem_init(&options, &context), SYMMEM_NOT_FOUND, "init");
    options.backend = NULL;
    setenv("SYMMEM_BACKEND", "no_such_backend", 1);
    EXPECT_FAIL(symmem_init(&options, &context), SYMMEM_NOT_FOUND, "init");
    setenv("SYMMEM_BACKEND", "", 1);
    EXPECT_OK(symmem_init(&options, &context));
    symmem_context_free(context);
    clear_environment();
}

/* --- small parts -------------------------------------------------------------------- */

TEST("lists") {
    sm_node head, a, b;
    sm_list_init(&head);
    CU_ASSERT_TRUE(sm_list_empty(&head));
    sm_list_add(&head, &a);
    sm_list_add(&head, &b);
    CU_ASSERT_PTR_EQUAL(head.next, &a);
    CU_ASSERT_PTR_EQUAL(head.previous, &b);
    sm_list_remove(&a);
    sm_list_remove(&a);
    CU_ASSERT_TRUE(sm_list_empty(&a));
    CU_ASSERT_PTR_EQUAL(head.next, &b);
    sm_list_remove(&b);
    CU_ASSERT_TRUE(sm_list_empty(&head));
}

static void *give_later(void *arg) {
    sm_sleep_ns(20 * 1000 * 1000);
    sm_timed_mutex_unlock(arg);
    return NULL;
}

TEST("turns") {
    sm_timed_mutex lock;
    pthread_t thread;
    EXPECT_OK(sm_timed_mutex_init(&lock));
    CU_ASSERT_TRUE(sm_timed_mutex_lock(&lock, 1)); /* free: no matter how late */
    CU_ASSERT_FALSE(sm_timed_mutex_lock(&lock, 1));
    uint64_t start_ns = sm_now_ns();
    CU_ASSERT_FALSE(sm_timed_mutex_lock(&lock, sm_deadline_ns(30)));
    CU_ASSERT_TRUE(sm_now_ns() - start_ns >= 29 * 1000 * 1000);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, give_later, &lock), 0);
    CU_ASSERT_TRUE(sm_timed_mutex_lock(&lock, sm_deadline_ns(10000)));
    CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, give_later, &lock), 0);
    CU_ASSERT_TRUE(sm_timed_mutex_lock(&lock, 0));
    CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
    sm_timed_mutex_unlock(&lock);
    sm_timed_mutex_finish(&lock);
}

TEST("a store of no known kind") {
    symmem_context *context = NULL;
    symmem_context_options options = world_of(1, 2);
    clear_environment();
    setenv("SYMMEM_STORE", "tcp:elsewhere", 1);
    EXPECT_FAIL(symmem_init(&options, &context), SYMMEM_INVALID_ARGUMENT, "init");
    setenv("SYMMEM_STORE", "file:", 1);
    EXPECT_FAIL(symmem_init(&options, &context), SYMMEM_INVALID_ARGUMENT, "init");
    clear_environment();
}
