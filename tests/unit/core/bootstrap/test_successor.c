/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that ended and was started again. Its successor joins new groups. Ranks that know the
 * successor do not mistake it for the ended process, which earlier handles and groups still name.
 */
#include <glob.h>

#include <symmem/backend.h>
#include <symmem/symmem.h>

#include "folder.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/session.h"
#include "memory/group.h"
#include "unit.h"

const symmem_backend *symmem_backend_entry(uint32_t abi);

enum { LIMIT_MS = 10000, SHORT_MS = 4000, SLOW_MS = 600, LONGEST_S = 60 };

/* This process's rank, one of two. */
typedef struct world {
    symmem_store *store;
    symmem_store *slow; /* the same */
    symmem_context *context;
    void *memory;
} world;

/* --- a store that takes its time for telling who rank 1 is, once -------------------------------
 */

enum { NOT_SLOW, SLOW_NEXT, SLOW_NOW };
static atomic_int slowness;

static symmem_status slow_set(void *self, const char *key, const void *value, size_t bytes,
                              uint32_t timeout_ms) {
    return symmem_store_set(self, key, value, bytes, timeout_ms);
}

static symmem_status slow_get(void *self, const char *key, void *value, size_t capacity,
                              size_t *bytes_p, uint32_t timeout_ms) {
    const size_t length = strlen(key);
    int expected = SLOW_NEXT;
    if (length > 5 && strcmp(key + length - 5, "/id/1") == 0 &&
        atomic_compare_exchange_strong(&slowness, &expected, SLOW_NOW))
        sm_sleep_ns(SLOW_MS * 1000000ull);
    return symmem_store_get(self, key, value, capacity, bytes_p, timeout_ms);
}

static symmem_status slow_wait(void *self, const char *key, uint32_t timeout_ms) {
    return symmem_store_wait(self, key, timeout_ms);
}

static symmem_status slow_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                              uint32_t timeout_ms) {
    return symmem_store_add(self, key, delta, value_p, timeout_ms);
}

static symmem_status slow_remove(void *self, const char *key, uint32_t timeout_ms) {
    return symmem_store_remove(self, key, timeout_ms);
}

static void slow_close(void *self) {
    symmem_store_close(self);
}

static const symmem_store_ops slow_ops = {
    .size = sizeof slow_ops,
    .set = slow_set,
    .get = slow_get,
    .wait = slow_wait,
    .add = slow_add,
    .remove = slow_remove,
    .close = slow_close,
};

/* --- ranks --------------------------------------------------------------------------------------
 */

static symmem_status world_open(world *w, const char *path, int32_t rank) {
    const symmem_backend *table = symmem_backend_entry(SYMMEM_BACKEND_ABI);
    symmem_context_options options;
    memset(w, 0, sizeof *w);
    symmem_context_options_init(&options);
    options.rank = rank;
    options.world_size = 2;
    symmem_status status = symmem_store_open_file(path, &w->store);
    if (status == SYMMEM_OK)
        status = symmem_store_open_custom(&slow_ops, w->store, &w->slow);
    options.store = w->slow;
    if (status == SYMMEM_OK)
        status = symmem_init(&options, &w->context);
    if (status == SYMMEM_OK)
        status = symmem_register_backend(w->context, table);
    if (status == SYMMEM_OK)
        status = symmem_set_backend(w->context, table->name);
    if (status == SYMMEM_OK)
        status = symmem_set_allow_overlapping_devices(w->context, 1);
    if (status == SYMMEM_OK)
        status = symmem_alloc(w->context, 4096, 0, NULL, &w->memory);
    return status;
}

static symmem_status meet(const world *w, const char *name, symmem_group **group_p,
                          symmem_handle **handle_p) {
    symmem_status status = symmem_group_create(w->context, name, NULL, 0, NULL, group_p);
    if (status == SYMMEM_OK)
        status = symmem_rendezvous(w->context, w->memory, *group_p, LIMIT_MS, handle_p);
    return status == SYMMEM_OK ? symmem_barrier(*handle_p, 0, LIMIT_MS, NULL) : status;
}

static void end_world(world *w) {
    symmem_context_free(w->context);
    symmem_store_close(w->slow);
}

/* Starts rank 1 in a new process. It forms the first group with rank 0, waits for rank 0 in the
 * group `other` if that is not NULL, and stays until it is killed. */
static pid_t start_peer(const char *path, const char *name, const char *other) {
    const pid_t parent = getpid();
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    world w;
    symmem_group *group;
    symmem_handle *handle;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(LONGEST_S);
    if (getppid() != parent || world_open(&w, path, 1) != SYMMEM_OK ||
        meet(&w, name, &group, &handle) != SYMMEM_OK)
        _exit(1);
    if (other != NULL &&
        (symmem_group_create(w.context, other, NULL, 0, NULL, &group) != SYMMEM_OK ||
         symmem_group_barrier(group, 0) != SYMMEM_OK))
        _exit(1);
    for (;;)
        (void)pause();
}

static void end_peer(pid_t pid) {
    int status = 0;
    if (pid < 2)
        return;
    CU_ASSERT_EQUAL(kill(pid, SIGKILL), 0);
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    CU_ASSERT(WIFSIGNALED(status));
}

