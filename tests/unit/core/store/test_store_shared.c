/* SPDX-License-Identifier: BSD-3-Clause */
/* A store with several users at once: waiting, waking, counting, replacing. */
#include "store_files.h"

#include <sys/file.h>

typedef struct waiter {
    symmem_store *store;
    symmem_status status;
    uint64_t ended_ns;
    uint32_t timeout_ms;
} waiter;

static void *wait_for_key(void *arg) {
    waiter *self = arg;
    self->status = symmem_store_wait(self->store, "late", self->timeout_ms);
    self->ended_ns = sm_now_ns();
    return NULL;
}

static void wake(symmem_store *store) {
    waiter waiters[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        waiters[i] = (waiter){.store = store, .timeout_ms = i == 0 ? 0 : 5000};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, wait_for_key, &waiters[i]), 0);
    }
    sm_sleep_ns(130000000);
    CU_ASSERT_EQUAL(symmem_store_set(store, "other", "", 0, 0), SYMMEM_OK);
    uint64_t set_ns = sm_now_ns();
    CU_ASSERT_EQUAL(symmem_store_set(store, "late", "", 0, 0), SYMMEM_OK);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CU_ASSERT_EQUAL(waiters[i].status, SYMMEM_OK);
        /* Not before, and far from the limit, however busy the machine is. */
        CU_ASSERT(waiters[i].ended_ns >= set_ns && waiters[i].ended_ns - set_ns < 3000000000ull);
    }
    CU_ASSERT_EQUAL(symmem_store_remove(store, "late", 0), SYMMEM_OK);
    /* And without anybody: sleeping costs no time of the processor. */
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    CU_ASSERT_EQUAL(symmem_store_wait(store, "late", 300), SYMMEM_TIMEOUT);
    getrusage(RUSAGE_SELF, &after);
    long used_us = (after.ru_utime.tv_usec - before.ru_utime.tv_usec) +
                   (after.ru_stime.tv_usec - before.ru_stime.tv_usec) +
                   1000000 * (after.ru_utime.tv_sec - before.ru_utime.tv_sec +
                              after.ru_stime.tv_sec - before.ru_stime.tv_sec);
    CU_ASSERT(used_us < 30000);
    symmem_store_close(store);
}

#define ROUNDS 40

/* Answers each "ping/<i>" with "pong/<i>". */
static void *answer(void *arg) {
    char key[32];
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(key, sizeof(key), "ping/%d", i);
        if (symmem_store_wait(arg, key, 5000) != SYMMEM_OK)
            break;
        snprintf(key, sizeof(key), "pong/%d", i);
        if (symmem_store_set(arg, key, "", 0, 5000) != SYMMEM_OK)
            break;
    }
    return NULL;
}

/* How long it takes to pass so many keys to and fro. */
static uint64_t ping_pong(symmem_store *store) {
    pthread_t thread;
    char key[32];
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, answer, store), 0);
    uint64_t start_ns = sm_now_ns();
    for (int i = 0; i < ROUNDS; i++) {
        sm_sleep_ns(1000000); /* the other one sleeps by now */
        snprintf(key, sizeof(key), "ping/%d", i);
        CU_ASSERT_EQUAL(symmem_store_set(store, key, "", 0, 5000), SYMMEM_OK);
        snprintf(key, sizeof(key), "pong/%d", i);
        CU_ASSERT_EQUAL(symmem_store_wait(store, key, 5000), SYMMEM_OK);
    }
    uint64_t elapsed_ns = sm_now_ns() - start_ns;
    pthread_join(thread, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(key, sizeof(key), "ping/%d", i);
        CU_ASSERT_EQUAL(symmem_store_remove(store, key, 0), SYMMEM_OK);
        snprintf(key, sizeof(key), "pong/%d", i);
        CU_ASSERT_EQUAL(symmem_store_remove(store, key, 0), SYMMEM_OK);
    }
    return elapsed_ns;
}

