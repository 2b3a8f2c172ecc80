/* SPDX-License-Identifier: BSD-3-Clause */
/* How often the file store looks into its folder, and what a writer leaves that is killed or fails.
 * The folder is in memory, which remembers no name that is not there. */
#include "../bootstrap/session_ranks.h"
#include "unit.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#define LIMIT_MS 10000u

static char folder[] = "/dev/shm/symmem-absent-XXXXXX";
static char counted_folder[] = "/dev/shm/symmem-absent-XXXXXX";

/* The first folder has a key before it has a store: what is there is not counted. */
int unit_setup(void) {
    char path[64];
    if (mkdtemp(folder) == NULL || mkdtemp(counted_folder) == NULL)
        return 1;
    (void)snprintf(path, sizeof(path), "%s/kearlier", folder);
    const int fd = open(path, O_CREAT | O_WRONLY, 0600);
    return fd < 0 || close(fd) != 0;
}

int unit_teardown(void) {
    remove_tree(folder);
    remove_tree(counted_folder);
    return 0;
}

/* --- the calls ------------------------------------------------------------------------------ */

static int looks;            /* for names, in the folder */
static bool all_have_names;  /* the file system makes no nameless files */
static bool stat_fails;      /* the next one */
static bool dies_when_named; /* as soon as a value has its name */

int __real_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const bool is_nameless = (flags & O_TMPFILE) == O_TMPFILE;
    mode_t mode = is_nameless || (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    looks += is_nameless ? 0 : 1;
    if (!is_nameless || !all_have_names)
        return __real_openat(directory, path, flags, mode);
    errno = EOPNOTSUPP;
    return -1;
}

/* The store also looks whether its notify file is in place. */
int __real_fstatat(int directory, const char *path, struct stat *about, int flags);
int __wrap_fstatat(int directory, const char *path, struct stat *about, int flags);
int __wrap_fstatat(int directory, const char *path, struct stat *about, int flags) {
    looks += path[0] == 'k' ? 1 : 0;
    return __real_fstatat(directory, path, about, flags);
}

int __real_fstat(int fd, struct stat *about);
int __wrap_fstat(int fd, struct stat *about);
int __wrap_fstat(int fd, struct stat *about) {
    if (!stat_fails)
        return __real_fstat(fd, about);
    stat_fails = false;
    errno = EIO;
    return -1;
}

int __real_linkat(int from, const char *path, int to, const char *name, int flags);
int __wrap_linkat(int from, const char *path, int to, const char *name, int flags);
int __wrap_linkat(int from, const char *path, int to, const char *name, int flags) {
    const int result = __real_linkat(from, path, to, name, flags);
    if (dies_when_named)
        (void)raise(SIGKILL);
    return result;
}

static symmem_store *open_store_in(const char *path) {
    symmem_store *store = NULL;
    if (symmem_store_open_file(path, &store) != SYMMEM_OK)
        abort();
    looks = 0;
    return store;
}

static symmem_store *open_store(void) {
    return open_store_in(folder);
}

static symmem_status get(symmem_store *store, const char *key) {
    char value[8];
    size_t bytes;
    return symmem_store_get(store, key, value, sizeof(value), &bytes, LIMIT_MS);
}

/* --- what is not there ---------------------------------------------------------------------- */

