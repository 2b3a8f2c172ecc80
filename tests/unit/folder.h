/* SPDX-License-Identifier: BSD-3-Clause */
/* A folder for a file store: ranks make and remove thousands of files there, and on a disk each may
 * wait for what other programs write. */
#ifndef SYMMEM_UNIT_FOLDER_H
#define SYMMEM_UNIT_FOLDER_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER_BYTES 32

/* In memory, where that is allowed. */
static inline bool make_folder(char path[FOLDER_BYTES]) {
    static const char *const places[] = {"/dev/shm", "/tmp"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, FOLDER_BYTES, "%s/symmem-unit-XXXXXX", places[i]);
        if (mkdtemp(path) != NULL)
            return true;
    }
    return false;
}

/* Counts its files, or those whose names begin with the prefix, if it is not 0. */
static inline int count_files(const char *path, char prefix) {
    DIR *directory = opendir(path);
    if (directory == NULL)
        return -1;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (prefix == '\0' ? entry->d_name[0] != '.' : entry->d_name[0] == prefix)
            count++;
    closedir(directory);
    return count;
}

static inline void remove_tree(const char *path) {
    DIR *directory = opendir(path);
    if (directory == NULL)
        return;
    char name[512];
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(name);
    }
    closedir(directory);
    rmdir(path);
}

#endif
