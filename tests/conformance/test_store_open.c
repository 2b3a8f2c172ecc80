/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening stores: directories, permissions, custom tables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "counting_store.h"
#include "kit.h"
#include "resources.h"

#define LIMIT_MS 10000u

/* --- opening ------------------------------------------------------------------------ */

static void file_store_refuses_paths(struct tk *t) {
    char path[8192];
    symmem_store *const untouched = (symmem_store *)(void *)t;
    symmem_store *store = untouched;
    FILE *file;
    TK_REQ(t, "SM-STORE-07");
    snprintf(path, sizeof(path), "%s/a-file", t->scratch_dir);
    file = fopen(path, "we");
    TK_REQUIRE(t, file != NULL);
    fclose(file);
    TK_STATUS(t, SYMMEM_INVALID_ARGUMENT, symmem_store_open_file(path, &store));
    memset(path, 'p', sizeof(path));
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    TK_STATUS(t, SYMMEM_PATH_TOO_LONG, symmem_store_open_file(path, &store));
    snprintf(path, sizeof(path), "%s/%0300d", t->scratch_dir, 0); /* one component too long */
    TK_STATUS(t, SYMMEM_PATH_TOO_LONG, symmem_store_open_file(path, &store));
    TK_EQ_PTR(t, untouched, store);
}

static void file_store_needs_permission(struct tk *t) {
    char path[4096];
    symmem_store *store = NULL;
    struct resources_identity identity;
    symmem_status status;
    TK_REQ(t, "SM-STORE-07");
    snprintf(path, sizeof(path), "%s/read-only", t->scratch_dir);
    TK_REQUIRE(t, mkdir(path, 0500) == 0);
    TK_REQUIRE(t, resources_become_ordinary(&identity));
    status = symmem_store_open_file(path, &store);
    TK_CHECK(t, resources_become_again(&identity));
    TK_STATUS(t, SYMMEM_PERMISSION, status);
    symmem_store_close(status == SYMMEM_OK ? store : NULL);
}

static void file_store_makes_its_directory(struct tk *t) {
    static const mode_t masks[] = {0, 022, 077};
    TK_REQ(t, "SM-STORE-07");
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
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

/* --- custom tables ------------------------------------------------------------------ */

static void custom_table_is_checked(struct tk *t) {
    struct counting_store counting = {0};
    symmem_store *const untouched = (symmem_store *)(void *)t;
    symmem_store *store = untouched;
    symmem_store_ops ops = counting_store_ops;
    TK_REQ(t, "SM-STORE-08");
    ops.size = sizeof(ops) - 1;
    TK_STATUS(t, SYMMEM_ABI, symmem_store_open_custom(&ops, &counting, &store));
    ops.size = 0;
    TK_STATUS(t, SYMMEM_ABI, symmem_store_open_custom(&ops, &counting, &store));
    for (size_t at = offsetof(symmem_store_ops, set); at < sizeof(ops); at += sizeof(ops.set)) {
        ops = counting_store_ops;
        memset((char *)&ops + at, 0, sizeof(ops.set));
        TK_STATUS(t, SYMMEM_ABI, symmem_store_open_custom(&ops, &counting, &store));
    }
    TK_EQ_PTR(t, untouched, store);
    TK_EQ_INT(t, 0, counting_store_calls(&counting) + atomic_load(&counting.closes));
    ops = counting_store_ops;
    ops.size = sizeof(ops) + 64; /* a later implementer's */
    if (TK_OK(t, symmem_store_open_custom(&ops, &counting, &store)))
        symmem_store_close(store);
}

static void custom_store_serves_groups(struct tk *t) {
    struct counting_store counting = {.inner = t->store};
    symmem_store *store = NULL;
    symmem_group *group = NULL;
    int32_t *ranks = calloc((size_t)t->world_size, sizeof(*ranks));
    TK_REQ(t, "SM-STORE-08");
    TK_REQUIRE(t, ranks != NULL);
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
    free(ranks);
}

static const struct tk_case cases[] = {
    {.name = "store_open.file_store_refuses_paths",
     .requirements = "SM-STORE-07,SM-ERROR-04",
     .max_ranks = 1,
     .body = file_store_refuses_paths},
    {.name = "store_open.file_store_needs_permission",
     .requirements = "SM-STORE-07",
     .max_ranks = 1,
     .body = file_store_needs_permission},
    {.name = "store_open.file_store_makes_its_directory",
     .requirements = "SM-STORE-07",
     .max_ranks = 1,
     .body = file_store_makes_its_directory},
    {.name = "store_open.custom_table_is_checked",
     .requirements = "SM-STORE-08,SM-ERROR-04",
     .max_ranks = 1,
     .body = custom_table_is_checked},
    {.name = "store_open.custom_store_serves_groups",
     .requirements = "SM-STORE-08",
     .max_ranks = 8,
     .body = custom_store_serves_groups},
};
TK_SUITE(store_open, cases);
