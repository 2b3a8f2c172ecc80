/* SPDX-License-Identifier: BSD-3-Clause */
/* The directory of a case, and the names that must not stay in /dev/shm. */
#include "runner.h"

#include <dirent.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTLE_MS 300
#define MAX_OPEN_DIRECTORIES 16

bool scratch_create(char *path, size_t capacity) {
    const char *parent = getenv("TMPDIR");

    if (parent == NULL || parent[0] != '/' || strlen(parent) > capacity - 40)
        parent = "/tmp";
    snprintf(path, capacity, "%s/symmem-conformance-XXXXXX", parent);
    if (mkdtemp(path) != NULL)
        return true;
    path[0] = '\0';
    return false;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info;
    (void)where;
    if (type == FTW_DP || type == FTW_D || type == FTW_DNR)
        rmdir(path);
    else
        unlink(path);
    return 0;
}

void scratch_remove(const char *path) {
    /* Only what scratch_create made, and never through a link. */
    if (strstr(path, "/symmem-conformance-") == NULL)
        return;
    nftw(path, remove_entry, MAX_OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* The file store's lock and its word for waiters; everything else is a key or half of one. */
static bool is_stores_own(const struct dirent *entry) {
    return entry->d_name[0] == '.' || strcmp(entry->d_name, "lock") == 0 ||
           strcmp(entry->d_name, "notify") == 0;
}

int scratch_list_files(const char *path, char *names, size_t capacity) {
    DIR *directory = opendir(path);
    const struct dirent *entry;
    size_t used = 0;
    int count = 0;

    names[0] = '\0';
    if (directory == NULL)
        return 0;
    while ((entry = readdir(directory)) != NULL) {
        if (is_stores_own(entry))
            continue;
        if (used < capacity)
            used += (size_t)snprintf(names + used, capacity - used, "%s%s", count == 0 ? "" : " ",
                                     entry->d_name);
        count++;
    }
    closedir(directory);
    return count;
}

struct shm_names {
    int count;
    char (*names)[256];
};

static bool is_own(const char *name) {
    char path[300];
    struct stat info;

    snprintf(path, sizeof(path), "/dev/shm/%s", name);
    return lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
}

struct shm_names *shm_names_take(void) {
    struct shm_names *taken = calloc(1, sizeof(*taken));
    DIR *directory = opendir("/dev/shm");
    const struct dirent *entry;

    while (taken != NULL && directory != NULL && (entry = readdir(directory)) != NULL) {
        void *grown;

        if (!is_own(entry->d_name))
            continue;
        grown = realloc(taken->names, (size_t)(taken->count + 1) * sizeof(*taken->names));
        if (grown == NULL)
            break;
        taken->names = grown;
        snprintf(taken->names[taken->count++], sizeof(*taken->names), "%s", entry->d_name);
    }
    if (directory != NULL)
        closedir(directory);
    return taken;
}

void shm_names_free(struct shm_names *names) {
    if (names != NULL)
        free(names->names);
    free(names);
}

static bool contains(const struct shm_names *names, const char *name) {
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->names[i], name) == 0)
            return true;
    return false;
}

/* The names of `later` that `before` lacks and that still exist. */
static int new_names(const struct shm_names *before, const struct shm_names *later, char *text,
                     size_t capacity) {
    size_t used = 0;
    int count = 0;

    text[0] = '\0';
    for (int i = 0; i < later->count; i++) {
        if (contains(before, later->names[i]) || !is_own(later->names[i]))
            continue;
        if (used < capacity)
            used += (size_t)snprintf(text + used, capacity - used, "%s/dev/shm/%s",
                                     count == 0 ? "" : " ", later->names[i]);
        count++;
    }
    return count;
}

int shm_names_new(const struct shm_names *before, char *text, size_t capacity) {
    struct shm_names *later = shm_names_take();
    int count = 0;

    text[0] = '\0';
    if (before != NULL && later != NULL)
        count = new_names(before, later, text, capacity);
    if (count > 0) {
        /* Another program's name may live for a moment between its creation and its unlink. */
        tk_sleep_ms(SETTLE_MS);
        count = new_names(before, later, text, capacity);
    }
    shm_names_free(later);
    return count;
}
