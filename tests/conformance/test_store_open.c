/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening stores: directories, permissions, custom tables. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "counting_store.h"
#include "case_help.h"
#include "resources.h"

#define LIMIT_MS 10000u

/* --- opening ------------------------------------------------------------------------ */

TK_TEST(store_open, file_store_refuses_paths, "SM-STORE-07,SM-ERROR-04", .max_ranks = 1) {
    char path[8192];
    symmem_store *const untouched = (symmem_store *)(void *)t;
    symmem_store *store = untouched;
    FILE *file;
    TK_REQ(t, "SM-STORE-07");
    snprintf(path, sizeof(path), "%s/a-file", t->scratch_dir);
    file = fopen(path, "we");
    TK_REQUIRE(t, file != NULL);
    fclose(file);
    TK_FAILS(t, INVALID_ARGUMENT, symmem_store_open_file(path, &store));
    memset(path, 'p', sizeof(path));
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    TK_FAILS(t, PATH_TOO_LONG, symmem_store_open_file(path, &store));
    snprintf(path, sizeof(path), "%s/%0300d", t->scratch_dir, 0); /* one component too long */
    TK_FAILS(t, PATH_TOO_LONG, symmem_store_open_file(path, &store));
    TK_EQ_PTR(t, untouched, store);
}

TK_TEST(store_open, file_store_needs_permission, "SM-STORE-07", .max_ranks = 1) {
    char path[4096];
    symmem_store *store = NULL;
    struct resources_identity identity;
    symmem_status status;
    snprintf(path, sizeof(path), "%s/read-only", t->scratch_dir);
    TK_REQUIRE(t, mkdir(path, 0500) == 0);
    TK_REQUIRE(t, resources_become_ordinary(&identity));
    status = symmem_store_open_file(path, &store);
    TK_CHECK(t, resources_become_again(&identity));
    TK_FAILS(t, PERMISSION, status);
    symmem_store_close(status == SYMMEM_OK ? store : NULL);
}

TK_TEST(store_open, file_store_makes_its_directory, "SM-STORE-07", .max_ranks = 1) {
    static const mode_t masks[] = {0, 022, 077};
    for (size_t i = 0; i < LENGTH(masks); i++) {
        char path[4096];
        struct stat status = {0};
        symmem_store *store = NULL;
        mode_t mask = umask(masks[i]);
        symmem_status opened;
        snprintf(path, sizeof(path), "%s/made-%zu", t->scratch_dir, i);
        opened = symmem_store_open_file(path, &store);
        (void)umask(mask);
        TK_REQUIRE_STATUS(t, SYMMEM_OK, opened);
        TK_EQ_INT(t, 0, stat(path, &status));
        TK_CHECK(t, S_ISDIR(status.st_mode));
        TK_EQ_INT(t, 0700, status.st_mode & 07777);
        symmem_store_close(store);
    }
}

/* --- what is no value --------------------------------------------------------------- */

#define ODD_BYTES 37 /* a size by which the value's file is found */

/* Where the store keeps the value of ODD_BYTES bytes. */
static bool find_value(const char *folder, char *path, size_t capacity) {
    DIR *directory = opendir(folder);
    bool found = false;
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        struct stat status;
        char name[8192];
        snprintf(name, sizeof(name), "%s/%s", folder, entry->d_name);
        if (lstat(name, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != ODD_BYTES)
            continue;
        snprintf(path, capacity, "%s", name);
        found = true;
    }
    if (directory != NULL)
        closedir(directory);
    return found;
}

static bool put_in_place(const char *path, int kind) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;
    switch (kind) {
    case 0:
        return mkfifo(path, 0600) == 0;
    case 1:
        return symlink("/dev/zero", path) == 0;
    case 2:
        return mkdir(path, 0700) == 0;
    case 3:
        return symlink("nowhere", path) == 0;
    case 4: /* longer than a value may be, though nothing is in it */
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0 && ftruncate(fd, (off_t)SYMMEM_STORE_VALUE_MAX + 1) == 0)
            return close(fd) == 0;
        return false;
    default:
        if (strlen(path) >= sizeof(address.sun_path))
            return true; /* the case goes without */
        memcpy(address.sun_path, path, strlen(path));
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        return fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
               close(fd) == 0;
    }
}