/* Waiters are woken, not found awake by their next tick: once in a few tries, on a busy machine. */
static void wake_at_once(symmem_store *store) {
    bool quick = false;
    for (int i = 0; i < 8 && !quick; i++)
        quick = ping_pong(store) < ROUNDS * 20000000ull;
    CU_ASSERT_TRUE(quick);
    symmem_store_close(store);
}

TEST("waking") {
    wake_at_once(open_memory());
    wake_at_once(open_file());
    wake(open_memory());
    wake(open_file());
    remove_tree(path);
}

enum { ADDERS = 8, ADDS = 300 };

/* NULL if all went well. The lock is no queue: on a busy machine one may wait for long. */
static void *add_many(void *arg) {
    for (int i = 0; i < ADDS; i++) {
        int64_t sum;
        if (symmem_store_add(arg, "count", 1, &sum, 90000) != SYMMEM_OK)
            return arg;
    }
    return NULL;
}

static int64_t total(symmem_store *store) {
    int64_t sum = -1;
    CU_ASSERT_EQUAL(symmem_store_add(store, "count", 0, &sum, 0), SYMMEM_OK);
    return sum;
}

/* A store inherited over fork: two processes on one open directory. */
static symmem_store *inherited;

static void inherit_child(void) {
    add_many(inherited);
}

TEST("inherited") {
    inherited = open_file();
    pid_t pid = start(inherit_child);
    add_many(inherited);
    CU_ASSERT_EQUAL(reap(pid), 0);
    CU_ASSERT_EQUAL(total(inherited), 2 * ADDS);
    symmem_store_close(inherited);
    remove_tree(path);
}

/* Values of one letter and changing length: never a mix, never a part. */
#define REPLACED_BYTES 50000u

static void replace_child(void) {
    symmem_store *store = open_file();
    static char value[REPLACED_BYTES];
    for (int i = 0; i < 3000; i++) {
        size_t bytes = 1 + (size_t)i * 7919 % REPLACED_BYTES;
        memset(value, 'a' + i % 26, bytes);
        if (symmem_store_set(store, "r", value, bytes, 0) != SYMMEM_OK)
            exit(1);
    }
    if (symmem_store_set(store, "done", "", 0, 0) != SYMMEM_OK)
        exit(1);
    symmem_store_close(store);
}

TEST("replaced while read") {
    pid_t pid = start(replace_child);
    symmem_store *store = open_file();
    static char value[REPLACED_BYTES];
    size_t bytes = 0, reads = 0;
    bool whole = true;
    CU_ASSERT_EQUAL(symmem_store_wait(store, "r", 10000), SYMMEM_OK);
    while (symmem_store_get(store, "done", NULL, 0, &bytes, 0) == SYMMEM_NOT_FOUND) {
        if (symmem_store_get(store, "r", value, sizeof(value), &bytes, 0) != SYMMEM_OK ||
            bytes == 0)
            whole = false;
        for (size_t i = 1; i < bytes; i++)
            whole = whole && value[i] == value[0];
        reads++;
        if (reads > 1000000)
            break;
    }
    CU_ASSERT_TRUE(whole);
    CU_ASSERT(reads > 1);
    CU_ASSERT_EQUAL(reap(pid), 0);
    symmem_store_close(store);
    remove_tree(path);
}

/* Another process holds the lock and does not go on. */
TEST("lock held") {
    symmem_store *store = open_file();
    char name[128];
    snprintf(name, sizeof(name), "%s/lock", path);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CU_ASSERT_FATAL(fd >= 0 && flock(fd, LOCK_EX) == 0);
    uint64_t start_ns = sm_now_ns();
    int64_t sum = 7;
    CU_ASSERT_EQUAL(symmem_store_add(store, "n", 1, &sum, 100), SYMMEM_TIMEOUT);
    CU_ASSERT(sm_now_ns() - start_ns < 5000000000); /* the lock stays for ever */
    CU_ASSERT_EQUAL(symmem_store_set(store, "k", "", 0, 100), SYMMEM_OK);
    close(fd);
    CU_ASSERT_EQUAL(symmem_store_add(store, "n", 1, &sum, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(sum, 1);
    symmem_store_close(store);
    remove_tree(path);
}