TEST("looked for once") {
    symmem_store *store = open_store(), *other = open_store();
    CU_ASSERT_EQUAL(get(store, "a"), SYMMEM_NOT_FOUND);
    CU_ASSERT_EQUAL(looks, 1);
    CU_ASSERT_EQUAL(get(store, "a"), SYMMEM_NOT_FOUND);
    CU_ASSERT_EQUAL(symmem_store_wait(store, "a", 200), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(symmem_store_remove(store, "a", LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(looks, 1);
    CU_ASSERT_EQUAL(symmem_store_set(other, "a", "1", 1, LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(get(store, "a"), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_wait(store, "a", LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_remove(other, "a", LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(get(store, "a"), SYMMEM_NOT_FOUND);
    symmem_store_close(other);
    symmem_store_close(store);
}

static int looks_for(symmem_store *store, const char *key) {
    looks = 0;
    CU_ASSERT_EQUAL(get(store, key), SYMMEM_NOT_FOUND);
    CU_ASSERT_EQUAL(symmem_store_wait(store, key, 1), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(symmem_store_remove(store, key, LIMIT_MS), SYMMEM_OK);
    return looks;
}

/* In a folder in which all keys have been counted, one that is not there is not looked for at all:
 * neither before it has come nor once it was removed. */
TEST("not looked for") {
    symmem_store *store = open_store_in(counted_folder), *other = open_store_in(counted_folder);
    CU_ASSERT_EQUAL(looks_for(store, "a"), 0);
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(symmem_store_set(other, "a", "1", 1, LIMIT_MS), SYMMEM_OK);
        CU_ASSERT_EQUAL(get(store, "a"), SYMMEM_OK);
        CU_ASSERT_EQUAL(symmem_store_wait(store, "a", LIMIT_MS), SYMMEM_OK);
        CU_ASSERT_EQUAL(symmem_store_remove(other, "a", LIMIT_MS), SYMMEM_OK);
        CU_ASSERT_EQUAL(looks_for(store, "a"), 0);
    }
    all_have_names = stat_fails = true;
    CU_ASSERT_EQUAL(symmem_store_set(other, "a", "1", 1, LIMIT_MS), SYMMEM_SYSTEM);
    all_have_names = false;
    CU_ASSERT_EQUAL(looks_for(store, "a"), 0);
    /* A value that takes another's place may be counted twice. */
    CU_ASSERT_EQUAL(symmem_store_set(other, "a", "1", 1, LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_set(other, "a", "2", 1, LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(get(store, "a"), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_remove(store, "a", LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(looks_for(store, "a"), 1);
    symmem_store_close(other);
    symmem_store_close(store);
}

enum { COUNTS = 8192, THERE = 2048, ALL_COUNTED = THERE + COUNTS }; /* as in store_file_notify.c */

/* Counts that have come half round are not believed any more, or 0 would be a number of keys. */
TEST("counts do not come round") {
    char path[64];
    static uint32_t words[ALL_COUNTED + 1];
    symmem_store *store = open_store_in(counted_folder);
    (void)snprintf(path, sizeof(path), "%s/notify", counted_folder);
    const int fd = open(path, O_RDWR);
    CU_ASSERT_EQUAL_FATAL(pread(fd, words, sizeof(words), 0), sizeof(words));
    CU_ASSERT_EQUAL(words[ALL_COUNTED], 1);
    for (int i = 0; i < COUNTS; i++)
        words[THERE + i] = UINT32_MAX;
    CU_ASSERT_EQUAL(pwrite(fd, words, sizeof(words), 0), sizeof(words));
    CU_ASSERT_EQUAL(symmem_store_set(store, "round", "1", 1, LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(get(store, "round"), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_remove(store, "round", LIMIT_MS), SYMMEM_OK);
    close(fd);
    symmem_store_close(store);
}

/* The writer has named the value and has not told of it. */
TEST("a writer that is killed") {
    symmem_store *store = open_store();
    CU_ASSERT_EQUAL(get(store, "killed"), SYMMEM_NOT_FOUND);
    const pid_t pid = fork();
    if (pid == 0) {
        dies_when_named = true;
        (void)!symmem_store_set(store, "killed", "1", 1, LIMIT_MS);
        _exit(1);
    }
    CU_ASSERT_EQUAL(reap(pid), 1000 + SIGKILL);
    CU_ASSERT_EQUAL(get(store, "killed"), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_wait(store, "killed", LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_remove(store, "killed", LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(get(store, "killed"), SYMMEM_NOT_FOUND);
    CU_ASSERT_EQUAL(count_files(folder, 't'), 0);
    symmem_store_close(store);
}

/* Who opens the store behind that has other words. */
TEST("whose words are removed") {
    char path[64];
    symmem_store *store = open_store();
    CU_ASSERT_EQUAL(get(store, "b"), SYMMEM_NOT_FOUND);
    CU_ASSERT_EQUAL(get(store, "b"), SYMMEM_NOT_FOUND);
    (void)snprintf(path, sizeof(path), "%s/notify", folder);
    CU_ASSERT_EQUAL(unlink(path), 0);
    symmem_store *other = open_store();
    CU_ASSERT_EQUAL(symmem_store_set(other, "b", "1", 1, LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_wait(store, "b", LIMIT_MS), SYMMEM_OK);
    CU_ASSERT_EQUAL(get(store, "b"), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_remove(other, "b", LIMIT_MS), SYMMEM_OK);
    symmem_store_close(other);
    symmem_store_close(store);
}

/* --- what is left --------------------------------------------------------------------------- */

/* Another way is found where there is one. */
TEST("a call that fails") {
    symmem_store *store = open_store();
    for (int named = 0; named < 2; named++) {
        all_have_names = named == 1;
        stat_fails = true;
        CU_ASSERT_EQUAL(symmem_store_set(store, "c", "1", 1, LIMIT_MS),
                        named == 1 ? SYMMEM_SYSTEM : SYMMEM_OK);
        CU_ASSERT_FALSE(stat_fails);
        CU_ASSERT_EQUAL(get(store, "c"), named == 1 ? SYMMEM_NOT_FOUND : SYMMEM_OK);
        CU_ASSERT_EQUAL(count_files(folder, 't'), 0);
        CU_ASSERT_EQUAL(symmem_store_set(store, "c", "2", 1, LIMIT_MS), SYMMEM_OK);
        CU_ASSERT_EQUAL(symmem_store_set(store, "c", "3", 1, LIMIT_MS), SYMMEM_OK);
        CU_ASSERT_EQUAL(get(store, "c"), SYMMEM_OK);
        CU_ASSERT_EQUAL(symmem_store_remove(store, "c", LIMIT_MS), SYMMEM_OK);
        CU_ASSERT_EQUAL(count_files(folder, 't') + count_files(folder, 'k'),
                        1); /* the earlier one */
    }
    all_have_names = false;
    symmem_store_close(store);
}