TK_TEST(store_open, file_store_reads_values_only, "SM-STORE-09,SM-STORE-60,SM-ERROR-04",
        .max_ranks = 1) {
    char folder[4096], path[8192], value[64] = "unchanged";
    size_t bytes = 99;
    symmem_store *store = NULL;
    TK_REQ(t, "SM-STORE-09");
    snprintf(folder, sizeof(folder), "%s/values", t->scratch_dir);
    TK_REQUIRE_STATUS(t, SYMMEM_OK, symmem_store_open_file(folder, &store));
    for (int kind = 0; kind < 6; kind++) {
        struct stat status;
        TK_OK(t, symmem_store_set(store, "odd", folder, ODD_BYTES, LIMIT_MS));
        TK_REQUIRE(t, find_value(folder, path, sizeof(path)) && unlink(path) == 0);
        TK_REQUIRE(t, put_in_place(path, kind));
        if (lstat(path, &status) != 0)
            continue;
        tk_checkpoint(t, "kind %d", kind);
        TK_REQ(t, "SM-STORE-09");
        TK_FAILS(t, CORRUPT, symmem_store_get(store, "odd", value, sizeof(value), &bytes, 0));
        TK_REQ(t, "SM-STORE-60");
        TK_OK(t, symmem_store_wait(store, "odd", LIMIT_MS));
        TK_FAILS(t, CORRUPT, symmem_store_get(store, "odd", value, sizeof(value), &bytes, 0));
        TK_EQ_INT(t, 99, bytes);
        TK_EQ_STR(t, "unchanged", value);
        TK_REQUIRE(t, remove(path) == 0);
    }
    symmem_store_close(store);
}

static size_t claimed_bytes;

static symmem_status get_claimed(void *self, const char *key, void *value, size_t capacity,
                                 size_t *bytes_p, uint32_t timeout_ms) {
    (void)self, (void)key, (void)value, (void)capacity, (void)timeout_ms;
    *bytes_p = claimed_bytes;
    return claimed_bytes > SYMMEM_STORE_VALUE_MAX ? SYMMEM_OUT_OF_RANGE : SYMMEM_OK;
}

TK_TEST(store_open, custom_sizes_are_checked, "SM-STORE-10,SM-ERROR-04", .max_ranks = 1) {
    struct counting_store counting = {0};
    symmem_store_ops ops = counting_store_ops;
    symmem_store *store = NULL;
    char value[8];
    size_t bytes = 99;
    TK_REQ(t, "SM-STORE-10");
    ops.get = get_claimed;
    TK_REQUIRE_STATUS(t, SYMMEM_OK, symmem_store_open_custom(&ops, &counting, &store));
    claimed_bytes = sizeof(value) + 1;
    TK_FAILS(t, CORRUPT, symmem_store_get(store, "k", value, sizeof(value), &bytes, 10));
    claimed_bytes = (size_t)SYMMEM_STORE_VALUE_MAX + 1;
    TK_FAILS(t, CORRUPT, symmem_store_get(store, "k", value, sizeof(value), &bytes, 10));
    TK_EQ_INT(t, 99, bytes);
    claimed_bytes = sizeof(value);
    TK_OK(t, symmem_store_get(store, "k", value, sizeof(value), &bytes, LIMIT_MS));
    TK_EQ_INT(t, sizeof(value), bytes);
    symmem_store_close(store);
}

/* --- custom tables ------------------------------------------------------------------ */

