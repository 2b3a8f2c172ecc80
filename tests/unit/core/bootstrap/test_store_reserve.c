/* SPDX-License-Identifier: BSD-3-Clause */
/* The file store in a process that has no descriptor left: it can still tell its peers. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static char directory[] = "/tmp/symmem-reserve-XXXXXX";

/* No open() can succeed until the limit is put back. */
static struct rlimit take_all_descriptors(void) {
    struct rlimit before, none;
    int lowest_free = dup(STDERR_FILENO);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)lowest_free;
    close(lowest_free);
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    CU_ASSERT_EQUAL(dup(STDERR_FILENO), -1);
    return before;
}

static symmem_store *open_store(void) {
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_file(directory, &store), SYMMEM_OK);
    return store;
}

static void use(symmem_store *store, const char *counter, int rounds) {
    for (int64_t i = 0; i < rounds; i++) {
        int64_t sum = 0;
        int32_t value = 0;
        size_t bytes = 0;
        EXPECT_OK(symmem_store_set(store, "value", &(int32_t){7}, sizeof(value), 100));
        EXPECT_OK(symmem_store_get(store, "value", &value, sizeof(value), &bytes, 100));
        CU_ASSERT_EQUAL(value, 7);
        EXPECT_OK(symmem_store_add(store, counter, 1, &sum, 100));
        CU_ASSERT_EQUAL(sum, i + 1);
        EXPECT_FAIL(symmem_store_get(store, "absent", &value, sizeof(value), &bytes, 10),
                    SYMMEM_NOT_FOUND, "store_get");
    }
    EXPECT_OK(symmem_store_remove(store, counter, 100));
}

static void without_descriptors(void) {
    symmem_store *store = open_store();
    struct rlimit before = take_all_descriptors();
    use(store, "poor", 20);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
    use(store, "rich", 3);
    symmem_store_close(store);
}

TEST("without descriptors") {
    without_descriptors();
}

/* Nothing of the reserve is left behind, and what is opened afterwards gets the same numbers. */
TEST("gives back") {
    int first = dup(STDERR_FILENO);
    close(first);
    for (int i = 0; i < 3; i++)
        without_descriptors();
    int last = dup(STDERR_FILENO);
    close(last);
    CU_ASSERT_EQUAL(first, last);
}

TEST("opening needs some") {
    symmem_store *store = NULL;
    struct rlimit before = take_all_descriptors();
    EXPECT_FAIL(symmem_store_open_file(directory, &store), SYMMEM_LIMIT, "store_open_file");
    CU_ASSERT_PTR_NULL(store);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int unit_setup(void) {
    return mkdtemp(directory) == NULL;
}

int unit_teardown(void) {
    char command[sizeof(directory) + 16];
    snprintf(command, sizeof(command), "rm -r %s", directory);
    return system(command);
}
