/* SPDX-License-Identifier: BSD-3-Clause */
/* What another user owns or could change in a file store is refused. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "kit.h"
#include "resources.h"

#define LIMIT_MS 10000u
#define ANOTHER_USER 65534u

static void expect_refused(struct tk *t, symmem_status status, const char *says) {
    if (TK_STATUS(t, SYMMEM_PERMISSION, status))
        TK_CHECK_MSG(t, strstr(last_record().message, says) != NULL, "the record says \"%s\"",
                     last_record().message);
}

static void open_refused(struct tk *t, const char *path, const char *says) {
    symmem_store *const untouched = (symmem_store *)(void *)t;
    symmem_store *store = untouched;
    expect_refused(t, symmem_store_open_file(path, &store), says);
    TK_EQ_PTR(t, untouched, store);
}

TK_TEST(store_owner, folder_is_the_users_own, "SM-STORE-12,SM-ERROR-04", .max_ranks = 1) {
    static const mode_t modes[] = {0777, 01777, 0770, 0722, 0702};
    char folder[4096], path[8192], text[16];
    symmem_store *store = NULL;
    TK_REQ(t, "SM-STORE-12");
    snprintf(folder, sizeof folder, "%s/open", t->scratch_dir);
    TK_REQUIRE(t, mkdir(folder, 0700) == 0);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        snprintf(text, sizeof text, "mode %04o", (unsigned)modes[i]);
        tk_checkpoint(t, "%s", text);
        TK_REQUIRE(t, chmod(folder, modes[i]) == 0);
        open_refused(t, folder, text);
    }
    TK_REQUIRE(t, chmod(folder, 0755) == 0); /* to be looked at does no harm */
    snprintf(path, sizeof path, "%s/link", t->scratch_dir);
    TK_REQUIRE(t, symlink(folder, path) == 0);
    open_refused(t, path, "symbolic link");
    strcat(path, "//"); /* with it the system follows the link whatever it is told */
    open_refused(t, path, "symbolic link");
    if (geteuid() == 0) {
        TK_REQUIRE(t, chown(folder, ANOTHER_USER, (gid_t)-1) == 0);
        open_refused(t, folder, "belongs to user 65534");
        TK_REQUIRE(t, chown(folder, 0, (gid_t)-1) == 0);
    }
    TK_EQ_INT(t, 0, resources_count_entries(folder));
    strcat(folder, "/");
    if (TK_OK(t, symmem_store_open_file(folder, &store)))
        symmem_store_close(store);
}

/* --- the files ---------------------------------------------------------------------- */

/* Makes one call that needs the file. The store is open already, but for the first one. */
typedef symmem_status (*use_fn)(symmem_store *store, const char *folder);

static symmem_status use_notify(symmem_store *store, const char *folder) {
    (void)store;
    symmem_status status = symmem_store_open_file(folder, &store);
    if (status == SYMMEM_OK)
        symmem_store_close(store);
    return status;
}

static symmem_status use_lock(symmem_store *store, const char *folder) {
    int64_t value;
    (void)folder;
    return symmem_store_add(store, "counter", 1, &value, LIMIT_MS);
}

static symmem_status use_value(symmem_store *store, const char *folder) {
    char value[8];
    size_t bytes;
    (void)folder;
    return symmem_store_get(store, "value", value, sizeof value, &bytes, LIMIT_MS);
}

/* Refuses it with wrong modes and of another user, takes it as it was. */
static void judge_file(struct tk *t, symmem_store *store, const char *folder, const char *name,
                       use_fn use) {
    static const mode_t modes[] = {0666, 0644, 0640, 0604, 0620, 0601};
    char path[8192], text[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        snprintf(text, sizeof text, "%s: mode %04o", name + (name[0] == 'k'), (unsigned)modes[i]);
        tk_checkpoint(t, "%s", text);
        TK_REQUIRE(t, chmod(path, modes[i]) == 0);
        expect_refused(t, use(store, folder), text);
    }
    TK_REQUIRE(t, chmod(path, 0600) == 0);
    if (geteuid() == 0) {
        snprintf(text, sizeof text, "%s belongs to user %u", name + (name[0] == 'k'), ANOTHER_USER);
        TK_REQUIRE(t, chown(path, ANOTHER_USER, (gid_t)-1) == 0);
        expect_refused(t, use(store, folder), text);
        TK_REQUIRE(t, chown(path, 0, (gid_t)-1) == 0);
    }
    TK_OK(t, use(store, folder));
}

TK_TEST(store_owner, files_are_the_users_own, "SM-STORE-13", .max_ranks = 1) {
    char folder[4096];
    symmem_store *store = NULL;
    int64_t value;
    snprintf(folder, sizeof folder, "%s/files", t->scratch_dir);
    TK_REQUIRE_OK(t, symmem_store_open_file(folder, &store));
    TK_OK(t, symmem_store_add(store, "counter", 1, &value, LIMIT_MS));
    TK_OK(t, symmem_store_set(store, "value", "12345678", 8, LIMIT_MS));
    judge_file(t, store, folder, "notify", use_notify);
    judge_file(t, store, folder, "lock", use_lock);
    judge_file(t, store, folder, "kvalue", use_value);
    TK_OK(t, symmem_store_add(store, "counter", 1, &value, LIMIT_MS));
    TK_EQ_INT(t, 3, value); /* none of the refused ones counted */
    symmem_store_close(store);
}

/* A reader could keep the lock, and a pipe or a folder in the place of a file is none. */
TK_TEST(store_owner, files_are_files, "SM-STORE-13", .max_ranks = 1) {
    char folder[4096], path[8192];
    symmem_store *store = NULL;
    snprintf(folder, sizeof folder, "%s/pipes", t->scratch_dir);
    TK_REQUIRE_OK(t, symmem_store_open_file(folder, &store));
    snprintf(path, sizeof path, "%s/lock", folder);
    TK_REQUIRE(t, mkfifo(path, 0600) == 0);
    TK_FAILS(t, CORRUPT, use_lock(store, folder));
    TK_REQUIRE(t, unlink(path) == 0);
    TK_OK(t, use_lock(store, folder));
    snprintf(path, sizeof path, "%s/notify", folder);
    TK_REQUIRE(t, unlink(path) == 0 && mkfifo(path, 0600) == 0);
    TK_FAILS(t, CORRUPT, use_notify(store, folder));
    symmem_store_close(store);
}