TK_TEST(store_open, custom_table_is_checked, "SM-STORE-08,SM-ERROR-04", .max_ranks = 1) {
    struct counting_store counting = {0};
    symmem_store *const untouched = (symmem_store *)(void *)t;
    symmem_store *store = untouched;
    symmem_store_ops ops = counting_store_ops;
    TK_REQ(t, "SM-STORE-08");
    ops.size = sizeof(ops) - 1;
    TK_FAILS(t, ABI, symmem_store_open_custom(&ops, &counting, &store));
    ops.size = 0;
    TK_FAILS(t, ABI, symmem_store_open_custom(&ops, &counting, &store));
    for (size_t at = offsetof(symmem_store_ops, set); at < sizeof(ops); at += sizeof(ops.set)) {
        ops = counting_store_ops;
        memset((char *)&ops + at, 0, sizeof(ops.set));
        TK_FAILS(t, ABI, symmem_store_open_custom(&ops, &counting, &store));
    }
    TK_EQ_PTR(t, untouched, store);
    TK_EQ_INT(t, 0, counting_store_calls(&counting) + atomic_load(&counting.closes));
    ops = counting_store_ops;
    ops.size = sizeof(ops) + 64; /* a later implementer's */
    if (TK_OK(t, symmem_store_open_custom(&ops, &counting, &store)))
        symmem_store_close(store);
}

TK_TEST(store_open, custom_store_serves_groups, "SM-STORE-08", .max_ranks = 8) {
    struct counting_store counting = {.inner = t->store};
    symmem_store *store = NULL;
    symmem_group *group = NULL;
    int32_t *ranks = tk_scratch(t, (size_t)t->world_size * sizeof(*ranks));
    TK_OK(t, symmem_store_open_custom(&counting_store_ops, &counting, &store));
    TK_OK(t, symmem_group_create(t->context, "custom", NULL, 0, store, &group));
    TK_OK(t, symmem_group_all_gather(group, &t->rank, sizeof(t->rank), ranks, LIMIT_MS));
    for (int32_t rank = 0; rank < t->world_size; rank++)
        TK_EQ_INT(t, rank, ranks[rank]);
    TK_CHECK(t, t->world_size == 1 || counting_store_writes(&counting) > 0);
    tk_group_barrier(t, group);
    TK_OK(t, symmem_group_destroy(group));
    tk_out_of_band_barrier(t);
    tk_end_context(t);
    symmem_store_close(store);
    TK_EQ_INT(t, 1, atomic_load(&counting.closes));
}

/* --- no room ------------------------------------------------------------------------- */

TK_TEST(store_open, failed_set_changes_nothing, "SM-STORE-11,SM-LIFE-17", .max_ranks = 1,
        .flags = TK_PROCESS_ONLY) {
    static const char *const keys[] = {"there", "absent"};
    char path[4096], large[65536] = "large", got[16] = "";
    symmem_store *store = NULL;
    struct rlimit before, small;
    size_t bytes = 0;
    snprintf(path, sizeof(path), "%s/small", t->scratch_dir);
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &store));
    TK_OK(t, symmem_store_set(store, keys[0], "old", 4, LIMIT_MS));
    const int entries = resources_count_entries(path);
    TK_REQUIRE(t, getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = (struct rlimit){.rlim_cur = 4096, .rlim_max = before.rlim_max};
    for (int i = 0; i < 2; i++) {
        setrlimit(RLIMIT_FSIZE, &small);
        symmem_status status = symmem_store_set(store, keys[i], large, sizeof(large), LIMIT_MS);
        setrlimit(RLIMIT_FSIZE, &before);
        TK_STATUS(t, SYMMEM_LIMIT, status);
        TK_SAYS(t, "RLIMIT_FSIZE is 4096");
        TK_EQ_INT(t, entries, resources_count_entries(path));
        TK_STATUS(t, i == 0 ? SYMMEM_OK : SYMMEM_NOT_FOUND,
                  symmem_store_get(store, keys[i], got, sizeof(got), &bytes, LIMIT_MS));
        TK_CHECK(t, bytes == 4 && memcmp(got, "old", 4) == 0);
    }
    TK_OK(t, symmem_store_set(store, keys[1], large, sizeof(large), LIMIT_MS));
    symmem_store_close(store);
}