/* Expects PEER_LOST from a call that needs the ended process. */
static void expect_lost(symmem_status status, uint64_t begin_ns) {
    symmem_error_record record;
    symmem_last_error(&record);
    CU_ASSERT_EQUAL(status, SYMMEM_PEER_LOST);
    CU_ASSERT(symmem_error_is_missing(&record, 1));
    CU_ASSERT(sm_now_ns() - begin_ns < 1500000000);
}

static void end_both(world *w, pid_t peer, const char *path) {
    char command[FOLDER_BYTES + 16];
    end_world(w);
    end_peer(peer);
    snprintf(command, sizeof command, "rm -rf -- '%s'", path);
    CU_ASSERT_EQUAL(system(command), 0);
}

/* Until its record of that group is in the store. */
static void await_join(const char *path, const char *name) {
    char pattern[FOLDER_BYTES + 64];
    glob_t found;
    int result = GLOB_NOMATCH;
    snprintf(pattern, sizeof pattern, "%s/kg%%%s-*%%j%%1", path, name);
    for (int i = 0; i < LIMIT_MS && result == GLOB_NOMATCH; i++) {
        result = glob(pattern, 0, NULL, &found);
        if (result == 0)
            globfree(&found);
        sm_sleep_ns(1000000);
    }
    CU_ASSERT_EQUAL(result, 0);
}

TEST("what is gone is not its successor") {
    char path[FOLDER_BYTES];
    world w;
    symmem_group *first = NULL, *second = NULL;
    symmem_handle *before = NULL, *after = NULL;
    CU_ASSERT_FATAL(make_folder(path));
    pid_t peer = start_peer(path, "first", NULL);
    CU_ASSERT_FATAL(peer > 1);
    CU_ASSERT_EQUAL(world_open(&w, path, 0), SYMMEM_OK);
    CU_ASSERT_EQUAL(meet(&w, "first", &first, &before), SYMMEM_OK);
    end_peer(peer);
    peer = start_peer(path, "second", NULL);
    CU_ASSERT_FATAL(peer > 1);
    await_join(path, "second"); /* an earlier call would report that rank 1 ended */
    CU_ASSERT_EQUAL(meet(&w, "second", &second, &after), SYMMEM_OK);

    uint64_t begin_ns = sm_now_ns();
    expect_lost(symmem_barrier(before, 0, SHORT_MS, NULL), begin_ns);
    int fd = -1;
    begin_ns = sm_now_ns();
    expect_lost(symmem_group_recv_fd(first, 1, &fd, SHORT_MS), begin_ns);
    CU_ASSERT_EQUAL(sm_session_peer_state(first->session, 1), SYMMEM_PEER_GONE);
    /* The successor is there. */
    CU_ASSERT_EQUAL(sm_session_peer_state(second->session, 1), SYMMEM_PEER_ALIVE);
    uint32_t value = 5;
    CU_ASSERT_EQUAL(symmem_put(after, 1, 0, &value, sizeof value, NULL), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_put_signal(after, 1, 0, LIMIT_MS, NULL), SYMMEM_OK);
    symmem_handle_release(after);
    symmem_handle_release(before);
    end_both(&w, peer, path);
}

static void *wait_for_group(void *opaque) {
    symmem_group **group = opaque;
    return symmem_group_barrier(*group, 2 * SLOW_MS) == SYMMEM_TIMEOUT ? opaque : NULL;
}

/* A group that the first process began still has its record. A rank that reads the record there
 * does not take the successor, which is rank 1 in other groups, for lost. */
TEST("a successor is not what is gone") {
    char path[FOLDER_BYTES];
    world w;
    symmem_group *first = NULL, *second = NULL, *third = NULL;
    symmem_handle *before = NULL, *after = NULL;
    pthread_t thread;
    void *timed_out = NULL;
    CU_ASSERT_FATAL(make_folder(path));
    pid_t peer = start_peer(path, "first", "third");
    CU_ASSERT_FATAL(peer > 1);
    CU_ASSERT_EQUAL(world_open(&w, path, 0), SYMMEM_OK);
    CU_ASSERT_EQUAL(meet(&w, "first", &first, &before), SYMMEM_OK);
    await_join(path, "third");
    end_peer(peer);
    peer = start_peer(path, "second", NULL);
    CU_ASSERT_FATAL(peer > 1);
    await_join(path, "second"); /* an earlier call would report that rank 1 ended */
    CU_ASSERT_EQUAL(meet(&w, "second", &second, &after), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_group_create(w.context, "third", NULL, 0, NULL, &third), SYMMEM_OK);

    atomic_store(&slowness, SLOW_NEXT);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, wait_for_group, &third), 0);
    for (int i = 0; i < LIMIT_MS && atomic_load(&slowness) != SLOW_NOW; i++)
        sm_sleep_ns(1000000);
    CU_ASSERT_EQUAL(atomic_load(&slowness), SLOW_NOW);
    CU_ASSERT_EQUAL(symmem_barrier(after, 0, SLOW_MS / 2, NULL), SYMMEM_TIMEOUT);
    uint64_t begin_ns = sm_now_ns();
    expect_lost(symmem_barrier(before, 0, SHORT_MS, NULL), begin_ns);
    CU_ASSERT_EQUAL(pthread_join(thread, &timed_out), 0);
    CU_ASSERT_PTR_EQUAL(timed_out, &third);
    symmem_handle_release(after);
    symmem_handle_release(before);
    end_both(&w, peer, path);
}
