/* SPDX-License-Identifier: BSD-3-Clause */
/* A store with several users at once: waiting, waking, counting, replacing. */
#include "store_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>

typedef struct waiter {
    symmem_store *store;
    symmem_status status;
    uint64_t ended_ns;
    uint32_t timeout_ms;
} waiter;

#define ROUNDS 40

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

/* Somebody holds the lock and does not go on. */
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
