/* SPDX-License-Identifier: BSD-3-Clause */
/* A tree of files that stand for those of the kernel. */
#ifndef SYMMEM_TESTS_CGROUP_TREE_H
#define SYMMEM_TESTS_CGROUP_TREE_H

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "folder.h"
#include "unit_main.h"
#include "cgroup.h"

#define MOST_FILES 12

typedef struct file {
    const char *path, *text;
} file;

static char root[FOLDER_BYTES];

static inline void put(const char *path, const char *text) {
    char whole[512];
    CU_ASSERT_FATAL((size_t)snprintf(whole, sizeof whole, "%s%s", root, path) < sizeof whole);
    for (char *at = strchr(whole + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    FILE *out = fopen(whole, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    CU_ASSERT(fputs(text, out) >= 0);
    CU_ASSERT_EQUAL(fclose(out), 0);
}

static inline void plant(const file files[MOST_FILES]) {
    CU_ASSERT_FATAL(make_folder(root));
    for (int i = 0; i < MOST_FILES && files[i].path; i++)
        put(files[i].path, files[i].text);
}

static inline int remove_entry(const char *path, const struct stat *about, int kind,
                               struct FTW *at) {
    (void)about, (void)kind, (void)at;
    return remove(path);
}

static inline void fell(void) {
    CU_ASSERT_EQUAL(nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

#define CGROUP "/proc/self/cgroup"
#define MOUNTS "/proc/self/mountinfo"
#define SECOND "26 23 0:22 / /g rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

#endif
