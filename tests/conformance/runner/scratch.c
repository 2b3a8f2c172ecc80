/* SPDX-License-Identifier: BSD-3-Clause */
/* The directory of a case. */
#include "runner.h"

#include <dirent.h>
#include <ftw.h>
#include <sys/stat.h>

#define MAX_OPEN_DIRECTORIES 16

bool scratch_create(char *path, size_t capacity) {
    const char *parent = getenv("TMPDIR");
    char temporary[300];
    if (parent == NULL || parent[0] != '/' || strlen(parent) > capacity - 40)
        parent = "/tmp";
    snprintf(path, capacity, "%s/symmem-conformance-XXXXXX", parent);
    if (mkdtemp(path) == NULL) {
        path[0] = '\0';
        return false;
    }
    snprintf(temporary, sizeof(temporary), "%s/tmp", path);
    if (mkdir(temporary, 0700) == 0)
        return true;
    rmdir(path);
    path[0] = '\0';
    return false;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info, (void)where;
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
    return strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
           strcmp(entry->d_name, "lock") == 0 || strcmp(entry->d_name, "notify") == 0;
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
